/* Copies the instructions of equal actions. See actions.h. */
#include "planner/lower/blocks/actions.h"

#include <assert.h>

enum {
    /* The first micro-batches differ from the others, and so does the last one. In a shorter step,
     * comparing costs more than copying saves. */
    LEAST_MICROBATCHES = 4,
    MOST_UNUSABLE = 3 /* so many actions of a stage are tried as originals */
};

typedef struct ActionCopier {
    StageItems *items;  /* [stage]: only for stages of this rank */
    Original *original; /* [stage * ACTION_COUNT + kind] */
    Counterparts buffers, versions;
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
}

void actions_prepare(Lower *l)
{
    const uint32_t n_stages = l->job->pipe.schedule->n_stages;
    l->actions = NULL;
    if (l->n_microbatches < LEAST_MICROBATCHES || l->job->options.every_block) return;
    /* these write to buffers that earlier actions have made */
    if (l->value.any_around || l->unit.takes_turns || l->job->sharding.gathers_bytes) return;
    l->actions = arena_alloc(l->scratch, sizeof *l->actions);
    l->actions->items = arena_array(l->scratch, n_stages, sizeof *l->actions->items);
    l->actions->original =
        arena_array(l->scratch, (size_t)n_stages * ACTION_COUNT, sizeof *l->actions->original);
    for (uint32_t stage = 0; stage < n_stages; stage++)
        if (lower_is_mine(l, stage)) find_items(l, stage, &l->actions->items[stage]);
}

/* ---- copies */

/* Where the items of an original lie, and where those of its copy lie. */
typedef struct ActionMove {
    const Original *p;
    const ActionCopier *a;
    BufferId buffers, to_buffers;
    uint32_t versions, to_versions;
} ActionMove;

/* Returns the buffer that the copy uses in place of buffer b of the original. It may be b itself:
 * buffers of units, and of the whole step, serve all micro-batches. */
static BufferId moved_buffer(const ActionMove *m, BufferId b)
{
    if (b >= m->buffers) return b - m->buffers + m->to_buffers;
    const BufferId other = counterpart_of(&m->a->buffers, b);
    return other ? other : b;
}

static uint32_t moved_version(const ActionMove *m, uint32_t v)
{
    if (v >= m->versions) return v - m->versions + m->to_versions;
    return counterpart_of(&m->a->versions, v);
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
        list_add(l->scratch, &l->emit.access);
    }
}

static void copy_code(Lower *l, const ActionMove *m)
{
    static const Pc no_waits[4];
    const Pc first = m->p->first_code, end = m->p->end_code;
    list_reserve(l->arena, &l->p->code, end - first);
    list_reserve(l->scratch, &l->emit.clocks, end - first);
    for (Pc pc = first; pc < end; pc++) {
        Instr in;
        memcpy(&in, &l->p->code.at[pc], sizeof in); /* with its padding: repeat.c compares words */
        BufferId arg[MAX_ARGS];
        for (uint32_t i = 0; i < in.args.n; i++)
            arg[i] = moved_buffer(m, l->p->args.at[in.args.first + i]);
        in.microbatch = l->microbatch;
        if (in.match) in.match = l->emit.match++;
        lower_append(l, &in, arg, no_waits);
    }
    if (l->job->options.n_copied) *l->job->options.n_copied += end - first;
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

static void copy_state(Lower *l, const StageItems *items, const ActionMove *m)
{
    const Original *p = m->p;
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const TensorId t = items->tensors.at[i];
        l->value.versions_of[t] = moved_version(m, p->versions_of[i]);
        l->grad.of[t] = p->grads[i];
        l->grad.of[t].sums = moved_version(m, p->grads[i].sums);
        l->grad.arrived[t] += p->arrived[i];
    }
    for (uint32_t i = 0; i < items->units.n; i++)
        l->unit.of[items->units.at[i]].n_contributions -= p->used[i];
    l->scalar.n_losses += p->n_losses;
    l->value.first_had[l->microbatch] = p->first_had;
    l->value.end_had[l->microbatch] = p->end_had;
}

bool actions_copy(Lower *l, uint32_t stage, ActionKind kind)
{
    ActionCopier *a = l->actions;
    if (!a) return false;
    Original *p = &a->original[stage * ACTION_COUNT + kind];
    const StageItems *items = &a->items[stage];
    if (p->is_usable && original_matches(l, items, p, &a->buffers, &a->versions)) {
        const ActionMove m = {.p = p,
                              .a = a,
                              .buffers = p->first_buffer,
                              .to_buffers = l->p->buffers.n,
                              .versions = p->first_version,
                              .to_versions = l->value.versions.n};
        copy_buffers(l, &m);
        copy_code(l, &m);
        copy_versions(l, &m);
        copy_state(l, items, &m);
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
