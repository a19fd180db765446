/* Attention (forward) with the instructions of compute capability 9.0. Each dtype and head size has
 * its own kernel. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/exp2.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_block.cuh"

typedef struct HopperForwardArgs {
    TensorMap q, k, v;
    AttentionArgs a;
} HopperForwardArgs;

#define BODY "kernels/cuda/attention/hopper/attention_hopper.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_each.cuh"

/* Tensor maps have coordinates of 32 bits and strides of 40 bits. (CUDA Driver API,
 * cuTensorMapEncodeTiled.) */
bool attention_hopper_takes(const AttentionArgs *a, int head, const CudaContext *cuda)
{
    const int64_t most = INT64_C(1) << 31, farthest = INT64_C(1) << 40;
    int64_t queries = a->S * a->G * a->R * a->E * 2, keys = a->T * a->G * a->E * 2;
    return cuda->compute_capability == 90 && attention_has_hopper_tile(head) && !a->drops &&
           a->T > 0 && a->S > 0 && a->B > 0 && a->B < most && a->G * a->R < most &&
           (a->S / 64 + 2) * a->R < most && a->S + a->jump < most - 2 * HOPPER_ROWS &&
           a->T < most - 2 * HOPPER_ROWS && queries < farthest && keys < farthest;
}

bool attention_hopper(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error)
{
    assert(attention_hopper_takes(a, head, cuda));
    HOPPER_CALL(launch_hopper);
}
