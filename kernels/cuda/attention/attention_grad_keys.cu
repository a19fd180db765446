/* The gradients of keys and values, on tensor cores: a kernel for each type and head size. */
#include "kernels/cuda/attention/attention.h"

#define BODY "kernels/cuda/attention/attention_grad_keys.cuh"
#include "kernels/cuda/attention/attention_each.cuh"

bool attention_grad_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                         CudaError *error)
{
    ATTENTION_CALL(launch_keys);
}
