/* Attention and its gradient, with the instructions that only compute capability 9.0 has. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H

#include "kernels/cuda/attention/attention.cuh"

/* Refuses dropout and heads of more than 128 numbers; the mma.sync kernels take those. */
bool attention_hopper_takes(const AttentionArgs *a, int head, const CudaContext *cuda);
bool attention_hopper(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error);
/* Expects delta in the workspace. */
bool attention_hopper_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                              CudaError *error);
bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error);

/* ---- the gradient in one kernel, between two small ones; every function needs the scratch */

/* Also refuses tiles that are not full (128 keys, 128 queries; with heads of 128: 64 queries), and
 * too little scratch. */
bool attention_hopper_grad_takes(const AttentionArgs *a, int head, uint64_t scratch_bytes,
                                 const CudaContext *cuda);
bool attention_grad_rows_before(const KernelArgs *args, const AttentionArgs *a, int head,
                                const CudaContext *cuda, CudaError *error);
bool attention_hopper_grad(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error);
bool attention_grad_sums_after(const KernelArgs *args, const AttentionArgs *a, int head,
                               const CudaContext *cuda, CudaError *error);

#endif
