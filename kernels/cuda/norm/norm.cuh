/* Common code of the norms and of their gradients: which threads compute a row. Some lanes of a
 * warp compute a narrow row together; a whole block computes a wide one. A thread keeps two groups
 * of eight elements of a row in registers. If a row is too wide for that, each pass loads the row
 * again. */
#ifndef TANDEM_KERNELS_CUDA_NORM_CUH
#define TANDEM_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/low/amax.cuh"
#include "kernels/cuda/reduce.cuh"

enum { NORM_THREADS = 512, HELD = 2 };

typedef struct Rows {
    int64_t n, width;
    int32_t eights; /* number of groups of eight elements in a row */
    /* number of threads that compute a row together: a power of two; more than 32 means the whole
     * block */
    int32_t lanes;
} Rows;

/* Returns how rows [n, width] are divided. `each` is how many groups of eight elements a thread
 * should get of a row. */
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

/* Adds up x over the threads of a row; each of them gets the sum. `held` is shared memory for
 * MAX_WARPS numbers. All threads of the block must call this function. */
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

/* Stores the largest magnitude of a row, from the largest magnitude `most` of each of its threads.
 * All threads of the block must call this function. */
DEVICE void row_amax(Amax amax, Rows rows, int64_t row, int lane, uint32_t most, uint32_t *held)
{
    most = row_largest(rows, most, held);
    if (lane == 0 && row < rows.n) amax.out[row] = most;
}

/* Raises the maximum of the whole tensor to the largest magnitude of this block. All threads of the
 * block must call this function. */
DEVICE void block_amax(Amax amax, uint32_t most, uint32_t *held)
{
    most = block_largest(most, held);
    if (threadIdx.x == 0) atomicMax(amax.out, most);
}

/* Returns the first column of the u-th group of eight elements of thread `lane`; groups are counted
 * from group `base` on. row_count returns how many elements that group has: 0 if it lies beyond the
 * end of the row, or if the row does not exist. */
DEVICE int row_column(Rows rows, int base, int u, int lane)
{
    return (base + u * rows.lanes + lane) * EIGHT;
}

DEVICE int row_count(Rows rows, int64_t row, int column)
{
    return row < rows.n ? eight_of(column, rows.width) : 0;
}

/* ---- Kernels only for 16-bit numbers, in wide arrays whose rows are multiples of eight elements.
 * The compiler then leaves out the code for all other arrays, and needs half as many registers for
 * the elements of a row. */

static inline bool norm_is_half(Array x)
{
    return x.wide && (x.dtype == DT_bf16 || x.dtype == DT_f16);
}

/* Tells the compiler, if `half` is true, that norm_is_half accepts the array. */
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
    Array mean, r; /* [n]: mean of each row; 1 / deviation of each row */
    Rows rows;
    float eps;
    bool adds, keeps; /* adds: the norm's input is x + addend; keeps: that sum is also written, to
                         `sum` */
    bool centred;     /* true: LayerNorm; false: RMSNorm */
    Amax amax;        /* for the largest magnitude of y */
} NormArgs;

/* norm_warps.cu: computes a norm without other ops, for rows of 264 to 4096 bf16 numbers, a
 * multiple of eight. */
bool norm_has_warps(const NormArgs *p);
bool norm_warps(NormArgs p, const CudaContext *cuda, CudaError *error);

#endif
