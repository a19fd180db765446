/* Building and printing graphs. */
#include "planner/ir/graph.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

void graph_init(Graph *g, Arena *arena)
{
    memset(g, 0, sizeof *g);
    list_reserve_none(arena, &g->tensors);
    list_reserve_none(arena, &g->nodes);
    list_reserve_none(arena, &g->modules);
    list_reserve_none(arena, &g->units);
    list_reserve_none(arena, &g->attrs);
}

AttrsId graph_attrs(Graph *g, Arena *arena, const Attrs *attrs)
{
    for (AttrsId i = g->attrs.n; i-- > 0;)
        if (memcmp(&g->attrs.at[i], attrs, sizeof *attrs) == 0) return i;
    return (AttrsId)list_push(arena, &g->attrs, *attrs);
}

Dims graph_dims(const Graph *g, TensorId t)
{
    return (Dims){g->tensors.at[t].n_dims, g->tensors.at[t].dim};
}

TensorId graph_tensor(Graph *g, Arena *arena, const char *name, Role role, DType dtype,
                      uint32_t n_dims, const int64_t *dim, Loc loc)
{
    assert(n_dims <= MAX_DIMS);
    TensorId id = (TensorId)list_add(arena, &g->tensors);
    Tensor *t = &g->tensors.at[id];
    t->name = name;
    t->role = role;
    t->dtype = dtype;
    t->n_dims = (uint8_t)n_dims;
    for (uint32_t d = 0; d < n_dims; d++) t->dim[d] = dim[d];
    t->loc = loc;
    return id;
}

NodeId graph_node(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in,
                  const TensorId *out, uint32_t n_out, const Attrs *attrs, ModuleId module, Loc loc)
{
    assert(n_in <= MAX_IN && n_out <= MAX_OUT);
    AttrsId id_attrs = attrs ? graph_attrs(g, arena, attrs) : 0;
    NodeId id = (NodeId)list_add(arena, &g->nodes);
    Node *n = &g->nodes.at[id];
    n->op = op;
    n->n_in = (uint8_t)n_in;
    n->n_out = (uint8_t)n_out;
    for (uint32_t i = 0; i < n_in; i++) n->in[i] = in[i];
    for (uint32_t j = 0; j < n_out; j++) {
        n->out[j] = out[j];
        if (!g->tensors.at[out[j]].producer) g->tensors.at[out[j]].producer = id;
    }
    n->attrs = id_attrs;
    n->module = module;
    n->layer = module ? g->modules.at[module].layer : 0;
    n->loc = loc;
    return id;
}

TensorId graph_op(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in, DType dtype,
                  const Attrs *attrs, ModuleId module, Loc loc, Diag *d)
{
    Dims dims[MAX_IN];
    Binding b;
    for (uint32_t i = 0; i < n_in; i++) dims[i] = graph_dims(g, in[i]);
    if (!op_bind(op, dims, n_in, NULL, 0, &b, loc, d)) return 0;
    TensorId out[MAX_OUT];
    for (uint32_t j = 0; j < b.n_out; j++) {
        int64_t dim[MAX_DIMS];
        int n = op_output_dims(op, &b, j, dim);
        if (n < 0) {
            diag_error(d, FAULT_input, "shape-mismatch", loc,
                       "%s: the size of output %u does not follow from its inputs",
                       op_info(op)->name, j);
            return 0;
        }
        const char *path = module ? g->modules.at[module].path : "";
        const char *name =
            arena_print(arena, "%s%s%s.%u%s", path, *path ? "." : "", op_info(op)->name, g->nodes.n,
                        j ? arena_print(arena, ".%u", j) : "");
        out[j] = graph_tensor(g, arena, name, ROLE_activation, dtype, (uint32_t)n, dim, loc);
        g->tensors.at[out[j]].module = module;
    }
    graph_node(g, arena, op, in, n_in, out, b.n_out, attrs, module, loc);
    return out[0];
}

bool graph_bind(const Graph *g, const Node *n, Binding *b, Diag *d)
{
    Dims in[MAX_IN], out[MAX_OUT];
    for (uint32_t i = 0; i < n->n_in; i++) in[i] = graph_dims(g, n->in[i]);
    for (uint32_t j = 0; j < n->n_out; j++) out[j] = graph_dims(g, n->out[j]);
    return op_bind(n->op, in, n->n_in, out, n->n_out, b, n->loc, d);
}

static void print_tensor(const Graph *g, const Mesh *mesh, TensorId id, Str *out)
{
    const Tensor *t = &g->tensors.at[id];
    str_print(out, " %%%s[", t->name);
    for (int d = 0; d < t->n_dims; d++)
        str_print(out, "%s%lld", d ? "," : "", (long long)t->dim[d]);
    str_print(out, "] %s", dtype_name(t->dtype));
    if (mesh->n_axes) str_print(out, " {%s}", layout_text(out->arena, mesh, &t->use));
}

void graph_print(const Graph *g, const Mesh *mesh, Str *out)
{
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        str_print(out, "%6u %-16s", id, op_info(n->op)->name);
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (n->split[a]) str_print(out, " %s/%c", mesh->axis[a].text, n->split[a]);
        for (uint32_t i = 0; i < n->n_in; i++) print_tensor(g, mesh, n->in[i], out);
        str_add(out, " ->");
        for (uint32_t j = 0; j < n->n_out; j++) print_tensor(g, mesh, n->out[j], out);
        if (n->region) str_print(out, "  recompute %s", g->modules.at[n->region].path);
        if (n->loc.file) str_print(out, "  %s:%u", n->loc.file, n->loc.line);
        str_add(out, "\n");
    }
}
