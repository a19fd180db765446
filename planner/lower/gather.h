/* Collects the full state on one rank by a program of its own, for checkpoints in one file and for
 * export. */
#ifndef TANDEM_LOWER_GATHER_H
#define TANDEM_LOWER_GATHER_H

#include "planner/ir/state/state.h"
#include "planner/passes/passes.h"

/* Returns a plan (PURPOSE_gather) that copies all of `train`'s weights, or one of their moments, to
 * the hosts of the first pipeline stage, where each tensor is whole. The plan gathers unit by unit,
 * with two whole units on a device at a time. Each of its persistent host buffers holds one tensor.
 * All ranks of the first stage receive the state, because they run one program; the first rank
 * writes it. Returns NULL with diagnostics on failure. */
Plan *gather_plan(const Plan *train, StateKind kind, Arena *arena, Diag *d);

#endif
