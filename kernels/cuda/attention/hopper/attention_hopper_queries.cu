/* The gradient of the queries with the instructions of compute capability 9.0. Each dtype and head
 * size has its own kernel. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/hopper/attention_hopper_block.cuh"

typedef struct HopperQueriesArgs {
    TensorMap q, k, v, dout;
    AttentionArgs a;
} HopperQueriesArgs;

/* lse (for base 2) and delta of this thread's two rows, lane / 4 and lane / 4 + 8. */
typedef struct HopperSums {
    float lse[2], delta[2];
} HopperSums;

/* Loads lse and delta of this thread's rows. A row without a query gets an lse that makes P
 * zero. */
DEVICE HopperSums hopper_sums(const AttentionArgs *a, const AttentionPlace *at, int row)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    const int64_t heads = a->G * a->R, first = at->b * a->S * heads + at->head;
    HopperSums s;
    UNROLL for (int i = 0; i < 2; i++)
    {
        const int64_t query = at->first + row + warp * 16 + i * 8 + lane / 4;
        s.lse[i] = query < a->S ? a->lse[first + query * heads] * LOG2_E : INFINITY;
        s.delta[i] = query < a->S ? a->delta[first + query * heads] : 0;
    }
    return s;
}

#define BODY "kernels/cuda/attention/hopper/attention_hopper_queries.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_each.cuh"

bool attention_hopper_queries(const AttentionArgs *a, int head, const CudaContext *cuda,
                              CudaError *error)
{
    assert(attention_hopper_takes(a, head, cuda));
    HOPPER_CALL(launch_queries);
}
