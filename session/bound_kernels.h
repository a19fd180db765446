/* Times of kernels, for the lower bound of a step's time. */
#ifndef TANDEM_SESSION_BOUND_KERNELS_H
#define TANDEM_SESSION_BOUND_KERNELS_H

#include "planner/front/config.h"

/* Lower bounds of the times of one micro-step's kernels [seconds], on one rank that holds all
 * layers. */
typedef struct KernelTimes {
    double forward_s; /* forward pass of the blocks */
    /* gradients of the blocks' inputs; gradients of weights may be computed later */
    double input_s;
    double blocks_s; /* forward and backward pass of the blocks, without recomputation */
    double again_s;  /* the kernels that recomputation repeats */
    double head_s;   /* forward and backward pass of the nodes that follow the blocks */
} KernelTimes;
/* Returns the first node that does the same work as node `id`: the same op on inputs of equal
 * shapes. Most layers do the same work as the first one, so times are computed only once. The
 * caller zeroes `seen` first. */
enum { MOST_WORKS = 64 };
typedef struct SeenWorks {
    NodeId first[MOST_WORKS];
    uint32_t n;
} SeenWorks;
NodeId bound_first_alike(SeenWorks *seen, const Graph *graph, NodeId id);

/* Fills in `out`. Returns false if this file does not know how some pass, axis or profile changes
 * the sizes or times of kernels. */
bool bound_kernels(const Config *config, const Graph *graph, KernelTimes *out);

#endif
