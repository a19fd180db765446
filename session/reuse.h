/* Plans that later points of a sweep reuse. Points that differ only in their cluster or runtime
 * often have the same plan, so a process keeps its latest plans with their proofs and ids. */
#ifndef TANDEM_SESSION_REUSE_H
#define TANDEM_SESSION_REUSE_H

#include "planner/front/planned.h"
#include "planner/passes/passes.h"
#include "session/session.h"

/* An entry for one reusable plan; all its data are in `arena`. */
typedef struct KeptPlan {
    Arena *arena;
    bool known; /* the entry contains a plan */
    Str key;
    PlanFile file;
    Diag told;           /* diagnostics of the compilation, before plan_place_diagnostics */
    bool judged, proven; /* judged: the plan was verified; proven: without errors */
    Diag proofs;         /* diagnostics of the verification */
} KeptPlan;

/* Returns the entry for the plan of this configuration. Either it contains this plan, or it is
 * empty and the caller compiles the plan into it. Returns NULL if the plan of this load cannot be
 * reused. arena: the arena of the load. */
KeptPlan *reuse_find(const PlanOptions *options, const LowerOptions *lower, const Planned *planned,
                     const Graph *graph, const Arena *arena);

#endif
