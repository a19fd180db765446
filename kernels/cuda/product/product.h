/* Our own kernels for products. One prepares 8-bit operands for the library, one applies scales
 * after the library's product, and the plain kernel computes products of all dtypes and sizes. */
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H
#define TANDEM_KERNELS_CUDA_PRODUCT_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes two things to the scratch argument in one launch: the scales, bounded from below, and the
 * transposed operands. */
bool product_prepare_eight_bit(const Gemm *g, const KernelArgs *args, const CudaContext *cuda,
                               CudaError *error);
/* Applies the scales of rows and columns to the fp32 product in the scratch argument, for columns
 * `first` to first + g->chunk - 1 of D. Writes the result to the instruction's output, or adds it
 * there. This takes one launch. */
bool product_scale_rows(const Gemm *g, const KernelArgs *args, int64_t first,
                        const CudaContext *cuda, CudaError *error);
/* Fills x with random numbers of dtype t between -1 and 1. Another value of `which` gives other
 * numbers. */
bool product_fill(DType t, void *x, uint64_t bytes, uint32_t which, const CudaContext *cuda,
                  CudaError *error);
/* Computes any contraction of any accepted dtypes in fp32, tile by tile. */
bool product_plain(OpKind op, const KernelArgs *args, const CudaContext *cuda, CudaError *error);

#ifdef __cplusplus
}
#endif

#endif
