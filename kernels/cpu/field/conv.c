/* Convolutions and their gradients, computed as products of the weight with tiles of columns.
 * Column p of a tile has the values that the window of output point p reads, one for each tap
 * (point of the window). If windows have a single point, the input itself is used instead of a
 * tile. */
#ifndef REAL
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/field/field.h"
#include "kernels/strips.h"

enum { TILE_POINTS = 256, TILE_TAPS = 288 };

/* The sizes for one sample and one group: x [c,H,W], weight [n,c,I,J], y [n,h,w]. */
typedef struct Conv {
    Along h, w;
    int64_t batch, groups, c, n, taps_h, taps_w;
    int64_t points, taps, plane; /* points of a plane of y; taps of a window; points of a plane of
                                    x */
    bool single;                 /* windows have a single point, so the columns are x itself */
    OutputPoints out;            /* the output points to compute */
    HeldRows held;
} Conv;

/* A tile: points point to point + n_points - 1 (all below `end`), and taps tap to tap + n_taps -
 * 1. */
typedef struct ConvTile {
    int64_t point, n_points, end, tap, n_taps;
} ConvTile;

static Conv conv_of(OpKind op, const KernelArgs *a)
{
    Conv v = {.h = field_along(op, a, 'h'),
              .w = field_along(op, a, 'w'),
              .batch = a->size['b'],
              .groups = a->size['g'] ? a->size['g'] : 1,
              .c = a->size['c'],
              .n = a->size['n'],
              .taps_h = a->size['I'],
              .taps_w = a->size['J'],
              .out = strips_output(op, a),
              .held = strips_held_rows(a)};
    v.points = v.h.n * v.w.n;
    v.taps = v.c * v.taps_h * v.taps_w;
    v.plane = v.held.room * v.w.rows;
    const Window *h = &v.h.window, *w = &v.w.window;
    v.single = op_of_rows(op) == OP_none && v.taps_h * v.taps_w == 1 && h->stride == 1 &&
               w->stride == 1 && h->before == 0 && w->before == 0 && v.h.rows == v.h.n &&
               v.w.rows == v.w.n;
    return v;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how many runs of neighbouring points the k-th rectangle of output points has. If the
 * rectangle consists of whole rows, it is a single run. */
static int64_t runs_of(const Conv *v, int k)
{
    const Region *r = &v->out.at[k];
    const int64_t rows = r->h.hi - r->h.lo, columns = r->w.hi - r->w.lo;
    if (rows <= 0 || columns <= 0) return 0;
    return columns == v->w.n ? 1 : rows;
}

/* Returns the state before the first tile of the i-th run of the k-th rectangle. */
static ConvTile tiles_of(const Conv *v, int k, int64_t i)
{
    const Region *r = &v->out.at[k];
    const int64_t first = (r->h.lo + i) * v->w.n;
    if (r->w.hi - r->w.lo == v->w.n) return (ConvTile){.point = first, .end = r->h.hi * v->w.n};
    return (ConvTile){.point = first + r->w.lo, .end = first + r->w.hi};
}

static bool next_tile(const Conv *v, ConvTile *t)
{
    t->tap += t->n_taps;
    if (t->n_points == 0 || t->tap >= v->taps) {
        t->tap = 0;
        t->point += t->n_points;
    }
    if (t->point >= t->end) return false;
    t->n_points = t->end - t->point < TILE_POINTS ? t->end - t->point : TILE_POINTS;
    t->n_taps = v->taps - t->tap < TILE_TAPS ? v->taps - t->tap : TILE_TAPS;
    if (v->single) t->n_points = v->points, t->n_taps = v->taps;
    return true;
}

#define KERNEL_FILE "kernels/cpu/field/conv.c"
#include "kernels/cpu/real.h"

BOTH(conv2d)
BOTH(conv_transpose2d)
BOTH(conv2d_weight)
BOTH(conv2d_groups)
BOTH(conv_transpose2d_groups)
BOTH(conv2d_groups_weight)
BOTH(conv2d_inner)
BOTH(conv2d_border)
BOTH(conv2d_weight_inner)
BOTH(conv2d_weight_border)
BOTH(conv2d_groups_inner)
BOTH(conv2d_groups_border)
BOTH(conv2d_groups_weight_inner)
BOTH(conv2d_groups_weight_border)

#else

/* Input x of one sample and group [c,H,W], and the rows of neighbour ranks before and after x, each
 * [c,strip,W]. */
typedef struct F(ConvInput) {
    REAL *x, *strip[2];
} F(ConvInput);

static F(ConvInput) F(input_of)(const Conv *v, const KernelArgs *a, uint32_t arg, int64_t i)
{
    F(ConvInput) in = {.x = (REAL *)a->ptr[arg] + i * v->c * v->plane};
    const int64_t plane = v->held.strip * v->w.rows;
    for (int k = 0; k < 2 && plane; k++)
        in.strip[k] = (REAL *)a->ptr[2] + (k * v->batch * v->groups + i) * v->c * plane;
    return in;
}

static REAL *F(line_of)(const Conv *v, const F(ConvInput) * in, int64_t channel, int64_t row)
{
    const HeldRows *h = &v->held;
    row -= h->before;
    if (row >= 0 && row < h->own) return in->x + channel * v->plane + row * v->w.rows;
    const int64_t at = row < 0 ? row + h->before : row - h->own;
    return in->strip[row >= 0] + (channel * h->strip + at) * v->w.rows;
}

/* Copies n values from `line` to `column`. If `back` is true, adds the values of `column` to `line`
 * instead. */
static void F(move_run)(REAL *restrict line, REAL *restrict column, int64_t stride, int64_t n,
                        bool back)
{
    if (back && stride == 1)
        for (int64_t k = 0; k < n; k++) line[k] += column[k];
    else if (back)
        for (int64_t k = 0; k < n; k++) line[k * stride] += column[k];
    else if (stride == 1)
        memcpy(column, line, (size_t)n * sizeof *column);
    else
        for (int64_t k = 0; k < n; k++) column[k] = line[k * stride];
}

/* Does the same for output columns `at`, one by one. These are columns at an edge, which may read
 * padding or the other edge of the grid. `column` points to the first of them. */
static void F(move_edge)(const Conv *v, Interval at, int64_t j, REAL *line, REAL *column, bool back)
{
    for (int64_t o = at.lo; o < at.hi; o++, column++) {
        const int64_t from = field_row(&v->w, o, j);
        if (back && from >= 0) line[from] += *column;
        if (!back) *column = from < 0 ? 0 : line[from];
    }
}

/* Copies the inputs that one tap reads for all points of the tile. If `back` is true, adds the
 * values of the tile to these inputs instead. */
static void F(move_tap)(const Conv *v, const ConvTile *t, int64_t tap, const F(ConvInput) * in,
                        REAL *column, bool back)
{
    const int64_t j = tap % v->taps_w, i = tap / v->taps_w % v->taps_h, stride = v->w.window.stride;
    const int64_t channel = tap / v->taps_w / v->taps_h;
    const Interval inside = field_inside(&v->w, j);
    const int64_t first = field_place(&v->w, 0, j);
    int64_t o = t->point / v->w.n, from = t->point % v->w.n;
    for (int64_t p = 0; p < t->n_points; o++, from = 0) {
        const int64_t n = least(v->w.n - from, t->n_points - p), row = field_row(&v->h, o, i);
        if (row < 0) {
            if (!back) memset(column + p, 0, (size_t)n * sizeof *column);
        } else {
            REAL *line = F(line_of)(v, in, channel, row), *to = column + p;
            const int64_t lo = most(from, least(inside.lo, from + n));
            const int64_t hi = most(lo, least(inside.hi, from + n));
            F(move_edge)(v, (Interval){from, lo}, j, line, to, back);
            if (hi > lo) F(move_run)
            (line + first + lo * stride, to + (lo - from), stride, hi - lo, back);
            F(move_edge)(v, (Interval){hi, from + n}, j, line, to + (hi - from), back);
        }
        p += n;
    }
}

/* Returns the columns of the tile [n_taps, n_points]. Sets *pitch to the distance in elements
 * between two rows. */
static const REAL *F(columns)(const Conv *v, const ConvTile *t, const F(ConvInput) * in, REAL *tile,
                              int64_t *pitch)
{
    *pitch = v->single ? v->plane : TILE_POINTS;
    if (v->single) return in->x;
    for (int64_t k = 0; k < t->n_taps; k++)
        F(move_tap)(v, t, t->tap + k, in, tile + k * TILE_POINTS, false);
    return tile;
}

/* y [n, points] = weight [n, taps] columns [taps, points] */
static void F(forward)(const Conv *v, ConvTile t, const F(ConvInput) * in, const REAL *weight,
                       REAL *y, bool adds)
{
    REAL tile[TILE_TAPS * TILE_POINTS];
    while (next_tile(v, &t)) {
        int64_t pitch;
        const REAL *columns = F(columns)(v, &t, in, tile, &pitch);
        F(gemm)
        (false, false, v->n, t.n_points, t.n_taps, 1, weight + t.tap, v->taps, columns, pitch,
         adds || t.tap > 0 ? 1 : 0, y + t.point, v->points);
    }
}

/* columns [taps, points] = weight^T [taps, n] y [n, points], written or added to x */
static void F(transposed)(const Conv *v, const F(ConvInput) * x, const REAL *weight, const REAL *y)
{
    REAL tile[TILE_TAPS * TILE_POINTS];
    ConvTile t = tiles_of(v, 0, 0);
    while (next_tile(v, &t)) {
        F(gemm)
        (true, false, t.n_taps, t.n_points, v->n, 1, weight + t.tap, v->taps, y + t.point,
         v->points, v->single ? 1 : 0, v->single ? x->x : tile, v->single ? v->plane : TILE_POINTS);
        for (int64_t k = 0; !v->single && k < t.n_taps; k++)
            F(move_tap)(v, &t, t.tap + k, x, tile + k * TILE_POINTS, true);
    }
}

/* weight [n, taps] += y [n, points] columns^T [points, taps] */
static void F(of_weight)(const Conv *v, ConvTile t, const F(ConvInput) * in, const REAL *y,
                         REAL *weight)
{
    REAL tile[TILE_TAPS * TILE_POINTS];
    while (next_tile(v, &t)) {
        int64_t pitch;
        const REAL *columns = F(columns)(v, &t, in, tile, &pitch);
        F(gemm)
        (false, true, v->n, t.n_taps, t.n_points, 1, y + t.point, v->points, columns, pitch, 1,
         weight + t.tap, v->taps);
    }
}

/* x [b,(g c),H,W], weight [g,n,c,I,J] -> y [b,(g n),h,w]. The last input of the border op has the
 * strips of neighbour ranks. */
static void F(convolve)(OpKind op, const KernelArgs *a)
{
    const Conv v = conv_of(op, a);
    const REAL *weight = a->ptr[1];
    REAL *y = a->ptr[a->n_in];
    const bool adds = cpu_accumulates(a, 0) || op_of_rows(op) != OP_none;
    if (op_of_rows(op) != OP_none) F(summed)(a, 0, v.batch * v.groups * v.n * v.points);
    for (int64_t i = 0; i < v.batch * v.groups; i++) {
        const F(ConvInput) in = F(input_of)(&v, a, 0, i);
        for (int k = 0; k < MOST_REGIONS; k++)
            for (int64_t run = 0; run < runs_of(&v, k); run++) F(forward)
        (&v, tiles_of(&v, k, run), &in, weight + i % v.groups * v.n * v.taps,
         y + i * v.n * v.points, adds);
    }
}

/* y [b,(g n),h,w], weight [g,n,c,I,J] -> x [b,(g c),H,W] */
static void F(conv_transpose2d_groups)(const KernelArgs *a)
{
    const Conv v = conv_of(OP_conv_transpose2d_groups, a);
    const REAL *y = a->ptr[0], *weight = a->ptr[1];
    F(summed)(a, 0, v.batch * v.groups * v.c * v.plane);
    for (int64_t i = 0; i < v.batch * v.groups; i++) {
        const F(ConvInput) x = F(input_of)(&v, a, 2, i);
        F(transposed)(&v, &x, weight + i % v.groups * v.n * v.taps, y + i * v.n * v.points);
    }
}

/* x [b,(g c),H,W], y [b,(g n),h,w] -> weight [g,n,c,I,J] */
static void F(sum_weight)(OpKind op, const KernelArgs *a)
{
    const Conv v = conv_of(op, a);
    const REAL *y = a->ptr[1];
    REAL *weight = F(summed)(a, 0, v.groups * v.n * v.taps);
    for (int64_t i = 0; i < v.batch * v.groups; i++) {
        const F(ConvInput) in = F(input_of)(&v, a, 0, i);
        for (int k = 0; k < MOST_REGIONS; k++)
            for (int64_t run = 0; run < runs_of(&v, k); run++) F(of_weight)
        (&v, tiles_of(&v, k, run), &in, y + i * v.n * v.points,
         weight + i % v.groups * v.n * v.taps);
    }
}

/* A convolution without groups is one with a single group. */
static void F(conv_transpose2d)(const KernelArgs *a)
{
    F(conv_transpose2d_groups)(a);
}

#define CONV(op, how)                                                                              \
    static void F(op)(const KernelArgs *a)                                                         \
    {                                                                                              \
        F(how)(OP_##op, a);                                                                        \
    }
CONV(conv2d, convolve)
CONV(conv2d_inner, convolve)
CONV(conv2d_border, convolve)
CONV(conv2d_groups, convolve)
CONV(conv2d_groups_inner, convolve)
CONV(conv2d_groups_border, convolve)
CONV(conv2d_weight, sum_weight)
CONV(conv2d_weight_inner, sum_weight)
CONV(conv2d_weight_border, sum_weight)
CONV(conv2d_groups_weight, sum_weight)
CONV(conv2d_groups_weight_inner, sum_weight)
CONV(conv2d_groups_weight_border, sum_weight)
#undef CONV

#endif
