/* A power of two without the unit for exponentials, which computes only 16 a cycle on each
 * processor. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_EXP2_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_EXP2_CUH

#include "kernels/cuda/device.cuh"

/* Returns 2^x for x <= 1, by additions and multiplications. The relative error is at most 6.3e-6, a
 * fortieth of the rounding of fp16. (device_exp2's is 2e-7.) Like device_exp2 it returns exactly 0
 * for minus infinity, and NaN for NaN. Results below 2^-126 may be 0.
 *
 * `after` is an earlier result of device_exp2: a finite number, or else the result is NaN. It does
 * not change the result. Without it ptxas would compute all polynomials before the unit for
 * exponentials has begun, not while the unit works.
 *
 * x = n + part, n being the nearest whole number. The sum with 1.5 * 2^23 + 127 has n + 127 in its
 * low bits, the exponent of 2^n. The polynomial for 2^part has the least largest error of those
 * with value 1 at 0, so whole powers are exact. The idea to compute some of a softmax's
 * exponentials in this way is from FlashAttention-4. */
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
