/* Units: which parameters share a flat buffer. fsdp2 makes one a block and a root, ddp makes
 * buckets; whatever is left (no data pass) joins one unit that is whole on every rank. */
#include <assert.h>

#include "planner/passes/pass.h"

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

bool pass_units(Job *job)
{
    Graph *g = &job->plan->graph;
    UnitId rest = 0;
    list_reserve_none(job->arena, &g->units);
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param || g->tensors.at[t].unit) continue;
        if (!rest) rest = unit_new(job, "parameters", 0, job->data_axes);
        unit_take(job, rest, t);
    }
    return true;
}
