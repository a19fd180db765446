/* Finds the period of a simulated step: the time that each further micro-batch adds. */
#ifndef TANDEM_SIM_PERIOD_H
#define TANDEM_SIM_PERIOD_H

#include "sim/sim.h"

/* [from, from + length) and [from + length, from + 2 length) are equal to the picosecond: in every
 * class each instruction that is under way in the first has a counterpart in the second. Each
 * period has all instructions of `microbatches` micro-batches. A step with k times as many
 * micro-batches more, in which each further one is alike, repeats that period k times. */
typedef struct Period {
    Ps from, length;
    uint32_t microbatches;
} Period;

/* `cost` made `result`. Returns false if no such period was found, or if a step with more
 * micro-batches could end otherwise, because the host issues too late. */
bool period_find(const Plan *plan, const Fold *fold, const CostModel *cost,
                 const EngineResult *result, Arena *scratch, Period *out);

#endif
