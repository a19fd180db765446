/* Bounds of a rope_pair. The frequency of a pair of elements is divided by this number. */
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
