/* Windows of convolutions and poolings: sizes, and the rows that are read. */
#include "planner/ir/window.h"

#include <assert.h>

#include "planner/ir/op_private.h"

/* Far above any grid; it keeps products within 64 bits. */
enum { MOST_ROWS = 1 << 24 };

Window window_of(const Attrs *a, char letter)
{
    assert(letter == 'h' || letter == 'w');
    if (letter == 'h')
        return (Window){a->h_kernel, a->h_stride, a->h_dilation,
                        a->h_before, a->h_after,  (WindowMode)a->h_mode};
    return (Window){a->w_kernel, a->w_stride, a->w_dilation,
                    a->w_before, a->w_after,  (WindowMode)a->w_mode};
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

Interval window_reads(const Window *w, int64_t lo, int64_t hi)
{
    if (lo >= hi) return (Interval){0, 0};
    return (Interval){lo * w->stride - w->before, (hi - 1) * w->stride - w->before + extent(w)};
}

int64_t window_row(const Window *w, int64_t size, int64_t row)
{
    if (row >= 0 && row < size) return row;
    if (w->mode == WINDOW_periodic) return (row % size + size) % size;
    if (w->mode == WINDOW_reflect) return row < 0 ? -row : 2 * (size - 1) - row;
    return -1;
}

static bool in_bounds(int64_t x, int64_t least)
{
    return x >= least && x <= MOST_ROWS;
}

static bool is_sound(const Window *w)
{
    return in_bounds(w->kernel, 1) && in_bounds(w->stride, 1) && in_bounds(w->dilation, 1) &&
           in_bounds(w->before, 0) && in_bounds(w->after, -MOST_ROWS) && w->mode >= WINDOW_zero &&
           w->mode < WINDOW_MODES;
}

/* A mirror shows each row once; the opposite edge is there once. */
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

/* The kernel's own index, where the row has one: I along h, J along w. */
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
            const Window w = window_of(attrs, dim->letter);
            if (!solve(b, dim->letter, &w) || !kernel_fits(b, dim->letter, &w)) return false;
        }
    return true;
}
