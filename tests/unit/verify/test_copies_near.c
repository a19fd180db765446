/* Plans that are nearly right. Many equal blocks are changed in the same way. So a shorter plan
 * still exists, and its own proofs have to find the fault. They must give the verdict of proofs of
 * the whole plan. The changes exchange two equal items, refer to an item of another block, or leave
 * one block as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/base/rng.h"
#include "planner/verify/copies/copies.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/sample.h"

enum { MOST_BLOCKS = 32 };

/* The same item in each block, in the order of the blocks. */
typedef struct Chain {
    uint32_t at[MOST_BLOCKS], n;
} Chain;

/* Counts of verdicts about changed plans. */
typedef struct Tally {
    uint64_t seed, n_changes; /* n_changes: changes for each plan and kind of change */
    uint32_t n, n_refused;
    uint32_t n_short;     /* changed plans that still have a shorter plan */
    uint32_t n_short_bad; /* n_short plans that the proofs of the whole plan refuse */
    uint32_t n_by_values; /* n_short_bad plans that proofs of the shorter plan refuse */
} Tally;

static uint64_t draw(Tally *t, uint64_t n)
{
    return n == 0 ? 0 : rng_below(t->seed++, 3, 4, n);
}

/* Returns true if the shorter plan's own proofs refuse it. Proofs that read the whole plan do not
 * run. */
static bool few_is_refused(const Plan *few, Arena *arena)
{
    Diag d = diag_in(arena);
    const uint32_t proofs = VERIFY_all & ~(uint32_t)(VERIFY_races | VERIFY_deadlock);
    return !verify_plan(few, proofs | VERIFY_in_full, false, &d);
}

/* Proves the plan both ways. `what` names the change. */
static void compare(Tally *t, const Plan *plan, const char *what, uint32_t item, uint32_t way)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena), full = diag_in(arena);
    const bool is = verify_plan(plan, VERIFY_all, false, &d);
    const bool should = verify_plan(plan, VERIFY_all | VERIFY_in_full, false, &full);
    if (is != should)
        fail_msg("%s, item %u, way %u: with fewer blocks %d, in full %d", what, item, way, is,
                 should);
    const Plan *few = copies_shorten(plan, arena);
    t->n++;
    t->n_refused += !should;
    t->n_short += few != NULL;
    t->n_short_bad += few != NULL && !should;
    t->n_by_values += few != NULL && !should && few_is_refused(few, arena);
    arena_free(arena);
}

static Chain chain_of(const Items *of, uint32_t item)
{
    Chain c = {.n = 0};
    while (of->down[item]) item = of->down[item];
    for (; item && c.n < MOST_BLOCKS; item = of->up[item]) c.at[c.n++] = item;
    return c;
}

/* Draws the blocks that are changed. The first three ways leave enough equal blocks for a shorter
 * plan. */
static bool is_changed(uint64_t which, uint32_t i, uint32_t n)
{
    switch (which) {
    case 0: return true;
    case 1: return i > 0;
    case 2: return i + 1 < n;
    case 3: return i != n / 2;
    case 4: return i == n / 2;
    case 5: return i >= 2 && i + 2 < n;
    default: return i % 2 == 1;
    }
}
enum { WHICH = 7 };

/* Computes Buffer.first and Buffer.last anew. */
static void set_lives(Program *p)
{
    Buffer *all = p->buffers.at;
    for (BufferId b = 0; b < p->buffers.n; b++) all[b].first = all[b].last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            const BufferId b = program_arg(p, &p->code.at[pc], i);
            Buffer *const used[] = {&all[b], &all[all[b].parent]};
            for (size_t k = 0; k < 1 + (size_t)(all[b].parent != 0); k++) {
                if (!used[k]->first) used[k]->first = pc;
                used[k]->last = pc;
            }
        }
}

/* ---- references ---- */

/* The references of one item to other items. Each has the kind of item to which it refers. */
typedef struct Reference {
    uint32_t *at;
    ItemKind to;
} Reference;
typedef struct References {
    Reference at[MAX_IN + MAX_OUT + MAX_ARGS + 8];
    uint32_t n;
} References;

static void refer(References *r, uint32_t *at, ItemKind to)
{
    r->at[r->n++] = (Reference){at, to};
}

static References references_of(Plan *plan, ItemKind kind, uint32_t item)
{
    References r = {.n = 0};
    Graph *g = &plan->graph;
    Program *p = &plan->programs.at[0];
    if (kind == OF_nodes) {
        Node *n = &g->nodes.at[item];
        for (uint32_t i = 0; i < n->n_in; i++) refer(&r, &n->in[i], OF_tensors);
        for (uint32_t j = 0; j < n->n_out; j++) refer(&r, &n->out[j], OF_tensors);
        refer(&r, &n->forward, OF_nodes);
    } else if (kind == OF_tensors) {
        Tensor *x = &g->tensors.at[item];
        refer(&r, &x->producer, OF_nodes);
        refer(&r, &x->grad, OF_tensors);
        refer(&r, &x->grad_of, OF_tensors);
        refer(&r, &x->unit, OF_units);
    } else if (kind == OF_units) {
        Unit *u = &g->units.at[item];
        for (uint32_t i = 0; i < u->params.n && i < 8; i++) refer(&r, &u->params.at[i], OF_tensors);
    } else if (kind == OF_code) {
        Instr *in = &p->code.at[item];
        for (uint32_t i = 0; i < in->args.n; i++)
            refer(&r, &p->args.at[in->args.first + i], OF_buffers);
        refer(&r, &in->origin, OF_nodes);
        refer(&r, &in->unit, OF_units);
    } else {
        Buffer *b = &p->buffers.at[item];
        refer(&r, &b->parent, OF_buffers);
        refer(&r, &b->tensor, OF_tensors);
        refer(&r, &b->unit, OF_units);
    }
    return r;
}

static uint32_t draw_item(Tally *t, const BlockCopies *b, ItemKind kind, Chain *c)
{
    const uint32_t item = 1 + (uint32_t)draw(t, b->of[kind].n - 1);
    *c = chain_of(&b->of[kind], item);
    return item;
}

/* Lets each changed block refer to an item of another block, `far` blocks further on. In a circle,
 * the last blocks refer to the first. */
static void rotate(Tally *t, const Plan *plan, const BlockCopies *b)
{
    const ItemKind kind = (ItemKind)draw(t, ITEM_KINDS);
    Chain c;
    const uint32_t item = draw_item(t, b, kind, &c);
    const uint64_t which = draw(t, WHICH), circle = draw(t, 2);
    const int far = (int)draw(t, 4) - 2 + (draw(t, 2) != 0);
    if (c.n < 6 || far == 0) return;
    Arena *arena = arena_new();
    Plan *was = mutate_copy(plan, arena), *out = mutate_copy(plan, arena);
    const uint32_t field = (uint32_t)draw(t, references_of(was, kind, item).n);
    bool changed = false;
    for (uint32_t i = 0; i < c.n; i++) {
        const int from = (int)i + far, n = (int)c.n;
        if (!is_changed(which, i, c.n) || (!circle && (from < 0 || from >= n))) continue;
        const References old = references_of(was, kind, c.at[(from + n) % n]),
                         own = references_of(out, kind, c.at[i]);
        if (field >= old.n || field >= own.n) continue;
        changed = changed || *own.at[field].at != *old.at[field].at;
        *own.at[field].at = *old.at[field].at;
    }
    set_lives(&out->programs.at[0]);
    if (changed) compare(t, out, "rotated", item, field);
    arena_free(arena);
}

/* ---- exchanges ---- */

/* Returns true if one item can take the place of the other, by shapes and types. */
static bool is_alike(const Plan *plan, ItemKind kind, uint32_t x, uint32_t y)
{
    if (kind == OF_buffers) {
        const Buffer *a = &plan->programs.at[0].buffers.at[x], *b = a - x + y;
        return a->bytes == b->bytes && a->dtype == b->dtype && a->shape == b->shape;
    }
    if (kind == OF_tensors) {
        const Tensor *a = &plan->graph.tensors.at[x], *b = a - x + y;
        return a->dtype == b->dtype && a->n_dims == b->n_dims && a->role == b->role &&
               memcmp(a->dim, b->dim, sizeof a->dim) == 0;
    }
    return kind == OF_nodes ? plan->graph.nodes.at[x].op == plan->graph.nodes.at[y].op
                            : kind == OF_units;
}

/* Returns another item of the same or the next block that can take this one's place; 0: there is
 * none. */
static uint32_t draw_alike(Tally *t, const Plan *plan, const BlockCopies *b, ItemKind kind,
                           uint32_t x)
{
    const Items *of = &b->of[kind];
    const uint64_t next = draw(t, 4) == 0;
    uint32_t found = 0, n = 0;
    for (uint32_t y = 1; y < of->n; y++)
        if (y != x && of->block[y] == of->block[x] + next && is_alike(plan, kind, x, y) &&
            draw(t, ++n) == 0)
            found = y;
    return found;
}

typedef struct Exchange {
    const BlockCopies *b;
    ItemKind to; /* the kind of the two items */
    Chain x, y;  /* these items in each block */
    uint64_t which;
} Exchange;

/* Exchanges the two items in one item's references. Returns true if a reference changed. */
static bool exchange_in(const Exchange *e, Plan *out, ItemKind kind, uint32_t item, uint32_t field)
{
    bool changed = false;
    const References r = references_of(out, kind, item);
    for (uint32_t i = 0; i < r.n; i++) {
        if (r.at[i].to != e->to || (field != UINT32_MAX && i != field)) continue;
        for (uint32_t k = 0; k < e->x.n && k < e->y.n; k++) {
            if (!is_changed(e->which, k, e->x.n)) continue;
            const uint32_t is = *r.at[i].at, x = e->x.at[k], y = e->y.at[k];
            if (is != x && is != y) continue;
            *r.at[i].at = is == x ? y : x;
            changed = true;
            break;
        }
    }
    return changed;
}

/* Exchanges two equal items of each changed block: in all references, in the references of items of
 * one kind, or in those of one item of each block. */
static void exchange(Tally *t, const Plan *plan, const BlockCopies *b)
{
    static const ItemKind kinds[] = {OF_buffers, OF_buffers, OF_tensors, OF_nodes, OF_units};
    Exchange e = {.b = b, .to = kinds[draw(t, 5)], .which = draw(t, WHICH)};
    const uint32_t x = draw_item(t, b, e.to, &e.x);
    const uint32_t y = b->of[e.to].block[x] ? draw_alike(t, plan, b, e.to, x) : 0;
    if (!y || e.x.n < 6) return;
    e.y = chain_of(&b->of[e.to], y);
    if (e.y.n < e.x.n) e.x.n = e.y.n;
    const uint64_t where = draw(t, 4);
    Arena *arena = arena_new();
    Plan *out = mutate_copy(plan, arena);
    const ItemKind one = (ItemKind)draw(t, ITEM_KINDS);
    Chain users;
    draw_item(t, b, one, &users);
    const uint32_t part = where == 3 ? (uint32_t)draw(t, 6) : UINT32_MAX;
    bool changed = false;
    for (int k = 0; k < ITEM_KINDS; k++)
        for (uint32_t item = 1; item < b->of[k].n; item++) {
            bool wanted = where == 0 || (where == 1 && k == (int)one);
            for (uint32_t i = 0; where >= 2 && k == (int)one && i < users.n; i++)
                wanted = wanted || users.at[i] == item;
            if (wanted && exchange_in(&e, out, (ItemKind)k, item, part)) changed = true;
        }
    set_lives(&out->programs.at[0]);
    if (changed) compare(t, out, "exchanged", x, y);
    arena_free(arena);
}

/* ---- attributes ---- */

/* Gives the nodes of all changed blocks, and their instructions, the same other attributes. */
static void change_attrs(Tally *t, const Plan *plan, const BlockCopies *b)
{
    Chain c;
    const NodeId id = draw_item(t, b, OF_nodes, &c);
    const uint64_t which = draw(t, WHICH), way = draw(t, 5), alone = draw(t, 3);
    if (c.n < 6) return;
    Arena *arena = arena_new();
    Plan *out = mutate_copy(plan, arena);
    Graph *g = &out->graph;
    Program *p = &out->programs.at[0];
    Attrs a = *graph_attrs_at(g, g->nodes.at[id].attrs);
    if (way == 0) a.scale = a.scale == 0 ? 2 : a.scale / 2;
    if (way == 1) a.eps *= 2;
    if (way == 2) a.accumulate ^= 1;
    if (way == 3) a.causal = !a.causal;
    if (way == 4) a.drop = a.drop > 0 ? 0 : 0.5;
    const AttrsId now = (AttrsId)list_push(arena, &g->attrs, a), was = g->nodes.at[id].attrs;
    for (uint32_t i = 0; i < c.n; i++) {
        if (!is_changed(which, i, c.n)) continue;
        if (alone != 1) g->nodes.at[c.at[i]].attrs = now;
        for (Pc pc = 1; pc < p->code.n && alone != 2; pc++)
            if (p->code.at[pc].origin == c.at[i] && p->code.at[pc].attrs == was)
                p->code.at[pc].attrs = now;
    }
    compare(t, out, "attributes", id, (uint32_t)way);
    arena_free(arena);
}

/* ---- a queue of buffers that all blocks use ---- */

static BufferId add_slot(Program *p, BufferId like, Arena *arena)
{
    const BufferId b = (BufferId)list_add(arena, &p->buffers);
    Buffer *own = &p->buffers.at[b];
    memcpy(own, &p->buffers.at[like], sizeof *own); /* this also copies the bytes between fields */
    own->category = CATEGORY_workspace;
    own->tensor = 0;
    own->offset = (p->bytes + 255) / 256 * 256;
    p->bytes = own->offset + own->bytes;
    return b;
}

static void add_pass(Program *p, const Instr *like, BufferId from, BufferId to, Arena *arena)
{
    const Pc pc = (Pc)list_add(arena, &p->code);
    Instr *pass = &p->code.at[pc];
    pass->op = OP_pass, pass->stream = STREAM_compute, pass->phase = like->phase;
    pass->args = (Span){p->args.n, 2}, pass->n_in = 1, pass->origin = like->origin;
    pass->microbatch = like->microbatch;
    list_push(arena, &p->args, from);
    list_push(arena, &p->args, to);
}

/* Returns an instruction of the backward pass that reads a value of its block's forward pass. */
static Pc find_late_reader(Tally *t, const BlockCopies *b, uint32_t *arg)
{
    const Program *p = b->p;
    Pc found = 0;
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].n_in; i++) {
            const BufferId x = program_arg(p, &p->code.at[pc], i);
            const bool fits = p->code.at[pc].phase == PHASE_backward && b->of[OF_code].up[pc] &&
                              b->of[OF_buffers].block[x] == b->of[OF_code].block[pc] &&
                              p->buffers.at[x].category == CATEGORY_activation &&
                              p->code.at[p->buffers.at[x].first].phase == PHASE_forward &&
                              p->buffers.at[x].first && !p->buffers.at[x].parent;
            if (fits && draw(t, ++n) == 0) found = pc, *arg = i;
        }
    return found;
}

/* Each block puts a value into a queue of `room` buffers, and its backward pass takes the value out
 * again. The first block also fills the queue, so that no buffer is read before it is written. If
 * the queue has room for all blocks, the plan computes the same as before. Otherwise the oldest
 * values are lost. */
static void queue(Tally *t, const Plan *plan, const BlockCopies *b, uint32_t room)
{
    uint32_t arg = 0;
    const Pc reader = find_late_reader(t, b, &arg);
    if (!reader) return;
    const Chain readers = chain_of(&b->of[OF_code], reader);
    for (uint32_t k = 0; k < readers.n; k++)
        if (b->p->code.at[readers.at[k]].n_in <= arg) return; /* a block differs */
    Arena *arena = arena_new();
    Plan *out = mutate_copy(plan, arena);
    Program *p = &out->programs.at[0];
    const uint32_t n_code = p->code.n;
    BufferId slot[2 * MOST_BLOCKS], value[MOST_BLOCKS];
    for (uint32_t k = 0; k < readers.n; k++)
        value[k] = program_arg(p, &p->code.at[readers.at[k]], arg);
    for (uint32_t i = 0; i < room; i++) slot[i] = add_slot(p, value[0], arena);
    const Program was = *p;
    memset(&p->code, 0, sizeof p->code);
    list_push(arena, &p->code, was.code.at[0]);
    out->n_match = 1;
    for (Pc pc = 1; pc < n_code; pc++) {
        const Instr *in = &was.code.at[pc];
        for (uint32_t k = 0; k < readers.n; k++) {
            if (readers.at[k] != pc) continue;
            p->args.at[in->args.first + arg] = slot[0];
        }
        list_push(arena, &p->code, *in);
        for (uint32_t k = 0; k < readers.n; k++) {
            const bool makes = was.buffers.at[value[k]].first == pc;
            for (uint32_t i = 0; k == 0 && makes && i < room; i++)
                add_pass(p, in, value[0], slot[i], arena);
            if (makes)
                for (uint32_t i = room; i-- > 0;)
                    add_pass(p, in, i ? slot[i - 1] : value[k], slot[i], arena);
            if (readers.at[k] == pc)
                for (uint32_t i = 0; i + 1 < room; i++)
                    add_pass(p, in, slot[i + 1], slot[i], arena);
        }
    }
    memset(&p->after, 0, sizeof p->after);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = &p->code.at[pc];
        in->launch = in->fuse = 0;
        in->after = (Span){p->after.n, pc > 1};
        if (pc > 1) list_push(arena, &p->after, pc - 1);
        if (in->match) in->match = out->n_match++;
    }
    set_lives(p);
    compare(t, out, "queue", reader, room);
    arena_free(arena);
}

/* ---- the plans ---- */

static Tiny sharded(void)
{
    Tiny t = tiny_default();
    t.layers = 20;
    t.dp_shard = 2;
    t.clip = 1;
    return t;
}

static uint32_t plans(Tiny *all)
{
    uint32_t n = 0;
    all[n] = sharded(), all[n++].fsdp2.prefetch = 0;
    all[n] = sharded(), all[n].use_zero = true, all[n++].zero = ZERO_optim;
    all[n] = sharded(), all[n].tp = 2, all[n++].tp_options.sequence = true;
    all[n] = sharded(), all[n++].ac = AC_full;
    all[n] = sharded(), all[n].gpt2 = true, all[n].dp_shard = 1, all[n++].dp_replicate = 2;
    all[n] = sharded(), all[n].experts = 4, all[n].top_k = 2, all[n++].ep = 2;
    all[n] = sharded(), all[n++].use_float8 = true;
    return n;
}

/* COPIES sets the number of changes for each plan and kind of change, COPIES_SEED another draw, and
 * COPIES_OF a single plan. */
static void nearly_right_plans_get_the_verdict_of_the_whole_plan(void **state)
{
    (void)state;
    const char *wanted = getenv("COPIES"), *seed = getenv("COPIES_SEED"), *of = getenv("COPIES_OF");
    Tally t = {.n_changes = wanted ? strtoul(wanted, NULL, 10) : SAMPLE(30, 8),
               .seed = seed ? strtoul(seed, NULL, 10) << 32 : 0};
    Tiny all[8];
    const uint32_t n = plans(all);
    parallel_allow(1);
    for (uint32_t i = 0; i < n; i++) {
        if (of && i != strtoul(of, NULL, 10)) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        BlockCopies b;
        const Plan *plan = tiny_plan(&all[i], false, arena, &d);
        assert_non_null(plan);
        assert_non_null(copies_shorten(plan, arena));
        assert_true(copies_of(&b, plan, arena));
        for (uint64_t k = 0; k < t.n_changes; k++) {
            rotate(&t, plan, &b);
            exchange(&t, plan, &b);
            change_attrs(&t, plan, &b);
            if (k % 8 == 0) queue(&t, plan, &b, 1 + (uint32_t)draw(&t, all[i].layers + 4));
        }
        arena_free(arena);
    }
    print_message("%u changes, %u refused; %u with fewer blocks, of which %u are wrong, %u of them "
                  "by the shorter plan's own proofs\n",
                  t.n, t.n_refused, t.n_short, t.n_short_bad, t.n_by_values);
    assert_true(t.n_short > t.n / 4 && t.n_short_bad > t.n / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearly_right_plans_get_the_verdict_of_the_whole_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
