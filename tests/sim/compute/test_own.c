/* The predicted times of Tandem's own kernels and steps on Hopper, compared with measurements on
 * one H200 (docs/explanation/on-an-h200.md). Other runtimes and other devices must not get these
 * constants. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/compute/kernels.h"
#include "sim/compute/own.h"
#include "sim/runtime/runtime.h"

static Device h200(void)
{
    Device d = {.name = "H200", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 4.8e12};
    d.peak_flops[DT_bf16] = 989.4e12;
    d.peak_flops[DT_f32] = 66.9e12;
    d.memory_efficiency = .9;
    d.kernel_floor_s = 5e-6;
    d.sustained = .75;
    d.light_power = .3;
    return kernel_sustained(&d);
}

/* Attention forward, in traced steps of gpt2_124m, gpt2_1_5b and llama_1b (gpt2_1_5b was not used
 * to choose the constants). Also its gradient as one kernel, timed alone: in a step the clock is
 * lower, so that earlier versions of that kernel took 1.14 and 1.20 times as long there. */
static const struct {
    double samples, tokens, groups, heads;
    bool backward;
    double us;
} attentions[] = {
    {64, 1024, 12, 1, false, 480}, {16, 1024, 25, 1, false, 265}, {4, 4096, 8, 4, false, 871},
    {64, 1024, 12, 1, true, 930},  {16, 1024, 25, 1, true, 502},  {4, 4096, 8, 4, true, 1530},
    {1, 16384, 8, 4, true, 5615},
};

static AttentionWork attention_of(double samples, double tokens, double groups, double heads)
{
    AttentionWork w = {.kernel = ATTENTION_tandem, .dtype = DT_bf16, .causal = true};
    w.kv_heads = samples * groups;
    w.heads = w.kv_heads * heads;
    w.queries = w.keys = tokens;
    w.head = w.value = 64;
    return w;
}

static void attention_is_as_measured(void **state)
{
    (void)state;
    const Device d = h200();
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        AttentionWork w = attention_of(attentions[i].samples, attentions[i].tokens,
                                       attentions[i].groups, attentions[i].heads);
        w.backward = attentions[i].backward;
        const double us = 1e6 * (d.kernel_floor_s + kernel_lasting_attention_s(&d, &w));
        const double ratio = us / attentions[i].us;
        if (w.backward ? ratio < 1.08 || ratio > 1.32 : fabs(ratio - 1) > .06)
            fail_msg("attention %zu takes %.0f us, measured %.0f", i, us, attentions[i].us);
    }
}

static double grad_s(const Device *d, AttentionWork w)
{
    w.backward = true;
    return kernel_attention_s(d, &w, NULL);
}

/* Only full tiles can have their gradient in one kernel. mma.sync takes every call, but is
 * slower. */
static void a_call_gets_the_fastest_kernel_that_takes_it(void **state)
{
    (void)state;
    const Device d = h200();
    AttentionWork full = attention_of(64, 1024, 12, 1), odd = full, wide = full;
    odd.keys = odd.queries = 1025;
    assert_true(grad_s(&d, odd) > 1.15 * grad_s(&d, full));
    wide.head = wide.value = 80; /* runs in tiles for heads of 128 */
    assert_true(kernel_attention_s(&d, &wide, NULL) > kernel_attention_s(&d, &full, NULL));
    assert_true(grad_s(&d, wide) > 1.2 * grad_s(&d, full));
    /* Hopper's kernels can attend to a part of the keys
     * (tests/cuda/attention/test_attention_part.c), but then the gradient has no scratch to run as
     * one kernel. */
    AttentionWork part = full;
    part.in_parts = true;
    assert_true(kernel_attention_s(&d, &part, NULL) == kernel_attention_s(&d, &full, NULL));
    assert_true(grad_s(&d, part) > grad_s(&d, full) && grad_s(&d, part) < 1.4 * grad_s(&d, full));
    /* only mma.sync computes dropout, at half the rate of Hopper's kernels */
    AttentionWork special = full;
    special.special = true;
    assert_true(kernel_attention_s(&d, &special, NULL) > 1.2 * kernel_attention_s(&d, &full, NULL));
    assert_true(grad_s(&d, special) > 1.5 * grad_s(&d, full));
    /* With four query heads for each KV head, a block takes more steps, and fewer blocks divide the
     * work. */
    AttentionWork few = attention_of(1, 1024, 12, 1), grouped = few;
    grouped.kv_heads /= 4;
    assert_true(grad_s(&d, grouped) > grad_s(&d, few));
}

/* Products of gpt2_1_5b, which was not used to choose the constants: m, n, k and the measured
 * time [us]. */
static const double products[][4] = {
    {6400, 1600, 16384, 483},   {16384, 1600, 6400, 469},   {16384, 1600, 1600, 131},
    {1600, 1600, 16384, 127},   {16384, 50304, 1600, 3666}, {50304, 1600, 16384, 3476},
    {16384, 1600, 50304, 3474},
};

static void products_are_as_measured(void **state)
{
    (void)state;
    const Device d = h200();
    const GemmFit *timed = kernel_gemm_timed(&d), *library = kernel_gemm_fit(&d);
    assert_true(timed->timed && !library->timed);
    assert_true(timed->eight == library->eight && timed->block == library->block);
    assert_memory_equal(timed->efficiency, library->efficiency, sizeof timed->efficiency);
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const double *p = products[i];
        const double us = 1e6 * cost_lasting_gemm_s(&d, DT_bf16, p[0], p[1], p[2], timed);
        if (fabs(us / p[3] - 1) > .07) fail_msg("product %zu takes %.0f us, not %.0f", i, us, p[3]);
        assert_true(us < 1e6 * cost_lasting_gemm_s(&d, DT_bf16, p[0], p[1], p[2], NULL));
        assert_true(2 * p[0] * p[1] * p[2] / us * 1e6 <= kernel_gemm_most(&d, DT_bf16, timed));
    }
}

static void only_own_runs_on_hopper_use_these_constants(void **state)
{
    (void)state;
    const Runtime other = {.name = "torchtitan", .attention = ATTENTION_cudnn}, own = {0};
    const Device d = h200();
    Device old = d, next = d;
    old.arch = "Ampere";
    next.arch = "Blackwell";
    for (int op = 0; op < OP_COUNT; op++) {
        assert_null(own_fit(&other, &d, (OpKind)op));
        assert_null(own_fit(&own, &old, (OpKind)op));
        assert_null(own_fit(&own, &next, (OpKind)op));
        assert_true(own_fit(&own, &d, (OpKind)op)->part > 0);
    }
    assert_ptr_equal(own_fit(&own, &d, OP_mul), own_fit(NULL, &d, OP_silu));
    assert_ptr_not_equal(own_fit(&own, &d, OP_mul), own_fit(&own, &d, OP_rope));
    assert_null(runtime_products(&other, &d));
    assert_null(runtime_products(&own, &next));
    assert_non_null(runtime_products(&own, &d));
    assert_int_equal(runtime_attention(&other, &d), ATTENTION_cudnn);
    assert_int_equal(runtime_attention(&own, &next), ATTENTION_cudnn);
    assert_int_equal(runtime_attention(&own, &d), ATTENTION_tandem);
    /* 100 MB at half of 4.32 TB/s take 46.3 us; 1,320 rows of 0.5 us on 132 multiprocessors take 5
     * us. */
    const OwnFit fit = {.part = .5, .row_us = .5};
    assert_true(fabs(own_memory_s(&d, &fit, 1320, 100e6) - (46.2963e-6 + 5e-6)) < 1e-10);
}

static double step_s(const char *script)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const FrontOptions front = {0};
    const LowerOptions lower = lower_options_default();
    const char *path = arena_print(arena, "%s/scripts/plans/one_gpu/%s", TANDEM_SOURCE_DIR, script);
    assert_true(front_load(path, &front, arena, &config, &graph, &d));
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    const SimOptions options = {.steps = 1};
    SimReport report;
    assert_true(sim_run(plan, &config.cluster, &options, arena, &report, &d));
    const double s = (double)report.step_ps / (double)PS_PER_S;
    arena_free(arena);
    return s;
}

/* The target is 5 %. The constants come from timings of kernels, not of these steps. The numbers
 * are means of the two newest measured steps of each plan (docs/explanation/on-an-h200.md). */
static void steps_are_as_measured(void **state)
{
    (void)state;
    assert_true(fabs(step_s("gpt2_124m.lua") / .870 - 1) < .05);
    assert_true(fabs(step_s("llama_1b.lua") / 1.9285 - 1) < .05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_as_measured),
        cmocka_unit_test(a_call_gets_the_fastest_kernel_that_takes_it),
        cmocka_unit_test(products_are_as_measured),
        cmocka_unit_test(only_own_runs_on_hopper_use_these_constants),
        cmocka_unit_test(steps_are_as_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
