/* Makes a plan from a config and a graph by running all passes in order. */
#ifndef TANDEM_LOWER_COMPILE_H
#define TANDEM_LOWER_COMPILE_H

#include "planner/front/planned.h"
#include "planner/passes/passes.h"

LowerOptions lower_options_default(void); /* does not change dtypes; kernels have no workspace */

/* Compiles `graph` as `config` asks. The plan takes over the graph. stop_after is the last pass to
 * run, for `show --after`; NULL runs all passes. Returns NULL after an error. Errors of several
 * passes are reported, not only those of the first. */
Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d);

/* The same in two parts. The first reads nothing but the part of the configuration that `planned`
 * has. The second moves diagnostics, from item `first` on: for parameters of a library model, the
 * location is a line of the library, and becomes the line of the user's script that uses the
 * model. */
Plan *plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                           const char *stop_after, Arena *arena, Diag *d);
void plan_place_diagnostics(const Config *config, Diag *d, uint32_t first);

/* The number of passes of plan_compile and their names, for `show --after`. */
uint32_t compile_count(void);
const char *compile_name(uint32_t i);

#endif
