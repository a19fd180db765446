/* The gradients of keys and of values with the instructions of compute capability 9.0. Each dtype
 * and head size has its own kernel. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/hopper/attention_hopper_block.cuh"

typedef struct HopperKeysArgs {
    TensorMap q, k, v, dout;
    AttentionArgs a;
} HopperKeysArgs;

#define BODY "kernels/cuda/attention/hopper/attention_hopper_keys.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_each.cuh"

bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error)
{
    assert(attention_hopper_takes(a, head, cuda));
    HOPPER_CALL(launch_keys);
}
