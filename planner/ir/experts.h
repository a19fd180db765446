/* Mixtures of experts in a graph: the tensors with token rows for experts, and the number of
 * parameters that one token uses. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* Returns an array with one entry for each tensor: the dispatch node that made the token rows in
 * the tensor. The entry is 0 if the tensor has no token rows. Gradients of such rows have an entry,
 * too. Returns NULL if the graph has no experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* A node's input that is a parameter of experts. One dimension of the parameter counts the
 * experts. */
typedef struct ExpertsParam {
    NodeId node;
    uint32_t input; /* counts from 1 */
    TensorId tensor;
    int dim; /* the dimension that counts the experts */
} ExpertsParam;
/* Moves `at` to the next such input, in node order; a zeroed `at` starts before the first. Returns
 * false if there is none left. A parameter that several nodes read occurs once for each of them. */
bool experts_next(const Graph *g, ExpertsParam *at);

/* Returns an array with one entry for each tensor: true if the tensor is a parameter of experts. */
const bool *experts_params(const Graph *g, Arena *arena);

/* Returns the mesh axes that split a parameter of experts along the dimension that counts the
 * experts. */
AxisSet experts_axes(const Graph *g);

/* Returns the largest number of experts in any layer; 0 if the model has no experts. */
int64_t experts_most(const Graph *g);

/* Returns the greatest common divisor of the layers' numbers of experts; 0 if the model has no
 * experts. */
int64_t experts_common(const Graph *g);

/* Returns the number of parameters that one token uses: ModelInfo.n_params_no_embedding, with only
 * top_k experts of each layer. */
uint64_t experts_active_params(const Graph *g);

#endif
