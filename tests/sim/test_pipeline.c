/* Lowered pipelines in virtual time. Every forward, input gradient and weight gradient of a stage
 * takes one unit of time, and transfers take none. Each schedule must take as long as its closed
 * form. This shows that the passes do not make a schedule slower. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/sim/synthetic.h"
#include "tests/support/plans/tiny.h"

static const Ps UNIT = 1000;

/* Each stage has one block. Attention stands for the forward, attention's gradient for the input
 * gradients, and the weight gradient of the output projection for the weight gradients. */
static Ps unit_cost(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p;
    bool marks = in->op == OP_attention || in->op == OP_attention_grad || in->op == OP_linear_o_d1;
    return marks ? UNIT : 0;
}
static const CostModel units = {.compute = unit_cost};

static void at_once(void *self, uint32_t id, const Transfer *t, Ps now)
{
    FixedNet *net = self;
    (void)t;
    net->running[net->n].id = id;
    net->running[net->n++].when = now;
}

static uint64_t simulated(ScheduleKind schedule, uint32_t p, uint32_t chunks, uint32_t m,
                          uint64_t own_seed)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.pp = p;
    t.pp_options.schedule = schedule;
    t.pp_options.chunks = chunks;
    t.own_seed = own_seed;
    t.layers = p * chunks;
    t.microbatches = m;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    FixedNet net;
    NetModel model = fixed_net(&net);
    model.start = at_once;
    EngineOptions options = {.cost = &units, .net = &model, .steps = 1};
    options.fold = fold_ranks(plan, p, 1, true, arena);
    EngineResult result;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    uint64_t step = (uint64_t)result.step_ps;
    arena_free(arena);
    assert_int_equal(step % (uint64_t)UNIT, 0);
    return step / (uint64_t)UNIT;
}

/* Times are in units of a chunk. A micro-batch takes F + B = 3, so a step without a bubble takes 3
 * m. */
static void schedules_take_their_closed_forms(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 4; p += 2)
        for (uint32_t m = 2 * p; m <= 3 * p; m += p) {
            assert_int_equal(simulated(SCHEDULE_gpipe, p, 1, m, 0), 3 * m + 3 * (p - 1));
            assert_int_equal(simulated(SCHEDULE_1f1b, p, 1, m, 0), 3 * m + 3 * (p - 1));
            assert_int_equal(simulated(SCHEDULE_interleaved_1f1b, p, 2, m, 0), 6 * m + 3 * (p - 1));
            assert_int_equal(simulated(SCHEDULE_zb_h1, p, 1, m, 0), 3 * m + (p - 1));
            assert_int_equal(simulated(SCHEDULE_zb_v, p, 2, m, 0), 6 * m + (p - 1));
            assert_int_equal(simulated(SCHEDULE_dualpipe_v, p, 2, m, 0), 6 * m + (p - 1));
            assert_int_equal(simulated(SCHEDULE_greedy_v, p, 2, m, 0), 6 * m + (p - 1));
        }
}

/* Published times for p = 4 and m = 8, in units of a stage: 33, 33, 28.5, 27, 25.5. */
static void schedules_take_published_times(void **state)
{
    (void)state;
    assert_int_equal(simulated(SCHEDULE_gpipe, 4, 1, 8, 0), 33);
    assert_int_equal(simulated(SCHEDULE_1f1b, 4, 1, 8, 0), 33);
    assert_int_equal(simulated(SCHEDULE_interleaved_1f1b, 4, 2, 8, 0), 57);
    assert_int_equal(simulated(SCHEDULE_zb_h1, 4, 1, 8, 0), 27);
    assert_int_equal(simulated(SCHEDULE_zb_v, 4, 2, 8, 0), 51);
}

/* Random schedules take the time that the player of schedules computes. */
static void random_schedules_take_the_players_time(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        Config config;
        Graph graph;
        t.pp = 3;
        t.pp_options.chunks = 1 + (uint32_t)(seed % 3);
        t.own_seed = seed;
        t.layers = t.pp * t.pp_options.chunks;
        t.microbatches = 4;
        tiny_build(&t, arena, &config, &graph);
        LowerOptions options = lower_options_default();
        Plan *plan = plan_compile(&config, &graph, &options, NULL, arena, &d);
        PipelineFacts facts;
        assert_non_null(plan);
        assert_true(passes_pipeline(&config, plan, arena, &facts));
        double work = 3.0 * t.microbatches * t.pp_options.chunks;
        uint64_t took = simulated(SCHEDULE_gpipe, t.pp, t.pp_options.chunks, 4, seed);
        assert_true((double)took * (1 - facts.idle) > work - 1e-6);
        assert_true((double)took * (1 - facts.idle) < work + 1e-6);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_take_their_closed_forms),
                                       cmocka_unit_test(schedules_take_published_times),
                                       cmocka_unit_test(random_schedules_take_the_players_time)};
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
