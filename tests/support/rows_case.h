/* A convolution of split rows in two parts: the arguments of each part's kernel, for tests. */
#ifndef TANDEM_TESTS_ROWS_CASE_H
#define TANDEM_TESTS_ROWS_CASE_H

#include "kernels/kernel.h"
#include "planner/base/arena.h"

enum { ROWS_MOST_PARTS = 4 };

typedef struct RowsCase {
    Attrs attrs;
    bool groups;                             /* the ops with groups */
    int64_t b, g, c, n, rows, made, columns; /* rows of x and of y; whole */
    uint32_t n_parts;
    int64_t own_rows, made_rows; /* of a buffer: the largest part's */
    Halo halo[ROWS_MOST_PARTS];
    Interval out[ROWS_MOST_PARTS];
    double *x, *y, *weight; /* whole: random numbers */
} RowsCase;

/* Draws windows with strides, dilations, even kernels and all modes. */
void rows_case_draw(RowsCase *c, Arena *arena, uint64_t seed);
/* The op with or without groups. */
OpKind rows_case_op(const RowsCase *c, OpKind dense);
/* Elements of one part's own rows of x, of its strips, of its rows of y, and of the weight. */
typedef struct RowsCounts {
    int64_t x, strips, y, weight;
} RowsCounts;
RowsCounts rows_case_counts(const RowsCase *c);
/* Fills in a part's own rows of x, the strips that its neighbours send, and its rows of y. */
void rows_case_part(const RowsCase *c, uint32_t part, DType t, void *x, void *strips, void *y);
/* Arguments for `op`: whole (part < 0), or a part's. ptr: the inputs, then the output. */
KernelArgs rows_case_args(const RowsCase *c, OpKind op, int part, DType t, void *const *ptr,
                          Binding *b);

#endif
