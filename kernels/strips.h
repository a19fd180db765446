/* A convolution in parts (IN_ROWS in ops.def): the output points of each part, and the place of
 * each input row. The first input of the border op has the rank's own rows; the neighbours' rows
 * lie in the strips that arrived. */
#ifndef TANDEM_KERNELS_STRIPS_H
#define TANDEM_KERNELS_STRIPS_H

#include "kernels/kernel.h"
#include "planner/ir/window.h"

/* Local output points in rectangles; some may be empty. */
typedef struct Region {
    Interval h, w;
} Region;
enum { MOST_REGIONS = 3 };
typedef struct OutputPoints {
    Region at[MOST_REGIONS];
} OutputPoints;

/* Returns the local outputs along `letter` whose windows read only `own`. */
static inline Interval strips_inner(OpKind op, const KernelArgs *a, char letter, Interval own)
{
    const int c = letter, reach = window_reach(letter);
    const Window w = op_window(op, a->binding, &a->attrs, letter);
    const Interval out = {a->start[c], a->start[c] + a->valid[c]};
    const Interval inner = window_inner_rows(&w, a->binding->size[reach], own, out);
    return (Interval){inner.lo - out.lo, inner.hi - out.lo};
}

static inline Interval strips_held(const KernelArgs *a, char letter)
{
    const int reach = window_reach(letter);
    return (Interval){a->start[reach], a->start[reach] + a->valid[reach]};
}

/* Returns the rows of the centre. If the rows of a rank need a halo, the centre has the first half
 * of the inner rows: the other half is computed during the exchange of this halo. */
static inline Interval strips_centre_rows(Interval inner, int64_t all)
{
    if (inner.hi - inner.lo < all) inner.hi = inner.lo + (inner.hi - inner.lo + 1) / 2;
    return inner;
}

static inline OutputPoints strips_output(OpKind op, const KernelArgs *a)
{
    const OpKind whole = op_of_rows(op);
    const Interval rows = {0, a->size['h']}, columns = {0, a->size['w']};
    OutputPoints p = {{{rows, columns}, {{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}}};
    if (whole == OP_none) return p;
    const bool has_strips = a->halo.strip != 0, inner_op = op == op_in_rows(whole).inner;
    const Interval inner = strips_inner(op, a, 'h', has_strips ? a->halo.own : strips_held(a, 'h'));
    const int64_t part = inner_op ? a->attrs.parts : ROWS_all;
    if (!inner_op) {
        p.at[0].h.hi = inner.lo;
        p.at[1] = (Region){{inner.hi, rows.hi}, columns};
        return p;
    }
    p.at[0].h = inner;
    if (part == ROWS_all) return p;
    const Interval centre = strips_centre_rows(inner, a->valid['h']);
    const Interval own = part == ROWS_sides ? a->own_columns : strips_held(a, 'w');
    const Interval middle = strips_inner(op, a, 'w', own);
    p.at[0] = (Region){centre, middle};
    if (part == ROWS_centre) return p;
    p.at[0].w = (Interval){0, middle.lo};
    p.at[1] = (Region){centre, {middle.hi, columns.hi}};
    p.at[2] = (Region){{centre.hi, inner.hi}, columns};
    return p;
}

/* Three numbers of rows, in memory order: in the strip of the previous part, the rank's own, and in
 * the strip of the next part. Without strips, all rows are the rank's own. A plane of the first
 * input has room for `room` rows, the rows of the largest part. */
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
