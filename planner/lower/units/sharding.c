/* Decides when the weights of a unit are gathered, and when its gradients are reduced. It emits no
 * instructions. */
#include "planner/lower/lower.h"

/* True if whole gradients are summed over the micro-batches and reduced only once a step. */
bool lower_defers(const Lower *l, UnitId u)
{
    bool mixed = /* gradients of several micro-batches arrive in a mixed order */
        l->job->pipe.schedule->splits_backward || l->unit.is_mixed[u];
    return !l->g->units.at[u].shard || l->job->sharding.options.defer_grad_sync || mixed;
}

uint32_t lower_n_windows(const Lower *l, UnitId u)
{
    return lower_defers(l, u) ? 1 : l->n_microbatches;
}

bool lower_stays_gathered(const Lower *l, UnitId u)
{
    if (!l->g->units.at[u].shard || l->job->sharding.options.reshard_after_forward == RESHARD_false)
        return true;
    if (l->unit.is_last[u] && !l->job->sharding.options.reshard_last) return true;
    return unit_is_root(l->job, u) && !l->job->sharding.options.reshard_root;
}

bool lower_outlives_backward(const Lower *l, uint32_t microbatch)
{
    return l->job->sharding.options.pipeline_stage && microbatch + 1 < l->n_microbatches;
}

void lower_set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on)
{
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (axes >> a & 1) layout->on[a] = on;
}

Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial)
{
    Shape s = {.n_dims = 1, .dim = {(int64_t)elements}};
    lower_set_axes(l, &s.layout, split, SPLIT(0));
    lower_set_axes(l, &s.layout, partial, PARTIAL_SUM);
    return s;
}
