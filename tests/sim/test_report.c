/* The numbers of the report, computed by hand: the time of exposed communication and its causes,
 * the memory at the peak, and the MFU. Also the plans that sim_run refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/report.h"
#include "tests/sim/synthetic.h"

static void report_under(const Plan *plan, const Runtime *runtime, Arena *arena, SimReport *report)
{
    Diag d = diag_in(arena);
    EngineResult result;
    Cluster cluster = {.device.launch_s = 1e-12};
    assert_true(run_fixed(plan, true, 1, arena, &result, &d));
    Fold *fold = fold_ranks(plan, 4, 4, true, arena);
    *report = (SimReport){0};
    report_time(plan, fold, &result, NULL, &cluster, runtime, arena, report);
}

static void report_of(const Plan *plan, Arena *arena, SimReport *report)
{
    report_under(plan, NULL, arena, report);
}

static const AxisTime *row_of(const SimReport *report, Stream stream)
{
    for (uint32_t i = 0; i < report->axes.n; i++) {
        if (report->axes.at[i].stream == stream) return &report->axes.at[i];
    }
    fail_msg("no row for stream %s", stream_name(stream));
    return NULL;
}

/* The gather (45) is hidden by a (10) and b (20) for 30. c waits for its end. The reduction (50) of
 * c's result runs while e (20) computes, and continues after the compute stream has ended. */
static void hidden_and_exposed_communication_are_told_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 45);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    synthetic_compute(plan, 0, STREAM_compute, 20);
    /* c runs 45..50, so 15 of the gather are exposed */
    Pc c = synthetic_compute(plan, 0, STREAM_compute, 5);
    synthetic_after(plan, 0, c, gather);
    Pc reduce = synthetic_comm(plan, 0, STREAM_dp_reduce, OP_reduce_scatter, dp, 0, 2, 50);
    synthetic_after(plan, 0, reduce, c);
    synthetic_compute(plan, 0, STREAM_compute, 20); /* e runs 50..70; the reduction ends at 100 */
    SimReport report;
    report_of(plan, arena, &report);
    assert_int_equal(report.step_ps, 100);
    assert_int_equal(report.compute_ps, 55);
    assert_int_equal(report.idle_ps, 45);
    assert_int_equal(row_of(&report, STREAM_dp_gather)->exposed_ps, 15);
    assert_int_equal(row_of(&report, STREAM_dp_gather)->total_ps, 45);
    assert_int_equal(row_of(&report, STREAM_dp_reduce)->exposed_ps, 30);
    assert_int_equal(row_of(&report, STREAM_dp_reduce)->bytes, 50);
    assert_int_equal(report.exposed_ps, 45);
    assert_int_equal(report.collectives.n, 2);
    assert_int_equal(report.collectives.at[0].exposed_ps, 15);
    assert_int_equal(report.host_ps, 6);
    assert_false(report.host_bound);
    arena_free(arena);
}

/* The compute stream waits for a gather, which itself waited for a tensor-parallel reduction. Of
 * the 60 that are exposed, 40 belong to the reduction. */
static void exposed_time_is_traced_to_its_cause(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 2, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard), tp = synthetic_axis(plan, AXIS_tp);
    Pc first = synthetic_comm(plan, 0, STREAM_tp, OP_all_reduce, tp, 0, 1, 40);
    Pc second = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 2, 20);
    synthetic_after(plan, 0, second, first);
    Pc c = synthetic_compute(plan, 0, STREAM_compute, 5);
    synthetic_after(plan, 0, c, second);
    SimReport report;
    report_of(plan, arena, &report);
    assert_int_equal(row_of(&report, STREAM_tp)->exposed_ps, 40);
    assert_int_equal(row_of(&report, STREAM_dp_gather)->exposed_ps, 20);
    assert_int_equal(report.exposed_ps, report.idle_ps);
    arena_free(arena);
}

static BufferId add_buffer(Plan *plan, uint64_t offset, uint64_t bytes, Category category, Pc first,
                           Pc last)
{
    Buffer b = {.offset = offset, .bytes = bytes, .category = category};
    b.first = first;
    b.last = last;
    return list_push(plan->arena, &plan->programs.at[0].buffers, b);
}

static void memory_is_counted_at_its_peak(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    for (uint32_t i = 0; i < 5; i++) synthetic_compute(plan, 0, STREAM_compute, 1);
    Program *p = &plan->programs.at[0];
    BufferId weights = add_buffer(plan, 0, 1000, CATEGORY_parameter, 2, 2);
    p->buffers.at[weights].persistent = true;
    BufferId before = add_buffer(plan, 1000, 300, CATEGORY_activation, 1, 3);
    BufferId after = add_buffer(plan, 1000, 300, CATEGORY_activation, 3, 5);
    p->code.at[3].args = (Span){p->args.n, 2}; /* instruction 3 works in place */
    p->code.at[3].n_in = 1;
    list_push(arena, &p->args, before);
    list_push(arena, &p->args, after);
    add_buffer(plan, 2000, 50, CATEGORY_gathered, 4, 4);
    BufferId view = add_buffer(plan, 10, 20, CATEGORY_gathered, 4, 4);
    p->buffers.at[view].parent = weights;
    BufferId host = add_buffer(plan, 0, 9999, CATEGORY_optimizer, 1, 5);
    p->buffers.at[host].space = SPACE_host;
    p->bytes = 2050;
    MemoryPeak peak;
    memory_peak(p, arena, &peak);
    assert_int_equal(peak.pc, 4);
    assert_int_equal(peak.at[CATEGORY_activation], 300);
    assert_int_equal(peak.at[CATEGORY_gathered], 50);
    assert_int_equal(peak.at[CATEGORY_parameter], 1000);
    /* now a root, it counts for its own category, and has an earlier peak */
    p->buffers.at[view].parent = 0;
    p->buffers.at[view].first = p->buffers.at[view].last = 3;
    p->buffers.at[view].bytes = 51;
    memory_peak(p, arena, &peak);
    assert_int_equal(peak.pc, 3);
    /* `after` uses the same bytes as `before` */
    assert_int_equal(peak.at[CATEGORY_activation], 300);
    assert_int_equal(peak.at[CATEGORY_gathered], 51);
    p->buffers.at[view] = (Buffer){.parent = weights, .offset = 10, .bytes = 20};
    Cluster cluster = {.device = {.memory_bytes = 3000, .reserved_bytes = 900}};
    SimReport report = {0};
    report_memory(plan, &cluster, &(SimOptions){0}, arena, &report);
    assert_int_equal(report.peak_bytes, 2050);
    assert_int_equal(report.total_bytes, 2950);
    assert_int_equal(report.memory[CATEGORY_activation], 300);
    assert_int_equal(report.memory_holes, 2050 - 1350);
    assert_true(report.fits);
    cluster.device.reserved_bytes = 951;
    report_memory(plan, &cluster, &(SimOptions){0}, arena, &report);
    assert_false(report.fits);
    arena_free(arena);
}

static Cluster one_node(void)
{
    Cluster c = {.name = "test", .nodes = 1, .devices_per_node = 4, .intra = FABRIC_nvswitch};
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3e12};
    c.device.peak_flops[DT_bf16] = 1e15;
    c.device.peak_flops[DT_f32] = 6e13;
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = 4;
    c.nic_bytes_per_s = 50e9;
    return c;
}

/* The default for Llama-3.1-8B: 6 x 7,504,924,672 + 6 x 32 x 4096 x 8192 FLOPs for each token. */
static void mfu_follows_its_formula(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 4, 1, 1);
    list_reserve_none(arena, &plan->graph.tensors);
    Tensor w = {.name = "w", .role = ROLE_param, .dtype = DT_bf16, .n_dims = 1, .dim = {8}};
    list_push(arena, &plan->graph.tensors, w);
    plan->graph.info = (ModelInfo){.n_params_no_embedding = UINT64_C(7504924672), .n_layers = 32};
    plan->graph.info.d_model = 4096;
    plan->graph.info.seq = 8192;
    plan->step.global_batch = 4;
    plan->step.seq = 8192;
    Buffer b = {.shape = 0, .dtype = DT_bf16, .bytes = 600000};
    list_push(arena, &plan->programs.at[0].buffers, b);
    Instr in = {.op = OP_copy, .stream = STREAM_compute, .n_in = 1, .args = {0, 2}};
    list_push(arena, &plan->programs.at[0].args, 1);
    list_push(arena, &plan->programs.at[0].args, 1);
    list_push(arena, &plan->programs.at[0].code, in);
    Cluster cluster = one_node();
    SimReport report;
    SimOptions options = {.trace = true};
    assert_true(sim_run(plan, &cluster, &options, arena, &report, &d));
    double per_token = 6 * 7504924672. + 6. * 32 * 4096 * 8192;
    assert_true(report.model_flops_per_token == per_token);
    assert_string_equal(report.mfu_formula, "6 x 7,504,924,672 params (no input embedding) + 6 x "
                                            "32 layers x 4096 x 8192 per token");
    assert_string_equal(report.peak_name, "1000 TFLOP/s dense bf16 H100");
    double seconds = (double)report.step_ps / 1e12;
    assert_true(fabs(report.tokens_per_s * seconds - 4 * 8192) < 1e-3);
    assert_true(fabs(report.tokens_per_s_per_device * 4 / report.tokens_per_s - 1) < 1e-12);
    assert_true(fabs(report.mfu / (report.tokens_per_s_per_device * per_token / 1e15) - 1) < 1e-12);
    assert_int_equal(report.n_classes, 1);
    assert_int_equal(report.trace.rows.n, 1);
    assert_int_equal(report.trace.rows.at[0].bytes, 1200000);
    assert_int_equal(report.trace.steps.at[0].time_ps, report.step_ps);
    arena_free(arena);
}

/* Two data ranks read six sequences a step, each in 20 ps. That takes 60 ps if the work takes
 * less. */
static void a_step_waits_for_its_input(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (uint32_t work = 10; work <= 90; work += 80) {
        Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
        synthetic_compute(plan, 0, STREAM_compute, work);
        plan->step.global_batch = 6;
        const Runtime runtime = {.name = "test", .input_s = 20e-12};
        SimReport report;
        report_under(plan, &runtime, arena, &report);
        assert_int_equal(report.step_ps, work < 60 ? 60 : work);
        assert_int_equal(report.idle_ps, work < 60 ? 60 - work : 0);
        assert_int_equal(report.input_ps, work < 60 ? 60 - work : 0);
    }
    arena_free(arena);
}

static void too_many_ranks_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 5, 1, 1);
    Cluster cluster = one_node();
    SimReport report;
    assert_false(sim_run(plan, &cluster, &(SimOptions){0}, arena, &report, &d));
    assert_string_equal(d.items.at[0].rule, "sim-cluster");
    assert_int_equal(diag_exit_code(&d), 3);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_and_exposed_communication_are_told_apart),
        cmocka_unit_test(exposed_time_is_traced_to_its_cause),
        cmocka_unit_test(memory_is_counted_at_its_peak),
        cmocka_unit_test(mfu_follows_its_formula),
        cmocka_unit_test(too_many_ranks_are_refused),
        cmocka_unit_test(a_step_waits_for_its_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
