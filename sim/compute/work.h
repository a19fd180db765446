/* Describes the work of an instruction by sizes that a trace of another framework contains, too. A
 * product is described by its sizes, attention by its heads and tokens, a norm by its rows, and an
 * element-wise op by its elements. The store keeps the kernels of imported traces under keys made
 * of these sizes. */
#ifndef TANDEM_SIM_COMPUTE_WORK_H
#define TANDEM_SIM_COMPUTE_WORK_H

#include "planner/ir/plan.h"
#include "store/store.h"

/* A product of matrices [batch, m, k] and [batch, k, n]. */
typedef struct ProductWork {
    double batch, m, n, k;
} ProductWork;
ProductWork work_of_product(const Binding *b, const int64_t size['z' + 1]);
/* A convolution, or a gradient of one, as a matrix product. The points of a window are summed like
 * channels. Each group of channels is one batch of the product. */
bool work_is_convolution(OpKind op);
ProductWork work_of_convolution(OpKind op, const int64_t size['z' + 1]);

/* Returns true if the rows of both operands and of the result begin at multiples of 16 bytes. A row
 * of an argument spans its last indices, for as long as they are of the same kind. The kinds are
 * indices of the batch, indices that are summed, those of the left operand's rows, and those of the
 * right operand's columns. */
bool work_is_aligned(const Program *p, const Instr *in, const Binding *b,
                     const int64_t size['z' + 1]);

/* Returns the key of a product. Whether operands are transposed does not change the key. Neither
 * does swapping m and n, because the key lists the larger one first. For 8-bit and 4-bit dtypes,
 * the key only says how many bits a number has. */
const char *work_product_key(Arena *arena, DType dtype, const ProductWork *work);

typedef struct HeadsWork {
    int64_t batch, heads, kv_heads, queries, keys, head;
    bool causal, backward;
} HeadsWork;
const char *work_heads_key(Arena *arena, DType dtype, const HeadsWork *work);
const char *work_norm_key(Arena *arena, OpKind op, DType dtype, int64_t rows, int64_t width);
/* to: the dtype that a cast produces; DT_none: the op is not a cast. */
const char *work_elements_key(Arena *arena, OpKind op, DType dtype, DType to, int64_t elements);

Rank work_rank(const Plan *plan, const Program *p); /* returns the first rank that runs the
                                                       program */

/* Returns the key of an instruction's work. Returns NULL if no other system has a kernel for
 * exactly this work. */
const char *work_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* Returns the time that was measured on `machine` for `key` (from cost_key). If there is none,
 * returns the time measured for the key of the instruction's work. Returns -1 if the store has
 * neither. */
Ps work_measured(Store *store, const char *machine, const char *key, const Plan *plan,
                 const Program *p, const Instr *in, Arena *arena, Diag *d);

#endif
