/* Ops that add or copy rows of a table: token embeddings, learned and sinusoidal positions, and
 * biases. If the vocabulary is split over ranks, an id outside of this rank's range gives zeros. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/embed.c"
#include "kernels/cpu/real.h"

BOTH(embed)
BOTH(embed_grad)
BOTH(position)
BOTH(position_grad)
BOTH(sinusoid)
BOTH(bias)
BOTH(bias_grad)

#else

/* ids [b,s] i32, table [v,k] -> y [b,s,k] */
static void F(embed)(const KernelArgs *a)
{
    const int32_t *ids = a->ptr[0];
    const REAL *table = a->ptr[1];
    REAL *y = a->ptr[2];
    int64_t n = a->size['b'] * a->size['s'], k = a->size['k'];
    for (int64_t i = 0; i < n; i++) {
        int64_t v = ids[i] - a->start['v'];
        if (v >= 0 && v < a->valid['v'])
            memcpy(y + i * k, table + v * k, (size_t)k * sizeof *y);
        else
            memset(y + i * k, 0, (size_t)k * sizeof *y);
    }
}

/* dy [b,s,k], ids [b,s] i32 -> dtable [v,k]. Contributions are added in the order of positions. */
static void F(embed_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int32_t *ids = a->ptr[1];
    int64_t n = a->size['b'] * a->size['s'], k = a->size['k'];
    REAL *dtable = F(summed)(a, 0, a->size['v'] * k);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = ids[i] - a->start['v'];
        if (v < 0 || v >= a->valid['v']) continue;
        for (int64_t d = 0; d < k; d++) dtable[v * k + d] += dy[i * k + d];
    }
}

/* x [outer, n], row [n] -> y [outer, n]; x and y may be the same memory */
static void F(add_row)(const REAL *x, const REAL *row, REAL *y, int64_t outer, int64_t n)
{
    for (int64_t i = 0; i < outer; i++) {
        SAME_OR_APART
        for (int64_t d = 0; d < n; d++) y[i * n + d] = x[i * n + d] + row[d];
    }
}

/* dy [outer, n] -> drow [n] */
static void F(add_row_grad)(const REAL *dy, REAL *drow, int64_t outer, int64_t n)
{
    for (int64_t i = 0; i < outer; i++)
        for (int64_t d = 0; d < n; d++) drow[d] += dy[i * n + d];
}

/* x [b,s,k], table [S,k] -> y [b,s,k] */
static void F(position)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], *table = a->ptr[1];
    REAL *y = a->ptr[2];
    const int64_t tokens = a->size['s'], n = a->size['k'];
    for (int64_t i = 0; i < a->size['b'] * tokens; i++)
        F(add_row)(x + i * n, table + cpu_whole_index(a, 's', i % tokens) * n, y + i * n, 1, n);
}

/* dy [b,s,k] -> dtable [S,k]; zero for tokens of other ranks */
static void F(position_grad)(const KernelArgs *a)
{
    const REAL *dy = a->ptr[0];
    const int64_t tokens = a->size['s'], n = a->size['k'];
    REAL *dtable = F(summed)(a, 0, a->size['S'] * n);
    for (int64_t i = 0; i < a->size['b'] * tokens; i++)
        F(add_row_grad)(dy + i * n, dtable + cpu_whole_index(a, 's', i % tokens) * n, 1, n);
}

/* x [b,s,...], bias [...] -> y [b,s,...] */
static void F(bias)(const KernelArgs *a)
{
    F(add_row)(a->ptr[0], a->ptr[1], a->ptr[2], a->size['b'] * a->size['s'], a->rows);
}

static void F(bias_grad)(const KernelArgs *a)
{
    F(add_row_grad)(a->ptr[0], F(summed)(a, 0, a->rows), a->size['b'] * a->size['s'], a->rows);
}

/* x [b,s,D] -> y [b,s,D]; x and y may be the same memory */
static void F(sinusoid)(const KernelArgs *a)
{
    const int64_t S = a->size['s'], D = a->size['D'], half = D / 2;
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    assert(D % 2 == 0 && half > 1);
    for (int64_t i = 0; i < a->size['b'] * S; i++)
        for (int64_t e = 0; e < half; e++) {
            const double frequency = pow(a->attrs.theta, -(double)e / (double)(half - 1));
            const double angle = (double)cpu_whole_index(a, 's', i % S) * frequency;
            y[i * D + e] = x[i * D + e] + (REAL)sin(angle);
            y[i * D + half + e] = x[i * D + half + e] + (REAL)cos(angle);
        }
}

#endif
