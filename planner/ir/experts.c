#include "planner/ir/experts.h"

const NodeId *experts_rows(const Graph *g, Arena *arena)
{
    NodeId *rows = arena_array(arena, g->tensors.n + 1, sizeof *rows);
    bool any = false;
    NodeId last = g->n_forward ? g->n_forward : (NodeId)(g->nodes.n - 1);
    for (NodeId id = 1; id <= last && g->nodes.n > 0; id++) {
        const Node *n = &g->nodes.at[id];
        NodeId from = op_sends_tokens(n->op) ? id : 0;
        for (uint32_t i = 0; i < n->n_in && !from && !op_collects_tokens(n->op); i++)
            from = rows[n->in[i]];
        for (uint32_t j = 0; j < n->n_out; j++) rows[n->out[j]] = from;
        any = any || from;
    }
    for (TensorId t = 1; t < g->tensors.n && any; t++)
        if (g->tensors.at[t].role == ROLE_gradient) rows[t] = rows[g->tensors.at[t].grad_of];
    return any ? rows : NULL;
}

bool experts_next(const Graph *g, ExpertsParam *at)
{
    for (; at->node < g->nodes.n; at->node++, at->input = 0) {
        const Node *n = &g->nodes.at[at->node];
        while (at->input < n->n_in) {
            const uint32_t i = at->input++;
            at->tensor = n->in[i];
            if (g->tensors.at[at->tensor].role != ROLE_param) continue;
            at->dim = op_dim(n->op, i, INDEX_experts);
            if (at->dim >= 0) return true;
        }
    }
    return false;
}

const bool *experts_params(const Graph *g, Arena *arena)
{
    bool *is = arena_array(arena, g->tensors.n + 1, sizeof *is);
    for (ExpertsParam p = {0}; experts_next(g, &p);) is[p.tensor] = true;
    return is;
}

AxisSet experts_axes(const Graph *g)
{
    AxisSet axes = 0;
    for (ExpertsParam p = {0}; experts_next(g, &p);)
        axes = (AxisSet)(axes | layout_axes_split(&g->tensors.at[p.tensor].use, p.dim));
    return axes;
}

/* A weight counts once, even if the model calls its module several times. */
uint64_t experts_active_params(const Graph *g)
{
    uint64_t active = g->info.n_params_no_embedding;
    Arena *scratch = arena_new();
    const NodeId *rows = experts_rows(g, scratch);
    bool *counted = arena_array(scratch, g->tensors.n + 1, sizeof *counted);
    NodeId last = g->n_forward ? g->n_forward : (NodeId)(g->nodes.n - 1);
    for (NodeId id = 1; rows && id <= last; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->n_in < 2 || !rows[n->in[0]] || counted[n->in[1]]) continue;
        const bool product = op_dim(n->op, 1, INDEX_experts) == 0 &&
                             g->tensors.at[n->in[1]].role == ROLE_param &&
                             g->tensors.at[n->in[1]].n_dims == 3;
        if (!product) continue;
        const Attrs *a = graph_attrs_at(g, g->nodes.at[rows[n->in[0]]].attrs);
        /* an invalid plan, which its reader refuses later */
        if (a->top_k < 1 || a->top_k > a->experts) continue;
        counted[n->in[1]] = true;
        const Tensor *w = &g->tensors.at[n->in[1]];
        uint64_t elements = 1;
        for (int d = 0; d < w->n_dims; d++) elements *= (uint64_t)w->dim[d];
        active -= elements / (uint64_t)a->experts * (uint64_t)(a->experts - a->top_k);
    }
    arena_free(scratch);
    return active;
}

int64_t experts_common(const Graph *g)
{
    int64_t common = 0;
    for (ExpertsParam p = {0}; experts_next(g, &p);)
        for (int64_t rest = g->tensors.at[p.tensor].dim[p.dim]; rest != 0;) {
            const int64_t next = common % rest;
            common = rest;
            rest = next;
        }
    return common;
}

int64_t experts_most(const Graph *g)
{
    int64_t most = 0;
    for (ExpertsParam p = {0}; experts_next(g, &p);)
        if (g->tensors.at[p.tensor].dim[p.dim] > most) most = g->tensors.at[p.tensor].dim[p.dim];
    return most;
}
