/* Ops on a range of tokens: they copy some tokens of each sequence, or write the gradients of those
 * tokens back. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/move/tokens.c"
#include "kernels/cpu/real.h"

/* x [b,F,...] -> y [b,X,...]; the bytes of any dtype are copied unchanged */
void cpu_tokens(const KernelArgs *a)
{
    const size_t token = (size_t)a->rows * dtype_bytes(a->dtype[0]);
    const size_t all = (size_t)a->size['F'] * token, piece = (size_t)a->size['X'] * token;
    const char *x = (const char *)a->ptr[0] + (size_t)a->attrs.first * token;
    char *y = a->ptr[1];
    assert(a->dtype[0] == a->dtype[1] && a->attrs.first + a->size['X'] <= a->size['F']);
    for (int64_t b = 0; b < a->size['b']; b++, x += all, y += piece) memcpy(y, x, piece);
}

void cpu_span(const KernelArgs *a)
{
    cpu_tokens(a);
}

BOTH(tokens_grad)
BOTH(span_grad)

#else

/* dy [b,X,...] -> dx [b,F,...]: zero for tokens outside of this range, because the gradients of
 * other ranges are added by other instructions */
static void F(tokens_grad)(const KernelArgs *a)
{
    const int64_t all = a->size['F'] * a->rows, piece = a->size['X'] * a->rows;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, a->size['b'] * all);
    assert(a->attrs.first + a->size['X'] <= a->size['F']);
    dx += a->attrs.first * a->rows;
    for (int64_t b = 0; b < a->size['b']; b++, dx += all, dy += piece)
        for (int64_t i = 0; i < piece; i++) dx[i] += dy[i];
}

static void F(span_grad)(const KernelArgs *a)
{
    F(tokens_grad)(a);
}

#endif
