/* Nodes that quantise an operand. The pass and the derivation of gradients share them. */
#ifndef TANDEM_PASSES_GRAPH_FLOAT8_H
#define TANDEM_PASSES_GRAPH_FLOAT8_H

#include "planner/passes/pass.h"

typedef struct Quantised {
    TensorId value, amax; /* amax: largest magnitudes, or the scales of blocks */
    TensorId whole;       /* nvfp4: the largest magnitude of the tensor, beside scales of blocks */
} Quantised;

/* Numbers that share a scale in MXFP8, and in NVFP4. */
enum { FLOAT8_BLOCK = 32, FLOAT8_BLOCK_OF_FOUR = 16 };
/* Returns the length of the blocks along a dimension of that size. */
int64_t float8_block(const PassConfig *pass, int64_t size);

/* Returns the largest number of e4m3, e5m2 or e2m1x2. */
double float8_largest(DType t);
/* Returns the op that computes the scale of operand i of the scaled contraction `reader` from x.
 * Two readers that need the same op can share one quantised form. */
OpKind float8_scale(const Graph *g, const Node *reader, uint32_t i, TensorId x);
/* Returns the type of quantised operands: `to`, or the type of 4-bit numbers. */
DType float8_type(OpKind reader, DType to);
/* Adds the nodes that make operand i of the scaled contraction `reader` from x. The nodes belong
 * to the same module and stage as the reader. whole: x's largest magnitude, if a node has found it
 * (nvfp4); 0: a node is added. */
Quantised float8_quantise(Job *job, const Node *reader, uint32_t i, TensorId x, DType to,
                          TensorId whole);
/* Sets the inputs of a scaled contraction of a and b, and returns their number. */
uint32_t float8_inputs(Quantised a, Quantised b, TensorId in[MAX_IN]);
/* Returns the attributes of the scaled contraction `op` of a and b: it divides by the factors of
 * both, or has blocks. */
Attrs float8_attrs(const Graph *g, OpKind op, TensorId a, TensorId b);
/* Returns the tensor that `quantised` was made from, or `quantised` itself if it is not
 * quantised. */
TensorId float8_source(const Graph *g, TensorId quantised);
/* Adds the gradient nodes of a scaled contraction, for its input and for its weight. again[forward
 * tensor] is the quantised form that the backward pass has already made; all readers share it. */
bool float8_backward(Job *job, NodeId forward, bool of_input, bool of_weight, Quantised *again);
#endif
