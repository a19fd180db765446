/* Sums and maxima over a warp and over a block, always in the same order. Every thread gets the
 * result. `held` is shared memory with one number for each warp. The caller may use `held` again
 * only after the next barrier. The number of threads of a block must be a multiple of 32. */
#ifndef TANDEM_KERNELS_CUDA_REDUCE_CUH
#define TANDEM_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/device.cuh"

enum { MAX_WARPS = 32 };

DEVICE float warp_sum(float x)
{
    UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
    return x;
}

/* Returns the sum over each group of n neighbouring lanes; n must be a power of two. */
DEVICE float lanes_sum(float x, int n)
{
    for (int lanes = n / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
    return x;
}

DEVICE double warp_sum_double(double x)
{
    UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(FULL, x, lanes);
    return x;
}

/* Returns the largest of the 32 magnitudes of a warp. Magnitudes are compared as the bits of fp32
 * numbers. The bits of a NaN are larger than those of any number, so a NaN is kept. */
DEVICE uint32_t warp_largest(uint32_t x)
{
    UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    {
        uint32_t other = __shfl_xor_sync(FULL, x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

DEVICE float warp_max(float x)
{
    UNROLL for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    {
        float other = __shfl_xor_sync(FULL, x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

/* One thread of each warp stores the sum of its warp. After a barrier, every thread adds these sums
 * in the same order. */
DEVICE float block_sum(float x, float *held)
{
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) held[threadIdx.x / WARP] = x;
    __syncthreads();
    float total = 0;
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) total += held[w];
    return total;
}

/* Computes two sums at once. `held` must have two numbers for each warp. */
DEVICE void block_sum_two(float *x, float *y, float *held)
{
    *x = warp_sum(*x);
    *y = warp_sum(*y);
    if (threadIdx.x % WARP == 0) {
        held[threadIdx.x / WARP] = *x;
        held[MAX_WARPS + threadIdx.x / WARP] = *y;
    }
    __syncthreads();
    *x = 0, *y = 0;
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) *x += held[w], *y += held[MAX_WARPS + w];
}

DEVICE double block_sum_double(double x, double *held)
{
    x = warp_sum_double(x);
    if (threadIdx.x % WARP == 0) held[threadIdx.x / WARP] = x;
    __syncthreads();
    double total = 0;
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) total += held[w];
    return total;
}

DEVICE uint32_t block_largest(uint32_t x, uint32_t *held)
{
    x = warp_largest(x);
    if (threadIdx.x % WARP == 0) held[threadIdx.x / WARP] = x;
    __syncthreads();
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) x = held[w] > x ? held[w] : x;
    return x;
}

DEVICE float block_max(float x, float *held)
{
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) held[threadIdx.x / WARP] = x;
    __syncthreads();
    for (uint32_t w = 0; w < blockDim.x / WARP; w++) x = held[w] > x ? held[w] : x;
    return x;
}

#endif
