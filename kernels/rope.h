/* How rotary frequencies are scaled for contexts that are longer than the original one
 * (attrs.rope_*). Each pair keeps a fraction of its frequency; the rest is divided by the factor.
 * Llama 3.1: the fraction grows from 0 to 1 with the turns of a pair within the original context.
 * YaRN: the fraction falls from 1 to 0 with the index of a pair. LongRoPE: each pair has a factor
 * of its own that divides its frequency.
 *
 * Positions with an image (attrs.rows, columns: its grid; attrs.first: its first token). Pairs
 * below attrs.lo turn by the time of a token, those below attrs.hi by its row, and the others by
 * its column. A token of text has one number for all three; the image has one time, and text behind
 * it goes on after its larger side. With attrs.count the sequence is the image alone (an encoder):
 * frequencies begin again at each part of the pairs, and patches come in blocks of count x count.
 */
#ifndef TANDEM_KERNELS_ROPE_H
#define TANDEM_KERNELS_ROPE_H

#include <math.h>
#include <stdint.h>

#include "planner/ir/op.h"

typedef struct RopeRamp {
    double factor;      /* 0: no frequency is scaled */
    double context;     /* 0: the ramp runs over the indices of pairs; otherwise over turns in this
                         * context */
    double none, whole; /* the point at which a pair keeps no frequency, and the point at which it
                         * keeps its whole frequency */
    double gain;        /* multiplies sines and cosines */
} RopeRamp;

/* Returns the index of the pair, as a real number, that turns `turns` times within the original
 * context. `turned`: elements that turn, two for each pair. */
static inline double rope_pair_of(const Attrs *attrs, int64_t turned, double turns)
{
    const double two_pi = 6.283185307179586476925286766559;
    double frequency = two_pi * turns / (double)attrs->rope_context;
    return -(double)turned * log(frequency) / (2 * log(attrs->theta));
}

#ifdef __CUDACC__
#define ROPE_BOTH static inline __host__ __device__
#else
#define ROPE_BOTH static inline
#endif

typedef struct RopeGrid {
    int64_t rows, columns, first; /* rows 0: positions count tokens */
    int64_t lo, hi;               /* pairs that turn by row: [lo, hi) */
    int64_t block;                /* patches of a block, down and across; 0: a decoder's tokens */
    int64_t pairs;                /* that turn */
} RopeGrid;

static inline RopeGrid rope_grid(const Attrs *attrs, int64_t turned)
{
    RopeGrid g; /* nvcc reads this as C++ */
    g.rows = attrs->rows, g.columns = attrs->columns, g.first = attrs->first;
    g.lo = attrs->lo, g.hi = attrs->hi, g.block = attrs->count, g.pairs = turned / 2;
    return g;
}

/* Returns the fraction 2 k / E in the exponent of pair e's frequency. k counts the pairs that share
 * one set of frequencies. */
ROPE_BOTH double rope_exponent(const RopeGrid *g, int64_t e)
{
    if (g->rows == 0 || g->block == 0) return 2.0 * (double)e / (double)(2 * g->pairs);
    const int64_t from = e < g->lo ? 0 : e < g->hi ? g->lo : g->hi;
    const int64_t to = e < g->lo ? g->lo : e < g->hi ? g->hi : g->pairs;
    return (double)(e - from) / (double)(to - from);
}

/* Returns the position by which pair e of a token turns. */
ROPE_BOTH int64_t rope_place(const RopeGrid *g, int64_t e, int64_t token)
{
    if (g->rows == 0 || token < g->first) return token;
    int64_t at = token - g->first;
    const int64_t points = g->rows * g->columns, side = g->rows > g->columns ? g->rows : g->columns;
    if (at >= points) return g->first + side + at - points;
    if (e < g->lo) return g->first;
    const int64_t block = g->block > 0 ? g->block : 1, each = block * block,
                  wide = g->columns / block;
    const int64_t row = at / each / wide * block + at % each / block;
    const int64_t column = at / each % wide * block + at % each % block;
    return g->first + (e < g->hi ? row : column);
}

static inline RopeRamp rope_ramp(const Attrs *attrs, int64_t turned)
{
    RopeRamp ramp; /* nvcc reads this as C++ */
    ramp.factor = attrs->rope_factor, ramp.context = (double)attrs->rope_context;
    ramp.none = attrs->rope_low, ramp.whole = attrs->rope_high;
    ramp.gain = attrs->rope_gain == 0 ? 1 : attrs->rope_gain;
    if (attrs->rope_yarn == 0) return ramp;
    double first = rope_pair_of(attrs, turned, attrs->rope_high);
    double last = rope_pair_of(attrs, turned, attrs->rope_low);
    if (attrs->rope_yarn == 2) first = floor(first), last = ceil(last);
    ramp.context = 0;
    ramp.whole = fmax(first, 0);
    ramp.none = fmin(last, (double)turned - 1); /* published so, although pairs end at turned / 2 */
    if (ramp.none == ramp.whole) ramp.none += 0.001; /* if the ramp is a step, it has no slope */
    return ramp;
}

#endif
