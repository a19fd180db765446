/* Makes units: groups of parameters that share a flat buffer. fsdp2 makes one for each block and a
 * root unit; ddp makes buckets. Without a data pass, all parameters join one unit that is whole on
 * every rank. */
#include <assert.h>

#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

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
