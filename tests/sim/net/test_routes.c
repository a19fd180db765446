/* Networks with routes. Paths on tori and dragonflies use the right links, collectives take the
 * times that were computed by hand, and folded runs equal unfolded ones to the picosecond. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/synthetic.h"

/* Nodes of `per_node` devices, each with a NIC of 48 GB/s. */
static Cluster cluster_on(Topology topology, uint32_t nodes, uint32_t per_node)
{
    Cluster c = {.name = "test", .nodes = nodes, .intra = FABRIC_nvswitch, .topology = topology};
    c.devices_per_node = per_node;
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = per_node;
    c.nic_bytes_per_s = 50e9;
    c.oversubscription = c.group_oversubscription = 1;
    return c;
}

static Topology torus(uint32_t x, uint32_t y, uint32_t z, double bytes_per_s)
{
    return (Topology){.kind = TOPOLOGY_torus, .sizes = {x, y, z}, .link_bytes_per_s = bytes_per_s};
}

static Topology dragonfly(uint32_t groups, uint32_t routers, uint32_t nodes, uint32_t ways_out)
{
    return (Topology){.kind = TOPOLOGY_dragonfly,
                      .groups = groups,
                      .routers = routers,
                      .nodes = nodes,
                      .ways_out = ways_out,
                      .link_bytes_per_s = 40e9,
                      .way_out_bytes_per_s = 10e9};
}

static Ps run_on(const Plan *plan, const Cluster *cluster, bool unfolded, Arena *arena,
                 EngineResult *result, Fold **fold)
{
    Diag d = diag_in(arena);
    Routes *routes = arena_alloc(arena, sizeof *routes);
    *routes = routes_of(cluster);
    FoldNodes places = {.devices_per_node = cluster->devices_per_node,
                        .nics_per_node = cluster->nics_per_node,
                        .nodes_per_pod = cluster->nodes_per_group,
                        .routes = routes};
    *fold = fold_ranks_on(plan, places, unfolded, arena);
    MaxMin *maxmin = maxmin_new(cluster, *fold, arena);
    NetModel net = maxmin_net(maxmin);
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = *fold};
    assert_true(engine_run(plan, &options, arena, result, &d));
    return result->step_ps;
}

/* Returns the distance along one axis of a torus. */
static uint32_t apart(uint32_t a, uint32_t b, uint32_t size)
{
    uint32_t up = (b + size - a) % size;
    return up < size - up ? up : size - up;
}

/* A path has as many hops as the sum of the distances along the axes. Each link begins where the
 * one before it ended. */
static void paths_on_a_torus_are_shortest(void **state)
{
    (void)state;
    Cluster c = cluster_on(torus(4, 3, 2, 1e9), 24, 1);
    Routes r = routes_of(&c);
    static const uint32_t sizes[] = {4, 3, 2}, strides[] = {1, 4, 12};
    assert_int_equal(r.n_places, 24);
    assert_int_equal(r.most_hops, 2 + 1 + 1);
    for (uint32_t from = 0; from < 24; from++) {
        for (uint32_t to = 0; to < 24; to++) {
            uint32_t path[8], n = routes_path(&r, from, to, path), wanted = 0, at = from, axis = 0;
            for (uint32_t a = 0; a < 3; a++)
                wanted += apart(from / strides[a] % sizes[a], to / strides[a] % sizes[a], sizes[a]);
            assert_int_equal(n, wanted);
            for (uint32_t h = 0; h < n; h++) {
                uint32_t a = path[h] / 2 % MOST_TORUS_AXES, down = path[h] % 2;
                assert_int_equal(path[h] / 2 / MOST_TORUS_AXES, at);
                assert_true(a >= axis); /* finishes one axis before the next */
                axis = a;
                uint32_t x = at / strides[a] % sizes[a];
                uint32_t next = (x + (down ? sizes[a] - 1 : 1)) % sizes[a];
                at = at - x * strides[a] + next * strides[a];
            }
            assert_int_equal(at, to);
        }
    }
}

/* A path to another group uses exactly one link between groups, with at most one hop before it and
 * one after it. A message from B to A arrives at the router of A where A's link to B begins. Every
 * link is used by some path, and each hop uses a link of the group where it begins. */
static void paths_on_a_dragonfly_use_the_right_links(void **state)
{
    (void)state;
    static const Topology each[] = {{.groups = 5, .routers = 4, .nodes = 2, .ways_out = 2},
                                    {.groups = 3, .routers = 2, .nodes = 1, .ways_out = 1},
                                    {.groups = 9, .routers = 8, .nodes = 2, .ways_out = 4}};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        uint32_t routers = each[i].routers, inside = routers * routers;
        Topology t = dragonfly(each[i].groups, routers, each[i].nodes, each[i].ways_out);
        Cluster c = cluster_on(t, t.groups * routers * t.nodes, 1);
        Routes r = routes_of(&c);
        uint32_t of_group = inside + routers * t.ways_out, n_used = 0;
        uint8_t *used = calloc(r.n_links, 1);
        assert_non_null(used);
        for (uint32_t from = 0; from < r.n_places; from++) {
            for (uint32_t to = 0; to < r.n_places; to++) {
                uint32_t path[3], n = routes_path(&r, from, to, path), outs = 0;
                uint32_t at = from / t.nodes; /* the router of the sender */
                for (uint32_t h = 0; h < n; h++) {
                    uint32_t link = path[h] % of_group, group = path[h] / of_group;
                    n_used += !used[path[h]];
                    used[path[h]] = 1;
                    assert_int_equal(group, at / routers);
                    if (link < inside) {
                        assert_int_equal(link / routers, at % routers);
                        at = group * routers + link % routers;
                        continue;
                    }
                    assert_int_equal((link - inside) / t.ways_out, at % routers);
                    /* the way back uses a link of the same pair of groups, with the same number */
                    uint32_t pairs = t.groups - 1, port = link - inside;
                    uint32_t other = (group + 1 + port % pairs) % t.groups;
                    uint32_t back = port / pairs * pairs + (t.groups - 2 - port % pairs);
                    at = other * routers + back / t.ways_out;
                    outs++;
                }
                assert_int_equal(at, to / t.nodes);
                assert_int_equal(outs, from / t.nodes / routers != to / t.nodes / routers);
            }
        }
        uint32_t ways = routers * t.ways_out / (t.groups - 1) * (t.groups - 1);
        assert_int_equal(n_used, t.groups * (routers * (routers - 1) + ways));
        free(used);
    }
}

/* NCCL builds two trees. Each node except the root has a parent. The busiest node sends a buffer 1
 * time with 2 nodes, 1.5 times with 3 nodes, and 2 times with more. */
static void trees_load_their_busiest_node(void **state)
{
    (void)state;
    for (uint32_t n = 2; n < 40; n++) {
        uint32_t to[64], all = 0, most = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = routes_edges(EDGE_tree, i, n, to);
            assert_true(k <= n + 4);
            if (k > most) most = k;
            all += k;
        }
        assert_int_equal(all, 2 * 2 * (n - 1)); /* two trees, up and down */
        assert_int_equal(most, n == 2 ? 2 : n == 3 ? 3 : 4);
    }
}

/* 4 x 4 nodes with rings of four, along the first axis (`inner`) or the second. Each ring has its
 * own links, and uses exactly their full rate. */
static void rings_along_an_axis_share_no_link(void **state)
{
    (void)state;
    for (uint32_t inner = 0; inner < 2; inner++) {
        Arena *arena = arena_new();
        Cluster c = cluster_on(torus(4, 4, 1, 10e9), 16, 1);
        Plan *plan = synthetic_plan(arena, 1, 4, 4, 1); /* tp is the inner axis */
        AxisSet axis = synthetic_axis(plan, inner ? AXIS_tp : AXIS_dp_shard);
        synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, axis, 0, 1, 1 << 30);
        NcclChoice alone = nccl_choose(&c, OP_all_gather, 4, 1, 1 << 30);
        double expected = (double)alone.latency_ps / 1e12 + 0x1p30 * 3 / 4 / 10e9;
        for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
            EngineResult result;
            Fold *fold;
            double s = (double)run_on(plan, &c, unfolded == 1, arena, &result, &fold) / 1e12;
            if (fabs(s / expected - 1) > 1e-4) fail_msg("%g s, by hand %g", s, expected);
            if (unfolded == 0) assert_int_equal(fold->n_classes, 1);
        }
        arena_free(arena);
    }
}

/* A ring of 8 nodes, where each node sends an eighth of its data to each other node. Messages in
 * one direction make 1, 2 or 3 hops, so a link carries 1 + 2 + 3 of them. Messages half way round
 * add 2 (even nodes send up, odd nodes down), so 8 in all. */
static void an_exchange_on_a_ring_loads_every_link(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = cluster_on(torus(8, 1, 1, 10e9), 8, 1);
    Plan *plan = synthetic_plan(arena, 1, 8, 1, 1);
    AxisSet dp = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_to_all, dp, 0, 1, 1 << 30);
    NcclChoice alone = nccl_choose(&c, OP_all_to_all, 8, 1, 1 << 30);
    double expected = (double)alone.latency_ps / 1e12 + 8 * 0x1p30 / 8 / 10e9;
    for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
        EngineResult result;
        Fold *fold;
        double s = (double)run_on(plan, &c, unfolded == 1, arena, &result, &fold) / 1e12;
        if (fabs(s / expected - 1) > 1e-4) fail_msg("%g s, by hand %g", s, expected);
    }
    NcclQuestion q = {.kind = COLLECTIVE_all_to_all, .n_nodes = 8, .ranks_per_node = 1};
    q.bytes = 1 << 30;
    assert_true(fabs((double)nccl_answer_alone(&c, &q).time_ps / 1e12 / expected - 1) < 1e-4);
    arena_free(arena);
}

/* Two groups of four routers. Each router sends to its partner in the other group, which is the
 * worst case for shortest routes: all four messages of a direction share the one link out of their
 * group. Inside a group, the same exchange has a link for each message. So it has between groups,
 * if there are as many links between them as routers. */
static void a_dragonfly_has_few_ways_out(void **state)
{
    (void)state;
    static const struct {
        uint32_t ways_out, groups;
        double share;
    } cases[] = {{1, 5, 4}, {1, 3, 2}, {1, 2, 1}, {4, 5, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Arena *arena = arena_new();
        Cluster c =
            cluster_on(dragonfly(cases[i].groups, 4, 1, cases[i].ways_out), cases[i].groups * 4, 1);
        Plan *plan = synthetic_plan(arena, 2, 1, 4, 2); /* each stage is one group */
        AxisSet pp = synthetic_axis(plan, AXIS_pp);
        synthetic_comm(plan, 0, STREAM_pp_forward, OP_send, pp, 1, 1, 1 << 30);
        synthetic_comm(plan, 1, STREAM_pp_backward, OP_recv, pp, -1, 1, 1 << 30);
        NcclChoice alone = nccl_choose(&c, OP_send, 2, 1, 1 << 30);
        double latency = (double)alone.latency_ps / 1e12;
        double expected = latency + cases[i].share * 0x1p30 / 10e9;
        for (uint32_t unfolded = 0; unfolded < 2; unfolded++) {
            EngineResult result;
            Fold *fold;
            double s = (double)run_on(plan, &c, unfolded == 1, arena, &result, &fold) / 1e12;
            if (fabs(s / expected - 1) > 1e-4) fail_msg("%zu: %g s, by hand %g", i, s, expected);
        }
        arena_free(arena);
    }
}

/* A group has one link of 40 GB/s for each pair of routers. In an exchange, each link carries a
 * quarter of all bytes. */
static void routers_of_a_group_are_linked_in_pairs(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Topology t = dragonfly(2, 4, 1, 1);
    t.link_bytes_per_s = 5e9;
    Cluster c = cluster_on(t, 8, 1);
    Plan *plan = synthetic_plan(arena, 1, 2, 4, 1);
    AxisSet tp = synthetic_axis(plan, AXIS_tp);
    synthetic_comm(plan, 0, STREAM_tp, OP_all_to_all, tp, 0, 1, 1 << 30);
    NcclChoice alone = nccl_choose(&c, OP_all_to_all, 4, 1, 1 << 30);
    EngineResult result;
    Fold *fold;
    double s = (double)run_on(plan, &c, false, arena, &result, &fold) / 1e12;
    double expected = (double)alone.latency_ps / 1e12 + 0x1p30 / 4 / 5e9;
    assert_true(fabs(s / expected - 1) < 1e-4);
    assert_int_equal(fold->n_classes, 1);
    arena_free(arena);
}

static void check_folded(const Plan *plan, const Cluster *c, Arena *arena, uint32_t *folded_away)
{
    EngineResult whole, folded;
    Fold *fold, *none;
    run_on(plan, c, true, arena, &whole, &none);
    run_on(plan, c, false, arena, &folded, &fold);
    *folded_away += none->n_ranks - fold->n_classes;
    assert_int_equal(none->n_classes, none->n_ranks);
    assert_int_equal(folded.step_ps, whole.step_ps);
    for (Rank r = 0; r < none->n_ranks; r++) {
        const Timeline *x = &whole.line[r], *y = &folded.line[fold->class_of[r]];
        assert_true(same_times(x, y, plan_program(plan, r)));
    }
}

/* Random programs over tori and dragonflies, with all nodes or only some of them in use. */
static void folded_is_unfolded(void **state)
{
    (void)state;
    static const uint32_t shapes[][4] = {/* pp, dp, tp, devices of a node */
                                         {1, 8, 2, 2}, {1, 4, 4, 1}, {2, 4, 2, 1}, {1, 16, 1, 2},
                                         {2, 2, 4, 2}, {3, 2, 2, 1}, {1, 3, 4, 2}};
    uint32_t folded_away = 0;
    for (uint64_t seed = 1; seed <= 84; seed++) {
        Arena *arena = arena_new();
        const uint32_t *s = shapes[seed % 7];
        uint32_t nodes = s[0] * s[1] * s[2] / s[3];
        Topology each[] = {torus(4, 4, 1, 10e9),  torus(2, 2, 4, 20e9),  torus(16, 1, 1, 5e9),
                           dragonfly(4, 2, 2, 2), dragonfly(2, 8, 1, 1), dragonfly(5, 4, 1, 1)};
        Cluster c = cluster_on(each[seed % 6], nodes, s[3]);
        Plan *plan = random_plan(arena, s[0], s[1], s[2], 80, seed);
        /* sizes for which the rate of the links matters */
        for (uint32_t i = 0; i < plan->programs.n; i++) {
            Program *p = &plan->programs.at[i];
            for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].bytes <<= 6;
            for (Pc pc = 1; pc < p->code.n; pc++) p->code.at[pc].microbatch *= 1000;
        }
        check_folded(plan, &c, arena, &folded_away);
        arena_free(arena);
    }
    assert_true(folded_away > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_on_a_torus_are_shortest),
        cmocka_unit_test(paths_on_a_dragonfly_use_the_right_links),
        cmocka_unit_test(trees_load_their_busiest_node),
        cmocka_unit_test(rings_along_an_axis_share_no_link),
        cmocka_unit_test(an_exchange_on_a_ring_loads_every_link),
        cmocka_unit_test(a_dragonfly_has_few_ways_out),
        cmocka_unit_test(routers_of_a_group_are_linked_in_pairs),
        cmocka_unit_test(folded_is_unfolded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
