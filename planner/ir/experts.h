/* Mixtures of experts in a graph: the tensors with token rows for experts, and the number of
 * parameters that one token uses. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* Returns an array [tensor]: the dispatch node whose token rows the tensor holds, or 0 if it holds
 * none. Gradients count, too. Returns NULL if the graph has no experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* A node's input that is a parameter of experts: one of its dimensions counts the experts. */
typedef struct ExpertsParam {
    NodeId node;
    uint32_t input; /* counts from 1 */
    TensorId tensor;
    int dim; /* the dimension that counts the experts */
} ExpertsParam;
/* Moves `at` to the next such input, in node order; a zeroed `at` starts before the first. Returns
 * false if there is none left. A parameter that several nodes read occurs once for each of them. */
bool experts_next(const Graph *g, ExpertsParam *at);

/* Returns for each tensor [tensor] whether it is a parameter of experts. */
const bool *experts_params(const Graph *g, Arena *arena);

/* Returns the axes that split a parameter of experts along the dimension of the experts. */
AxisSet experts_axes(const Graph *g);

/* Returns the largest number of experts in a layer; 0: the model has no experts. */
int64_t experts_most(const Graph *g);

/* Returns the greatest number that divides the experts of every layer; 0: there are none. */
int64_t experts_common(const Graph *g);

/* Returns ModelInfo.n_params_no_embedding, but counts only top_k of a layer's experts: the number
 * that one token uses. */
uint64_t experts_active_params(const Graph *g);

#endif
