/* What an instruction does, in words that another system's trace can be put into, too: a product by
 * its sizes, attention by its heads and tokens, a norm by its rows, an element-wise op by its
 * elements. Kernels imported from traces are stored under these keys. */
#ifndef TANDEM_SIM_COMPUTE_WORK_H
#define TANDEM_SIM_COMPUTE_WORK_H

#include "planner/ir/plan.h"
#include "store/store.h"

/* [batch, m, k] times [batch, k, n] */
typedef struct ProductWork {
    double batch, m, n, k;
} ProductWork;
ProductWork work_of_product(const Binding *b, const int64_t size['z' + 1]);

/* Which operand lies transposed, and which side is called m, are left out: the sides are told in
 * order of size, and 8-bit types by their width alone. */
const char *work_product_key(Arena *arena, DType dtype, const ProductWork *work);

typedef struct HeadsWork {
    int64_t batch, heads, kv_heads, queries, keys, head;
    bool causal, backward;
} HeadsWork;
const char *work_heads_key(Arena *arena, DType dtype, const HeadsWork *work);
const char *work_norm_key(Arena *arena, OpKind op, DType dtype, int64_t rows, int64_t width);
/* `to`: the type that a cast makes; DT_none: not a cast. */
const char *work_elements_key(Arena *arena, OpKind op, DType dtype, DType to, int64_t elements);

Rank work_rank(const Plan *plan, const Program *p); /* the first that runs the program */

/* NULL: no other system's kernel stands for it alone. */
const char *work_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* Measured on `machine`: under the op's own key (cost_key, `key`), else under that of its work. -1:
 * neither. */
Ps work_measured(Store *store, const char *machine, const char *key, const Plan *plan,
                 const Program *p, const Instr *in, Arena *arena, Diag *d);

#endif
