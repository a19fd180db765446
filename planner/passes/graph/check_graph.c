/* Checks the graph after every pass: indices are in range, layouts name existing dimensions, a node
 * splits only indices that its op allows, and the layouts of its arguments agree with these splits.
 * To be fast, it compares with a copy from the last check (CheckedGraph) and skips tensors and
 * nodes that have not changed. If a tensor has changed its size, all nodes are checked. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "planner/ir/init.h"
#include "planner/ir/op/bound.h"
#include "planner/passes/pass.h"

static bool fail(Diag *d, const char *pass, Loc loc, const char *what, const char *name)
{
    return diag_error(d, FAULT_internal, "graph-structure", loc, "after %s: %s %s", pass, name,
                      what);
}

_Static_assert(MAX_AXES == 16, "two words hold a layout");

static bool layout_fits(const Layout *l, uint32_t n_axes, int n_dims)
{
    Layout other = *l; /* in the end, only the layout on axes that do not exist */
    for (uint32_t a = 0; a < n_axes; a++) {
        if (layout_is_split(l->on[a]) && layout_dim(l->on[a]) >= n_dims) return false;
        other.on[a] = WHOLE;
    }
    uint64_t any[MAX_AXES / 8];
    memcpy(any, other.on, sizeof any);
    return (any[0] | any[1]) == 0; /* zero means WHOLE */
}

/* True if the node's module, attributes and forward node exist. */
static bool names_exist(const Graph *g, const Node *n)
{
    return n->module < g->modules.n && n->attrs < g->attrs.n && n->forward < g->nodes.n;
}

static bool node_fits(const Graph *g, const Node *n, uint32_t n_axes, Diag *d)
{
    Binding own;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == 0 || n->in[i] >= g->tensors.n) return false;
    for (uint32_t j = 0; j < n->n_out; j++)
        if (n->out[j] == 0 || n->out[j] >= g->tensors.n) return false;
    const Binding *b = graph_bound(g, n, &own, d);
    if (b == NULL) return false;
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (n->split[a] &&
            (a >= n_axes || b->size[(int)n->split[a]] == 0 || !op_may_split(n->op, n->split[a])))
            return false;
    return names_exist(g, n);
}

static bool tensor_fits(const Job *job, const Tensor *t, const char *pass)
{
    if (!layout_fits(&t->use, job->plan->mesh.n_axes, t->n_dims))
        return fail(job->diag, pass, t->loc, "has a layout that does not fit", t->name);
    if (t->unit >= job->plan->graph.units.n && t->unit)
        return fail(job->diag, pass, t->loc, "is in no unit", t->name);
    return true;
}

/* ---- comparing with the last check ---- */

static bool same_loc(const Loc *x, const Loc *y)
{
    return x->file == y->file && x->line == y->line;
}

/* True if two records of this type have the same bytes from field `from` to the end of field
 * `to`. */
#define SAME_FIELDS(x, y, record, from, to)                                                        \
    (memcmp((const char *)(x) + offsetof(record, from),                                            \
            (const char *)(y) + offsetof(record, from),                                            \
            offsetof(record, to) + sizeof((x)->to) - offsetof(record, from)) == 0)

/* Compares Loc and Init field by field, because padding between their fields may have any value. */
static bool same_tensor(const Tensor *x, const Tensor *y)
{
    return SAME_FIELDS(x, y, Tensor, name, module) && same_loc(&x->loc, &y->loc) &&
           SAME_FIELDS(x, y, Tensor, rest_dtype, order_dim) && init_equal(&x->init, &y->init) &&
           SAME_FIELDS(x, y, Tensor, init_stream, frozen);
}

static bool same_node(const Node *x, const Node *y)
{
    return SAME_FIELDS(x, y, Node, op, split) && same_loc(&x->loc, &y->loc);
}

/* Returns the index of the first record from i to n - 1 whose bytes differ between x and y; n if
 * none does. Compares 16 records at a time, because most passes change few. The bytes include
 * padding, which may have any value: if only padding differs, the caller finds the fields equal.
 * (tests/valgrind.supp names this function, so it is not inlined.) */
#define FIRST_CHANGED(x, y, i, n) first_changed(x, y, i, n, sizeof *(x))
__attribute__((noinline)) static uint32_t first_changed(const void *x, const void *y, uint32_t i,
                                                        uint32_t n, size_t size)
{
    enum { CHUNK = 16 };
    const char *a = x, *b = y;
    while (n - i >= CHUNK && memcmp(a + i * size, b + i * size, CHUNK * size) == 0) i += CHUNK;
    while (i < n && memcmp(a + i * size, b + i * size, size) == 0) i++;
    return i;
}

/* Checks the tensors that have changed since the last check, and copies them. Sets *resized to true
 * if the size of a tensor has changed. */
static bool tensors_fit(const Job *job, CheckedGraph *last, const char *pass, bool *resized)
{
    const Graph *g = &job->plan->graph;
    const uint32_t known = last->tensors.n < g->tensors.n ? last->tensors.n : g->tensors.n;
    *resized = g->tensors.n < last->tensors.n;
    last->tensors.n = known;
    list_reserve(last->arena, &last->tensors, g->tensors.n - known);
    for (TensorId t = 0; t < g->tensors.n; t++) {
        if (t < known) t = FIRST_CHANGED(last->tensors.at, g->tensors.at, t, known);
        if (t == g->tensors.n) break;
        const Tensor *now = &g->tensors.at[t];
        Tensor *old = &last->tensors.at[t];
        if (t < known && same_tensor(old, now)) continue;
        if (t > 0 && !tensor_fits(job, now, pass)) return false;
        if (t < known &&
            (old->n_dims != now->n_dims || memcmp(old->dim, now->dim, sizeof now->dim)))
            *resized = true;
        *old = *now;
    }
    last->tensors.n = g->tensors.n;
    return true;
}

/* True if the node has the same op, arguments and splits as at the last check. If no tensor has
 * changed its size, its signature then still fits. */
static bool binds_alike(const Node *x, const Node *y)
{
    return x->op == y->op && x->n_in == y->n_in && x->n_out == y->n_out &&
           memcmp(x->in, y->in, sizeof x->in) == 0 && memcmp(x->out, y->out, sizeof x->out) == 0 &&
           memcmp(x->split, y->split, sizeof x->split) == 0;
}

/* Checks the nodes that have changed since the last check (`all`: every node), and copies them. */
static bool nodes_fit(const Job *job, CheckedGraph *last, const char *pass, bool all)
{
    const Graph *g = &job->plan->graph;
    const uint32_t known = last->nodes.n < g->nodes.n ? last->nodes.n : g->nodes.n;
    last->nodes.n = known;
    list_reserve(last->arena, &last->nodes, g->nodes.n - known);
    for (NodeId id = 0; id < g->nodes.n; id++) {
        if (!all && id < known) id = FIRST_CHANGED(last->nodes.at, g->nodes.at, id, known);
        if (id == g->nodes.n) break;
        const Node *n = &g->nodes.at[id];
        Node *old = &last->nodes.at[id];
        if (!all && id < known && same_node(n, old)) continue;
        const bool alike = !all && id < known && binds_alike(n, old);
        if (id > 0 &&
            !(alike ? names_exist(g, n) : node_fits(g, n, job->plan->mesh.n_axes, job->diag)))
            return fail(job->diag, pass, n->loc, "is malformed", op_info(n->op)->name);
        *old = *n;
    }
    last->nodes.n = g->nodes.n;
    return true;
}

static void keep_units(CheckedGraph *last, const Graph *g)
{
    last->units.n = 0;
    list_reserve(last->arena, &last->units, g->units.n);
    if (g->units.n > 0) memcpy(last->units.at, g->units.at, g->units.n * sizeof *g->units.at);
    last->units.n = g->units.n;
}

bool check_graph(const Job *job, CheckedGraph *last, const char *pass)
{
    const Graph *g = &job->plan->graph;
    const uint32_t n_axes = job->plan->mesh.n_axes;
    bool resized;
    const bool anew = last->n_axes != n_axes || g->units.n < last->units.n ||
                      g->nodes.n < last->nodes.n || g->modules.n < last->n_modules ||
                      g->attrs.n < last->n_attrs;
    if (anew) last->tensors.n = 0;
    if (!tensors_fit(job, last, pass, &resized)) return false;
    if (!nodes_fit(job, last, pass, anew || resized)) return false;
    keep_units(last, g);
    last->n_axes = n_axes, last->n_modules = g->modules.n, last->n_attrs = g->attrs.n;
    return true;
}
