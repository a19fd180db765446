/* Attention (forward) on tensor cores. Each dtype and head size has its own kernel. */
#include "kernels/cuda/attention/attention.h"

#define BODY "kernels/cuda/attention/attention_forward.cuh"
#include "kernels/cuda/attention/attention_each.cuh"

bool attention_forward(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error)
{
    ATTENTION_CALL(launch_forward);
}
