/* The full state on one rank: a program of its own, for checkpoints in one file and for export. */
#ifndef TANDEM_LOWER_GATHER_H
#define TANDEM_LOWER_GATHER_H

#include "planner/ir/state.h"
#include "planner/passes/passes.h"

/* A plan (PURPOSE_gather) that brings all of `train`'s weights, or one of their moments, whole to
 * the host of the first pipeline stage, unit by unit: two units are whole on a device at a time.
 * Its persistent host buffers hold one tensor each. The ranks of that stage all receive it, for
 * they run one program; the first one writes. NULL with diagnostics. */
Plan *gather_plan(const Plan *train, StateKind kind, Arena *arena, Diag *d);

#endif
