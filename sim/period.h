/* Finds the period of a simulated step: the time that further micro-batches add. */
#ifndef TANDEM_SIM_PERIOD_H
#define TANDEM_SIM_PERIOD_H

#include "sim/sim.h"

/* Two intervals of a step, [from, from + length) and [from + length, from + 2 length), that are
 * equal to the picosecond. In every class, each instruction that runs in the first interval has a
 * counterpart in the second one. Each interval contains all instructions of `microbatches`
 * micro-batches. If a step has k * `microbatches` more micro-batches, it repeats the period k more
 * times. */
typedef struct Period {
    Ps from, length;
    uint32_t microbatches;
} Period;

/* Finds the period in `result`, which is a simulation with the costs `cost`. Returns false if there
 * is none. Also returns false if the host could fall behind in a step with more micro-batches,
 * because the step could then end differently. */
bool period_find(const Plan *plan, const Fold *fold, const CostModel *cost,
                 const EngineResult *result, Arena *scratch, Period *out);

#endif
