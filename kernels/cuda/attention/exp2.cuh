/* Computes powers of two by multiplications and additions. A multiprocessor's unit for exponentials
 * computes only 16 of them in a cycle, so it can be the bottleneck. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_EXP2_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_EXP2_CUH

#include "kernels/cuda/device.cuh"

/* Returns 2^x for x <= 1. The relative error is at most 6.3e-6, a fortieth of the rounding error
 * of fp16. (The error of device_exp2 is 2e-7.) Like device_exp2, this function returns exactly 0
 * for minus infinity, and NaN for NaN. A result below 2^-126 may be 0.
 *
 * `after` must be a finite earlier result of device_exp2. It does not change the result, but ptxas
 * must then compute this polynomial after that result, while the unit for exponentials works on
 * other elements. Without it, ptxas computes all polynomials before the unit starts.
 *
 * Method: x = n + part, where n is the whole number nearest to x. Adding 1.5 * 2^23 + 127 to x
 * leaves n + 127 in the low bits of the sum, which is the exponent of 2^n. The polynomial for
 * 2^part has value 1 at 0, so that whole powers are exact; among such polynomials, its largest
 * error is the smallest. FlashAttention-4 had the idea to compute some of a softmax's exponentials
 * in this way. */
DEVICE float exp2_by_products(float x, float after)
{
    const float round = fmaf(after, 0.0f, 12583039.0f);
    x = device_at_least(x, -127.0f);
    const float t = x + round, part = x - (t - round);
    float y = fmaf(part, 9.700879e-3f, 5.5897421e-2f);
    y = fmaf(part, y, 2.4021899e-1f);
    y = fmaf(part, y, 6.9312542e-1f);
    y = fmaf(part, y, 1.0f);
    return y * FLOAT_OF_BITS(BITS_OF_FLOAT(t) << 23);
}

#endif
