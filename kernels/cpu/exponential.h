/* The exponential that the kernels call. In fp64 it is the C library's. In fp32 it is written out
 * here, so that loops vectorise and the bits do not depend on the machine's library. It is within 2
 * units in the last place from exp(-87) to exp(87), about the range of normal numbers; arguments
 * beyond are clamped. */
#ifndef TANDEM_KERNELS_CPU_EXPONENTIAL_H
#define TANDEM_KERNELS_CPU_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Lets the compiler choose between two floats without a branch, because no kernel reads exception
 * flags. Turns the compiler's jump threading off. With it, the compiler would compute a separate
 * result for each bound, such as x / (1 + exp(87)), for every element, at a tenth of the speed. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-trapping-math", "no-thread-jumps")
#endif

static inline double exponential_f64(double x)
{
    return exp(x);
}

/* exp(x) = 2^n exp(r), x = n ln 2 + r, |r| <= ln 2 / 2. Polynomial and the two-part ln 2: Moshier,
 * Cephes, expf. Adding 1.5 * 2^23 leaves the nearest integer in the low bits. NaN stays NaN. */
static inline float exponential_f32(float x)
{
    const float magic = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4b400000u + 127u) << 23;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
