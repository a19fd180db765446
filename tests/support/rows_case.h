/* Arguments of a convolution whose rows are split into two parts: those of each part's kernel, for
 * tests. */
#ifndef TANDEM_TESTS_ROWS_CASE_H
#define TANDEM_TESTS_ROWS_CASE_H

#include "kernels/kernel.h"
#include "planner/base/arena.h"

enum { ROWS_MOST_PARTS = 4 };

typedef struct RowsCase {
    Attrs attrs;
    bool groups;                             /* the ops with groups */
    int64_t b, g, c, n, rows, made, columns; /* rows of x and of y, for the whole */
    uint32_t n_parts;
    int64_t own_rows, made_rows; /* of a buffer: the size for the largest part */
    Halo halo[ROWS_MOST_PARTS];
    Interval out[ROWS_MOST_PARTS];
    double *x, *y, *weight; /* for the whole: random numbers */
} RowsCase;

/* Draws windows with strides, dilations, even kernels and all modes. */
void rows_case_draw(RowsCase *c, Arena *arena, uint64_t seed);
/* The op with or without groups. */
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

#endif
