/* Scales the frequencies of rotary position embeddings for contexts longer than the one of
 * pre-training (attrs.rope_*). Each pair of elements rotates with its own frequency. It keeps a
 * fraction of this frequency; the rest is divided by a factor:
 *   Llama 3.1  the fraction grows from 0 to 1 with the pair's number of turns in that context
 *   YaRN       the fraction falls from 1 to 0 with the index of the pair
 *   LongRoPE   the frequency of each pair is divided by its own factor
 *
 * Sequences with an image: attrs.rows and attrs.columns are the size of the image in tokens, and
 * attrs.first is its first token. Each token has three positions: a time, a row and a column. Pairs
 * below attrs.lo rotate by the time, pairs from there below attrs.hi by the row, and all others by
 * the column. For a token of text, the three are the same number. All tokens of an image have the
 * same time. The positions of the text after the image continue from the largest position in the
 * image. If attrs.count is set, the sequence is an image alone (in an encoder): each of the groups
 * of pairs starts again from the first frequency, and patches are ordered in blocks of count x
 * count. */
#ifndef TANDEM_KERNELS_ROPE_H
#define TANDEM_KERNELS_ROPE_H

#include <math.h>
#include <stdint.h>

#include "planner/ir/op/op.h"

typedef struct RopeRamp {
    double factor;  /* the factor; 0: no frequency is scaled */
    double context; /* context of pre-training in tokens, if fractions depend on turns within it; 0:
                       they depend on the index of the pair */
    double none, whole; /* none: the number of turns, or the index of the pair, at which the
                           fraction is 0; whole: at which it is 1 */
    double gain;        /* factor of all sines and cosines */
} RopeRamp;

/* Returns the index (a real number) of the pair that makes `turns` turns within the context of
 * pre-training. `turned` is how many elements rotate, two for each pair. */
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
    int64_t rows, columns, first; /* rows: 0 if a position is just the number of the token */
    int64_t lo, hi;               /* pairs lo to hi - 1 rotate by row */
    int64_t block;                /* rows, and columns, of a block of patches; 0: the sequence
                                     belongs to a decoder */
    int64_t pairs;                /* number of pairs that rotate */
} RopeGrid;

static inline RopeGrid rope_grid(const Attrs *attrs, int64_t turned)
{
    RopeGrid g; /* assigned member by member, because nvcc reads this file as C++ */
    g.rows = attrs->rows, g.columns = attrs->columns, g.first = attrs->first;
    g.lo = attrs->lo, g.hi = attrs->hi, g.block = attrs->count, g.pairs = turned / 2;
    return g;
}

/* Returns 2 k / E, the exponent of the frequency of pair e. k is the index of the pair among those
 * pairs that start from the first frequency together. */
ROPE_BOTH double rope_exponent(const RopeGrid *g, int64_t e)
{
    if (g->rows == 0 || g->block == 0) return 2.0 * (double)e / (double)(2 * g->pairs);
    const int64_t from = e < g->lo ? 0 : e < g->hi ? g->lo : g->hi;
    const int64_t to = e < g->lo ? g->lo : e < g->hi ? g->hi : g->pairs;
    return (double)(e - from) / (double)(to - from);
}

/* Returns the position by which pair e of a token rotates. */
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
    RopeRamp ramp; /* assigned member by member, because nvcc reads this file as C++ */
    ramp.factor = attrs->rope_factor, ramp.context = (double)attrs->rope_context;
    ramp.none = attrs->rope_low, ramp.whole = attrs->rope_high;
    ramp.gain = attrs->rope_gain == 0 ? 1 : attrs->rope_gain;
    if (attrs->rope_yarn == 0) return ramp;
    double first = rope_pair_of(attrs, turned, attrs->rope_high);
    double last = rope_pair_of(attrs, turned, attrs->rope_low);
    if (attrs->rope_yarn == 2) first = floor(first), last = ceil(last);
    ramp.context = 0;
    ramp.whole = fmax(first, 0);
    ramp.none = fmin(last, (double)turned - 1); /* the published code uses this bound, although the
                                                   last pair is turned / 2 - 1 */
    if (ramp.none == ramp.whole) ramp.none += 0.001; /* avoids a division by zero below */
    return ramp;
}

#endif
