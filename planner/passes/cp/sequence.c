/* How a sequence is divided over the ranks of cp and, with sequence parallelism, of tp. */
#include "planner/passes/pass.h"

DealId sequence_deal(const Job *job, uint32_t parts)
{
    const Deals *deals = &job->plan->graph.deals;
    const uint32_t n = deals->deals.at[job->context.seq_deal].n_parts;
    if (!job->context.seq_deal || parts == 1) return 0;
    /* neighbouring parts of a zigzag join into two chunks, so fewer parts are a zigzag again */
    if (parts < n) return deal_zigzag(&job->plan->graph.deals, job->arena, job->config->seq, parts);
    if (parts == n) return job->context.seq_deal;
    return deal_cut(&job->plan->graph.deals, job->arena, job->context.seq_deal, parts / n);
}

void sequence_fit(const Job *job, Tensor *t)
{
    const Shape s = {.n_dims = t->n_dims, .layout = t->use};
    for (int d = 0; d < t->n_dims && job->context.seq_deal; d++)
        if (job->plan->graph.deals.deals.at[t->deal[d]].kind == DEAL_listed)
            t->deal[d] = sequence_deal(job, shape_parts(&s, &job->plan->mesh, d));
}

static uint32_t least_multiple(uint32_t a, uint32_t b)
{
    uint32_t m = a;
    while (m % b != 0) m += a;
    return m;
}

uint32_t cp_parts(const Job *job, uint32_t ranks)
{
    if (pass_config(job, PASS_cp)->cp.mode == CP_all_to_all || ranks == 1) return ranks;
    const PassConfig *tp = pass_config(job, PASS_tp);
    const bool both = tp && (tp->tp.sequence || tp->tp.plan.n);
    return least_multiple(2 * ranks, both ? ranks * pass_ranks(job->config, PASS_tp) : 1);
}
