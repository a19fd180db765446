/* How rotary frequencies are scaled for contexts that are longer than the original one
 * (attrs.rope_*). Each pair keeps a share of its frequency; the rest is divided by the factor.
 * Llama 3.1: the share grows from 0 to 1 with the turns of a pair within the original context.
 * YaRN: the share falls from 1 to 0 with the index of a pair.
 * LongRoPE: each pair has a factor of its own that divides its frequency. */
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
