/* Finds rings, trees and switch reductions as NCCL's search does on a machine: how many channels,
 * and the speed of each. The files of NCCL are src/graph/topo.cc, paths.cc and search.cc. */
#include <assert.h>
#include <math.h>

#include "sim/net/nccl.h"

/* The speeds of a channel [GB/s] that the search tries: inside a node, and between nodes. */
static const double intra_old[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 0};
static const double intra_hopper[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3, 0};
static const double intra_blackwell[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18, 0};
static const double inter_old[] = {48, 30, 28, 24, 20, 18,  15,  12,  10,  9,
                                   7,  6,  5,  4,  3,  2.4, 1.2, .24, .12, 0};
static const double inter_hopper[] = {48, 45, 42, 40, 30,  24,  22,  20,  17.5,
                                      15, 12, 6,  3,  2.4, 1.2, .24, .12, 0};
static const double inter_blackwell[] = {96, 48, 45.1, 42, 40,  30,  24,  22,  20, 17.5,
                                         15, 12, 6,    3,  2.4, 1.2, .24, .12, 0};

static const double *intra_speeds(Generation g)
{
    return g == GENERATION_blackwell ? intra_blackwell
           : g == GENERATION_hopper  ? intra_hopper
                                     : intra_old;
}

static const double *inter_speeds(Generation g)
{
    return g == GENERATION_blackwell ? inter_blackwell
           : g == GENERATION_hopper  ? inter_hopper
                                     : inter_old;
}

double nccl_nics_used(const NcclCase *c)
{
    double devices = fmax(c->cluster->devices_per_node, 1);
    double nics = fmin(c->cluster->nics_per_node, devices);
    return fmax(fmin(c->per_node, nics), 1);
}

/* Returns the rate of a NIC [GB/s] that the search assumes. */
static double search_rate(const NcclCase *c)
{
    return c->cluster->nic_bytes_per_s * .96e-9 * nccl_nic_rails(c->cluster);
}

double nccl_steps(const NcclCase *c)
{
    return c->kind == COLLECTIVE_all_reduce ? 2 * (c->n_ranks - 1) : c->n_ranks - 1;
}

double nccl_crossings(const NcclCase *c)
{
    return c->kind == COLLECTIVE_all_reduce ? 2 * (c->n_nodes - 1) : c->n_nodes - 1;
}

/* Returns the channels after a step of search.cc that replaces each fast channel by two channels
 * with half the speed. */
static Rings doubled(const NcclCase *c, double channels, double speed)
{
    bool sm90 = c->generation == GENERATION_hopper || c->generation == GENERATION_blackwell;
    if (speed >= 25 && !(sm90 && speed < 50 && channels > 4)) {
        channels *= 2;
        speed /= 2;
    }
    return (Rings){channels, speed, speed};
}

/* Returns the rings over direct links between devices. The cluster states how many rings these
 * links form. If they form none, data go back and forth over the same links. */
static Rings rings_of_links(const NcclCase *c, double port)
{
    uint32_t n = (uint32_t)c->per_node;
    double known = n <= MOST_RING_DEVICES ? c->cluster->rings[n] : 0;
    double links = c->cluster->rings[MOST_RING_DEVICES];
    if (known <= 0 || links <= 0) return (Rings){1, port, port};
    double speed = port / links;
    return (Rings){2 * known, speed / 2, speed / 2};
}

static Rings rings_in_node(const NcclCase *c, double port)
{
    const Cluster *cluster = c->cluster;
    if (cluster->intra == FABRIC_nvlink && cluster->rings[MOST_RING_DEVICES] > 0)
        return rings_of_links(c, port);
    if (cluster->intra == FABRIC_mesh) { /* one ring uses each link of a device */
        double others = fmax(cluster->devices_per_node - 1., 1), used = c->per_node - 1;
        return (Rings){2 * used, port / others / 2, port / others / 2};
    }
    double channels = 0, best = 0;
    for (const double *speed = intra_speeds(c->generation); *speed > 0; speed++) {
        double n = fmin(floor(port / *speed + 1e-9), 16);
        if (!nccl_has_nvlink(cluster)) n = fmin(n, 1);
        if (best > 0 && *speed / best < .49) break;
        if (n * *speed > channels * best) {
            channels = n;
            best = *speed;
        }
    }
    if (channels <= 0) return (Rings){1, port, port};
    return doubled(c, channels, best);
}

static Rings rings_between(const NcclCase *c, double port)
{
    double rate = search_rate(c), best = 0;
    for (const double *speed = inter_speeds(c->generation); *speed > 0 && best <= 0; speed++) {
        if (*speed <= rate + 1e-9) best = *speed;
    }
    if (best <= 0) best = rate;
    double channels = fmin(nccl_nics_used(c), 32);
    double inside = (c->per_node - 1) / c->per_node; /* only one of per_node hops goes through the
                                                        NIC */
    if (channels * best * inside > port) channels = fmax(floor(port / (best * inside)), 1);
    return doubled(c, channels, best);
}

/* Returns the trees between nodes. Their speed inside a node is at most twice the speed between
 * nodes. */
static Rings trees(const NcclCase *c, double port)
{
    Rings r = c->ring;
    if (c->n_nodes <= 1 || c->per_node <= 1) return r;
    const double *speed = intra_speeds(c->generation);
    while (*speed > 0 && (*speed > 2 * r.inter + 1e-9 || *speed * r.channels > port)) speed++;
    if (*speed > r.intra) r.intra = *speed;
    return r;
}

/* Returns the channels of reductions in the NVLink switch. Each GPU is one head: it gets the sum of
 * one part of the data. Its port carries (number of heads + 1) times the speed of a channel. */
static Rings switch_heads(const NcclCase *c, double port)
{
    const double *speed = c->generation == GENERATION_blackwell ? intra_blackwell : intra_hopper;
    Rings r = {fmin(c->per_node, 32), 0, 0};
    for (; *speed > 0 && r.intra <= 0; speed++) {
        if (*speed <= port / (r.channels + 1) + 1e-9) r.intra = *speed;
    }
    /* The speed between nodes is at most twice the speed inside a node. Both serve only the tuner's
     * choice. Measurements on 5 and 6 H200 and on 8 B200 show speeds that are not in the search's
     * list, so nccl_time.c uses the rate of the port instead. */
    r.inter = 2 * r.intra;
    if (c->n_nodes > 1) r.inter = fmin(r.inter, search_rate(c));
    return r;
}

NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes)
{
    assert(n_nodes > 0);
    assert(ranks_per_node > 0);
    NcclCase c = {.generation = nccl_generation(cluster), .cluster = cluster, .kind = kind};
    c.n_nodes = n_nodes;
    c.per_node = ranks_per_node;
    c.n_ranks = c.n_nodes * c.per_node;
    c.bytes = (double)bytes;
    bool box = cluster->intra == FABRIC_pcie;
    double port = box ? pcie_ring_bytes_per_s(cluster, ranks_per_node) / 1e9
                      : nccl_port_bytes_per_s(cluster) / 1e9;
    c.port_bytes_per_us = c.exchange_bytes_per_us = port * 1e3;
    if (box) c.exchange_bytes_per_us = pcie_exchange_bytes_per_s(cluster, ranks_per_node) * 1e-6;
    c.ring = n_nodes <= 1 ? rings_in_node(&c, port) : rings_between(&c, port);
    c.tree = trees(&c, port);
    c.nvls = switch_heads(&c, port);
    return c;
}
