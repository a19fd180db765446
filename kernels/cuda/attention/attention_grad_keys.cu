/* The gradients of keys and of values on tensor cores. Each dtype and head size has its own
 * kernels. */
#include "kernels/cuda/attention/attention.h"

#define BODY "kernels/cuda/attention/attention_grad_keys.cuh"
#include "kernels/cuda/attention/attention_each.cuh"

bool attention_grad_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                         CudaError *error)
{
    ATTENTION_CALL(launch_keys);
}
