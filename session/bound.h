/* Lower bounds of a plan's memory and step time, from its configuration and its graph, before the
 * plan is compiled. No plan needs less than its bounds, so a search can drop a point whose bounds
 * are already too large. The real values may be much larger. */
#ifndef TANDEM_SESSION_BOUND_H
#define TANDEM_SESSION_BOUND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"
#include "planner/ir/trace.h"

typedef struct Bounds {
    /* weights, gradients and moments of the fullest rank, between steps [bytes] */
    uint64_t state_bytes;
    /* activations that the fullest rank saves for the backward pass [bytes] */
    uint64_t kept_bytes;
} Bounds;
Bounds bounds_of(const Config *config, const Graph *graph);
/* Returns a lower bound of the step time; 0: unknown. It is the time of all matrix products and
 * attention, spread evenly over the ranks, and the time to fill a pipeline. */
Ps bound_step_ps(const Config *config, const Graph *graph);

/* ---- bound_pipeline.c: a tighter bound of memory, for pipelines with many micro-batches */
/* Returns the number of micro-batches of the short plan that bound_bytes needs; 0: this bound does
 * not exist for the configuration. */
uint32_t bound_microbatches(const Config *config);
/* Returns a lower bound of the bytes that the fullest rank of the whole plan needs. few: the plan
 * with bound_microbatches micro-batches, whose buffers need no offsets. all: `few` is itself the
 * whole plan. */
uint64_t bound_bytes(const Plan *few, bool all);

/* ---- bound_needed.c */
/* Sets needed[t] for each tensor t that the gradients of node `n` read. */
void bound_mark_needed(const Node *n, bool *needed);
/* True if ac{} puts this node into a region (config.h), so that its outputs may be recomputed
 * instead of saved. */
bool bound_in_region(const Config *c, const Graph *g, const Node *n);

#endif
