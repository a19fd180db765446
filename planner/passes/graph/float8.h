/* Appends the nodes that quantise an operand of an 8-bit product, for the pass float8 and for the
 * backward pass. */
#ifndef TANDEM_PASSES_GRAPH_FLOAT8_H
#define TANDEM_PASSES_GRAPH_FLOAT8_H

#include "planner/passes/pass.h"

typedef struct Quantised {
    /* the 8-bit tensor; its largest magnitudes (one, or one for each row) or scales of blocks */
    TensorId value, amax;
    TensorId whole; /* nvfp4: also the largest magnitude of the whole tensor; otherwise 0 */
} Quantised;

/* How many values share a scale in MXFP8, and in NVFP4. */
enum { FLOAT8_BLOCK = 32, FLOAT8_BLOCK_OF_FOUR = 16 };
/* Returns how long blocks along a dimension of `size` values are. In shrunk models, they may be
 * shorter. */
int64_t float8_block(const PassConfig *pass, int64_t size);

/* Returns the largest value of type e4m3, e5m2 or e2m1x2. */
double float8_largest(DType t);
/* Returns the op that computes the scale of tensor x as operand i of the 8-bit product `reader`.
 * Two readers for which it is the same op can share one quantised form of x. */
OpKind float8_scale(const Graph *g, const Node *reader, uint32_t i, TensorId x);
/* Returns the dtype of a quantised operand of op `reader`: `to`, or the 4-bit type if the op
 * multiplies 4-bit values. */
DType float8_type(OpKind reader, DType to);
/* Appends the nodes that quantise x as operand i of the 8-bit product `reader`, with the module and
 * stage of `reader`. For nvfp4, `whole` is the largest magnitude of x if a node already computes
 * it; 0: appends one. */
Quantised float8_quantise(Job *job, const Node *reader, uint32_t i, TensorId x, DType to,
                          TensorId whole);
/* Sets `in` to the inputs of an 8-bit product of a and b: values, then scales. Returns how many
 * there are. */
uint32_t float8_inputs(Quantised a, Quantised b, TensorId in[MAX_IN]);
/* Returns the attributes of the 8-bit product `op` of a and b: the factors of the scales, by which
 * it divides its result, or the length of a block. */
Attrs float8_attrs(const Graph *g, OpKind op, TensorId a, TensorId b);
/* Returns the tensor of which `quantised` is the 8-bit form; `quantised` itself if it is none. */
TensorId float8_source(const Graph *g, TensorId quantised);
/* Appends the nodes for the gradients of 8-bit product `forward`: of its input, of its weight, or
 * both. again[t] is the form of forward tensor t that an earlier backward node has quantised, so
 * that readers share it. Returns false after an error. */
bool float8_backward(Job *job, NodeId forward, bool of_input, bool of_weight, Quantised *again);
#endif
