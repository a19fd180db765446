/* Computes a step with many micro-batches from a plan with few, the short plan.
 *
 * The short plan is compiled, verified, given offsets and simulated like any plan. A micro-batch
 * that it lacks would do the same as one that it has. So what is proven about it holds for the long
 * plan by induction, and sim/period.c checks that times repeat. With a pipeline, times need not
 * repeat: then the long plan's programs are built by repeating parts of the short ones
 * (plan_expand), and simulated. If the short plan's offsets repeat, the long plan reuses them
 * (shorter.h). Tests compare short and long plans.
 */
#include "planner/lower/expand.h"
#include "planner/lower/memory/shorter.h"
#include "session/session.h"

uint32_t session_microbatches(const Config *c)
{
    return (uint32_t)(c->global_batch / (c->micro_batch * config_data_ranks(c)));
}

void session_set_microbatches(Config *c, Graph *graph, uint32_t n, Arena *arena)
{
    c->global_batch = c->micro_batch * config_data_ranks(c) * n;
    front_set_divisor(c, graph, arena);
}

bool session_settled(const Plan *plan)
{
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (!plan->programs.at[i].repeats) return false;
    return true;
}

/* True if the script defines the pipeline's schedule itself. Its order may then depend on the
 * number of micro-batches in any way. */
static bool has_own_order(const Config *c)
{
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == PASS_pp && c->passes[i].pp.is_own) return true;
    return false;
}

uint32_t session_fewer(const Config *c, bool by_period)
{
    const uint32_t stages = config_ranks(c, axes_with(AXIS_STAGES)), n = session_microbatches(c);
    if (c->cluster.is_local) return 0;
    if (stages > 1 && !by_period) return plan_expands_from(c, n);
    if (stages > 1 && has_own_order(c)) return 0;
    /* rounded up, because some schedules need a multiple of the number of stages */
    const uint32_t piped = (2 * stages + PLAN_BEHIND_FILLING + stages - 1) / stages * stages,
                   few = stages > 1 ? piped : SHORTER_MICROBATCHES;
    return plan_saves_enough(few, n) ? few : 0;
}
