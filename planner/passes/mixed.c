/* FSDP2's mixed-precision policy: sets the dtype of the parameters of every unit, and inserts casts
 * of activations where they enter or leave a unit. The dtypes of all other activations follow. It
 * runs before layouts and gradients exist, so it recognises units by their modules. */
#include <assert.h>

#include "planner/passes/pass.h"

/* Stands for the loss as a unit. The loss is outside of the model, so the model's output is cast
 * before the loss reads it. */
static const ModuleId outside = UINT32_MAX;

/* `to` is `from`, cast to the dtype in which module `unit` reads it, or in which it returns it */
typedef struct UnitCast {
    TensorId from, to;
    ModuleId unit;
} UnitCast;

typedef struct Mixed {
    Job *job;
    Graph *g;
    const MpPolicy *policy;
    DType param;
    LIST(Node) old;
    LIST(UnitCast) casts;
} Mixed;

static bool is_loss(OpKind op)
{
    return op_info(op)->flags & OP_OF_LOSS;
}

static ModuleId unit_of(const Mixed *m, const Node *n)
{
    return is_loss(n->op) ? outside : unit_module(m->job, n->module);
}

/* True if module `unit` is inside module `of`, or is `of`. The root unit (0) contains everything
 * but the loss. */
static bool lies_in(const Mixed *m, ModuleId unit, ModuleId of)
{
    if (unit == outside || of == outside) return unit == of;
    if (of == 0) return true;
    for (ModuleId at = unit; at; at = m->g->modules.at[at].parent)
        if (at == of) return true;
    return false;
}

/* True for statistics (of norms, attention, weights and the loss) and state, whose dtype the policy
 * does not change. */
static bool is_statistic(const Graph *g, TensorId t)
{
    const Node *n = &g->nodes.at[g->tensors.at[t].producer];
    if (g->tensors.at[t].role == ROLE_state) return true;
    if (g->tensors.at[t].role != ROLE_activation) return false;
    return is_loss(n->op) || graph_is_statistic(g, t);
}

static bool follows(const Graph *g, TensorId t)
{
    DType d = g->tensors.at[t].dtype;
    return d != DT_i32 && d != DT_i64 && d != DT_u8 && !is_statistic(g, t);
}

static TensorId add_cast(Mixed *m, TensorId from, DType to, ModuleId module, const Node *at)
{
    Arena *arena = m->job->arena;
    Tensor t = m->g->tensors.at[from];
    const char *path = module ? m->g->modules.at[module].path : "";
    const char *name = arena_print(arena, "%s%scast.%u", path, *path ? "." : "", m->g->nodes.n);
    TensorId out = graph_tensor(m->g, arena, name, ROLE_activation, to, t.n_dims, t.dim, at->loc);
    m->g->tensors.at[out].module = module;
    NodeId id = graph_node(m->g, arena, OP_cast, &from, 1, &out, 1, NULL, module, at->loc);
    m->g->nodes.at[id].stage = at->stage;
    return out;
}

static TensorId known_cast(const Mixed *m, TensorId from, ModuleId unit)
{
    for (uint32_t i = m->casts.n; i-- > 0;)
        if (m->casts.at[i].from == from && m->casts.at[i].unit == unit) return m->casts.at[i].to;
    return 0;
}

/* Tensor t leaves unit `maker`. Returns t, or its cast to the policy's output dtype if there is
 * one. */
static TensorId returned(Mixed *m, TensorId t, ModuleId maker)
{
    DType to = m->policy->output;
    if (!to || m->g->tensors.at[t].dtype == to) return t;
    TensorId out = known_cast(m, t, maker);
    if (out) return out;
    Node producer = m->g->nodes.at[m->g->tensors.at[t].producer];
    out = add_cast(m, t, to, maker ? maker : producer.module, &producer);
    UnitCast cast = {t, out, maker};
    list_push(m->job->scratch, &m->casts, cast);
    return out;
}

/* Tensor t enters unit `reader`. Returns t or, if the policy sets cast_forward_inputs, its cast to
 * the dtype of the unit's parameters. */
static TensorId given(Mixed *m, TensorId t, ModuleId reader, const Node *n)
{
    if (!m->policy->cast_forward_inputs || m->g->tensors.at[t].dtype == m->param) return t;
    TensorId out = known_cast(m, t, reader);
    if (out) return out;
    out = add_cast(m, t, m->param, reader ? reader : n->module, n);
    UnitCast cast = {t, out, reader};
    list_push(m->job->scratch, &m->casts, cast);
    return out;
}

static TensorId as_read(Mixed *m, TensorId t, const Node *n)
{
    const Tensor *at = &m->g->tensors.at[t];
    if (at->role != ROLE_activation || !follows(m->g, t)) return t;
    ModuleId maker = unit_of(m, &m->g->nodes.at[at->producer]), reader = unit_of(m, n);
    if (maker == reader) return t;
    if (!lies_in(m, reader, maker)) t = returned(m, t, maker);
    return reader == outside ? t : given(m, t, reader, n);
}

/* Gives the outputs of a node the dtype of its inputs. Reports "mp-dtypes" if inputs differ. */
static bool settle(Mixed *m, NodeId id)
{
    Graph *g = m->g;
    const Node *n = &g->nodes.at[id];
    TensorId first = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        TensorId t = n->in[i];
        if (!follows(g, t)) continue;
        if (!first) first = t;
        const Tensor *a = &g->tensors.at[first], *b = &g->tensors.at[t];
        if (a->dtype == b->dtype) continue;
        diag_error(m->job->diag, FAULT_input, "mp-dtypes", n->loc,
                   "with fsdp2.mp, %s reads %s in %s and %s in %s", op_info(n->op)->name, a->name,
                   dtype_name(a->dtype), b->name, dtype_name(b->dtype));
        diag_hint(m->job->diag,
                  "set cast_forward_inputs = true, which casts the inputs of a unit to %s; or "
                  "output = \"%s\"",
                  dtype_name(m->param), dtype_name(m->param));
        return false;
    }
    if (first && follows(g, n->out[0]) && !is_loss(n->op))
        g->tensors.at[n->out[0]].dtype = g->tensors.at[first].dtype;
    return true;
}

static bool rewrite(Mixed *m)
{
    Graph *g = m->g;
    for (uint32_t i = 1; i < m->old.n; i++) {
        Node n = m->old.at[i];
        for (uint32_t k = 0; k < n.n_in; k++) n.in[k] = as_read(m, n.in[k], &n);
        NodeId id = (NodeId)list_push(m->job->arena, &g->nodes, n);
        for (uint32_t j = 0; j < n.n_out; j++) g->tensors.at[n.out[j]].producer = id;
        if (!settle(m, id)) return false;
    }
    return true;
}

bool mixed_precision(Job *job, const MpPolicy *policy)
{
    Graph *g = &job->plan->graph;
    Mixed m = {.job = job, .g = g, .policy = policy};
    m.param = policy->param ? policy->param : job->config->compute;
    /* no gradients exist yet; later they get the dtypes that are set here */
    assert(g->n_forward == 0);
    m.old.at = g->nodes.at, m.old.n = g->nodes.n;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param) continue;
        at->dtype = m.param;
        if (policy->reduce) at->reduce_dtype = policy->reduce;
    }
    for (UnitId u = 1; u < g->units.n; u++) {
        const Tensor *first = &g->tensors.at[g->units.at[u].params.at[0]];
        g->units.at[u].dtype = first->dtype;
        g->units.at[u].reduce_dtype = first->reduce_dtype;
    }
    g->nodes.at = NULL, g->nodes.n = g->nodes.room = 0;
    list_reserve_none(job->arena, &g->nodes);
    return rewrite(&m);
}
