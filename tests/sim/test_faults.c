/* Runs whose devices fail: their goodput equals closed forms and drawn runs, and the computed
 * interval between checkpoints is the best one. If devices differ in speed, all ranks wait for the
 * slowest. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/sim/synthetic.h"

static const Faults machines[] = {
    {86400, 60, 300}, {3600, 120, 600}, {20000, 10, 30}, {900, 60, 60}};
enum { N_MACHINES = sizeof machines / sizeof *machines };

/* Returns the interval between checkpoints with the best exact goodput, by search. */
static double best_by_search(const Faults *f)
{
    double low = 1, high = 10 * f->mtbf_s;
    for (uint32_t i = 0; i < 200; i++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (faults_goodput(f, a) < faults_goodput(f, b))
            low = a;
        else
            high = b;
    }
    return (low + high) / 2;
}

static void dalys_interval_is_the_best(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_MACHINES; i++) {
        const Faults *f = &machines[i];
        double best = best_by_search(f), daly = faults_best_interval_s(f);
        assert_true(fabs(daly / best - 1) < .02);
        double young = sqrt(2 * f->checkpoint_s * f->mtbf_s);
        assert_true(fabs(young / best - 1) < 2 * sqrt(f->checkpoint_s / f->mtbf_s));
        assert_true(faults_goodput(f, daly) > faults_goodput(f, young) - 1e-6);
        assert_true(faults_goodput(f, daly) >= faults_goodput(f, best) * .9999);
    }
}

/* Without failures, only checkpoints cost time. If failures are rare, the goodput is nearly 1 - d/w
 * - w/2m - r/m (d: time of a save, w: work between saves, m: mean time between failures, r: time of
 * a restart). */
static void goodput_has_its_limits(void **state)
{
    (void)state;
    Faults never = {1e15, 60, 300};
    assert_true(fabs(faults_goodput(&never, 600) - 600. / 660) < 1e-6);
    Faults rare = {1e6, 10, 20};
    double first = 1 - 10. / 1000 - 1010. / 2e6 - 20. / 1e6;
    assert_true(fabs(faults_goodput(&rare, 1000) - first) < 2e-4);
}

static void drawn_runs_have_the_computed_goodput(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_MACHINES; i++) {
        const Faults *f = &machines[i];
        double interval = faults_best_interval_s(f), work = 400 * f->mtbf_s, sum = 0;
        for (uint64_t seed = 1; seed <= 40; seed++)
            sum += work / faults_draw_s(f, interval, work, seed) / 40;
        assert_true(fabs(sum / faults_goodput(f, interval) - 1) < .01);
        assert_true(faults_draw_s(f, interval, work, 1) == faults_draw_s(f, interval, work, 1));
        assert_true(faults_draw_s(f, interval, work, 1) != faults_draw_s(f, interval, work, 2));
    }
}

/* A kernel of 100 us, an all-reduce over all ranks, and a kernel of 50 us. */
static Ps step_with(const Unevenness *how, Ps *alone)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 4, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc a = synthetic_compute(plan, 0, STREAM_compute, 100000000);
    Pc reduce = synthetic_comm(plan, 0, STREAM_dp_reduce, OP_all_reduce, dp, 0, 1, 1 << 20);
    synthetic_after(plan, 0, reduce, a);
    Pc b = synthetic_compute(plan, 0, STREAM_compute, 50000000);
    synthetic_after(plan, 0, b, reduce);
    Cluster cluster = {.nodes = 1,
                       .devices_per_node = 8,
                       .intra = FABRIC_nvswitch,
                       .intra_bytes_per_s = 450e9,
                       .device = {.arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3e12}};
    Fold *fold = fold_ranks(plan, 8, 8, true, arena);
    Sms *sms = sms_new(&cluster, fold, maxmin_new(&cluster, fold, arena), arena);
    NetModel net = sms_net(sms);
    DeviceModel device = slow_device_model(slow_device_new(sms_device(sms), fold, how, arena));
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .device = &device, .fold = fold};
    EngineResult result;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    *alone = nccl_choose(&cluster, OP_all_reduce, 1, 4, 1 << 20).time_ps;
    Ps step = result.step_ps;
    arena_free(arena);
    return step;
}

static void all_wait_for_the_slowest(void **state)
{
    (void)state;
    Ps reduce = 0;
    Unevenness alike = {.straggler_factor = 1}, slow = {.straggler = 2, .straggler_factor = 1.5};
    Ps step = step_with(&alike, &reduce);
    assert_int_equal(step, 150000000 + reduce);
    step = step_with(&slow, &reduce);
    assert_int_equal(step, 225000000 + reduce);
    Unevenness jitter = {.seed = 1, .jitter = .05}, other = {.seed = 2, .jitter = .05};
    Ps first = step_with(&jitter, &reduce);
    assert_int_equal(first, step_with(&jitter, &reduce));
    assert_int_not_equal(first, step_with(&other, &reduce));
    /* The slowest of four lognormal draws decides, for each of two kernels. So a step is nearly
     * always longer than without jitter. */
    double sum = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        jitter.seed = seed;
        step = step_with(&jitter, &reduce);
        sum += (double)(step - reduce) / 200;
    }
    /* the mean of the largest of four standard normals is 1.0294 */
    assert_true(fabs(sum / 150e6 - exp(.05 * 1.0294)) < .01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dalys_interval_is_the_best),
        cmocka_unit_test(goodput_has_its_limits),
        cmocka_unit_test(drawn_runs_have_the_computed_goodput),
        cmocka_unit_test(all_wait_for_the_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
