/* Shared by the pass and the derivation of gradients: nodes that quantise an operand. */
#ifndef TANDEM_PASSES_GRAPH_FLOAT8_H
#define TANDEM_PASSES_GRAPH_FLOAT8_H

#include "planner/passes/pass.h"

typedef struct Quantised {
    TensorId value, amax;
} Quantised;

/* The largest number of e4m3 or e5m2. */
double float8_largest(DType t);
/* The op that finds the scale of operand i of the scaled contraction `reader`, made from x. */
OpKind float8_amax(const Graph *g, const Node *reader, uint32_t i, TensorId x);
/* Adds the nodes that make operand i of the scaled contraction `reader` from x: their place in the
 * model and the pipeline is the reader's. */
Quantised float8_quantise(Job *job, const Node *reader, uint32_t i, TensorId x, DType to);
/* Attributes of a contraction that reads a and b: it divides by what they were multiplied by. */
Attrs float8_attrs(const Graph *g, TensorId a, TensorId b);
/* The tensor that `quantised` was made from; itself if it is not quantised. */
TensorId float8_source(const Graph *g, TensorId quantised);
/* Adds the gradient nodes of a scaled contraction: of its input, of its weight. again[tensor of the
 * forward pass]: its form that the backward pass has made already, for all who read that tensor. */
bool float8_backward(Job *job, NodeId forward, bool of_input, bool of_weight, Quantised *again);
#endif
