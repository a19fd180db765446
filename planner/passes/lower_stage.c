/* What crosses between pipeline stages: activations forward, their gradients backward, one send and
 * one receive a tensor and micro-batch. Layouts stay as they are: each rank talks to its own peer.
 */
#include <assert.h>

#include "planner/passes/lower.h"

static bool holds(const Lower *l, uint32_t stage, TensorId t)
{
    for (uint32_t i = 0; i < l->crossing[stage].n; i++)
        if (l->crossing[stage].at[i] == t) return true;
    return false;
}

/* Also hands out the match numbers that both ends of a boundary, and all stages of a scalar, must
 * share. */
void lower_find_crossing(Lower *l)
{
    const Graph *g = l->g;
    uint32_t n_stages = l->job->schedule->n_stages;
    l->crossing = arena_array(l->scratch, n_stages, sizeof *l->crossing);
    for (NodeId id = 1; id <= g->n_forward; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            const Tensor *t = &g->tensors.at[n->in[i]];
            if (t->role != ROLE_activation) continue;
            uint32_t made = g->nodes.at[t->producer].stage;
            if (made == n->stage || holds(l, made, n->in[i])) continue;
            assert(made + 1 == n->stage);
            list_push(l->scratch, &l->crossing[made], n->in[i]);
            if (l->crossing[made].n > l->most_crossing) l->most_crossing = l->crossing[made].n;
        }
    }
    l->first_p2p_match = l->match;
    l->match += n_stages * l->most_crossing * l->n_microbatches * 2;
    l->scalar_match = l->match;
    if (l->pipe) l->match += lower_n_scalars(l);
}

static uint32_t match_of(const Lower *l, uint32_t stage, uint32_t i, bool backward)
{
    uint32_t pair = (stage * l->most_crossing + i) * l->n_microbatches + l->microbatch;
    return l->first_p2p_match + pair * 2 + backward;
}

static int32_t hop_to(const Lower *l, uint32_t stage)
{
    return (int32_t)l->job->schedule->rank_of[stage] - (int32_t)l->rank;
}

/* Where a rank holds several stages, sends run in a circle: a send and the receives that follow it
 * on its stream start together, or each rank would wait for its neighbour to listen first. */
static uint32_t launch_of(Lower *l, Stream stream, bool is_send)
{
    const Instr *last = &l->p->code.at[l->stream_end[stream]];
    bool circular = l->job->schedule->n_stages > l->job->schedule->n_ranks;
    if (!circular || (!is_send && (!l->stream_end[stream] || !last->launch))) return 0;
    bool joins = l->stream_end[stream] &&
                 (!is_send || (last->op == OP_send && last->microbatch == l->microbatch));
    return joins && last->launch ? last->launch : ++l->launch;
}

static void emit_send(Lower *l, BufferId from, uint32_t to_stage, uint32_t match, bool backward,
                      NodeId origin)
{
    Stream stream = backward ? STREAM_pp_backward : STREAM_pp_forward;
    Emit e = {.op = OP_send,
              .launch = launch_of(l, stream, true),
              .stream = stream,
              .axes = l->pipe,
              .hop = hop_to(l, to_stage),
              .match = match,
              .origin = origin,
              .n_in = 1,
              .arg = {from}};
    lower_emit(l, &e);
}

static BufferId emit_receive(Lower *l, TensorId t, uint32_t from_stage, uint32_t match,
                             bool backward, NodeId origin)
{
    const Tensor *at = &l->g->tensors.at[t];
    Shape s = tensor_shape(at, &at->use);
    BufferId out = lower_buffer(l, &s, lower_dtype(l, at->dtype), CATEGORY_activation);
    l->p->buffers.at[out].tensor = t;
    Stream stream = backward ? STREAM_pp_backward : STREAM_pp_forward;
    Emit e = {.op = OP_recv,
              .launch = launch_of(l, stream, false),
              .stream = stream,
              .axes = l->pipe,
              .hop = hop_to(l, from_stage),
              .match = match,
              .origin = origin,
              .n_out = 1,
              .arg = {out}};
    lower_emit(l, &e);
    return out;
}

static bool same_rank(const Lower *l, uint32_t a, uint32_t b)
{
    return l->job->schedule->rank_of[a] == l->job->schedule->rank_of[b];
}

void lower_receive_forward(Lower *l, uint32_t stage)
{
    if (stage == 0 || same_rank(l, stage - 1, stage)) return;
    for (uint32_t i = 0; i < l->crossing[stage - 1].n; i++) {
        TensorId t = l->crossing[stage - 1].at[i];
        NodeId origin = l->g->tensors.at[t].producer;
        lower_add_version(
            l, t, emit_receive(l, t, stage - 1, match_of(l, stage - 1, i, false), false, origin));
    }
}

void lower_send_forward(Lower *l, uint32_t stage)
{
    if (stage + 1 == l->job->schedule->n_stages || same_rank(l, stage, stage + 1)) return;
    for (uint32_t i = 0; i < l->crossing[stage].n; i++) {
        TensorId t = l->crossing[stage].at[i];
        NodeId origin = l->g->tensors.at[t].producer;
        BufferId from = lower_want(l, t, &l->g->tensors.at[t].use, origin);
        emit_send(l, from, stage + 1, match_of(l, stage, i, false), false, origin);
    }
}

void lower_receive_backward(Lower *l, uint32_t stage)
{
    if (stage + 1 == l->job->schedule->n_stages || same_rank(l, stage, stage + 1)) return;
    for (uint32_t i = 0; i < l->crossing[stage].n; i++) {
        TensorId grad = l->g->tensors.at[l->crossing[stage].at[i]].grad;
        if (!grad) continue;
        NodeId origin = l->g->tensors.at[grad].producer;
        lower_grad_received(
            l, grad, emit_receive(l, grad, stage + 1, match_of(l, stage, i, true), true, origin));
    }
}

void lower_send_backward(Lower *l, uint32_t stage)
{
    if (stage == 0 || same_rank(l, stage - 1, stage)) return;
    for (uint32_t i = 0; i < l->crossing[stage - 1].n; i++) {
        TensorId grad = l->g->tensors.at[l->crossing[stage - 1].at[i]].grad;
        if (!grad) continue;
        NodeId origin = l->g->tensors.at[grad].producer;
        BufferId from = lower_want(l, grad, &l->g->tensors.at[grad].use, origin);
        l->grads[grad].n_uses--;
        emit_send(l, from, stage - 1, match_of(l, stage - 1, i, true), true, origin);
    }
}
