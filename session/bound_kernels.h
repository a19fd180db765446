/* Times of kernels for the lower bound of a step. */
#ifndef TANDEM_SESSION_BOUND_KERNELS_H
#define TANDEM_SESSION_BOUND_KERNELS_H

#include "planner/front/config.h"

/* Lower bounds of the time of one micro-step's kernels [seconds], on one rank that holds all
 * layers. */
typedef struct KernelTimes {
    double forward_s; /* blocks, forward */
    double input_s;   /* blocks, gradients of inputs (those of weights may come later) */
    double blocks_s;  /* blocks, forward and backward, without recomputation */
    double again_s;   /* kernels that recomputation runs again */
    double head_s;    /* nodes behind the blocks, forward and backward */
} KernelTimes;
/* Returns the first node in [1, id] that does the same work as node `id`: the same op on inputs of
 * equal shapes. Most layers repeat the work of the first layer. The caller zeroes `seen` first. */
enum { MOST_WORKS = 64 };
typedef struct SeenWorks {
    NodeId first[MOST_WORKS];
    uint32_t n;
} SeenWorks;
NodeId bound_first_alike(SeenWorks *seen, const Graph *graph, NodeId id);

/* Computes the times of `out`. Returns false if a pass, an axis or a profile changes the sizes or
 * times of kernels in a way that is not known here. */
bool bound_kernels(const Config *config, const Graph *graph, KernelTimes *out);

#endif
