/* Numbers in memory: fp64, fp32, and low-precision formats that are emulated exactly. Low-precision
 * numbers are stored in their real one or two bytes; arithmetic uses fp32, which holds each of
 * their values.
 *
 *   bf16   8 exponent bits, 7 mantissa bits; infinities
 *   f16    5, 10 (IEEE binary16); largest 65504, infinities
 *   e4m3   4, 3 (E4M3FN of the OCP 8-bit floating point specification); largest 448, no infinity:
 *          larger values, and infinities, become 448
 *   e5m2   5, 2 (E5M2 of the same); largest 57344, infinities
 *   e8m0   8, 0 (E8M0 of the OCP microscaling formats specification): powers of two from 2^-127 to
 *          2^127, without sign, zero or infinity; scales of blocks
 *   e2m1x2 two numbers of 2, 1 bits (E2M1 of the same specification) in a byte, the first in its
 * low half; 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, no infinity, no NaN: larger values
 *          become 6, and NaN becomes 0. f64x2 holds the same two numbers in fp64
 *
 * Rounding is to nearest, ties to even, subnormals included; in e8m0 it is up, to the next power of
 * two. NaNs stay NaNs, except in e2m1x2. Counts below are of numbers, of which a pair has two; a
 * range of e2m1x2 begins at an even number and has an even count. */
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

/* y [n] = x [n] of a low-precision type. Exact. */
void number_widen(DType from, const void *x, float *y, int64_t n);
/* y [n] of a low-precision type = x [n], rounded once. */
void number_round(DType to, const float *x, void *y, int64_t n);
/* y [n] = x [n] between any two floating-point types, rounded once. x and y must not overlap. */
void number_cast(DType from, const void *x, DType to, void *y, int64_t n);
/* Element i of an array of any floating-point type; a write rounds once. */
double number_read(DType t, const void *x, uint64_t i);
void number_write(DType t, void *x, uint64_t i, double value);

#endif
