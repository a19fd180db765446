/* Checks tensors that live between steps and are no parameters. One graph node updates such a
 * tensor once a step, in the same way on all ranks. Other micro-batches and recomputation must not
 * update the tensor again. */
#include "planner/verify/value/value.h"

/* Finds the node that computes the next value of each state tensor. Reports tensors for which there
 * is not exactly one such node. */
static NodeId *find_updates(Verifier *v)
{
    const Graph *g = v->g;
    NodeId *by = arena_array(v->arena, g->tensors.n, sizeof *by);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!(op_info(n->op)->flags & OP_UPDATES)) continue;
        for (uint32_t j = 0; j < n->n_out; j++) {
            const Tensor *t = &g->tensors.at[n->in[j]];
            if (t->role != ROLE_state)
                verify_report(v, "verify-coverage", 0,
                              "graph node %u (%s) overwrites %s, but only state may be overwritten",
                              id, op_info(n->op)->name, t->name);
            else if (by[n->in[j]])
                verify_report(v, "verify-coverage", 0, "graph nodes %u and %u both update %s",
                              by[n->in[j]], id, t->name);
            by[n->in[j]] = id;
        }
    }
    return by;
}

static void check_tensor(Verifier *v, TensorId id, NodeId by)
{
    const Graph *g = v->g;
    const Tensor *t = &g->tensors.at[id];
    const Layout whole = {{0}};
    if (!layout_equal(&t->use, &whole))
        verify_report(v, "verify-layout", 0, "state %s is not whole on every rank", t->name);
    if (t->init.kind == INIT_none)
        verify_report(v, "verify-coverage", 0, "state %s has no initialiser", t->name);
    if (t->grad || t->producer)
        verify_report(v, "verify-purity", 0,
                      "state %s may neither be made within the step nor have a gradient", t->name);
    if (!by || (g->n_forward && by > g->n_forward))
        verify_report(v, "verify-coverage", 0, "the forward pass does not update state %s",
                      t->name);
}

/* Checks that the update reads only weights and state, so that any micro-batch may run it. */
static void check_once(Verifier *v, NodeId id)
{
    const Node *n = &v->g->nodes.at[id];
    for (uint32_t j = 0; j < n->n_out && v->known[n->out[j]]; j++)
        for (uint32_t mb = 1; mb < v->n_mb; mb++) {
            if (value_same(value_of_tensor(v, n->out[j], 0), value_of_tensor(v, n->out[j], mb)))
                continue;
            verify_report(
                v, "verify-purity", 0,
                "graph node %u (%s) runs once a step, but its result depends on the micro-batch",
                id, op_info(n->op)->name);
            return;
        }
}

void verify_graph_state(Verifier *v)
{
    const Graph *g = v->g;
    const NodeId *by = find_updates(v);
    v->advanced = arena_array(v->arena, g->tensors.n, sizeof *v->advanced);
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_state) continue;
        check_tensor(v, t, by[t]);
        for (uint32_t j = 0; by[t] && j < g->nodes.at[by[t]].n_out; j++)
            if (g->nodes.at[by[t]].in[j] == t) v->advanced[t] = g->nodes.at[by[t]].out[j];
    }
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_info(g->nodes.at[id].op)->flags & OP_ONCE) check_once(v, id);
}

/* Checks a buffer at the end of a step: it must hold the next value of the state that it held when
 * the step began. */
void value_end_of_state(Verifier *v, BufferId b)
{
    TensorId t = v->p->buffers.at[b].tensor;
    const Tensor *at = &v->g->tensors.at[t];
    Val val = value_read(v, 0, b, "at the end of the step, state", b);
    v->n_homes[t]++;
    if (val.bad || !v->advanced[t]) return;
    if (value_same(val.vn, value_of_tensor(v, t, 0)))
        verify_report(v, "verify-coverage", 0, "state %s is not updated", at->name);
    else if (!value_same(val.vn, value_of_tensor(v, v->advanced[t], 0)))
        verify_report(v, "verify-coverage", 0, "at the end of the step, state %s is %s", at->name,
                      value_name(v, val.vn));
    const Layout whole = {{0}};
    if (!layout_equal(&value_shape_at(v, val.shape)->layout, &whole))
        verify_report(v, "verify-layout", 0, "state %s is not whole on every rank: %s", at->name,
                      value_shape_text(v, val.shape));
}

void value_homes_of_state(Verifier *v)
{
    for (TensorId t = 1; t < v->g->tensors.n; t++)
        if (v->g->tensors.at[t].role == ROLE_state && v->n_homes[t] != 1)
            verify_report(v, "verify-coverage", 0,
                          "state %s is in %u buffers between steps, but must be in one",
                          v->g->tensors.at[t].name, v->n_homes[t]);
}
