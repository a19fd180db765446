/* Spectral norm (ops.def). Once a step, some ops multiply a weight by the two vectors of the power
 * iteration and normalise these vectors. In each micro-batch, other ops divide by the norm, and
 * compute the norm's contribution to the gradient of the weight. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/spectral.c"
#include "kernels/cpu/real.h"

BOTH(project_of_first)
BOTH(project_over_first)
BOTH(project_of_last)
BOTH(project_over_last)
BOTH(project_of_second)
BOTH(project_over_second)
BOTH(inner_product)
BOTH(normalise)
BOTH(divide)
BOTH(divide_dot)
BOTH(outer_first)
BOTH(outer_last)
BOTH(outer_second)

#else

/* w [rows,columns], x [columns] -> y [rows] */
static void F(times_columns)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *w = a->ptr[0], *x = a->ptr[1];
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < rows; i++) y[i] = F(dot)(w + i * columns, x, columns);
}

/* w [rows,columns], x [rows] -> y [columns] */
static void F(times_rows)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *w = a->ptr[0], *x = a->ptr[1];
    REAL *y = a->ptr[2];
    memset(y, 0, (size_t)columns * sizeof *y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) y[j] += x[i] * w[i * columns + j];
}

/* w [k,...], u [...] -> [k] */
static void F(project_of_first)(const KernelArgs *a)
{
    F(times_columns)(a, a->size['k'], a->rows);
}

/* w [k,...], v [k] -> [...] */
static void F(project_over_first)(const KernelArgs *a)
{
    F(times_rows)(a, a->size['k'], a->rows);
}

/* w [...,n], v [...] -> [n] */
static void F(project_of_last)(const KernelArgs *a)
{
    F(times_rows)(a, a->rows, a->size['n']);
}

/* w [...,n], u [n] -> [...] */
static void F(project_over_last)(const KernelArgs *a)
{
    F(times_columns)(a, a->rows, a->size['n']);
}

/* w [k,n,...], v [k,...] -> [n] */
static void F(project_of_second)(const KernelArgs *a)
{
    const int64_t n = a->size['n'], rows = a->rows;
    const REAL *w = a->ptr[0], *x = a->ptr[1];
    REAL *y = a->ptr[2];
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < a->size['k']; i++)
        for (int64_t j = 0; j < n; j++) y[j] += F(dot)(w + (i * n + j) * rows, x + i * rows, rows);
}

/* w [k,n,...], u [n] -> [k,...] */
static void F(project_over_second)(const KernelArgs *a)
{
    const int64_t n = a->size['n'], rows = a->rows;
    const REAL *w = a->ptr[0], *x = a->ptr[1];
    REAL *y = a->ptr[2];
    memset(y, 0, (size_t)(a->size['k'] * rows) * sizeof *y);
    for (int64_t i = 0; i < a->size['k'] * n; i++)
        for (int64_t r = 0; r < rows; r++) y[i / n * rows + r] += x[i % n] * w[i * rows + r];
}

/* x, y [...] -> [] */
static void F(inner_product)(const KernelArgs *a)
{
    REAL *out = a->ptr[2];
    *out = F(dot)(a->ptr[0], a->ptr[1], a->rows);
}

/* old vector (overwritten), x [...], squared length of x [] -> x divided by its length, or by
 * attrs.eps if that is larger (as torch.nn.functional.normalize does) */
static void F(normalise)(const KernelArgs *a)
{
    const REAL *x = a->ptr[1], *square = a->ptr[2], eps = (REAL)a->attrs.eps;
    REAL *y = a->ptr[3], length = sqrt(*square);
    if (length < eps) length = eps;
    for (int64_t i = 0; i < a->rows; i++) y[i] = x[i] / length;
}

/* x [...], sigma [] -> x / sigma */
static void F(divide)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0], sigma = *(const REAL *)a->ptr[1];
    REAL *y = a->ptr[2];
    int64_t n = a->rows;
    if (cpu_accumulates(a, 0)) {
        SAME_OR_APART
        for (int64_t i = 0; i < n; i++) y[i] += x[i] / sigma;
    } else {
        SAME_OR_APART
        for (int64_t i = 0; i < n; i++) y[i] = x[i] / sigma;
    }
}

/* dz, z [b,s,...], sigma [] -> [b,s] */
static void F(divide_dot)(const KernelArgs *a)
{
    const REAL *dz = a->ptr[0], *z = a->ptr[1], sigma = *(const REAL *)a->ptr[2];
    REAL *out = a->ptr[3];
    int64_t n = a->size['b'] * a->size['s'], rows = a->rows;
    for (int64_t i = 0; i < n; i++) out[i] = -F(dot)(dz + i * rows, z + i * rows, rows) / sigma;
}

/* d [b,s], x [rows], y [columns] -> sum(d) x y^T [rows,columns] */
static void F(outer)(const KernelArgs *a, int64_t rows, int64_t columns)
{
    const REAL *x = a->ptr[1], *y = a->ptr[2];
    const REAL d = F(sum)(a->ptr[0], a->size['b'] * a->size['s']);
    REAL *out = F(summed)(a, 0, rows * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) out[i * columns + j] += d * x[i] * y[j];
}

static void F(outer_first)(const KernelArgs *a)
{
    F(outer)(a, a->size['k'], a->rows);
}

static void F(outer_last)(const KernelArgs *a)
{
    F(outer)(a, a->rows, a->size['n']);
}

/* d [b,s], x [k,...], y [n] -> sum(d) times the outer product of x and y [k,n,...] */
static void F(outer_second)(const KernelArgs *a)
{
    const int64_t n = a->size['n'], rows = a->rows, lines = a->size['k'] * n;
    const REAL *x = a->ptr[1], *y = a->ptr[2];
    const REAL d = F(sum)(a->ptr[0], a->size['b'] * a->size['s']);
    REAL *out = F(summed)(a, 0, lines * rows);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t r = 0; r < rows; r++) out[i * rows + r] += d * x[i / n * rows + r] * y[i % n];
}

#endif
