/* Dropout: y = x / (1 - p) if a random draw keeps the element, and 0 if not. The draw depends only
 * on the element's index in the whole tensor, so the gradient applies the same function to the
 * gradient of the output. */
#ifndef REAL
#define KERNEL_FILE "kernels/cpu/dropout.c"
#include <assert.h>

#include "kernels/cpu/cpu.h"
#include "kernels/draw.h"

/* Returns the index in the whole tensor of the first element of local row `row`. A row runs along
 * the last dimension; all other dimensions together count the rows. */
static int64_t global_row(const KernelArgs *a, int64_t row)
{
    const Binding *b = a->binding;
    const char *letter = b->letter[0];
    int64_t place = 0, step = 1;
    for (int d = b->n_dims[0] - 1; d >= 0; d--) {
        unsigned char l = (unsigned char)letter[d];
        bool last = d == b->n_dims[0] - 1;
        int64_t at = last ? 0 : row % a->size[l];
        if (!last) row /= a->size[l];
        /* a row must be contiguous in the whole tensor */
        assert(!last || a->second[l] == a->start[l] + a->size[l] / 2);
        place += cpu_whole_index(a, letter[d], at) * step;
        step *= b->size[l];
    }
    return place;
}

#include "kernels/cpu/real.h"

BOTH(dropout)

#else

/* x [...] -> y [...] */
static void F(dropout)(const KernelArgs *a)
{
    const REAL *x = a->ptr[0];
    REAL *y = a->ptr[1], grow = (REAL)(1 / (1 - a->attrs.drop));
    const uint32_t threshold = draw_threshold(a->attrs.drop);
    const uint64_t seed = a->control->seed;
    const uint64_t stream =
        draw_stream(DRAW_DROPOUT, a->control->step, a->microbatch, a->attrs.site);
    uint32_t n_dims = a->binding->n_dims[0];
    int64_t n = n_dims ? a->size[(unsigned char)a->binding->letter[0][n_dims - 1]] : 1;
    for (int64_t row = 0; row * n < a->rows; row++) {
        int64_t place = global_row(a, row);
        for (int64_t i = 0; i < n; i++) {
            bool keeps = draw_word(seed, stream, (uint64_t)(place + i)) >= threshold;
            REAL value = keeps ? grow * x[row * n + i] : 0;
            y[row * n + i] = cpu_accumulates(a, 0) ? y[row * n + i] + value : value;
        }
    }
}

#endif
