/* A convolution in two parts (IN_ROWS in ops.def): the output rows of each part, and the place of
 * each input row. The first input of the border op has the rank's own rows; the neighbours' rows
 * lie in the strips that arrived. */
#ifndef TANDEM_KERNELS_STRIPS_H
#define TANDEM_KERNELS_STRIPS_H

#include "kernels/kernel.h"
#include "planner/ir/window.h"

/* Local output rows. The border lies before and after the inner rows. */
typedef struct OutputRows {
    Interval at[2];
} OutputRows;

static inline OutputRows strips_output_rows(OpKind op, const KernelArgs *a)
{
    const OpKind whole = op_of_rows(op);
    OutputRows rows = {{{0, a->size['h']}, {0, 0}}};
    if (whole == OP_none) return rows;
    const Window w = op_window(op, a->binding, &a->attrs, 'h');
    const Interval out = {a->start['h'], a->start['h'] + a->valid['h']};
    const Interval held = {a->start['H'], a->start['H'] + a->valid['H']};
    const Interval inner =
        window_inner_rows(&w, a->binding->size['H'], a->halo.strip ? a->halo.own : held, out);
    const Interval local = {inner.lo - out.lo, inner.hi - out.lo};
    if (op == op_in_rows(whole).inner)
        rows.at[0] = local;
    else
        rows.at[0].hi = local.lo, rows.at[1] = (Interval){local.hi, a->size['h']};
    return rows;
}

/* The numbers of rows, in the order of the rows held: in the strip of the previous part, of the
 * rank's own, and then in the strip of the next part. Without strips, all rows are the rank's own.
 * A plane of the first input has room for `room` rows: those of the largest part. */
typedef struct HeldRows {
    int64_t before, own, strip, room;
} HeldRows;

static inline HeldRows strips_held_rows(const KernelArgs *a)
{
    const Halo *h = &a->halo;
    const int64_t groups = a->size['g'] ? a->size['g'] : 1;
    if (!h->strip) return (HeldRows){0, a->size['H'], 0, a->size['H']};
    return (HeldRows){h->before, h->own.hi - h->own.lo, h->strip,
                      a->elements[0] / (a->size['b'] * groups * a->size['c'] * a->size['W'])};
}

#endif
