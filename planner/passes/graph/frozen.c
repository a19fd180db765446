/* Units of frozen parameters. These units hold no trained parameters, and have the dtype in which
 * the parameters are used. */
#include <string.h>

#include "planner/passes/pass.h"

/* True if the frozen parameters of a unit are whole on every data rank. ZeRO-1 and ZeRO-2 shard
 * only gradients and the state of the optimizer, and frozen parameters have neither. */
static bool stays_whole(const Job *job)
{
    const PassConfig *zero = pass_config(job, PASS_zero);
    return !pass_config(job, PASS_freeze)->freeze.shard ||
           (zero != NULL && zero->zero.strategy != ZERO_optim_grads_params);
}

/* Sets the dtype of a frozen unit between steps: the option's dtype. Without the option it is the
 * dtype of use, because parameters that are not trained need no copy in higher precision. */
static void settle(const Job *job, Unit *u)
{
    Graph *g = &job->plan->graph;
    const DType named = pass_config(job, PASS_freeze)->freeze.dtype;
    u->rest_dtype = named ? named : g->tensors.at[u->params.at[0]].dtype;
    for (uint32_t i = 0; i < u->params.n; i++)
        g->tensors.at[u->params.at[i]].rest_dtype = u->rest_dtype;
    if (!stays_whole(job)) return;
    u->dtype = g->tensors.at[u->params.at[0]].dtype; /* every rank has the whole unit, so it is
                                                        never gathered */
    u->replicate = (AxisSet)(u->replicate | u->shard);
    u->shard = 0;
}

/* Moves the frozen parameters of a unit to a new unit, and returns the new unit. Returns the old
 * unit if all its parameters are frozen, and 0 if none is. */
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

void units_of_frozen(Job *job)
{
    const UnitId n = job->plan->graph.units.n;
    if (!pass_config(job, PASS_freeze)) return;
    for (UnitId u = 1; u < n; u++) {
        const UnitId frozen = separate(job, u);
        if (frozen) settle(job, &job->plan->graph.units.at[frozen]);
    }
}
