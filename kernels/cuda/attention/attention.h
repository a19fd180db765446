/* Functions that one source file of attention defines and another one calls. Each function launches
 * kernels and returns false if a launch failed. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_H
#define TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_H

#include "kernels/attention_tiles.h"
#include "kernels/cuda/attention/attention.cuh"

/* Kernels for 16-bit numbers, which compute by tiles. E must be a multiple of 8 and at most `head`,
 * and `head` must be one of ATTENTION_HEADS. */
bool attention_forward(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error);
bool attention_grad_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                            CudaError *error);
bool attention_grad_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                         CudaError *error);

/* Kernels for all dtypes and sizes, which compute row by row in fp32. */
typedef struct AttentionTypes {
    DType q, k, v, out, dout, dq, dk, dv;
} AttentionTypes;
bool attention_plain(const AttentionArgs *a, const AttentionTypes *types, const CudaContext *cuda,
                     CudaError *error);
bool attention_grad_plain(const AttentionArgs *a, const AttentionTypes *types,
                          const CudaContext *cuda, CudaError *error);

#endif
