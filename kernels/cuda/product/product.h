/* Our own kernels for products: what the library wants done to 8-bit operands first, and products
 * of any types and sizes. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scales, bounded, and turned operands, to the scratch argument. One launch. */
bool product_prepare_eight_bit(const Gemm *g, const KernelArgs *args, const CudaContext *cuda,
                               CudaError *error);
/* x [bytes] becomes random numbers of type t, from -1 to 1; others for another `which`. */
bool product_fill(DType t, void *x, uint64_t bytes, uint32_t which, const CudaContext *cuda,
                  CudaError *error);
/* Any contraction of any types that accepts takes, in fp32, tile by tile. */
bool product_plain(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
