/* Our own kernels for products. One prepares 8-bit operands for the library; the other computes
 * products of any types and sizes. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the bounded scales and the transposed operands to the scratch argument. This is one
 * launch. */
bool product_prepare_eight_bit(const Gemm *g, const KernelArgs *args, const CudaContext *cuda,
                               CudaError *error);
/* Applies both scales to the fp32 product in the scratch: columns `first` to first + g->chunk of D.
 * Writes them to the instruction's output, or adds them. This is one launch. */
bool product_scale_rows(const Gemm *g, const KernelArgs *args, int64_t first,
                        const CudaContext *cuda, CudaError *error);
/* Fills x [bytes] with random numbers of type t from -1 to 1; a different `which` gives different
 * numbers. */
bool product_fill(DType t, void *x, uint64_t bytes, uint32_t which, const CudaContext *cuda,
                  CudaError *error);
/* Computes any contraction of any accepted types in fp32, tile by tile. */
bool product_plain(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
