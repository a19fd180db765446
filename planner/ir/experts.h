/* Mixtures of experts in a graph: which tensors contain tokens for experts, which parameters belong
 * to experts, and how many parameters one token uses. */
#ifndef TANDEM_IR_EXPERTS_H
#define TANDEM_IR_EXPERTS_H

#include "planner/ir/graph.h"

/* Returns an array with an entry for each tensor. If the tensor contains tokens that were sent to
 * experts, or their gradients, the entry is the dispatch node that sent them; otherwise 0. Returns
 * NULL if the graph has no experts. */
const NodeId *experts_rows(const Graph *g, Arena *arena);

/* An input of a node that is a parameter of experts, such as a weight [experts, in, out]. */
typedef struct ExpertsParam {
    NodeId node;
    uint32_t input; /* counts from 1 */
    TensorId tensor;
    int dim; /* the dimension [experts] */
} ExpertsParam;
/* Iterates over all such inputs in node order. Start with a zeroed `at`; each call moves it to the
 * next one. Returns false after the last. A parameter that several nodes read occurs once for
 * each. */
bool experts_next(const Graph *g, ExpertsParam *at);

/* Returns an array with an entry for each tensor: true for parameters of experts. */
const bool *experts_params(const Graph *g, Arena *arena);

/* Returns the mesh axes that divide experts over ranks, such as ep. */
AxisSet experts_axes(const Graph *g);

/* Returns how many experts the layer with the most experts has; 0 if the model has no experts. */
int64_t experts_most(const Graph *g);

/* Returns the greatest common divisor of all layers' expert counts; 0 if the model has no experts.
 * For example, 64 for layers with 64 and 128 experts. */
int64_t experts_common(const Graph *g);

/* Returns how many parameters take part in the computation of one token: all parameters without the
 * input embedding, but only top_k experts of each layer. */
uint64_t experts_active_params(const Graph *g);

#endif
