/* Plans that later points of a sweep use again. Points that differ only in their cluster or runtime
 * often have the same plan. So a process keeps its newest plans, with their proofs and ids. */
#ifndef TANDEM_SESSION_REUSE_H
#define TANDEM_SESSION_REUSE_H

#include "planner/front/planned.h"
#include "planner/passes/passes.h"
#include "session/session.h"

/* A kept plan, or an empty entry in which a plan can be kept. All of its data are in `arena`. */
typedef struct KeptPlan {
    Arena *arena;
    bool known; /* true if the entry has a plan */
    Str key;
    PlanFile file;
    Diag told;           /* the diagnostics of its compilation, before plan_place_diagnostics */
    bool judged, proven; /* judged: its proofs were run; proven: they succeeded */
    Diag proofs;         /* the diagnostics of its proofs */
} KeptPlan;

/* Returns the entry for the plan of this configuration. If the plan is known, the entry has it.
 * Otherwise the entry is empty, and the caller makes the plan in it. Returns NULL if a plan of this
 * load cannot be used again. arena: the arena of the load. */
KeptPlan *reuse_find(const PlanOptions *options, const LowerOptions *lower, const Planned *planned,
                     const Graph *graph, const Arena *arena);

#endif
