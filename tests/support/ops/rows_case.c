/* See rows_case.h. */
#include "tests/support/ops/rows_case.h"

#include <assert.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/base/rng.h"
#include "planner/ir/window.h"

static int64_t draw(uint64_t seed, uint64_t stream, int64_t below)
{
    return (int64_t)rng_below(seed, stream, 0, (uint64_t)below);
}

static double *numbers(Arena *arena, uint64_t seed, uint64_t stream, int64_t n)
{
    double *x = arena_array(arena, (size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = rng_normal(seed, stream, (uint64_t)i);
    return x;
}

/* Finds the halos of all parts. Returns false if a halo would reach beyond a neighbour. */
static bool find_halos(RowsCase *c, Arena *arena)
{
    Deals deals = {0};
    Interval held[ROWS_MOST_PARTS];
    const Window w = window_of(&c->attrs, 'h');
    for (uint32_t p = 0; p < c->n_parts; p++) {
        Interval own;
        if (!deal_interval(&deals, 0, c->rows, c->n_parts, p, 0, &own) ||
            !deal_interval(&deals, 0, c->made, c->n_parts, p, 0, &c->out[p]))
            return false;
        const Interval read = window_rows(&w, c->rows, c->out[p]);
        if (read.lo >= read.hi) return false;
        held[p].lo = read.lo < own.lo ? read.lo : own.lo;
        held[p].hi = read.hi > own.hi ? read.hi : own.hi;
    }
    const DealId id = deal_around(&deals, arena, DEAL_halo, c->rows, c->n_parts, held);
    for (uint32_t p = 0; p < c->n_parts; p++)
        if (!halo_find(&deals, c->rows, c->n_parts, p, id, &c->halo[p])) return false;
    c->own_rows = deal_local(&deals, 0, c->rows, c->n_parts);
    c->made_rows = deal_local(&deals, 0, c->made, c->n_parts);
    return c->halo[0].strip > 0;
}

void rows_case_draw(RowsCase *c, Arena *arena, uint64_t seed)
{
    for (uint64_t s = seed * 1000;; s++) {
        memset(c, 0, sizeof *c);
        c->groups = draw(s, 1, 2);
        c->b = 1 + draw(s, 2, 2), c->g = c->groups ? 2 : 1;
        c->c = 1 + draw(s, 3, 3), c->n = 1 + draw(s, 4, 3);
        c->n_parts = 2 + (uint32_t)draw(s, 5, ROWS_MOST_PARTS - 1);
        c->rows = 4 * c->n_parts + draw(s, 6, 20);
        c->columns = 4 + draw(s, 7, 4);
        Attrs *a = &c->attrs;
        const WindowMode modes[] = {WINDOW_zero, WINDOW_reflect, WINDOW_periodic, WINDOW_symmetric};
        a->h_kernel = 1 + draw(s, 8, 5), a->h_stride = 1 + draw(s, 9, 2);
        a->h_dilation = 1 + draw(s, 10, 2);
        a->h_before = draw(s, 11, 3), a->h_mode = modes[draw(s, 12, 4)];
        a->w_kernel = 3, a->w_stride = a->w_dilation = a->w_before = a->w_after = 1;
        a->w_mode = WINDOW_periodic;
        const int64_t extent = (a->h_kernel - 1) * a->h_dilation + 1;
        const int64_t room = c->rows + a->h_before + draw(s, 13, 3) - extent;
        if (room < 0) continue;
        c->made = room / a->h_stride + 1;
        a->h_after = (c->made - 1) * a->h_stride + extent - c->rows - a->h_before;
        if (c->made < c->n_parts || !find_halos(c, arena)) continue;
        c->x = numbers(arena, s, 20, c->b * c->g * c->c * c->rows * c->columns);
        c->y = numbers(arena, s, 21, c->b * c->g * c->n * c->made * c->columns);
        c->weight = numbers(arena, s, 22, c->g * c->n * c->c * a->h_kernel * a->w_kernel);
        return;
    }
}

OpKind rows_case_op(const RowsCase *c, OpKind dense)
{
    static const OpKind ops[][2] = {{OP_conv2d, OP_conv2d_groups},
                                    {OP_conv2d_weight, OP_conv2d_groups_weight},
                                    {OP_conv2d_inner, OP_conv2d_groups_inner},
                                    {OP_conv2d_border, OP_conv2d_groups_border},
                                    {OP_conv2d_weight_inner, OP_conv2d_groups_weight_inner},
                                    {OP_conv2d_weight_border, OP_conv2d_groups_weight_border}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i][0] == dense) return ops[i][c->groups];
    assert(false);
    return OP_none;
}

RowsCounts rows_case_counts(const RowsCase *c)
{
    const int64_t line = c->b * c->g * c->columns;
    return (RowsCounts){line * c->c * c->own_rows, 2 * line * c->c * c->halo[0].strip,
                        line * c->n * c->made_rows,
                        c->g * c->n * c->c * c->attrs.h_kernel * c->attrs.w_kernel};
}

/* For each plane, copies n rows, beginning with `row`. They go into a plane that has room for
 * `room` rows, behind its first `at` rows. A row beyond an edge is taken from the other edge. */
static void put_rows(const RowsCase *c, DType t, const double *from, int64_t planes, int64_t all,
                     int64_t row, int64_t n, void *to, int64_t room, int64_t at)
{
    for (int64_t p = 0; p < planes; p++)
        for (int64_t r = 0; r < n; r++)
            for (int64_t i = 0; i < c->columns; i++)
                number_write(t, to, (uint64_t)((p * room + at + r) * c->columns + i),
                             from[(p * all + (row + r + all) % all) * c->columns + i]);
}

void rows_case_part(const RowsCase *c, uint32_t part, DType t, void *x, void *strips, void *y)
{
    const Halo *h = &c->halo[part];
    const RowsCounts n = rows_case_counts(c);
    const int64_t planes = c->b * c->g * c->c;
    memset(x, 0, (size_t)n.x * dtype_bytes(t));
    memset(strips, 0, (size_t)n.strips * dtype_bytes(t));
    memset(y, 0, (size_t)n.y * dtype_bytes(t));
    put_rows(c, t, c->x, planes, c->rows, h->own.lo, h->own.hi - h->own.lo, x, c->own_rows, 0);
    put_rows(c, t, c->x, planes, c->rows, h->own.lo - h->before, h->before, strips, h->strip, 0);
    put_rows(c, t, c->x, planes, c->rows, h->own.hi, h->after,
             (char *)strips + (size_t)n.strips / 2 * dtype_bytes(t), h->strip, 0);
    const Interval out = c->out[part];
    put_rows(c, t, c->y, c->b * c->g * c->n, c->made, out.lo, out.hi - out.lo, y, c->made_rows, 0);
}

static void bind_whole(const RowsCase *c, OpKind op, Binding *b)
{
    const Signature *sig = &op_info(op)->sig;
    int64_t size['z' + 1] = {['b'] = c->b, ['g'] = c->g, ['c'] = c->c, ['n'] = c->n};
    int64_t dim[MAX_ARGS][MAX_DIMS];
    Dims dims[MAX_ARGS];
    size['h'] = c->made, size['w'] = size['W'] = c->columns, size['H'] = c->rows;
    size['I'] = c->attrs.h_kernel, size['J'] = c->attrs.w_kernel;
    for (uint32_t i = 0; i < (uint32_t)sig->n_in + sig->n_out; i++) {
        const SigTerm *term = i < sig->n_in ? &sig->in[i] : &sig->out[i - sig->n_in];
        for (uint32_t d = 0; d < term->n_dims; d++) {
            const SigDim *at = &term->dim[d];
            dim[i][d] = size[(int)(at->reads ? window_reach(at->letter) : at->letter)] *
                        (at->inner ? size[(int)at->inner] : 1);
        }
        dims[i] = (Dims){term->n_dims, dim[i]};
    }
    const bool bound =
        op_bind(op, dims, sig->n_in, dims + sig->n_in, sig->n_out, b, (Loc){NULL, 0}, NULL);
    assert(bound);
    (void)bound;
    b->size['g'] = sig->in[0].dim[1].inner ? c->g : 0;
    b->size['c'] = c->c, b->size['n'] = c->n;
    b->size['h'] = c->made, b->size['w'] = b->size['W'] = c->columns, b->size['H'] = c->rows;
}

KernelArgs rows_case_args(const RowsCase *c, OpKind op, int part, DType t, void *const *ptr,
                          Binding *b)
{
    const Signature *sig = &op_info(op)->sig;
    const RowsCounts n = rows_case_counts(c);
    bind_whole(c, op, b);
    KernelArgs a = {.n_in = sig->n_in, .n_args = sig->n_in + 1u, .rows = 1, .attrs = c->attrs};
    a.binding = b;
    memcpy(a.size, b->size, sizeof a.size);
    memcpy(a.valid, b->size, sizeof a.valid);
    for (uint32_t i = 0; i < a.n_args; i++) {
        const SigTerm *term = i < sig->n_in ? &sig->in[i] : &sig->out[0];
        const bool weight = term->dim[term->n_dims - 1].letter == 'J';
        const bool reads = term->dim[term->n_dims - 1].reads;
        a.ptr[i] = ptr[i], a.dtype[i] = t;
        a.elements[i] = weight ? n.weight : !reads ? n.y : i == 2 ? n.strips : n.x;
        if (part < 0 && !weight)
            a.elements[i] = c->b * c->g * c->columns * (reads ? c->c * c->rows : c->n * c->made);
    }
    if (part < 0) return a;
    const Halo *h = &c->halo[part];
    const bool border = op_is_border(op);
    const Interval rows = border ? h->held : h->own;
    a.size['h'] = c->made_rows, a.start['h'] = c->out[part].lo;
    a.valid['h'] = c->out[part].hi - c->out[part].lo;
    a.start['H'] = rows.lo, a.size['H'] = a.valid['H'] = rows.hi - rows.lo;
    if (!border) a.size['H'] = c->own_rows;
    if (border) a.halo = *h;
    return a;
}

void rows_case_columns(const RowsCase *c, OpKind op, Interval own, bool with_halo, KernelArgs *a)
{
    const Signature *sig = &op_info(op)->sig;
    const int64_t n = own.hi - own.lo, held = n + 2 * with_halo;
    a->start['w'] = own.lo, a->size['w'] = a->valid['w'] = n;
    a->start['W'] = own.lo - with_halo, a->size['W'] = a->valid['W'] = held;
    a->own_columns = own;
    for (uint32_t i = 0; i < a->n_args; i++) {
        const SigTerm *term = i < a->n_in ? &sig->in[i] : &sig->out[0];
        /* x and y are fields; the other argument is a weight */
        if (term->dim[term->n_dims - 1].letter == 'J') continue;
        a->elements[i] = a->elements[i] / c->columns * (i == 0 ? held : n);
    }
}

void rows_case_take(const RowsCase *c, DType t, const void *from, int64_t n, Interval at, void *to)
{
    const int64_t wide = at.hi - at.lo;
    for (int64_t line = 0; line < n / c->columns; line++)
        for (int64_t i = 0; i < wide; i++)
            number_write(
                t, to, (uint64_t)(line * wide + i),
                number_read(t, from,
                            (uint64_t)(line * c->columns + (at.lo + i + c->columns) % c->columns)));
}
