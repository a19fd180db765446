/* Gradients through the division by a spectral norm. */
#ifndef TANDEM_PASSES_GRAPH_SPECTRAL_H
#define TANDEM_PASSES_GRAPH_SPECTRAL_H

#include "planner/passes/pass.h"

/* Node `divide` computes z = y / sigma, where sigma is the spectral norm of a weight. Appends the
 * nodes that add its contribution to the gradient of this weight. (The gradient of y follows from
 * ops.def.) If sigma is no spectral norm, reports "graph-structure" and returns false. */
bool spectral_backward(Job *job, NodeId divide);
#endif
