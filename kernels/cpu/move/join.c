/* All members of a group share some features (or tokens), and each member has some of its own.
 * These ops join the shared features with those of each member. Their gradients split the two
 * again.
 *   join_heads    a token is a group, and its heads are the members
 *   join_tokens   each sequence is a group of one member; the tokens of x come before those of y
 *   lead_tokens   all sequences are members of one group; the common tokens come first in each
 *   merge_tokens  neighbouring tokens become one token; only the shape changes, not the memory */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/move/join.c"
#include "kernels/cpu/real.h"

BOTH(join_heads)
BOTH(join_heads_shared)
BOTH(join_heads_own)
BOTH(join_tokens)
BOTH(join_tokens_first)
BOTH(join_tokens_last)
BOTH(lead_tokens)
BOTH(lead_tokens_grad)
BOTH(merge_tokens)
BOTH(merge_tokens_grad)

#else

/* shared [groups,X w], own [groups,G,U w] -> y [groups,G,(X+U) w] */
static void F(join)(const KernelArgs *a, int64_t groups, int64_t G, int64_t w)
{
    const int64_t X = a->size['X'] * w, U = a->size['U'] * w;
    const REAL *shared = a->ptr[0], *own = a->ptr[1];
    REAL *y = a->ptr[2];
    for (int64_t i = 0; i < groups * G; i++) {
        memcpy(y + i * (X + U), shared + i / G * X, (size_t)X * sizeof *y);
        memcpy(y + i * (X + U) + X, own + i * U, (size_t)U * sizeof *y);
    }
}

/* dy [groups,G,Z w] -> dshared [groups,X w], summed over G */
static void F(split_shared)(const KernelArgs *a, int64_t groups, int64_t G, int64_t w)
{
    const int64_t X = a->size['X'] * w, Z = a->size['Z'] * w;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, groups * X);
    for (int64_t i = 0; i < groups * G; i++)
        for (int64_t e = 0; e < X; e++) dx[i / G * X + e] += dy[i * Z + e];
}

/* dy [members,Z w] -> down [members,U w] */
static void F(split_own)(const KernelArgs *a, int64_t members, int64_t w)
{
    const int64_t U = a->size['U'] * w, Z = a->size['Z'] * w;
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, members * U);
    for (int64_t i = 0; i < members; i++)
        for (int64_t e = 0; e < U; e++) dx[i * U + e] += dy[i * Z + Z - U + e];
}

/* shared [b,s,X], own [b,s,g,U] -> y [b,s,g,Z] */
static void F(join_heads)(const KernelArgs *a)
{
    F(join)(a, a->size['b'] * a->size['s'], a->size['g'], 1);
}

/* dy [b,s,g,Z] -> dshared [b,s,X] */
static void F(join_heads_shared)(const KernelArgs *a)
{
    F(split_shared)(a, a->size['b'] * a->size['s'], a->size['g'], 1);
}

/* dy [b,s,g,Z] -> down [b,s,g,U] */
static void F(join_heads_own)(const KernelArgs *a)
{
    F(split_own)(a, a->size['b'] * a->size['s'] * a->size['g'], 1);
}

/* x [b,X,k], y [b,U,k] -> z [b,Z,k] */
static void F(join_tokens)(const KernelArgs *a)
{
    F(join)(a, a->size['b'], 1, a->size['k']);
}

/* dz [b,Z,k] -> dx [b,X,k] */
static void F(join_tokens_first)(const KernelArgs *a)
{
    F(split_shared)(a, a->size['b'], 1, a->size['k']);
}

/* dz [b,Z,k] -> dy [b,U,k] */
static void F(join_tokens_last)(const KernelArgs *a)
{
    F(split_own)(a, a->size['b'], a->size['k']);
}

/* x [X,k], y [b,U,k] -> z [b,Z,k] */
static void F(lead_tokens)(const KernelArgs *a)
{
    F(join)(a, 1, a->size['b'], a->size['k']);
}

/* dz [b,Z,k] -> dx [X,k] */
static void F(lead_tokens_grad)(const KernelArgs *a)
{
    F(split_shared)(a, 1, a->size['b'], a->size['k']);
}

/* x [b,s I,D] -> y [b,s,I D] */
static void F(merge_tokens)(const KernelArgs *a)
{
    const int64_t n = a->size['b'] * a->size['s'] * a->size['I'] * a->size['D'];
    memcpy(a->ptr[1], a->ptr[0], (size_t)n * sizeof(REAL));
}

/* dy [b,s,I D] -> dx [b,s I,D] */
static void F(merge_tokens_grad)(const KernelArgs *a)
{
    const int64_t n = a->size['b'] * a->size['s'] * a->size['I'] * a->size['D'];
    const REAL *dy = a->ptr[0];
    REAL *dx = F(summed)(a, 0, n);
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i];
}

#endif
