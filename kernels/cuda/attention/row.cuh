/* Rows of n numbers that a warp works on, in the plain kernels of attention. Each lane has every
 * 32nd number; sums are fp32, in shared memory, in a fixed order. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ROW_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ROW_CUH

#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

/* Returns the product of row i of x and row j of y. One lane computes it alone. */
DEVICE float row_dot(Array x, int64_t i, Array y, int64_t j, int64_t n)
{
    float sum = 0;
    for (int64_t e = 0; e < n; e++) sum = fmaf(read_one(x, i + e), read_one(y, j + e), sum);
    return sum;
}

/* sum [n] += the 32 lanes' weights times rows first, first + step, ... of y. */
DEVICE void row_add(float *sum, float weight, Array y, int64_t first, int64_t step, int64_t rows,
                    int64_t n)
{
    for (int64_t e0 = 0; e0 < n; e0 += WARP) {
        int64_t e = e0 + threadIdx.x % WARP;
        float total = e < n ? sum[e] : 0;
        for (int j = 0; j < WARP; j++) {
            float w = __shfl_sync(FULL, weight, j);
            if (j < rows && e < n) total = fmaf(w, read_one(y, first + j * step + e), total);
        }
        if (e < n) sum[e] = total;
    }
}

/* sum *= factor. A factor of 0 clears what memory held before, NaN too. */
DEVICE void row_scale(float *sum, float factor, int64_t n)
{
    for (int64_t e = threadIdx.x % WARP; e < n; e += WARP)
        sum[e] = factor == 0 ? 0 : sum[e] * factor;
    __syncwarp();
}

DEVICE void row_write(Array y, int64_t at, const float *sum, float factor, int64_t n,
                      bool accumulate)
{
    __syncwarp();
    for (int64_t e = threadIdx.x % WARP; e < n; e += WARP)
        write_one(y, at + e, fmaf(sum[e], factor, accumulate ? read_one(y, at + e) : 0));
}

#endif
