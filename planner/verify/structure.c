/* Checks the structure of a plan: mesh, deals, shapes, graph and units. (A deal says which indices
 * of a dimension each part holds.) Other proofs rely on it, even if the text of the plan was
 * damaged. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "planner/ir/layout/padding.h"
#include "planner/verify/value/value.h"

#define RULE "verify-structure"

/* the most elements of a tensor, so that its bytes are far below 2^63 */
static const int64_t MAX_ELEMENTS = INT64_C(1) << 48;

static void check_mesh(Verifier *v)
{
    const Mesh *m = &v->plan->mesh;
    if (m->n_axes > MAX_AXES) {
        verify_report(v, RULE, 0, "the mesh has %u axes, but at most %d are possible", m->n_axes,
                      MAX_AXES);
        return;
    }
    Mesh made = *m;
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (m->axis[a].size < 1 || m->axis[a].name >= AXIS_NAMES) {
            verify_report(v, RULE, 0, "mesh axis %u has size %u", a, m->axis[a].size);
            return;
        }
    if (!mesh_set_strides(&made)) {
        verify_report(
            v, RULE, 0,
            "the axes of the mesh do not form a grid of ranks, or there are too many ranks");
        return;
    }
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (m->axis[a].stride != made.axis[a].stride)
            verify_report(v, RULE, 0, "mesh axis %u of size %u has stride %u, but must have %u", a,
                          m->axis[a].size, m->axis[a].stride, made.axis[a].stride);
    if (m->n_ranks != made.n_ranks)
        verify_report(v, RULE, 0, "the mesh states %u ranks, but the product of its axes is %u",
                      m->n_ranks, made.n_ranks);
}

static int by_low(const void *a, const void *b)
{
    const Interval *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return x->hi < y->hi ? -1 : x->hi > y->hi;
}

/* True if the intervals, in ascending order, cover the dimension without gaps or overlaps. Their
 * lengths alone would not show this. */
static bool tiles(const Verifier *v, const Deal *d)
{
    Interval *at = arena_array(v->arena, d->n, sizeof *at);
    int64_t end = 0;
    uint32_t n = 0, next = 0;
    for (uint32_t k = 0; k < d->n; k++) {
        Interval own = v->g->deals.intervals.at[d->first + k];
        if (own.hi > own.lo) at[n++] = own;
    }
    qsort(at, n, sizeof *at, by_low);
    while (next < n && at[next].lo == end) end = at[next++].hi;
    return next == n && end == d->size;
}

/* True if each segment begins where the previous one ends. */
static bool are_side_by_side(const Verifier *v, const Deal *d)
{
    int64_t end = 0;
    for (uint32_t k = 0; k < d->n; k++) {
        Interval at = v->g->deals.intervals.at[d->first + k];
        if (at.lo != end || at.hi <= at.lo || (at.hi - at.lo) % d->n_parts != 0) return false;
        end = at.hi;
    }
    return end == d->size;
}

/* True if the intervals of a halo exceed the dimension by at most its own size on each side. They
 * may overlap. */
static bool reaches_once(const Verifier *v, const Deal *d)
{
    for (uint32_t k = 0; k < d->n; k++) {
        const Interval at = v->g->deals.intervals.at[d->first + k];
        if (at.hi < at.lo || at.lo < -d->size || at.hi > 2 * d->size) return false;
        if (at.hi - at.lo > 2 * d->size) return false;
    }
    return d->per_part == 1;
}

/* True if all pieces are equal, and piece k of part p is piece k * n_parts + p of the dimension. */
static bool strides(const Verifier *v, const Deal *d)
{
    if (d->size % ((int64_t)d->n_parts * d->per_part) != 0) return false;
    const int64_t rows = d->size / ((int64_t)d->n_parts * d->per_part);
    for (uint32_t p = 0; p < d->n_parts; p++)
        for (uint32_t k = 0; k < d->per_part; k++) {
            const Interval at = v->g->deals.intervals.at[d->first + p * d->per_part + k];
            const int64_t lo = ((int64_t)k * d->n_parts + p) * rows;
            if (at.lo != lo || at.hi != lo + rows) return false;
        }
    return rows > 0;
}

static void check_deals(Verifier *v)
{
    const Deals *deals = &v->g->deals;
    for (DealId i = 1; i < deals->deals.n; i++) {
        const Deal *d = &deals->deals.at[i];
        bool ok =
            d->kind <= DEAL_strided && d->n_parts > 0 && d->size >= 0 && d->size <= MAX_ELEMENTS;
        if (ok && d->kind < DEAL_listed) ok = deal_padding_fits(d, MAX_ELEMENTS);
        if (ok && d->kind >= DEAL_listed)
            ok = d->per_part > 0 && deal_table(d) == d->n &&
                 (uint64_t)d->first + d->n <= deals->intervals.n;
        if (!ok)
            verify_report(v, RULE, 0,
                          "deal %u has fields that contradict each other or are out of range", i);
        else if (d->kind == DEAL_listed && !tiles(v, d))
            verify_report(v, "verify-coverage", 0,
                          "deal %u does not give each of its %lld indices to exactly one part", i,
                          (long long)d->size);
        else if (d->kind == DEAL_strided && !strides(v, d))
            verify_report(
                v, "verify-coverage", 0,
                "deal %u does not divide its %lld indices into equal pieces at equal distances", i,
                (long long)d->size);
        else if ((d->kind == DEAL_halo || d->kind == DEAL_overlap) && !reaches_once(v, d))
            verify_report(v, "verify-coverage", 0,
                          "deal %u has a halo that is longer than its %lld indices", i,
                          (long long)d->size);
        else if (d->kind == DEAL_segments && !are_side_by_side(v, d))
            verify_report(
                v, "verify-coverage", 0,
                "deal %u does not divide its %lld indices into segments of %u equal parts each", i,
                (long long)d->size, d->n_parts);
    }
}

/* True if all dimensions are positive and their product is at most MAX_ELEMENTS. */
static bool dims_ok(uint32_t n_dims, const int64_t *dim)
{
    int64_t n = 1;
    if (n_dims > MAX_DIMS) return false;
    for (uint32_t d = 0; d < n_dims; d++) {
        if (dim[d] < 1 || dim[d] > MAX_ELEMENTS / n) return false;
        n *= dim[d];
    }
    return true;
}

/* Returns NULL, or the fault of the layout. */
static const char *layout_fault(const Verifier *v, uint32_t n_dims, const int64_t *dim,
                                const DealId *deal, const Layout *layout)
{
    const Mesh *mesh = &v->plan->mesh;
    const Deals *deals = &v->g->deals;
    for (uint32_t a = 0; a < MAX_AXES; a++) {
        int8_t on = layout->on[a];
        if (a >= mesh->n_axes && on != WHOLE) return "names an axis that is not in the mesh";
        if (on < PARTIAL_MAX) return "has an unknown layout";
        if (layout_is_split(on) && layout_dim(on) >= (int)n_dims)
            return "splits a dimension that it does not have";
    }
    for (uint32_t d = 0; d < n_dims; d++) {
        AxisSet axes = layout_axes_split(layout, (int)d);
        if (deal[d] && deal[d] >= deals->deals.n) return "names a deal that does not exist";
        if (!axes && !deal_whole(deals, deal[d])) continue;
        uint32_t parts = mesh_size(mesh, axes);
        const Deal *at = deal[d] ? &deals->deals.at[deal[d]] : NULL;
        if (at && (at->n_parts != parts || at->size != dim[d]))
            return "has a deal for another number of parts or another size";
    }
    return NULL;
}

static void check_shapes(Verifier *v)
{
    v->local_elements = arena_array(v->arena, v->plan->shapes.n, sizeof *v->local_elements);
    for (ShapeId i = 0; i < v->plan->shapes.n; i++) {
        const Shape *s = &v->plan->shapes.at[i];
        const char *fault = dims_ok(s->n_dims, s->dim)
                                ? layout_fault(v, s->n_dims, s->dim, s->deal, &s->layout)
                                : "has dimensions out of range";
        if (fault)
            verify_report(v, RULE, 0, "shape %u %s", i, fault);
        else
            v->local_elements[i] = (uint64_t)shape_local_elements(s, &v->plan->mesh, &v->g->deals);
    }
}

static void check_tensors(Verifier *v)
{
    const Graph *g = v->g;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        const char *name = at->name ? at->name : "?", *fault = NULL;
        if (!at->name || at->role > ROLE_state || at->dtype >= DT_COUNT ||
            at->rest_dtype >= DT_COUNT || at->reduce_dtype >= DT_COUNT ||
            at->producer >= g->nodes.n || at->grad >= g->tensors.n || at->grad_of >= g->tensors.n ||
            (at->unit && at->unit >= g->units.n))
            fault = "has a field out of range";
        else if (!dims_ok(at->n_dims, at->dim))
            fault = "has dimensions out of range";
        else
            fault = layout_fault(v, at->n_dims, at->dim, at->deal, &at->use);
        if (!fault && at->frozen && at->role != ROLE_param)
            fault = "is marked frozen, but only parameters can be frozen";
        if (!fault && layout_axes_partial(&at->use))
            fault = "is a partial sum when it is used, but must be whole or split";
        if (fault) verify_report(v, RULE, 0, "tensor %u (%s) %s", t, name, fault);
    }
}

static bool node_ids_ok(const Graph *g, const Node *n)
{
    if (n->op == OP_none || n->op >= OP_COUNT || n->n_in > MAX_IN || n->n_out > MAX_OUT)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!n->in[i] || n->in[i] >= g->tensors.n) return false;
    for (uint32_t j = 0; j < n->n_out; j++)
        if (!n->out[j] || n->out[j] >= g->tensors.n) return false;
    return n->attrs < g->attrs.n && n->forward < g->nodes.n &&
           (n->module == 0 || n->module < g->modules.n);
}

static void check_nodes(Verifier *v)
{
    const Graph *g = v->g;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!node_ids_ok(g, n)) {
            verify_report(v, RULE, 0, "graph node %u has a field out of range", id);
            continue;
        }
        OpClass class_ = op_info(n->op)->class_;
        if (class_ != OP_CLASS_compute && class_ != OP_CLASS_contract) {
            verify_report(v, RULE, 0, "graph node %u (%s) has an op that is not a computation", id,
                          op_info(n->op)->name);
            continue;
        }
        Diag why = diag_in(v->arena);
        Binding b;
        if (!graph_bind(g, n, &b, &why))
            verify_report(v, RULE, 0, "graph node %u does not fit its op: %s", id,
                          why.items.n ? why.items.at[0].text : "");
        else if (op_info(n->op)->flags & OP_TAKES &&
                 !op_takes(n->op, &b, graph_attrs_at(g, n->attrs)))
            verify_report(v, RULE, 0,
                          "graph node %u (%s) takes a part that does not exist in its input", id,
                          op_info(n->op)->name);
        else if (op_info(n->op)->flags & OP_WINDOWED &&
                 !op_windowed(n->op, &b, graph_attrs_at(g, n->attrs)))
            verify_report(v, RULE, 0, "graph node %u (%s) has a window that does not fit its sizes",
                          id, op_info(n->op)->name);
        else if (!op_grouped(n->op, &b, graph_attrs_at(g, n->attrs)))
            verify_report(v, RULE, 0,
                          "graph node %u (%s) has sizes that differ from its attributes", id,
                          op_info(n->op)->name);
        else if (op_info(n->op)->flags & OP_SIZED && !op_sized(&b, graph_attrs_at(g, n->attrs)))
            verify_report(v, RULE, 0,
                          "graph node %u (%s) has sizes that differ from its attributes", id,
                          op_info(n->op)->name);
    }
    if (g->n_forward >= g->nodes.n && g->n_forward)
        verify_report(v, RULE, 0, "the graph states %u forward nodes, but has only %u nodes",
                      g->n_forward, g->nodes.n);
    if (g->loss >= g->tensors.n && g->loss)
        verify_report(v, RULE, 0, "the loss is tensor %u, but the graph has %u tensors", g->loss,
                      g->tensors.n);
}

static int64_t local_elements(const Verifier *v, const Tensor *t)
{
    Shape s = {.n_dims = t->n_dims, .layout = t->use};
    for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
    return shape_local_elements(&s, &v->plan->mesh, &v->g->deals);
}

/* Checks that each parameter of a unit is inside the unit, after the previous parameter, and in no
 * other unit. */
static void check_units(Verifier *v)
{
    const Graph *g = v->g;
    uint32_t *times = arena_array(v->arena, g->tensors.n + 1, sizeof *times);
    for (UnitId u = 1; u < g->units.n; u++) {
        const Unit *unit = &g->units.at[u];
        uint64_t end = 0;
        uint32_t n_frozen = 0;
        AxisSet all = (AxisSet)((1u << v->plan->mesh.n_axes) - 1);
        if (unit->dtype >= DT_COUNT || unit->rest_dtype >= DT_COUNT ||
            unit->reduce_dtype >= DT_COUNT || unit->state_dtype >= DT_COUNT) {
            verify_report(v, RULE, 0, "unit %u (%s) has a dtype out of range", u, unit->name);
            continue;
        }
        if ((unit->shard | unit->replicate) & ~all || (unit->shard & unit->replicate) ||
            unit->padded > (uint64_t)MAX_ELEMENTS ||
            unit->padded % mesh_size(&v->plan->mesh, unit->shard & all) ||
            unit->elements > unit->padded)
            verify_report(v, RULE, 0, "unit %u (%s) has axes or sizes out of range", u, unit->name);
        for (uint32_t i = 0; i < unit->params.n; i++) {
            TensorId t = unit->params.at[i];
            if (!t || t >= g->tensors.n || g->tensors.at[t].role != ROLE_param ||
                g->tensors.at[t].unit != u) {
                verify_report(v, RULE, 0,
                              "unit %u (%s) names tensor %u, which is not one of its parameters", u,
                              unit->name, t);
                continue;
            }
            times[t]++;
            const Tensor *p = &g->tensors.at[t];
            n_frozen += p->frozen;
            if (n_frozen != 0 && n_frozen != i + 1)
                verify_report(v, "verify-coverage", 0,
                              "unit %u (%s) holds frozen and trained parameters together: %s", u,
                              unit->name, p->name);
            if (p->flat_offset < end || p->flat_offset > unit->elements)
                verify_report(v, "verify-coverage", 0,
                              "%s shares elements of unit %s with the parameter before it", p->name,
                              unit->name);
            if (p->rest_dtype != unit->rest_dtype || p->reduce_dtype != unit->reduce_dtype ||
                (p->dtype != unit->dtype && unit->dtype != DT_e4m3))
                verify_report(v, "verify-dtype", 0,
                              "%s has dtypes %s (in use), %s (between steps), %s (sums), but its "
                              "unit %s has %s, %s, %s",
                              p->name, dtype_name(p->dtype), dtype_name(p->rest_dtype),
                              dtype_name(p->reduce_dtype), unit->name, dtype_name(unit->dtype),
                              dtype_name(unit->rest_dtype), dtype_name(unit->reduce_dtype));
            if (p->grad && p->grad < g->tensors.n &&
                g->tensors.at[p->grad].dtype != p->reduce_dtype)
                verify_report(v, "verify-dtype", 0,
                              "the gradient of %s has dtype %s, but its sum has dtype %s", p->name,
                              dtype_name(g->tensors.at[p->grad].dtype),
                              dtype_name(p->reduce_dtype));
            end = p->flat_offset + (uint64_t)local_elements(v, p);
            if (end > unit->elements)
                verify_report(v, "verify-coverage", 0, "%s does not fit into unit %s", p->name,
                              unit->name);
        }
        if (n_frozen > 0 && unit->state_dtype != DT_none)
            verify_report(v, "verify-dtype", 0, "unit %s is frozen, but has moments (dtype %s)",
                          unit->name, dtype_name(unit->state_dtype));
    }
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].role == ROLE_param && g->tensors.at[t].unit && times[t] != 1)
            verify_report(v, "verify-coverage", 0, "parameter %s lies in its unit %u times",
                          g->tensors.at[t].name, times[t]);
}

/* Checks the numbers by which reports divide. Zero stands for a number that is not known, as in a
 * plan that was made by hand. */
static void check_step(Verifier *v)
{
    const StepInfo *s = &v->plan->step;
    const ModelInfo *info = &v->g->info;
    uint64_t n_params = 0;
    for (TensorId t = 1; t < v->g->tensors.n; t++) {
        const Tensor *at = &v->g->tensors.at[t];
        uint64_t n = at->role == ROLE_param;
        for (int d = 0; d < at->n_dims; d++) n *= (uint64_t)at->dim[d];
        n_params += n;
    }
    if (s->micro_batch && s->global_batch != s->micro_batch * (int64_t)s->n_microbatches)
        verify_report(v, RULE, 0, "%u micro-batches of %lld sequences are not %lld sequences",
                      s->n_microbatches, (long long)s->micro_batch, (long long)s->global_batch);
    const double labels = s->global_batch ? s->global_tokens / (double)s->global_batch : 0;
    if (s->seq && !(labels >= 1 && labels <= (double)s->seq && labels == floor(labels)))
        verify_report(v, RULE, 0, "%lld sequences of %lld tokens are not %.0f tokens",
                      (long long)s->global_batch, (long long)s->seq, s->global_tokens);
    if (info->n_params && (info->n_params != n_params || info->n_params_no_embedding > n_params))
        verify_report(
            v, RULE, 0,
            "the model has %llu parameters, but the plan states %llu (%llu without embedding)",
            (unsigned long long)n_params, (unsigned long long)info->n_params,
            (unsigned long long)info->n_params_no_embedding);
}

static void check_counts(Verifier *v)
{
    const Plan *plan = v->plan;
    uint64_t n_mb = plan->step.n_microbatches, n_code = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) n_code += plan->programs.at[i].code.n;
    if (n_mb == 0 || n_mb > n_code || n_mb * v->g->tensors.n > UINT64_C(1) << 26)
        verify_report(v, RULE, 0,
                      "the plan states %llu micro-batches, but has only %llu instructions",
                      (unsigned long long)n_mb, (unsigned long long)n_code);
}

void verify_whole_graph(Verifier *v)
{
    check_counts(v);
    check_step(v);
}

void verify_structure_graph(Verifier *v)
{
    const Plan *plan = v->plan;
    uint64_t n_code = 0;
    check_mesh(v);
    if (v->n_reported) return;
    if (plan->shapes.n == 0 || v->g->tensors.n == 0 || v->g->nodes.n == 0 || v->g->attrs.n == 0) {
        verify_report(v, RULE, 0,
                      "the plan lacks the empty first shape, tensor, node or attributes");
        return;
    }
    check_counts(v);
    check_deals(v);
    if (v->n_reported) return;
    check_shapes(v);
    check_tensors(v);
    if (v->n_reported) return;
    check_nodes(v);
    if (v->n_reported == 0) verify_segments(v);
    if (v->n_reported == 0) verify_uneven(v);
    check_units(v);
    if (plan->programs.n == 0 || !plan->program_of) {
        verify_report(v, RULE, 0, "the plan has no program");
        return;
    }
    check_step(v);
    for (uint32_t i = 0; i < plan->programs.n; i++) n_code += plan->programs.at[i].code.n;
    if (plan->n_match > n_code + 1)
        verify_report(v, RULE, 0, "the plan states %u matches, but has only %llu instructions",
                      plan->n_match, (unsigned long long)n_code);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++)
        if (plan->program_of[r] >= plan->programs.n) {
            verify_report(v, RULE, 0, "rank %u runs program %u, but there are only %u programs", r,
                          plan->program_of[r], plan->programs.n);
            return;
        }
}
