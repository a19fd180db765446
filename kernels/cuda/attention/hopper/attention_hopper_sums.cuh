/* Scratch of the gradient in one kernel (attention_hopper_grad.cu), and its walk: the tiles of
 * queries that a block of keys visits. Both kinds of functions are pure, so that a test can check
 * them for all blocks of a launch. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_SUMS_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_SUMS_CUH

#include "kernels/attention_tiles.h"
#include "kernels/cuda/attention/attention.cuh"

/* Rows are those of lse, but [B, G R, S]. dq is [tiles of queries][parts of a tile]; see
 * attention_hopper_grad.cuh. turns has a counter for each tile: the number of blocks that have
 * added to it. */
typedef struct GradScratch {
    float *delta, *lse, *dq;
    uint32_t *turns, *ticket;
} GradScratch;

static inline int64_t sums_aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Returns the scratch of a call: delta, lse, dq, turns, ticket. */
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

/* The tiles of queries that a block of keys visits: [first, end) of each of the group's heads, n in
 * all heads together. A tile has the same number for every block of keys. Later keys are seen by
 * fewer queries, so a block visits only tiles that the blocks before it visit, too. So the n-th
 * block that adds to a tile is the block of the n-th tile of keys. */
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
