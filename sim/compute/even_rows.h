/* Changes the memory that a plan reserves for the rows of experts (rows_share.h), for models that
 * drop no token. Tandem's executor reserves memory for an upper bound on the rows, and its
 * element-wise ops compute all of this memory. Other frameworks allocate memory only for the rows
 * that have arrived, and compute only those. */
#ifndef TANDEM_SIM_COMPUTE_EVEN_ROWS_H
#define TANDEM_SIM_COMPUTE_EVEN_ROWS_H

#include "planner/ir/plan.h"

/* Returns a copy of the plan, in `arena`, with memory for the mean number of rows on each rank.
 * Returns `plan` itself if it reserves no more than that. Offsets of buffers and the size of the
 * arena stay as they are. */
const Plan *even_rows_plan(const Plan *plan, Arena *arena);
/* Returns a copy of the plan with memory for the rows of the busiest rank: `factor` times the mean,
 * but at most all rows that can arrive. Returns `plan` itself if it has no uneven rows. */
const Plan *uneven_rows_plan(const Plan *plan, double factor, Arena *arena);

#endif
