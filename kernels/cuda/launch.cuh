/* Helpers for the functions that launch kernels: numbers of blocks, bytes of shared memory, and the
 * local range of flat buffers. */
#ifndef TANDEM_KERNELS_CUDA_LAUNCH_CUH
#define TANDEM_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/device.cuh"

static inline int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Returns how many blocks compute n items if a block handles `each` items at a time; at most
 * `most`. If `most` blocks cannot handle all items at once, the kernel must have a grid-stride
 * loop. */
static inline int64_t blocks_for(int64_t n, int64_t each, int64_t most)
{
    int64_t blocks = ceil_div(n, each);
    return blocks < most ? blocks : most;
}

/* Returns how many bytes of shared memory a block may request on this device. (CUDA C++ Programming
 * Guide, technical specifications: 163 KiB for compute capability 8.0; 99 KiB for 8.6, 8.9 and
 * 12.x; 227 KiB for 9.0 and 10.0.) Code that was compiled for 8.0 also runs on 8.6 and 8.9. */
static inline uint64_t shared_most(const CudaContext *cuda)
{
    uint32_t capability = cuda->compute_capability;
    if (capability == 80 || capability == 87) return UINT64_C(163) << 10;
    return capability >= 90 && capability < 120 ? UINT64_C(227) << 10 : UINT64_C(99) << 10;
}

/* Returns true if the kernel adds to output j, and false if it overwrites output j. */
static inline bool accumulates(const KernelArgs *args, uint32_t j)
{
    return (args->attrs.accumulate >> j & 1) != 0;
}

static inline uint32_t fault_code(CudaFault fault, const CudaContext *cuda)
{
    return (uint32_t)fault << CUDA_FAULT_PC_BITS | cuda->pc;
}

/* The elements of x with global indices lo to hi - 1 that this rank has: n elements from local
 * index `from` on. */
typedef struct Range {
    int64_t from, n;
} Range;

static inline Range local_range(const KernelArgs *args)
{
    Range range;
    int64_t from = args->attrs.lo - args->start['x'], to = args->attrs.hi - args->start['x'];
    if (from < 0) from = 0;
    if (to > args->size['x']) to = args->size['x'];
    range.n = to > from ? to - from : 0;
    range.from = range.n ? from : 0;
    return range;
}

/* Returns t / per_row for a t below n. The division uses 32 bits if they suffice, which is
 * faster. */
static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        int64_t
        split_row(int64_t t, int64_t per_row, int64_t n)
{
    if (n <= 0x7fffffff) return (int64_t)((uint32_t)t / (uint32_t)per_row);
    return t / per_row;
}

#endif
