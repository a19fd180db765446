/* The engine's times compared with times worked out by hand. On random programs, they are compared
 * with a second, direct evaluation of the plan's semantics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/sim/synthetic.h"

static void one_rank_runs_in_order(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    synthetic_compute(plan, 0, STREAM_compute, 0);
    synthetic_compute(plan, 0, STREAM_compute, 32);
    assert_true(run_fixed(plan, false, 1, arena, &result, &d));
    assert_int_equal(result.step_ps, 42);
    assert_int_equal(result.n_events, 3);
    assert_int_equal(moment_of(&result.line[0], 3)->start, 10);
    assert_int_equal(moment_of(&result.line[0], 3)->by, 2);
    arena_free(arena);
}

static void an_empty_program_takes_no_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 2, 1);
    assert_true(run_fixed(plan, true, 3, arena, &result, &d));
    assert_int_equal(result.step_ps, 0);
    assert_int_equal(result.n_events, 0);
    arena_free(arena);
}

/* The compute stream runs a (10), c (5, after b) and d (7). Another stream runs b (20, after a). So
 * c starts at 10 + 20. */
static void streams_overlap_and_wait(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Pc a = synthetic_compute(plan, 0, STREAM_compute, 10);
    Pc b = synthetic_compute(plan, 0, STREAM_copy_in, 20);
    synthetic_after(plan, 0, b, a);
    Pc e = synthetic_compute(plan, 0, STREAM_compute, 15);
    Pc c = synthetic_compute(plan, 0, STREAM_compute, 5);
    synthetic_after(plan, 0, c, b);
    assert_true(run_fixed(plan, false, 1, arena, &result, &d));
    assert_int_equal(moment_of(&result.line[0], e)->start, 10);
    assert_int_equal(moment_of(&result.line[0], c)->start, 30);
    assert_int_equal(moment_of(&result.line[0], c)->by, b);
    assert_int_equal(result.step_ps, 35);
    arena_free(arena);
}

/* Two stages. Stage 1 computes for longer before its all_reduce. The group of the all_reduce is tp,
 * so stage 0 does not wait for stage 1. */
static void communication_starts_when_its_group_has_come(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    for (uint32_t i = 0; i < 2; i++) {
        Pc a = synthetic_compute(plan, i, STREAM_compute, i == 0 ? 100 : 250);
        Pc b = synthetic_comm(plan, i, STREAM_dp_reduce, OP_all_reduce, pp, 0, 1, 40);
        synthetic_after(plan, i, b, a);
        /* runs at the same time as the communication */
        Pc c = synthetic_compute(plan, i, STREAM_compute, 30);
        Pc e = synthetic_compute(plan, i, STREAM_compute, 1);
        synthetic_after(plan, i, e, b);
        (void)c;
    }
    assert_true(run_fixed(plan, false, 1, arena, &result, &d));
    assert_int_equal(moment_of(&result.line[0], 2)->reached, 100);
    assert_int_equal(moment_of(&result.line[0], 2)->start, 250);
    assert_int_equal(moment_of(&result.line[0], 2)->end, 290);
    assert_int_equal(moment_of(&result.line[1], 3)->end, 280);
    assert_int_equal(result.step_ps, 291);
    arena_free(arena);
}

/* The three members of a launch start together, once all of them may start. The next instruction of
 * the stream waits for the longest member. Without the launch, the members would run one after the
 * other. */
static void launch_groups_start_together(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc wait = synthetic_compute(plan, 0, STREAM_compute, 50);
    static const uint64_t bytes[] = {10, 90, 20};
    for (uint32_t i = 0; i < 3; i++) {
        Pc pc = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1 + i, bytes[i]);
        plan->programs.at[0].code.at[pc].launch = 7;
        if (i == 2) synthetic_after(plan, 0, pc, wait);
    }
    Pc next = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 4, 5);
    assert_true(run_fixed(plan, true, 1, arena, &result, &d));
    for (Pc pc = 2; pc <= 4; pc++) assert_int_equal(moment_of(&result.line[1], pc)->start, 50);
    assert_int_equal(moment_of(&result.line[0], 2)->end, 60);
    assert_int_equal(moment_of(&result.line[0], next)->start, 140);
    assert_int_equal(result.step_ps, 145);
    arena_free(arena);
}

/* If the same launch number appears again later on the stream, it is another launch. */
static void launch_numbers_join_only_neighbours(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    for (uint32_t i = 0; i < 3; i++) {
        Pc pc = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1 + i, 10);
        plan->programs.at[0].code.at[pc].launch = i == 1 ? 0 : 7;
    }
    assert_true(run_fixed(plan, false, 1, arena, &result, &d));
    assert_int_equal(result.step_ps, 30);
    arena_free(arena);
}

/* Three stages with one send each. Stage 0 computes 5 and sends for 10, and so on. The last stage
 * ends at 5+10+7+10+9. */
static void sends_chain_along_the_pipeline(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 3, 2, 1, 3);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    static const Ps work[] = {5, 7, 9};
    for (uint32_t i = 0; i < 3; i++) {
        Pc recv = 0;
        if (i > 0) {
            recv = synthetic_comm(plan, i, STREAM_pp_forward, OP_recv, pp, -1, i, 10);
        }
        Pc c = synthetic_compute(plan, i, STREAM_compute, work[i]);
        if (recv != 0) synthetic_after(plan, i, c, recv);
        if (i == 2) continue;
        Pc send = synthetic_comm(plan, i, STREAM_pp_backward, OP_send, pp, 1, i + 1, 10);
        synthetic_after(plan, i, send, c);
    }
    for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
        assert_true(run_fixed(plan, unfolded == 1, 1, arena, &result, &d));
        assert_int_equal(result.step_ps, 5 + 10 + 7 + 10 + 9);
    }
    arena_free(arena);
}

static const char *only_error(const Diag *d, const char *rule)
{
    assert_int_equal(d->n_errors, 1);
    assert_string_equal(d->items.at[0].rule, rule);
    return d->items.at[0].text;
}

/* Rank 0 issues communication 1 and then 2, rank 1 issues 2 and then 1. The error must name
 * both. */
static void crossed_order_names_both(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    for (uint32_t i = 0; i < 2; i++) {
        synthetic_comm(plan, i, STREAM_tp, OP_all_reduce, pp, 0, 1 + i, 10);
        synthetic_comm(plan, i, STREAM_tp, OP_all_reduce, pp, 0, 2 - i, 10);
    }
    for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
        Diag d = diag_in(arena);
        assert_false(run_fixed(plan, unfolded == 1, 1, arena, &result, &d));
        const char *text = only_error(&d, "sim-deadlock");
        assert_non_null(strstr(
            text, "rank 0 waits at instruction 1 (tp all_reduce along pp, match 1) for rank 1"));
        assert_non_null(strstr(
            text, "rank 1 waits at instruction 1 (tp all_reduce along pp, match 2) for rank 0"));
    }
    arena_free(arena);
}

static void send_without_receiver_is_named(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    synthetic_comm(plan, 0, STREAM_pp_forward, OP_send, pp, 1, 1, 10);
    synthetic_compute(plan, 1, STREAM_compute, 10);
    assert_false(run_fixed(plan, false, 1, arena, &result, &d));
    assert_non_null(strstr(only_error(&d, "sim-deadlock"), "for rank 1 to receive"));
    arena_free(arena);
}

/* If a member of a launch waits for another member of it, the launch can never begin. */
static void launch_that_awaits_itself_is_named(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    for (uint32_t i = 0; i < 2; i++) {
        Pc pc = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1 + i, 10);
        plan->programs.at[0].code.at[pc].launch = 3;
        if (i == 1) synthetic_after(plan, 0, pc, pc - 1);
    }
    assert_false(run_fixed(plan, false, 1, arena, &result, &d));
    assert_non_null(strstr(only_error(&d, "sim-deadlock"), "rank 0 cannot begin instruction 1"));
    arena_free(arena);
}

static void match_used_twice_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    for (uint32_t i = 0; i < 2; i++) {
        synthetic_comm(plan, 0, STREAM_tp, OP_all_reduce, dp, 0, 5, 10);
    }
    assert_false(run_fixed(plan, false, 1, arena, &result, &d));
    only_error(&d, "sim-duplicate-match");
    arena_free(arena);
}

static void group_of_one_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    synthetic_comm(plan, 0, STREAM_tp, OP_all_reduce, 0, 0, 5, 10);
    assert_false(run_fixed(plan, false, 1, arena, &result, &d));
    only_error(&d, "sim-peer");
    arena_free(arena);
}

/* ---- random programs ---- */

typedef struct Oracle {
    Ps (*end)[512], (*start)[512]; /* [rank][pc] */
    Ps serial, step, critical;
} Oracle;

static bool in_launch(const Program *p, Pc pc, Pc with)
{
    return p->code.at[pc].launch != 0 && p->code.at[pc].stream == p->code.at[with].stream &&
           p->code.at[pc].launch == p->code.at[with].launch;
}

/* Returns the time at which rank r is ready for pc, when everything that it waits for has ended; -1
 * if this is not known yet. In random plans every launch has its own number, so a launch is all
 * instructions with that number. */
static Ps turn(const Plan *plan, const Oracle *o, Rank r, Pc pc)
{
    const Program *p = plan_program(plan, r);
    Ps at = 0;
    for (Pc m = 1; m < p->code.n; m++) {
        if (m != pc && !in_launch(p, pc, m)) continue;
        const Instr *in = &p->code.at[m];
        for (uint32_t i = 0; i < in->after.n; i++) {
            Ps end = o->end[r][p->after.at[in->after.first + i]];
            if (end < 0) return -1;
            if (end > at) at = end;
        }
        for (Pc q = 1; q < m; q++) {
            if (p->code.at[q].stream != in->stream || in_launch(p, q, m)) continue;
            if (o->end[r][q] < 0) return -1;
            if (o->end[r][q] > at) at = o->end[r][q];
        }
    }
    return at;
}

/* Returns the start of instruction pc on rank r; -1 if it depends on times that are not known
 * yet. */
static Ps start_of(const Plan *plan, const Oracle *o, Rank r, Pc pc)
{
    const Instr *in = &plan_program(plan, r)->code.at[pc];
    Ps at = turn(plan, o, r, pc);
    if (at < 0 || op_info(in->op)->class_ != OP_CLASS_comm) return at;
    for (Rank m = 0; m < plan->mesh.n_ranks; m++) {
        Rank peer = r;
        bool pair = in->op == OP_send || in->op == OP_recv;
        if (pair) fold_peer(&plan->mesh, r, in->axes, in->hop, &peer);
        bool member =
            pair ? m == peer
                 : mesh_group(&plan->mesh, m, in->axes) == mesh_group(&plan->mesh, r, in->axes);
        if (!member || m == r) continue;
        const Program *q = plan_program(plan, m);
        for (Pc other = 1; other < q->code.n; other++) {
            if (q->code.at[other].match != in->match) continue;
            Ps there = turn(plan, o, m, other);
            if (there < 0) return -1;
            if (there > at) at = there;
        }
    }
    return at;
}

static void evaluate(const Plan *plan, Oracle *o, Arena *arena)
{
    uint32_t n = plan->mesh.n_ranks;
    o->end = arena_array(arena, n, sizeof *o->end);
    o->start = arena_array(arena, n, sizeof *o->start);
    memset(o->end, 0xff, n * sizeof *o->end);
    o->step = o->serial = 0;
    bool going = true;
    while (going) {
        going = false;
        for (Rank r = 0; r < n; r++) {
            const Program *p = plan_program(plan, r);
            for (Pc pc = 1; pc < p->code.n; pc++) {
                if (o->end[r][pc] >= 0) continue;
                Ps start = start_of(plan, o, r, pc);
                if (start < 0) continue;
                const Instr *in = &p->code.at[pc];
                bool comm = op_info(in->op)->class_ == OP_CLASS_comm;
                Ps takes = comm ? (Ps)plan_comm_bytes(plan, p, in) : (Ps)in->microbatch;
                o->start[r][pc] = start;
                o->end[r][pc] = start + takes;
                if (o->end[r][pc] > o->step) o->step = o->end[r][pc];
                o->serial += takes;
                going = true;
            }
        }
    }
}

static void random_plans_match_the_semantics(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{1, 2, 2}, {2, 3, 1}, {3, 1, 2}, {2, 2, 3}, {1, 4, 1}};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const uint32_t *s = shapes[seed % 5];
        Plan *plan = random_plan(arena, s[0], s[1], s[2], 60, seed);
        Oracle o;
        evaluate(plan, &o, arena);
        EngineResult result;
        assert_true(run_fixed(plan, true, 1, arena, &result, &d));
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            for (Pc pc = 1; pc < plan_program(plan, r)->code.n; pc++) {
                assert_int_equal(moment_of(&result.line[r], pc)->start, o.start[r][pc]);
                assert_int_equal(moment_of(&result.line[r], pc)->end, o.end[r][pc]);
            }
        }
        assert_int_equal(result.step_ps, o.step);
        assert_true(result.step_ps <= o.serial);
        EngineResult folded;
        assert_true(run_fixed(plan, false, 1, arena, &folded, &d));
        assert_int_equal(folded.step_ps, result.step_ps);
        arena_free(arena);
    }
}

static void same_input_same_times_ten_times(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = random_plan(arena, 2, 4, 2, 200, 99);
    EngineResult first;
    assert_true(run_fixed(plan, true, 1, arena, &first, &d));
    for (uint32_t i = 0; i < 10; i++) {
        EngineResult again;
        assert_true(run_fixed(plan, true, 1, arena, &again, &d));
        for (Rank r = 0; r < plan->mesh.n_ranks; r++)
            assert_true(same_times(&again.line[r], &first.line[r], plan_program(plan, r)));
    }
    arena_free(arena);
}

static void all_steps_take_the_same_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = random_plan(arena, 2, 2, 2, 100, 5);
    EngineResult one, five;
    assert_true(run_fixed(plan, false, 1, arena, &one, &d));
    assert_true(run_fixed(plan, false, 5, arena, &five, &d));
    assert_int_equal(five.step_ps, one.step_ps);
    assert_int_equal(five.n_events, 5 * one.n_events);
    assert_int_equal(five.end_ps[0], one.end_ps[0]);
    assert_true(same_times(&five.line[0], &one.line[0], &plan->programs.at[0]));
    arena_free(arena);
}

/* Without pods, all nodes count as one pod, so no group leaves it. */
static void all_nodes_are_one_pod(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int unfolded = 0; unfolded < 2; unfolded++) {
        Plan *plan = random_plan(arena, 2, 4, 2, 100, 5);
        const Fold *fold = fold_ranks(plan, 4, 4, unfolded, arena);
        assert_int_equal(fold->n_ranks, 16);
        assert_int_equal(fold->n_pod_classes, 1);
        uint32_t n_ranks = 0, n_groups = 0;
        for (uint32_t c = 0; c < fold->n_classes; c++) n_ranks += fold->on_pod[c];
        assert_int_equal(n_ranks, 16);
        for (uint32_t i = 0; i < fold->axes.n; i++)
            for (uint32_t g = 0; g < fold->axes.at[i].n_groups; g++, n_groups++) {
                const FoldGroup *group = &fold->axes.at[i].groups[g];
                assert_int_equal(group->n_pods, 1);
                assert_int_equal(group->max_per_pod, group->n_ranks);
            }
        assert_true(n_groups > 0);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_are_one_pod),
        cmocka_unit_test(one_rank_runs_in_order),
        cmocka_unit_test(an_empty_program_takes_no_time),
        cmocka_unit_test(streams_overlap_and_wait),
        cmocka_unit_test(communication_starts_when_its_group_has_come),
        cmocka_unit_test(launch_groups_start_together),
        cmocka_unit_test(launch_numbers_join_only_neighbours),
        cmocka_unit_test(sends_chain_along_the_pipeline),
        cmocka_unit_test(crossed_order_names_both),
        cmocka_unit_test(send_without_receiver_is_named),
        cmocka_unit_test(launch_that_awaits_itself_is_named),
        cmocka_unit_test(match_used_twice_is_refused),
        cmocka_unit_test(group_of_one_is_refused),
        cmocka_unit_test(random_plans_match_the_semantics),
        cmocka_unit_test(same_input_same_times_ten_times),
        cmocka_unit_test(all_steps_take_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
