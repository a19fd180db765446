/* Fields [b,c,h,w] with windows: finds the input element that a point of a window reads. The code
 * for both precisions uses these functions. */
#ifndef TANDEM_KERNELS_CPU_FIELD_H
#define TANDEM_KERNELS_CPU_FIELD_H

#include "kernels/kernel.h"
#include "planner/ir/window.h"

/* One dimension (h or w) of a field with windows. This rank has `n` output rows from global row
 * `start` on, and `rows` input rows from global row `first` on, of which `held` are real. `first`
 * is negative if some of these rows came from the opposite edge of the grid. The whole dimension
 * has `all` rows. */
typedef struct Along {
    Window window;
    int64_t n, valid, start, rows, held, first, all;
} Along;

static inline Along field_along(OpKind op, const KernelArgs *a, char letter)
{
    const int outer = letter, rows = window_reach(letter);
    return (Along){.window = op_window(op, a->binding, &a->attrs, letter),
                   .n = a->size[outer],
                   .valid = a->valid[outer],
                   .start = a->start[outer],
                   .rows = a->size[rows],
                   .held = a->valid[rows],
                   .first = a->start[rows],
                   .all = a->binding->size[rows]};
}

/* Returns the local index of the row with global index r; -1: this row is zero padding. */
static inline int64_t field_held(const Along *x, int64_t r)
{
    if (r < x->first || r >= x->first + x->held) {
        r = window_row(&x->window, x->all, r);
        if (r < 0) return -1;
    }
    return r - x->first;
}

/* Returns the local index of the row that window point i of output row o reads; -1: none. */
static inline int64_t field_row(const Along *x, int64_t o, int64_t i)
{
    if (o >= x->valid) return -1;
    const Window *w = &x->window;
    return field_held(x, (x->start + o) * w->stride - w->before + i * w->dilation);
}

/* Does the same for a row that is neither padding nor wrapped around. */
static inline int64_t field_place(const Along *x, int64_t o, int64_t i)
{
    const Window *w = &x->window;
    return (x->start + o) * w->stride - w->before + i * w->dilation - x->first;
}

/* Returns the output rows for which window point i reads a local row that is neither padding nor
 * wrapped around. */
static inline Interval field_inside(const Along *x, int64_t i)
{
    const int64_t first = field_place(x, 0, i), stride = x->window.stride;
    const int64_t lo = first < 0 ? (stride - 1 - first) / stride : 0;
    int64_t hi = first < x->held ? (x->held - 1 - first) / stride + 1 : 0;
    if (hi > x->valid) hi = x->valid;
    return (Interval){lo, hi < lo ? lo : hi};
}

/* An output row of a resize: share[0] times row row[0] plus share[1] times row row[1]. */
typedef struct Mix {
    int64_t row[2];
    double share[2];
} Mix;

static inline Mix field_mix(const Along *x, int64_t o)
{
    const Window *w = &x->window;
    const Interval reads = window_reads(w, x->start + o, x->start + o + 1);
    Mix m = {{field_held(x, reads.lo), field_held(x, reads.hi - 1)}, {1, 0}};
    if (w->nearest) return m;
    double at = ((double)(x->start + o) + 0.5) * (double)w->from / (double)w->to - 0.5;
    m.share[1] = at - (double)reads.lo;
    m.share[0] = 1 - m.share[1];
    return m;
}

#endif
