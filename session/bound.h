/* Lower bounds of a plan's memory and step time, from its configuration and graph, before lowering.
 * A plan never needs less memory or time than its bounds, so a search may use them to reject
 * points. If a cost depends on the program, the bounds leave it out, so they are loose. */
#ifndef TANDEM_SESSION_BOUND_H
#define TANDEM_SESSION_BOUND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"
#include "planner/ir/trace.h"

typedef struct Bounds {
    uint64_t state_bytes; /* weights, gradients and moments between steps, of the fullest rank */
    uint64_t kept_bytes;  /* inputs of its blocks, kept from forward to backward */
} Bounds;
Bounds bounds_of(const Config *config, const Graph *graph);
/* Returns the time of all products and attention, spread evenly over the ranks, and of a pipeline's
 * filling. 0: unknown. */
Ps bound_step_ps(const Config *config, const Graph *graph);

/* ---- bound_pipeline.c: a tighter bound of memory, for pipelines of many micro-batches */
/* Returns the number of micro-batches of the short plan from which the bound is computed; 0: the
 * plan has no such bound. */
uint32_t bound_microbatches(const Config *config);
/* Returns the bytes that the fullest rank of the whole plan needs at least. `few` is the plan of
 * that many micro-batches; its buffers need no offsets. all: the whole plan has no more. */
uint64_t bound_bytes(const Plan *few, bool all);

/* ---- shared by the files of the bounds */
/* Marks the tensors that the gradients of a node need. */
void bound_mark_needed(const Node *n, bool *needed);
/* True if ac computes this node in a region, so that its results may be computed again. */
bool bound_in_region(const Config *c, const Graph *g, const Node *n);

#endif
