/* Finds the period of a simulated step: the time that each further micro-batch adds. */
#ifndef TANDEM_SIM_PERIOD_H
#define TANDEM_SIM_PERIOD_H

#include "sim/sim.h"

/* The intervals [from, from + length) and [from + length, from + 2 length) are equal to the
 * picosecond: in every class, each instruction that runs in the first interval has a counterpart in
 * the second. Each period contains all instructions of `microbatches` micro-batches. A step with k
 * * `microbatches` more micro-batches repeats the period k times. */
typedef struct Period {
    Ps from, length;
    uint32_t microbatches;
} Period;

/* `result` is the simulation made with `cost`. Returns false if no such period was found. Also
 * returns false if a step with more micro-batches could end differently, because the host issues
 * too late. */
bool period_find(const Plan *plan, const Fold *fold, const CostModel *cost,
                 const EngineResult *result, Arena *scratch, Period *out);

#endif
