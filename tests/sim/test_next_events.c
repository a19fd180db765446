/* The engine asks the network for its next event only after the network has changed. Random steps
 * must take the same time if it asks after every event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "tests/sim/synthetic.h"

enum { PLANS = 300, RANKS = 8 };

static uint32_t draw(uint64_t seed, uint64_t *n, uint32_t below)
{
    return (uint32_t)(rng_uniform(seed, 1, (*n)++) * below);
}

/* Returns a duration. Some kernels take no time, and some take equally long, so that several events
 * happen at the same time. */
static Ps draw_duration(uint64_t seed, uint64_t *n)
{
    static const Ps some[] = {0, 1, 1000000, 20000000};
    const uint32_t i = draw(seed, n, 8);
    return i < 4 ? some[i] : 1 + (Ps)draw(seed, n, 60000000);
}

static Plan *draw_plan(uint64_t seed, Arena *arena)
{
    Plan *plan = synthetic_plan(arena, 1, 4, 2, 1);
    const AxisSet dp = synthetic_axis(plan, AXIS_dp_shard), tp = synthetic_axis(plan, AXIS_tp);
    uint64_t n = 0;
    const uint32_t n_instrs = 5 + draw(seed, &n, 60);
    for (uint32_t i = 0; i < n_instrs; i++) {
        const uint32_t kind = draw(seed, &n, 5);
        Pc pc;
        if (kind < 3)
            pc = synthetic_compute(plan, 0, kind < 2 ? STREAM_compute : STREAM_tp,
                                   draw_duration(seed, &n));
        else
            pc = synthetic_comm(plan, 0, kind == 3 ? STREAM_dp_reduce : STREAM_tp, OP_all_reduce,
                                kind == 3 ? dp : tp, 0, 1 + i, 1U << draw(seed, &n, 24));
        for (uint32_t k = draw(seed, &n, 3); k > 0 && pc > 1; k--)
            synthetic_after(plan, 0, pc, 1 + draw(seed, &n, pc - 1));
    }
    return plan;
}

/* Simulates the plan. `always`: the device claims that the network shares its cores. The engine
 * then asks the network after every event. */
static EngineResult run(const Plan *plan, const Unevenness *how, bool always, Arena *arena)
{
    static const Cluster cluster = {
        .nodes = 1,
        .devices_per_node = 8,
        .intra = FABRIC_nvswitch,
        .intra_bytes_per_s = 450e9,
        .device = {.arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3e12}};
    Diag d = diag_in(arena);
    Fold *fold = fold_ranks(plan, RANKS, RANKS, true, arena);
    Sms *sms = sms_new(&cluster, fold, maxmin_new(&cluster, fold, arena), arena);
    NetModel net = sms_net(sms);
    DeviceModel device = slow_device_model(slow_device_new(sms_device(sms), fold, how, arena));
    device.is_host = always;
    const EngineOptions options = {
        .cost = &synthetic_cost, .net = &net, .device = &device, .fold = fold};
    EngineResult result;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    return result;
}

static void same_times_if_the_network_is_always_asked(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        Arena *arena = arena_new();
        const Plan *plan = draw_plan(seed, arena);
        const Unevenness how = {
            .seed = seed, .jitter = seed % 3 ? .1 : 0, .straggler = 3, .straggler_factor = 1.5};
        const EngineResult few = run(plan, &how, false, arena), all = run(plan, &how, true, arena);
        assert_int_equal(few.step_ps, all.step_ps);
        assert_int_equal(few.n_events, all.n_events);
        for (uint32_t c = 0; c < RANKS; c++)
            for (Pc pc = 1; pc < plan->programs.at[0].code.n; pc++) {
                const Moment *x = moment_of(&few.line[c], pc), *y = moment_of(&all.line[c], pc);
                assert_int_equal(x->reached, y->reached);
                assert_int_equal(x->start, y->start);
                assert_int_equal(x->end, y->end);
                assert_int_equal(x->by, y->by);
            }
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_times_if_the_network_is_always_asked),
    };
    return cmocka_run_group_tests_name("next_events", tests, NULL, NULL);
}
