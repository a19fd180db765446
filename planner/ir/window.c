/* Windows of convolutions, poolings and resizes: sizes, and the rows that they read (window.h). */
#include "planner/ir/window.h"

#include <assert.h>

#include "planner/ir/op/op_private.h"

/* a limit above the size of any grid, which keeps products within 64 bits */
enum { MOST_ROWS = 1 << 24 };

Window window_of(const Attrs *a, char letter)
{
    assert(letter == 'h' || letter == 'w');
    if (letter == 'h')
        return (Window){.kernel = a->h_kernel,
                        .stride = a->h_stride,
                        .dilation = a->h_dilation,
                        .before = a->h_before,
                        .after = a->h_after,
                        .mode = (WindowMode)a->h_mode};
    return (Window){.kernel = a->w_kernel,
                    .stride = a->w_stride,
                    .dilation = a->w_dilation,
                    .before = a->w_before,
                    .after = a->w_after,
                    .mode = (WindowMode)a->w_mode};
}

bool op_resizes(OpKind op)
{
    return op == OP_resize || op == OP_resize_grad;
}

Window op_window(OpKind op, const Binding *b, const Attrs *attrs, char letter)
{
    if (!op_resizes(op)) return window_of(attrs, letter);
    return (Window){.mode = WINDOW_edge,
                    .from = b->size[(int)window_reach(letter)],
                    .to = b->size[(int)letter],
                    .nearest = attrs->nearest != 0};
}

static int64_t extent(const Window *w)
{
    return (w->kernel - 1) * w->dilation + 1;
}

int64_t window_outputs(const Window *w, int64_t size)
{
    const int64_t room = size + w->before + w->after - extent(w);
    return room < 0 ? 0 : room / w->stride + 1;
}

int64_t window_inputs(const Window *w, int64_t outputs)
{
    return (outputs - 1) * w->stride + extent(w) - w->before - w->after;
}

static int64_t floor_div(int64_t n, int64_t by)
{
    return n >= 0 ? n / by : -((-n + by - 1) / by);
}

Interval window_reads(const Window *w, int64_t lo, int64_t hi)
{
    if (lo >= hi) return (Interval){0, 0};
    if (w->from && w->nearest)
        return (Interval){lo * w->from / w->to, (hi - 1) * w->from / w->to + 1};
    /* bilinear: from the lower of the two rows that output `lo` reads to the upper one of output hi
     * - 1 */
    if (w->from)
        return (Interval){floor_div((2 * lo + 1) * w->from - w->to, 2 * w->to),
                          floor_div((2 * hi - 1) * w->from - w->to, 2 * w->to) + 2};
    return (Interval){lo * w->stride - w->before, (hi - 1) * w->stride - w->before + extent(w)};
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

Interval window_rows(const Window *w, int64_t size, Interval out)
{
    const Interval all = window_reads(w, out.lo, out.hi);
    Interval at = all;
    if (w->mode == WINDOW_periodic || all.lo >= all.hi) return at;
    at.lo = most(all.lo, 0);
    at.hi = least(all.hi, size);
    if (w->mode != WINDOW_reflect && w->mode != WINDOW_symmetric) return at;
    const int64_t edge = w->mode == WINDOW_symmetric; /* 1 if the mirror repeats the edge row */
    if (all.lo < 0) {
        at.hi = most(at.hi, least(1 - edge - all.lo, size));
        at.lo = all.hi <= 0 ? most(1 - edge - all.hi, 0) : 0;
    }
    if (all.hi > size) {
        at.lo = least(at.lo, most(2 * size - 1 + edge - all.hi, 0));
        if (all.lo >= size) at.hi = least(2 * size - 1 + edge - all.lo, size);
    }
    return at;
}

int64_t window_row(const Window *w, int64_t size, int64_t row)
{
    if (row >= 0 && row < size) return row;
    if (w->mode == WINDOW_periodic) return (row % size + size) % size;
    if (w->mode == WINDOW_reflect) return row < 0 ? -row : 2 * (size - 1) - row;
    if (w->mode == WINDOW_symmetric) return row < 0 ? -1 - row : 2 * size - 1 - row;
    if (w->mode == WINDOW_edge) return row < 0 ? 0 : size - 1;
    return -1;
}

static bool reads_only(const Window *w, int64_t size, Interval own, int64_t o)
{
    for (int64_t k = 0; k < w->kernel; k++) {
        const int64_t row = window_row(w, size, o * w->stride - w->before + k * w->dilation);
        if (row >= 0 && (row < own.lo || row >= own.hi)) return false;
    }
    return true;
}

Interval window_inner_rows(const Window *w, int64_t size, Interval own, Interval out)
{
    assert(!w->from);
    Interval at = {out.lo, out.lo};
    while (at.lo < out.hi && !reads_only(w, size, own, at.lo)) at.lo++;
    for (at.hi = at.lo; at.hi < out.hi && reads_only(w, size, own, at.hi);) at.hi++;
    return at;
}

static bool in_bounds(int64_t x, int64_t least)
{
    return x >= least && x <= MOST_ROWS;
}

static bool is_sound(const Window *w)
{
    return in_bounds(w->kernel, 1) && in_bounds(w->stride, 1) && in_bounds(w->dilation, 1) &&
           in_bounds(w->before, -MOST_ROWS) && in_bounds(w->after, -MOST_ROWS) &&
           w->mode >= WINDOW_zero && w->mode < WINDOW_edge;
}

/* False if padding is wider than the grid: it would mirror a row twice, or read beyond the opposite
 * edge. */
static bool edges_fit(const Window *w, int64_t size)
{
    const int64_t most = w->mode == WINDOW_reflect ? size - 1 : size;
    return w->mode == WINDOW_zero || (w->before <= most && w->after <= most);
}

static bool solve(Binding *b, char letter, const Window *w)
{
    int64_t *outputs = &b->size[(int)letter], *inputs = &b->size[(int)window_reach(letter)];
    if (!is_sound(w) || (!*outputs && !*inputs)) return false;
    if (!*outputs) *outputs = window_outputs(w, *inputs);
    if (!*inputs) *inputs = window_inputs(w, *outputs);
    return in_bounds(*inputs, 1) && in_bounds(*outputs, 1) && edges_fit(w, *inputs) &&
           window_outputs(w, *inputs) == *outputs;
}

/* True if the window is as large as the kernel's index in the weight: I along h, J along w. Also
 * true for an op without such an index. */
static bool kernel_fits(const Binding *b, char letter, const Window *w)
{
    const int64_t size = b->size[letter == 'h' ? 'I' : 'J'];
    return !size || size == w->kernel;
}

bool op_windowed(OpKind op, Binding *b, const Attrs *attrs)
{
    const Signature *sig = &op_info(op)->sig;
    for (uint32_t a = 0; a < (uint32_t)sig->n_in + sig->n_out; a++)
        for (uint32_t d = 0; d < sig_term(sig, a)->n_dims; d++) {
            const SigDim *dim = &sig_term(sig, a)->dim[d];
            if (!dim->reads) continue;
            if (op_resizes(op)) { /* a resize turns any size into any other */
                if (!b->size[(int)dim->letter] || !b->size[(int)window_reach(dim->letter)])
                    return false;
                continue;
            }
            const Window w = window_of(attrs, dim->letter);
            if (!solve(b, dim->letter, &w) || !kernel_fits(b, dim->letter, &w)) return false;
        }
    return true;
}
