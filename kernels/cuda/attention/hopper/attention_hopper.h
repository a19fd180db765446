/* Kernels for attention and its gradient that use instructions of compute capability 9.0 (Hopper)
 * which no other device has. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H

#include "kernels/cuda/attention/attention.cuh"

/* Returns false for calls that these kernels do not compute: calls with dropout, or with heads of
 * more than 128 numbers. The mma.sync kernels compute those. */
bool attention_hopper_takes(const AttentionArgs *a, int head, const CudaContext *cuda);
bool attention_hopper(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error);
/* These two compute the gradient. They expect that delta is already in the workspace. */
bool attention_hopper_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                              CudaError *error);
bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error);

/* ---- The gradient in one kernel. A small kernel runs before it, another one after it. Every
 * function needs the scratch memory. */

/* Returns false if the one kernel cannot compute the call. Beyond the conditions of
 * attention_hopper_takes, all tiles must be full (128 keys; 128 queries, or 64 with heads of 128
 * numbers), and the scratch memory must be large enough. */
bool attention_hopper_grad_takes(const AttentionArgs *a, int head, uint64_t scratch_bytes,
                                 const CudaContext *cuda);
bool attention_grad_rows_before(const KernelArgs *args, const AttentionArgs *a, int head,
                                const CudaContext *cuda, CudaError *error);
bool attention_hopper_grad(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error);
bool attention_grad_sums_after(const KernelArgs *args, const AttentionArgs *a, int head,
                               const CudaContext *cuda, CudaError *error);

#endif
