/* Ops for fused projections of unequal segments: they copy features out of each group, or write the
 * gradients of those features back. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/move/part.c"
#include "kernels/cpu/real.h"

BOTH(part)
BOTH(part_grad)
BOTH(part_heads)
BOTH(part_heads_grad)
BOTH(part_head)
BOTH(part_head_grad)

#else

/* The rows: one row for each group of a token. Each row has `all` elements. The op copies `n`
 * elements of each row, from element `from` on. */
typedef struct F(Rows) {
    int64_t n_rows, all, from, n;
} F(Rows);

/* heads: how many of the group's heads this rank has; first: the first of them that is copied. */
static inline F(Rows) F(rows_of)(const KernelArgs *a, char group, int64_t heads, int64_t first)
{
    const int64_t *n = a->size, e = n['E'] ? n['E'] : 1;
    F(Rows)
    r = {n['b'] * n['s'] * n[(int)group], n['F'] * e, (a->attrs.first + first) * e, heads * e};
    assert(r.from >= 0 && r.from + r.n <= r.all);
    return r;
}

/* x [rows, all] -> y [rows, n] */
static inline void F(take)(const KernelArgs *a, F(Rows) r)
{
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    for (int64_t i = 0; i < r.n_rows; i++)
        memcpy(y + i * r.n, x + i * r.all + r.from, (size_t)r.n * sizeof *y);
}

/* dy [rows, n] -> dx [rows, all]: all other elements of dx are zero, because other instructions add
 * their gradients */
static inline void F(put)(const KernelArgs *a, F(Rows) r)
{
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, r.n_rows * r.all);
    for (int64_t i = 0; i < r.n_rows; i++)
        for (int64_t k = 0; k < r.n; k++) dx[i * r.all + r.from + k] += dy[i * r.n + k];
}

static void F(part)(const KernelArgs *a)
{
    F(take)(a, F(rows_of)(a, 'n', a->size['X'], 0));
}

static void F(part_grad)(const KernelArgs *a)
{
    F(put)(a, F(rows_of)(a, 'n', a->size['X'], 0));
}

static void F(part_heads)(const KernelArgs *a)
{
    F(take)(a, F(rows_of)(a, 'g', a->size['r'], a->start['r']));
}

static void F(part_heads_grad)(const KernelArgs *a)
{
    F(put)(a, F(rows_of)(a, 'g', a->size['r'], a->start['r']));
}

static void F(part_head)(const KernelArgs *a)
{
    F(take)(a, F(rows_of)(a, 'g', 1, 0));
}

static void F(part_head_grad)(const KernelArgs *a)
{
    F(put)(a, F(rows_of)(a, 'g', 1, 0));
}

#endif
