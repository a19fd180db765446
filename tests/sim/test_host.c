/* A host may wait: for the device, for messages between stages, or for results that it reads. It
 * then issues later kernels late. The step must become longer by exactly these waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/period.h"
#include "sim/report.h"
#include "tests/sim/synthetic.h"

static Ps issue_15(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p, (void)in;
    return 15;
}

static Ps start_of(const EngineResult *result, uint32_t class_, Pc pc)
{
    return moment_of(&result->line[class_], pc)->start;
}

/* Rank 0 computes for 10, sends for 7 and computes for 10. Rank 1 receives and computes for 10. */
static Plan *two_stages(Arena *arena)
{
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    const AxisSet pp = synthetic_axis(plan, AXIS_pp);
    const Pc first = synthetic_compute(plan, 0, STREAM_compute, 10);
    const Pc send = synthetic_comm(plan, 0, STREAM_pp_forward, OP_send, pp, 1, 1, 7);
    synthetic_after(plan, 0, send, first);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    const Pc recv = synthetic_comm(plan, 1, STREAM_pp_forward, OP_recv, pp, -1, 1, 7);
    synthetic_after(plan, 1, synthetic_compute(plan, 1, STREAM_compute, 10), recv);
    return plan;
}

/* The host takes 15 to issue an instruction. With or without waiting, the message moves from 30
 * to 37. A host that waits issues the next kernel from 37 on. A host that does not wait has issued
 * rank 1's kernel at 30, and rank 0's at 45. */
static void a_host_can_wait_for_messages(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        EngineResult result;
        FixedNet net;
        NetModel model = fixed_net(&net);
        CostModel cost = {.compute = synthetic_cost_compute, .issue = issue_15};
        cost.waits_messages = waits != 0;
        const Plan *plan = two_stages(arena);
        EngineOptions options = {.cost = &cost, .net = &model, .steps = 2};
        options.fold = fold_ranks(plan, 2, 2, true, arena);
        assert_true(engine_run(plan, &options, arena, &result, &d));
        assert_int_equal(start_of(&result, 0, 2), 30);
        assert_int_equal(start_of(&result, 0, 3), waits ? 52 : 45);
        assert_int_equal(start_of(&result, 1, 2), waits ? 52 : 37);
        assert_int_equal(result.step_ps, waits ? 62 : 55);
        assert_int_equal(result.host[0].n, waits ? 2 : 1);
        arena_free(arena);
    }
}

/* The critical path of that step: the host until 30, the message until 37, the host until 52, then
 * the kernel. */
static void path_shows_where_the_host_waited(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    SimReport report = {0};
    FixedNet net;
    NetModel model = fixed_net(&net);
    CostModel cost = {.compute = synthetic_cost_compute, .issue = issue_15, .waits_messages = true};
    Cluster cluster = {.device = {.launch_s = 1e-12, .hbm_bytes_per_s = 1e12}};
    const Plan *plan = two_stages(arena);
    EngineOptions options = {.cost = &cost, .net = &model};
    Fold *fold = fold_ranks(plan, 2, 2, true, arena);
    options.fold = fold;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    report_time(plan, fold, &result, NULL, &cluster, NULL, arena, &report);
    report_explain(plan, fold, &result, &cluster, &cost, arena, &report);
    const Ps ends[] = {30, 37, 52, 62};
    assert_int_equal(report.path.n, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(report.path.at[i].to_ps, ends[i]);
        assert_int_equal(report.path.at[i].from_ps, i == 0 ? 0 : ends[i - 1]);
        assert_true(report.path.at[i].host == (i % 2 == 0));
    }
    arena_free(arena);
}

/* ---- results that the host reads ---- */

static bool waits_for_40(const void *self, const Instr *in)
{
    (void)self;
    return in->origin == 40;
}

static Ps origin_cost(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p;
    return (Ps)in->origin;
}

static void kernel(Plan *plan, uint32_t microbatch, NodeId ps)
{
    const Instr in = {
        .op = OP_fill, .stream = STREAM_compute, .microbatch = microbatch, .origin = ps};
    list_push(plan->arena, &plan->programs.at[0].code, in);
}

/* Runs `n` micro-batches with kernels of 20 and 40. Returns the time of the step. */
static Ps run_kernels(uint32_t n, bool waits, Period *period, bool *found)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    FixedNet net;
    NetModel model = fixed_net(&net);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    for (uint32_t k = 0; k < n; k++) {
        kernel(plan, k, 20);
        kernel(plan, k, 40);
    }
    const CostModel cost = {
        .compute = origin_cost, .issue = issue_15, .waits = waits ? waits_for_40 : NULL};
    EngineOptions options = {.cost = &cost, .net = &model};
    options.fold = fold_ranks(plan, 1, 1, false, arena);
    assert_true(engine_run(plan, &options, arena, &result, &d));
    *found = period_find(plan, options.fold, &cost, &result, arena, period);
    const Ps step = result.step_ps;
    arena_free(arena);
    return step;
}

/* The host takes 15 to issue the first kernel of a micro-batch. The device then works for 60, and
 * the host issues the second kernel meanwhile. A host that does not wait for results stays ahead of
 * the device, so the 15 count only once. */
static void reading_a_result_stops_the_host(void **state)
{
    (void)state;
    Period period;
    bool found, found_in_many;
    assert_int_equal(run_kernels(1, true, &period, &found), 75);
    assert_int_equal(run_kernels(6, false, &period, &found), 15 + 6 * 60);
    const Ps few = run_kernels(6, true, &period, &found);
    assert_int_equal(few, 6 * 75);
    assert_true(found);
    assert_int_equal(period.length, 75);
    assert_int_equal(run_kernels(20, true, &period, &found_in_many), few + 14 * period.length);
    assert_true(found_in_many);
}

/* ---- Megatron's pipelines ---- */

static double megatron_s(const char *pipeline, const char *change, uint32_t microbatches)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {0};
    Graph graph = {0};
    SimReport report = {0};
    const char *code = arena_print(
        arena,
        "local runtime = require 'runtimes.megatron_core'\n%s\n"
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 8 },\n"
        "runtime = runtime, mesh = { pp = 4 },\n"
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 4 },\n"
        "batch = { micro = 1, global = %u, seq = 64 }, precision = { compute = 'bf16' },\n"
        "parallel = { pp { %s } } }",
        change, microbatches, pipeline);
    if (!front_load_text("plan", code, NULL, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    SimOptions sim = {.runtime = &config.runtime};
    if (!sim_run(plan, &config.cluster, &sim, arena, &report, &d))
        fail_msg("%s", d.items.at[0].text);
    const double s = (double)report.step_ps / (double)PS_PER_S;
    arena_free(arena);
    return s;
}

/* Here the kernels are so small that the host limits the step. With one stage on each rank, the
 * hosts work one after another while the pipeline fills. So a step of n micro-batches takes the
 * time of n + 3 instead of n. With several stages on each rank, Megatron overlaps messages, and its
 * hosts do not wait. */
static void hosts_of_a_pipeline_wait_in_turn(void **state)
{
    (void)state;
    const char *free = "runtime.waits_messages = false";
    for (uint32_t n = 4; n <= 12; n += 4) {
        const double waiting = megatron_s("", "", n), ahead = megatron_s("", free, n);
        const double step_s = megatron_s("",
                                         "runtime.kernel_s = 0; runtime.pass_s = 0; "
                                         "runtime.message_s = 0; runtime.collective_s = 0",
                                         n);
        const double ratio = (waiting - step_s) / (ahead - step_s);
        assert_true(ratio > 1 + 1.5 / n && ratio < 1 + 4. / n);
        const char *chunks = "schedule = 'interleaved_1f1b', chunks = 2";
        assert_true(megatron_s(chunks, "", n) == megatron_s(chunks, free, n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_can_wait_for_messages),
        cmocka_unit_test(path_shows_where_the_host_waited),
        cmocka_unit_test(reading_a_result_stops_the_host),
        cmocka_unit_test(hosts_of_a_pipeline_wait_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
