/* Finds the period of a simulated step: the time that further micro-batches add. */
#ifndef TANDEM_SIM_PERIOD_H
#define TANDEM_SIM_PERIOD_H

#include "sim/sim.h"

/* Two intervals of a step, [from, from + length) and [from + length, from + 2 length), that are
 * equal to the picosecond: in every class, each instruction that runs in the first one has a
 * counterpart in the second one. Each interval contains all instructions of `microbatches`
 * micro-batches. A step with k * `microbatches` more micro-batches repeats the period k more
 * times. */
typedef struct Period {
    Ps from, length;
    uint32_t microbatches;
} Period;

/* `result` is a simulation with the costs `cost`. Returns false if no period was found. Also
 * returns false if a step with more micro-batches could end differently because the host would
 * issue too late. */
bool period_find(const Plan *plan, const Fold *fold, const CostModel *cost,
                 const EngineResult *result, Arena *scratch, Period *out);

#endif
