/* Gradients through a division by the spectral norm of a weight. */
#ifndef TANDEM_PASSES_GRAPH_SPECTRAL_H
#define TANDEM_PASSES_GRAPH_SPECTRAL_H

#include "planner/passes/pass.h"

/* Adds the contribution of node `divide`, which computes z = y / sigma, to the gradient of the
 * weight whose norm is sigma. The gradient of y follows from the op table as usual. Reports
 * "graph-structure" and returns false if sigma is not a spectral norm. */
bool spectral_backward(Job *job, NodeId divide);
#endif
