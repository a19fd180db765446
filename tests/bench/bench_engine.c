/* Measures the events per second of the engine. An event is one instruction that has finished on
 * one simulated rank. The program has the shape of a sharded transformer: weights gathered ahead,
 * tensor-parallel reductions, and a reduce_scatter for each layer. 16 ranks are simulated unfolded,
 * over many steps, so that preparing the programs does not count. Arguments: steps, and "fixed"
 * (transfers of constant time: the engine alone) or "network" (NCCL's model with max-min
 * sharing). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/synthetic.h"

enum { LAYERS = 64, MICROBATCHES = 8, KERNELS = 12 };

/* Adds a layer: it waits for its weights, runs kernels with two reductions between them, and
 * reduces its gradient. */
static void add_layer(Plan *plan, uint32_t *match, Pc *last_gather)
{
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard), tp = synthetic_axis(plan, AXIS_tp);
    Pc gather = *last_gather;
    *last_gather =
        synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, (*match)++, 200 << 20);
    if (gather != 0) synthetic_after(plan, 0, *last_gather, gather);
    Pc reduced = 0, pc = 0;
    for (uint32_t k = 0; k < KERNELS; k++) {
        pc = synthetic_compute(plan, 0, STREAM_compute, 80000000 + 1000000 * k);
        if (k == 0) synthetic_after(plan, 0, pc, *last_gather);
        if (reduced != 0) synthetic_after(plan, 0, pc, reduced);
        reduced = 0;
        if (k % 6 != 5) continue;
        reduced = synthetic_comm(plan, 0, STREAM_tp, OP_all_reduce, tp, 0, (*match)++, 64 << 20);
        synthetic_after(plan, 0, reduced, pc);
    }
    Pc sum =
        synthetic_comm(plan, 0, STREAM_dp_reduce, OP_reduce_scatter, dp, 0, (*match)++, 200 << 20);
    synthetic_after(plan, 0, sum, pc);
}

int main(int argc, char **argv)
{
    uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 50;
    bool network = argc > 2 && strcmp(argv[2], "network") == 0;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 8, 2, 1);
    uint32_t match = 1;
    Pc gather = 0;
    for (uint32_t i = 0; i < LAYERS * MICROBATCHES; i++) add_layer(plan, &match, &gather);
    Cluster c = {.name = "two nodes", .nodes = 2, .devices_per_node = 8, .intra = FABRIC_nvswitch};
    c.device.arch = "Hopper";
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = 8;
    c.nic_bytes_per_s = 50e9;
    Fold *fold = fold_ranks(plan, 8, 8, true, arena);
    FixedNet fixed;
    NetModel net = network ? maxmin_net(maxmin_new(&c, fold, arena)) : fixed_net(&fixed);
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold, .steps = steps};
    EngineResult result;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    bool ok = engine_run(plan, &options, arena, &result, &d);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (!ok) return 1;
    printf("%s: %llu events in %.3f s: %.1f million events/s\n", network ? "network" : "fixed",
           (unsigned long long)result.n_events, s, (double)result.n_events / s / 1e6);
    arena_free(arena);
    return 0;
}
