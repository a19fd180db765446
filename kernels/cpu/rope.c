/* Rotary position embedding in half-split form. Element e of the first half and element e + E/2
 * form a pair. The pair is rotated by the angle position * theta^(-2e/E). Positions are global
 * (cpu_whole_index). Llama 3.1, YaRN and LongRoPE scale the frequencies, and images have rows and
 * columns (see rope.h). If attrs.rope_dims is set, only that many first elements of E are rotated,
 * as if E were that number. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/rope.c"

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/rope.h"

/* Returns the angle by which pair `e` of E/2 rotates from one position to the next. */
static double rope_frequency(const Attrs *attrs, const RopeRamp *ramp, const RopeGrid *grid,
                             int64_t e)
{
    const double two_pi = 6.283185307179586476925286766559;
    double frequency = pow(attrs->theta, -rope_exponent(grid, e));
    if (attrs->rope_pair[0] > 0) return frequency / attrs->rope_pair[e];
    if (ramp->factor == 0) return frequency;
    double at = ramp->context > 0 ? ramp->context * frequency / two_pi : (double)e;
    double kept = fmin(fmax((at - ramp->none) / (ramp->whole - ramp->none), 0), 1);
    return (1 - kept) * frequency / ramp->factor + kept * frequency;
}

#include "kernels/cpu/real.h"

BOTH(rope)
BOTH(rope_grad)

#else

enum { F(PAIRS) = 64 }; /* pairs that are rotated at a time; their angles lie on the stack */

/* x [b,s,...,E] -> y [b,s,...,E]; both may be the same memory. With sign -1, the rotation goes
 * back, which is the gradient. */
static void F(rope_turn)(const KernelArgs *a, double sign, bool accumulate)
{
    const REAL *in = a->ptr[0];
    REAL *out = a->ptr[1];
    int64_t B = a->size['b'], S = a->size['s'], E = a->size['E'];
    int64_t turned = a->attrs.rope_dims ? a->attrs.rope_dims : E, half = turned / 2;
    const RopeRamp ramp = rope_ramp(&a->attrs, turned);
    const RopeGrid grid = rope_grid(&a->attrs, turned);
    double frequency[F(PAIRS)];
    REAL cosine[F(PAIRS)], sine[F(PAIRS)];
    assert(turned % 2 == 0 && turned <= E);
    for (int64_t first = 0; first < half; first += F(PAIRS)) {
        int64_t n = half - first < F(PAIRS) ? half - first : F(PAIRS);
        for (int64_t e = 0; e < n; e++)
            frequency[e] = rope_frequency(&a->attrs, &ramp, &grid, first + e);
        for (int64_t s = 0; s < S; s++) {
            for (int64_t e = 0; e < n; e++) {
                const int64_t at = rope_place(&grid, first + e, cpu_whole_index(a, 's', s));
                double angle = (double)at * frequency[e];
                cosine[e] = (REAL)(ramp.gain * cos(angle));
                sine[e] = (REAL)(sign * ramp.gain * sin(angle));
            }
            for (int64_t i = 0; i < B * a->rows; i++) {
                int64_t at = (((i / a->rows) * S + s) * a->rows + i % a->rows) * E + first;
                const REAL *x = in + at;
                REAL *y = out + at;
                SAME_OR_APART
                for (int64_t e = 0; e < n; e++) {
                    REAL x1 = x[e], x2 = x[e + half];
                    REAL y1 = x1 * cosine[e] - x2 * sine[e], y2 = x2 * cosine[e] + x1 * sine[e];
                    y[e] = accumulate ? y[e] + y1 : y1;
                    y[e + half] = accumulate ? y[e + half] + y2 : y2;
                }
            }
        }
    }
    for (int64_t i = 0; turned < E && i < B * S * a->rows; i++) {
        const REAL *x = in + i * E;
        REAL *y = out + i * E;
        SAME_OR_APART
        for (int64_t e = turned; e < E; e++) y[e] = accumulate ? y[e] + x[e] : x[e];
    }
}

static void F(rope)(const KernelArgs *a)
{
    F(rope_turn)(a, 1, false);
}

static void F(rope_grad)(const KernelArgs *a)
{
    F(rope_turn)(a, -1, cpu_accumulates(a, 0));
}

#endif
