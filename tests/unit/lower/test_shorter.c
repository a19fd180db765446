/* A long step takes the offsets of a short one, so its buffers need not be placed anew. The arena
 * of a plan with few micro-batches must therefore be as large as the arena of the whole plan, to
 * the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/lower/alike.h"
#include "planner/lower/memory/placement.h"
#include "planner/lower/memory/shorter.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

enum { SEED = 2, PLANS = 120 };

static uint32_t below(uint64_t index, uint64_t field, uint32_t n)
{
    return (uint32_t)rng_below(SEED, index, field, n);
}

static Tiny draw_plan(uint64_t i)
{
    Tiny t = tiny_default();
    t.gpt2 = below(i, 0, 2);
    t.layers = 1 + below(i, 1, 3);
    t.tp = 1 + below(i, 2, 2);
    t.dp_shard = 1 + below(i, 3, 3);
    t.dp_replicate = 1 + below(i, 4, 2);
    t.hidden = 4 * (3 + below(i, 5, 3));
    t.ac = (AcMode)below(i, 6, 3);
    t.micro = 1 + below(i, 7, 2);
    t.tp_options.sequence = below(i, 8, 2);
    t.tp_options.keep_gathered = below(i, 9, 2);
    t.fsdp2.prefetch = below(i, 10, 3);
    t.fsdp2.defer_grad_sync = below(i, 11, 2);
    t.fsdp2.reshard_root = below(i, 12, 2);
    t.fsdp2.reshard_after_forward = below(i, 13, 2) ? RESHARD_true : RESHARD_false;
    t.fsdp2.offload = below(i, 14, 4) == 0;
    t.compile = below(i, 15, 3) == 0;
    t.fused = below(i, 16, 3) == 0;
    t.tile = below(i, 17, 4) == 0 ? 2 : 0;
    t.vocab = 17 + below(i, 18, 20);
    return t;
}

static Plan *compiled(Tiny t, uint32_t microbatches, Arena *arena)
{
    Diag d = diag_in(arena);
    t.microbatches = microbatches;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    return plan;
}

/* Checks that the shortened program of a long step is the program of a short step. */
static void expect_same(uint64_t i, const Program *x, const Program *y)
{
    if (x->code.n != y->code.n || x->buffers.n != y->buffers.n)
        fail_msg("plan %d: %u instructions, %u buffers instead of %u, %u", (int)i, x->code.n,
                 x->buffers.n, y->code.n, y->buffers.n);
    for (Pc pc = 1; pc < x->code.n; pc++) {
        const Instr *a = &x->code.at[pc], *b = &y->code.at[pc];
        assert_true(a->args.n == b->args.n && a->after.n == b->after.n);
        assert_int_equal(a->microbatch, b->microbatch);
        for (uint32_t k = 0; k < a->args.n; k++)
            assert_int_equal(program_arg(x, a, k), program_arg(y, b, k));
        for (uint32_t k = 0; k < a->after.n; k++)
            assert_int_equal(x->after.at[a->after.first + k], y->after.at[b->after.first + k]);
    }
}

static void a_long_step_takes_the_offsets_of_a_short_one(void **state)
{
    (void)state;
    uint32_t n_shorter = 0, n_repeat = 0;
    for (uint64_t i = 0; i < PLANS; i++) {
        Arena *arena = arena_new();
        const Tiny t = draw_plan(i);
        const Plan *few = compiled(t, SHORTER_MICROBATCHES, arena),
                   *all = compiled(t, SHORTER_MICROBATCHES + 1 + below(i, 30, 8), arena);
        const Program *p = &few->programs.at[0], *q = &all->programs.at[0];
        ShortProgram shorter;
        const bool is_shorter = shorter_make(&shorter, q, arena);
        if (is_shorter) expect_same(i, &shorter.program, p);
        n_shorter += is_shorter;
        n_repeat += p->repeats;
        assert_int_equal(p->repeats, q->repeats);
        if (p->repeats && (p->bytes != q->bytes || p->host_bytes != q->host_bytes))
            fail_msg("plan %d: %llu bytes from few micro-batches, %llu from all", (int)i,
                     (unsigned long long)p->bytes, (unsigned long long)q->bytes);
        for (BufferId b = 1; b < q->buffers.n && is_shorter && p->repeats; b++)
            assert_int_equal(q->buffers.at[b].offset, p->buffers.at[shorter.like[b]].offset);
        Diag d = diag_in(arena);
        assert_true(verify_plan(all, VERIFY_all, false, &d));
        arena_free(arena);
    }
    print_message("%u of %d programs have a short one, %u have repeating offsets\n", n_shorter,
                  PLANS, n_repeat);
    assert_true(n_shorter >= PLANS * 9 / 10 && n_repeat >= PLANS * 8 / 10);
}

static void a_step_with_a_changed_micro_batch_is_not_shortened(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled(tiny_default(), 9, arena);
    const Program *p = &plan->programs.at[0];
    ShortProgram shorter;
    assert_true(shorter_make(&shorter, p, arena));
    uint32_t n_changed = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = &p->code.at[pc];
        const Phase phase = in->phase;
        in->phase = PHASE_COUNT;
        const bool made = shorter_make(&shorter, p, arena);
        in->phase = phase;
        const bool middle = in->microbatch > PLACEMENT_SETTLED && in->microbatch < 8;
        if (made == (middle || in->microbatch == PLACEMENT_SETTLED))
            fail_msg("instruction %u of micro-batch %u", pc, in->microbatch);
        n_changed += middle;
    }
    assert_true(n_changed > 0);
    assert_true(shorter_make(&shorter, p, arena));
    arena_free(arena);
}

/* Returns the first address above weights and other buffers that outlive a step. */
static uint64_t end_of_kept(const Program *p)
{
    uint64_t end = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->persistent && !at->parent && at->offset + at->bytes > end)
            end = (at->offset + at->bytes + 255) / 256 * 256;
    }
    return end;
}

/* Moves each buffer in turn onto a buffer that is in use at the same time. The overlap must be
 * found. */
static void overlapping_offsets_are_found(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = compiled(tiny_default(), 9, arena);
    Program *p = &plan->programs.at[0];
    Lives l;
    lives_read(&l, p, arena);
    lives_of_space(&l, SPACE_device);
    uint64_t bytes = 0, *given = arena_array(arena, p->buffers.n, sizeof *given);
    const uint64_t bottom = end_of_kept(p);
    for (BufferId b = 1; b < p->buffers.n; b++) given[b] = p->buffers.at[b].offset;
    assert_true(placement_follow(&l, bottom, given, &bytes));
    assert_int_equal(bytes, p->bytes);
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->args.n <= in->n_in || in->args.n < 2) continue;
        const BufferId out = program_root(p, program_arg(p, in, in->n_in), NULL),
                       from = program_root(p, program_arg(p, in, 0), NULL);
        const Buffer *x = &p->buffers.at[out], *y = &p->buffers.at[from];
        if (out == from || x->persistent || y->persistent || x->first != pc || l.taken_over[out] ||
            x->bytes == 0 || y->bytes == 0)
            continue;
        given[out] = y->offset;
        if (placement_follow(&l, bottom, given, &bytes))
            fail_msg("buffer %u on buffer %u at instruction %u", out, from, pc);
        given[out] = x->offset;
        n++;
    }
    assert_true(n > 50);
    arena_free(arena);
}

/* Returns the bytes of a program whose micro-batches overlap, placed with fixed slots or
 * without. */
static uint64_t placed(Program *p, bool in_slots, bool *repeats, Arena *arena)
{
    Lives l;
    lives_find(&l, p, arena);
    lives_of_space(&l, SPACE_device);
    return placement_choose(&l, end_of_kept(p), in_slots, repeats);
}

/* Slots need some micro-batches after a pipeline is full. A step with fewer is placed as without
 * slots. */
static void too_few_micro_batches_get_no_slots(void **state)
{
    (void)state;
    enum { STAGES = 2, LEAST = STAGES + 7 };
    uint32_t n_repeat = 0;
    for (uint32_t n = 3; n <= LEAST; n++) {
        Arena *arena = arena_new();
        Tiny t = tiny_default();
        t.pp = STAGES;
        const Plan *plan = compiled(t, n, arena);
        for (uint32_t i = 0; i < plan->programs.n; i++) {
            bool without, with;
            const uint64_t bytes = placed(&plan->programs.at[i], false, &without, arena),
                           in_slots = placed(&plan->programs.at[i], true, &with, arena);
            assert_false(without);
            n_repeat += with;
            if (n < LEAST && (with || in_slots != bytes))
                fail_msg("%u micro-batches, program %u: slots change %llu bytes to %llu", n, i,
                         (unsigned long long)bytes, (unsigned long long)in_slots);
        }
        arena_free(arena);
    }
    assert_int_equal(n_repeat, STAGES); /* Only the longest step repeats, on each of the stages. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_step_takes_the_offsets_of_a_short_one),
        cmocka_unit_test(a_step_with_a_changed_micro_batch_is_not_shortened),
        cmocka_unit_test(overlapping_offsets_are_found),
        cmocka_unit_test(too_few_micro_batches_get_no_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
