/* Lower bounds of a plan's memory and step time, from its configuration and its graph, before it is
 * lowered. A plan never needs less memory or time than its bounds, so a search may use them to rule
 * out points. Costs that depend on the program are left out, so the real memory and time may be
 * much larger. */
#ifndef TANDEM_SESSION_BOUND_H
#define TANDEM_SESSION_BOUND_H

#include "planner/front/config.h"
#include "planner/ir/plan.h"
#include "planner/ir/trace.h"

typedef struct Bounds {
    /* weights, gradients and moments that the fullest rank holds between steps */
    uint64_t state_bytes;
    /* inputs of blocks that the fullest rank keeps from the forward to the backward pass */
    uint64_t kept_bytes;
} Bounds;
Bounds bounds_of(const Config *config, const Graph *graph);
/* Returns a lower bound of the step's time; 0: unknown. It is the time of all products and
 * attention, spread evenly over the ranks, plus the time to fill a pipeline. */
Ps bound_step_ps(const Config *config, const Graph *graph);

/* ---- bound_pipeline.c: a tighter bound of memory, for pipelines with many micro-batches */
/* The bound of bound_bytes is computed from a plan with few micro-batches. Returns their number; 0:
 * there is no such bound. */
uint32_t bound_microbatches(const Config *config);
/* Returns a lower bound of the bytes that the fullest rank of the whole plan needs. few: a plan of
 * bound_microbatches micro-batches, whose buffers need no offsets. all: true if the whole plan has
 * no more micro-batches than `few`. */
uint64_t bound_bytes(const Plan *few, bool all);

/* ---- shared by the files of the bounds */
/* Sets needed[tensor] for the tensors that the gradients of a node need. */
void bound_mark_needed(const Node *n, bool *needed);
/* True if activation recomputation puts this node into a region, so that its results may be
 * computed again. */
bool bound_in_region(const Config *c, const Graph *g, const Node *n);

#endif
