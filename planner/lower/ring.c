/* Ring attention. A rank first computes with the keys and values of its own tokens. Then it
 * computes with those of the previous rank of the ring, and so on. While a rank computes with the
 * current range of keys, the next range is being received, so a rank holds two ranges. In the
 * forward pass, the result of each hop is merged with the earlier result. In the backward pass, the
 * gradients of a range of keys travel one hop after the range, and each rank adds its contribution.
 * One more hop brings them to the rank that owns the keys. */
#include <assert.h>

#include "planner/lower/lower.h"

enum { MOST_PARTS = 2 }; /* two tensors travel around the ring: keys and values */

/* The arguments that travel around the ring. */
typedef struct Travel {
    uint32_t n, arg[MOST_PARTS];
} Travel;

bool lower_rings(const Lower *l, NodeId n)
{
    return l->job->context.ring_axes && op_part(l->g->nodes.at[n].op) != OP_none;
}

void lower_ring_layouts(Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    for (uint32_t arg = 0; arg < (uint32_t)n->n_in + n->n_out; arg++) {
        const int d = op_keys_dim(n->op, arg);
        Layout *layout = &l->value.arg_layouts[l->value.arg_first[id] + arg];
        if (d >= 0) lower_set_axes(l, layout, l->job->context.ring_axes, SPLIT(d));
    }
}

static Travel find(OpKind op, uint32_t first, uint32_t n)
{
    Travel t = {.n = 0};
    for (uint32_t arg = first; arg < first + n; arg++)
        if (op_keys_dim(op, arg) >= 0) t.arg[t.n++] = arg;
    assert(t.n == MOST_PARTS);
    return t;
}

/* Emits a hop: every rank sends its keys (or values) to the next rank of the ring. The deal of the
 * result says which tokens each rank has after this hop. */
static BufferId rotate_one(Lower *l, BufferId from, Category category, uint32_t launch, Pc after,
                           NodeId origin)
{
    const AxisSet axes = l->job->context.ring_axes;
    Shape to = *lower_shape(l, from);
    const int d = layout_dim(to.layout.on[__builtin_ctz(axes)]);
    assert(layout_axes_split(&to.layout, d) == axes);
    to.deal[d] =
        deal_turn(&l->g->deals, l->arena, to.deal[d], to.dim[d], mesh_size(&l->plan->mesh, axes));
    const BufferId out = lower_buffer(l, &to, l->p->buffers.at[from].dtype, category);
    l->p->buffers.at[out].tensor = l->p->buffers.at[from].tensor;
    Emit e = {.op = OP_rotate,
              .stream = lower_value_stream(l, axes, OP_rotate),
              .axes = axes,
              .launch = launch,
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, out},
              .after = {after}};
    lower_emit(l, &e);
    return out;
}

/* Sends all tensors of `at` to the next rank, after instruction `after`. */
static void rotate(Lower *l, const BufferId *at, BufferId *next, Category category, uint32_t launch,
                   Pc after, NodeId origin)
{
    for (uint32_t k = 0; k < MOST_PARTS; k++)
        next[k] = rotate_one(l, at[k], category, launch, after, origin);
}

void lower_ring_forward(Lower *l, Emit *e)
{
    const Travel in = find(e->op, 0, e->n_in);
    const uint32_t n_hops = mesh_size(&l->plan->mesh, l->job->context.ring_axes);
    Pc before = 0;
    e->op = op_part(e->op);
    for (uint32_t hop = 0; hop < n_hops; hop++) {
        BufferId at[MOST_PARTS] = {0}, next[MOST_PARTS] = {0};
        for (uint32_t k = 0; k < in.n; k++) at[k] = e->arg[in.arg[k]];
        if (hop + 1 < n_hops)
            rotate(l, at, next, CATEGORY_communication, ++l->emit.launch, before, e->origin);
        e->attrs.accumulate = hop ? 3 : 0;
        before = lower_emit(l, e);
        for (uint32_t k = 0; k < in.n && hop + 1 < n_hops; k++) e->arg[in.arg[k]] = next[k];
    }
}

/* Returns a buffer for this rank's contribution to the gradient of the keys or values in `of`. The
 * contribution is a partial sum if several ranks have different query heads for these keys. */
static BufferId share(Lower *l, BufferId of, TensorId grad, const Layout *made)
{
    Shape s = *lower_shape(l, of);
    s.layout = *made;
    const BufferId b =
        lower_buffer(l, &s, lower_dtype(l, l->g->tensors.at[grad].dtype), CATEGORY_activation);
    l->p->buffers.at[b].tensor = grad;
    return b;
}

void lower_ring_backward(Lower *l, Emit *e)
{
    const Node n = l->g->nodes.at[e->origin];
    const Travel in = find(e->op, 0, e->n_in), out = find(e->op, e->n_in, n.n_out);
    const uint32_t n_hops = mesh_size(&l->plan->mesh, l->job->context.ring_axes);
    const int64_t others = e->attrs.accumulate; /* the outputs to which other nodes have already
                                                   added */
    BufferId at[MOST_PARTS] = {0}, next[MOST_PARTS] = {0}, sum[MOST_PARTS] = {0},
             own[MOST_PARTS] = {0};
    Pc before = 0;
    e->op = op_part(e->op);
    for (uint32_t hop = 0; hop < n_hops; hop++) {
        for (uint32_t k = 0; k < in.n; k++) at[k] = e->arg[in.arg[k]];
        l->emit.launch++;
        if (hop + 1 < n_hops)
            rotate(l, at, next, CATEGORY_communication, l->emit.launch, before, e->origin);
        if (hop) rotate(l, sum, sum, CATEGORY_communication, l->emit.launch, before, e->origin);
        for (uint32_t k = 0; k < out.n; k++)
            e->arg[out.arg[k]] = own[k] = share(l, at[k], n.out[out.arg[k] - e->n_in],
                                                lower_arg_layout(l, e->origin, out.arg[k]));
        e->attrs.accumulate = hop ? 1 : others;
        before = lower_emit(l, e);
        e->after[0] = 0;
        for (uint32_t k = 0; k < out.n && hop; k++)
            lower_pass(l, own[k], sum[k], true, 0, e->origin);
        for (uint32_t k = 0; k < out.n && !hop; k++) sum[k] = own[k];
        for (uint32_t k = 0; k < in.n && hop + 1 < n_hops; k++) e->arg[in.arg[k]] = next[k];
    }
    rotate(l, sum, sum, CATEGORY_activation, ++l->emit.launch, before, e->origin);
    for (uint32_t k = 0; k < out.n; k++) e->arg[out.arg[k]] = sum[k];
}
