/* The order in which a step's instructions are issued, and its division into segments, on plans of
 * all kinds. An instruction comes after all instructions for which it waits. Streams keep their
 * order. Communications that start together are adjacent. Segments cover the step. The program's
 * own order can be wrong: a member of a launch may wait for an instruction that follows the
 * launch's first member. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/cuda/order.h"
#include "tests/exec/synthetic.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static bool joins(const Program *p, Pc a, Pc b)
{
    const Instr *x = program_instr(p, a), *y = program_instr(p, b);
    return x->launch != 0 && x->launch == y->launch && x->stream == y->stream;
}

static void check_order(const Program *p, const IssueOrder *o)
{
    Pc last[STREAM_COUNT] = {0};
    assert_int_equal(o->n, p->code.n - 1);
    for (uint32_t i = 0; i < o->n; i++) {
        Pc pc = o->pc[i];
        const Instr *in = program_instr(p, pc);
        assert_int_equal(o->at[pc], i);
        for (uint32_t k = 0; k < in->after.n; k++)
            assert_true(o->at[p->after.at[in->after.first + k]] < i);
        Pc before = last[in->stream];
        assert_true(before < pc); /* the order on each stream is that of the program */
        if (before != 0 && joins(p, before, pc)) assert_int_equal(o->at[before], i - 1);
        last[in->stream] = pc;
    }
}

static void check_segments(const IssueOrder *o)
{
    uint32_t end = 0;
    for (uint32_t k = 0; k < o->n_segments; k++) {
        const Segment *s = &o->segment[k];
        assert_int_equal(s->first, end);
        assert_true(s->n > 0);
        end += s->n;
        assert_true(s->same <= k);
        const Segment *owner = &o->segment[s->same];
        assert_int_equal(owner->same, s->same);
        if (s->same != k) assert_true(owner->shared && owner->n == s->n);
    }
    assert_int_equal(end, o->n);
}

static Tiny variant(uint32_t i)
{
    Tiny t = tiny_default();
    t.dp_shard = 1 + i % 2, t.tp = 1 + i / 2 % 2, t.pp = 1 + i / 4 % 2;
    t.microbatches = 4;
    t.layers = 2;
    t.ac = i / 8 % 2 ? AC_full : AC_none;
    t.tp_options.sequence = i % 3 == 0;
    return t;
}

static void plans_are_issued_in_a_legal_order(void **state)
{
    (void)state;
    uint32_t n_cut = 0, n_shared = 0;
    for (uint32_t i = 0; i < 16; i++) {
        Tiny t = variant(i);
        Diag d = diag_in(arena);
        Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            const ProgramInfo *info = program_info(plan, plan_program(plan, r), arena);
            Control control = {.step = 0};
            BackendOptions options = {.timeout_s = 1};
            RankState rank;
            assert_true(rank_open(&rank, plan, info, r, &control, &options, arena, &d));
            IssueOrder order;
            order_make(info, arena, &order);
            check_order(info->p, &order);
            if (order_cut(&rank, &order, arena)) {
                n_cut++;
                check_segments(&order);
                assert_int_equal(order.n_segments, 4);
                for (uint32_t k = 0; k < 4; k++) n_shared += order.segment[k].shared;
                /* the first segment sets gradients, later ones add to them, so it serves no
                 * other */
                assert_false(order.segment[0].shared);
            }
            order_whole(&order, arena);
            check_segments(&order);
            rank_close(&rank);
        }
    }
    assert_true(n_cut >= 8);
    assert_true(n_shared > 0);
}

/* Instructions 1 and 4 start together. 4 waits for 2, so 2 must be issued before 1. 3 waits for
 * 1. */
static void a_launch_that_waits_in_its_middle_is_issued_later(void **state)
{
    (void)state;
    Synthetic y = {.arena = arena};
    make_mesh(&y, 2, 1);
    make_program(&y);
    AxisSet dp = axis(&y, AXIS_dp_shard);
    BufferId b[5];
    for (int i = 0; i < 5; i++) b[i] = buffer(&y, 8, DT_f32, true);
    make(&y, (Make){.op = OP_all_reduce,
                    .stream = STREAM_dp_reduce,
                    .axes = dp,
                    .launch = 1,
                    .match = 1,
                    .reduce = REDUCE_sum,
                    .in = b[0],
                    .out = b[0]});
    make(&y, (Make){.op = OP_fill, .stream = STREAM_compute, .out = b[1]});
    make(&y, (Make){.op = OP_fill, .stream = STREAM_host, .out = b[2], .after = 1});
    make(&y, (Make){.op = OP_all_reduce,
                    .stream = STREAM_dp_reduce,
                    .axes = dp,
                    .launch = 1,
                    .match = 2,
                    .reduce = REDUCE_sum,
                    .in = b[3],
                    .out = b[3],
                    .after = 2});
    const ProgramInfo *info = program_info(y.plan, &y.plan->programs.at[0], arena);
    IssueOrder order;
    order_make(info, arena, &order);
    check_order(info->p, &order);
    const Pc expected[] = {2, 1, 4, 3};
    assert_memory_equal(order.pc, expected, sizeof expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_are_issued_in_a_legal_order, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(a_launch_that_waits_in_its_middle_is_issued_later,
                                        test_arena_setup, test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
