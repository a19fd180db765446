/* How threads share rows in both directions of the norms: a narrow row is shared by a part of a
 * warp, a wide row by a block. A thread holds two groups of eight of a row. Wider rows are loaded
 * again in each pass. */
#ifndef TANDEM_KERNELS_CUDA_NORM_CUH
#define TANDEM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/reduce.cuh"

enum { NORM_THREADS = 512, HELD = 2 };

typedef struct Rows {
    int64_t n, width;
    int32_t eights; /* groups of eight in a row */
    /* threads that share a row: a power of two; more than a warp means the whole block */
    int32_t lanes;
} Rows;

/* `each`: groups of eight that a thread should have in a row. */
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

/* Sums over the threads of a row; each gets the result. held: shared memory for MAX_WARPS numbers;
 * all threads of the block must call this. */
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

/* Combines the threads' largest magnitudes into the row's; all threads of the block must call
 * this. */
DEVICE void row_amax(Amax amax, Rows rows, int64_t row, int lane, uint32_t most, uint32_t *held)
{
    most = row_largest(rows, most, held);
    if (lane == 0 && row < rows.n) amax.out[row] = most;
}

/* Raises the tensor's maximum to the block's largest magnitude. All threads of the block must call
 * this. */
DEVICE void block_amax(Amax amax, uint32_t most, uint32_t *held)
{
    most = block_largest(most, held);
    if (threadIdx.x == 0) atomicMax(amax.out, most);
}

/* Returns where the u-th group of eight of thread `lane` begins, counted from group `base`. The
 * next function returns its number of elements: 0 beyond the row or in rows that do not exist. */
DEVICE int row_column(Rows rows, int base, int u, int lane)
{
    return (base + u * rows.lanes + lane) * EIGHT;
}

DEVICE int row_count(Rows rows, int64_t row, int column)
{
    return row < rows.n ? eight_of(column, rows.width) : 0;
}

/* ---- kernels for 16-bit numbers alone: rows of whole eights in wide arrays. The compiler leaves
 * out the code for other arrays, and keeps the eights of a row in half of the registers. */

static inline bool norm_is_half(Array x)
{
    return x.wide && (x.dtype == DT_bf16 || x.dtype == DT_f16);
}

/* If `half` is true, tells the compiler that the arrays are those that norm_is_half accepts. */
DEVICE Array norm_array(const bool half, Array x)
{
    if (!half) return x;
    x.dtype = x.dtype == DT_bf16 ? DT_bf16 : DT_f16;
    x.wide = true;
    return x;
}

DEVICE int norm_count(const bool half, Rows rows, int64_t row, int column)
{
    int n = row_count(rows, row, column);
    return half ? n > 0 ? EIGHT : 0 : n;
}

/* ---- the norm ---- */

typedef struct NormArgs {
    Array x, addend, sum, weight, bias, y;
    Array mean, r; /* [n] */
    Rows rows;
    float eps;
    bool adds, keeps; /* the norm's input is x + addend; that sum is also written */
    bool centred;     /* LayerNorm */
    Amax amax;        /* the largest magnitude of y */
} NormArgs;

/* norm_warps.cu: a norm alone, over rows of 264 to 4096 bf16 numbers, a multiple of eight. */
bool norm_has_warps(const NormArgs *p);
bool norm_warps(NormArgs p, const CudaContext *cuda, CudaError *error);

#endif
