/* Steps under another framework: when its host issues instructions, the cost of its eager kernels,
 * and the memory of a short program. The expected numbers of short programs are computed by
 * hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/compute/kernels.h"
#include "sim/memory/torch_memory.h"
#include "tests/sim/synthetic.h"

#define MIB (UINT64_C(1) << 20)

static Ps issue_15(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p, (void)in;
    return 15;
}

/* Four kernels take 10, 10, 40 and 10, and are issued at 20, 35, 50 and 65. The first three wait
 * for the host. The last one waits for the third. */
static void no_kernel_starts_before_it_is_issued(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    FixedNet net;
    NetModel model = fixed_net(&net);
    CostModel cost = {.compute = synthetic_cost_compute, .issue = issue_15, .issue_from = 5};
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    const Ps duration[] = {10, 10, 40, 10};
    for (int i = 0; i < 4; i++) synthetic_compute(plan, 0, STREAM_compute, duration[i]);
    EngineOptions options = {.cost = &cost, .net = &model, .steps = 2};
    options.fold = fold_ranks(plan, 1, 1, false, arena);
    assert_true(engine_run(plan, &options, arena, &result, &d));
    const Ps start[] = {20, 35, 50, 90};
    for (Pc i = 0; i < 4; i++) assert_int_equal(moment_of(&result.line[0], i + 1)->start, start[i]);
    assert_int_equal(result.step_ps, 100);
    assert_int_equal(moment_of(&result.line[0], 4)->by, 3);
    arena_free(arena);
}

/* A launch group starts when its last member is issued: at 30, not at 15. */
static void a_launch_group_is_issued_as_one(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    FixedNet net;
    NetModel model = fixed_net(&net);
    CostModel cost = {.compute = synthetic_cost_compute, .issue = issue_15};
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet axis = synthetic_axis(plan, AXIS_dp_shard);
    for (uint32_t match = 1; match <= 2; match++) {
        Pc pc = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_reduce, axis, 0, match, 100);
        plan->programs.at[0].code.at[pc].launch = 9;
    }
    EngineOptions options = {.cost = &cost, .net = &model};
    options.fold = fold_ranks(plan, 2, 2, false, arena);
    assert_true(engine_run(plan, &options, arena, &result, &d));
    assert_int_equal(moment_of(&result.line[0], 1)->start, 30);
    assert_int_equal(moment_of(&result.line[0], 2)->start, 30);
    assert_int_equal(result.step_ps, 130);
    arena_free(arena);
}

static bool leaves_out_first(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p;
    return in->match == 1;
}

/* The modelled framework does not do this communication. So it takes no time and waits for no rank,
 * and its peers need not reach it. */
static void omitted_communication_takes_no_time(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    EngineResult result;
    FixedNet net;
    NetModel model = fixed_net(&net);
    CostModel cost = {.compute = synthetic_cost_compute, .leaves_out = leaves_out_first};
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet axis = synthetic_axis(plan, AXIS_dp_shard);
    for (uint32_t match = 1; match <= 2; match++)
        synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_reduce, axis, 0, match, 100);
    EngineOptions options = {.cost = &cost, .net = &model};
    options.fold = fold_ranks(plan, 2, 2, false, arena);
    assert_true(engine_run(plan, &options, arena, &result, &d));
    assert_int_equal(moment_of(&result.line[0], 1)->end, 0);
    assert_int_equal(moment_of(&result.line[0], 2)->start, 0);
    assert_int_equal(result.step_ps, 100);
    arena_free(arena);
}

static double float8_step_s(const char *profile, uint32_t microbatches)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {0};
    Graph graph = {0};
    SimReport report = {0};
    const char *code = arena_print(
        arena,
        "local runtime = require 'runtimes.megatron'\n%s\n"
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2, vocab = 4096 "
        "},\n"
        "runtime = runtime, mesh = { dp_shard = 2 },\n"
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 2 },\n"
        "batch = { micro = 2, global = %u, seq = 128 }, precision = { compute = 'bf16' },\n"
        "parallel = { float8 { skip_indivisible = true }, zero 'optim' } }",
        profile, 4 * microbatches);
    if (!front_load_text("plan", code, NULL, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    SimOptions sim = {.runtime = &config.runtime};
    assert_true(sim_run(plan, &config.cluster, &sim, arena, &report, &d));
    double s = (double)report.step_ps / (double)PS_PER_S;
    arena_free(arena);
    return s;
}

/* With delayed scaling, there are no kernels or collectives for maxima, and weights are quantised
 * once a step. The host issues none of these either, so only its time remains: 5 us for each
 * kernel. */
static void delayed_scaling_quantises_weights_once(void **state)
{
    (void)state;
    const char *dynamic = "runtime.delayed = false";
    const char *no_maxima =
        "runtime.delayed = false; runtime.ops.amax = { kernels = 0, passes = 0 }";
    double one = float8_step_s("", 1), three = float8_step_s("", 3);
    double dynamic_one = float8_step_s(dynamic, 1), dynamic_three = float8_step_s(dynamic, 3);
    double no_one = float8_step_s(no_maxima, 1), no_three = float8_step_s(no_maxima, 3);
    assert_true(one < dynamic_one);
    assert_true(three - one < .8 * (dynamic_three - dynamic_one));
    assert_true(three - one < .9 * (no_three - no_one)); /* weights are quantised once a step */
}

/* Returns true if the report warns that the host is the limit. The host takes 1 ms for each kernel
 * here. */
static bool is_host_bound(const char *runtime)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {0};
    Graph graph = {0};
    SimReport report = {0};
    const char *code = arena_print(
        arena,
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2 }, %s\n"
        "cluster = require 'clusters.gpu' { gpu = 'A100', devices_per_node = 1 },\n"
        "batch = { micro = 2, seq = 128 }, precision = { compute = 'bf16' }, parallel = {} }",
        runtime);
    if (!front_load_text("plan", code, NULL, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    config.cluster.device.launch_s = 1e-3;
    SimOptions sim = {.runtime = &config.runtime};
    assert_true(sim_run(plan, &config.cluster, &sim, arena, &report, &d));
    assert_true(report.host_ps > report.step_ps);
    const bool bound = report.host_bound;
    arena_free(arena);
    return bound;
}

/* A step of Tandem's executor does not contain its host's time, so the report warns of it. A
 * framework's step contains the time of its host. */
static void only_the_own_host_is_warned_of(void **state)
{
    (void)state;
    assert_true(is_host_bound(""));
    assert_false(is_host_bound("runtime = 'megatron',"));
}

static double step_s(const char *runtime, const char *passes, const char *set, Held *held)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {0};
    Graph graph = {0};
    SimReport report = {0};
    const char *code =
        arena_print(arena,
                    "return plan { model = require 'models.llama' { size = 'tiny', layers = 2, "
                    "vocab = 4096 },\n"
                    "cluster = require 'clusters.gpu' { gpu = 'A100', devices_per_node = 1 },\n"
                    "batch = { micro = 2, seq = 128 }, precision = { compute = 'bf16' }, %s\n"
                    "parallel = { %s } }",
                    runtime, passes);
    FrontOptions options = {.set = &set, .n_set = set != NULL};
    if (!front_load_text("plan", code, &options, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    SimOptions sim = {.runtime = &config.runtime};
    assert_true(sim_run(plan, &config.cluster, &sim, arena, &report, &d));
    *held = report.held;
    double s = (double)report.step_ps / (double)PS_PER_S;
    arena_free(arena);
    return s;
}

/* No op moves or computes more than the device can, whether it is fused or split into many
 * passes. */
static void no_op_exceeds_the_device(void **state)
{
    (void)state;
    static const char *const profiles[] = {"", "runtime = 'torchtitan',", "runtime = 'fsdp1',"};
    for (uint32_t i = 0; i < 6; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Config config = {0};
        Graph graph = {0};
        SimReport report = {0};
        const char *code = arena_print(
            arena,
            "return plan { model = require 'models.gpt2' '124m', cluster = require "
            "'clusters.gpu' { gpu = 'H200', devices_per_node = 1 }, batch = { micro = "
            "32, seq = 1024 }, precision = { compute = 'bf16' }, %s parallel = { %s } }",
            profiles[i % 3], i < 3 ? "" : "compile { per = 'block' }");
        if (!front_load_text("plan", code, NULL, arena, &config, &graph, &d))
            fail_msg("%s", d.items.at[0].text);
        LowerOptions lower = lower_options_default();
        const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
        assert_non_null(plan);
        SimOptions sim = {.runtime = &config.runtime, .explain = true};
        assert_true(sim_run(plan, &config.cluster, &sim, arena, &report, &d));
        assert_true(report.kinds.n > 10);
        for (uint32_t k = 0; k < report.kinds.n; k++) {
            const KindRow *row = &report.kinds.at[k];
            if (row->of_peak > 1 || row->of_memory > 1)
                fail_msg("%s, %s: %.0f %% of the peak, %.0f %% of the memory's rate",
                         profiles[i % 3], op_info(row->op)->name, 100 * row->of_peak,
                         100 * row->of_memory);
        }
        arena_free(arena);
    }
}

/* If the host takes a millisecond for each kernel, the number of kernels determines the step.
 * Compiled regions have fewer kernels, at another cost. Tandem's executor has neither cost. */
static void a_slow_host_limits_the_step(void **state)
{
    (void)state;
    static const char torch[] = "runtime = 'torchtitan',";
    Held held;
    double own = step_s("", "ac 'full'", NULL, &held);
    assert_int_equal(held.reserved_bytes, 0);
    double eager = step_s(torch, "ac 'full'", "runtime.kernel_s=1e-3", &held);
    double faster = step_s(torch, "ac 'full'", "runtime.kernel_s=1e-6", &held);
    double compiled = step_s(torch, "ac 'full', compile 'model'", "runtime.kernel_s=1e-3", &held);
    assert_true(held.allocated_bytes > 0);
    assert_true(held.reserved_bytes >= held.allocated_bytes);
    assert_true(own < faster);
    assert_true(faster < .1);
    assert_true(eager > .1 && eager < 3);
    assert_true(compiled < eager / 2);
}

/* A slower CPU takes longer for each kernel and between steps. A factor of 0 means the CPU of the
 * profile. */
static void host_times_follow_the_hosts_factor(void **state)
{
    (void)state;
    static const struct {
        double factor, times;
    } cases[] = {{0, 1}, {1, 1}, {.5, .5}, {1.5, 1.5}};
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    synthetic_compute(plan, 0, STREAM_compute, 10);
    const Program *p = &plan->programs.at[0];
    const Instr *in = program_instr(p, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Runtime runtime = {.name = "slow", .kernel_s = 1e-6, .step_s = 4e-6};
        runtime.host_factor = cases[i].factor;
        runtime.op[in->op].kernels = 2;
        assert_int_equal(runtime_step_ps(&runtime), (Ps)(4e6 * cases[i].times));
        assert_int_equal(runtime_issue_ps(&runtime, plan, p, in), (Ps)(2e6 * cases[i].times));
    }
    arena_free(arena);
}

/* A pass begins with the first kernel of a micro-batch in one direction. Only there does the host
 * need more time. */
static void each_pass_of_a_micro_batch_takes_the_host_longer(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    for (int i = 0; i < 8; i++) synthetic_compute(plan, 0, STREAM_compute, 10);
    Program *p = &plan->programs.at[0];
    /* micro-batch 0 forward (2 kernels) and backward (2), then micro-batch 1 */
    for (Pc pc = 1; pc <= 8; pc++) {
        p->code.at[pc].microbatch = (pc - 1) / 4;
        p->code.at[pc].phase = (pc - 1) % 4 < 2 ? PHASE_forward : PHASE_backward;
    }
    Runtime runtime = {.name = "slow", .kernel_s = 1e-6, .pass_s = 5e-6};
    runtime.op[p->code.at[1].op].kernels = 1;
    for (Pc pc = 1; pc <= 8; pc++)
        assert_int_equal(runtime_issue_ps(&runtime, plan, p, program_instr(p, pc)),
                         pc % 2 == 1 ? 6000000 : 1000000);
    arena_free(arena);
}

/* With Liger's kernels, Automodel launches fewer kernels than under tensor parallelism, where it
 * does not use them. The step is shorter if the host is the limit, and also if the device is. */
static void ligers_kernels_shorten_the_step(void **state)
{
    (void)state;
    Held held;
    for (int i = 0; i < 2; i++) {
        const char *host = i == 0 ? "runtime.kernel_s=1e-3" : "runtime.kernel_s=1e-9";
        double liger = step_s("runtime = 'automodel',", "ac 'full'", host, &held);
        uint64_t with = held.allocated_bytes;
        double eager = step_s("runtime = 'automodel_tp',", "ac 'full'", host, &held);
        assert_true(liger < (i == 0 ? .95 : 1) * eager);
        assert_true(with <= held.allocated_bytes);
    }
}

/* cuBLAS's 8,519,680 bytes and 30 MiB of weights stay allocated. Instruction 1 writes 40 MiB, which
 * live until 3. Instruction 2 has 24 MiB of scratch in two tensors. Instruction 3 makes a gradient
 * of 50 MiB, which lives until the last instruction, 4. The peak is at 3: weights + 40 + 50. */
static void a_short_program_has_its_memory_by_hand(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Runtime runtime = {.name = "test"};
    Device device = {.arch = "Ampere"};
    for (int i = 0; i < 4; i++) synthetic_compute(plan, 0, STREAM_compute, 1);
    Program *p = &plan->programs.at[0];
    p->code.at[2].op = OP_silu;
    synthetic_buffer(plan, 30 * MIB, 1, 4, CATEGORY_parameter, true);
    BufferId x = synthetic_buffer(plan, 40 * MIB, 1, 3, CATEGORY_activation, false);
    synthetic_buffer(plan, 50 * MIB, 3, 4, CATEGORY_gradient, true);
    p->code.at[2].args = (Span){p->args.n, 1};
    p->code.at[2].n_in = 1;
    list_push(arena, &p->args, x);
    runtime.op[OP_silu] = (RuntimeOp){.scratch = 1.2, .tensors = 2}; /* 24 MiB for 20 Mi elements */
    uint64_t stays = 8519680 + 30 * MIB;
    TorchStats s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, stays + 90 * MIB);
    /* segments: 20 for the workspace, 30, 40, two of 12 for scratch, and 50 */
    assert_int_equal(s.peak_reserved, (20 + 30 + 40 + 12 + 12 + 50) * MIB);
    assert_int_equal(s.n_segments, 6);
    runtime.op[OP_silu].scratch =
        6; /* two tensors of 60 MiB: the peak moves to 2, and the later 50 MiB reuse one of them */
    s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, stays + 160 * MIB);
    assert_int_equal(s.peak_reserved, (20 + 30 + 40 + 120) * MIB);
    s = torch_memory(plan, p, &runtime, &device, 150 * MIB);
    assert_true(s.failed);
    arena_free(arena);
}

/* The tensors that an op saves live until the last use of its inputs or outputs. In a recomputed
 * region, the first pass saves nothing. */
static void saved_tensors_live_until_their_gradient(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Runtime runtime = {.name = "test"};
    Device device = {.arch = "Ampere"};
    for (int i = 0; i < 4; i++) synthetic_compute(plan, 0, STREAM_compute, 1);
    Program *p = &plan->programs.at[0];
    BufferId x = synthetic_buffer(plan, 20 * MIB, 1, 2, CATEGORY_activation, false);
    BufferId y = synthetic_buffer(plan, 20 * MIB, 2, 4, CATEGORY_activation, false);
    synthetic_buffer(plan, 100 * MIB, 4, 4, CATEGORY_activation, false);
    Instr *in = &p->code.at[2];
    *in = (Instr){.op = OP_rmsnorm, .stream = STREAM_compute, .phase = PHASE_forward};
    in->args = (Span){p->args.n, 2};
    in->n_in = 1;
    in->origin = list_add(arena, &plan->graph.nodes);
    list_push(arena, &p->args, x);
    list_push(arena, &p->args, y);
    /* 4 bytes for each of 10 Mi elements: 40 MiB */
    runtime.op[OP_rmsnorm] = (RuntimeOp){.saved = 4, .tensors = 1};
    TorchStats s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + (20 + 40 + 100) * MIB);
    plan->graph.nodes.at[in->origin].region = 1;
    s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + (20 + 100) * MIB);
    in->phase = PHASE_recompute;
    s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + (20 + 40 + 100) * MIB);
    arena_free(arena);
}

/* The plan gathers a unit before the loss, for the backward pass. PyTorch gathers it in a hook
 * after the loss, so the 100 MiB of the loss and the unit's 80 never exist together. If a forward
 * pass before the loss reads the unit, it is gathered at once. */
static void no_hook_gathers_before_the_loss_has_its_gradient(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 2, 1, 1);
    AxisSet axis = synthetic_axis(plan, AXIS_dp_shard);
    Runtime runtime = {.name = "test"};
    Device device = {.arch = "Ampere"};
    synthetic_compute(plan, 0, STREAM_compute, 1);
    Pc gather = synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, axis, 0, 1, 0);
    Pc loss = synthetic_compute(plan, 0, STREAM_compute, 1);
    Pc after = synthetic_compute(plan, 0, STREAM_compute, 1);
    Program *p = &plan->programs.at[0];
    p->code.at[loss].op = OP_xent_sumexp_grad;
    synthetic_buffer(plan, 100 * MIB, loss, loss, CATEGORY_activation, false);
    BufferId unit = synthetic_buffer(plan, 80 * MIB, gather, after, CATEGORY_gathered, false);
    Instr *in = &p->code.at[after];
    in->op = OP_silu, in->n_in = 1, in->args = (Span){p->args.n, 1};
    list_push(arena, &p->args, unit);
    TorchStats s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + 100 * MIB);
    /* now the loss itself reads the unit */
    p->code.at[loss].args = in->args, p->code.at[loss].n_in = 1;
    s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + 180 * MIB);
    arena_free(arena);
}

/* The output of silu, 40 MiB, is read forward at 2 and backward at 4. Another 50 MiB exist at 3. If
 * the output is recomputed, it need not be kept for the backward pass. */
static void recomputed_outputs_are_not_kept(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Runtime runtime = {.name = "test"};
    Device device = {.arch = "Ampere"};
    for (int i = 0; i < 4; i++) synthetic_compute(plan, 0, STREAM_compute, 1);
    Program *p = &plan->programs.at[0];
    BufferId y = synthetic_buffer(plan, 40 * MIB, 1, 4, CATEGORY_activation, false);
    synthetic_buffer(plan, 50 * MIB, 3, 3, CATEGORY_activation, false);
    const Span reads = {p->args.n, 1};
    list_push(arena, &p->args, y);
    p->code.at[1].op = OP_silu;
    p->code.at[2].args = p->code.at[4].args = reads;
    p->code.at[2].n_in = p->code.at[4].n_in = 1;
    p->code.at[4].phase = PHASE_backward;
    TorchStats s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + 90 * MIB);
    runtime.op[OP_silu].remade = true;
    s = torch_memory(plan, p, &runtime, &device, 1000 * MIB);
    assert_int_equal(s.peak_allocated, 8519680 + 50 * MIB);
    arena_free(arena);
}

/* If scores are written to memory, attention costs more than a flash kernel at any length, and its
 * cost grows with the square of the length. */
static void unfused_attention_writes_its_scores(void **state)
{
    (void)state;
    Device device = {.arch = "Ampere", .sms = 108, .hbm_bytes_per_s = 2e12};
    device.peak_flops[DT_bf16] = 312e12;
    device.gemm_efficiency = device.memory_efficiency = .8;
    double last = 0;
    for (double s = 512; s <= 8192; s *= 2) {
        double unfused = runtime_unfused_s(&device, DT_bf16, 64, s, s, 128, false);
        AttentionWork work = {.kernel = ATTENTION_flash2, .dtype = DT_bf16, .causal = true};
        work.heads = work.kv_heads = 64;
        work.queries = work.keys = s;
        work.head = work.value = 128;
        double flash = cost_attention_s(&device, &work, NULL);
        assert_true(unfused > 2 * flash);
        assert_true(unfused >= 64 * s * s * 13 / (2e12 * .8));
        if (last > 0) assert_true(unfused > 2.5 * last && unfused < 4.5 * last);
        last = unfused;
    }
    double both = runtime_unfused_s(&device, DT_bf16, 16, 2048, 2048, 128, true);
    assert_true(both > 1.4 * runtime_unfused_s(&device, DT_bf16, 16, 2048, 2048, 128, false));
}

/* In the forward pass, one product computes the scores, and another multiplies them by the values.
 * Tiles are not square, so it matters which sizes are rows. */
static void unfused_attention_has_two_products(void **state)
{
    (void)state;
    Device device = {.arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    device.peak_flops[DT_bf16] = 989e12;
    device.gemm_efficiency = device.memory_efficiency = .8;
    const double k = 2048;
    uint32_t n_other = 0;
    for (double q = 300; q <= 10000; q *= 1.5)
        for (double e = 32; e <= 256; e += 32) {
            const double scores = kernel_gemm_s(&device, DT_bf16, 5, q, k, e, NULL),
                         values = kernel_gemm_s(&device, DT_bf16, 5, q, e, k, NULL),
                         rest = kernel_memory_s(&device, 5 * q * k * 13),
                         s = runtime_unfused_s(&device, DT_bf16, 5, q, k, e, false);
            assert_true(fabs(s - scores - values - rest) < 1e-9 * s);
            n_other += kernel_gemm_s(&device, DT_bf16, 5, e, q, k, NULL) != values;
        }
    assert_true(n_other > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_kernel_starts_before_it_is_issued),
        cmocka_unit_test(a_launch_group_is_issued_as_one),
        cmocka_unit_test(omitted_communication_takes_no_time),
        cmocka_unit_test(only_the_own_host_is_warned_of),
        cmocka_unit_test(delayed_scaling_quantises_weights_once),
        cmocka_unit_test(no_op_exceeds_the_device),
        cmocka_unit_test(a_slow_host_limits_the_step),
        cmocka_unit_test(host_times_follow_the_hosts_factor),
        cmocka_unit_test(each_pass_of_a_micro_batch_takes_the_host_longer),
        cmocka_unit_test(ligers_kernels_shorten_the_step),
        cmocka_unit_test(a_short_program_has_its_memory_by_hand),
        cmocka_unit_test(saved_tensors_live_until_their_gradient),
        cmocka_unit_test(no_hook_gathers_before_the_loss_has_its_gradient),
        cmocka_unit_test(recomputed_outputs_are_not_kept),
        cmocka_unit_test(unfused_attention_writes_its_scores),
        cmocka_unit_test(unfused_attention_has_two_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
