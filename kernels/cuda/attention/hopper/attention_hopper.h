/* Attention and its gradient by the instructions that only compute capability 9.0 has. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_H

#include "kernels/cuda/attention/attention.cuh"

/* Not dropout, nor heads of more than 128 numbers: these are mma.sync's. */
bool attention_hopper_takes(const AttentionArgs *a, int head, const CudaContext *cuda);
bool attention_hopper(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error);
/* With delta there. */
bool attention_hopper_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                              CudaError *error);
bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error);

#endif
