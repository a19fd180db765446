/* Segments of fused projections. Each token has F segments of equal size side by side. An op copies
 * one of them, or writes its gradient back. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/move/segment.c"
#include "kernels/cpu/real.h"

BOTH(segment)
BOTH(segment_grad)

#else

/* x [tokens,F,n] -> y [tokens,n] */
static inline void F(take)(const KernelArgs *a, int64_t n)
{
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1];
    int64_t tokens = a->size['b'] * a->size['s'], segments = a->size['F'], j = a->attrs.segment;
    assert(j >= 0 && j < segments);
    for (int64_t i = 0; i < tokens; i++)
        memcpy(y + i * n, x + (i * segments + j) * n, (size_t)n * sizeof *y);
}

/* dy [tokens,n] -> dx [tokens,F,n]: zero in all other segments, because other instructions add
 * their gradients */
static inline void F(put)(const KernelArgs *a, int64_t n)
{
    const REAL *dy = a->ptr[0];
    int64_t tokens = a->size['b'] * a->size['s'], segments = a->size['F'], j = a->attrs.segment;
    REAL *dx = F(summed)(a, 0, tokens * segments * n);
    assert(j >= 0 && j < segments);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t k = 0; k < n; k++) dx[(i * segments + j) * n + k] += dy[i * n + k];
}

static void F(segment)(const KernelArgs *a)
{
    F(take)(a, a->rows);
}

static void F(segment_grad)(const KernelArgs *a)
{
    F(put)(a, a->rows);
}

#endif
