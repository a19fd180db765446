/* Bounds of Attrs.rope_pair, a factor by which RoPE divides the frequency of a pair of elements. */
#ifndef TANDEM_IR_ROPE_PAIRS_H
#define TANDEM_IR_ROPE_PAIRS_H

#include <stdbool.h>

#define ROPE_PAIR_LEAST 1e-3
#define ROPE_PAIR_MOST  1e6

static inline bool rope_pair_fits(double factor)
{
    return factor >= ROPE_PAIR_LEAST && factor <= ROPE_PAIR_MOST;
}

#endif
