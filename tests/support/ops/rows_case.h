/* Makes the arguments of a convolution's kernels: for the whole op, and for its inner and border
 * parts. */
#ifndef TANDEM_TESTS_ROWS_CASE_H
#define TANDEM_TESTS_ROWS_CASE_H

#include "kernels/kernel.h"
#include "planner/base/arena.h"

enum { ROWS_MOST_PARTS = 4 };

typedef struct RowsCase {
    Attrs attrs;
    bool groups; /* true: the ops are those for convolutions with groups */
    /* the sizes of the whole op; `rows` counts the rows of x, and `made` those of y */
    int64_t b, g, c, n, rows, made, columns;
    uint32_t n_parts;
    /* the numbers of rows in the buffers of x and of y, which have room for the largest part */
    int64_t own_rows, made_rows;
    Halo halo[ROWS_MOST_PARTS];
    Interval out[ROWS_MOST_PARTS];
    double *x, *y, *weight; /* random numbers for the whole op */
} RowsCase;

/* Draws a case. Windows may have strides, dilations, even sizes and any mode of padding. */
void rows_case_draw(RowsCase *c, Arena *arena, uint64_t seed);
/* Returns `dense`, or the corresponding op with groups if c->groups is set. */
OpKind rows_case_op(const RowsCase *c, OpKind dense);
/* The numbers of elements in one part: its own rows of x, its strips, its rows of y, and the
 * weight. */
typedef struct RowsCounts {
    int64_t x, strips, y, weight;
} RowsCounts;
RowsCounts rows_case_counts(const RowsCase *c);
/* Fills three buffers of a part: its own rows of x, the strips from its neighbours, and its rows of
 * y. */
void rows_case_part(const RowsCase *c, uint32_t part, DType t, void *x, void *strips, void *y);
/* Returns arguments for `op` that cover one part, or the whole op if part < 0. ptr holds the inputs
 * and then the output. */
KernelArgs rows_case_args(const RowsCase *c, OpKind op, int part, DType t, void *const *ptr,
                          Binding *b);
/* Restricts an op for inner rows to the output columns `own`. Its x then has only these columns,
 * and with_halo also the columns beside them. */
void rows_case_columns(const RowsCase *c, OpKind op, Interval own, bool with_halo, KernelArgs *a);
/* `from` has `n` lines of all columns. Copies the columns [at.lo, at.hi) of each line. A column
 * beyond an edge is taken from the other edge. */
void rows_case_take(const RowsCase *c, DType t, const void *from, int64_t n, Interval at, void *to);

#endif
