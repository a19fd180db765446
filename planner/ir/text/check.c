/* Checks a plan that was just parsed, before other code uses its indices: no index may lead outside
 * its list. Whether the plan makes sense is left to the verifier. */
#include <inttypes.h>

#include "planner/ir/layout/padding.h"
#include "planner/ir/text/private.h"

typedef struct Checker {
    const Plan *plan;
    const char *file;
    Diag *diag;
    uint64_t n_instr; /* instructions of all programs together; an upper bound of n_match */
} Checker;

#define MOST_BYTES  (UINT64_C(1) << 56) /* two such values can be added without overflow */
#define MOST_POINTS (INT64_C(1) << 56)
enum { MOST_MICROBATCHES = 1 << 24 };

static bool bad(const Checker *c, const char *what, uint32_t index, const char *problem)
{
    Loc loc = {c->file, 0};
    return diag_error(c->diag, FAULT_input, "plan-syntax", loc, "%s %u: %s", what, index, problem);
}

static bool check_dims(const int64_t *dim, uint32_t n)
{
    int64_t points = 1;
    for (uint32_t d = 0; d < n; d++) {
        if (dim[d] < 0 || dim[d] > MOST_POINTS) return false;
        if (dim[d] && points > MOST_POINTS / dim[d]) return false;
        if (dim[d]) points *= dim[d];
    }
    return true;
}

/* Checks a layout and its deals: the dimensions exist, and each deal was made for the size of its
 * dimension and for as many parts as the layout splits it into. */
static bool check_layout(const Checker *c, const Layout *l, const int64_t *dim, const DealId *deal,
                         uint32_t n_dims)
{
    const Graph *g = &c->plan->graph;
    for (uint32_t a = 0; a < MAX_AXES; a++)
        if (layout_is_split(l->on[a]) && (uint32_t)layout_dim(l->on[a]) >= n_dims) return false;
    for (uint32_t d = 0; d < n_dims; d++) {
        if (deal[d] >= g->deals.deals.n) return false;
        const Deal *table = &g->deals.deals.at[deal[d]];
        const uint32_t parts = mesh_size(&c->plan->mesh, layout_axes_split(l, (int)d));
        if (!deal_table(table) && !deal_is_padded(&g->deals, deal[d])) continue;
        if (parts == 1 && !deal_whole(&g->deals, deal[d])) continue;
        if (table->n_parts != parts || table->size != dim[d]) return false;
    }
    return true;
}

static bool check_deals(const Checker *c)
{
    const Deals *deals = &c->plan->graph.deals;
    for (DealId i = 1; i < deals->deals.n; i++) {
        const Deal *d = &deals->deals.at[i];
        if (d->n_parts == 0 || d->size < 0 || d->size > MOST_POINTS)
            return bad(c, "deal", i, "sizes out of range");
        if (d->kind < DEAL_listed && !deal_padding_fits(d, MOST_POINTS))
            return bad(c, "deal", i, "parts that do not hold its indices");
        if (d->n != deal_table(d) || (d->kind >= DEAL_listed && !d->n))
            return bad(c, "deal", i, "not as many intervals as parts need");
        for (uint32_t k = 0; k < d->n; k++) {
            const Interval *part = &deals->intervals.at[d->first + k];
            const bool around = d->kind == DEAL_halo || d->kind == DEAL_overlap;
            /* in a periodic dimension, a halo may reach beyond the edge */
            const int64_t beyond = around ? d->size : 0;
            if (part->lo < -beyond || part->hi < part->lo || part->hi > d->size + beyond)
                return bad(c, "deal", i, "an interval out of range");
        }
    }
    return true;
}

static bool check_shapes(const Checker *c)
{
    for (ShapeId i = 1; i < c->plan->shapes.n; i++) {
        const Shape *s = &c->plan->shapes.at[i];
        if (!check_dims(s->dim, s->n_dims)) return bad(c, "shape", i, "sizes out of range");
        if (!check_layout(c, &s->layout, s->dim, s->deal, s->n_dims))
            return bad(c, "shape", i, "layout and deals do not fit its dimensions");
    }
    return true;
}

/* Checks that a module's parent has a smaller index, so that no module is its own ancestor. */
static bool check_modules(const Checker *c)
{
    const Graph *g = &c->plan->graph;
    for (ModuleId i = 1; i < g->modules.n; i++) {
        if (g->modules.at[i].parent >= i) return bad(c, "module", i, "precedes its parent");
        if (!g->modules.at[i].path) return bad(c, "module", i, "has no path");
    }
    return true;
}

/* Checks Tensor.order of a fused projection: a deal of segments that gives each group as many
 * features as the tensor stores for it. Every stored element then has a place in the original
 * order. */
static bool check_order(const Checker *c, const Tensor *t)
{
    const Deals *deals = &c->plan->graph.deals;
    if (!t->order) return true;
    if (t->order >= deals->deals.n || t->order_dim + 1 >= t->n_dims) return false;
    const Deal *d = &deals->deals.at[t->order];
    const int64_t n = t->dim[t->order_dim], each = t->dim[t->order_dim + 1];
    if (d->kind != DEAL_segments || d->n_parts != n || d->size != n * each) return false;
    return deal_valid(deals, t->order, d->size, d->n_parts, 0) == each;
}

static bool check_tensors(const Checker *c)
{
    const Graph *g = &c->plan->graph;
    const uint32_t n = g->tensors.n;
    for (TensorId i = 1; i < n; i++) {
        const Tensor *t = &g->tensors.at[i];
        if (!t->name) return bad(c, "tensor", i, "has no name");
        if (!check_dims(t->dim, t->n_dims)) return bad(c, "tensor", i, "sizes out of range");
        if (!check_layout(c, &t->use, t->dim, t->deal, t->n_dims) ||
            !check_layout(c, &t->kept, t->dim, t->deal, t->n_dims))
            return bad(c, "tensor", i, "layout and deals do not fit its dimensions");
        if (t->grad >= n) return bad(c, "tensor", i, "unknown gradient");
        if (t->module >= g->modules.n) return bad(c, "tensor", i, "unknown module");
        if (!check_order(c, t)) return bad(c, "tensor", i, "its order does not fit its dimensions");
        if (t->flat_offset > MOST_BYTES) return bad(c, "tensor", i, "sizes out of range");
    }
    return true;
}

static bool check_attrs(const Checker *c, const char *what, uint32_t index, OpKind op,
                        AttrsId attrs)
{
    Str why = str_in(c->plan->arena);
    if (op_attrs_fit(op, graph_attrs_at(&c->plan->graph, attrs), &why)) return true;
    return bad(c, what, index, str_text(&why));
}

static bool check_nodes(const Checker *c)
{
    const Graph *g = &c->plan->graph;
    for (NodeId i = 1; i < g->nodes.n; i++) {
        const Node *n = &g->nodes.at[i];
        for (uint32_t k = 0; k < n->n_in; k++)
            if (n->in[k] >= g->tensors.n) return bad(c, "node", i, "unknown input");
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] >= g->tensors.n) return bad(c, "node", i, "unknown output");
        if (n->attrs >= g->attrs.n) return bad(c, "node", i, "unknown attributes");
        if (!check_attrs(c, "node", i, n->op, n->attrs)) return false;
        if (n->module >= g->modules.n) return bad(c, "node", i, "unknown module");
        if (n->forward >= g->nodes.n) return bad(c, "node", i, "unknown forward node");
    }
    return true;
}

static bool check_units(const Checker *c)
{
    const Graph *g = &c->plan->graph;
    for (UnitId i = 1; i < g->units.n; i++) {
        const Unit *u = &g->units.at[i];
        if (!u->name) return bad(c, "unit", i, "has no name");
        for (uint32_t k = 0; k < u->params.n; k++)
            if (u->params.at[k] >= g->tensors.n) return bad(c, "unit", i, "unknown parameter");
        if (u->elements > MOST_BYTES || u->padded > MOST_BYTES)
            return bad(c, "unit", i, "sizes out of range");
    }
    return true;
}

static bool check_buffers(const Checker *c, const Program *p)
{
    const Graph *g = &c->plan->graph;
    for (BufferId i = 1; i < p->buffers.n; i++) {
        const Buffer *b = &p->buffers.at[i];
        if (b->shape >= c->plan->shapes.n) return bad(c, "buffer", i, "unknown shape");
        if (b->bytes > MOST_BYTES || b->offset > MOST_BYTES)
            return bad(c, "buffer", i, "sizes out of range");
        if (b->parent >= p->buffers.n || b->parent == i || p->buffers.at[b->parent].parent)
            return bad(c, "buffer", i, "its parent is missing, is the buffer itself, or is a view");
        if (b->tensor >= g->tensors.n || b->unit >= g->units.n)
            return bad(c, "buffer", i, "unknown tensor or unit");
    }
    return true;
}

static bool check_code(const Checker *c, const Program *p)
{
    const Graph *g = &c->plan->graph;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++)
            if (program_arg(p, in, i) >= p->buffers.n)
                return bad(c, "instruction", pc, "unknown buffer");
        for (uint32_t i = 0; i < in->after.n; i++) {
            Pc before = p->after.at[in->after.first + i];
            if (!before || before >= pc)
                return bad(c, "instruction", pc,
                           "waits for an instruction that does not precede it");
        }
        if (in->attrs >= g->attrs.n) return bad(c, "instruction", pc, "unknown attributes");
        if (!check_attrs(c, "instruction", pc, in->op, in->attrs)) return false;
        if (in->origin >= g->nodes.n) return bad(c, "instruction", pc, "unknown origin");
        if (in->unit >= g->units.n) return bad(c, "instruction", pc, "unknown unit");
        if (in->match > c->n_instr) return bad(c, "instruction", pc, "match out of range");
    }
    return true;
}

static bool check_step(const Checker *c)
{
    const StepInfo *s = &c->plan->step;
    bool fine = s->global_batch >= 0 && s->micro_batch >= 0 && s->seq >= 0 &&
                s->global_batch <= MOST_POINTS && s->micro_batch <= MOST_POINTS &&
                s->seq <= MOST_POINTS &&
                (s->micro_batch == 0 || s->global_batch / s->micro_batch <= MOST_MICROBATCHES);
    if (!fine) return bad(c, "step", 0, "sizes out of range");
    const NcclSettings *nccl = &c->plan->nccl;
    const char *hint, *wrong = nccl_settings_wrong(nccl, &hint);
    if (nccl->min_ctas > NCCL_MOST_CTAS || nccl->max_ctas > NCCL_MOST_CTAS)
        wrong = "more than 64 thread blocks";
    if (wrong != NULL) return bad(c, "nccl", 0, wrong);
    return true;
}

bool text_check(const Plan *plan, const char *file, Diag *d)
{
    uint64_t n_instr = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) n_instr += plan->programs.at[i].code.n;
    const Checker checker = {plan, file, d, n_instr}, *c = &checker;
    if (!check_step(c) || !check_deals(c) || !check_shapes(c) || !check_modules(c)) return false;
    if (!check_tensors(c) || !check_nodes(c) || !check_units(c)) return false;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        if (!check_buffers(c, p) || !check_code(c, p)) return false;
    }
    return true;
}
