#include "planner/passes/graph/resize.h"

#include "planner/ir/window.h"

typedef struct Resize {
    const Graph *g;
    Graph *out;
    Arena *arena;
    Diag *unread; /* collects reports of ops that do not accept the new size; they are not shown */
    IndexRole role;
    int64_t was, size;
    TensorId *now; /* now[tensor of g]: the same tensor in `out` */
} Resize;

int64_t graph_field_size(const Graph *g, IndexRole role)
{
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!(op_info(n->op)->flags & OP_SOURCE)) continue;
        const int d = op_dim(n->op, n->n_in, role);
        if (d >= 0) return g->tensors.at[n->out[0]].dim[d];
    }
    return 0;
}

/* Copies tensor t to the new graph and returns the copy. */
static TensorId same(Resize *r, TensorId t)
{
    const Tensor *x = &r->g->tensors.at[t];
    return graph_tensor(r->out, r->arena, x->name, x->role, x->dtype, x->n_dims, x->dim, x->loc);
}

static void add_source(Resize *r, const Node *n)
{
    TensorId out[MAX_OUT];
    for (uint32_t j = 0; j < n->n_out; j++) {
        out[j] = r->now[n->out[j]] = same(r, n->out[j]);
        const int d = op_dim(n->op, (uint32_t)n->n_in + j, r->role);
        if (d >= 0) r->out->tensors.at[out[j]].dim[d] = r->size;
    }
    graph_node(r->out, r->arena, n->op, NULL, 0, out, n->n_out, graph_attrs_at(r->g, n->attrs), 0,
               n->loc);
}

/* For a resize op: adapts the attribute with the size of its output. This works if the old output
 * had the size of the field, or was a multiple of the input. Otherwise returns false, because the
 * model does not say what its new size should be. */
static bool follow(const Resize *r, const Node *n, Attrs *attrs)
{
    const int d = op_dim(n->op, n->n_in, r->role);
    if (!op_resizes(n->op) || d < 0) return true;
    int64_t *to = r->role == INDEX_height ? &attrs->rows : &attrs->columns;
    const int64_t from = r->g->tensors.at[n->in[0]].dim[d];
    if (*to == r->was)
        *to = r->size;
    else if (*to % from == 0)
        *to = *to / from * r->out->tensors.at[r->now[n->in[0]]].dim[d];
    else
        return false;
    return true;
}

static bool add_node(Resize *r, const Node *n)
{
    TensorId in[MAX_IN];
    Attrs attrs = *graph_attrs_at(r->g, n->attrs);
    if (op_info(n->op)->flags & OP_SOURCE) {
        add_source(r, n);
        return true;
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!r->now[n->in[i]])
            r->now[n->in[i]] = same(r, n->in[i]); /* a parameter, which no node computes */
        in[i] = r->now[n->in[i]];
    }
    if (!follow(r, n, &attrs)) return false;
    const DType dtype = n->n_out ? r->g->tensors.at[n->out[0]].dtype : DT_f32;
    if (!graph_op(r->out, r->arena, n->op, in, n->n_in, dtype, &attrs, 0, n->loc, r->unread))
        return n->n_out == 0;
    const Node *made = &r->out->nodes.at[r->out->nodes.n - 1];
    for (uint32_t j = 0; j < n->n_out; j++) r->now[n->out[j]] = made->out[j];
    return true;
}

bool graph_resize(const Graph *g, IndexRole role, int64_t size, Arena *arena, Graph *out)
{
    Diag unread = diag_in(arena);
    Resize r = {.g = g,
                .out = out,
                .arena = arena,
                .unread = &unread,
                .role = role,
                .was = graph_field_size(g, role),
                .size = size,
                .now = arena_array(arena, g->tensors.n, sizeof *r.now)};
    graph_init(out, arena);
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (!add_node(&r, &g->nodes.at[id])) return false;
    return true;
}
