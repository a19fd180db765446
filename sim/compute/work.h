/* An instruction's work in terms that fit other systems' traces too: a product by its sizes,
 * attention by its heads and tokens, a norm by its rows, an element-wise op by its elements.
 * Kernels imported from traces are stored under these keys. */
#ifndef TANDEM_SIM_COMPUTE_WORK_H
#define TANDEM_SIM_COMPUTE_WORK_H

#include "planner/ir/plan.h"
#include "store/store.h"

/* [batch, m, k] times [batch, k, n] */
typedef struct ProductWork {
    double batch, m, n, k;
} ProductWork;
ProductWork work_of_product(const Binding *b, const int64_t size['z' + 1]);
/* A convolution, or a gradient of one, as a product: the taps of a window are summed like channels.
 * Each group of channels is a product of its own. */
bool work_is_convolution(OpKind op);
ProductWork work_of_convolution(OpKind op, const int64_t size['z' + 1]);

/* True if the rows of both operands and of the result begin at multiples of 16 bytes. The row of an
 * argument spans its last indices, as many as play one part in the product: summed, its rows, or
 * its columns. */
bool work_is_aligned(const Program *p, const Instr *in, const Binding *b,
                     const int64_t size['z' + 1]);

/* The key of a product. It ignores which operand is transposed and which side is called m: the
 * two sides come in order of size. Of 8-bit types it names the width alone. */
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

/* The key of an instruction's work; NULL if no other system has one kernel for it alone. */
const char *work_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* The time measured on `machine`: under the op's own key (`key`, from cost_key), else under its
 * work's key; -1 if there is neither. */
Ps work_measured(Store *store, const char *machine, const char *key, const Plan *plan,
                 const Program *p, const Instr *in, Arena *arena, Diag *d);

#endif
