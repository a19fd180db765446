/* Times of collectives in PCIe boxes, link by link; in NVLink domains larger than a board; and over
 * the channels of messages. The expected values follow by hand from NCCL's numbers and rules, and
 * from one published log. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "sim/net/nccl.h"
#include "tests/sim/net/dgx.h"

/* Links are PCIe 4 x16, which NCCL counts as 24 GB/s (.76 of 31.5 is 23.94). */
static Cluster box(uint32_t sockets, uint32_t switches, PeerLevel peer, bool intel)
{
    Cluster c = {.name = "box", .nodes = 1, .devices_per_node = 8, .intra = FABRIC_pcie};
    c.device = (Device){.name = "A100", .arch = "Ampere", .sms = 108, .hbm_bytes_per_s = 2e12};
    c.intra_bytes_per_s = 31.5e9;
    c.pcie = (PcieBox){sockets, switches, 0, peer, intel};
    c.nics_per_node = 1;
    c.nic_bytes_per_s = 25e9;
    c.oversubscription = c.group_oversubscription = 1;
    return c;
}
static const double link = .76 * 31.5e9;

static void assert_rate(double rate, double expected)
{
    if (fabs(rate / expected - 1) > 1e-9)
        fail_msg("%.3f GB/s, by hand %.3f", rate / 1e9, expected / 1e9);
}

/* nccl-tests' issue 307: 8 RTX 4090 and two Xeons. Each Xeon has a switch with four devices. The
 * log shows one channel of 5 GB/s, with paths of 24 GB/s inside a socket and of 10 between sockets.
 * Four hops of a ring go up from a switch. Three of them come down again to the same switch, which
 * costs a sixth more, and one goes to the other socket. */
static void a_published_log_is_matched(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c;
    assert_true(front_cluster("pcie_rtx4090", 1, arena, &c, &d));
    NcclCase ring = nccl_case(&c, COLLECTIVE_all_reduce, 1, 8, 1 << 30);
    assert_true(ring.ring.channels == 1);
    assert_true(ring.ring.intra == 5);
    assert_rate(pcie_ring_bytes_per_s(&c, 8), link / (3 * 1.2 + 1));
    assert_int_equal(nccl_channels(&c, 1, 8), 2);
    arena_free(arena);
}

static void rings_have_their_rates(void **state)
{
    (void)state;
    /* Each device has its own link to its processor, so only the link between processors is
     * shared. */
    Cluster c = box(2, 0, PEER_auto, false);
    assert_rate(pcie_ring_bytes_per_s(&c, 8), link);
    c.pcie.socket_bytes_per_s = 16e9;
    assert_rate(pcie_ring_bytes_per_s(&c, 8), 16e9);
    assert_rate(pcie_ring_bytes_per_s(&c, 4), link); /* all devices of the ring are in one socket */
    c.pcie.intel = true;
    assert_rate(pcie_ring_bytes_per_s(&c, 4), link / 1.2);
    /* If devices below a switch can write to each other, only one hop of a ring uses the uplink.
     * Otherwise all four hops use it. */
    c = box(2, 2, PEER_auto, false);
    assert_rate(pcie_ring_bytes_per_s(&c, 8), link);
    c.pcie.peer = PEER_off;
    assert_rate(pcie_ring_bytes_per_s(&c, 8), link / 4);
    assert_rate(pcie_ring_bytes_per_s(&c, 2), link / 2);
    /* Data that passes through host memory is written and read there: 8 flows of 16 x 4 GB/s. */
    c = box(1, 0, PEER_off, false);
    c.host_bytes_per_s = 4e9;
    assert_rate(pcie_ring_bytes_per_s(&c, 8), 8 * 4e9 / 16);
    c.pcie.peer = PEER_node;
    assert_rate(pcie_ring_bytes_per_s(&c, 8), link);
}

/* An all-to-all of 8 devices in two sockets has 56 flows, each of a seventh of a device's data. In
 * each direction, 16 of them cross between the sockets. */
static void exchanges_have_their_rates(void **state)
{
    (void)state;
    Cluster c = box(2, 0, PEER_auto, false);
    assert_rate(pcie_exchange_bytes_per_s(&c, 8), link);
    c.pcie.socket_bytes_per_s = 10e9;
    assert_rate(pcie_exchange_bytes_per_s(&c, 8), 10e9 * 7 / 16);
    c = box(2, 2, PEER_auto, false);
    assert_rate(pcie_exchange_bytes_per_s(&c, 8), link * 7 / 16);
    c.pcie.peer = PEER_off;
    assert_rate(pcie_exchange_bytes_per_s(&c, 8), link / 4);
    /* Each of 8 devices sends its data through host memory, which writes and reads it. */
    c = box(1, 0, PEER_off, false);
    c.host_bytes_per_s = 4e9;
    assert_rate(pcie_exchange_bytes_per_s(&c, 8), 8 * 4e9 / 16);
}

/* A large collective is as fast as its busiest link allows. The protocol of 128-byte stores (LL128)
 * does not work over PCIe. */
static void busy_links_limit_collectives(void **state)
{
    (void)state;
    Cluster c = box(2, 2, PEER_off, false);
    const NcclFit *fit = nccl_fit(&c);
    NcclChoice ring = nccl_choose(&c, OP_all_gather, 1, 8, UINT64_C(16) << 30);
    assert_string_equal(ring.algorithm, "Ring");
    assert_true(fabs(ring.bus_bytes_per_s / (link / 4 * fit->gather) - 1) < .005);
    NcclChoice all = nccl_choose(&c, OP_all_to_all, 1, 8, UINT64_C(16) << 30);
    assert_true(fabs(all.bus_bytes_per_s / (link / 4 * fit->exchange) - 1) < .005);
    for (uint64_t bytes = 8; bytes < UINT64_C(1) << 34; bytes *= 2)
        assert_string_not_equal(nccl_choose(&c, OP_all_reduce, 1, 8, bytes).protocol, "LL128");
}

/* The bus bandwidths of 72 GB200 at 512 MiB to 4 GiB are published. Except for one peak of 32 GPUs,
 * they were not used for fitting. With 32 heads, four times as many bytes are in flight as on a
 * board with 8. */
static void large_domains_match_published_rates(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster c;
    assert_true(front_cluster("gb200_nvl72", 1, arena, &c, &d));
    static const double measured[] = {586e9, 681e9, 758e9, 835e9};
    for (uint32_t i = 0; i < 4; i++) {
        NcclQuestion q = {.kind = COLLECTIVE_all_reduce, .n_nodes = 1, .ranks_per_node = 72};
        q.bytes = UINT64_C(1) << (29 + i);
        q.issue = NCCL_blocking;
        NcclChoice choice = nccl_answer(&c, &q);
        assert_string_equal(choice.algorithm, "NVLS");
        double off = choice.bus_bytes_per_s / measured[i] - 1;
        if (fabs(off) > .1)
            fail_msg("%.0f GB/s, measured %.0f", choice.bus_bytes_per_s / 1e9, measured[i] / 1e9);
    }
    arena_free(arena);
}

/* A communicator of 24 channels has 32 channels for messages. In one node:
 *   8 ranks  a peer gets 4 channels; the 7 rounds start at channels 16, 8, 24, 4, 20, 12 and 28,
 *            and together use 28
 *   4 ranks  a peer gets 8 channels; the 3 rounds start at 16, 8 and 24, and together use 24
 *   2 ranks  the peer gets 16 channels, or all 32 for parts above 16 MiB
 * Between nodes there are 16 channels. A NIC of 48 GB/s fills 4 of them. On 2 nodes, peers form two
 * batches, which start at channels 0 and 8. On 8 nodes the batches use all channels. */
static void messages_use_the_expected_channels(void **state)
{
    (void)state;
    Cluster h = dgx_h100(8, 8);
    assert_int_equal(nccl_choose(&h, OP_all_to_all, 1, 8, 1 << 20).channels, 28);
    assert_int_equal(nccl_choose(&h, OP_all_to_all, 1, 4, 1 << 20).channels, 24);
    assert_int_equal(nccl_choose(&h, OP_send, 1, 2, 1 << 20).channels, 16);
    assert_int_equal(nccl_choose(&h, OP_send, 1, 2, UINT64_C(1) << 30).channels, 32);
    assert_int_equal(nccl_choose(&h, OP_all_to_all, 2, 8, UINT64_C(1) << 30).channels, 8);
    assert_int_equal(nccl_choose(&h, OP_all_to_all, 2, 8, 1 << 10).channels, 2);
    assert_int_equal(nccl_choose(&h, OP_all_to_all, 8, 8, UINT64_C(1) << 30).channels, 16);
    Cluster c = box(2, 0, PEER_auto, false);
    assert_int_equal(nccl_choose(&c, OP_all_to_all, 1, 8, 1 << 20).channels, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_published_log_is_matched),
        cmocka_unit_test(rings_have_their_rates),
        cmocka_unit_test(exchanges_have_their_rates),
        cmocka_unit_test(busy_links_limit_collectives),
        cmocka_unit_test(large_domains_match_published_rates),
        cmocka_unit_test(messages_use_the_expected_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
