/* Approximate functions that take few instructions on the device, for kernels whose time should
 * depend on memory alone. The comment of each function states its error. */
#ifndef TANDEM_KERNELS_CUDA_FAST_CUH
#define TANDEM_KERNELS_CUDA_FAST_CUH

#include "kernels/cuda/device.cuh"

#ifdef __CUDACC__
/* Returns 1 / y, with an error of at most 1 unit in the last place; 0 for |y| > 2^126. */
DEVICE float device_reciprocal(float y)
{
    float x;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(y));
    return x;
}

/* Computes sine and cosine of a fraction of a turn, from -1/2 to 1/2. */
DEVICE void device_sincos_turn(float turn, float *sine, float *cosine)
{
    sincospif(2 * turn, sine, cosine);
}
#else
DEVICE float device_reciprocal(float y)
{
    return 1 / y;
}

DEVICE void device_sincos_turn(float turn, float *sine, float *cosine)
{
    const double two_pi = 6.283185307179586476925286766559;
    *sine = (float)sin(two_pi * (double)turn), *cosine = (float)cos(two_pi * (double)turn);
}
#endif

/* Returns 1 / (1 + exp(-x)) with an absolute error of at most 2e-7. Where the result is below
 * 1e-37, it is 0. NaN stays NaN. */
DEVICE float device_sigmoid(float x)
{
    return device_reciprocal(1.0f + device_exp2(x * -1.44269504088896341f));
}

#endif
