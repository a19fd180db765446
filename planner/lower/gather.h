/* Collects the full state on one rank by a program of its own, for checkpoints in one file and for
 * export. */
#ifndef TANDEM_LOWER_GATHER_H
#define TANDEM_LOWER_GATHER_H

#include "planner/ir/state/state.h"
#include "planner/passes/passes.h"

/* Returns a plan (PURPOSE_gather) that brings all of `train`'s weights, or one of their moments, to
 * the hosts of the first pipeline stage. There each tensor is whole. It goes unit by unit, with two
 * units whole on a device at a time. Its persistent host buffers hold one tensor each. All ranks of
 * that stage receive the state, because they run one program; the first rank writes it. Returns
 * NULL with diagnostics on failure. */
Plan *gather_plan(const Plan *train, StateKind kind, Arena *arena, Diag *d);

#endif
