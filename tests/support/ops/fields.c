/* See fields.h. */
#include "tests/support/ops/fields.h"

#include <assert.h>

#include "planner/ir/op/op_private.h"
#include "planner/ir/window.h"

bool fields_has(OpKind op)
{
    return sig_uses(&op_info(op)->sig, 'h') || sig_uses(&op_info(op)->sig, 'Y');
}

static bool is_pool(OpKind op)
{
    return op == OP_avg_pool2d || op == OP_avg_pool2d_grad;
}

static bool is_max(OpKind op)
{
    return op == OP_max_pool2d || op == OP_max_pool2d_grad;
}

static bool is_resize(OpKind op)
{
    return op == OP_resize || op == OP_resize_grad;
}

/* The first direction has a stride, and rows that no window reads. The second direction has
 * dilation. */
static void set_windows(OpKind op, int variant, int64_t size['z' + 1], Attrs *attrs)
{
    attrs->h_kernel = 3, attrs->h_stride = 2, attrs->h_dilation = 1;
    attrs->h_before = 1, attrs->h_after = -1;
    attrs->w_kernel = 2, attrs->w_stride = 1, attrs->w_dilation = 2;
    attrs->w_before = attrs->w_after = 1;
    attrs->h_mode = variant ? WINDOW_reflect : WINDOW_zero;
    attrs->w_mode = variant ? WINDOW_symmetric : WINDOW_periodic;
    if (is_max(op)) attrs->h_mode = attrs->w_mode = WINDOW_zero;
    if (!is_pool(op) && !is_max(op)) size['I'] = 3, size['J'] = 2;
    const Window h = window_of(attrs, 'h'), w = window_of(attrs, 'w');
    size['H'] = window_inputs(&h, size['h']), size['W'] = window_inputs(&w, size['w']);
}

static bool is_attention(OpKind op)
{
    return op == OP_window_attention || op == OP_window_attention_grad ||
           op == OP_strided_attention || op == OP_strided_attention_grad;
}

void fields_set(OpKind op, int variant, int64_t size['z' + 1], Attrs *attrs)
{
    const Signature *sig = &op_info(op)->sig;
    if (op == OP_offsets) size['K'] = 2;
    if (op == OP_image) {
        attrs->rows = 2, attrs->columns = 3, attrs->h_kernel = 2, attrs->count = 3;
        size['P'] = 6, size['C'] = 12;
    }
    if (is_attention(op) || op == OP_window_bias || op == OP_window_bias_grad || op == OP_offsets) {
        size['X'] = size['L'] = attrs->h_kernel = 2;
        size['Y'] = size['M'] = attrs->w_kernel = 3;
        size['R'] = 15, attrs->group = size['g'];
        if (!size['u']) size['u'] = 2;
        if (!size['t']) size['t'] = 3;
    }
    if (!fields_has(op)) return;
    if (op == OP_turn_poles || op == OP_turn_poles_grad) {
        size['W'] = variant ? 5 : 6;
        attrs->h_before = 1, attrs->h_after = 2;
    } else if (is_resize(op)) {
        attrs->rows = size['h'], attrs->columns = size['w'], attrs->nearest = variant;
        size['H'] = 2 * size['h'] + 1, size['W'] = size['w'] / 2 + 1;
    } else if (op_info(op)->flags & OP_WINDOWED) {
        set_windows(op, variant, size, attrs);
    }
    if (sig_uses(sig, 'G')) attrs->group = size['G'] = 3, size['C'] = 6;
    if (op == OP_channel_norm || op == OP_channel_norm_grad) size['C'] = 5;
    if (op == OP_mse_loss || op == OP_mse_loss_grad) size['C'] = 3, attrs->latitude = variant;
    if (op == OP_pixel_shuffle || op == OP_pixel_unshuffle) {
        size['I'] = attrs->h_kernel = 2, size['J'] = attrs->w_kernel = 3;
        size['N'] = 2, size['C'] = 12;
    }
    if (sig_uses(sig, 'Z')) size['X'] = 2, size['Y'] = 3, size['Z'] = 5;
}

uint32_t fields_dims(const SigTerm *term, const int64_t size['z' + 1], int64_t dim[MAX_DIMS])
{
    for (uint32_t d = 0; d < term->n_dims; d++) {
        const SigDim *at = &term->dim[d];
        dim[d] = size[(int)(at->reads ? window_reach(at->letter) : at->letter)];
        if (at->inner) dim[d] *= size[(int)at->inner];
    }
    return term->n_dims;
}

void fields_rows(OpKind op, const Binding *b, const Attrs *attrs, char letter, int64_t from,
                 int64_t to, int64_t *lo, int64_t *hi)
{
    const Window w = op_window(op, b, attrs, letter);
    const int64_t rows = b->size[(int)window_reach(letter)];
    const Interval reads = window_reads(&w, from, to);
    *lo = reads.lo, *hi = reads.hi;
    if (w.mode == WINDOW_periodic) return;
    if (*lo < 0) *lo = 0;
    if (*hi > rows) *hi = rows;
    if (*lo >= *hi) *lo = rows - 1, *hi = rows; /* Even an empty part has one row. */
}
