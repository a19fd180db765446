/* Config + Graph -> Plan: every pass in order. */
#ifndef TANDEM_LOWER_COMPILE_H
#define TANDEM_LOWER_COMPILE_H

#include "planner/passes/passes.h"

LowerOptions lower_options_default(void); /* identity map, no workspace */

/* Compiles `graph`, which the plan takes over, as `config` asks. Stops after the pass that
 * `stop_after` names (`show --after`): the plan then has a graph and maybe programs; NULL: runs
 * all. After each pass the graph's structure is checked ("graph-structure", an internal error).
 * Returns NULL when there were errors: those of all of the user's passes, not only of the first. */
Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d);

/* The passes that plan_compile runs, by number and name, for `show --after`. */
uint32_t compile_count(void);
const char *compile_name(uint32_t i);

#endif
