/* Gradients of what is divided by the spectral norm of a weight. */
#ifndef TANDEM_PASSES_GRAPH_SPECTRAL_H
#define TANDEM_PASSES_GRAPH_SPECTRAL_H

#include "planner/passes/pass.h"

/* Adds what `divide`, z = y / sigma, contributes to the gradient of the weight that sigma is the
 * norm of; that of y follows from the op table. Reports "graph-structure" where sigma is no norm.
 */
bool spectral_backward(Job *job, NodeId divide);
#endif
