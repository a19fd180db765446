/* Evaluates a graph on one rank, node by node, with the CPU kernels. Every tensor has its own
 * memory. Gradients are derived here from the op table, independently of the backward pass and of
 * the executor, so this evaluation is the oracle for both. Central differences test the
 * evaluation. */
#ifndef TANDEM_TESTS_SUPPORT_EVAL_H
#define TANDEM_TESTS_SUPPORT_EVAL_H

#include "kernels/kernel.h"
#include "planner/ir/graph.h"

/* An argument of a kernel: the row-major array at `at`, with these dimensions. */
typedef struct Value {
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
    void *at;
} Value;

enum { PART_EMPTY = -1 };

/* For each index letter, the part of the index that the arguments cover. Without a Part (NULL),
 * eval_op assumes that they cover the whole index. */
typedef struct Part {
    int64_t start['z' + 1];
    /* The start of the second chunk, if the part consists of two chunks. 0: it continues the first
     * one. */
    int64_t second['z' + 1];
    /* the number of real elements; 0: all of the local size; PART_EMPTY: none */
    int64_t valid['z' + 1];
    const Binding *global; /* the sizes of the op before it is split */
} Part;

int64_t value_elements(const Value *v);
int64_t value_numbers(const Value *v); /* counts an element that is a pair as two numbers */
Value value_new(Arena *arena, DType dtype, uint32_t n_dims, const int64_t *dim);
double value_get(const Value *v, int64_t i); /* returns number i */
void value_set(Value *v, int64_t i, double x);
/* Fills the memory with NaN (floats) or -1, so that a read before the first write is noticed. */
void value_poison(Value *v);

/* Returns the arguments (inputs, then outputs) for the kernel of `op`, without scratch memory,
 * control and micro-batch. Aborts if they do not fit the op. The result points into *local. */
KernelArgs eval_args(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in,
                     uint32_t n_out, const Part *part, Binding *local);
/* Calls the kernel of `op` with these arguments (inputs, then outputs). Aborts if they do not fit
 * the op. */
void eval_op(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in, uint32_t n_out,
             const Part *part, const Control *control, uint32_t microbatch);
/* Like eval_op, with scratch memory for the kernel (NULL: none). */
void eval_op_scratch(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in,
                     uint32_t n_out, const Value *scratch, const Control *control);
/* Sizes for an op that reshapes, with the same meaning as in KernelArgs. */
typedef struct Extents {
    int64_t outer, middle, inner, part_start, part_size;
} Extents;
void eval_reshape(OpKind op, const Attrs *attrs, const Value *in, const Value *out,
                  const Extents *extents);

typedef struct Eval {
    Arena *arena;
    const Graph *graph;
    Value *value; /* [graph->tensors.n] */
    /* [graph->tensors.n], only for floating-point tensors; `at` is NULL while no gradient has
     * arrived */
    Value *grad;
    Control control;
    uint32_t microbatch;
    bool frozen; /* true: state, and the values computed from it, stay as they are */
} Eval;

/* Makes memory for every tensor of the graph. Floating-point tensors get the dtype `real` (DT_f64
 * or DT_f32). Aborts if a node's shapes do not fit its op. Backward nodes of the graph are
 * ignored. */
Eval eval_new(Arena *arena, const Graph *graph, DType real, const DataSource *data);
/* Sets parameters and state to the values of their initialisers. */
void eval_init(Eval *e, uint64_t seed);
void eval_forward(Eval *e);
/* Runs the backward pass. It adds to the gradients of all tensors on which the loss, or a tensor
 * with a seeded gradient, depends. */
void eval_backward(Eval *e);
/* Clears only the gradients of activations (between micro-batches), or all gradients. */
void eval_clear(Eval *e, bool parameters_too);
/* Returns the gradient of tensor t. The caller sets it before eval_backward. */
Value *eval_seed(Eval *e, TensorId t);

/* Runs the backward nodes that the backward pass has added to the graph. They set the gradient
 * tensors. */
void eval_graph_backward(Eval *e);

#endif
