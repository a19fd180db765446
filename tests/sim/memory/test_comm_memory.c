/* Device memory of communicators, compared with NCCL's own sizes and with measurements. A ring
 * takes 24 channels x 12 MiB on an H100, and 32 on a B200. Reductions in the switch take 256 or 384
 * MiB, and 1.5 GiB on NVL72. Messages take 384 MiB for each peer, so an all-to-all of 8 ranks
 * takes 2.63 GiB. (NCCL's issue 1685 reports 3.3 GB for it.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "sim/memory/group_place.h"
#include "tests/sim/synthetic.h"

#define MIB (UINT64_C(1) << 20)

static Cluster machine(const char *arch, uint32_t nodes, uint32_t per_node)
{
    Cluster c = {.name = "test", .nodes = nodes, .intra = FABRIC_nvswitch};
    bool blackwell = arch[0] == 'B';
    c.devices_per_node = c.nics_per_node = per_node;
    c.device = (Device){.name = "test", .arch = arch, .sms = 132, .hbm_bytes_per_s = 3.35e12};
    c.device.memory_bytes = 80 << 10;
    c.device.memory_bytes *= MIB;
    c.intra_bytes_per_s = blackwell ? 900e9 : 450e9;
    c.nic_bytes_per_s = 50e9;
    c.oversubscription = c.group_oversubscription = 1;
    return c;
}

static const Runtime framework = {.name = "test"};

/* Returns the memory of the one communicator that an op of that size creates for `n` ranks in a
 * node. */
static CommMemory alone(const Cluster *cluster, OpKind op, uint32_t n, uint64_t bytes)
{
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, n, 1, 1);
    AxisSet axes = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, op, axes, 0, 1, bytes);
    CommMemories list;
    uint64_t all = comm_memory(plan, 0, cluster, &framework, arena, &list);
    assert_int_equal(list.n, 1);
    CommMemory m = list.at[0];
    assert_int_equal(m.n_ranks, n);
    assert_int_equal(m.bytes, MIB + m.ring_bytes + m.tree_bytes + m.switch_bytes + m.message_bytes);
    assert_int_equal(m.bytes, all);
    arena_free(arena);
    return m;
}

static void sizes_equal_nccls(void **state)
{
    (void)state;
    Cluster hopper = machine("Hopper", 1, 8), blackwell = machine("Blackwell", 1, 8),
            rack = machine("Blackwell", 1, 72);
    CommMemory m = alone(&hopper, OP_all_gather, 8, 64 * MIB);
    assert_int_equal(m.channels, 24);
    assert_int_equal(m.ring_bytes, 288 * MIB);
    assert_int_equal(m.bytes, 289 * MIB);
    assert_int_equal(alone(&blackwell, OP_all_gather, 8, 64 * MIB).ring_bytes, 384 * MIB);
    m = alone(&hopper, OP_all_reduce, 8, 1024 * MIB);
    assert_int_equal(m.switch_bytes, 256 * MIB);
    assert_int_equal(m.ring_bytes, 0);
    assert_int_equal(alone(&blackwell, OP_all_reduce, 8, 1024 * MIB).switch_bytes, 384 * MIB);
    assert_int_equal(alone(&rack, OP_all_reduce, 72, 1024 * MIB).switch_bytes, 1536 * MIB);
    m = alone(&hopper, OP_all_to_all, 8, 64 * MIB);
    assert_int_equal(m.n_peers, 7);
    assert_int_equal(m.message_bytes, 7 * 384 * MIB);
}

/* NCCL_BUFFSIZE changes the buffer of one of the three protocols: at both ends between nodes, and
 * at the receiver within a node. */
static void a_network_may_need_larger_buffers(void **state)
{
    (void)state;
    Cluster usual = machine("Hopper", 1, 8), larger = usual;
    larger.fabric.buffer_bytes = 8. * (double)MIB;
    assert_int_equal(alone(&usual, OP_all_gather, 8, 64 * MIB).ring_bytes, 24 * 12 * MIB);
    assert_int_equal(alone(&larger, OP_all_gather, 8, 64 * MIB).ring_bytes, 24 * 16 * MIB);
    assert_int_equal(alone(&larger, OP_all_to_all, 8, 64 * MIB).message_bytes, 7 * 32 * 16 * MIB);
    assert_int_equal(alone(&larger, OP_all_reduce, 8, 1024 * MIB).switch_bytes, 256 * MIB);
}

/* With one rank on each node, all traffic of a ring goes through NICs. Both ends have the buffers
 * of two protocols. */
static void nics_have_their_own_buffers(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = machine("Hopper", 8, 8);
    Plan *plan = synthetic_plan(arena, 1, 8, 8, 1);
    AxisSet axes = synthetic_axis(plan, AXIS_dp_shard);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, axes, 0, 1, 64 * MIB);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_to_all, axes, 0, 2, 64 * MIB);
    CommMemories list;
    comm_memory(plan, 0, &c, &framework, arena, &list);
    assert_int_equal(list.n, 1);
    const CommMemory *m = &list.at[0];
    assert_int_equal(m->n_nodes, 8);
    assert_true(m->channels > 0);
    assert_int_equal(m->ring_bytes, m->channels * 2 * (4 * MIB + 4915200));
    assert_int_equal(m->n_peers, 7); /* the 7 ranks whose traffic shares the NIC */
    assert_true(m->message_bytes >= m->channels * 4 * MIB);
    assert_true(m->message_bytes < m->channels * 8 * MIB);
    arena_free(arena);
}

/* Returns on how many nodes the ranks of rank 0's group are, by visiting every rank. */
static uint32_t nodes_of(const Mesh *mesh, AxisSet axes, uint32_t per_node)
{
    uint32_t n = 0, last = UINT32_MAX;
    for (Rank r = 0; r < mesh->n_ranks; r++) {
        if (mesh_group(mesh, r, axes) != 0 || r / per_node == last) continue;
        last = r / per_node;
        n++;
    }
    return n;
}

static void nodes_of_groups_are_counted(void **state)
{
    (void)state;
    static const AxisName names[] = {AXIS_dp_shard, AXIS_tp};
    for (uint32_t per_node = 2; per_node <= 32; per_node *= 2)
        for (uint32_t which = 1; which < 4; which++) {
            Arena *arena = arena_new();
            Cluster c = machine("Hopper", 32 / per_node, per_node);
            Plan *plan = synthetic_plan(arena, 1, 8, 4, 1);
            AxisSet axes = 0;
            for (uint32_t i = 0; i < 2; i++)
                if (which >> i & 1) axes |= synthetic_axis(plan, names[i]);
            synthetic_comm(plan, 0, STREAM_tp, OP_all_gather, axes, 0, 1, MIB);
            CommMemories list;
            comm_memory(plan, 0, &c, &framework, arena, &list);
            assert_int_equal(list.n, 1);
            assert_int_equal(list.at[0].n_nodes, nodes_of(&plan->mesh, axes, per_node));
            arena_free(arena);
        }
}

/* Four stages. Tandem's executor has two communicators of all ranks, one for each direction. In
 * each of them, a stage only sends to one neighbour. A framework has one communicator for both. */
static void stages_need_buffers_for_their_neighbours(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = machine("Hopper", 1, 4);
    Plan *plan = synthetic_plan(arena, 4, 1, 1, 4);
    AxisSet pp = synthetic_axis(plan, AXIS_pp);
    uint32_t match = 1;
    for (uint32_t i = 0; i + 1 < 4; i++) {
        synthetic_comm(plan, i, STREAM_pp_forward, OP_send, pp, 1, match, MIB);
        synthetic_comm(plan, i + 1, STREAM_pp_forward, OP_recv, pp, -1, match++, MIB);
        synthetic_comm(plan, i + 1, STREAM_pp_backward, OP_send, pp, -1, match, MIB);
        synthetic_comm(plan, i, STREAM_pp_backward, OP_recv, pp, 1, match++, MIB);
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < 4; i++) {
        CommMemories list;
        uint64_t bytes = comm_memory(plan, i, &c, &framework, arena, &list);
        assert_int_equal(list.n, 1);
        assert_int_equal(list.at[0].n_peers, i == 0 || i == 3 ? 1 : 2);
        assert_int_equal(list.at[0].message_bytes, list.at[0].n_peers * 384 * MIB);
        bytes = comm_memory(plan, i, &c, NULL, arena, &list);
        assert_int_equal(list.n, 2);
        uint64_t sum = MIB; /* the communicator of all ranks, before it has any connections */
        for (uint32_t k = 0; k < 2; k++) {
            bool forward = list.at[k].stream == STREAM_pp_forward;
            uint64_t to = forward ? i < 3 : i > 0, from = forward ? i > 0 : i < 3;
            assert_int_equal(list.at[k].n_peers, to + from);
            assert_int_equal(list.at[k].message_bytes, (to * 64 + from * 320) * MIB);
            assert_true(list.at[k].ring_bytes + list.at[k].tree_bytes >= 288 * MIB);
            sum += list.at[k].bytes;
        }
        assert_int_equal(bytes, sum);
        if (bytes > most) most = bytes;
    }
    CommMemories list;
    assert_int_equal(comm_memory_most(plan, &c, NULL, arena, &list), most);
    arena_free(arena);
}

/* DeepEP and HybridEP exchange tokens in their own buffers, so NCCL needs none for these messages.
 * NCCL still has the buffers of other exchanges. */
static void another_library_has_its_own_buffers(void **state)
{
    (void)state;
    static const Runtime other = {.name = "test", .own_exchange = true};
    static const AxisName names[] = {AXIS_ep, AXIS_cp};
    Cluster c = machine("Hopper", 1, 8);
    for (int i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        Plan *plan = synthetic_plan(arena, 1, 8, 1, 1);
        uint32_t sizes[AXIS_NAMES] = {0};
        sizes[names[i]] = 8;
        plan->mesh = mesh_make(sizes);
        const AxisSet axes = synthetic_axis(plan, names[i]);
        synthetic_comm(plan, 0, STREAM_ep, OP_all_to_all, axes, 0, 1, 64 * MIB);
        CommMemories nccl, own;
        const uint64_t with = comm_memory(plan, 0, &c, &framework, arena, &nccl);
        const uint64_t without = comm_memory(plan, 0, &c, &other, arena, &own);
        assert_int_equal(nccl.at[0].n_peers, mesh_size(&plan->mesh, axes) - 1);
        assert_int_equal(nccl.at[0].message_bytes, nccl.at[0].n_peers * 384 * MIB);
        assert_int_equal(with - without, i == 0 ? nccl.at[0].message_bytes : 0);
        arena_free(arena);
    }
}

/* A plan needs no such memory if it sends nothing, has one rank, or uses no device. */
static void without_communication_no_memory_is_needed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Cluster c = machine("Hopper", 1, 8);
    CommMemories list;
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    assert_int_equal(comm_memory(plan, 0, &c, NULL, arena, &list), 0);
    plan = synthetic_plan(arena, 1, 8, 1, 1);
    synthetic_comm(plan, 0, STREAM_dp_gather, OP_all_gather, synthetic_axis(plan, AXIS_dp_shard), 0,
                   1, MIB);
    comm_memory(plan, 0, &c, NULL, arena, &list);
    assert_int_equal(list.at[0].n_peers, 0);
    assert_int_equal(list.at[0].message_bytes, 0);
    c.is_local = true;
    assert_int_equal(comm_memory(plan, 0, &c, NULL, arena, &list), 0);
    arena_free(arena);
}

/* Counts the nodes of a group by visiting all of its members. */
static GroupPlace visited(const Mesh *mesh, Rank rank, uint32_t per_node, AxisSet axes)
{
    GroupPlace place = {.axes = axes, .n_ranks = mesh_size(mesh, axes)};
    Rank member = mesh_group(mesh, rank, axes);
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < place.n_ranks; i++, member = mesh_next(mesh, member, axes)) {
        const uint32_t node = per_node == 0 ? 0 : member / per_node;
        place.n_nodes += node != last;
        place.here += node == (per_node == 0 ? 0 : rank / per_node);
        last = node;
    }
    return place;
}

static void rows_of_members_are_counted_at_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t sizes[AXIS_NAMES] = {0};
        for (uint32_t k = 0; k < 4; k++)
            sizes[rng_u64(i, k, 0) % AXIS_NAMES] = 1 + (uint32_t)(rng_u64(i, k, 1) % 6);
        Mesh mesh = mesh_make(sizes);
        if (mesh.n_axes > 1 && rng_u64(i, 4, 0) % 2)
            mesh_nest_last(&mesh, (uint32_t)(rng_u64(i, 5, 0) % mesh.n_axes));
        const Rank rank = (Rank)(rng_u64(i, 6, 0) % mesh.n_ranks);
        const uint32_t per_node = (uint32_t)(rng_u64(i, 7, 0) % 13);
        const AxisSet axes = (AxisSet)(rng_u64(i, 8, 0) % (1u << mesh.n_axes));
        const GroupPlace x = group_place(&mesh, rank, per_node, axes),
                         y = visited(&mesh, rank, per_node, axes);
        if (x.axes != y.axes || x.n_ranks != y.n_ranks || x.n_nodes != y.n_nodes ||
            x.here != y.here)
            fail_msg("case %u: %u or %u nodes, %u or %u ranks here", i, x.n_nodes, y.n_nodes,
                     x.here, y.here);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_equal_nccls),
        cmocka_unit_test(a_network_may_need_larger_buffers),
        cmocka_unit_test(nics_have_their_own_buffers),
        cmocka_unit_test(nodes_of_groups_are_counted),
        cmocka_unit_test(stages_need_buffers_for_their_neighbours),
        cmocka_unit_test(another_library_has_its_own_buffers),
        cmocka_unit_test(without_communication_no_memory_is_needed),
        cmocka_unit_test(rows_of_members_are_counted_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
