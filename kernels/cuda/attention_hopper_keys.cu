/* The gradients of keys and values by the instructions of compute capability 9.0: a kernel for each
 * type and head size. */
#include "kernels/cuda/attention_hopper.h"

#include "kernels/cuda/attention_hopper_block.cuh"

typedef struct HopperArgs {
    TensorMap q, k, v, dout;
    AttentionArgs a;
} HopperArgs;

/* Which queries a block of keys goes through, tile by tile, of head after head of the group. */
typedef struct HopperWalk {
    int first, n; /* n: tiles of all heads */
} HopperWalk;

DEVICE HopperWalk hopper_walk(const AttentionArgs *a, const AttentionPlace *at, int columns)
{
    int64_t begin = a->causal ? at->first - a->position : 0; /* the first that sees any key */
    HopperWalk w;
    w.first = begin < 0 ? 0 : begin < a->S ? (int)begin : (int)a->S;
    w.n = ((int)a->S - w.first + columns - 1) / columns * (int)a->R;
    return w;
}

/* After the last tile of a head the first one of the next is due. */
DEVICE int hopper_next(const HopperWalk *w, const AttentionArgs *a, int query, int columns)
{
    return query + columns < a->S ? query + columns : w->first;
}

/* Query q sees as many of the block's keys as q more than this, but no more than there are. */
DEVICE int hopper_limit(const AttentionArgs *a, const AttentionPlace *at)
{
    const int64_t most = 2 * HOPPER_ROWS, least = -INT64_C(0x7fffffff);
    int64_t limit = a->causal ? a->position + 1 - at->first : most;
    return (int)(limit < least ? least : limit < most ? limit : most);
}

#define BODY "kernels/cuda/attention_hopper_keys.cuh"
#include "kernels/cuda/attention_hopper_each.cuh"

bool attention_hopper_keys(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error)
{
    assert(attention_hopper_takes(a, head, cuda));
    HOPPER_CALL(launch_keys);
}
