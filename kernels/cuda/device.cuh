/* The language in which the kernels are written: the common part of C and CUDA C++. nvcc compiles
 * a kernel file as CUDA. The tests compile the same file as C and run it on the CPU, thread by
 * thread. For this they include tests/cuda/emulator/device_on_cpu.h first, which defines the same
 * names.
 *
 *    typedef struct ScaleArgs { ... } ScaleArgs;  A kernel gets a single struct by value,
 *    KERNEL(scale_rows, ScaleArgs, 256, 8)        whose name in the kernel is `a`.
 *    { ... a.x ... }                              At most 256 threads a block, 8 blocks a
 *                                                 multiprocessor.
 *    LAUNCH(scale_rows, blocks, 256, shared_bytes, args, cuda, error)
 *                                                 Returns true if the kernel was launched.
 *
 * Blocks and grids have one dimension. A launch states the bytes of shared memory;
 * SHARED(float, row) declares `row` as this memory. The compiler never contracts a * b + c (nvcc
 * -fmad=false), so a kernel calls fmaf where one rounding is wanted. A sum that is written out
 * therefore has the same bits on the CPU and on every device. */
#ifndef TANDEM_KERNELS_CUDA_DEVICE_CUH
#define TANDEM_KERNELS_CUDA_DEVICE_CUH

#ifdef __CUDACC__
#include <assert.h>
#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
extern "C" { /* so that the project's headers declare C functions */
#endif
#include "kernels/cuda/cuda.h"
#include "kernels/draw.h"
#include "kernels/number.h"
#ifdef __CUDACC__
}

#define DEVICE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")

/* Declares a kernel with at most `threads` threads in a block. The compiler limits the registers so
 * that `blocks_per_sm` blocks fit on a multiprocessor. */
#define KERNEL(name, Args, threads, blocks_per_sm)                                                 \
    static __global__ void __launch_bounds__(threads, blocks_per_sm)                               \
        name(const __grid_constant__ Args a)
#define SHARED(type, name)                                                                         \
    extern __shared__ __align__(128) unsigned char tandem_shared[];                                \
    type *const name = (type *)tandem_shared

static inline bool device_fine(const char *call, cudaError_t status, CudaError *error)
{
    if (status == cudaSuccess) return true;
    snprintf(error->text, sizeof error->text, "%s: %s", call, cudaGetErrorString(status));
    return false;
}

/* Allows a kernel to use `shared_bytes` bytes of shared memory. CUDA demands this call for more
 * than 48 KiB. */
static inline bool device_allow(const void *kernel, const char *name, size_t shared_bytes,
                                CudaError *error)
{
    if (shared_bytes <= 48 * 1024) return true;
    return device_fine(name,
                       cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)shared_bytes),
                       error);
}

#define LAUNCH(name, blocks, threads, shared_bytes, args, cuda, error)                             \
    ((blocks) == 0 || (device_allow((const void *)(name), #name, shared_bytes, error) &&           \
                       (name<<<(unsigned)(blocks), (unsigned)(threads), shared_bytes,              \
                               (cudaStream_t)(cuda)->stream>>>(args),                              \
                        device_fine(#name, cudaGetLastError(), error))))

/* Sets `bytes` bytes of device memory to 0, after all earlier work of the stream. */
static inline bool device_zero(void *p, uint64_t bytes, const CudaContext *cuda, CudaError *error)
{
    return bytes == 0 ||
           device_fine("cudaMemsetAsync", cudaMemsetAsync(p, 0, bytes, (cudaStream_t)cuda->stream),
                       error);
}

static inline bool device_copy(void *to, const void *from, uint64_t bytes, const CudaContext *cuda,
                               CudaError *error)
{
    return bytes == 0 || to == from ||
           device_fine("cudaMemcpyAsync",
                       cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                       (cudaStream_t)cuda->stream),
                       error);
}

#define ALIGNED(type, p)                                                                           \
    ((type *)(p)) /* casts p, which must be aligned for one access of that                         \
                     type */
#define BITS_OF_FLOAT(x) __float_as_uint(x)
#define FLOAT_OF_BITS(u) __uint_as_float(u)

/* Returns 2^x, computed by the multiprocessor's unit for exponentials, with an error of at most 2
 * units in the last place. */
DEVICE float device_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns the larger of x and `least`; NaN if x is NaN. */
DEVICE float device_at_least(float x, float least)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(least));
    return y;
}

DEVICE float device_clamp(float x, float least, float most)
{
    float y = device_at_least(x, least);
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(most));
    return y;
}

DEVICE void device_sincos(double x, double *sine, double *cosine)
{
    sincos(x, sine, cosine);
}

/* Returns x / y for |y| < 2^126, with an error of at most 2 units in the last place. */
DEVICE float device_divide(float x, float y)
{
    return __fdividef(x, y);
}
#endif

enum { WARP = 32 };
#define FULL 0xffffffffu /* all 32 lanes of a warp, as a mask */

#endif
