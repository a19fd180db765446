/* Mixtures of experts in a graph: which tensors hold token rows sent to experts, and how many
 * parameters one token uses. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* Returns an array [tensor]: the dispatch node whose token rows the tensor holds, or 0 if it holds
 * none. Gradients count, too. Returns NULL if the graph has no experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* An input of a node that is a parameter with an own part for each expert. */
typedef struct ExpertsParam {
    NodeId node;
    uint32_t input; /* counts from 1 */
    TensorId tensor;
    int dim; /* of the experts */
} ExpertsParam;
/* Moves to the next one; begins with zeros. Returns false behind the last one. A parameter comes
 * once for each node that reads it. */
bool experts_next(const Graph *g, ExpertsParam *at);

/* Returns for each tensor [tensor] whether it is a parameter of experts. */
const bool *experts_params(const Graph *g, Arena *arena);

/* Returns the axes that share the experts: those that cut a parameter of theirs by experts. */
AxisSet experts_axes(const Graph *g);

/* Returns the largest number of experts in a layer; 0: the model has no experts. */
int64_t experts_most(const Graph *g);

/* Returns the greatest number that divides the experts of every layer; 0: there are none. */
int64_t experts_common(const Graph *g);

/* Like ModelInfo.n_params_no_embedding, but of the `experts` experts of a layer it counts only
 * top_k: those that one token uses. */
uint64_t experts_active_params(const Graph *g);

#endif
