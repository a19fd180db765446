/* The gradients of keys and values with the instructions of compute capability 9.0: a kernel for
 * each type and head size. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/hopper/attention_hopper_block.cuh"

typedef struct HopperKeysArgs {
    TensorMap q, k, v, dout;
    AttentionArgs a;
} HopperKeysArgs;

/* Returns the limit: query q sees (q - limit) of the block's keys, at most all. */
DEVICE int hopper_limit(const AttentionArgs *a, const AttentionPlace *at)
{
    const int64_t most = 2 * HOPPER_ROWS, least = -INT64_C(0x7fffffff);
    int64_t limit = a->causal ? a->position + 1 - at->first : most;
    return (int)(limit < least ? least : limit < most ? limit : most);
}

#define BODY "kernels/cuda/attention/hopper/attention_hopper_keys.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_each.cuh"

bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error)
{
    assert(attention_hopper_takes(a, head, cuda));
    HOPPER_CALL(launch_keys);
}
