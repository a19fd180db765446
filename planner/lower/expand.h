/* Makes the programs of a step with many micro-batches from the programs of a shorter step. While
 * the pipeline is full, a program repeats a period: the backward work of one micro-batch and the
 * forward work of a later one. Copies of this period are inserted. */
#ifndef TANDEM_LOWER_EXPAND_H
#define TANDEM_LOWER_EXPAND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"

/* The number of micro-batches that a short step has beyond the number of stages. The pipeline is
 * full after as many micro-batches as there are stages. A few more are needed until the offsets of
 * buffers repeat, and at the end of the step the offsets differ again. */
enum { PLAN_BEHIND_FILLING = 8 };

/* True if making a step of n micro-batches from a step of `few` saves enough work. */
bool plan_saves_enough(uint32_t few, uint32_t n);

/* Returns the number of micro-batches of the short step for a step of n. Returns 0 if n is too
 * small, or if the schedule is not 1f1b. */
uint32_t plan_expands_from(const Config *config, uint32_t n);

/* Makes a plan with n micro-batches from the plan `few`. Its code equals the code that pass_lower
 * would make for n micro-batches. Buffers get no offsets. Both plans share all other data. Sets
 * *n_repeated (unless it is NULL) to the number of periods, in all programs, that were copied from
 * the period before them. Returns NULL if a program has no period. */
Plan *plan_expand(const Plan *few, uint32_t n, Arena *arena, uint32_t *n_repeated);

#endif
