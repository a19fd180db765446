/* Times of kernels, for the lower bound of the step time (bound.c). */
#ifndef TANDEM_SESSION_BOUND_KERNELS_H
#define TANDEM_SESSION_BOUND_KERNELS_H

#include "planner/front/config.h"

/* Lower bounds of the times of a rank's kernels for one micro-batch [seconds], as if the rank had
 * all layers. */
typedef struct KernelTimes {
    double forward_s; /* forward pass of the blocks */
    /* gradients of inputs in the blocks; those of weights may be computed later */
    double input_s;
    double blocks_s; /* forward and backward pass of the blocks, without recomputation */
    double again_s;  /* forward kernels that run again in the backward pass */
    double head_s;   /* forward and backward pass of the nodes after the blocks */
} KernelTimes;
/* Returns the first node that does the same work as node `id`: the same op on inputs of the same
 * shapes. For example, layer 1's wq for layer 3's wq. The times of such nodes are computed only
 * once. The caller zeroes `seen` first. */
enum { MOST_WORKS = 64 };
typedef struct SeenWorks {
    NodeId first[MOST_WORKS];
    uint32_t n;
} SeenWorks;
NodeId bound_first_alike(SeenWorks *seen, const Graph *graph, NodeId id);

/* Fills in *out. Returns false if it is not known how some pass, axis or runtime changes the sizes
 * or times of kernels. */
bool bound_kernels(const Config *config, const Graph *graph, KernelTimes *out);

#endif
