/* Decisions before the program is written. They are the layout of every argument, the tensors that
 * are kept for the backward pass, the order in which a rank uses units, and the number of
 * contributions to each gradient. */
#include <assert.h>
#include <string.h>

#include "planner/ir/op/bound.h"
#include "planner/lower/lower.h"

bool lower_is_mine(const Lower *l, uint32_t stage)
{
    return l->job->pipe.schedule->rank_of[stage] == l->stage.rank;
}

bool lower_unit_is_mine(const Lower *l, UnitId u)
{
    TensorId first = l->g->units.at[u].params.at[0];
    return param_rank(l->job, first) == l->stage.rank ||
           param_second_rank(l->job, first) == l->stage.rank;
}

static TensorId node_arg(const Node *n, uint32_t arg)
{
    return arg < n->n_in ? n->in[arg] : n->out[arg - n->n_in];
}

static uint64_t find_workspace(const Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    uint32_t n_args = (uint32_t)n->n_in + n->n_out;
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
    if (!l->job->options.workspace) return 0;
    for (uint32_t arg = 0; arg < n_args; arg++) {
        const Tensor *t = &l->g->tensors.at[node_arg(n, arg)];
        Shape s = lower_arg_shape(l, id, arg);
        bool of_param = graph_is_param_gradient(l->g, t);
        UnitId u = of_param ? l->g->tensors.at[t->grad_of].unit : 0;
        dtype[arg] = lower_dtype(l, of_param ? lower_grad_dtype(l, u) : t->dtype);
        elements[arg] = shape_local_elements(&s, &l->plan->mesh, &l->g->deals);
    }
    return l->job->options.workspace(lower_rings(l, id) ? op_part(n->op) : n->op, dtype, elements,
                                     n_args);
}

/* Finds the layouts of all nodes. */
void lower_find_layouts(Lower *l)
{
    uint32_t n_args = 0;
    if (l->value.arg_first) { /* the program of an earlier stage has found the layouts of the whole
                                 graph */
        for (NodeId id = 1; id < l->g->nodes.n && l->job->options.workspace; id++)
            l->value.workspace[id] = find_workspace(l, id);
        return;
    }
    l->value.arg_first = arena_array(l->job->scratch, l->g->nodes.n, sizeof *l->value.arg_first);
    l->value.workspace = arena_array(l->job->scratch, l->g->nodes.n, sizeof *l->value.workspace);
    for (NodeId id = 1; id < l->g->nodes.n; id++) {
        l->value.arg_first[id] = n_args;
        n_args += (uint32_t)l->g->nodes.at[id].n_in + l->g->nodes.at[id].n_out;
    }
    l->value.arg_layouts = arena_array(l->job->scratch, n_args, sizeof *l->value.arg_layouts);
    l->value.around = arena_array(l->job->scratch, n_args, sizeof *l->value.around);
    for (NodeId id = 1; id < l->g->nodes.n; id++) {
        const Node *n = &l->g->nodes.at[id];
        Binding own;
        const Binding *b = graph_bound(l->g, n, &own, l->job->diag);
        assert(b != NULL); /* check_graph has bound every node */
        for (uint32_t arg = 0; arg < (uint32_t)n->n_in + n->n_out; arg++)
            for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
                l->value.arg_layouts[l->value.arg_first[id] + arg].on[a] =
                    op_axis_layout(n->op, b, arg, n->split[a]);
        if (lower_rings(l, id)) lower_ring_layouts(l, id);
        lower_find_halos(l, id, b);
        l->value.workspace[id] = find_workspace(l, id);
    }
}

/* ---- the order of nodes ---- */

/* True for the last forward node of a piece of tokens. The backward nodes of the piece follow it
 * directly. */
static bool ends_piece(const Graph *g, NodeId id)
{
    uint32_t tile = g->nodes.at[id].tile;
    return tile && (id == g->n_forward || g->nodes.at[id + 1].tile != tile);
}

NodeId lower_next(const Lower *l, ActionWalk *w)
{
    const Graph *g = l->g;
    const bool forward = w->kind == ACTION_F;
    if (w->behind == 0) w->behind = g->n_forward;
    if (!forward && w->id == 0) w->id = g->n_forward;
    if (forward && ends_piece(g, w->id) && w->behind + 1 < g->nodes.n &&
        g->nodes.at[w->behind + 1].tile == g->nodes.at[w->id].tile)
        return ++w->behind;
    const NodeId first = l->stage.first[!forward][w->stage], end = l->stage.end[!forward][w->stage];
    for (w->id = w->id + 1 < first ? first : w->id + 1; w->id < end; w->id++) {
        const Node *n = &g->nodes.at[w->id];
        if (n->stage == w->stage && (forward || !n->tile)) return w->id;
    }
    return 0;
}

void lower_find_stages(Lower *l)
{
    const uint32_t n_stages = l->job->pipe.schedule->n_stages;
    for (int backward = 0; backward < 2; backward++) {
        l->stage.first[backward] = arena_array(l->job->scratch, n_stages, sizeof(NodeId));
        l->stage.end[backward] = arena_array(l->job->scratch, n_stages, sizeof(NodeId));
    }
    for (NodeId id = 1; id < l->g->nodes.n; id++) {
        const int backward = id > l->g->n_forward;
        NodeId *first = &l->stage.first[backward][l->g->nodes.at[id].stage];
        NodeId *end = &l->stage.end[backward][l->g->nodes.at[id].stage];
        if (*end == 0) *first = id;
        *end = id + 1;
    }
}

/* Finds units of which some gradients arrive in the forward action (for pieces of tokens) and some
 * in the backward action. If two forward actions may follow each other, gradients of several
 * micro-batches mix. They also mix if the backward pass is split into two actions. */
void lower_find_mixed(Lower *l)
{
    const Graph *g = l->g;
    const Actions *actions = &l->job->pipe.schedule->of[l->stage.rank];
    const uint32_t last = l->job->pipe.schedule->n_stages - 1;
    uint32_t in_flight = 0, most = 0;
    bool *others = arena_array(l->scratch, g->units.n, sizeof *others);
    for (uint32_t i = 0; i < actions->n; i++) {
        if (actions->at[i].stage != last) continue;
        in_flight += actions->at[i].kind == ACTION_F;
        in_flight -= actions->at[i].kind == ACTION_B || actions->at[i].kind == ACTION_W;
        if (in_flight > most) most = in_flight;
    }
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t j = 0; j < n->n_out && lower_is_mine(l, n->stage); j++) {
            UnitId u = g->tensors.at[g->tensors.at[n->out[j]].grad_of].unit;
            *(n->tile ? &l->unit.sums_pieces[u] : &others[u]) = true;
        }
    }
    for (UnitId u = 1; u < g->units.n; u++)
        l->unit.is_mixed[u] = most > 1 && l->unit.sums_pieces[u] && others[u];
}

/* ---- what is kept from forward to backward ---- */

static void need_from(Lower *l, bool *needed, TensorId t, ModuleId region)
{
    const Tensor *at = &l->g->tensors.at[t];
    if (at->role != ROLE_activation && at->role != ROLE_input) return;
    /* the node runs once a step, so its result stays valid */
    if (op_info(l->g->nodes.at[at->producer].op)->flags & OP_ONCE) return;
    needed[t] = true;
    if (!graph_is_made_again(l->g, t, region)) l->value.keep[t] = true;
}

void lower_find_kept(Lower *l)
{
    const Graph *g = l->g;
    if (l->value.keep)
        return; /* the program of an earlier stage has found it for the whole graph */
    l->value.keep = arena_array(l->job->scratch, l->value.tensor_room, sizeof *l->value.keep);
    l->value.again = arena_array(l->job->scratch, g->nodes.n, sizeof *l->value.again);
    bool *needed = arena_array(l->scratch, g->tensors.n, sizeof *needed);
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in && !g->nodes.at[id].tile; i++)
            need_from(l, needed, g->nodes.at[id].in[i], g->nodes.at[id].region);
    for (NodeId id = g->n_forward; id > 0;
         id--) { /* backwards, so that inputs of recomputed nodes are found, too */
        const Node *n = &g->nodes.at[id];
        bool again = false;
        for (uint32_t j = 0; j < n->n_out; j++)
            again = again || (needed[n->out[j]] && !l->value.keep[n->out[j]]);
        l->value.again[id] = again && n->region;
        for (uint32_t i = 0; again && i < n->n_in; i++) need_from(l, needed, n->in[i], n->region);
    }
}

/* ---- which nodes read which unit ---- */

static void find_last_readers(Lower *l)
{
    const Graph *g = l->g;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *reader = &g->nodes.at[id > g->n_forward ? g->nodes.at[id].forward : id];
        if (!lower_is_mine(l, reader->stage)) continue;
        for (uint32_t i = 0; i < reader->n_in; i++) {
            TensorId param = graph_weight(g, reader->in[i]);
            if (!param) continue;
            UnitId unit = g->tensors.at[param].unit;
            if (id > g->n_forward && !g->nodes.at[id].tile)
                l->unit.last_backward[unit] = id;
            else
                l->unit.last_forward[unit] = id; /* the node runs in the forward action */
        }
    }
}

/* Lists for each node the units of which it is the last reader in the forward or the backward
 * action. */
static void list_ends(Lower *l)
{
    const uint32_t n_nodes = l->g->nodes.n, n_units = l->g->units.n;
    l->unit.forward_ends = arena_array(l->scratch, n_nodes, sizeof(UnitId));
    l->unit.backward_ends = arena_array(l->scratch, n_nodes, sizeof(UnitId));
    l->unit.next_forward_end = arena_array(l->scratch, n_units, sizeof(UnitId));
    l->unit.next_backward_end = arena_array(l->scratch, n_units, sizeof(UnitId));
    for (UnitId u = n_units; u-- > 1;) {
        if (!l->g->units.at[u].shard) continue;
        UnitId *forward = &l->unit.forward_ends[l->unit.last_forward[u]];
        UnitId *backward = &l->unit.backward_ends[l->unit.last_backward[u]];
        l->unit.next_forward_end[u] = *forward;
        l->unit.next_backward_end[u] = *backward;
        *forward = *backward = u;
    }
}

static uint32_t stage_of(const Lower *l, UnitId u)
{
    TensorId first = l->g->units.at[u].params.at[0];
    bool second = param_second_rank(l->job, first) == l->stage.rank;
    return second ? l->job->pipe.tied_stage[first] : l->job->pipe.stage_of_param[first];
}

static bool is_block(const Lower *l, UnitId u)
{
    if (!u) return false;
    const Tensor *first = &l->g->tensors.at[l->g->units.at[u].params.at[0]];
    return l->g->modules.at[unit_module(l->job, first->module)].layer > 0;
}

/* Returns the module of a unit; 0 for the root unit. */
static ModuleId block_of(const Lower *l, UnitId u)
{
    TensorId first = l->g->units.at[u].params.at[0];
    return unit_module(l->job, l->g->tensors.at[first].module);
}

static void find_last_blocks(Lower *l)
{
    UnitId *last = arena_array(l->scratch, l->job->pipe.schedule->n_stages, sizeof *last);
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!lower_unit_is_mine(l, u) || unit_is_root(l->job, u)) continue;
        UnitId *of_stage = &last[stage_of(l, u)];
        bool later = l->unit.last_forward[u] > l->unit.last_forward[*of_stage];
        bool more = is_block(l, u) && !is_block(l, *of_stage);
        if (!*of_stage || more || (later && is_block(l, u) == is_block(l, *of_stage)))
            *of_stage = u;
    }
    for (uint32_t stage = 0; stage < l->job->pipe.schedule->n_stages; stage++)
        l->unit.is_last[last[stage]] = last[stage] != 0;
    /* the experts of a block are a unit of their own */
    for (UnitId u = 1; u < l->g->units.n; u++) {
        const UnitId block = lower_unit_is_mine(l, u) ? last[stage_of(l, u)] : 0;
        if (block && block_of(l, u) && block_of(l, u) == block_of(l, block))
            l->unit.is_last[u] = true;
    }
}

/* The sharded units that the forward or the backward work of a stage needs, each once, in the order
 * of their first use. The list is the same for all micro-batches. */
typedef struct StageUses {
    LIST(UnitId) units;
    bool known;
} StageUses;

static void find_uses(Lower *l, uint32_t stage, bool backward, StageUses *uses)
{
    const Graph *g = l->g;
    ActionWalk walk = {.kind = backward ? ACTION_B : ACTION_F, .stage = stage};
    bool *listed = arena_array(l->scratch, g->units.n, sizeof *listed);
    uses->known = true;
    for (NodeId id; (id = lower_next(l, &walk)) != 0;) {
        const Node *n = &g->nodes.at[id];
        /* recomputation reads the same inputs as the forward pass */
        bool again = backward && l->value.again[n->forward];
        const Node *reader = &g->nodes.at[again ? n->forward : id];
        for (uint32_t i = 0; i < reader->n_in; i++) {
            TensorId param = graph_weight(g, reader->in[i]);
            if (!param) continue;
            UnitId u = g->tensors.at[param].unit;
            if (g->units.at[u].shard && !listed[u]) list_push(l->scratch, &uses->units, u);
            listed[u] = true;
        }
    }
}

/* Adds to the list of uses those units that an action needs and that are not gathered. If the
 * action ends the use of a unit, marks the unit as not gathered. */
static void plan_action(Lower *l, const Action *a, StageUses *uses, bool *resident)
{
    const Graph *g = l->g;
    bool backward = a->kind != ACTION_F;
    StageUses *own = &uses[2 * a->stage + backward];
    if (!own->known) find_uses(l, a->stage, backward, own);
    for (uint32_t i = 0; i < own->units.n; i++) {
        const UnitId u = own->units.at[i];
        UnitUse use = {u, a->microbatch, backward};
        if (!resident[u]) list_push(l->scratch, &l->unit.uses, use);
        resident[u] = true;
    }
    for (UnitId u = 1; u < g->units.n; u++)
        if ((l->unit.last_backward[u] || l->unit.last_forward[u]) && stage_of(l, u) == a->stage &&
            !(backward && lower_outlives_backward(l, a->microbatch)) &&
            (((backward || !l->unit.last_backward[u]) && !l->job->sharding.resident) ||
             !lower_stays_gathered(l, u)))
            resident[u] = false;
}

void lower_plan_uses(Lower *l)
{
    const Actions *actions = &l->job->pipe.schedule->of[l->stage.rank];
    const uint32_t n_stages = l->job->pipe.schedule->n_stages;
    bool *resident = arena_array(l->scratch, l->g->units.n, sizeof *resident);
    StageUses *uses = arena_array(l->scratch, 2 * (size_t)n_stages, sizeof *uses);
    find_last_readers(l);
    list_ends(l);
    find_last_blocks(l);
    for (uint32_t i = 0; i < actions->n; i++)
        if (actions->at[i].kind != ACTION_W) plan_action(l, &actions->at[i], uses, resident);
}

/* ---- gradients ---- */

static void count_node(Lower *l, const Node *n, GradState *grads)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (l->g->tensors.at[n->in[i]].role == ROLE_gradient) grads[n->in[i]].n_uses++;
    for (uint32_t j = 0; j < n->n_out; j++) grads[n->out[j]].n_expected++;
}

/* Counts, on this rank, the contributions to each gradient in each micro-batch, including those
 * that other stages send. Also counts how often each gradient is read. */
void lower_count_contributions(Lower *l)
{
    const Graph *g = l->g;
    GradState *once = arena_array(l->scratch, l->value.tensor_room, sizeof *once);
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!lower_is_mine(l, n->stage)) continue;
        count_node(l, n, once);
        for (uint32_t j = 0; j < n->n_out; j++) {
            const Tensor *of = &g->tensors.at[g->tensors.at[n->out[j]].grad_of];
            if (tensor_trains(of)) l->unit.of[of->unit].n_per_microbatch++;
        }
    }
    for (uint32_t stage = 0; stage + 1 < l->job->pipe.schedule->n_stages; stage++)
        for (uint32_t i = 0; i < l->stage.crossing[stage].n; i++) {
            TensorId grad = g->tensors.at[l->stage.crossing[stage].at[i]].grad;
            bool here = lower_is_mine(l, stage), there = lower_is_mine(l, stage + 1);
            if (!grad || here == there) continue;
            if (here)
                once[grad].n_expected++;
            else
                once[grad].n_uses++;
        }
    static const GradState none;
    /* the counts of all tensors outside [first, end) are zero */
    TensorId first = 0, end = l->value.tensor_room;
    while (first < end && memcmp(&once[first], &none, sizeof none) == 0) first++;
    while (first < end && memcmp(&once[end - 1], &none, sizeof none) == 0) end--;
    l->grad.first = first;
    l->grad.end = end;
    for (uint32_t m = 0; m < l->n_microbatches; m++)
        memcpy(l->grad.by_microbatch[m] + first, once + first, (end - first) * sizeof *once);
    for (UnitId u = 1; u < g->units.n; u++)
        l->unit.of[u].n_contributions =
            l->unit.of[u].n_per_microbatch * (l->n_microbatches / lower_n_windows(l, u));
}
