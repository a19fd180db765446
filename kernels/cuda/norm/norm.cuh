/* Rows shared out among threads, as both directions of the norms do it: narrow rows to a part of a
 * warp each, wide ones to a block. A thread holds two eights of a row; of rows that are wider than
 * that it fetches again in each pass. */
#ifndef TANDEM_KERNELS_CUDA_NORM_CUH
#define TANDEM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/reduce.cuh"

enum { NORM_THREADS = 512, HELD = 2 };

typedef struct Rows {
    int64_t n, width;
    int32_t eights; /* of a row */
    int32_t lanes;  /* threads that share a row: a power of two; above a warp: the whole block */
} Rows;

/* `each`: eights that a thread should have of a row. */
static inline Rows rows_of(int64_t n, int64_t width, int each, int narrowest, int widest)
{
    Rows rows;
    rows.n = n;
    rows.width = width;
    rows.eights = (int32_t)ceil_div(width, EIGHT);
    rows.lanes = narrowest;
    while (rows.lanes < widest && rows.lanes * each < rows.eights) rows.lanes *= 2;
    return rows;
}

/* Over the threads of a row; each gets it. held: shared, MAX_WARPS numbers; all threads of the
 * block come here. */
DEVICE float row_sum(Rows rows, float x, float *held)
{
    if (rows.lanes > WARP) {
        x = block_sum(x, held);
        __syncthreads();
        return x;
    }
    for (int lanes = rows.lanes / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
    return x;
}

DEVICE uint32_t row_largest(Rows rows, uint32_t x, uint32_t *held)
{
    if (rows.lanes > WARP) {
        x = block_largest(x, held);
        __syncthreads();
        return x;
    }
    for (int lanes = rows.lanes / 2; lanes > 0; lanes /= 2) {
        uint32_t other = __shfl_xor_sync(FULL, x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

/* The thread's largest of a row becomes the row's; all threads of the block come here. */
DEVICE void row_amax(Amax amax, Rows rows, int64_t row, int lane, uint32_t most, uint32_t *held)
{
    most = row_largest(rows, most, held);
    if (lane == 0 && row < rows.n) amax.out[row] = most;
}

/* ... and what the block has seen is raised to by all blocks. */
DEVICE void block_amax(Amax amax, uint32_t most, uint32_t *held)
{
    most = block_largest(most, held);
    if (threadIdx.x == 0) atomicMax(amax.out, most);
}

/* Where the u-th eight of thread `lane` begins, of those from `base` on (counted in eights), and
 * how many elements it has: 0 beyond the row, and in rows that are not there. */
DEVICE int64_t row_column(Rows rows, int base, int u, int lane)
{
    return (int64_t)(base + u * rows.lanes + lane) * EIGHT;
}

DEVICE int row_count(Rows rows, int64_t row, int64_t column)
{
    return row < rows.n ? eight_of(column, rows.width) : 0;
}

#endif
