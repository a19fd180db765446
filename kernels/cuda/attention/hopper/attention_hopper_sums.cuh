/* The layout of the scratch memory of attention_hopper_grad.cu (the gradient in one kernel), and
 * the list of the tiles of queries that a block of keys reads. All functions are pure, so that a
 * test can check them for every block of a launch. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_SUMS_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_SUMS_CUH

#include "kernels/attention_tiles.h"
#include "kernels/cuda/attention/attention.cuh"

/* lse and delta have one number for each query and head, in the order [B, G R, S]. dq holds sums of
 * dQ by tiles of queries, in the order in which attention_hopper_grad.cuh hands them over. turns
 * has a counter for each tile of queries: how many blocks have added to that tile. Blocks draw
 * their tickets from *ticket (grad_begin). */
typedef struct GradScratch {
    float *delta, *lse, *dq;
    uint32_t *turns, *ticket;
} GradScratch;

static inline int64_t sums_aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Returns the bytes of scratch memory of a call: delta, lse, dq, turns and ticket. */
static inline uint64_t attention_sums_bytes(int64_t rows, int head)
{
    const int64_t row = (int64_t)sizeof(float);
    return (uint64_t)(2 * sums_aligned(rows * row) + rows * head * row +
                      (rows / attention_tile_queries(head) + 1) * (int64_t)sizeof(uint32_t));
}

static inline GradScratch grad_scratch(const AttentionArgs *a, int head)
{
    const int64_t rows = a->B * a->S * a->G * a->R;
    const int64_t apart = sums_aligned(rows * (int64_t)sizeof(float)) / (int64_t)sizeof(float);
    GradScratch s;
    s.delta = a->delta;
    s.lse = s.delta + apart;
    s.dq = s.lse + apart;
    s.turns = (uint32_t *)(s.dq + rows * head);
    s.ticket = s.turns + rows / attention_tile_queries(head);
    return s;
}

/* The tiles of queries that a block of keys reads. They are tiles first to end - 1 of each head
 * of the group. All heads together have `n` of them. A tile of queries has the same index for
 * all blocks. Fewer queries see later keys, so every block before this one also reads the tiles
 * that this block reads. So the i-th block that adds to a tile of queries holds the i-th tile
 * of keys. */
typedef struct GradWalk {
    int first, end, n;
} GradWalk;

DEVICE GradWalk grad_walk(const AttentionArgs *a, int64_t key, int columns)
{
    GradWalk w;
    w.first = (int)(attention_first(a, key) / columns);
    w.end = (int)(a->S / columns);
    w.n = (w.end - w.first) * (int)a->R;
    return w;
}

#endif
