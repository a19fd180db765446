/* Kernels that a plan contains, but that another framework does not launch, must cost nothing in
 * predictions for it. With delayed scaling, the 8-bit copy of a weight is made once a step, in the
 * first micro-batch. A frozen base keeps its copies for the whole run. If activations begin with
 * the sequence dimension, tp's gathers and reductions need no copies. Other kernels are launched
 * more often: with a ring of cp, each rank calls attention once for each rank of the ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/runtime/runtime.h"

enum { MICROBATCHES = 3 };

/* Compiles a tiny Llama for two H100. `how` contains the options that differ between tests. */
static const Plan *tiny_plan(const char *how, Config *config, Arena *arena)
{
    const char *code = arena_print(
        arena,
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2, vocab = 4096 "
        "},\n"
        "runtime = require 'runtimes.megatron',\n"
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 2 },\n"
        "precision = { compute = 'bf16' }, %s }",
        how);
    Diag d = diag_in(arena);
    Graph *graph = arena_alloc(arena, sizeof *graph);
    memset(graph, 0, sizeof *graph);
    if (!front_load_text("plan", code, NULL, arena, config, graph, &d))
        fail_msg("%s", d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(config, graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    return plan;
}

static const Plan *float8_plan(Config *config, Arena *arena)
{
    const Plan *plan = tiny_plan("mesh = { dp_shard = 2 }, batch = { micro = 2, global = 12, "
                                 "seq = 128 }, parallel = { float8 { skip_indivisible = true }, "
                                 "zero 'optim' }",
                                 config, arena);
    assert_int_equal(plan->step.n_microbatches, MICROBATCHES);
    return plan;
}

/* Counts the kernels that quantise weights in each micro-batch: all of the plan's, and those that
 * run. */
static void count(const Plan *plan, const Runtime *runtime, uint32_t all[], uint32_t run[])
{
    memset(all, 0, MICROBATCHES * sizeof *all);
    memset(run, 0, MICROBATCHES * sizeof *run);
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!runtime_quantises_weight(p, in)) continue;
        all[in->microbatch]++;
        run[in->microbatch] += !runtime_leaves_out(runtime, plan, p, in);
    }
}

static void weights_are_quantised_once_or_never(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Config config = {0};
    const Plan *plan = float8_plan(&config, arena);
    uint32_t all[MICROBATCHES], run[MICROBATCHES];
    for (int delayed = 0; delayed < 2; delayed++)
        for (int frozen = 0; frozen < 2; frozen++) {
            config.runtime.delayed = delayed != 0;
            config.runtime.frozen_base = frozen != 0;
            count(plan, &config.runtime, all, run);
            for (uint32_t mb = 0; mb < MICROBATCHES; mb++) {
                assert_true(all[mb] > 0);
                const bool runs = !delayed || (mb == 0 && !frozen);
                assert_int_equal(run[mb], runs ? all[mb] : 0);
            }
        }
    arena_free(arena);
}

/* Returns how many copies before and after collectives the framework makes. */
static uint32_t copies(const Plan *plan, const Runtime *runtime)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool copies = in->op == OP_pack || in->op == OP_unpack;
        n += copies && !runtime_leaves_out(runtime, plan, p, in);
    }
    return n;
}

/* A block has two groups of products. Forward, each group gathers its input and reduces its output.
 * Backward, it gathers the gradient of its output and again its input, and reduces the gradient of
 * its input. That makes 10 collectives for each block. The embedding reduces its output and gathers
 * the gradient. The head gathers its input twice and reduces the gradient. With one sequence in a
 * micro-batch, nothing has to be reordered. With cp, parts of sequences always have to be. */
static void sequences_first_need_no_copies(void **state)
{
    (void)state;
    static const char *const how[] = {
        "mesh = { tp = 2 }, batch = { micro = 2, global = 2, seq = 128 }, parallel = { tp { "
        "sequence = true } }",
        "mesh = { tp = 2 }, batch = { micro = 1, global = 2, seq = 128 }, parallel = { tp { "
        "sequence = true } }",
        "mesh = { cp = 2 }, batch = { micro = 2, global = 2, seq = 128 }, parallel = { cp {} }"};
    uint32_t all[3], left[3];
    for (int i = 0; i < 3; i++) {
        Arena *arena = arena_new();
        Config config = {0};
        const Plan *plan = tiny_plan(how[i], &config, arena);
        assert_true(config.runtime.sequence_first);
        left[i] = copies(plan, &config.runtime);
        config.runtime.sequence_first = false;
        all[i] = copies(plan, &config.runtime);
        arena_free(arena);
    }
    assert_int_equal(left[0], 0);
    assert_int_equal(all[0], 2 * 10 + 2 + 3);
    assert_int_equal(all[1], 0);
    assert_true(all[2] > 0);
    assert_int_equal(left[2], all[2]);
}

/* Returns the host's time for one attention, counted in kernels. All attentions of `phase` take
 * the same time. The gradient launches `ring_kernels` more for each rank of the ring. */
static double attention_kernels(const char *how, double ring_kernels, Phase phase)
{
    Arena *arena = arena_new();
    Config config = {0};
    const Plan *plan = tiny_plan(how, &config, arena);
    const Program *p = &plan->programs.at[0];
    config.runtime.ring_kernels = ring_kernels;
    config.runtime.ring_grad_kernels = ring_kernels > 0 ? ring_kernels + 1 : 0;
    double all = 0;
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (strncmp(op_info(in->op)->name, "attention", 9) != 0 || in->phase != phase) continue;
        all += (double)runtime_issue_ps(&config.runtime, plan, p, in);
        n++;
    }
    assert_true(n > 0);
    arena_free(arena);
    return all / n / (double)ps_of(config.runtime.kernel_s * (double)PS_PER_S);
}

/* A framework's ring calls attention once for each rank of cp, forward and backward, although the
 * plan gathers the keys and calls attention once. If the plan itself has a ring, its calls are
 * already separate. */
static void rings_call_attention_once_for_each_rank(void **state)
{
    (void)state;
    static const char gathered[] =
        "mesh = { cp = 2 }, batch = { micro = 2, global = 2, seq = 128 }, parallel = { cp {} }";
    static const char ring[] = "mesh = { cp = 2 }, batch = { micro = 2, global = 2, seq = 128 }, "
                               "parallel = { cp { mode = 'ring' } }";
    static const char none[] =
        "mesh = { dp_shard = 2 }, batch = { micro = 1, global = 2, seq = 128 }, parallel = { zero "
        "'optim' }";
    for (Phase phase = PHASE_forward; phase <= PHASE_backward; phase++) {
        if (phase != PHASE_forward && phase != PHASE_backward) continue;
        const float each = phase == PHASE_forward ? 2 : 3;
        assert_float_equal(attention_kernels(gathered, 2, phase), 2 * each, 1e-6);
        assert_float_equal(attention_kernels(gathered, 0, phase), 1, 1e-6);
        assert_float_equal(attention_kernels(ring, 2, phase), 1, 1e-6);
        assert_float_equal(attention_kernels(none, 2, phase), 1, 1e-6);
    }
}

/* Each further call of an op takes call_s on the host, in addition to its kernels. */
static void further_calls_take_the_host_longer(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Config config = {0};
    const Plan *plan = tiny_plan("mesh = { dp_shard = 2 }, batch = { micro = 1, global = 2, seq = "
                                 "128 }, parallel = { zero 'optim' }",
                                 &config, arena);
    const Program *p = &plan->programs.at[0];
    Pc pc = 1;
    while (strcmp(op_info(p->code.at[pc].op)->name, "attention") != 0) pc++;
    const Instr *in = &p->code.at[pc];
    config.runtime.call_s = 1e-6;
    const Ps without = runtime_issue_ps(&config.runtime, plan, p, in);
    config.runtime.op[in->op].calls = 3;
    assert_int_equal(runtime_issue_ps(&config.runtime, plan, p, in), without + 3000000);
    config.runtime.op[in->op].kernels = 0;
    assert_int_equal(runtime_issue_ps(&config.runtime, plan, p, in), 3000000);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_quantised_once_or_never),
                                       cmocka_unit_test(sequences_first_need_no_copies),
                                       cmocka_unit_test(rings_call_attention_once_for_each_rank),
                                       cmocka_unit_test(further_calls_take_the_host_longer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
