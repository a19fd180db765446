/* Mixtures of experts in a graph: which tensors hold token rows sent to experts, and how many
 * parameters one token uses. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* Returns for each tensor [tensor] the dispatch node whose token rows it holds, also for
 * gradients; 0 if it holds none. Returns NULL if the graph has no experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* Returns the largest number of experts in a layer; 0: the model has no experts. */
int64_t experts_most(const Graph *g);

/* Like ModelInfo.n_params_no_embedding, but counts the parameters of only top_k of the `experts`
 * experts: those that one token uses. */
uint64_t experts_active_params(const Graph *g);

#endif
