/* Batches of image patches. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/images.c"
#include "kernels/cpu/real.h"

BOTH(image)

#else

/* writes [b,P,C]: P patches with C numbers each; a patch lists its rows, channel after channel */
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

#endif
