/* Finds the output points that each part of a convolution computes (IN_ROWS in ops.def), and the
 * place of each input row in memory. The border op computes the points that need rows of neighbour
 * ranks. Its first input has only the rank's own rows; the rows of neighbours lie in the strips
 * that the rank has received. */
#ifndef TANDEM_KERNELS_STRIPS_H
#define TANDEM_KERNELS_STRIPS_H

#include "kernels/kernel.h"
#include "planner/ir/window.h"

/* Local output points, as a list of rectangles. A rectangle may be empty. */
typedef struct Region {
    Interval h, w;
} Region;
enum { MOST_REGIONS = 3 };
typedef struct OutputPoints {
    Region at[MOST_REGIONS];
} OutputPoints;

/* Returns the local output rows (or columns, by `letter`) whose windows read only rows of `own`. */
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

/* Returns the rows that the centre part computes. If a rank needs a halo of rows, these are the
 * first half of the inner rows. The other half is computed while this halo is being exchanged. */
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

/* Numbers of rows in memory, in this order: `before` rows in the strip of the previous rank, `own`
 * rows of this rank, and the rows in the strip of the next rank. Without strips, all rows count as
 * `own`. Each plane of the first input has room for `room` rows, as many as the largest rank
 * has. */
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
