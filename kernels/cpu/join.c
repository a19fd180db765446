/* Joins the features that all heads share with the features of each head. Splits the gradient into
 * both again. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/join.c"
#include "kernels/cpu/real.h"

BOTH(join_heads)
BOTH(join_heads_shared)
BOTH(join_heads_own)

#else

/* shared [b,s,X], own [b,s,g,U] -> y [b,s,g,X+U] */
static void F(join_heads)(const KernelArgs *a)
{
    const int64_t X = a->size['X'], U = a->size['U'], G = a->size['g'];
    const REAL *shared = a->ptr[0], *own = a->ptr[1];
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < a->size['b'] * a->size['s'] * G; i++) {
        memcpy(y + i * (X + U), shared + i / G * X, (size_t)X * sizeof *y);
        memcpy(y + i * (X + U) + X, own + i * U, (size_t)U * sizeof *y);
    }
}

/* dy [b,s,g,Z] -> dshared [b,s,X], summed over g */
static void F(join_heads_shared)(const KernelArgs *a)
{
    const int64_t X = a->size['X'], Z = a->size['Z'], G = a->size['g'];
    const int64_t rows = a->size['b'] * a->size['s'];
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, rows * X);
    for (int64_t i = 0; i < rows * G; i++)
        for (int64_t e = 0; e < X; e++) dx[i / G * X + e] += dy[i * Z + e];
}

/* dy [b,s,g,Z] -> down [b,s,g,U] */
static void F(join_heads_own)(const KernelArgs *a)
{
    const int64_t U = a->size['U'], Z = a->size['Z'];
    const int64_t rows = a->size['b'] * a->size['s'] * a->size['g'];
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, rows * U);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t e = 0; e < U; e++) dx[i * U + e] += dy[i * Z + Z - U + e];
}

#endif
