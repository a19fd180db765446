/* Lowers gradients. A gradient is the sum of several contributions. Contributions with the same
 * layout are added in place, so each layout has one partial sum. After the last contribution the
 * partial sums are converted to one layout and added. If an op passes a gradient on unchanged, both
 * gradients share one buffer until one of them is written. */
#include <assert.h>

#include "planner/lower/lower.h"

static GradState *state_of(Lower *l, TensorId grad)
{
    return &l->grad.of[grad];
}

static bool needed_later(const Lower *l, TensorId grad)
{
    const GradState *s = &l->grad.of[grad];
    return s->n_uses > 0 || s->n_arrived < s->n_expected;
}

/* Returns 1 + the index in `shared` of the newest entry for a buffer; 0: no tensor shares it. */
static uint32_t newest_shared(const Lower *l, BufferId buffer)
{
    const Gradients *g = &l->grad;
    const uint32_t at = buffer < g->shared_of.n ? g->shared_of.at[buffer] : 0;
    return at && at <= g->shared.n && g->shared.at[at - 1].buffer == buffer ? at : 0;
}

void lower_add_share(Lower *l, BufferId buffer, TensorId tensor)
{
    const SharedGrad shared = {buffer, tensor, newest_shared(l, buffer)};
    while (l->grad.shared_of.n <= buffer) list_add(l->scratch, &l->grad.shared_of);
    l->grad.shared_of.at[buffer] = 1 + list_push(l->scratch, &l->grad.shared, shared);
}

bool lower_is_shared(const Lower *l, BufferId buffer)
{
    return newest_shared(l, buffer) != 0;
}

/* `buffer` has the sum of `grad`. True if no other gradient that is still needed shares this
 * buffer, so that the buffer may be written. */
static bool is_safe(const Lower *l, BufferId buffer, TensorId grad)
{
    for (uint32_t i = newest_shared(l, buffer); i; i = l->grad.shared.at[i - 1].next) {
        const SharedGrad *s = &l->grad.shared.at[i - 1];
        if (s->tensor != grad && needed_later(l, s->tensor)) return false;
    }
    return true;
}

static Version *find_sum(Lower *l, TensorId grad, const Layout *layout)
{
    for (uint32_t v = state_of(l, grad)->sums; v; v = l->value.versions.at[v].next)
        if (layout_equal(&l->value.versions.at[v].layout, layout)) return &l->value.versions.at[v];
    return NULL;
}

static void add_sum(Lower *l, TensorId grad, BufferId buffer)
{
    list_reserve_none(l->scratch, &l->value.versions);
    Version v = {.buffer = buffer,
                 .layout = lower_shape(l, buffer)->layout,
                 .next = state_of(l, grad)->sums};
    state_of(l, grad)->sums = (uint32_t)list_push(l->scratch, &l->value.versions, v);
}

static BufferId grad_buffer(Lower *l, TensorId grad, const Layout *layout)
{
    const Tensor *t = &l->g->tensors.at[grad];
    Shape s = lower_value(l, t, layout);
    BufferId b = lower_buffer(l, &s, lower_dtype(l, t->dtype), CATEGORY_activation);
    l->p->buffers.at[b].tensor = grad;
    return b;
}

static void emit_pass(Lower *l, BufferId from, BufferId to, bool accumulate, NodeId origin)
{
    lower_pass(l, from, to, accumulate, l->grad.after, origin);
    l->grad.after = 0;
}

/* Returns a buffer with the partial sum that may be written. If another gradient shares the buffer,
 * the sum is first copied to a new one. */
static BufferId writable(Lower *l, TensorId grad, Version *sum, NodeId origin)
{
    if (is_safe(l, sum->buffer, grad)) return sum->buffer;
    Layout layout = sum->layout;
    BufferId own = grad_buffer(l, grad, &layout);
    emit_pass(l, sum->buffer, own, false, origin);
    find_sum(l, grad, &layout)->buffer = own;
    return own;
}

static void merge(Lower *l, TensorId grad, BufferId part, NodeId origin)
{
    Layout layout = lower_shape(l, part)->layout;
    Version *sum = find_sum(l, grad, &layout);
    if (!sum) {
        add_sum(l, grad, part);
        return;
    }
    if (sum->buffer == part) { /* for x + x, both contributions are the same buffer */
        BufferId own = grad_buffer(l, grad, &layout);
        emit_pass(l, part, own, false, origin);
        find_sum(l, grad, &layout)->buffer = own;
        emit_pass(l, part, own, true, origin);
        return;
    }
    emit_pass(l, part, writable(l, grad, sum, origin), true, origin);
}

/* True for the gradient of a sum over all points of a field, as in a group norm. */
static bool is_of_statistic(const Lower *l, TensorId grad)
{
    const TensorId t = l->g->tensors.at[grad].grad_of;
    const NodeId id = l->g->tensors.at[t].producer;
    if (!id || t == l->g->loss || l->g->tensors.at[t].role != ROLE_activation) return false;
    const OpKind op = l->g->nodes.at[id].op;
    return op_info(op)->reduce == REDUCE_sum && op_dim(op, 0, INDEX_height) >= 0 &&
           op_dim(op, l->g->nodes.at[id].n_in, INDEX_height) < 0;
}

/* Returns `from` in the layout in which the gradient is used. domain { as = "original" } repeats a
 * bug of miles-credit, which does not sum the gradients of group norms over ranks. */
static BufferId to_use(Lower *l, TensorId grad, BufferId from, NodeId origin)
{
    const Layout use = l->g->tensors.at[grad].use;
    Shape s = *lower_shape(l, from);
    const AxisSet axes = mesh_axes_of(&l->plan->mesh, axes_of_pass("domain"));
    for (uint32_t a = 0; a < l->plan->mesh.n_axes && l->job->own_statistics; a++)
        if (axes >> a & 1 && is_of_statistic(l, grad)) s.layout.on[a] = use.on[a];
    if (!layout_equal(&s.layout, &lower_shape(l, from)->layout)) {
        const BufferId shared = from;
        from = lower_buffer(l, &s, l->p->buffers.at[shared].dtype, CATEGORY_activation);
        l->p->buffers.at[from].tensor = grad;
        lower_pass(l, shared, from, false, 0, origin);
    }
    return lower_convert(l, from, &use, origin, CATEGORY_activation);
}

/* Counts a contribution. After the last one, makes one value from the partial sums, in the layout
 * in which the gradient is used. */
static void settle(Lower *l, TensorId grad, NodeId origin)
{
    GradState *s = state_of(l, grad);
    if (++s->n_arrived < s->n_expected) return;
    Layout use = l->g->tensors.at[grad].use;
    uint32_t all = s->sums;
    s->sums = 0;
    for (uint32_t v = all; v; v = l->value.versions.at[v].next)
        if (layout_equal(&l->value.versions.at[v].layout, &use))
            add_sum(l, grad, l->value.versions.at[v].buffer);
    for (uint32_t v = all; v; v = l->value.versions.at[v].next) {
        if (layout_equal(&l->value.versions.at[v].layout, &use)) continue;
        merge(l, grad, to_use(l, grad, l->value.versions.at[v].buffer, origin), origin);
    }
    lower_add_version(l, grad, find_sum(l, grad, &use)->buffer);
}

void lower_grad_received(Lower *l, TensorId grad, BufferId part)
{
    merge(l, grad, part, l->g->tensors.at[grad].producer);
    settle(l, grad, l->g->tensors.at[grad].producer);
}

static void used(Lower *l, const Node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (l->g->tensors.at[n->in[i]].role == ROLE_gradient) l->grad.of[n->in[i]].n_uses--;
}

/* Every rank of an axis may have computed the whole of a gradient that is then summed over this
 * axis. Scales this gradient, so that each rank contributes an equal fraction. An example is the
 * position bias of attention if ranks have parts of a field. */
static BufferId share_out(Lower *l, BufferId from, const Layout *home, NodeId origin)
{
    Shape s = *lower_shape(l, from);
    AxisSet axes = 0;
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (s.layout.on[a] == WHOLE && home->on[a] == PARTIAL_SUM) axes = (AxisSet)(axes | 1u << a);
    if (!axes) return from;
    lower_set_axes(l, &s.layout, axes, PARTIAL_SUM);
    const TensorId tensor = l->p->buffers.at[from].tensor;
    const BufferId out =
        lower_buffer(l, &s, l->p->buffers.at[from].dtype, l->p->buffers.at[from].category);
    l->p->buffers.at[out].tensor = tensor;
    Emit e = {.op = OP_scale,
              .stream = STREAM_compute,
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, out}};
    e.attrs.scale = 1.0 / mesh_size(&l->plan->mesh, axes);
    lower_emit(l, &e);
    return out;
}

/* Each rank of an axis may have computed a gradient only for the range of its own heads. A sum over
 * this axis then needs zeros for the other heads. Puts the range among zeros. */
static BufferId place_part(Lower *l, BufferId from, const Layout *home, NodeId origin)
{
    Shape s = *lower_shape(l, from);
    for (int d = 0; d < s.n_dims; d++) {
        AxisSet axes = layout_axes_split(&s.layout, d);
        for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
            if (home->on[a] != PARTIAL_SUM) axes = (AxisSet)(axes & ~(1u << a));
        if (!axes) continue;
        lower_set_axes(l, &s.layout, axes, PARTIAL_SUM);
        const Buffer was = l->p->buffers.at[from];
        const BufferId out = lower_buffer(l, &s, was.dtype, was.category);
        l->p->buffers.at[out].tensor = was.tensor;
        Emit e = {.op = OP_place,
                  .stream = STREAM_compute,
                  .origin = origin,
                  .n_in = 1,
                  .n_out = 1,
                  .arg = {from, out}};
        e.attrs.dim = d;
        e.attrs.parts = mesh_size(&l->plan->mesh, axes);
        lower_emit(l, &e);
        from = out;
    }
    return from;
}

static void param_contribution(Lower *l, TensorId param, BufferId temporary, NodeId origin)
{
    if (temporary) {
        Layout home;
        BufferId view = lower_grad_home(l, param, &home);
        temporary = place_part(l, temporary, &home, origin);
        temporary = share_out(l, temporary, &home, origin);
        BufferId made = lower_convert(l, temporary, &home, origin, CATEGORY_communication);
        emit_pass(l, made, view, l->grad.arrived[param] > 0, origin);
    }
    lower_grad_arrived(l, param);
}

/* True if several outputs of the node are contributions to this gradient, as for
 * window_attention(x, x, x). Each contribution then has its own buffer. */
static bool makes_twice(const Node *n, TensorId grad)
{
    uint32_t times = 0;
    for (uint32_t j = 0; j < n->n_out; j++) times += n->out[j] == grad;
    return times > 1;
}

/* Returns the buffer for output j. Sets *temporary if the output must still be converted or added
 * to a sum afterwards. */
static BufferId output_buffer(Lower *l, NodeId id, uint32_t j, const Layout *made, bool *accumulate,
                              bool *temporary)
{
    const Node *n = &l->g->nodes.at[id];
    TensorId grad = n->out[j], of = l->g->tensors.at[grad].grad_of;
    *accumulate = *temporary = false;
    if (l->g->tensors.at[of].frozen) return grad_buffer(l, grad, made);
    if (l->g->tensors.at[of].role == ROLE_param) {
        Layout home;
        BufferId view = lower_grad_home(l, of, &home);
        *accumulate = l->grad.arrived[of] > 0;
        if (layout_equal(&home, made)) return view;
        *temporary = true;
        *accumulate = false;
        return grad_buffer(l, grad, made);
    }
    /* contributions to neighbours' rows are exchanged first, then added */
    if (lower_arg_around(l, id, n->n_in + j)) {
        const Shape s = lower_arg_shape(l, id, n->n_in + j);
        *temporary = true;
        const BufferId out =
            lower_buffer(l, &s, lower_dtype(l, l->g->tensors.at[grad].dtype), CATEGORY_activation);
        l->p->buffers.at[out].tensor = grad;
        return out;
    }
    const bool in_place = l->job->tp.share_gathers && !makes_twice(n, grad);
    Version *sum = in_place ? find_sum(l, grad, made) : NULL;
    *temporary = !in_place;
    if (sum &&
        (op_info(n->op)->flags & OP_ACCUMULATES || op_info(n->op)->class_ == OP_CLASS_contract)) {
        *accumulate = true;
        return writable(l, grad, sum, id);
    }
    *temporary = *temporary || sum;
    return grad_buffer(l, grad, made);
}

static void finish_output(Lower *l, NodeId id, uint32_t j, BufferId out, bool temporary,
                          bool accumulated)
{
    TensorId grad = l->g->nodes.at[id].out[j], of = l->g->tensors.at[grad].grad_of;
    if (l->g->tensors.at[of].frozen) return; /* no node reads the gradient */
    if (l->g->tensors.at[of].role == ROLE_param) {
        param_contribution(l, of, temporary ? out : 0, id);
        return;
    }
    if (!l->job->tp.share_gathers) out = to_use(l, grad, out, id);
    if (temporary)
        merge(l, grad, out, id);
    else if (!accumulated)
        add_sum(l, grad, out);
    settle(l, grad, id);
}

/* True if the next node is another gradient of the same forward node. */
static bool has_sibling(const Lower *l, NodeId id)
{
    return id + 1 < l->g->nodes.n && l->g->nodes.at[id + 1].forward == l->g->nodes.at[id].forward &&
           l->g->nodes.at[id + 1].stage == l->g->nodes.at[id].stage;
}

/* Overlaps communication with the two backward nodes of a linear: dgrad computes the gradient of
 * its input, wgrad the gradient of its weight. The gather for wgrad runs during dgrad, and the
 * reduction of dgrad's result runs during wgrad. For a convolution, the halo that wgrad reads is
 * exchanged during dgrad, and the sums that dgrad computed for neighbours are exchanged during
 * wgrad. */
static void prepare_sibling(Lower *l, NodeId id)
{
    if (!has_sibling(l, id)) return;
    Node n = l->g->nodes.at[id + 1];
    for (uint32_t i = 0; i < n.n_in; i++) lower_start_halo(l, id + 1, i);
    if (op_info(n.op)->class_ != OP_CLASS_contract) return;
    for (uint32_t i = 0; i < n.n_in; i++) {
        if (l->g->tensors.at[n.in[i]].role != ROLE_activation) continue;
        lower_want_arg(l, id + 1, i);
    }
}

static bool reads(const Node *n, TensorId t)
{
    bool any = false;
    for (uint32_t i = 0; i < n->n_in; i++) any = any || n->in[i] == t;
    return any;
}

/* Ends the exchanges that have begun. If `reader` is not 0, an exchange of strided rows (rows at
 * equal distances, halo.c) continues, unless node `reader` reads its gradient. */
static void end_returns(Lower *l, NodeId reader)
{
    const uint32_t n = l->grad.returning.n;
    uint32_t n_left = 0;
    l->grad.returning.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        HaloReturn r = l->grad.returning.at[i];
        const TensorId grad = l->g->nodes.at[r.node].out[r.output];
        if (reader && lower_is_strided(l, r.step.from) && !reads(&l->g->nodes.at[reader], grad))
            l->grad.returning.at[n_left++] = r;
        else
            finish_output(l, r.node, r.output, lower_fold_end(l, &r.step, r.node), r.temporary,
                          r.accumulated);
    }
    l->grad.returning.n = n_left;
}

void lower_end_returns(Lower *l)
{
    end_returns(l, 0);
}

/* Adds output j of a backward node to its gradient. Rows that belong to other ranks are sent to
 * them; the exchange may run while other nodes are computed. */
static void take_output(Lower *l, NodeId id, uint32_t j, BufferId out, bool temporary,
                        bool accumulated)
{
    if (!lower_arg_around(l, id, l->g->nodes.at[id].n_in + j)) {
        finish_output(l, id, j, out, temporary, accumulated);
        return;
    }
    const HaloReturn r = {id, j, temporary, accumulated, lower_fold_begin(l, out, id)};
    list_push(l->scratch, &l->grad.returning, r);
    if (!has_sibling(l, id) && !lower_is_strided(l, out)) lower_end_returns(l);
}

void lower_backward_node(Lower *l, NodeId id)
{
    Node n = l->g->nodes.at[id];
    const bool is_sibling = id > 1 && has_sibling(l, id - 1);
    if (!is_sibling) end_returns(l, id);
    prepare_sibling(l, id);
    Emit e = lower_emit_of(l, id);
    RowsParts parts = lower_begin_parts(l, id, &e.arg[0]);
    const bool in_rows = lower_has_parts(&parts);
    for (uint32_t i = in_rows; i < n.n_in; i++) e.arg[i] = lower_want_arg(l, id, i);
    bool accumulate[MAX_OUT], temporary[MAX_OUT];
    const bool rings = lower_rings(l, id);
    for (uint32_t j = 0; j < n.n_out; j++) {
        const Layout *made = lower_arg_layout(l, id, n.n_in + j);
        accumulate[j] = false;
        temporary[j] = true;
        if (rings && op_keys_dim(n.op, n.n_in + j) >= 0) continue;
        e.arg[n.n_in + j] = output_buffer(l, id, j, made, &accumulate[j], &temporary[j]);
        if (accumulate[j]) e.attrs.accumulate |= 1 << j;
    }
    /* The node's inputs count as read only from here on. If they had counted as read before,
     * output_buffer could have added an output to a sum that the node still has to read. */
    used(l, &n);
    if (!in_rows) lower_add_workspace(l, id, &e);
    e.after[0] = l->grad.after;
    l->grad.after = 0;
    if (in_rows)
        lower_parts(l, &e, &parts);
    else if (rings)
        lower_ring_backward(l, &e);
    else
        lower_emit(l, &e);
    for (uint32_t j = 0; j < n.n_out; j++)
        take_output(l, id, j, e.arg[n.n_in + j], temporary[j], accumulate[j]);
    if (is_sibling) end_returns(l, id);
    lower_start_ahead(l, id);
}

void lower_cast_node(Lower *l, NodeId id)
{
    const Node n = l->g->nodes.at[id];
    lower_forward_node(l, id);
    used(l, &n);
}

void lower_pass_node(Lower *l, NodeId id)
{
    const Node n = l->g->nodes.at[id];
    Layout use = l->g->tensors.at[n.out[0]].use;
    BufferId from = lower_want(l, n.in[0], &use, id);
    used(l, &n);
    TensorId grad = n.out[0];
    if (find_sum(l, grad, &use)) {
        merge(l, grad, from, id);
    } else {
        add_sum(l, grad, from);
        lower_add_share(l, from, n.in[0]);
        lower_add_share(l, from, grad);
    }
    settle(l, grad, id);
}
