/* Makes the nodes that quantise an operand. The pass float8 and the derivation of gradients use
 * these functions. */
#ifndef TANDEM_PASSES_GRAPH_FLOAT8_H
#define TANDEM_PASSES_GRAPH_FLOAT8_H

#include "planner/passes/pass.h"

typedef struct Quantised {
    TensorId value, amax; /* amax: the largest magnitudes, or the scales of blocks */
    TensorId whole;       /* nvfp4: the largest magnitude of the whole tensor, in addition to the
                             scales of blocks */
} Quantised;

/* The number of values that share a scale in MXFP8 (32) and in NVFP4 (16). */
enum { FLOAT8_BLOCK = 32, FLOAT8_BLOCK_OF_FOUR = 16 };
/* Returns the length of the blocks along a dimension of that size. */
int64_t float8_block(const PassConfig *pass, int64_t size);

/* Returns the largest number of e4m3, e5m2 or e2m1x2. */
double float8_largest(DType t);
/* Returns the op that computes the scale of operand i of the scaled contraction `reader` from
 * tensor x. Two readers for which this is the same op can share one quantised form of x. */
OpKind float8_scale(const Graph *g, const Node *reader, uint32_t i, TensorId x);
/* Returns the type of a quantised operand: `to`, or the 4-bit type if `reader` reads 4-bit
 * numbers. */
DType float8_type(OpKind reader, DType to);
/* Adds the nodes that compute operand i of the scaled contraction `reader` from x. The nodes get
 * the module and stage of the reader. whole: the largest magnitude of x, if a node has computed it
 * (nvfp4); 0: a node is added. */
Quantised float8_quantise(Job *job, const Node *reader, uint32_t i, TensorId x, DType to,
                          TensorId whole);
/* Writes the inputs of a scaled contraction of a and b to `in`, and returns their number. */
uint32_t float8_inputs(Quantised a, Quantised b, TensorId in[MAX_IN]);
/* Returns the attributes of the scaled contraction `op` of a and b. They contain the factors of
 * both scales, by which the result is divided, or the length of blocks. */
Attrs float8_attrs(const Graph *g, OpKind op, TensorId a, TensorId b);
/* Returns the tensor from which `quantised` was computed, or `quantised` itself if it is not
 * quantised. */
TensorId float8_source(const Graph *g, TensorId quantised);
/* Adds the nodes for the gradients of a scaled contraction: of its input, of its weight, or both.
 * again[forward tensor] is the quantised form that an earlier backward node has made. All readers
 * share this form. */
bool float8_backward(Job *job, NodeId forward, bool of_input, bool of_weight, Quantised *again);
#endif
