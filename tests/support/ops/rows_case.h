/* Makes the arguments of a convolution's kernels, for the whole op and for its inner and border
 * parts. */
#ifndef TANDEM_TESTS_ROWS_CASE_H
#define TANDEM_TESTS_ROWS_CASE_H

#include "kernels/kernel.h"
#include "planner/base/arena.h"

enum { ROWS_MOST_PARTS = 4 };

typedef struct RowsCase {
    Attrs attrs;
    bool groups; /* true: the ops are those with groups */
    /* sizes of the whole op; rows: rows of x; made: rows of y */
    int64_t b, g, c, n, rows, made, columns;
    uint32_t n_parts;
    /* rows of the buffers of x and of y, which are those of the largest part */
    int64_t own_rows, made_rows;
    Halo halo[ROWS_MOST_PARTS];
    Interval out[ROWS_MOST_PARTS];
    double *x, *y, *weight; /* random numbers, for the whole op */
} RowsCase;

/* Draws a case. Windows may have strides, dilations, even sizes and any mode of padding. */
void rows_case_draw(RowsCase *c, Arena *arena, uint64_t seed);
/* Returns `dense`, or its counterpart with groups if c->groups. */
OpKind rows_case_op(const RowsCase *c, OpKind dense);
/* Numbers of elements in one part: its own rows of x, its strips, its rows of y, and the weight. */
typedef struct RowsCounts {
    int64_t x, strips, y, weight;
} RowsCounts;
RowsCounts rows_case_counts(const RowsCase *c);
/* Fills a part's own rows of x, the strips from its neighbours, and its rows of y. */
void rows_case_part(const RowsCase *c, uint32_t part, DType t, void *x, void *strips, void *y);
/* Returns arguments for `op`: for the whole (part < 0) or for a part. ptr: the inputs, then the
 * output. */
KernelArgs rows_case_args(const RowsCase *c, OpKind op, int part, DType t, void *const *ptr,
                          Binding *b);
/* Restricts the arguments of an op for inner rows to output columns `own`. Its x has these columns,
 * and with_halo the ones beside them. */
void rows_case_columns(const RowsCase *c, OpKind op, Interval own, bool with_halo, KernelArgs *a);
/* Copies columns [at.lo, at.hi) of `n` numbers in lines of all columns. Columns beyond an edge come
 * from the other edge. */
void rows_case_take(const RowsCase *c, DType t, const void *from, int64_t n, Interval at, void *to);

#endif
