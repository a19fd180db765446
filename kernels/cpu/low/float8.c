/* Two kinds of ops. amax finds the largest magnitude of a tensor, of its rows or of its columns.
 * quantise scales numbers so that this magnitude becomes attrs.scale, the largest number of a
 * narrower dtype. If the output's dtype is not narrower, numbers are scaled but not rounded. The
 * contraction undoes the scaling. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/low/float8.c"
#include "kernels/cpu/real.h"

BOTH(amax)
BOTH(amax_of_tokens)
BOTH(amax_over_tokens)
BOTH(amax_of_first)
BOTH(amax_over_first)
BOTH(amax_of_last)
BOTH(amax_over_last)
BOTH(quantise)
BOTH(quantise_of_tokens)
BOTH(quantise_over_tokens)
BOTH(quantise_of_first)
BOTH(quantise_over_first)
BOTH(quantise_of_last)
BOTH(quantise_over_last)
BOTH(amax_range)
BOTH(quantise_range)

#else

/* Returns the larger of `most` and |x|. Returns NaN if either is NaN; otherwise a NaN would be
 * lost. */
static inline REAL F(larger)(REAL most, REAL x)
{
    REAL magnitude = fabs(x);
    return magnitude <= most ? most : isnan(most) ? most : magnitude;
}

/* x [rows,columns] -> out [rows]: largest magnitude of each row */
static void F(amax_rows)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *x = a->ptr[0];
    REAL *out = a->ptr[1];
    for (int64_t i = 0; i < rows; i++) {
        REAL most = 0;
        for (int64_t j = 0; j < columns; j++) most = F(larger)(most, x[i * columns + j]);
        out[i] = most;
    }
}

/* x [rows,columns] -> out [columns]: largest magnitude of each column */
static void F(amax_columns)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *x = a->ptr[0];
    REAL *out = a->ptr[1];
    memset(out, 0, (size_t)columns * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) out[j] = F(larger)(out[j], x[i * columns + j]);
}

/* Returns x scaled by largest / amax. If rounding carries the product past `largest`, the result is
 * `largest`. */
static inline REAL F(scaled)(REAL x, REAL amax, REAL largest)
{
    REAL y = x * (largest / (REAL)cpu_amax_bound((double)amax));
    return y > largest ? largest : y < -largest ? -largest : y;
}

/* x [rows,columns], amax [rows] -> y [rows,columns] */
static void F(quantise_by_rows)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *x = a->ptr[0], *amax = a->ptr[1], largest = (REAL)a->attrs.scale;
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[i * columns + j] = F(scaled)(x[i * columns + j], amax[i], largest);
}

/* x [rows,columns], amax [columns] -> y [rows,columns] */
static void F(quantise_by_columns)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *x = a->ptr[0], *amax = a->ptr[1], largest = (REAL)a->attrs.scale;
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[i * columns + j] = F(scaled)(x[i * columns + j], amax[j], largest);
}

#define TOKENS (a->size['b'] * a->size['s'])
/* Defines an op on any tensor by a function for matrices. The tensor is seen as a matrix, with a
 * scale for each row or for each column. */
#define SEEN_AS(name, kernel, rows, columns)                                                       \
    static void F(name)(const KernelArgs *a)                                                       \
    {                                                                                              \
        F(kernel)(a, rows, columns);                                                               \
    }

SEEN_AS(amax, amax_rows, 1, a->rows)
SEEN_AS(amax_of_tokens, amax_rows, TOKENS, a->rows)
SEEN_AS(amax_over_tokens, amax_columns, TOKENS, a->rows)
SEEN_AS(amax_of_first, amax_rows, a->size['k'], a->rows)
SEEN_AS(amax_over_first, amax_columns, a->size['k'], a->rows)
SEEN_AS(amax_of_last, amax_columns, a->rows, a->size['n'])
SEEN_AS(amax_over_last, amax_rows, a->rows, a->size['n'])
SEEN_AS(quantise, quantise_by_rows, 1, a->rows)
SEEN_AS(quantise_of_tokens, quantise_by_rows, TOKENS, a->rows)
SEEN_AS(quantise_over_tokens, quantise_by_columns, TOKENS, a->rows)
SEEN_AS(quantise_of_first, quantise_by_rows, a->size['k'], a->rows)
SEEN_AS(quantise_over_first, quantise_by_columns, a->size['k'], a->rows)
SEEN_AS(quantise_of_last, quantise_by_columns, a->rows, a->size['n'])
SEEN_AS(quantise_over_last, quantise_by_rows, a->rows, a->size['n'])
#undef SEEN_AS
#undef TOKENS

/* Returns the local index of the first of elements attrs.lo to attrs.hi - 1. Sets *n to how many of
 * them this rank has. */
static int64_t F(range)(const KernelArgs *a, int64_t *n)
{
    int64_t from = a->attrs.lo - a->start['x'], to = a->attrs.hi - a->start['x'];
    if (from < 0) from = 0;
    if (to > a->size['x']) to = a->size['x'];
    *n = to > from ? to - from : 0;
    return *n ? from : 0;
}

/* x [x] -> out []: 0 if this rank has no element of the range */
static void F(amax_range)(const KernelArgs *a)
{
    int64_t n, from = F(range)(a, &n);
    const REAL *x = (const REAL *)a->ptr[0] + from;
    REAL *out = a->ptr[1], most = 0;
    for (int64_t i = 0; i < n; i++) most = F(larger)(most, x[i]);
    *out = most;
}

/* x [x], amax [] -> y [x] */
static void F(quantise_range)(const KernelArgs *a)
{
    int64_t n, from = F(range)(a, &n);
    const REAL *x = (const REAL *)a->ptr[0] + from, *amax = a->ptr[1];
    REAL *all = a->ptr[2], *y = all + from, largest = (REAL)a->attrs.scale;
    if (!cpu_accumulates(a, 0)) memset(all, 0, (size_t)a->size['x'] * sizeof *all);
    for (int64_t i = 0; i < n; i++) {
        REAL q = F(scaled)(x[i], *amax, largest);
        y[i] = cpu_accumulates(a, 0) ? y[i] + q : q;
    }
}

#endif
