/* Checks conditions that the graph must meet after every pass: indices are in range; layouts name
 * existing dimensions; each index that a node splits may be split by its op, and agrees with the
 * layouts of the node's arguments. The check takes linear time. A node that has not changed since
 * the last check is skipped if its tensors have the same sizes as then. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

static bool fail(Diag *d, const char *pass, Loc loc, const char *what, const char *name)
{
    return diag_error(d, FAULT_internal, "graph-structure", loc, "after %s: %s %s", pass, name,
                      what);
}

_Static_assert(MAX_AXES == 16, "two words hold a layout");

static bool layout_fits(const Layout *l, uint32_t n_axes, int n_dims)
{
    uint64_t any[MAX_AXES / 8];
    memcpy(any, l->on, sizeof any);
    if ((any[0] | any[1]) == 0) return true; /* whole on all axes */
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

/* Returns how many nodes need not be checked again if they are unchanged. Returns 0 if a tensor, or
 * a number on which all nodes depend, has changed. */
static uint32_t comparable(const CheckedGraph *last, const Graph *g, uint32_t n_axes)
{
    if (last->n_axes != n_axes || g->nodes.n < last->nodes.n || g->tensors.n < last->dims.n ||
        g->modules.n < last->n_modules || g->attrs.n < last->n_attrs)
        return 0;
    for (TensorId t = 1; t < last->dims.n; t++) {
        const CheckedDims *old = &last->dims.at[t];
        const Tensor *now = &g->tensors.at[t];
        if (old->n_dims != now->n_dims || memcmp(old->dim, now->dim, sizeof now->dim) != 0)
            return 0;
    }
    return last->nodes.n;
}

/* Makes room for the nodes of this check. */
static void make_room(CheckedGraph *last, const Graph *g)
{
    while (last->nodes.n < g->nodes.n) list_add(last->arena, &last->nodes);
}

/* Stores the sizes of tensors for the next check. If `equal` is true, only those of new tensors are
 * stored. */
static void remember(CheckedGraph *last, const Graph *g, uint32_t n_axes, bool equal)
{
    TensorId t = equal ? last->dims.n : 1;
    last->n_axes = n_axes, last->n_modules = g->modules.n, last->n_attrs = g->attrs.n;
    while (last->dims.n < g->tensors.n) list_add(last->arena, &last->dims);
    for (t = t > 0 ? t : 1; t < g->tensors.n; t++) {
        CheckedDims *to = &last->dims.at[t];
        to->n_dims = g->tensors.at[t].n_dims;
        memcpy(to->dim, g->tensors.at[t].dim, sizeof to->dim);
    }
}

bool check_graph(const Job *job, CheckedGraph *last, const char *pass)
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
    const uint32_t n_known = comparable(last, g, n_axes);
    make_room(last, g);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (id < n_known && memcmp(n, &last->nodes.at[id], sizeof *n) == 0) continue;
        if (!node_fits(g, n, n_axes, job->diag))
            return fail(job->diag, pass, n->loc, "is malformed", op_info(n->op)->name);
        memcpy(&last->nodes.at[id], n, sizeof *n); /* memcpy also copies the padding bytes of the
                                                      struct, which are compared next time */
    }
    remember(last, g, n_axes, n_known > 0);
    return true;
}
