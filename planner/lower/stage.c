/* Messages between pipeline stages: activations in the forward direction, and gradients in the
 * backward direction. Each tensor of each micro-batch is one send and one receive. Its layout does
 * not change, so a rank exchanges data only with the rank that has the same coordinates in the
 * other stage. A message is due at the time at which its value is complete in the simulated
 * schedule. Both ranks issue messages in the order of these times, and messages of equal time are
 * launched together. The earliest unfinished message depends only on earlier messages, so it can
 * always run. Therefore no deadlock is possible. */
#include <assert.h>
#include <stdlib.h>

#include "planner/lower/lower.h"

/* True if t is in the list of tensors that `stage` sends to the next stage. */
static bool is_crossing(const Lower *l, uint32_t stage, TensorId t)
{
    for (uint32_t i = 0; i < l->stage.crossing[stage].n; i++)
        if (l->stage.crossing[stage].at[i] == t) return true;
    return false;
}

static bool has_tied(const Lower *l)
{
    for (TensorId t = 1; t < l->g->tensors.n; t++)
        if (l->g->tensors.at[t].role == ROLE_param && param_second_rank(l->job, t) != UINT32_MAX)
            return true;
    return false;
}

/* Lists the tensors that each stage sends to the next. Also assigns the match numbers that both
 * ends of a message use, and the match numbers of scalars of all stages. */
void lower_find_crossing(Lower *l)
{
    const Graph *g = l->g;
    uint32_t n_stages = l->job->pipe.schedule->n_stages;
    l->stage.crossing = arena_array(l->scratch, n_stages, sizeof *l->stage.crossing);
    for (NodeId id = 1; id <= g->n_forward; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            const Tensor *t = &g->tensors.at[n->in[i]];
            if (t->role != ROLE_activation) continue;
            uint32_t made = g->nodes.at[t->producer].stage;
            if (made == n->stage || is_crossing(l, made, n->in[i])) continue;
            assert(made + 1 == n->stage);
            list_push(l->scratch, &l->stage.crossing[made], n->in[i]);
            if (l->stage.crossing[made].n > l->stage.most_crossing)
                l->stage.most_crossing = l->stage.crossing[made].n;
        }
    }
    l->stage.first_tied_match = l->emit.match;
    l->stage.has_tied = has_tied(l);
    if (l->stage.has_tied) l->emit.match += 2 * (uint32_t)g->units.n;
    l->stage.first_p2p_match = l->emit.match;
    l->emit.match += n_stages * l->stage.most_crossing * l->n_microbatches * 2;
    l->scalar.match = l->emit.match;
    if (l->stage.pipe) l->emit.match += lower_n_scalars(l);
}

static uint32_t match_of(const Lower *l, uint32_t stage, uint32_t i, bool backward)
{
    uint32_t pair = (stage * l->stage.most_crossing + i) * l->n_microbatches + l->microbatch;
    return l->stage.first_p2p_match + pair * 2 + backward;
}

static int32_t hop_to(const Lower *l, uint32_t stage)
{
    return (int32_t)l->job->pipe.schedule->rank_of[stage] - (int32_t)l->stage.rank;
}

static Stream stream_of(bool backward)
{
    return backward ? STREAM_pp_backward : STREAM_pp_forward;
}

static void emit_send(Lower *l, BufferId from, uint32_t to_stage, uint32_t match, bool backward,
                      NodeId origin)
{
    Emit e = {.op = OP_send,
              .launch = l->stage.transfer_launch,
              .stream = stream_of(backward),
              .axes = l->stage.pipe,
              .hop = hop_to(l, to_stage),
              .match = match,
              .origin = origin,
              .n_in = 1,
              .arg = {from}};
    l->stage.newest_send[backward] = lower_emit(l, &e);
}

static BufferId emit_receive(Lower *l, TensorId t, uint32_t from_stage, uint32_t match,
                             bool backward, NodeId origin)
{
    const Tensor *at = &l->g->tensors.at[t];
    Shape s = lower_value(l, at, &at->use);
    BufferId out = lower_buffer(l, &s, lower_dtype(l, at->dtype), CATEGORY_activation);
    l->p->buffers.at[out].tensor = t;
    Emit e = {.op = OP_recv,
              .launch = l->stage.transfer_launch,
              .stream = stream_of(backward),
              .axes = l->stage.pipe,
              .hop = hop_to(l, from_stage),
              .match = match,
              .origin = origin,
              .n_out = 1,
              .arg = {out},
              .after = {l->stage.receive_after}};
    lower_emit(l, &e);
    return out;
}

static bool same_rank(const Lower *l, uint32_t a, uint32_t b)
{
    return l->job->pipe.schedule->rank_of[a] == l->job->pipe.schedule->rank_of[b];
}

static void receive_forward(Lower *l, uint32_t from, uint32_t i)
{
    TensorId t = l->stage.crossing[from].at[i];
    NodeId origin = l->g->tensors.at[t].producer;
    lower_add_version(l, t, emit_receive(l, t, from, match_of(l, from, i, false), false, origin));
}

static void send_forward(Lower *l, uint32_t from, uint32_t i)
{
    TensorId t = l->stage.crossing[from].at[i];
    NodeId origin = l->g->tensors.at[t].producer;
    BufferId b = lower_want(l, t, &l->g->tensors.at[t].use, origin);
    emit_send(l, b, from + 1, match_of(l, from, i, false), false, origin);
}

static void receive_backward(Lower *l, uint32_t to, uint32_t i, TensorId grad)
{
    NodeId origin = l->g->tensors.at[grad].producer;
    lower_grad_received(l, grad,
                        emit_receive(l, grad, to + 1, match_of(l, to, i, true), true, origin));
}

static void send_backward(Lower *l, uint32_t to, uint32_t i, TensorId grad)
{
    NodeId origin = l->g->tensors.at[grad].producer;
    BufferId from = lower_want(l, grad, &l->g->tensors.at[grad].use, origin);
    l->grad.of[grad].n_uses--;
    emit_send(l, from, to, match_of(l, to, i, true), true, origin);
}

/* Returns the number of tensors in this message. A tensor without a gradient is not part of a
 * backward message. */
static uint32_t n_crossing(const Lower *l, const StageTransfer *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->stage.crossing[t->stage].n; i++)
        n += !t->backward || l->g->tensors.at[l->stage.crossing[t->stage].at[i]].grad;
    return n;
}

void lower_select(Lower *l, uint32_t microbatch)
{
    l->microbatch = microbatch;
    l->value.versions_of = l->value.by_microbatch[microbatch];
    l->grad.of = l->grad.by_microbatch[microbatch];
}

static void lower_transfer(Lower *l, const StageTransfer *t)
{
    Phase phase = l->phase;
    uint32_t microbatch = l->microbatch;
    lower_select(l, t->microbatch);
    l->phase = t->backward ? PHASE_backward : PHASE_forward;
    for (uint32_t i = 0; i < l->stage.crossing[t->stage].n; i++) {
        TensorId grad = l->g->tensors.at[l->stage.crossing[t->stage].at[i]].grad;
        if (!t->backward && t->is_send) send_forward(l, t->stage, i);
        if (!t->backward && !t->is_send) receive_forward(l, t->stage, i);
        if (t->backward && grad && t->is_send) send_backward(l, t->stage, i, grad);
        if (t->backward && grad && !t->is_send) receive_backward(l, t->stage, i, grad);
    }
    l->phase = phase;
    lower_select(l, microbatch);
}

static int by_time(const void *x, const void *y)
{
    const StageTransfer *a = x, *b = y;
    uint32_t p[] = {a->when, a->backward, a->stage, a->microbatch},
             q[] = {b->when, b->backward, b->stage, b->microbatch};
    for (int k = 0; k < 4; k++)
        if (p[k] != q[k]) return p[k] < q[k] ? -1 : 1;
    return 0;
}

/* Lists the messages of this rank in the order in which it issues them. */
void lower_plan_transfers(Lower *l)
{
    const Schedule *s = l->job->pipe.schedule;
    l->stage.transfers.n = l->stage.next_transfer = 0;
    for (uint32_t stage = 0; stage + 1 < s->n_stages; stage++) {
        bool here = lower_is_mine(l, stage), there = lower_is_mine(l, stage + 1);
        if (here == there) continue;
        assert(!same_rank(l, stage, stage + 1));
        for (uint32_t mb = 0; mb < s->n_microbatches; mb++) {
            uint32_t from = stage * s->n_microbatches + mb, to = from + s->n_microbatches;
            StageTransfer out = {s->forward_end[from], stage, mb, false, here},
                          back = {s->backward_end[to], stage, mb, true, there};
            if (n_crossing(l, &out)) list_push(l->scratch, &l->stage.transfers, out);
            if (n_crossing(l, &back)) list_push(l->scratch, &l->stage.transfers, back);
        }
    }
    if (l->stage.transfers.n)
        qsort(l->stage.transfers.at, l->stage.transfers.n, sizeof(StageTransfer), by_time);
}

/* Emits the messages whose values are complete at time `when` of the simulated schedule. */
void lower_transfers(Lower *l, uint32_t when)
{
    while (l->stage.next_transfer < l->stage.transfers.n &&
           l->stage.transfers.at[l->stage.next_transfer].when <= when) {
        const StageTransfer *first = &l->stage.transfers.at[l->stage.next_transfer];
        uint32_t end = l->stage.next_transfer, n = 0;
        while (end < l->stage.transfers.n && l->stage.transfers.at[end].when == first->when &&
               l->stage.transfers.at[end].backward == first->backward)
            n += n_crossing(l, &l->stage.transfers.at[end++]);
        l->stage.transfer_launch = n > 1 ? ++l->emit.launch : 0;
        while (l->stage.next_transfer < end)
            lower_transfer(l, &l->stage.transfers.at[l->stage.next_transfer++]);
    }
}
