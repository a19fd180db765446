/* Makes the programs of a step of many micro-batches from those of a step of a few. */
#ifndef TANDEM_LOWER_EXPAND_H
#define TANDEM_LOWER_EXPAND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"

/* A pipeline is full after as many micro-batches as it has stages. A short step has this many more:
 * periods follow, places of buffers settle in a few of them, and the last micro-batches differ. */
enum { PLAN_BEHIND_FILLING = 8 };

/* True if a step of `few` micro-batches saves enough work to stand for a step of n. */
bool plan_saves_enough(uint32_t few, uint32_t n);

/* Returns the number of micro-batches of a step from which the step of n micro-batches is made; 0:
 * from none, because it has hardly more, or because its schedule is not 1f1b. */
uint32_t plan_expands_from(const Config *config, uint32_t n);

/* Returns the plan of a pipeline with n micro-batches: `few` with a period of each program repeated
 * and renumbered. Its code equals the code that pass_lower makes for n micro-batches. Buffers get
 * no offsets, and attributes are those of `few`. Both plans share all but the programs. Returns
 * NULL if a program has no period. */
Plan *plan_expand(const Plan *few, uint32_t n, Arena *arena);

#endif
