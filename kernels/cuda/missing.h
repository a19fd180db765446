/* Ops that have no kernel on a CUDA device: their entry in a table of kernels is NULL, and
 * kernel_cuda_accepts refuses them. Products of blocks are missing, too (cuda_contract_accepts).
 * For the file that makes such a table, after cuda.h. */
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
