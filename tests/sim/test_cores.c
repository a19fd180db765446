/* Ranks that share processor cores slow each other down. Simulated times must equal times computed
 * by hand, and stay within bounds on random programs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/sim/synthetic.h"

static Cluster machine(uint32_t ranks, uint32_t cores)
{
    Cluster c = {.name = "local", .nodes = 1, .devices_per_node = ranks, .intra = FABRIC_host};
    c.device.arch = "cpu";
    c.intra_bytes_per_s = 10e9;
    c.cores_per_node = cores;
    c.is_local = true;
    return c;
}

static void run_cores(const Plan *plan, const Cluster *cluster, Store *store, Arena *arena,
                      EngineResult *result)
{
    Diag d = diag_in(arena);
    Fold *fold = fold_ranks(plan, cluster->devices_per_node, 1, true, arena);
    Cores *cores = cores_new(cluster, fold, store, "here", "mpi", arena, &d);
    NetModel net = cores_net(cores);
    DeviceModel device = cores_device(cores);
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold};
    options.device = &device;
    assert_true(engine_run(plan, &options, arena, result, &d));
}

/* Four ranks with equal work on two cores take twice as long as with one core for each rank. */
static void equal_ranks_share_cores_evenly(void **state)
{
    (void)state;
    static const uint32_t cores[] = {1, 2, 3, 4, 8, 0};
    static const Ps expected[] = {4000, 2000, 1334, 1000, 1000, 1000};
    for (uint32_t i = 0; i < 6; i++) {
        Arena *arena = arena_new();
        Cluster c = machine(4, cores[i]);
        Plan *plan = synthetic_plan(arena, 1, 4, 1, 1);
        synthetic_compute(plan, 0, STREAM_compute, 1000);
        EngineResult result;
        run_cores(plan, &c, NULL, arena, &result);
        assert_int_equal(result.step_ps, expected[i]);
        arena_free(arena);
    }
}

/* Two ranks share one core and have 100 and 300 of work. Both run at half speed until 200. The
 * second one then does its remaining 200 at full speed, until 400. */
static void a_rank_speeds_up_when_the_other_ends(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = machine(2, 1);
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    synthetic_compute(plan, 0, STREAM_compute, 100);
    synthetic_compute(plan, 1, STREAM_compute, 300);
    EngineResult result;
    run_cores(plan, &c, NULL, arena, &result);
    assert_int_equal(moment_of(&result.line[0], 1)->end, 200);
    assert_int_equal(moment_of(&result.line[1], 1)->end, 400);
    arena_free(arena);
}

/* The kernels and transfers of one rank share one core, even if more cores are free. */
static void a_rank_has_one_core(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = machine(1, 8);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    synthetic_compute(plan, 0, STREAM_compute, 1000);
    synthetic_compute(plan, 0, STREAM_copy_in, 1000);
    EngineResult result;
    run_cores(plan, &c, NULL, arena, &result);
    assert_int_equal(result.step_ps, 2000);
    arena_free(arena);
}

/* A collective was measured while all four ranks shared two cores. If all four take part, it takes
 * the measured time. If a kernel runs at the same time, both slow down. */
static void measured_collectives_share_cores(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Store *store = store_open(":memory:", false, &d);
    assert_non_null(store);
    assert_true(store_put_collective(store, "here", "mpi", OP_all_reduce, 4, 4096, 60000, &d));
    Cluster c = machine(4, 2);
    Plan *plan = synthetic_plan(arena, 1, 4, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    Pc pc = synthetic_comm(plan, 0, STREAM_dp_reduce, OP_all_reduce, dp, 0, 1, 4096);
    EngineResult result;
    run_cores(plan, &c, store, arena, &result);
    assert_int_equal(result.step_ps, 60000);
    /* Each rank has two tasks of 30000. For four ranks on two cores, this takes 4 * 60000 / 2. */
    synthetic_compute(plan, 0, STREAM_compute, 30000);
    run_cores(plan, &c, store, arena, &result);
    assert_int_equal(result.step_ps, 120000);
    assert_int_equal(moment_of(&result.line[3], pc)->end, 120000);
    store_close(store);
    arena_free(arena);
}

/* Returns the time of one communication among n ranks without a measurement. The machine has one
 * core for each task. */
static Ps unmeasured(OpKind op, uint32_t n, uint64_t bytes)
{
    Arena *arena = arena_new();
    Cluster c = machine(n, 0);
    Plan *plan = synthetic_plan(arena, 1, n, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_reduce, op, dp, 0, 1, bytes);
    EngineResult result;
    run_cores(plan, &c, NULL, arena, &result);
    arena_free(arena);
    return result.step_ps;
}

/* Processes exchange bytes through shared memory. The sender copies each byte into it, and the
 * receiver copies it out. A gather over n ranks brings each rank the parts of the n - 1 others. An
 * all_reduce brings twice as much. A communication without bytes takes the time of one message for
 * each level of a binary tree over the ranks, and of one more. */
static void received_bytes_are_copied_twice(void **state)
{
    (void)state;
    static const struct {
        OpKind op;
        uint32_t times;
    } ops[] = {{OP_all_gather, 1}, {OP_reduce_scatter, 1}, {OP_all_to_all, 1}, {OP_all_reduce, 2}};
    const uint64_t bytes = UINT64_C(1) << 30;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (uint32_t n = 2; n <= 9; n++) {
            uint32_t levels = 0;
            while (1u << levels < n) levels++;
            const Ps none = unmeasured(ops[i].op, n, 0), all = unmeasured(ops[i].op, n, bytes);
            const double received = ops[i].times * (double)bytes * (n - 1) / n;
            const double copies_ps = 2 * received / 10e9 * (double)PS_PER_S;
            assert_true(llabs(none - (Ps)(levels + 1) * 3000000) <= 2);
            if (fabs((double)(all - none) - copies_ps) > 2)
                fail_msg("%s over %u: %lld ps for its bytes, not %.0f", op_info(ops[i].op)->name, n,
                         (long long)(all - none), copies_ps);
        }
}

/* The cores cannot do more work than they have time for. n cores are at most n times as fast as one
 * core. */
static void work_is_conserved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        Arena *arena = arena_new();
        Plan *plan = random_plan(arena, 2, 2, 2, 80, seed);
        double work = 0;
        for (Rank r = 0; r < 8; r++) {
            const Program *p = plan_program(plan, r);
            for (Pc pc = 1; pc < p->code.n; pc++) {
                if (op_info(p->code.at[pc].op)->class_ == OP_CLASS_comm) continue;
                work += p->code.at[pc].microbatch;
            }
        }
        Ps one_core = 0;
        for (uint32_t cores = 1; cores <= 8; cores *= 2) {
            Cluster c = machine(8, cores);
            EngineResult result;
            run_cores(plan, &c, NULL, arena, &result);
            assert_true((double)result.step_ps >= work / cores);
            if (cores == 1) one_core = result.step_ps;
            assert_true(result.step_ps >= one_core / (Ps)cores);
        }
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ranks_share_cores_evenly),
        cmocka_unit_test(a_rank_speeds_up_when_the_other_ends),
        cmocka_unit_test(a_rank_has_one_core),
        cmocka_unit_test(measured_collectives_share_cores),
        cmocka_unit_test(received_bytes_are_copied_twice),
        cmocka_unit_test(work_is_conserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
