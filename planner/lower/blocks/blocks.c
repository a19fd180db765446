/* Finds runs of equal blocks. Two blocks are equal if they have the same ops with the same
 * attributes, shapes and layouts. The ids of tensors, nodes and units in the two blocks may differ
 * only by constants. Names and modules are not compared. */
#include <string.h>

#include "planner/lower/blocks/blocks.h"

/* True if the difference of the numbers x and y equals the difference of y and z. */
static bool in_step(uint32_t x, uint32_t y, uint32_t z)
{
    return z - y == y - x;
}

static bool same_tensor(const Lower *l, TensorId a, TensorId b)
{
    const Tensor *x = &l->g->tensors.at[a], *y = &l->g->tensors.at[b];
    return x->role == y->role && x->dtype == y->dtype && x->n_dims == y->n_dims &&
           memcmp(x->dim, y->dim, sizeof x->dim) == 0 &&
           memcmp(x->deal, y->deal, sizeof x->deal) == 0 &&
           memcmp(&x->use, &y->use, sizeof x->use) == 0 &&
           memcmp(&x->kept, &y->kept, sizeof x->kept) == 0 && !x->grad == !y->grad &&
           !x->grad_of == !y->grad_of && !x->unit == !y->unit && x->rest_dtype == y->rest_dtype &&
           x->reduce_dtype == y->reduce_dtype && x->order == y->order &&
           x->order_dim == y->order_dim && x->flat_offset == y->flat_offset &&
           x->partial == y->partial && x->frozen == y->frozen &&
           l->value.keep[a] == l->value.keep[b];
}

static bool same_sizes(const Lower *l, UnitId a, UnitId b)
{
    const Unit *x = &l->g->units.at[a], *y = &l->g->units.at[b];
    return x->params.n == y->params.n && x->shard == y->shard && x->replicate == y->replicate &&
           x->elements == y->elements && x->padded == y->padded && x->dtype == y->dtype &&
           x->rest_dtype == y->rest_dtype && x->reduce_dtype == y->reduce_dtype &&
           x->state_dtype == y->state_dtype && unit_is_root(l->job, a) == unit_is_root(l->job, b);
}

bool blocks_same_gather(const Lower *l, UnitId a, UnitId b)
{
    const Unit *x = &l->g->units.at[a], *y = &l->g->units.at[b];
    if (!same_sizes(l, a, b)) return false;
    for (uint32_t i = 0; i < x->params.n; i++)
        if (!same_tensor(l, x->params.at[i], y->params.at[i])) return false;
    return true;
}

static bool same_unit(const Lower *l, UnitId a, UnitId b)
{
    if (a == b) return true;
    return same_sizes(l, a, b) && l->unit.is_last[a] == l->unit.is_last[b] &&
           l->unit.sums_pieces[a] == l->unit.sums_pieces[b] &&
           l->unit.is_mixed[a] == l->unit.is_mixed[b] &&
           !l->unit.last_forward[a] == !l->unit.last_forward[b] &&
           !l->unit.last_backward[a] == !l->unit.last_backward[b];
}

/* True if the ids of the three units, and of their parameters, increase by equal differences. */
static bool units_in_step(const Lower *l, UnitId a, UnitId b, UnitId c)
{
    const Unit *x = &l->g->units.at[a], *y = &l->g->units.at[b], *z = &l->g->units.at[c];
    if (!in_step(a, b, c)) return false;
    for (uint32_t i = 0; a != b && i < x->params.n; i++)
        if (!in_step(x->params.at[i], y->params.at[i], z->params.at[i])) return false;
    return true;
}

static bool is_param(const Lower *l, TensorId t)
{
    return l->g->tensors.at[t].role == ROLE_param;
}

static bool same_node(const Lower *l, NodeId a, NodeId b)
{
    const Node *x = &l->g->nodes.at[a], *y = &l->g->nodes.at[b];
    if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out || x->keep != y->keep ||
        x->attrs != y->attrs || x->stage != y->stage || x->tile || y->tile ||
        !x->region != !y->region || !x->forward != !y->forward ||
        memcmp(x->split, y->split, sizeof x->split) != 0 ||
        l->value.again[a] != l->value.again[b] || l->value.workspace[a] != l->value.workspace[b] ||
        !l->unit.forward_ends[a] != !l->unit.forward_ends[b] ||
        !l->unit.backward_ends[a] != !l->unit.backward_ends[b])
        return false;
    for (uint32_t j = 0; j < x->n_out; j++)
        if (!same_tensor(l, x->out[j], y->out[j])) return false;
    for (uint32_t i = 0; i < x->n_in; i++) {
        const TensorId s = x->in[i], t = y->in[i];
        if (l->g->tensors.at[s].role != l->g->tensors.at[t].role) return false;
        if (!is_param(l, s)) continue;
        if (!same_tensor(l, s, t)) return false;
        if (!same_unit(l, l->g->tensors.at[s].unit, l->g->tensors.at[t].unit)) return false;
    }
    return true;
}

static bool tensors_in_step(const Lower *l, TensorId a, TensorId b, TensorId c)
{
    const Tensor *x = &l->g->tensors.at[a], *y = &l->g->tensors.at[b], *z = &l->g->tensors.at[c];
    return in_step(a, b, c) && in_step(x->grad, y->grad, z->grad) &&
           in_step(x->grad_of, y->grad_of, z->grad_of) &&
           in_step(x->producer, y->producer, z->producer) && in_step(x->unit, y->unit, z->unit);
}

/* True if the units in the lists of nodes a, b and c increase by equal differences. The lists are
 * l->unit.forward_ends or l->unit.backward_ends. */
static bool ends_in_step(const UnitId *first, const UnitId *next, NodeId a, NodeId b, NodeId c)
{
    UnitId x = first[a], y = first[b], z = first[c];
    for (; x && y && z; x = next[x], y = next[y], z = next[z])
        if (!in_step(x, y, z)) return false;
    return !x && !y && !z;
}

static bool nodes_in_step(const Lower *l, NodeId a, NodeId b, NodeId c)
{
    const Node *x = &l->g->nodes.at[a], *y = &l->g->nodes.at[b], *z = &l->g->nodes.at[c];
    if (!in_step(x->region, y->region, z->region) || !in_step(x->forward, y->forward, z->forward))
        return false;
    for (uint32_t j = 0; j < x->n_out; j++)
        if (!tensors_in_step(l, x->out[j], y->out[j], z->out[j])) return false;
    for (uint32_t i = 0; i < x->n_in; i++) {
        if (!tensors_in_step(l, x->in[i], y->in[i], z->in[i])) return false;
        if (is_param(l, x->in[i]) &&
            !units_in_step(l, l->g->tensors.at[x->in[i]].unit, l->g->tensors.at[y->in[i]].unit,
                           l->g->tensors.at[z->in[i]].unit))
            return false;
    }
    return ends_in_step(l->unit.forward_ends, l->unit.next_forward_end, a, b, c) &&
           ends_in_step(l->unit.backward_ends, l->unit.next_backward_end, a, b, c);
}

/* True if the block that begins at `b` continues a run whose last block begins at `a`. `before` is
 * the block before `a` in the run, or 0 if `a` is the first. */
static bool follows(const Lower *l, NodeId before, NodeId a, NodeId b, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        if (!same_node(l, a + i, b + i)) return false;
        if (before && !nodes_in_step(l, before + i, a + i, b + i)) return false;
    }
    return true;
}

/* Returns the first node after the block that begins at `id`. */
static NodeId block_end(const Graph *g, NodeId id, NodeId end)
{
    const Node *first = &g->nodes.at[id];
    while (id < end && g->nodes.at[id].layer == first->layer &&
           g->nodes.at[id].stage == first->stage)
        id++;
    return id;
}

static void add_run(Lower *l, BlockRun run)
{
    NodeId least = UINT32_MAX, most = 0;
    for (NodeId id = run.first; id < run.first + run.length; id++) {
        const NodeId forward = id <= l->g->n_forward ? id : l->g->nodes.at[id].forward;
        if (forward && forward < least) least = forward;
        if (forward > most) most = forward;
    }
    if (run.n < BLOCKS_LEAST || !most) return;
    const NodeId next = run.first + run.length;
    run.forward = least;
    run.forward_length = most + 1 - least;
    run.forward_step = run.length;
    for (NodeId id = run.first; id < next && run.first > l->g->n_forward; id++)
        if (l->g->nodes.at[id].forward)
            run.forward_step = l->g->nodes.at[id + run.length].forward - l->g->nodes.at[id].forward;
    list_push(l->scratch, &l->blocks, run);
}

static bool in_block(const Lower *l, NodeId id, uint32_t stage)
{
    return l->g->nodes.at[id].layer && l->g->nodes.at[id].stage == stage;
}

/* Returns the number of blocks among the nodes [first, end). */
static uint32_t count_blocks(const Graph *g, NodeId first, NodeId end)
{
    uint32_t n = 0;
    for (NodeId id = first; id < end; id = block_end(g, id, end)) n++;
    return n;
}

/* Finds the runs among the nodes [first, end) of a stage. */
static void find_between(Lower *l, uint32_t stage, NodeId first, NodeId end)
{
    BlockRun run = {.n = 0};
    NodeId before = 0, newest = 0; /* the two newest blocks of the run */
    if (count_blocks(l->g, first, end) < BLOCKS_LEAST) return;
    for (NodeId id = first, next; id < end; id = next) {
        next = block_end(l->g, id, end);
        const uint32_t length = next - id;
        const bool may = in_block(l, id, stage) && run.n > 0 && length == run.length;
        if (may && follows(l, before, newest, id, length)) {
            run.n++;
            before = newest;
            newest = id;
            continue;
        }
        if (run.n > 0) add_run(l, run);
        /* the last block of the old run may be the first block of the next run */
        const bool pair = may && run.n > 1 && follows(l, 0, newest, id, length);
        run = (BlockRun){.first = pair ? newest : id, .length = length, .n = pair ? 2 : 1};
        before = pair ? newest : 0;
        newest = id;
        if (!in_block(l, id, stage)) run.n = 0;
    }
    if (run.n > 0) add_run(l, run);
}

void blocks_find(Lower *l)
{
    l->blocks.n = 0;
    if (l->value.any_around || l->unit.takes_turns || l->job->options.every_block) return;
    for (uint32_t stage = 0; stage < l->job->pipe.schedule->n_stages; stage++)
        for (int backward = 0; backward < 2 && lower_is_mine(l, stage); backward++)
            find_between(l, stage, l->stage.first[backward][stage], l->stage.end[backward][stage]);
}
