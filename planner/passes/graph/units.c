/* Groups parameters into units, each with one flat buffer (Unit in graph.h). fsdp2 makes a unit of
 * each block, and a root unit of the rest; ddp makes buckets. Without a data pass, all parameters
 * of a pipeline rank form one unit, which is whole on every data rank; experts and frozen
 * parameters have units of their own. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

ModuleId unit_module(const Job *job, ModuleId module)
{
    for (ModuleId m = module; m; m = job->plan->graph.modules.at[m].parent)
        if (job->sharding.is_unit && job->sharding.is_unit[m]) return m;
    return 0;
}

bool unit_is_root(const Job *job, UnitId unit)
{
    const Graph *g = &job->plan->graph;
    return unit_module(job, g->tensors.at[g->units.at[unit].params.at[0]].module) == 0;
}

UnitId unit_new(Job *job, const char *name, AxisSet shard, AxisSet replicate)
{
    Graph *g = &job->plan->graph;
    list_reserve_none(job->arena, &g->units);
    UnitId id = (UnitId)list_add(job->arena, &g->units);
    g->units.at[id].name = name;
    g->units.at[id].shard = shard;
    g->units.at[id].replicate = replicate;
    return id;
}

void unit_take(Job *job, UnitId unit, TensorId param)
{
    Graph *g = &job->plan->graph;
    Tensor *t = &g->tensors.at[param];
    assert(t->role == ROLE_param);
    assert(t->unit == 0);
    t->unit = unit;
    Unit *u = &g->units.at[unit];
    u->dtype = t->dtype;
    u->rest_dtype = t->rest_dtype;
    u->reduce_dtype = t->reduce_dtype;
    list_push(job->arena, &u->params, param);
}

uint32_t param_rank(const Job *job, TensorId param)
{
    uint32_t stage = job->pipe.stage_of_param[param];
    return stage == UINT32_MAX ? 0 : job->pipe.schedule->rank_of[stage];
}

uint32_t param_second_rank(const Job *job, TensorId param)
{
    uint32_t stage = job->pipe.tied_stage[param];
    return stage == UINT32_MAX ? UINT32_MAX : job->pipe.schedule->rank_of[stage];
}

AxisSet own_axes(const Job *job, TensorId param)
{
    const Tensor *t = &job->plan->graph.tensors.at[param];
    return (AxisSet)(layout_axes_split(&t->use, -1) & job->data_axes);
}

/* ---- frozen parameters ---- */

/* True if every data rank stores all frozen parameters. ZeRO-1 and ZeRO-2 shard only gradients and
 * optimizer state, and frozen parameters have neither. */
static bool stays_whole(const Job *job)
{
    const PassConfig *zero = pass_config(job, PASS_zero);
    return !pass_config(job, PASS_freeze)->freeze.shard ||
           (zero != NULL && zero->zero.strategy != ZERO_optim_grads_params);
}

/* Sets the dtype of a frozen unit between steps: that of freeze { dtype }, or else the dtype in
 * which ops use it, because parameters that are not trained need no copy of higher precision. */
static void settle(const Job *job, Unit *u)
{
    Graph *g = &job->plan->graph;
    const DType named = pass_config(job, PASS_freeze)->freeze.dtype;
    u->rest_dtype = named ? named : g->tensors.at[u->params.at[0]].dtype;
    for (uint32_t i = 0; i < u->params.n; i++)
        g->tensors.at[u->params.at[i]].rest_dtype = u->rest_dtype;
    if (!stays_whole(job)) return;
    /* never gathered, because every rank has all of it */
    u->dtype = g->tensors.at[u->params.at[0]].dtype;
    u->replicate = (AxisSet)(u->replicate | u->shard);
    u->shard = 0;
}

/* Moves the frozen parameters of unit `id` to a new unit, and returns that. Returns `id` if all its
 * parameters are frozen; 0 if none is. */
static UnitId separate(Job *job, UnitId id)
{
    Graph *g = &job->plan->graph;
    const Unit was = g->units.at[id];
    uint32_t n_frozen = 0;
    for (uint32_t i = 0; i < was.params.n; i++) n_frozen += g->tensors.at[was.params.at[i]].frozen;
    if (n_frozen == 0) return 0;
    if (n_frozen == was.params.n) return id;
    const char *name = arena_print(job->arena, "%s, frozen", was.name);
    const UnitId own = unit_new(job, name, was.shard, was.replicate);
    Unit kept = was;
    memset(&kept.params, 0, sizeof kept.params);
    for (uint32_t i = 0; i < was.params.n; i++) {
        const TensorId t = was.params.at[i];
        if (g->tensors.at[t].frozen)
            g->tensors.at[t].unit = 0, unit_take(job, own, t);
        else
            list_push(job->arena, &kept.params, t);
    }
    g->units.at[own].dtype = was.dtype;
    g->units.at[id] = kept;
    return own;
}

/* Gives frozen parameters units of their own, without trained parameters. */
static void units_of_frozen(Job *job)
{
    const UnitId n = job->plan->graph.units.n;
    if (!pass_config(job, PASS_freeze)) return;
    for (UnitId u = 1; u < n; u++) {
        const UnitId frozen = separate(job, u);
        if (frozen) settle(job, &job->plan->graph.units.at[frozen]);
    }
}

/* ---- all other parameters ---- */

static const char *name_of(const Graph *g, TensorId param, AxisSet split)
{
    if (split) return "experts";
    return g->tensors.at[param].frozen ? "frozen parameters" : "parameters";
}

bool pass_units(Job *job)
{
    Graph *g = &job->plan->graph;
    UnitId *rest = arena_array(job->scratch, job->pipe.schedule->n_ranks, sizeof *rest);
    UnitId *experts = arena_array(job->scratch, job->pipe.schedule->n_ranks, sizeof *experts);
    UnitId *frozen = arena_array(job->scratch, job->pipe.schedule->n_ranks, sizeof *frozen);
    list_reserve_none(job->arena, &g->units);
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param || g->tensors.at[t].unit) continue;
        const AxisSet split = own_axes(job, t);
        UnitId own = 0, *mine = &(split ? experts : rest)[param_rank(job, t)];
        if (g->tensors.at[t].frozen && !split) mine = &frozen[param_rank(job, t)];
        if (param_second_rank(job, t) != UINT32_MAX) mine = &own;
        if (!*mine)
            *mine = unit_new(job, name_of(g, t, split), 0, (AxisSet)(job->data_axes & ~split));
        unit_take(job, *mine, t);
    }
    units_of_frozen(job);
    return true;
}
