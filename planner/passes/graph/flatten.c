/* Chooses the order and offsets of parameters in the flat buffers of their units: first those that
 * tp splits, then those whose gradients are partial sums on tp, so that one collective sums them
 * all, then the rest. If tp is several mesh axes, each class is sorted by the axes. Otherwise a
 * parameter that is summed over one of the axes could lie between parameters that are summed over
 * both. */
#include <assert.h>
#include <string.h>

#include "planner/ir/op/bound.h"
#include "planner/passes/pass.h"

enum {
    FLAT_ALIGN_ELEMENTS = 64
}; /* 256 bytes of fp32 or 128 of bf16, so that vector loads and TMA stay aligned */

enum { CLASS_split, CLASS_partial, CLASS_whole, CLASS_COUNT };

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Sets Tensor.partial of every parameter: the axes on which all contributions to its gradient are
 * partial sums. If one contribution is whole on an axis, lowering sums the partial ones over the
 * axis before it adds the whole one, which would otherwise count once for each rank. For example,
 * an embedding that is also the head: the embedding reads all tokens on each rank, the head only
 * some. */
static bool find_partial(Job *job)
{
    Graph *g = &job->plan->graph;
    AxisSet *summed = arena_array(job->scratch, g->tensors.n, sizeof *summed);
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Binding own;
        const Binding *b = NULL;
        for (uint32_t j = 0; j < n->n_out; j++) {
            TensorId p = g->tensors.at[n->out[j]].grad_of;
            if (!p || !tensor_trains(&g->tensors.at[p])) continue;
            if (b == NULL) b = graph_bound(g, n, &own, job->diag);
            if (b == NULL) return false;
            for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++) {
                if (job->data_axes >> a & 1) continue;
                bool partial =
                    layout_is_partial(op_axis_layout(n->op, b, n->n_in + j, n->split[a]));
                AxisSet *set = partial ? &g->tensors.at[p].partial : &summed[p];
                *set = (AxisSet)(*set | 1u << a);
            }
        }
    }
    for (TensorId t = 1; t < g->tensors.n; t++)
        g->tensors.at[t].partial = (AxisSet)(g->tensors.at[t].partial & ~summed[t]);
    return true;
}

/* Returns the axes, except data axes, that split the parameter. Parameters of a class are sorted by
 * them. */
static AxisSet split_axes(const Tensor *t, AxisSet data)
{
    return (AxisSet)(layout_axes_split(&t->use, -1) & ~data);
}

static int class_of(const Tensor *t, AxisSet data)
{
    if (t->partial) return CLASS_partial;
    return split_axes(t, data) ? CLASS_split : CLASS_whole;
}

static bool lies_with(const Tensor *a, const Tensor *b, AxisSet data)
{
    return a->partial == b->partial && split_axes(a, data) == split_axes(b, data);
}

static uint64_t local_elements(const Job *job, const Tensor *t)
{
    Shape s = {.n_dims = t->n_dims, .layout = t->use};
    for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
    return (uint64_t)shape_local_elements(&s, &job->plan->mesh, &job->plan->graph.deals);
}

/* Appends to `sorted` parameter i and all later ones with the same Tensor.partial and split axes,
 * unless they are already in the list. */
static void sort_like(Job *job, const Unit *u, uint32_t i, bool *placed, TensorId *sorted,
                      uint32_t *n)
{
    const Graph *g = &job->plan->graph;
    const Tensor *like = &g->tensors.at[u->params.at[i]];
    for (uint32_t k = i; k < u->params.n; k++) {
        TensorId id = u->params.at[k];
        if (placed[k] || !lies_with(&g->tensors.at[id], like, job->data_axes)) continue;
        placed[k] = true;
        sorted[(*n)++] = id;
    }
}

static void place(Job *job, Unit *u)
{
    Graph *g = &job->plan->graph;
    uint32_t n = u->params.n, at = 0;
    TensorId *sorted = arena_array(job->arena, n, sizeof *sorted);
    bool *placed = arena_array(job->scratch, n, sizeof *placed);
    uint64_t offset = 0;
    for (int class_ = 0; class_ < CLASS_COUNT; class_++)
        for (uint32_t i = 0; i < n; i++)
            if (!placed[i] && class_of(&g->tensors.at[u->params.at[i]], job->data_axes) == class_)
                sort_like(job, u, i, placed, sorted, &at);
    assert(at == n);
    for (uint32_t i = 0; i < n; i++) {
        Tensor *t = &g->tensors.at[u->params.at[i] = sorted[i]];
        t->flat_offset = offset;
        offset = align_up(offset + local_elements(job, t), FLAT_ALIGN_ELEMENTS);
    }
    u->elements = offset;
    u->padded =
        align_up(offset, (uint64_t)FLAT_ALIGN_ELEMENTS * mesh_size(&job->plan->mesh, u->shard));
}

double mean_count(const Job *job, const Node *counter)
{
    const Graph *g = &job->plan->graph;
    const Tensor *ids = &g->tensors.at[counter->in[0]];
    double choices = job->plan->step.n_microbatches;
    for (int d = 0; d < ids->n_dims; d++) choices *= (double)ids->dim[d];
    return choices / (double)g->tensors.at[counter->out[0]].dim[0];
}

static bool same_update(const Job *job, TensorId a, TensorId b)
{
    const Graph *g = &job->plan->graph;
    const Node *x = &g->nodes.at[g->tensors.at[g->tensors.at[a].grad].producer];
    const Node *y = &g->nodes.at[g->tensors.at[g->tensors.at[b].grad].producer];
    return graph_attrs_at(g, x->attrs)->scale == graph_attrs_at(g, y->attrs)->scale &&
           mean_count(job, x) == mean_count(job, y);
}

/* Moves a bias that balances experts (graph_balances) from its unit to unit *own, which holds only
 * such biases with the same update. Sets *own to a new unit if it has another update. */
static void move_out(Job *job, TensorId t, UnitId *own)
{
    Graph *g = &job->plan->graph;
    const Unit was = g->units.at[g->tensors.at[t].unit];
    if (!*own || !same_update(job, g->units.at[*own].params.at[0], t))
        *own = unit_new(job, arena_print(job->arena, "%s, balance", was.name), was.shard,
                        was.replicate);
    g->tensors.at[t].unit = 0;
    unit_take(job, *own, t);
}

/* Gives biases that balance experts their own units: no optimizer updates them, and their gradients
 * do not count in the gradient norm. */
static void units_of_balance(Job *job)
{
    Graph *g = &job->plan->graph;
    const UnitId n = g->units.n;
    for (UnitId u = 1; u < n; u++) {
        const Unit was = g->units.at[u];
        Unit kept = was;
        UnitId own = 0;
        memset(&kept.params, 0, sizeof kept.params);
        for (uint32_t i = 0; i < was.params.n; i++) {
            const TensorId t = was.params.at[i];
            if (graph_balances(g, &g->tensors.at[t]) && was.params.n > 1)
                move_out(job, t, &own);
            else
                list_push(job->arena, &kept.params, t);
        }
        if (own) g->units.at[u] = kept;
    }
}

bool pass_flatten(Job *job)
{
    Graph *g = &job->plan->graph;
    if (!find_partial(job)) return false;
    units_of_balance(job);
    const Optimizer *o = &job->config->optimizer;
    for (UnitId u = 1; u < g->units.n; u++) {
        Unit *unit = &g->units.at[u];
        place(job, unit);
        if (o->kind == OPTIMIZER_adamw && !graph_is_frozen(g, u) && !graph_is_balance(g, u))
            unit->state_dtype = o->state ? o->state : unit->rest_dtype;
    }
    return true;
}
