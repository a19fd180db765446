/* The list of ops without a kernel for CUDA devices. Their entry in a table of kernels is NULL, and
 * kernel_cuda_accepts refuses them. Products of operands with block scales have no kernel either
 * (see cuda_contract_accepts). A file that makes a table of kernels includes this file after
 * cuda.h. */
#ifndef TANDEM_KERNELS_CUDA_MISSING_H
#define TANDEM_KERNELS_CUDA_MISSING_H

#include <stddef.h>

#define cuda_quantise_blocks_last   NULL
#define cuda_quantise_blocks_first  NULL
#define cuda_quantise_blocks_inner  NULL
#define cuda_quantise_blocks_tokens NULL

#define cuda_quantise_pairs_last    NULL
#define cuda_quantise_pairs_first   NULL
#define cuda_quantise_pairs_inner   NULL
#define cuda_quantise_pairs_tokens  NULL
#define cuda_quantise_squares_first NULL
#define cuda_quantise_squares_last  NULL
#define cuda_quantise_squares_inner NULL
#define cuda_quantise_squares_outer NULL

#endif
