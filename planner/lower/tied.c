/* Sums the gradients of parameters that two pipeline stages share. */
#include "planner/lower/lower.h"

static void exchange_tied(Lower *l, UnitId u, BufferId from, BufferId to)
{
    TensorId first = l->g->units.at[u].params.at[0];
    bool is_second = param_second_rank(l->job, first) == l->stage.rank;
    uint32_t peer = is_second ? param_rank(l->job, first) : param_second_rank(l->job, first);
    Emit e = {.stream = STREAM_pp_backward,
              .launch = l->emit.launch,
              .axes = l->stage.pipe,
              .hop = (int32_t)peer - (int32_t)l->stage.rank,
              .unit = u};
    e.op = OP_send;
    e.match = l->stage.first_tied_match + 2 * u + is_second;
    e.n_in = 1;
    e.arg[0] = from;
    lower_emit(l, &e);
    e.op = OP_recv;
    e.match = l->stage.first_tied_match + 2 * u + !is_second;
    e.n_in = 0;
    e.n_out = 1;
    e.arg[0] = to;
    lower_emit(l, &e);
}

/* Exchanges the gradients of tied parameters between two ranks at the end of the step. Both
 * gradients have been reduced and have the same layout. Each rank adds the other's gradient to its
 * own. A sum of two numbers does not depend on their order, so both ranks make the same update. */
void lower_sum_tied(Lower *l)
{
    BufferId *got = arena_array(l->scratch, l->g->units.n + 1, sizeof *got);
    if (l->stage.has_tied) l->emit.launch++;
    for (UnitId u = 1; u < l->g->units.n; u++) {
        TensorId first = l->g->units.at[u].params.at[0];
        if (!lower_unit_is_mine(l, u) || param_second_rank(l->job, first) == UINT32_MAX ||
            graph_is_frozen(l->g, u))
            continue;
        BufferId grad = l->unit.of[u].grad;
        Shape shape = *lower_shape(l, grad);
        got[u] = lower_buffer(l, &shape, l->p->buffers.at[grad].dtype, CATEGORY_communication);
        l->p->buffers.at[got[u]].unit = u;
        exchange_tied(l, u, grad, got[u]);
    }
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!got[u]) continue;
        Emit e = {.op = OP_pass,
                  .stream = STREAM_compute,
                  .unit = u,
                  .n_in = 1,
                  .n_out = 1,
                  .arg = {got[u], l->unit.of[u].grad}};
        e.attrs.accumulate = 1;
        lower_emit(l, &e);
    }
}
