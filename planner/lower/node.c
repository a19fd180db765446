/* Lowers one forward node. If the backward pass reads an output that was not kept, lower_want
 * lowers the node once more. */
#include <assert.h>

#include "planner/lower/lower.h"

void lower_add_workspace(Lower *l, NodeId n, Emit *e)
{
    if (!l->value.workspace[n]) return;
    Shape s = {.n_dims = 1, .dim = {(int64_t)l->value.workspace[n]}};
    e->arg[e->n_in + e->n_out] = lower_buffer(l, &s, DT_u8, CATEGORY_workspace);
    e->n_out++;
}

/* True for the loss and for the number of counted tokens. */
static bool is_of_step(const Lower *l, TensorId t)
{
    return t == l->g->loss || t == graph_count(l->g);
}

/* Returns the buffer of a state tensor, which is whole on every rank. */
BufferId lower_state(Lower *l, TensorId t)
{
    const Tensor *at = &l->g->tensors.at[t];
    assert(at->role == ROLE_state);
    if (l->value.of_step[t]) return l->value.of_step[t];
    Shape s = tensor_shape(l->g, at, &at->use);
    BufferId b = l->value.of_step[t] =
        lower_buffer(l, &s, lower_dtype(l, at->dtype), CATEGORY_state);
    l->value.n_of_step++;
    l->p->buffers.at[b].persistent = true;
    l->p->buffers.at[b].tensor = t;
    return b;
}

static BufferId forward_output(Lower *l, NodeId id, uint32_t j, Attrs *attrs)
{
    const Node *n = &l->g->nodes.at[id];
    const Tensor *t = &l->g->tensors.at[n->out[j]];
    Shape s = lower_arg_shape(l, id, n->n_in + j);
    if (is_of_step(l, n->out[j])) { /* the loss and the count are sums over the micro-batches of the
                                       step */
        if (l->scalar.n_losses) attrs->accumulate |= 1 << j;
        return lower_view(l, n->out[j] == l->g->loss ? l->scalar.loss_sum : l->scalar.count, &s,
                          DT_f64, 0);
    }
    Category category = t->role == ROLE_input ? CATEGORY_input : CATEGORY_activation;
    BufferId out = lower_buffer(l, &s, lower_dtype(l, t->dtype), category);
    l->p->buffers.at[out].tensor = n->out[j];
    return out;
}

/* True for nodes whose result is the same in the whole step: a weight's largest magnitude, or its
 * norm. */
static bool is_once(const Lower *l, const Node *n)
{
    bool largest =
        op_info(n->op)->reduce == REDUCE_max && l->g->tensors.at[n->in[0]].role == ROLE_param;
    return largest || op_info(n->op)->flags & OP_ONCE;
}

void lower_forward_node(Lower *l, NodeId id)
{
    Node n = l->g->nodes.at[id];
    if (is_once(l, &n) && l->value.of_step[n.out[0]]) {
        lower_add_version(l, n.out[0], l->value.of_step[n.out[0]]);
        return;
    }
    Emit e = lower_emit_of(l, id);
    RowsParts parts = lower_begin_parts(l, id, &e.arg[0]);
    const bool in_rows = lower_has_parts(&parts);
    for (uint32_t i = in_rows; i < n.n_in; i++) e.arg[i] = lower_want_arg(l, id, i);
    for (uint32_t j = 0; j < n.n_out; j++)
        e.arg[n.n_in + j] =
            op_info(n.op)->flags & OP_UPDATES ? e.arg[j] : forward_output(l, id, j, &e.attrs);
    if (!in_rows) lower_add_workspace(l, id, &e);
    if (in_rows)
        lower_parts(l, &e, &parts);
    else if (lower_rings(l, id))
        lower_ring_forward(l, &e);
    else
        lower_emit(l, &e);
    l->scalar.n_losses += n.n_out > 0 && n.out[0] == l->g->loss;
    for (uint32_t j = 0; j < n.n_out; j++) {
        BufferId out = e.arg[n.n_in + j];
        if (is_of_step(l, n.out[j])) continue;
        const bool strided = lower_is_strided(
            l, out); /* the output gets the rank's own rows only when a later node needs them */
        if (lower_arg_around(l, id, n.n_in + j) && !strided) out = lower_fold(l, out, id);
        lower_add_version(l, n.out[j], out);
        Layout use = l->g->tensors.at[n.out[j]].use;
        bool at_once = l->phase == PHASE_forward || op_info(n.op)->reduce == REDUCE_max;
        if (at_once && !layout_equal(&lower_shape(l, out)->layout, &use))
            lower_add_version(l, n.out[j],
                              out = lower_convert(l, out, &use, id, CATEGORY_activation));
        if (is_once(l, &n)) l->value.of_step[n.out[j]] = out, l->value.n_of_step++;
    }
    lower_start_ahead(l, id);
}
