/* The exponential function that kernels call. In fp64 it is the function of the C library. In fp32
 * it is written out here, so that loops vectorise and the bits do not depend on the library of the
 * machine. Its error is at most 2 units in the last place from exp(-87) to exp(87), which is about
 * the range of normal numbers. Arguments outside of [-87, 87] are clamped. */
#ifndef TANDEM_KERNELS_CPU_EXPONENTIAL_H
#define TANDEM_KERNELS_CPU_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Two options for GCC. no-trapping-math: the compiler may choose between two floats without a
 * branch (no kernel reads exception flags). no-thread-jumps: without this option, the compiler
 * makes separate code for clamped arguments, such as x / (1 + exp(87)), and loops become ten times
 * slower. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-trapping-math", "no-thread-jumps")
#endif

static inline double exponential_f64(double x)
{
    return exp(x);
}

/* Returns exp(x) = 2^n exp(r) with x = n ln 2 + r and |r| <= ln 2 / 2. The polynomial and ln 2 in
 * two parts are from Cephes (Moshier, expf). Adding 1.5 * 2^23 leaves the nearest whole number in
 * the low bits. NaN stays NaN. */
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
