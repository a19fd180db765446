/* Patches of images, and tokens in front of others. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/images.c"
#include "kernels/cpu/real.h"

BOTH(image)
BOTH(join_tokens)
BOTH(join_tokens_first)
BOTH(join_tokens_last)
BOTH(lead_tokens)
BOTH(lead_tokens_grad)

#else

/* -> [b,P,C]: row after row of each channel of a patch */
static void F(image)(const KernelArgs *a)
{
    enum { MOST = 512 };
    const int64_t side = a->attrs.h_kernel, across = a->attrs.columns;
    const DataSource *data = a->control->data;
    double line[MOST];
    REAL *to = a->ptr[0];
    FieldLine f = {.step = a->control->step,
                   .microbatch = a->microbatch,
                   .channels = a->size['C'] / (side * side),
                   .rows = a->attrs.rows * side,
                   .columns = across * side,
                   .n = side};
    assert(side <= MOST && f.channels * side * side == a->size['C']);
    assert(a->attrs.rows * across == a->size['P']);
    for (int64_t i = 0; i < a->size['b'] * a->size['P'] * f.channels * side; i++) {
        const int64_t patch = i / (f.channels * side) % a->size['P'];
        f.sample = a->start['b'] + i / (f.channels * side) / a->size['P'];
        f.channel = i / side % f.channels;
        f.row = patch / across * side + i % side;
        f.column = patch % across * side;
        data->line(data->self, &f, line);
        for (int64_t j = 0; j < side; j++) *to++ = (REAL)line[j];
    }
}

/* x [b,X,k] or (same for all) [X,k], then y [b,U,k] -> z [b,Z,k] */
static void F(put_in_front)(const KernelArgs *a, bool same)
{
    const int64_t n = a->size['X'] * a->size['k'], m = a->size['U'] * a->size['k'];
    const REAL *x = a->ptr[0], *y = a->ptr[1];
    REAL *z = a->ptr[2];
    for (int64_t b = 0; b < a->size['b']; b++, z += n + m) {
        memcpy(z, same ? x : x + b * n, (size_t)n * sizeof *z);
        memcpy(z + n, y + b * m, (size_t)m * sizeof *z);
    }
}

static void F(join_tokens)(const KernelArgs *a)
{
    F(put_in_front)(a, false);
}

static void F(lead_tokens)(const KernelArgs *a)
{
    F(put_in_front)(a, true);
}

/* dz [b,Z,k] -> dx [b,n,k], from token `first` on */
static void F(tokens_of)(const KernelArgs *a, int64_t first, int64_t n)
{
    const int64_t k = a->size['k'], Z = a->size['Z'];
    const REAL *dz = a->ptr[0];
    REAL *dx = F(summed)(a, 0, a->size['b'] * n * k);
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n * k; i++) dx[b * n * k + i] += dz[(b * Z + first) * k + i];
}

static void F(join_tokens_first)(const KernelArgs *a)
{
    F(tokens_of)(a, 0, a->size['X']);
}

static void F(join_tokens_last)(const KernelArgs *a)
{
    F(tokens_of)(a, a->size['Z'] - a->size['U'], a->size['U']);
}

/* dz [b,Z,k] -> dx [X,k], summed over b */
static void F(lead_tokens_grad)(const KernelArgs *a)
{
    const int64_t n = a->size['X'] * a->size['k'], all = a->size['Z'] * a->size['k'];
    const REAL *dz = a->ptr[0];
    REAL *dx = F(summed)(a, 0, n);
    for (int64_t b = 0; b < a->size['b']; b++)
        for (int64_t i = 0; i < n; i++) dx[i] += dz[b * all + i];
}

#endif
