/* A proof through a shorter plan with fewer blocks must give the verdict of a proof of the whole
 * plan, also if many equal blocks are changed at once. (test_copies.c changes one place at a
 * time.) */
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

typedef struct Tally {
    uint64_t seed, n_changes; /* n_changes: changes for each plan and kind of change */
    uint32_t n, n_refused, n_short;
} Tally;

static uint64_t draw(Tally *t, uint64_t n)
{
    return rng_below(t->seed++, 3, 4, n);
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
    t->n++;
    t->n_refused += !should;
    t->n_short += copies_shorten(plan, arena) != NULL;
    arena_free(arena);
}

static Chain chain_of(const Items *of, uint32_t item)
{
    Chain c = {.n = 0};
    while (of->down[item]) item = of->down[item];
    for (; item && c.n < MOST_BLOCKS; item = of->up[item]) c.at[c.n++] = item;
    return c;
}

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

/* Returns the plan with instructions order[0, n), each of which waits for the one before it. */
static Plan *in_order(const Plan *plan, const Pc *order, uint32_t n, Arena *arena)
{
    Plan *out = mutate_copy(plan, arena);
    Program *p = &out->programs.at[0];
    const Instr *was = plan->programs.at[0].code.at;
    p->code.at = arena_array(arena, n + 1, sizeof *p->code.at);
    p->after.at = arena_array(arena, n + 1, sizeof *p->after.at);
    p->code.n = p->code.room = p->after.n = p->after.room = n + 1;
    out->n_match = 1;
    for (uint32_t i = 0; i < n; i++) {
        Instr *in = &p->code.at[i + 1];
        memcpy(in, &was[order[i]], sizeof *in);
        p->after.at[i] = i;
        in->after = (Span){i, i > 0};
        in->launch = in->fuse = 0;
        if (in->match) in->match = out->n_match++;
    }
    set_lives(p);
    return out;
}

/* ---- squares that only some blocks add to the norm ---- */

/* Lets blocks add their squares to one number. Only the first `low` and the last `high` blocks do
 * so, in an order in which no three neighbouring blocks come one after the other. */
static Plan *with_few_squares(const Plan *plan, const Chain *c, uint32_t low, uint32_t high,
                              Arena *arena)
{
    Plan *shared = mutate_copy(plan, arena);
    Program *p = &shared->programs.at[0];
    uint8_t *gone = arena_array(arena, p->code.n, 1);
    Pc *order = arena_array(arena, p->code.n, sizeof *order);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        Instr *in = &p->code.at[c->at[i]];
        p->args.at[in->args.first + 1] = program_arg(p, &p->code.at[c->at[0]], 1);
        gone[c->at[i]] = 1;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        if (!gone[pc]) order[n++] = pc;
        for (uint32_t i = low > high ? low : high; pc == c->at[c->n - 1] && i-- > 0;) {
            if (i < high) order[n++] = c->at[c->n - 1 - i];
            if (i < low) order[n++] = c->at[i];
        }
    }
    return in_order(shared, order, n, arena);
}

static Pc find_op(const BlockCopies *b, OpKind op)
{
    for (Pc pc = 1; pc < b->p->code.n; pc++)
        if (b->p->code.at[pc].op == op && b->of[OF_code].up[pc]) return pc;
    return 0;
}

static void change_squares(Tally *t, const Plan *plan, const BlockCopies *b)
{
    const Pc squares = find_op(b, OP_sumsq);
    assert_int_not_equal(squares, 0);
    const Chain c = chain_of(&b->of[OF_code], squares);
    for (uint32_t low = 1; low <= 5; low++)
        for (uint32_t high = 1; high <= 5; high++) {
            Arena *arena = arena_new();
            compare(t, with_few_squares(plan, &c, low, high, arena), "squares", low, high);
            arena_free(arena);
        }
}

/* ---- one buffer instead of one in each block ---- */

/* All blocks write their output to one buffer, in which the next block finds its input. */
static void share_outputs(Tally *t, const Plan *plan, const BlockCopies *b)
{
    Arena *arena = arena_new();
    Plan *out = mutate_copy(plan, arena);
    Program *p = &out->programs.at[0];
    const Items *code = &b->of[OF_code], *buffers = &b->of[OF_buffers];
    BufferId from = 0;
    for (Pc pc = 1; pc < p->code.n && !from; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].n_in && !from; i++) {
            const BufferId x = program_arg(p, &p->code.at[pc], i);
            if (code->up[pc] && buffers->block[x] && buffers->block[x] + 1 == code->block[pc] &&
                p->code.at[p->buffers.at[x].first].phase == PHASE_forward && !p->buffers.at[x].unit)
                from = x;
        }
    assert_int_not_equal(from, 0);
    const Chain c = chain_of(buffers, from);
    for (uint32_t i = 0; i < p->args.n; i++)
        for (uint32_t k = 1; k < c.n; k++)
            if (p->args.at[i] == c.at[k]) p->args.at[i] = c.at[0];
    p->buffers.at[c.at[0]].tensor = 0; /* it contains the tensors of all blocks */
    set_lives(p);
    assert_null(copies_shorten(out, arena));
    compare(t, out, "outputs", from, 0);
    arena_free(arena);
}

/* ---- a value that travels through a row of buffers ---- */

enum { ROW = 12 }; /* buffers of a row, more than the shorter plan has blocks */

/* The instructions of one op in all blocks, and one of their inputs. In the first block, this input
 * comes from before all blocks. In any other block, it comes from inside. */
typedef struct RowReader {
    Chain code;
    uint32_t arg;
} RowReader;

static RowReader find_row_reader(const BlockCopies *b)
{
    const Program *p = b->p;
    const Items *code = &b->of[OF_code], *buffers = &b->of[OF_buffers];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_rmsnorm_grad || code->down[pc] || !code->up[pc]) continue;
        for (uint32_t i = 0; i < in->n_in; i++) {
            const Buffer *at = &p->buffers.at[program_arg(p, in, i)];
            if (at->category == CATEGORY_activation && !buffers->block[program_arg(p, in, i)] &&
                p->code.at[at->first].phase == PHASE_forward)
                return (RowReader){chain_of(code, pc), i};
        }
    }
    fail_msg("no block reads a value from before all blocks");
    return (RowReader){.arg = 0};
}

/* Adds an instruction of the node that passes `from` on to `to`. Returns its number. */
static Pc add_pass(Program *p, NodeId origin, BufferId from, BufferId to, Arena *arena)
{
    const Pc pc = (Pc)list_add(arena, &p->code);
    Instr *pass = &p->code.at[pc];
    pass->op = OP_pass, pass->stream = STREAM_compute, pass->phase = PHASE_backward;
    pass->args = (Span){p->args.n, 2}, pass->n_in = 1, pass->origin = origin;
    list_push(arena, &p->args, from);
    list_push(arena, &p->args, to);
    return pc;
}

/* Each block has a row of buffers. The backward pass of a block puts its value into the first
 * buffer, and moves the values of the next block's row on by one. The last block begins with rows
 * of the value from before all blocks. The first block finds this value at the end of its row only
 * if there are fewer blocks than buffers in a row. */
static void carry_in_rows(Tally *t, const Plan *plan, const BlockCopies *b)
{
    const RowReader r = find_row_reader(b);
    Arena *arena = arena_new();
    Plan *wide = mutate_copy(plan, arena);
    Program *p = &wide->programs.at[0];
    const uint32_t n_code = p->code.n, n = r.code.n;
    BufferId row[MOST_BLOCKS][ROW], value[MOST_BLOCKS];
    assert_true(n > ROW + 2);
    for (uint32_t k = 0; k < n; k++) {
        value[k] = program_arg(p, &p->code.at[r.code.at[k]], r.arg);
        for (uint32_t i = 0; i < ROW; i++) {
            row[k][i] = (BufferId)list_add(arena, &p->buffers);
            Buffer *own = &p->buffers.at[row[k][i]];
            /* This also copies the bytes between fields. */
            memcpy(own, &p->buffers.at[value[0]], sizeof *own);
            own->category = CATEGORY_workspace;
            own->tensor = 0;
            own->offset = (p->bytes + 255) / 256 * 256;
            p->bytes = own->offset + own->bytes;
        }
    }
    Pc *order = arena_array(arena, n_code + (n + 1) * ROW, sizeof *order);
    uint32_t n_order = 0;
    for (Pc pc = 1; pc < n_code; pc++) {
        uint32_t k = 0;
        while (k < n && r.code.at[k] != pc) k++;
        for (uint32_t i = 0; k < n && i < ROW; i++) {
            const BufferId from = k == n - 1 ? value[0] : i == 0 ? value[k] : row[k + 1][i - 1];
            order[n_order++] = add_pass(p, p->code.at[pc].origin, from, row[k][i], arena);
        }
        order[n_order++] = pc;
    }
    p->args.at[p->code.at[r.code.at[0]].args.first + r.arg] = row[0][ROW - 1];
    const Plan *out = in_order(wide, order, n_order, arena);
    Diag full = diag_in(arena);
    assert_false(verify_plan(out, VERIFY_all | VERIFY_in_full, false, &full));
    compare(t, out, "row", r.code.at[0], r.arg);
    arena_free(arena);
}

/* ---- any change in many blocks ---- */

/* Draws the blocks that are changed: all, all but the first and the last three, every second, all
 * but the first and the last, two neighbours, or the first three. */
static bool is_changed(uint64_t which, uint32_t i, uint32_t n)
{
    if (which == 0) return true;
    if (which == 1) return i >= 3 && i + 3 < n;
    if (which == 2) return i % 2 == 1;
    if (which == 3) return i >= 1 && i + 1 < n;
    return which == 4 ? i == 3 || i == 4 : i < 3;
}

/* Changes one argument of an instruction in many blocks. The argument gets the value that it has in
 * the next block, in the second next, or in the first. */
static void change_args(Tally *t, const Plan *plan, const BlockCopies *b)
{
    const Program *was = &plan->programs.at[0];
    const Pc pc = 1 + (Pc)draw(t, was->code.n - 1);
    const Chain c = chain_of(&b->of[OF_code], pc);
    const uint64_t which = draw(t, 6), far = draw(t, 3);
    const uint32_t n_args = was->code.at[pc].args.n;
    if (c.n < 6 || n_args == 0) return;
    const uint32_t arg = (uint32_t)draw(t, n_args);
    Arena *arena = arena_new();
    Plan *out = mutate_copy(plan, arena);
    Program *p = &out->programs.at[0];
    for (uint32_t i = 0; i < c.n; i++) {
        const Instr *from = &was->code.at[c.at[far == 0 ? 0 : (i + far) % c.n]];
        if (is_changed(which, i, c.n) && from->args.n == n_args)
            p->args.at[p->code.at[c.at[i]].args.first + arg] = program_arg(was, from, arg);
    }
    set_lives(p);
    compare(t, out, "argument", pc, (uint32_t)(which * 10 + far));
    arena_free(arena);
}

/* Deletes, repeats or moves an instruction in many blocks. */
static void change_order(Tally *t, const Plan *plan, const BlockCopies *b)
{
    enum { DELETE, REPEAT, EARLIER, WAYS };
    const uint32_t n_code = plan->programs.at[0].code.n;
    const Pc pc = 1 + (Pc)draw(t, n_code - 1);
    const Chain c = chain_of(&b->of[OF_code], pc);
    const uint64_t which = draw(t, 6), way = draw(t, WAYS), by = 1 + draw(t, 6);
    Arena *arena = arena_new();
    Pc *order = arena_array(arena, 2 * n_code, sizeof *order);
    bool *changed = arena_array(arena, n_code, sizeof *changed);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c.n; i++) changed[c.at[i]] = is_changed(which, i, c.n);
    for (Pc at = 1; at < n_code; at++) {
        if (changed[at] && way == DELETE) continue;
        order[n++] = at;
        if (changed[at] && way == REPEAT) order[n++] = at;
        if (!changed[at] || way != EARLIER || n <= by) continue;
        memmove(&order[n - by], &order[n - 1 - by], by * sizeof *order);
        order[n - 1 - by] = at;
    }
    compare(t, in_order(plan, order, n, arena), "order", pc, (uint32_t)(which * 10 + way));
    arena_free(arena);
}

/* ---- the plans ---- */

static Tiny sharded(void)
{
    Tiny t = tiny_default();
    t.layers = 14;
    t.dp_shard = 2;
    t.clip = 1;
    return t;
}

/* COPIES sets the number of changes for each plan and kind of change, and COPIES_SEED another
 * draw. */
static void changes_in_many_blocks_get_the_verdict_of_the_whole_plan(void **state)
{
    (void)state;
    const char *wanted = getenv("COPIES"), *seed = getenv("COPIES_SEED");
    Tally t = {.n_changes = wanted ? strtoul(wanted, NULL, 10) : SAMPLE(25, 7),
               .seed = seed ? strtoul(seed, NULL, 10) << 32 : 0};
    Tiny all[] = {sharded(), sharded(), sharded(), sharded()};
    all[0].fsdp2.prefetch = 0, all[0].layers = 20;
    all[1].use_zero = true, all[1].zero = ZERO_optim, all[1].layers = 20;
    all[2].ac = AC_full;
    all[3].experts = 4, all[3].top_k = 2, all[3].ep = 2;
    parallel_allow(1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(&all[i], false, arena, &d);
        assert_non_null(plan);
        assert_non_null(copies_shorten(plan, arena));
        BlockCopies b;
        assert_true(copies_of(&b, plan, arena));
        change_squares(&t, plan, &b);
        share_outputs(&t, plan, &b);
        if (i < 2) carry_in_rows(&t, plan, &b);
        for (uint64_t k = 0; k < t.n_changes; k++) {
            change_args(&t, plan, &b);
            change_order(&t, plan, &b);
        }
        arena_free(arena);
    }
    print_message("%u changes, %u refused, %u with fewer blocks\n", t.n, t.n_refused, t.n_short);
    assert_true(t.n_refused > t.n / 2 && t.n_short > t.n / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_in_many_blocks_get_the_verdict_of_the_whole_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
