/* Turns uniform random numbers into normally distributed ones, with the same bits on every
 * processor and GPU. It uses only + - * / and sqrt, whose results IEEE 754 defines exactly, because
 * log and cos differ between mathematical libraries. A CUDA source defines NORMAL_FUNCTION (such as
 * __device__) before it includes this file. */
#ifndef TANDEM_BASE_NORMAL_H
#define TANDEM_BASE_NORMAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef NORMAL_FUNCTION
#define NORMAL_FUNCTION static inline
#endif

/* Returns ln x for a normal floating-point number x > 0.
 *
 * Write x = m 2^e with m between sqrt(1/2) and sqrt(2), and s = (m - 1) / (m + 1). Then ln x = e ln
 * 2 + 2 artanh(s), and artanh(s) is a power series in s whose powers are odd. s^2 is below 0.0295,
 * so the first term that the code omits is below 2^-60. */
NORMAL_FUNCTION double normal_log(double x)
{
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        e++;
    }
    const double s = (m - 1) / (m + 1), q = s * s, n = (double)e;
    double sum = 1.0 / 23;
    sum = sum * q + 1.0 / 21;
    sum = sum * q + 1.0 / 19;
    sum = sum * q + 1.0 / 17;
    sum = sum * q + 1.0 / 15;
    sum = sum * q + 1.0 / 13;
    sum = sum * q + 1.0 / 11;
    sum = sum * q + 1.0 / 9;
    sum = sum * q + 1.0 / 7;
    sum = sum * q + 1.0 / 5;
    sum = sum * q + 1.0 / 3;
    return n * ln2_high + (2 * s + (2 * s * q * sum + n * ln2_low));
}

/* Returns cos(2 pi turn) for `turn` in [0, 1). First subtracts the nearest multiple of a quarter
 * circle, which is exact. The remaining angle `a` is at most an eighth of a circle. There the power
 * series of sine (`odd`) and cosine (`even`) converge fast. */
NORMAL_FUNCTION double normal_cos_turn(double turn)
{
    const int quarter = (int)(4 * turn + 0.5);
    const double a = 6.283185307179586476925 * (turn - 0.25 * quarter), q = a * a;
    double even = 1.0 / 6402373705728000, odd = 1.0 / 355687428096000;
    even = 1.0 / 20922789888000 - even * q;
    even = 1.0 / 87178291200 - even * q;
    even = 1.0 / 479001600 - even * q;
    even = 1.0 / 3628800 - even * q;
    even = 1.0 / 40320 - even * q;
    even = 1.0 / 720 - even * q;
    even = 1.0 / 24 - even * q;
    even = 1.0 / 2 - even * q;
    even = 1 - even * q;
    odd = 1.0 / 1307674368000 - odd * q;
    odd = 1.0 / 6227020800 - odd * q;
    odd = 1.0 / 39916800 - odd * q;
    odd = 1.0 / 362880 - odd * q;
    odd = 1.0 / 5040 - odd * q;
    odd = 1.0 / 120 - odd * q;
    odd = 1.0 / 6 - odd * q;
    odd = (1 - odd * q) * a;
    if (quarter == 1) return -odd;
    if (quarter == 2) return -even;
    return quarter == 3 ? odd : even;
}

/* Returns the upper 53 of 64 random bits as a number in [0, 1). */
NORMAL_FUNCTION double normal_fraction(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* Returns a normally distributed number (mean 0, standard deviation 1), made from two uniform
 * random numbers by the method of Box and Muller. The argument of the logarithm is at least 2^-53,
 * so the magnitude of the result is at most 8.6. */
NORMAL_FUNCTION double normal_from(uint64_t radius, uint64_t turn)
{
    return sqrt(-2 * normal_log(1 - normal_fraction(radius))) *
           normal_cos_turn(normal_fraction(turn));
}

#endif
