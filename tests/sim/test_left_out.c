/* Kernels that another system does not start. With delayed scaling, the 8-bit copy of a weight is
 * made once a step, in the first micro-batch; a frozen base keeps its copies for the whole run. */
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

static const Plan *float8_plan(Config *config, Arena *arena)
{
    static const char code[] =
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2, vocab = 4096 "
        "},\n"
        "runtime = require 'runtimes.megatron', mesh = { dp_shard = 2 },\n"
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 2 },\n"
        "batch = { micro = 2, global = 12, seq = 128 }, precision = { compute = 'bf16' },\n"
        "parallel = { float8 { skip_indivisible = true }, zero 'optim' } }";
    Diag d = diag_in(arena);
    Graph *graph = arena_alloc(arena, sizeof *graph);
    memset(graph, 0, sizeof *graph);
    if (!front_load_text("plan", code, NULL, arena, config, graph, &d))
        fail_msg("%s", d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(config, graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    assert_int_equal(plan->step.n_microbatches, MICROBATCHES);
    return plan;
}

/* Counts the kernels that quantise weights in each micro-batch, all of them and those that run. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_quantised_once_or_never)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
