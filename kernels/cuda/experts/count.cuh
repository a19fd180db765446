/* Lets a block count how often each of eight experts was chosen. */
#ifndef TANDEM_KERNELS_CUDA_EXPERTS_COUNT_CUH
#define TANDEM_KERNELS_CUDA_EXPERTS_COUNT_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

enum { COUNT_THREADS = 256, COUNT_WARPS = COUNT_THREADS / WARP };

/* Adds up the counts of all threads of the block. Thread k < EIGHT gets the sum of count[k]; the
 * other threads get 0. `held` is shared memory for [COUNT_WARPS, EIGHT] numbers. All threads of the
 * block must call this function. */
DEVICE float add_counts(const int32_t count[EIGHT], float *held)
{
    float *mine = held + threadIdx.x / WARP * EIGHT, total = 0;
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        float sum = warp_sum((float)count[k]);
        if (threadIdx.x % WARP == 0) mine[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= EIGHT) return 0;
    for (uint32_t w = 0; w < COUNT_WARPS; w++) total += held[w * EIGHT + threadIdx.x];
    return total;
}

#endif
