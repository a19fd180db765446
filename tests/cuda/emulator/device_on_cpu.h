/* Defines the names of kernels/cuda/device.cuh for the CPU. Kernels are compiled as C with this
 * file included first, and run thread by thread. Every thread is a fiber. At a barrier or a
 * shuffle, other threads of its block or warp run, in an order drawn by a seed. Shared memory is
 * full of NaNs when a block begins. Three errors end the test: a wide load that is not aligned, a
 * barrier that some threads of a block never reach, and the use of more shared memory than a device
 * has. */
#ifndef TANDEM_TESTS_CUDA_DEVICE_ON_CPU_H
#define TANDEM_TESTS_CUDA_DEVICE_ON_CPU_H

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/number.h"

/* ---- for tests ---- */

typedef struct DeviceLaunch {
    void (*thread)(const void *args);
    const char *name;
    uint64_t blocks, threads, shared_bytes;
    uint64_t args_bytes;
    /* a launch has at most this many bytes of arguments, as on a device */
    unsigned char args[4096];
} DeviceLaunch;

/* Runs all threads of a launch at once. */
void device_run(const DeviceLaunch *launch);
/* Sets the order of blocks, and of threads at each barrier; 0: ascending. With an odd seed, each
 * warp runs as far as it can before the next one starts. */
void device_set_seed(uint64_t seed);
/* A queue that receives launches, memsets and copies instead of running them at once, such as the
 * stream of a test double. `copy` sets `bytes` bytes at `to` to those at `from`, or to 0 if `from`
 * is NULL. device_set_queue(NULL): there is no queue. */
typedef struct DeviceQueue {
    void *self;
    void (*launch)(void *self, void *stream, const DeviceLaunch *launch);
    void (*copy)(void *self, void *stream, void *to, const void *from, uint64_t bytes);
} DeviceQueue;
void device_set_queue(const DeviceQueue *queue);
/* Returns the number of launches so far. */
uint64_t device_n_launches(void);

/* ---- for kernels ---- */

typedef struct DeviceIndex {
    unsigned x;
} DeviceIndex;
extern DeviceIndex device_thread, device_block, device_block_size, device_grid_size;
extern void *device_shared;
#define threadIdx device_thread
#define blockIdx  device_block
#define blockDim  device_block_size
#define gridDim   device_grid_size

typedef struct uint2 {
    uint32_t x, y;
} uint2;
typedef struct uint4 {
    uint32_t x, y, z, w;
} uint4;
typedef struct float2 {
    float x, y;
} float2;
typedef struct float4 {
    float x, y, z, w;
} float4;

/* Every kernel of the program, with the launch bounds of its definition, which test_resources
 * checks. */
typedef struct DeviceKernel {
    const char *name;
    uint32_t threads, blocks_per_sm;
    const struct DeviceKernel *next;
} DeviceKernel;
void device_know(DeviceKernel *kernel);
const DeviceKernel *device_kernels(void);

#define DEVICE static inline
#define __device__
#define __host__
#define __forceinline__ inline
#define UNROLL

#define KERNEL(name, Args, threads, blocks_per_sm)                                                 \
    enum { name##_threads = (threads), name##_blocks_per_sm = (blocks_per_sm) };                   \
    static void name##_thread(const Args a);                                                       \
    static void name(const void *args)                                                             \
    {                                                                                              \
        name##_thread(*(const Args *)args);                                                        \
    }                                                                                              \
    __attribute__((constructor)) static void name##_known(void)                                    \
    {                                                                                              \
        static DeviceKernel kernel = {#name, name##_threads, name##_blocks_per_sm, NULL};          \
        device_know(&kernel);                                                                      \
    }                                                                                              \
    static void name##_thread(const Args a)
#define SHARED(type, name) type *const name = (type *)device_shared

#define LAUNCH(name, blocks, threads, shared_bytes, args, cuda, error)                             \
    (assert((int)(threads) <= (int)name##_threads), (void)(error),                                 \
     device_launch(name, #name, (uint64_t)(blocks), (uint64_t)(threads), (uint64_t)(shared_bytes), \
                   (cuda)->compute_capability, &(args), sizeof(args), (cuda)->stream))
bool device_launch(void (*thread)(const void *args), const char *name, uint64_t blocks,
                   uint64_t threads, uint64_t shared_bytes, uint32_t compute_capability,
                   const void *args, uint64_t args_bytes, void *stream);
bool device_zero(void *p, uint64_t bytes, const CudaContext *cuda, CudaError *error);
bool device_copy(void *to, const void *from, uint64_t bytes, const CudaContext *cuda,
                 CudaError *error);

#define ALIGNED(type, p) ((type *)device_aligned((uintptr_t)(p), sizeof(type), __FILE__, __LINE__))
void *device_aligned(uintptr_t p, size_t bytes, const char *file, int line);

/* __syncthreads is a barrier of the block, and device_warp_barrier a barrier of the warp's lanes in
 * `mask`. device_warp_meets synchronises lanes but does not order their memory accesses, as in
 * shuffles and products. device_warp_works calls `work` for the lanes of `mask` from thread
 * `first`, after all lanes have arrived and before any continues. */
typedef void WarpWork(uint32_t first, uint32_t mask);
void __syncthreads(void);
void device_warp_barrier(uint32_t mask);
void device_warp_meets(uint32_t mask);
void device_warp_works(uint32_t mask, WarpWork *work);
static inline void __syncwarp(void)
{
    device_warp_barrier(0xffffffffu);
}
void __threadfence(void);
/* Lets other threads run until `is_over` returns true. If that never happens, the test ends. */
void device_wait_until(bool (*is_over)(void *what), void *what);
void device_stall(void);            /* lets other threads run first, as if this one were slow */
uint64_t device_shared_bytes(void); /* bytes of shared memory of this launch */
uint64_t device_block_serial(void); /* number of the block since the program began, from 1 */

/* Returns the value that lane `from` of the warp gives. */
uint64_t device_shuffle(uint32_t mask, uint64_t bits, uint32_t from);
uint32_t __ballot_sync(uint32_t mask, int predicate);
#define DEVICE_SHUFFLE(type, name)                                                                 \
    static inline type device_shuffle_##name(uint32_t mask, type x, uint32_t from)                 \
    {                                                                                              \
        uint64_t bits = 0;                                                                         \
        memcpy(&bits, &x, sizeof x);                                                               \
        bits = device_shuffle(mask, bits, from);                                                   \
        memcpy(&x, &bits, sizeof x);                                                               \
        return x;                                                                                  \
    }
DEVICE_SHUFFLE(float, f32)
DEVICE_SHUFFLE(double, f64)
DEVICE_SHUFFLE(uint32_t, u32)
DEVICE_SHUFFLE(int32_t, i32)
DEVICE_SHUFFLE(uint64_t, u64)
#define __shfl_sync(mask, x, from)                                                                 \
    _Generic((x), float                                                                            \
             : device_shuffle_f32, double                                                          \
             : device_shuffle_f64, uint32_t                                                        \
             : device_shuffle_u32, int32_t                                                         \
             : device_shuffle_i32, uint64_t                                                        \
             : device_shuffle_u64)((uint32_t)(mask), x, (uint32_t)(from))
#define __shfl_xor_sync(mask, x, lanes) __shfl_sync(mask, x, (threadIdx.x % 32) ^ (uint32_t)(lanes))
#define __shfl_up_sync(mask, x, lanes)                                                             \
    __shfl_sync(mask, x,                                                                           \
                threadIdx.x % 32 < (uint32_t)(lanes) ? threadIdx.x % 32                            \
                                                     : threadIdx.x % 32 - (uint32_t)(lanes))
#define __shfl_down_sync(mask, x, lanes)                                                           \
    __shfl_sync(mask, x,                                                                           \
                threadIdx.x % 32 + (uint32_t)(lanes) > 31 ? threadIdx.x % 32                       \
                                                          : threadIdx.x % 32 + (uint32_t)(lanes))

uint32_t atomicMax(uint32_t *p, uint32_t x);
uint32_t atomicAdd(uint32_t *p, uint32_t x);

static inline uint32_t BITS_OF_FLOAT(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float FLOAT_OF_BITS(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(uint32_t x)
{
    return __builtin_ffs((int)x);
}
static inline uint32_t __umulhi(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}
static inline float device_exp2(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}
static inline float device_at_least(float x, float least)
{
    return x < least ? least : x;
}
static inline float device_clamp(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}
static inline void device_sincos(double x, double *sine, double *cosine)
{
    *sine = sin(x);
    *cosine = cos(x);
}
static inline float device_divide(float x, float y)
{
    return x / y;
}

#endif
