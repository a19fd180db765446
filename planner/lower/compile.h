/* Makes a plan from a config and a graph by running all passes in order. */
#ifndef TANDEM_LOWER_COMPILE_H
#define TANDEM_LOWER_COMPILE_H

#include "planner/passes/passes.h"

LowerOptions lower_options_default(void); /* does not change dtypes; kernels have no workspace */

/* Compiles `graph` as `config` asks. The plan takes over the graph. stop_after is the last pass to
 * run, for `show --after`; NULL runs all passes. Returns NULL after an error. Errors of several
 * passes are reported, not only those of the first. */
Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d);

/* The number of passes of plan_compile and their names, for `show --after`. */
uint32_t compile_count(void);
const char *compile_name(uint32_t i);

#endif
