/* Prints the graph for people: `tandem show --after PASS`. text.h has the exact form. */
#include <inttypes.h>
#include <string.h>

#include "planner/ir/graph.h"
#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"

static void print_layout(const Mesh *mesh, const Layout *l, const char *what, Str *out)
{
    static const Layout whole;
    if (layout_equal(l, &whole)) return;
    str_print(out, " %s {%s}", what, layout_text(out->arena, mesh, l));
}

static void print_dims(const Tensor *t, Str *out)
{
    str_add(out, "[");
    for (int d = 0; d < t->n_dims; d++) str_print(out, "%s%" PRId64, d ? "," : "", t->dim[d]);
    str_print(out, "] %s", dtype_name(t->dtype));
}

static void print_loc(Loc loc, Str *out)
{
    if (loc.file) str_print(out, "  %s:%u", loc.file, loc.line);
    str_add(out, "\n");
}

/* For a fused projection that is stored group by group (Tensor.order): prints the total sizes of
 * its segments, such as queries, keys and values. */
static void print_order(const Graph *g, const Tensor *t, Str *out)
{
    const Deal *d = &g->deals.deals.at[t->order];
    for (uint32_t k = 0; t->order && k < d->n; k++) {
        Interval at = g->deals.intervals.at[d->first + k];
        str_print(out, "%s%" PRId64, k ? "," : " segments ", at.hi - at.lo);
    }
}

static void print_padding(const Graph *g, const Tensor *t, Str *out)
{
    for (int d = 0; d < t->n_dims; d++)
        if (deal_is_padded(&g->deals, t->deal[d]) && !deal_is_rows(&g->deals, t->deal[d]))
            str_print(out, " dimension %d in parts of %u", d,
                      g->deals.deals.at[t->deal[d]].per_part);
}

static void print_param(const Graph *g, const Mesh *mesh, TensorId id, Str *out)
{
    const Tensor *t = &g->tensors.at[id];
    str_print(out, "  %%%u %s ", id, t->name);
    print_dims(t, out);
    print_order(g, t, out);
    print_padding(g, t, out);
    print_layout(mesh, &t->use, "use", out);
    if (t->unit) str_print(out, " unit %s +%" PRIu64, g->units.at[t->unit].name, t->flat_offset);
    print_loc(t->loc, out);
}

static void print_unit(const Graph *g, const Mesh *mesh, UnitId id, Str *out)
{
    const Unit *u = &g->units.at[id];
    str_print(out, "  %s: %u parameters, %" PRIu64 " elements (%" PRIu64 " with padding)", u->name,
              u->params.n, u->elements, u->padded);
    if (u->shard) str_print(out, ", flat over %s", mesh_axes_text(out->arena, mesh, u->shard));
    if (u->replicate)
        str_print(out, ", replicated over %s", mesh_axes_text(out->arena, mesh, u->replicate));
    for (uint32_t i = 0; i < u->params.n;) {
        const Tensor *t = &g->tensors.at[u->params.at[i]];
        uint64_t hi;
        i = graph_partial_run(g, u, i, &hi);
        if (t->partial)
            str_print(out, ", [%" PRIu64 ", %" PRIu64 ") summed over %s", t->flat_offset, hi,
                      mesh_axes_text(out->arena, mesh, t->partial));
    }
    str_add(out, "\n");
}

static void print_split(const Node *n, const Mesh *mesh, Str *out)
{
    bool any = false;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        if (!n->split[a]) continue;
        str_print(out, "%s%s:%c", any ? " " : "  split {", mesh->axis[a].text, n->split[a]);
        any = true;
    }
    if (any) str_add(out, "}");
}

static void print_node(const Graph *g, const Mesh *mesh, NodeId id, Str *out)
{
    const Node *n = &g->nodes.at[id];
    str_print(out, "  %5u %-16s", id, op_info(n->op)->name);
    for (uint32_t i = 0; i < n->n_in; i++) str_print(out, " %%%u", n->in[i]);
    str_add(out, " ->");
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Tensor *t = &g->tensors.at[n->out[j]];
        str_print(out, " %%%u", n->out[j]);
        print_dims(t, out);
        print_layout(mesh, &t->use, "use", out);
        print_layout(mesh, &t->kept, "kept", out);
    }
    print_split(n, mesh, out);
    if (n->region) str_print(out, "  region %u%s", n->region, n->keep ? " kept" : "");
    if (n->forward) str_print(out, "  of %u", n->forward);
    if (n->module) str_print(out, "  %s", g->modules.at[n->module].path);
    print_loc(n->loc, out);
}

void graph_print(const Graph *g, const Mesh *mesh, Str *out)
{
    uint32_t n_params = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) n_params += g->tensors.at[t].role == ROLE_param;
    str_print(out, "parameters %u\n", n_params);
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].role == ROLE_param) print_param(g, mesh, t, out);
    if (g->units.n > 1) str_print(out, "units %u\n", g->units.n - 1);
    for (UnitId u = 1; u < g->units.n; u++) print_unit(g, mesh, u, out);
    const uint32_t n_forward = g->n_forward ? g->n_forward : g->nodes.n ? g->nodes.n - 1 : 0;
    str_print(out, "forward %u\n", n_forward);
    for (NodeId n = 1; n < g->nodes.n; n++) {
        if (n == n_forward + 1) str_print(out, "backward %u\n", g->nodes.n - 1 - n_forward);
        print_node(g, mesh, n, out);
    }
}
