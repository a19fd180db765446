/* The critical path of hand-made programs whose path is known, and of random ones. The stretches of
 * the path must add up exactly to the step. Otherwise the report would blame some of the time on
 * the wrong cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/report.h"
#include "tests/sim/synthetic.h"

static void explain_under(const Plan *plan, const CostModel *cost, bool unfolded,
                          const Runtime *runtime, Arena *arena, SimReport *report)
{
    Diag d = diag_in(arena);
    EngineResult result;
    Cluster cluster = {.device = {.launch_s = 1e-12, .hbm_bytes_per_s = 1e12}};
    FixedNet net;
    NetModel model = fixed_net(&net);
    Fold *fold = fold_ranks(plan, 4, 4, unfolded, arena);
    EngineOptions options = {.cost = cost, .net = &model, .fold = fold};
    assert_true(engine_run(plan, &options, arena, &result, &d));
    *report = (SimReport){0};
    report_time(plan, fold, &result, NULL, &cluster, runtime, arena, report);
    report_explain(plan, fold, &result, &cluster, cost, arena, report);
}

static void explain_costs(const Plan *plan, const CostModel *cost, bool unfolded, Arena *arena,
                          SimReport *report)
{
    explain_under(plan, cost, unfolded, NULL, arena, report);
}

static void explain(const Plan *plan, bool unfolded, Arena *arena, SimReport *report)
{
    explain_costs(plan, &synthetic_cost, unfolded, arena, report);
}

/* Checks that the stretches are in order of time, without gaps or overlaps, from 0 to the end. */
static void check_whole(const SimReport *report)
{
    Ps at = 0, sum = 0;
    for (uint32_t i = 0; i < report->path.n; i++) {
        assert_int_equal(report->path.at[i].from_ps, at);
        assert_true(report->path.at[i].to_ps > at);
        at = report->path.at[i].to_ps;
    }
    assert_int_equal(at, report->step_ps);
    for (uint32_t i = 0; i < report->path_sums.n; i++) {
        sum += report->path_sums.at[i].time_ps;
        if (i > 0)
            assert_true(report->path_sums.at[i - 1].time_ps >= report->path_sums.at[i].time_ps);
    }
    assert_int_equal(sum, report->step_ps);
    for (uint32_t i = 0; i < report->stages.n; i++) {
        const StageRow *row = &report->stages.at[i];
        assert_true(row->bubble_ps >= 0 && row->exposed_ps >= 0);
        assert_int_equal(row->compute_ps + row->exposed_ps + row->bubble_ps, report->step_ps);
    }
}

/* Times are given as begin..end. The gather runs 0..45 beside two kernels. c waits for it and
 * runs 45..50. The reduction of c's result runs 50..100. */
static void the_path_alternates_compute_and_communication(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 45);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    synthetic_compute(plan, 0, STREAM_compute, 20);
    Pc c = synthetic_compute(plan, 0, STREAM_compute, 5);
    synthetic_after(plan, 0, c, gather);
    Pc reduce = synthetic_comm(plan, 0, STREAM_dp_reduce, OP_reduce_scatter, dp, 0, 2, 50);
    synthetic_after(plan, 0, reduce, c);
    synthetic_compute(plan, 0, STREAM_compute, 20);
    SimReport report;
    explain(plan, true, arena, &report);
    check_whole(&report);
    assert_int_equal(report.path.n, 3);
    assert_int_equal(report.path.at[0].pc, gather);
    assert_int_equal(report.path.at[1].pc, c);
    assert_int_equal(report.path.at[2].pc, reduce);
    assert_int_equal(report.path_sums.n, 3);
    assert_int_equal(report.path_sums.at[0].op, OP_reduce_scatter);
    assert_int_equal(report.path_sums.at[0].time_ps, 50);
    arena_free(arena);
}

/* Rank 0 of a pipeline computes for 30 and sends for 7. Rank 1 first computes for 10, then waits
 * for the message, then computes for 20. Before the message, the path belongs to rank 0. So it does
 * not contain rank 1's first kernel. */
static void the_path_crosses_to_another_rank(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    Pc first = synthetic_compute(plan, 0, STREAM_compute, 30);
    Pc send = synthetic_comm(plan, 0, STREAM_pp_forward, OP_send, pp, 1, 1, 7);
    synthetic_after(plan, 0, send, first);
    synthetic_compute(plan, 1, STREAM_compute, 10);
    Pc recv = synthetic_comm(plan, 1, STREAM_pp_forward, OP_recv, pp, -1, 1, 7);
    Pc last = synthetic_compute(plan, 1, STREAM_compute, 20);
    synthetic_after(plan, 1, last, recv);
    SimReport report;
    explain(plan, true, arena, &report);
    check_whole(&report);
    assert_int_equal(report.step_ps, 57);
    assert_int_equal(report.path.n, 3);
    assert_int_equal(report.path.at[0].rank, 0);
    assert_int_equal(report.path.at[0].pc, first);
    assert_int_equal(report.path.at[1].to_ps, 37);
    assert_int_equal(report.path.at[2].rank, 1);
    assert_int_equal(report.path.at[2].pc, last);
    assert_int_equal(report.stages.n, 2);
    assert_int_equal(report.stages.at[0].compute_ps, 30);
    assert_int_equal(report.stages.at[1].compute_ps, 30);
    /* exposed while the message moves, 30..37; during 10..30 rank 1 waits for rank 0 */
    assert_int_equal(report.stages.at[1].exposed_ps, 7);
    assert_int_equal(report.stages.at[1].bubble_ps, 20);
    arena_free(arena);
}

static Ps nine_each(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p, (void)in;
    return 9;
}

/* A host issues instructions from 4 on, each in 9. A gather runs 13..18. One kernel runs 22..24,
 * because it was not issued earlier; another kernel runs 31..36. Time in which the device waits for
 * its host counts neither for the gather nor for other ranks. */
static void waiting_for_the_host_is_its_own_cause(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 5);
    Pc first = synthetic_compute(plan, 0, STREAM_compute, 2);
    synthetic_after(plan, 0, first, gather);
    Pc last = synthetic_compute(plan, 0, STREAM_compute, 5);
    CostModel cost = synthetic_cost;
    cost.issue = nine_each;
    cost.issue_from = 4;
    SimReport report;
    explain_costs(plan, &cost, true, arena, &report);
    check_whole(&report);
    assert_int_equal(report.step_ps, 36);
    assert_int_equal(report.path.n, 2);
    assert_true(report.path.at[0].host);
    assert_int_equal(report.path.at[0].to_ps, 31);
    assert_int_equal(report.path.at[1].pc, last);
    assert_true(report.path_sums.at[0].host);
    assert_int_equal(report.exposed_ps, 5); /* the gather, 13..18 */
    arena_free(arena);
}

static void random_programs_under_a_host_add_up(void **state)
{
    (void)state;
    CostModel cost = synthetic_cost;
    cost.issue = nine_each;
    uint32_t hosts = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        Arena *arena = arena_new();
        Plan *plan =
            random_plan(arena, 1 + (uint32_t)(seed % 3), 2, 1 + (uint32_t)(seed % 2), 80, seed);
        SimReport report;
        explain_costs(plan, &cost, seed % 2 == 0, arena, &report);
        check_whole(&report);
        for (uint32_t i = 0; i < report.path.n; i++) hosts += report.path.at[i].host;
        arena_free(arena);
    }
    if (hosts < 8) fail_msg("only %u steps in which the host was late", hosts);
}

static void random_programs_add_up(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{1, 8, 1}, {2, 2, 2}, {3, 2, 1}, {1, 3, 3}, {4, 1, 2}};
    uint32_t crossings = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        Arena *arena = arena_new();
        const uint32_t *s = shapes[seed % 5];
        Plan *plan = random_plan(arena, s[0], s[1], s[2], 80, seed);
        SimReport whole, folded;
        explain(plan, true, arena, &whole);
        explain(plan, false, arena, &folded);
        check_whole(&whole);
        check_whole(&folded);
        assert_int_equal(whole.step_ps, folded.step_ps);
        for (uint32_t i = 1; i < whole.path.n; i++)
            crossings += whole.path.at[i].rank != whole.path.at[i - 1].rank;
        arena_free(arena);
    }
    if (crossings < 8) fail_msg("only %u changes of rank", crossings);
}

/* If a communication takes no time, the rest of the step stays the same. In the program of the
 * first test, the gather of 45 now takes no time, so c begins when the kernels before it end. */
static void a_step_without_a_communication_is_shorter(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 1 << 30);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    Pc c = synthetic_compute(plan, 0, STREAM_compute, 5);
    synthetic_after(plan, 0, c, gather);
    Cluster cluster = {.nodes = 1,
                       .devices_per_node = 8,
                       .intra = FABRIC_nvswitch,
                       .intra_bytes_per_s = 450e9,
                       .device = {.arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3e12}};
    Fold *fold = fold_ranks(plan, 8, 8, false, arena);
    NetFree *net =
        net_free(maxmin_net(maxmin_new(&cluster, fold, arena)), OP_all_gather, dp, arena);
    NetModel model = net_free_model(net);
    EngineOptions options = {.cost = &synthetic_cost, .net = &model, .fold = fold};
    EngineResult result;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    assert_int_equal(result.step_ps, 15);
    assert_int_equal(moment_of(&result.line[0], gather)->end, 0);
    arena_free(arena);
}

/* Reading takes 60 ps and work 10 ps. So the path ends with 50 ps of waiting for data. */
static void waiting_for_data_ends_the_path(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    const AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 5);
    const Pc work = synthetic_compute(plan, 0, STREAM_compute, 10);
    plan->step.global_batch = 6;
    const Runtime runtime = {.name = "test", .input_s = 20e-12};
    SimReport report;
    explain_under(plan, &synthetic_cost, true, &runtime, arena, &report);
    assert_int_equal(report.step_ps, 60);
    check_whole(&report);
    assert_int_equal(report.path.n, 2);
    assert_int_equal(report.path.at[0].pc, work);
    assert_true(report.path.at[1].data && !report.path.at[0].data);
    assert_int_equal(report.path.at[1].from_ps, 10);
    assert_int_equal(report.path_sums.n, 2);
    assert_true(report.path_sums.at[0].data && !report.path_sums.at[0].host);
    assert_int_equal(report.path_sums.at[0].time_ps, 50);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_alternates_compute_and_communication),
        cmocka_unit_test(the_path_crosses_to_another_rank),
        cmocka_unit_test(waiting_for_the_host_is_its_own_cause),
        cmocka_unit_test(random_programs_add_up),
        cmocka_unit_test(random_programs_under_a_host_add_up),
        cmocka_unit_test(a_step_without_a_communication_is_shorter),
        cmocka_unit_test(waiting_for_data_ends_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
