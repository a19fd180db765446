/* Makes a Plan from a Config and a Graph by running every pass in order. */
#ifndef TANDEM_LOWER_COMPILE_H
#define TANDEM_LOWER_COMPILE_H

#include "planner/passes/passes.h"

LowerOptions lower_options_default(void); /* identity map, no workspace */

/* Compiles `graph` as `config` asks; the plan takes over the graph. stop_after: the name of the
 * last pass to run (`show --after`); the plan then has a graph and perhaps programs; NULL: all
 * passes run. After each pass the graph's structure is checked ("graph-structure", an internal
 * error). Returns NULL after errors. It reports the errors of all passes that the user names, not
 * only of the first pass that fails. */
Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d);

/* The number of passes that plan_compile runs, and their names, for `show --after`. */
uint32_t compile_count(void);
const char *compile_name(uint32_t i);

#endif
