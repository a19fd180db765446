/* Numbers in memory: fp64, fp32, and low-precision formats, which are emulated exactly. In memory
 * a low-precision number has its real size of one or two bytes. Arithmetic uses fp32, which can
 * represent every low-precision number.
 *
 *   bf16     8 exponent bits, 7 mantissa bits; has infinities
 *   f16      5 exponent bits, 10 mantissa bits (IEEE binary16); largest 65504; has infinities
 *   e4m3     4 and 3 bits (E4M3FN of the OCP 8-bit floating point specification); largest 448; no
 *            infinity: larger values, and infinities, become 448
 *   e5m2     5 and 2 bits (E5M2 of the same specification); largest 57344; has infinities
 *   e8m0     8 and 0 bits (E8M0 of the OCP microscaling formats specification): powers of two from
 *            2^-127 to 2^127, without sign, zero or infinity; used for scales of blocks
 *   e2m1x2   a byte with two numbers of 2 and 1 bits (E2M1 of the same specification), the first in
 *            the low half: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity and no NaN:
 *            larger values become 6, and NaN becomes 0. f64x2 holds the same two numbers in fp64
 *
 * A number is rounded to the nearest one, ties to even, also among subnormals. Only e8m0 rounds up,
 * to the next power of two. NaN stays NaN, except in e2m1x2. The functions below count numbers, so
 * a pair (e2m1x2) counts as two. A range of pairs must begin at an even number and have an even
 * length. */
#ifndef TANDEM_KERNELS_NUMBER_H
#define TANDEM_KERNELS_NUMBER_H

#include "planner/ir/layout/layout.h"

static inline bool number_is_low(DType t)
{
    return t == DT_bf16 || t == DT_f16 || dtype_is_eight_bits(t);
}

static inline bool number_is_real(DType t)
{
    return t == DT_f32 || t == DT_f64 || t == DT_f64x2 || number_is_low(t);
}

/* Sets y [n] to the n numbers of x, which have the low-precision dtype `from`. This is exact. */
void number_widen(DType from, const void *x, float *y, int64_t n);
/* Sets y [n], of the low-precision dtype `to`, to x [n]. Each number is rounded once. */
void number_round(DType to, const float *x, void *y, int64_t n);
/* Sets y [n] to x [n] for any two floating-point dtypes. Each number is rounded once. x and y must
 * not overlap. */
void number_cast(DType from, const void *x, DType to, void *y, int64_t n);
/* Read or write element i of an array of any floating-point dtype. A write rounds once. */
double number_read(DType t, const void *x, uint64_t i);
void number_write(DType t, void *x, uint64_t i, double value);

#endif
