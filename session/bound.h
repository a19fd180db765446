/* Lower bounds of a plan's memory and step time, from its configuration and graph, before lowering.
 * A plan never needs less memory or time than its bounds, so a search may use them to reject
 * points. The bounds leave out every cost that depends on the program, so they are loose. */
#ifndef TANDEM_SESSION_BOUND_H
#define TANDEM_SESSION_BOUND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"
#include "planner/ir/trace.h"

typedef struct Bounds {
    uint64_t state_bytes; /* weights, gradients and moments between steps, of the fullest rank */
    /* the inputs of blocks that the fullest rank keeps from forward to backward */
    uint64_t kept_bytes;
} Bounds;
Bounds bounds_of(const Config *config, const Graph *graph);
/* Returns a lower bound of the step's time: all products and attention, spread evenly over the
 * ranks, plus the time to fill a pipeline. 0: unknown. */
Ps bound_step_ps(const Config *config, const Graph *graph);

/* ---- bound_pipeline.c: a tighter bound of memory, for pipelines of many micro-batches */
/* Returns the number of micro-batches of the short plan from which the bound is computed; 0: the
 * plan has no such bound. */
uint32_t bound_microbatches(const Config *config);
/* Returns a lower bound of the bytes that the fullest rank of the whole plan needs. few: the plan
 * of bound_microbatches micro-batches; its buffers need no offsets. all: the whole plan has no more
 * micro-batches. */
uint64_t bound_bytes(const Plan *few, bool all);

/* ---- shared by the files of the bounds */
/* Marks the tensors that the gradients of a node need. */
void bound_mark_needed(const Node *n, bool *needed);
/* True if ac puts this node into a region, so that its results may be recomputed. */
bool bound_in_region(const Config *c, const Graph *g, const Node *n);

#endif
