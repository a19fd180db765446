/* Invariants of the graph after every pass: indices are in range; layouts name dimensions of their
 * tensor; split letters are ones that the op may split and fit the op's arguments. It takes linear
 * time. */
#include <assert.h>

#include "planner/passes/pass.h"

static bool fail(Diag *d, const char *pass, Loc loc, const char *what, const char *name)
{
    return diag_error(d, FAULT_internal, "graph-structure", loc, "after %s: %s %s", pass, name,
                      what);
}

static bool layout_fits(const Layout *l, uint32_t n_axes, int n_dims)
{
    for (uint32_t a = 0; a < MAX_AXES; a++) {
        if (a >= n_axes && l->on[a] != WHOLE) return false;
        if (layout_is_split(l->on[a]) && layout_dim(l->on[a]) >= n_dims) return false;
    }
    return true;
}

static bool node_fits(const Graph *g, const Node *n, uint32_t n_axes, Diag *d)
{
    Binding b;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == 0 || n->in[i] >= g->tensors.n) return false;
    for (uint32_t j = 0; j < n->n_out; j++)
        if (n->out[j] == 0 || n->out[j] >= g->tensors.n) return false;
    if (!graph_bind(g, n, &b, d)) return false;
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (n->split[a] &&
            (a >= n_axes || b.size[(int)n->split[a]] == 0 || !op_may_split(n->op, n->split[a])))
            return false;
    return n->module < g->modules.n && n->attrs < g->attrs.n && n->forward < g->nodes.n;
}

bool check_graph(const Job *job, const char *pass)
{
    const Graph *g = &job->plan->graph;
    uint32_t n_axes = job->plan->mesh.n_axes;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (!layout_fits(&at->use, n_axes, at->n_dims))
            return fail(job->diag, pass, at->loc, "has a layout that does not fit", at->name);
        if (at->unit >= g->units.n && at->unit)
            return fail(job->diag, pass, at->loc, "is in no unit", at->name);
    }
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!node_fits(g, n, n_axes, job->diag))
            return fail(job->diag, pass, n->loc, "is malformed", op_info(n->op)->name);
    }
    return true;
}
