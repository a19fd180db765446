/* Describes an instruction's work by sizes that a trace of another framework has, too: a product by
 * its sizes, attention by its heads and tokens, a norm by its rows, an element-wise op by its
 * elements. The store keeps kernels imported from traces under keys of these sizes. */
#ifndef TANDEM_SIM_COMPUTE_WORK_H
#define TANDEM_SIM_COMPUTE_WORK_H

#include "planner/ir/plan.h"
#include "store/store.h"

/* [batch, m, k] times [batch, k, n] */
typedef struct ProductWork {
    double batch, m, n, k;
} ProductWork;
ProductWork work_of_product(const Binding *b, const int64_t size['z' + 1]);
/* A convolution, or a gradient of one, as a matrix product: the points of a window are summed like
 * channels. Each group of channels is a product of its own. */
bool work_is_convolution(OpKind op);
ProductWork work_of_convolution(OpKind op, const int64_t size['z' + 1]);

/* True if the rows of both operands and of the result begin at multiples of 16 bytes. A row of an
 * argument consists of its last indices of one kind: summed indices, rows of the left operand, or
 * columns of the right operand. */
bool work_is_aligned(const Program *p, const Instr *in, const Binding *b,
                     const int64_t size['z' + 1]);

/* Returns the key of a product. Transposed operands do not change it, and neither does swapping m
 * and n, because the key lists the two in order of size. For 8-bit types the key names only the
 * width. */
const char *work_product_key(Arena *arena, DType dtype, const ProductWork *work);

typedef struct HeadsWork {
    int64_t batch, heads, kv_heads, queries, keys, head;
    bool causal, backward;
} HeadsWork;
const char *work_heads_key(Arena *arena, DType dtype, const HeadsWork *work);
const char *work_norm_key(Arena *arena, OpKind op, DType dtype, int64_t rows, int64_t width);
/* `to`: the type that a cast produces; DT_none: the op is not a cast. */
const char *work_elements_key(Arena *arena, OpKind op, DType dtype, DType to, int64_t elements);

Rank work_rank(const Plan *plan, const Program *p); /* the first rank that runs the program */

/* Returns the key of an instruction's work; NULL if no other system has a kernel for exactly this
 * work. */
const char *work_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* Returns the time measured on `machine` for `key` (from cost_key) or, without such a measurement,
 * for the key of the instruction's work; -1: the store has neither. */
Ps work_measured(Store *store, const char *machine, const char *key, const Plan *plan,
                 const Program *p, const Instr *in, Arena *arena, Diag *d);

#endif
