/* Rows of experts that drop no token, as other frameworks hold them. Tandem's executor has memory
 * for a bound of rows, and element-wise ops compute all of it. A framework allocates the rows that
 * have arrived, and computes those alone. */
#ifndef TANDEM_SIM_COMPUTE_EVEN_ROWS_H
#define TANDEM_SIM_COMPUTE_EVEN_ROWS_H

#include "planner/ir/plan.h"

/* Returns the plan with memory for the mean rows of each rank, in `arena`; `plan` itself if it has
 * no more. Offsets and the size of a program's arena stay. */
const Plan *even_rows_plan(const Plan *plan, Arena *arena);
/* Returns the plan with memory for the rows of the busiest rank: `factor` times the mean rows, at
 * most all rows that can come. Returns `plan` if it has no uneven rows. */
const Plan *uneven_rows_plan(const Plan *plan, double factor, Arena *arena);

#endif
