/* Makes one program for each pipeline rank from a graph with layouts. The schedule of the rank
 * lists its actions. Each action lowers the nodes of one stage for one micro-batch. */
#include <assert.h>
#include <string.h>

#include "planner/lower/blocks/actions.h"
#include "planner/lower/blocks/blocks.h"

/* True if the next stage is on the same rank and reads t, so that t needs no transfer. */
static bool is_read_next(const Lower *l, uint32_t stage, TensorId t)
{
    if (stage + 1 == l->job->pipe.schedule->n_stages || !lower_is_mine(l, stage + 1)) return false;
    for (uint32_t i = 0; i < l->stage.crossing[stage].n; i++)
        if (l->stage.crossing[stage].at[i] == t) return true;
    return false;
}

/* Returns the output of an attention in the layout in which it was computed, or 0. The gradient of
 * attention reads this layout, even if the output was converted to another layout directly
 * afterwards. */
static BufferId as_made(Lower *l, TensorId t)
{
    const NodeId id = l->g->tensors.at[t].producer;
    const Node *n = &l->g->nodes.at[id];
    if (!op_mixes_tokens(n->op) || !l->job->context.heads_axes || n->out[0] != t) return 0;
    return lower_find_version(l, t, lower_arg_layout(l, id, n->n_in));
}

/* After the forward pass of a stage, keeps only the tensors that the backward pass needs. */
static void end_forward(Lower *l, uint32_t stage)
{
    const TensorId first = l->value.first_had[l->microbatch], end = l->value.end_had[l->microbatch];
    for (TensorId t = first; t < end; t++) {
        const Tensor *at = &l->g->tensors.at[t];
        if (!l->value.versions_of[t] || at->role == ROLE_gradient) continue;
        uint32_t made = l->g->nodes.at[at->producer].stage;
        if (at->role == ROLE_activation && made != stage && made + 1 != stage)
            continue; /* the tensor belongs to another stage of this rank */
        if (!l->value.keep[t] && made == stage && is_read_next(l, stage, t)) continue;
        if (!l->value.keep[t]) {
            l->value.versions_of[t] = 0;
        } else if (!l->job->tp.keep_gathered) {
            Layout use = at->use;
            const BufferId own = as_made(l, t);
            BufferId kept = lower_find_version(l, t, &use);
            if (!kept) kept = lower_find_strided(l, t);
            assert(kept);
            const uint32_t all = l->value.versions_of[t];
            l->value.versions_of[t] = 0;
            for (uint32_t i = all; l->job->keep_halos && i; i = l->value.versions.at[i].next) {
                const Version held = l->value.versions.at[i];
                if (!held.around) continue;
                lower_add_version(l, t, held.buffer);
                l->value.versions.at[l->value.versions_of[t]].rows = held.rows;
            }
            lower_add_version(l, t, kept);
            if (own && own != kept) lower_add_version(l, t, own);
        }
    }
}

static void lower_gradient(Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    const bool makes_value = l->g->tensors.at[n->out[0]].role == ROLE_activation;
    if (n->op == OP_pass || makes_value) lower_end_returns(l);
    if (n->op == OP_pass)
        lower_pass_node(l, id);
    else if (makes_value)
        lower_cast_node(l, id);
    else
        lower_backward_node(l, id);
}

/* Returns the next node to lower. repeat_before may first copy the instructions of some blocks,
 * which are then skipped. */
static NodeId next_node(Lower *l, ActionWalk *w)
{
    const NodeId id = lower_next(l, w);
    if (!id || (w->kind != ACTION_F && w->kind != ACTION_B)) return id;
    const NodeId next = repeat_before(l, id);
    if (next == id) return id;
    w->id = next - 1;
    return lower_next(l, w);
}

static void forward_nodes(Lower *l, uint32_t stage)
{
    ActionWalk walk = {.kind = ACTION_F, .stage = stage};
    if (actions_copy(l, stage, ACTION_F)) return;
    repeat_start(l);
    for (NodeId id; (id = next_node(l, &walk)) != 0;) {
        l->phase = id <= l->g->n_forward ? PHASE_forward : PHASE_backward;
        if (lower_done_by_gather(l, id)) continue;
        if (l->phase == PHASE_forward)
            lower_forward_node(l, id);
        else
            lower_gradient(l, id);
        lower_after_node(l, id);
    }
    lower_end_returns(l);
    actions_end(l, stage, ACTION_F);
}

static void lower_forward(Lower *l, uint32_t stage, uint32_t end, Pc before)
{
    forward_nodes(l, stage);
    l->phase = PHASE_forward;
    l->stage.receive_after = before;
    lower_transfers(l, end);
    end_forward(l, stage);
}

/* True for a node that only computes gradients of parameters, and for a transpose directly before
 * such a node. */
static bool is_weight_gradient(const Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    if (op_info(n->op)->flags & OP_TURNS && n->in[0] != l->g->nodes.at[id - 1].out[0]) {
        while (op_info(n->op)->flags & OP_TURNS) n++;
    }
    for (uint32_t j = 0; j < n->n_out; j++) {
        TensorId of = l->g->tensors.at[n->out[j]].grad_of;
        if (l->g->tensors.at[of].role != ROLE_param) return false;
    }
    return op_info(n->op)->class_ == OP_CLASS_contract;
}

static void lower_backward(Lower *l, uint32_t stage, ActionKind kind)
{
    ActionWalk walk = {.kind = kind, .stage = stage};
    l->phase = PHASE_backward;
    if (actions_copy(l, stage, kind)) return;
    repeat_start(l);
    for (NodeId id; (id = next_node(l, &walk)) != 0;) {
        if (kind != ACTION_B && is_weight_gradient(l, id) != (kind == ACTION_W)) continue;
        lower_gradient(l, id);
        if (kind != ACTION_W) lower_after_node(l, id);
    }
    lower_end_returns(l);
    actions_end(l, stage, kind);
}

static uint32_t end_of(const Schedule *s, const Action *a)
{
    uint32_t at = a->stage * s->n_microbatches + a->microbatch;
    return a->kind == ACTION_F ? s->forward_end[at] : s->backward_end[at];
}

/* Limits the memory of messages by two rules. A receive that is issued after action k waits for the
 * end of action k - 1. Action k waits until the messages that were sent before action k - 1 have
 * left. In the simulated schedule, these messages have left by then. So transfers still run during
 * actions, and no instruction waits for later work. */
static void lower_actions(Lower *l)
{
    const Schedule *s = l->job->pipe.schedule;
    const Actions *actions = &s->of[l->stage.rank];
    uint32_t in_flight = 0;
    Pc newest = 0, sent[2] = {0, 0};
    lower_plan_transfers(l);
    for (uint32_t i = 0; i < actions->n; i++) {
        const Action *a = &actions->at[i];
        uint32_t end = end_of(s, a);
        lower_select(l, a->microbatch);
        if (in_flight == 0 && a->kind == ACTION_F) l->grad.shared.n = 0;
        memcpy(l->emit.send_waits, sent, sizeof sent);
        memcpy(sent, l->stage.newest_send, sizeof sent);
        if (a->kind != ACTION_W) lower_transfers(l, end - (a->kind == ACTION_B ? 2 : 1));
        const Pc before = newest;
        if (a->kind == ACTION_F)
            lower_forward(l, a->stage, end, before);
        else
            lower_backward(l, a->stage, a->kind);
        l->stage.receive_after = before;
        newest = l->emit.stream_end[STREAM_compute];
        if (a->kind != ACTION_W) lower_transfers(l, end);
        in_flight += a->kind == ACTION_F;
        in_flight -= a->kind == ACTION_B || a->kind == ACTION_W;
    }
    lower_transfers(l, UINT32_MAX);
    lower_reduce_last(l);
    lower_flush_pending(l, 0);
}

/* Allocates the states of gradients, which all programs use, one after the other. */
static void allocate_gradients(Lower *l)
{
    const uint32_t n = l->n_microbatches;
    l->grad.by_microbatch = arena_array(l->scratch, n, sizeof *l->grad.by_microbatch);
    for (uint32_t m = 0; m < n; m++)
        l->grad.by_microbatch[m] = arena_array(l->scratch, l->value.tensor_room, sizeof(GradState));
}

/* Clears the states of gradients for the next program. A program changes few of them, so this is
 * faster than to clear all. */
static void clear_gradients(Lower *l)
{
    const TensorId first = l->grad.first, n = l->grad.end - first;
    for (uint32_t m = 0; m < l->n_microbatches; m++)
        memset(l->grad.by_microbatch[m] + first, 0, n * sizeof(GradState));
}

static void allocate(Lower *l)
{
    uint32_t n_tensors = l->value.tensor_room, n_units = l->g->units.n;
    list_reserve_none(l->arena, &l->p->code);
    list_reserve_none(l->arena, &l->p->buffers);
    list_reserve_none(l->scratch, &l->emit.clocks);
    list_reserve_none(l->scratch, &l->emit.access);
    l->value.by_microbatch =
        arena_array(l->scratch, l->n_microbatches, sizeof *l->value.by_microbatch);
    l->value.first_had = arena_array(l->scratch, l->n_microbatches, sizeof(TensorId));
    l->value.end_had = arena_array(l->scratch, l->n_microbatches, sizeof(TensorId));
    for (uint32_t m = 0; m < l->n_microbatches; m++)
        l->value.by_microbatch[m] = arena_array(l->scratch, n_tensors, sizeof(uint32_t));
    l->grad.arrived = arena_array(l->scratch, n_tensors, sizeof *l->grad.arrived);
    l->value.of_step = arena_array(l->scratch, n_tensors, sizeof *l->value.of_step);
    l->unit.maximum = arena_array(l->scratch, n_tensors, sizeof *l->unit.maximum);
    l->unit.weight_view = arena_array(l->scratch, n_tensors, sizeof *l->unit.weight_view);
    l->unit.grad_view = arena_array(l->scratch, n_tensors, sizeof *l->unit.grad_view);
    l->unit.of = arena_array(l->scratch, n_units, sizeof *l->unit.of);
    l->unit.last_forward = arena_array(l->scratch, n_units, sizeof *l->unit.last_forward);
    l->unit.last_backward = arena_array(l->scratch, n_units, sizeof *l->unit.last_backward);
    l->unit.is_last = arena_array(l->scratch, n_units, sizeof *l->unit.is_last);
    l->unit.sums_pieces = arena_array(l->scratch, n_units, sizeof *l->unit.sums_pieces);
    l->unit.is_mixed = arena_array(l->scratch, n_units, sizeof *l->unit.is_mixed);
}

static void lower_program(Lower *l)
{
    Shape scalar = {.n_dims = 0};
    allocate(l);
    lower_select(l, 0);
    l->scalar.loss = lower_buffer(l, &scalar, DT_f64, CATEGORY_state);
    l->scalar.loss_sum = lower_buffer(l, &scalar, DT_f64, CATEGORY_state);
    l->scalar.count = lower_buffer(l, &scalar, DT_f64, CATEGORY_state);
    l->p->buffers.at[l->scalar.loss].persistent = true;
    l->p->buffers.at[l->scalar.loss].tensor = l->g->loss;
    l->phase = PHASE_start;
    lower_find_mixed(l);
    lower_units_start(l);
    lower_maxima(l);
    lower_find_layouts(l);
    lower_find_kept(l);
    lower_plan_uses(l);
    lower_count_contributions(l);
    blocks_find(l);
    repeat_prepare(l);
    actions_prepare(l);
    lower_actions(l);
    l->microbatch = l->n_microbatches - 1;
    l->phase = PHASE_update;
    lower_update(l);
}

/* Allocates memory for a program as long as `before`, the program of the previous stage. If
 * `before` is NULL, allocates two instructions for each node and micro-batch. Without this, lists
 * would be copied each time they grow; unused memory costs nothing. */
static void reserve(Lower *l, const Program *before)
{
    const uint32_t nodes = (l->g->nodes.n / l->job->pipe.schedule->n_ranks + 1) * l->n_microbatches;
    Program like = {.code.n = 2 * nodes, .args.n = 6 * nodes, .after.n = 2 * nodes};
    like.buffers.n = 3 * nodes;
    if (before != NULL) like = *before;
    const uint32_t code = like.code.n + like.code.n / 16;
    const uint32_t buffers = like.buffers.n + like.buffers.n / 16;
    list_reserve(l->arena, &l->p->code, code);
    list_reserve(l->arena, &l->p->args, like.args.n + like.args.n / 16);
    list_reserve(l->arena, &l->p->after, like.after.n + like.after.n / 16);
    list_reserve(l->arena, &l->p->buffers, buffers);
    list_reserve(l->scratch, &l->emit.clocks, code);
    list_reserve(l->scratch, &l->emit.access, buffers);
}

bool pass_lower(Job *job)
{
    Plan *plan = job->plan;
    Lower first = {.job = job,
                   .plan = plan,
                   .g = &plan->graph,
                   .arena = job->arena,
                   .scratch = job->scratch,
                   .n_microbatches = plan->step.n_microbatches,
                   .stage.pipe = mesh_axes_of(&plan->mesh, axes_with(AXIS_STAGES)),
                   .value.tensor_room = plan->graph.tensors.n,
                   .emit.match = 1};
    lower_find_crossing(&first);
    lower_find_stages(&first);
    allocate_gradients(&first);
    Arena *scratch = arena_new(); /* memory for this program only; data that all programs use are in
                                     job->scratch */
    for (uint32_t r = 0; r < job->pipe.schedule->n_ranks; r++)
        list_add(job->arena, &plan->programs);
    for (uint32_t r = 0; r < job->pipe.schedule->n_ranks; r++) {
        Lower l = first;
        l.stage.rank = r;
        l.scratch = scratch;
        l.p = &plan->programs.at[r];
        reserve(&l, r > 0 ? l.p - 1 : NULL);
        l.p->purpose = PURPOSE_train;
        l.p->stage = r;
        lower_program(&l);
        clear_gradients(&l);
        first.emit.match = l.emit.match;
        first.value.arg_layouts = l.value.arg_layouts;
        first.value.arg_first = l.value.arg_first;
        first.value.around = l.value.around;
        first.value.any_around = l.value.any_around;
        first.value.workspace = l.value.workspace;
        first.value.keep = l.value.keep;
        first.value.again = l.value.again;
        arena_reset(scratch);
    }
    arena_free(scratch);
    plan->n_match = first.emit.match;
    plan->program_of = arena_array(job->arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    for (Rank rank = 0; rank < plan->mesh.n_ranks; rank++)
        plan->program_of[rank] = mesh_part(&plan->mesh, rank, first.stage.pipe);
    return true;
}
