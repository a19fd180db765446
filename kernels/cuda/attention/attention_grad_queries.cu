/* The gradient of the queries on tensor cores. Each dtype and head size has its own kernel. */
#include "kernels/cuda/attention/attention.h"

#define BODY "kernels/cuda/attention/attention_grad_queries.cuh"
#include "kernels/cuda/attention/attention_each.cuh"

bool attention_grad_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                            CudaError *error)
{
    ATTENTION_CALL(launch_dq);
}
