/* A program that collects the whole state on one rank, for export and for a checkpoint in one
 * file. */
#ifndef TANDEM_LOWER_GATHER_H
#define TANDEM_LOWER_GATHER_H

#include "planner/ir/state/state.h"
#include "planner/passes/passes.h"

/* Returns a plan that copies all weights of `train`, or one of their moments, to the hosts of the
 * first pipeline stage. Each persistent host buffer then has one whole tensor. At most two whole
 * units are on a device at a time. All ranks of the first stage receive the state, and the first of
 * these ranks writes it to a file. Returns NULL after an error. */
Plan *gather_plan(const Plan *train, StateKind kind, Arena *arena, Diag *d);

#endif
