/* Plans that later points of a sweep use again. Points that differ only in their cluster or runtime
 * often have the same plan. A process keeps its newest plans, with their proofs and ids. */
#ifndef TANDEM_SESSION_REUSE_H
#define TANDEM_SESSION_REUSE_H

#include "planner/front/planned.h"
#include "planner/passes/passes.h"
#include "session/session.h"

/* A kept plan, or an empty place for one. Everything lies in `arena`. */
typedef struct KeptPlan {
    Arena *arena;
    bool known; /* the plan was made */
    Str key;
    PlanFile file;
    Diag told;           /* what its compilation reported, before plan_place_diagnostics */
    bool judged, proven; /* its proofs have run; they succeeded */
    Diag proofs;         /* what the proofs reported */
} KeptPlan;

/* Returns the place of the plan of this configuration: with the plan if it is known, else emptied
 * for the plan that the caller makes next. Returns NULL if a plan of this load cannot be used
 * again. arena: the arena of the load. */
KeptPlan *reuse_find(const PlanOptions *options, const LowerOptions *lower, const Planned *planned,
                     const Graph *graph, const Arena *arena);

#endif
