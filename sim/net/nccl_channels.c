/* Computes the number of channels of communicators and of messages, as in NCCL's paths.cc and
 * enqueue.cc. A channel is one thread block, so it occupies one SM. For messages, the number of
 * channels of a communicator is a power of two. Each peer gets as many of them as its path can use,
 * but fewer if there are many peers. */
#include <math.h>

#include "sim/net/nccl.h"

enum { PEERS_OF_A_BATCH = 8 };

static uint32_t power_of_two(double n)
{
    uint32_t p = 1;
    while (p < n && p < 64) p *= 2;
    return p;
}

double nccl_all_channels(const NcclCase *c)
{
    return fmin(2 * c->ring.channels, 64);
}

uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node)
{
    NcclCase c = nccl_case(cluster, COLLECTIVE_all_reduce, n_nodes, ranks_per_node, 1);
    return (uint32_t)nccl_all_channels(&c);
}

uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes)
{
    return nccl_generation(cluster) != GENERATION_blackwell ? 16 : n_nodes > 1 ? 32 : 24;
}

/* Returns the largest number of channels for one peer: two for each NVLink, one for each 14 GB/s of
 * a NIC, and two over PCIe. */
static uint32_t most_of_a_peer(const NcclCase *c, uint32_t all)
{
    bool box = c->cluster->intra == FABRIC_pcie;
    double links =
        c->cluster->intra_bytes_per_s / (c->generation == GENERATION_blackwell ? 50e9 : 25e9);
    uint32_t most = c->per_node > 1 && !box ? power_of_two(2 * fmax(floor(links), 1)) : 2;
    if (c->n_nodes > 1) {
        double rails = nccl_nic_rails(c->cluster);
        double nic = floor(c->cluster->nic_bytes_per_s * .96e-9 * rails);
        uint32_t away = power_of_two(fmax(fmax(rails, ceil(nic / 14)), 1));
        if (c->per_node <= 1 || away < most) most = away;
        while (most > 1 && most * ceil(c->n_ranks / PEERS_OF_A_BATCH) > all) most /= 2;
    }
    return most < all ? most : all;
}

static uint32_t reversed(uint32_t x, uint32_t n)
{
    uint32_t r = 0;
    for (uint32_t bit = 1; bit < n; bit *= 2, x /= 2) r = 2 * r + (x & 1);
    return r;
}

uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes)
{
    uint32_t all =
        power_of_two(nccl_channels(c->cluster, (uint32_t)c->n_nodes, (uint32_t)c->per_node));
    uint32_t most = most_of_a_peer(c, all), n = most;
    while (n * c->n_ranks > all && n > 1) n /= 2;
    bool away = c->n_nodes > 1, box = c->cluster->intra == FABRIC_pcie;
    double chunk = away  ? NCCL_NET_CHUNK_BYTES
                   : box ? NCCL_PCIE_CHUNK_BYTES
                         : NCCL_NVLINK_CHUNK_BYTES;
    while (n < most && bytes / n > (away ? 1 : 32) * chunk) n *= 2;
    bool used[64] = {false};
    uint32_t n_used = 0, local = (uint32_t)c->per_node;
    uint32_t groups = (local + PEERS_OF_A_BATCH - 1) / PEERS_OF_A_BATCH;
    for (uint32_t round = 1; round < n_peers && n_used < all; round++) {
        uint32_t base = round;
        if (away) base = round / local * groups + round % local / PEERS_OF_A_BATCH;
        base = reversed(base, all);
        for (uint32_t k = 0; k < n; k++) {
            bool *at = &used[(base + k) % all];
            n_used += !*at;
            *at = true;
        }
    }
    return n_used == 0 ? n : n_used;
}
