/* Transfers that run at the same time share links. Simulated times must equal closed forms of small
 * cases. A folded run must equal the unfolded run to the picosecond, whether groups are spread
 * evenly or unevenly over nodes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "tests/sim/net/dgx.h"
#include "tests/sim/synthetic.h"

static bool run_models(const Plan *plan, const Cluster *cluster, bool with_sms, bool unfolded,
                       Arena *arena, EngineResult *result, Diag *d)
{
    Routes *routes = arena_alloc(arena, sizeof *routes);
    *routes = routes_of(cluster);
    FoldNodes places = {.devices_per_node = cluster->devices_per_node,
                        .nics_per_node = cluster->nics_per_node,
                        .nodes_per_pod = cluster->nodes_per_group,
                        .routes = routes};
    Fold *fold = fold_ranks_on(plan, places, unfolded, arena);
    MaxMin *maxmin = maxmin_new(cluster, fold, arena);
    Sms *sms = sms_new(cluster, fold, maxmin, arena);
    NetModel net = with_sms ? sms_net(sms) : maxmin_net(maxmin);
    DeviceModel device = sms_device(sms);
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold};
    if (with_sms) options.device = &device;
    return engine_run(plan, &options, arena, result, d);
}

static bool run_net(const Plan *plan, const Cluster *cluster, bool unfolded, Arena *arena,
                    EngineResult *result, Diag *d)
{
    return run_models(plan, cluster, false, unfolded, arena, result, d);
}

/* A collective that runs alone takes exactly the time of NCCL's model. */
static void a_lone_collective_takes_nccls_time(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all};
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t nodes = 1; nodes <= 4; nodes *= 2) {
            Arena *arena = arena_new();
            Diag d = diag_in(arena);
            Cluster c = dgx_h100(nodes, 8);
            c.collective_launch_s = 8e-6;
            Plan *plan = synthetic_plan(arena, 1, 8 * nodes, 1, 1);
            AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
            synthetic_comm(plan, 0, STREAM_dp_gather, ops[i], dp, 0, 1, 300 << 20);
            EngineResult result;
            for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
                assert_true(run_net(plan, &c, unfolded == 1, arena, &result, &d));
                assert_int_equal(result.step_ps,
                                 nccl_choose(&c, ops[i], nodes, 8, 300 << 20).time_ps);
            }
            arena_free(arena);
        }
    }
}

/* Two equal all_gathers run at once on one node. Alone, each would run at 360 GB/s. A port carries
 * 370.8 GB/s, so both together take the time of all their bytes through one port. */
static void two_share_a_port(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(1, 8);
    Plan *plan = synthetic_plan(arena, 1, 8, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    uint64_t bytes = UINT64_C(1) << 30;
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, bytes);
    synthetic_comm(plan, 0, STREAM_tp, OP_all_gather, dp, 0, 2, bytes);
    EngineResult result;
    assert_true(run_net(plan, &c, false, arena, &result, &d));
    NcclChoice alone = nccl_choose(&c, OP_all_gather, 1, 8, bytes);
    double latency = (double)alone.latency_ps / 1e12;
    double expected = latency + 2 * alone.port_bytes / nccl_port_bytes_per_s(&c);
    double got = (double)result.step_ps / 1e12;
    assert_true(fabs(got / expected - 1) < 1e-4);
    assert_int_equal(moment_of(&result.line[0], 1)->end, moment_of(&result.line[0], 2)->end);
    arena_free(arena);
}

/* A network whose exchanges carry all bytes between ranks 0 to 3, and none to the other ranks. */
static void start_uneven(void *self, uint32_t id, const Transfer *t, Ps now)
{
    static const double part[] = {1, 1, 1, 1, 0, 0, 0, 0};
    const NetModel *inner = self;
    Transfer uneven = *t;
    if (op_exchanges(t->op)) uneven.out = uneven.in = part;
    inner->start(inner->self, id, &uneven, now);
}

static bool next_uneven(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    const NetModel *inner = self;
    return inner->next(inner->self, now, settle, id, when);
}

static void finish_uneven(void *self, uint32_t id, Ps now)
{
    const NetModel *inner = self;
    inner->finish(inner->self, id, now);
}

/* An exchange of all eight ranks runs at the same time as a gather of ranks 0 to 3 and a gather of
 * ranks 4 to 7. The exchange sends nothing through the ports of ranks 4 to 7. So the gather of
 * these ranks is as fast as alone. */
static void ranks_without_rows_leave_their_ports_free(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(1, 8);
    Plan *plan = synthetic_plan(arena, 1, 2, 4, 1);
    const AxisSet dp = synthetic_axis(plan, AXIS_dp_shard), tp = synthetic_axis(plan, AXIS_tp);
    const uint64_t bytes = UINT64_C(1) << 30;
    synthetic_comm(plan, 0, STREAM_ep, OP_all_to_all, (AxisSet)(dp | tp), 0, 1, 4 * bytes);
    synthetic_comm(plan, 0, STREAM_tp, OP_all_gather, tp, 0, 2, bytes);
    Fold *fold = fold_ranks(plan, 8, 8, true, arena);
    NetModel inner = maxmin_net(maxmin_new(&c, fold, arena));
    NetModel net = {start_uneven, next_uneven, finish_uneven, &inner};
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold};
    EngineResult result;
    assert_true(engine_run(plan, &options, arena, &result, &d));
    const Ps alone = nccl_choose(&c, OP_all_gather, 1, 4, bytes).time_ps;
    assert_int_equal(moment_of(&result.line[4], 2)->end, alone);
    assert_true(moment_of(&result.line[0], 2)->end > alone + alone / 10);
    /* the exchange ends for all ranks together */
    assert_int_equal(moment_of(&result.line[0], 1)->end, moment_of(&result.line[4], 1)->end);
    arena_free(arena);
}

/* When the shorter transfer ends, the other one continues at full speed. */
static void freed_bandwidth_is_used(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(1, 8);
    Plan *plan = synthetic_plan(arena, 1, 8, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    uint64_t large = UINT64_C(4) << 30, small = UINT64_C(1) << 30;
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, large);
    synthetic_comm(plan, 0, STREAM_tp, OP_all_gather, dp, 0, 2, small);
    EngineResult result;
    assert_true(run_net(plan, &c, true, arena, &result, &d));
    NcclChoice l = nccl_choose(&c, OP_all_gather, 1, 8, large);
    NcclChoice s = nccl_choose(&c, OP_all_gather, 1, 8, small);
    double port = nccl_port_bytes_per_s(&c);
    /* The small transfer runs alone while the other one fills its pipeline. Then each gets half of
     * a port, until the small one ends. The other one then moves its remaining bytes at the rate of
     * its ring. */
    double alone = s.port_bytes * (double)(l.latency_ps - s.latency_ps) / (double)s.fluid_ps;
    double both = s.port_bytes - alone, shared = 2 * both / port;
    double rest = (l.port_bytes - both) / (l.port_bytes * 1e12 / (double)l.fluid_ps);
    double expected = (double)l.latency_ps / 1e12 + shared + rest;
    assert_true(fabs((double)result.step_ps / 1e12 / expected - 1) < 1e-4);
    arena_free(arena);
}

/* Tensor-parallel groups lie inside nodes, data-parallel groups across nodes. They share only
 * ports. */
static void different_rails_do_not_disturb(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(2, 8);
    /* The pairs along dp have one rank on each node, and each rank has its own NIC. */
    Plan *plan = synthetic_plan(arena, 1, 2, 8, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 1 << 28);
    EngineResult result;
    for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
        assert_true(run_net(plan, &c, unfolded == 1, arena, &result, &d));
        assert_int_equal(result.step_ps, nccl_choose(&c, OP_all_gather, 2, 1, 1 << 28).time_ps);
    }
    /* If the node's uplink has half the rate, it limits all eight pairs of the node together. */
    c.oversubscription = 2;
    assert_true(run_net(plan, &c, false, arena, &result, &d));
    NcclChoice alone = nccl_choose(&c, OP_all_gather, 2, 1, 1 << 28);
    double wanted = 8 * alone.nic_bytes * 1e12 / (double)alone.fluid_ps;
    double has = 8 * nccl_nic_bytes_per_s(&c) / 2;
    double expected = (double)alone.latency_ps + (double)alone.fluid_ps * fmax(1, wanted / has);
    assert_true(fabs((double)result.step_ps / expected - 1) < 1e-4);
    arena_free(arena);
}

/* Four nodes form pods of two. The uplink of a pod has a quarter of the rate of its two nodes
 * together, which is half of one node's rate. A ring of all 32 ranks sends as much out of a pod as
 * out of a node. An exchange sends half of all bytes out of the pod. */
static void pods_have_less_between_them(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_all_gather, OP_all_to_all};
    for (uint32_t i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster c = dgx_h100(4, 8);
        Plan *plan = synthetic_plan(arena, 1, 32, 1, 1);
        AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
        synthetic_comm(plan, 0, STREAM_dp_gather, ops[i], dp, 0, 1, 1 << 30);
        NcclChoice alone = nccl_choose(&c, ops[i], 4, 8, 1 << 30);
        double wide = 8 * nccl_nic_bytes_per_s(&c);
        double out = ops[i] == OP_all_gather ? 8 * alone.nic_bytes : 16 * 0x1p30 / 2;
        for (uint32_t k = 0; k < 4; k++) {
            c.nodes_per_group = k < 2 ? 2 : 0;
            c.group_oversubscription = k == 0 ? 4 : 1;
            EngineResult result;
            assert_true(run_net(plan, &c, k == 3, arena, &result, &d));
            double seconds = fmax((double)alone.fluid_ps / 1e12, k == 0 ? out / (2 * wide / 4) : 0);
            double expected = (double)alone.latency_ps / 1e12 + seconds;
            assert_true(fabs((double)result.step_ps / 1e12 / expected - 1) < 1e-4);
        }
        arena_free(arena);
    }
}

/* `tandem net` prints the time of one group. A plan in which the group runs alone takes the same
 * time. This also holds if the uplinks of nodes and pods are slower than NICs, and if the last pod
 * is not full. */
static void tandem_net_agrees_with_a_plan(void **state)
{
    (void)state;
    static const char *const names[] = {"dgx_h100", "dragonfly_h100", "fat_tree_h100",
                                        "torus_h100"};
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_all_to_all};
    static const Collective kinds[] = {COLLECTIVE_all_reduce, COLLECTIVE_all_gather,
                                       COLLECTIVE_all_to_all};
    uint32_t thinned = 0;
    for (uint32_t i = 0; i < 4 * 3 * 3 * 2; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster c;
        uint32_t nodes = 8 + 16 * (i / 12 % 3), which = i / 4 % 3;
        assert_true(front_cluster(names[i % 4], nodes, arena, &c, &d));
        if (i / 36 != 0) c.oversubscription = 3;
        NcclQuestion q = {.kind = kinds[which], .n_nodes = nodes, .ranks_per_node = 8};
        q.bytes = UINT64_C(1) << 31;
        Plan *plan = synthetic_plan(arena, 1, 8 * nodes, 1, 1);
        AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
        synthetic_comm(plan, 0, STREAM_dp_gather, ops[which], dp, 0, 1, q.bytes);
        EngineResult result;
        assert_true(run_net(plan, &c, false, arena, &result, &d));
        NcclChoice alone = nccl_answer_alone(&c, &q);
        if (fabs((double)alone.time_ps / (double)result.step_ps - 1) > 1e-3)
            fail_msg("%s of %u nodes on %s: %.1f us, in a plan %.1f", collective_name(q.kind),
                     nodes, names[i % 4], (double)alone.time_ps / 1e6,
                     (double)result.step_ps / 1e6);
        thinned += alone.time_ps > nccl_answer(&c, &q).time_ps;
        arena_free(arena);
    }
    assert_true(thinned > 20);
}

/* A time that was measured for 8 ranks on one node must not be used for 8 ranks on 8 nodes. */
static void measurements_hold_for_the_same_nodes_only(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Store *store = store_open(":memory:", false, &d);
    assert_non_null(store);
    assert_true(store_put_collective(store, "box", "nccl", OP_all_gather, 8, 1 << 20, 12345, &d));
    for (uint32_t spread = 0; spread < 2; spread++) {
        Cluster c = dgx_h100(8, 8);
        Plan *plan = synthetic_plan(arena, 1, 8, 8, 1);
        AxisSet axes = synthetic_axis(plan, spread ? AXIS_dp_shard : AXIS_tp);
        synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, axes, 0, 1, 1 << 20);
        Fold *fold = fold_ranks(plan, 8, 8, false, arena);
        MaxMin *maxmin = maxmin_new(&c, fold, arena);
        maxmin_measured(maxmin, store, "box", &d);
        NetModel net = maxmin_net(maxmin);
        EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold};
        EngineResult result;
        assert_true(engine_run(plan, &options, arena, &result, &d));
        CostCounts counts;
        maxmin_counts(maxmin, &counts);
        assert_int_equal(counts.collectives_measured, !spread);
        assert_int_equal(counts.collectives_modelled, spread);
        if (spread)
            assert_int_equal(result.step_ps, nccl_choose(&c, OP_all_gather, 8, 1, 1 << 20).time_ps);
        else
            assert_int_equal(result.step_ps, 12345);
    }
    store_close(store);
    arena_free(arena);
}

/* The two ranks of a pair send to each other. The directions do not slow each other. */
static void opposite_directions_are_free(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(1, 8);
    Plan *plan = synthetic_plan(arena, 2, 1, 1, 2);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    synthetic_comm(plan, 0, STREAM_pp_forward, OP_send, pp, 1, 1, 1 << 28);
    synthetic_comm(plan, 1, STREAM_pp_forward, OP_recv, pp, -1, 1, 1 << 28);
    synthetic_comm(plan, 1, STREAM_pp_backward, OP_send, pp, -1, 2, 1 << 28);
    synthetic_comm(plan, 0, STREAM_pp_backward, OP_recv, pp, 1, 2, 1 << 28);
    EngineResult result;
    assert_true(run_net(plan, &c, false, arena, &result, &d));
    assert_int_equal(result.step_ps, nccl_choose(&c, OP_send, 1, 2, 1 << 28).time_ps);
    arena_free(arena);
}

static uint32_t classes_of(uint32_t pp, uint32_t dp, uint32_t tp, uint32_t per_node)
{
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, pp, dp, tp, pp);
    uint32_t match = 1;
    for (uint32_t i = 0; i < pp; i++) {
        if (dp > 1) {
            synthetic_comm(plan, i, STREAM_dp_gather, OP_all_gather,
                           synthetic_axis(plan, AXIS_dp_shard), 0, match++, 100);
        }
        if (tp > 1) {
            synthetic_comm(plan, i, STREAM_tp, OP_all_reduce, synthetic_axis(plan, AXIS_tp), 0,
                           match++, 100);
        }
    }
    uint32_t n = fold_ranks(plan, per_node, per_node, false, arena)->n_classes;
    arena_free(arena);
    return n;
}

static void alike_ranks_fold(void **state)
{
    (void)state;
    assert_int_equal(classes_of(1, 8, 2, 8), 1);
    assert_int_equal(classes_of(1, 2, 8, 8), 1);
    assert_int_equal(classes_of(2, 8, 2, 8), 2); /* each stage has one rank on the node */
    /* each group takes three of its node's four devices */
    assert_int_equal(classes_of(1, 1, 3, 4), 1);
    assert_int_equal(classes_of(1, 2048, 8, 8), 1); /* large, but folded quickly */
    assert_int_equal(classes_of(16, 128, 8, 8), 16);
    /* Groups of three on nodes of four: {0,1,2} {3|4,5} {6,7|8} {9,10,11}; a bar separates nodes.
     * Some groups are on one node, others on two. Ranks 3 and 8 are alone on their nodes in their
     * groups. Ranks 0-2 share their node with rank 3, just as ranks 9-11 share theirs with rank
     * 8. */
    uint32_t n = classes_of(1, 4, 3, 4);
    assert_true(n > 2);
    assert_true(n < 12);
}

/* Random programs over meshes whose groups lie across nodes in every way. */
static void folded_is_unfolded(void **state)
{
    (void)state;
    static const uint32_t shapes[][5] = {/* pp, dp, tp, devices of a node, NICs of a node */
                                         {1, 8, 2, 8, 8}, {1, 4, 3, 4, 4},  {2, 4, 2, 8, 4},
                                         {1, 2, 8, 8, 8}, {3, 2, 2, 4, 4},  {1, 6, 2, 4, 2},
                                         {2, 3, 3, 6, 3}, {1, 16, 1, 4, 8}, {2, 1, 6, 4, 1}};
    uint32_t folded_away = 0;
    for (uint64_t seed = 1; seed <= 90; seed++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const uint32_t *s = shapes[seed % 9];
        uint32_t ranks = s[0] * s[1] * s[2];
        Cluster c = dgx_h100((ranks + s[3] - 1) / s[3], s[3]);
        c.nics_per_node = s[4];
        c.oversubscription = 1 + (double)(seed % 3);
        c.collective_launch_s = 1e-6 * (double)(seed % 2);
        c.nodes_per_group = seed % 4 == 0 ? 0 : (uint32_t)(seed % 4);
        c.group_oversubscription = 1 + (double)(seed % 5);
        Plan *plan = random_plan(arena, s[0], s[1], s[2], 120, seed);
        /* sizes for which the rate of the links matters */
        for (uint32_t i = 0; i < plan->programs.n; i++) {
            Program *p = &plan->programs.at[i];
            for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].bytes <<= 6;
            for (Pc pc = 1; pc < p->code.n; pc++) p->code.at[pc].microbatch *= 1000;
        }
        EngineResult whole, folded;
        assert_true(run_models(plan, &c, seed % 2 == 0, true, arena, &whole, &d));
        assert_true(run_models(plan, &c, seed % 2 == 0, false, arena, &folded, &d));
        FoldNodes places = {
            .devices_per_node = s[3], .nics_per_node = s[4], .nodes_per_pod = c.nodes_per_group};
        Fold *fold = fold_ranks_on(plan, places, false, arena);
        folded_away += ranks - fold->n_classes;
        assert_int_equal(folded.step_ps, whole.step_ps);
        for (Rank r = 0; r < ranks; r++) {
            const Timeline *x = &whole.line[r], *y = &folded.line[fold->class_of[r]];
            assert_true(same_times(x, y, plan_program(plan, r)));
        }
        arena_free(arena);
    }
    assert_true(folded_away > 300);
}

/* A program whose transfers share links is never faster than if each transfer had the links to
 * itself. It is never slower than if the transfers ran one after another. */
static void sharing_lies_between_bounds(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 6; n++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster c = dgx_h100(2, 8);
        Plan *plan = synthetic_plan(arena, 1, 16, 1, 1);
        AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
        Ps longest = 0, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t bytes = (UINT64_C(1) << 26) * (i + 1);
            OpKind op = i % 2 == 0 ? OP_all_gather : OP_all_reduce;
            synthetic_comm(plan, 0, (Stream)(STREAM_tp + i), op, dp, 0, 1 + i, bytes);
            Ps alone = nccl_choose(&c, op, 2, 8, bytes).time_ps;
            sum += alone;
            if (alone > longest) longest = alone;
        }
        EngineResult result;
        assert_true(run_net(plan, &c, false, arena, &result, &d));
        assert_true(result.step_ps >= longest);
        assert_true(result.step_ps <= sum + 10);
        arena_free(arena);
    }
}

/* A gather takes 24 channels. A kernel that runs at the same time loses 24 of 132 SMs, but only
 * while the gather runs. */
static void collectives_take_sms(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c = dgx_h100(1, 8);
    Plan *plan = synthetic_plan(arena, 1, 8, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, dp, 0, 1, 1 << 30);
    Ps alone = 4000000000;
    synthetic_compute(plan, 0, STREAM_compute, alone);
    NcclChoice gather = nccl_choose(&c, OP_all_gather, 1, 8, 1 << 30);
    assert_int_equal(gather.channels, 24);
    assert_true(gather.time_ps < alone);
    for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
        EngineResult result;
        assert_true(run_models(plan, &c, true, unfolded == 1, arena, &result, &d));
        double lost = (double)gather.time_ps * 24 / 132;
        assert_true(fabs((double)(result.step_ps - alone) - lost) < 5);
        assert_int_equal(moment_of(&result.line[0], 1)->end, gather.time_ps);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_collective_takes_nccls_time),
        cmocka_unit_test(two_share_a_port),
        cmocka_unit_test(ranks_without_rows_leave_their_ports_free),
        cmocka_unit_test(freed_bandwidth_is_used),
        cmocka_unit_test(different_rails_do_not_disturb),
        cmocka_unit_test(pods_have_less_between_them),
        cmocka_unit_test(tandem_net_agrees_with_a_plan),
        cmocka_unit_test(measurements_hold_for_the_same_nodes_only),
        cmocka_unit_test(opposite_directions_are_free),
        cmocka_unit_test(alike_ranks_fold),
        cmocka_unit_test(folded_is_unfolded),
        cmocka_unit_test(sharing_lies_between_bounds),
        cmocka_unit_test(collectives_take_sms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
