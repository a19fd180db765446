/* Copies the instructions of equal actions. See actions.h. */
#include "planner/lower/blocks/actions.h"

#include <assert.h>

enum {
    /* The first micro-batch differs from the others. So the third is the first that can equal an
     * earlier one. */
    LEAST_MICROBATCHES = 3,
    /* Copying equal blocks costs less than copying an action. So in a program with equal blocks,
     * copies of actions save something only if most micro-batches are equal. */
    LEAST_WITH_BLOCKS = 6,
    MOST_UNUSABLE =
        3 /* after this many unusable originals of one stage and kind, no more are tried */
};

typedef struct ActionCopier {
    StageItems *items;  /* [stage]: only for stages of this rank */
    Original *original; /* [stage * ACTION_COUNT + kind] */
    Moves moves;
} ActionCopier;

/* ---- the items of a stage */

static void add_tensor(Lower *l, StageItems *items, TensorId t, bool *has_tensor, bool *has_unit)
{
    if (!t || has_tensor[t]) return;
    has_tensor[t] = true;
    list_push(l->scratch, &items->tensors, t);
    const Tensor *at = &l->g->tensors.at[t];
    const UnitId u = at->role == ROLE_param ? at->unit : 0;
    if (u && !has_unit[u]) list_push(l->scratch, &items->units, u);
    if (u) has_unit[u] = true;
    add_tensor(l, items, at->grad_of, has_tensor, has_unit);
}

static void add_node(Lower *l, StageItems *items, const Node *n, bool *has_tensor, bool *has_unit)
{
    for (uint32_t i = 0; i < n->n_in; i++) add_tensor(l, items, n->in[i], has_tensor, has_unit);
    for (uint32_t j = 0; j < n->n_out; j++) add_tensor(l, items, n->out[j], has_tensor, has_unit);
}

/* Adds all parameters of the units of this stage, and then the other units of this rank. */
static void add_units(Lower *l, StageItems *items, bool *has_tensor, bool *has_unit)
{
    for (uint32_t i = 0; i < items->units.n; i++) {
        const Unit *unit = &l->g->units.at[items->units.at[i]];
        for (uint32_t k = 0; k < unit->params.n; k++)
            add_tensor(l, items, unit->params.at[k], has_tensor, has_unit);
    }
    for (UnitId u = 1; u < l->g->units.n; u++)
        if (!has_unit[u] && lower_unit_is_mine(l, u)) list_push(l->scratch, &items->units, u);
}

static void list_params(Lower *l, StageItems *items)
{
    uint32_t *place = arena_array(l->scratch, l->g->units.n, sizeof *place);
    for (uint32_t i = 0; i < items->units.n; i++) place[items->units.at[i]] = i;
    for (uint32_t k = 0; k < items->tensors.n; k++) {
        const Tensor *t = &l->g->tensors.at[items->tensors.at[k]];
        const ParamItem param = {k, place[t->unit]};
        if (t->role == ROLE_param && t->unit) list_push(l->scratch, &items->params, param);
    }
}

static void find_items(Lower *l, uint32_t stage, StageItems *items)
{
    bool *has_tensor = arena_array(l->scratch, l->g->tensors.n, sizeof *has_tensor);
    bool *has_unit = arena_array(l->scratch, l->g->units.n, sizeof *has_unit);
    for (int backward = 0; backward < 2; backward++)
        for (NodeId id = l->stage.first[backward][stage]; id < l->stage.end[backward][stage]; id++)
            if (l->g->nodes.at[id].stage == stage)
                add_node(l, items, &l->g->nodes.at[id], has_tensor, has_unit);
    /* a stage reads its own part of the batch, which a node of another stage makes */
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const Tensor *t = &l->g->tensors.at[items->tensors.at[i]];
        if (t->role == ROLE_input)
            add_node(l, items, &l->g->nodes.at[t->producer], has_tensor, has_unit);
    }
    add_units(l, items, has_tensor, has_unit);
    list_params(l, items);
}

void actions_prepare(Lower *l)
{
    const uint32_t n_stages = l->job->pipe.schedule->n_stages;
    l->actions = NULL;
    const uint32_t least = l->blocks.n > 0 ? LEAST_WITH_BLOCKS : LEAST_MICROBATCHES;
    if (l->n_microbatches < least || l->job->options.every_block) return;
    l->actions = arena_alloc(l->scratch, sizeof *l->actions);
    l->actions->items = arena_array(l->scratch, n_stages, sizeof *l->actions->items);
    l->actions->original =
        arena_array(l->scratch, (size_t)n_stages * ACTION_COUNT, sizeof *l->actions->original);
    for (uint32_t stage = 0; stage < n_stages; stage++)
        if (lower_is_mine(l, stage)) find_items(l, stage, &l->actions->items[stage]);
}

/* ---- copies */

/* The first buffer, version and instruction of an original, and those of its copy. */
typedef struct ActionMove {
    const Original *p;
    const Moves *moves;
    BufferId buffers, to_buffers;
    uint32_t versions, to_versions;
    Pc code, to_code;
} ActionMove;

/* Returns the buffer that the copy uses in place of buffer b of the original. It may be b itself:
 * buffers of units, and of the whole step, serve all micro-batches. */
static BufferId moved_buffer(const ActionMove *m, BufferId b)
{
    if (b >= m->buffers) return b - m->buffers + m->to_buffers;
    const BufferId other = counterpart_of(&m->moves->buffers, b);
    return other ? other : b;
}

static uint32_t moved_version(const ActionMove *m, uint32_t v)
{
    if (v >= m->versions) return v - m->versions + m->to_versions;
    return counterpart_of(&m->moves->versions, v);
}

static Pc moved_pc(const ActionMove *m, Pc pc)
{
    if (pc >= m->code) return pc - m->code + m->to_code;
    Pc to = 0;
    const bool known = moves_pc(m->moves, pc, &to);
    assert(known); /* original_matches has found a counterpart for each of them */
    (void)known;
    return to;
}

static void copy_buffers(Lower *l, const ActionMove *m)
{
    const uint32_t n = m->p->end_buffers - m->buffers;
    list_reserve(l->arena, &l->p->buffers, n);
    list_reserve(l->scratch, &l->emit.access, n);
    for (BufferId b = m->buffers; b < m->p->end_buffers; b++) {
        Buffer made = l->p->buffers.at[b];
        made.microbatch = l->microbatch;
        made.parent = moved_buffer(m, made.parent);
        list_push(l->arena, &l->p->buffers, made);
        access_clear(&l->emit.access.at[l->emit.access.n++]);
    }
}

static void copy_code(Lower *l, const ActionMove *m)
{
    const Pc end = m->p->end_code;
    const uint32_t launch = m->p->start.numbers.counters.launch, to_launch = l->emit.launch;
    uint32_t next = m->p->first_named;
    list_reserve(l->arena, &l->p->code, end - m->code);
    list_reserve(l->scratch, &l->emit.clocks, end - m->code);
    for (Pc pc = m->code; pc < end; pc++) {
        Instr in;
        memcpy(&in, &l->p->code.at[pc],
               sizeof in); /* also copies padding; repeat.c compares words */
        BufferId arg[MAX_ARGS];
        for (uint32_t i = 0; i < in.args.n; i++)
            arg[i] = moved_buffer(m, l->p->args.at[in.args.first + i]);
        in.microbatch = l->microbatch;
        if (in.match) in.match = l->emit.match++;
        if (in.launch) in.launch += to_launch - launch;
        Pc after[4] = {0};
        if (next < m->p->end_named && l->emit.named.at[next].pc == pc) {
            const NamedWaits named = l->emit.named.at[next++];
            for (int k = 0; k < 4; k++) after[k] = moved_pc(m, named.after[k]);
            if (in.stream == STREAM_compute) l->emit.compute_waits = moved_pc(m, named.compute);
        }
        lower_append(l, &in, arg, after);
    }
    if (l->job->options.n_copied) *l->job->options.n_copied += end - m->code;
}

static void copy_versions(Lower *l, const ActionMove *m)
{
    list_reserve_none(l->scratch, &l->value.versions);
    for (uint32_t i = 0; i < m->p->versions.n; i++) {
        Version v = m->p->versions.at[i];
        v.buffer = moved_buffer(m, v.buffer);
        v.rows = v.rows ? moved_buffer(m, v.rows) : 0;
        v.next = moved_version(m, v.next);
        list_push(l->scratch, &l->value.versions, v);
    }
    for (uint32_t i = 0; i < m->p->shares.n; i++) {
        const SharedGrad *s = &m->p->shares.at[i];
        lower_add_share(l, moved_buffer(m, s->buffer), s->tensor);
    }
}

static void copy_tensors(Lower *l, const StageItems *items, const ActionMove *m)
{
    for (uint32_t i = 0; i < m->p->changed.n; i++) {
        const TensorEnd *end = &m->p->changed.at[i];
        const TensorId t = items->tensors.at[end->i];
        const TensorState *start = &m->p->start.of[end->i];
        l->value.versions_of[t] = moved_version(m, end->versions_of);
        l->grad.of[t] = end->grad;
        l->grad.of[t].sums = moved_version(m, end->grad.sums);
        l->grad.arrived[t] += end->arrived;
        if (end->weight_view != start->weight_view)
            l->unit.weight_view[t] = moved_buffer(m, end->weight_view);
        if (end->grad_view != start->grad_view)
            l->unit.grad_view[t] = moved_buffer(m, end->grad_view);
    }
}

static void copy_units(Lower *l, const StageItems *items, const ActionMove *m)
{
    for (uint32_t i = 0; i < items->units.n; i++) {
        UnitState *now = &l->unit.of[items->units.at[i]];
        const UnitState *start = &m->p->start.unit[i], *end = &m->p->unit[i];
        now->gathered = moved_buffer(m, end->gathered);
        now->kept = moved_buffer(m, end->kept);
        now->full_grad = moved_buffer(m, end->full_grad);
        now->reduced = moved_pc(m, end->reduced);
        now->n_contributions += end->n_contributions - start->n_contributions;
        now->n_reduced += end->n_reduced - start->n_reduced;
        now->begun = end->begun;
        now->copied = end->copied;
    }
}

/* Sets the members of the state that are single numbers to their values after the copied action.
 * `before` has their values before it. */
static void copy_numbers(Lower *l, const ActionMove *m, const Numbers *before)
{
    const Numbers *start = &m->p->start.numbers, *end = &m->p->numbers;
    Counters now = before->counters;
#define MOVE_pc(name)         now.name = moved_pc(m, end->counters.name);
#define MOVE_send(name)       now.name = end->counters.name;
#define MOVE_number(name)     now.name += end->counters.name - start->counters.name;
#define X(name, member, kind) MOVE_##kind(name)
    COUNTERS(X)
#undef X
    l->unit.pending.n = 0;
    for (uint32_t i = 0; i < end->fixed.n_pending; i++) {
        const bool last = end->fixed.last >> (end->fixed.n_pending - 1 - i) & 1;
        const Pending pending = {end->counters.pending_unit[i], 0, last};
        now.pending_unit[i] = end->counters.pending_unit[i];
        now.pending_part[i] = moved_buffer(m, end->counters.pending_part[i]);
        list_push(l->scratch, &l->unit.pending, pending);
    }
    steps_set_counters(l, &now);
    l->scalar.n_losses += m->p->n_losses;
    l->value.first_had[l->microbatch] = m->p->first_had;
    l->value.end_had[l->microbatch] = m->p->end_had;
}

static void copy(Lower *l, const StageItems *items, const ActionMove *m)
{
    const Numbers before = original_numbers(l);
    copy_buffers(l, m);
    copy_code(l, m);
    copy_versions(l, m);
    copy_tensors(l, items, m);
    copy_units(l, items, m);
    copy_numbers(l, m, &before);
}

bool actions_copy(Lower *l, uint32_t stage, ActionKind kind)
{
    ActionCopier *a = l->actions;
    if (!a) return false;
    Original *p = &a->original[stage * ACTION_COUNT + kind];
    const StageItems *items = &a->items[stage];
    if (p->is_usable && original_matches(l, items, p, &a->moves)) {
        const ActionMove m = {.p = p,
                              .moves = &a->moves,
                              .buffers = p->first_buffer,
                              .to_buffers = l->p->buffers.n,
                              .versions = p->first_version,
                              .to_versions = l->value.versions.n,
                              .code = p->first_code,
                              .to_code = l->p->code.n};
        copy(l, items, &m);
        return true;
    }
    if (p->n_unusable < MOST_UNUSABLE) original_begin(l, items, p);
    return false;
}

void actions_end(Lower *l, uint32_t stage, ActionKind kind)
{
    if (!l->actions) return;
    Original *p = &l->actions->original[stage * ACTION_COUNT + kind];
    if (p->n_unusable < MOST_UNUSABLE) original_end(l, &l->actions->items[stage], p);
}
