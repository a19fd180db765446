/* Functions of the plain kernels of attention on rows of n numbers. A warp works on a row, and each
 * lane handles every 32nd number of the row. Sums are in fp32 in shared memory; the order of each
 * sum is fixed. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ROW_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ROW_CUH

#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

/* Returns the dot product of the n numbers from x[i] on and the n numbers from y[j] on. One lane
 * computes it alone. */
DEVICE float row_dot(Array x, int64_t i, Array y, int64_t j, int64_t n)
{
    float sum = 0;
    for (int64_t e = 0; e < n; e++) sum = fmaf(read_one(x, i + e), read_one(y, j + e), sum);
    return sum;
}

/* Adds 32 weighted rows of y to sum [n]. Lane l passes the weight of row first + l step. */
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

/* Multiplies sum [n] by `factor`. A factor of 0 clears the sum, even if it holds NaN. */
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
