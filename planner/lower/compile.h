/* Makes a plan from a config and a graph by running all passes in order. */
#ifndef TANDEM_LOWER_COMPILE_H
#define TANDEM_LOWER_COMPILE_H

#include "planner/front/planned.h"
#include "planner/passes/passes.h"

LowerOptions lower_options_default(void); /* returns options that keep all dtypes and give kernels
                                             no workspace */

/* Compiles `graph` according to `config`. Afterwards the graph belongs to the plan. stop_after is
 * the last pass to run, for `show --after`; NULL runs all passes. Returns NULL after an error.
 * Later passes still run after an error, so that their errors are reported, too. */
Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d);

/* Do the work of plan_compile in two parts. plan_compile_planned reads only `planned`, a part of
 * the configuration. plan_place_diagnostics changes the locations of diagnostics from item `first`
 * on. It replaces a line of a library model by the line of the user's script that uses the
 * model. */
Plan *plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                           const char *stop_after, Arena *arena, Diag *d);
void plan_place_diagnostics(const Config *config, Diag *d, uint32_t first);

/* Return the number of passes that plan_compile runs, and the name of each, for `show --after`. */
uint32_t compile_count(void);
const char *compile_name(uint32_t i);

#endif
