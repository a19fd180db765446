/* NCCL's own model of a collective: a latency and a bandwidth for every algorithm and protocol.
 * NCCL runs the pair with the smallest time (src/graph/tuning.cc). The model ignores launches, and
 * the time until a pipeline is full. nccl_time.c computes the time of the chosen algorithm. */
#include <assert.h>
#include <math.h>

#include "sim/net/nccl.h"

/* Latencies [us], first of Tree, then of Ring: the base latency, and the latency of a hop over
 * NVLink, over PCIe and over the network. */
static const double base_us[2][N_PROTOCOLS] = {{6.8, 14, 8.4}, {6.6, 14, 8.4}};
static const double nvlink_us[2][N_PROTOCOLS] = {{.6, 1.25, 4.0}, {.6, 1.9, 3.4}};
static const double pci_us[2][N_PROTOCOLS] = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}};
static const double network_us[2][N_PROTOCOLS] = {{5.0, 8.5, 14}, {2.7, 4.0, 14}};
static const double nvls_us = 25, nvls_network_us = 18, nvls_tree_network_us = 20.9;
static const double direct_hop_us = 3.7, direct_network_us = 31;
static const double chain_hop_us = 2.8, chain_network_us = 30;
static const double pat_base_us = 8, pat_network_us = 14;

/* Largest bandwidths [GB/s] for 1 node, 2 nodes and more nodes. */
typedef struct Caps {
    double ll[3], ring_ll128[3], tree_ll128[3], tree[3], nvls_tree[3], nvls_efficiency;
} Caps;
static const Caps caps_of[] = {
    {{39, 39, 20.4}, {20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {0, 0, 0}, 0},
    {{87.7, 22.5, 19}, {20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {0, 0, 0}, 0},
    {{141, 45, 35}, {36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, .85},
    {{282, 90, 70}, {73.4, 34.6, 73.4}, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 43.8}, .74}};

/* Factor for an all-reduce by a tree, for each log2(bytes / 64). */
static const double tree_correction[N_PROTOCOLS][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

static bool sm90(const NcclCase *c)
{
    return c->generation == GENERATION_hopper || c->generation == GENERATION_blackwell;
}

static double hop_us(const NcclCase *c, NcclAlgorithm tree_or_ring, uint32_t protocol)
{
    bool pci = c->cluster->intra == FABRIC_pcie || c->cluster->intra == FABRIC_host;
    return (pci ? pci_us : nvlink_us)[tree_or_ring][protocol];
}

static uint32_t cap_index(const NcclCase *c)
{
    return c->n_nodes <= 1 ? 0 : c->n_nodes <= 2 ? 1 : 2;
}

/* Returns the bandwidth [GB/s] that the tuner uses. It is the speed inside a node for up to two
 * nodes, and the speed between nodes otherwise. */
static double bus_of(const NcclCase *c, const Rings *r)
{
    return r->channels * (c->n_nodes <= 2 ? r->intra : r->inter);
}

static bool goes_round(Collective kind)
{
    return kind == COLLECTIVE_all_reduce || kind == COLLECTIVE_all_gather ||
           kind == COLLECTIVE_reduce_scatter;
}

/* Returns the latency [us] of filling a chain of all ranks once. All channels fill at the same
 * time, so each hop counts once. */
static double chain_latency_us(const NcclCase *c, uint32_t protocol)
{
    NcclAlgorithm row = protocol == SIMPLE ? NCCL_Tree : NCCL_Ring;
    double hop = hop_us(c, row, protocol), away = network_us[row][protocol];
    return base_us[NCCL_Ring][protocol] + (c->n_ranks - c->n_nodes) * hop + (c->n_nodes - 1) * away;
}

/* Returns the largest bandwidth of LL. Between nodes it depends on the processors: nodes with AMD's
 * processors use the row of Ampere, all others that of Volta. A DGX A100 has AMD's; later nodes are
 * assumed to have Intel's or Arm's. */
static double most_ll(const NcclCase *c)
{
    const Generation g = c->n_nodes <= 1                      ? c->generation
                         : c->generation == GENERATION_ampere ? GENERATION_ampere
                                                              : GENERATION_volta;
    return caps_of[g].ll[cap_index(c)];
}

static NcclEstimate ring(const NcclCase *c, uint32_t protocol)
{
    const Caps *caps = &caps_of[c->generation];
    uint32_t i = cap_index(c);
    double bus = bus_of(c, &c->ring);
    if (protocol == LL) bus = fmin(most_ll(c), .5 * bus);
    if (protocol == LL128) bus = fmin(.92 * bus, c->ring.channels * caps->ring_ll128[i]);
    if (!goes_round(c->kind)) return (NcclEstimate){chain_latency_us(c, protocol), 1000 * bus};
    double steps = nccl_steps(c), crossing = 0, overhead = 0;
    if (c->n_nodes > 1) {
        crossing = nccl_crossings(c);
        overhead = protocol == SIMPLE ? 3 : 1; /* host time of a hop through a NIC: 1 us on Intel,
                                                  and for Simple three times as much */
    }
    double hop_network = network_us[c->per_node <= 1 ? NCCL_Tree : NCCL_Ring][protocol];
    double latency = base_us[NCCL_Ring][protocol] +
                     (steps - crossing) * fmax(hop_us(c, NCCL_Ring, protocol), overhead) +
                     crossing * hop_network;
    bool plateau = protocol == SIMPLE && c->kind == COLLECTIVE_all_reduce && c->n_nodes > 1 &&
                   c->bytes / (2 * c->ring.channels * c->n_ranks) >= 64;
    if (plateau) latency *= c->generation == GENERATION_volta ? 1.9 : 1.4;
    return (NcclEstimate){latency, 1000 * bus * c->n_ranks / steps};
}

static NcclEstimate tree(const NcclCase *c, uint32_t protocol)
{
    if (c->kind != COLLECTIVE_all_reduce) return (NcclEstimate){0, 0};
    const Caps *caps = &caps_of[c->generation];
    uint32_t i = cap_index(c);
    double channels = c->tree.channels;
    double b = fmin(.92 * bus_of(c, &c->tree), channels * caps->tree[i]);
    if (protocol == LL) b = fmin(b / 3.8, most_ll(c));
    if (protocol == LL128) {
        b = fmin(b * (c->n_nodes <= 1 ? 7. / 9 : 120. / 128), channels * caps->tree_ll128[i]);
    }
    if (sm90(c) && c->n_nodes > 1)
        b *= .85; /* NCCL's factor if all NIC traffic of a tree
                     goes through one device of the node */
    if (c->bytes < 512. * 1024 * 1024) {
        double at = floor(log2(fmax(c->bytes, 64) / 64));
        if (at >= 0 && at < 24) b *= tree_correction[protocol][(uint32_t)at];
    }
    double latency = base_us[NCCL_Tree][protocol] +
                     2 * ((c->per_node - 1) * hop_us(c, NCCL_Tree, protocol) +
                          floor(log2(c->n_nodes)) * network_us[NCCL_Tree][protocol]);
    return (NcclEstimate){latency, 1000 * b / 2};
}

/* Estimates reductions in the NVLink switch. Between nodes, these use trees, or network switches
 * that also reduce. */
static NcclEstimate nvls(const NcclCase *c, bool trees)
{
    const Caps *caps = &caps_of[c->generation];
    const NetworkFabric *fabric = &c->cluster->fabric;
    bool across = c->n_nodes > 1, reduces = c->kind == COLLECTIVE_all_reduce;
    if (!goes_round(c->kind) || caps->nvls_efficiency <= 0 || !nccl_has_switch(c->cluster) ||
        c->nvls.channels < 2 || c->nvls.intra <= 0 || fabric->no_nvls)
        return (NcclEstimate){0, 0};
    if (across && (!reduces || trees == fabric->sharp)) return (NcclEstimate){0, 0};
    if (!across && trees) return (NcclEstimate){0, 0};
    double g = c->per_node, channels = c->nvls.channels;
    double intra = c->nvls.intra * caps->nvls_efficiency * (channels - 1) / channels;
    intra *= reduces ? 2 : (g - 1) / g;
    double inter = c->nvls.inter * (c->n_nodes <= 2 && trees ? 2 : 1);
    double bus = fmin(intra, inter), latency = nvls_us;
    if (trees) {
        bus = fmin(bus, caps->nvls_tree[cap_index(c)]);
        latency += 2 * floor(log2(c->n_nodes)) * nvls_tree_network_us;
    } else if (across) {
        latency += nvls_network_us;
    }
    return (NcclEstimate){latency, 1000 * channels * bus * c->n_ranks / nccl_steps(c)};
}

/* Estimates reductions in the switches of the network. Heads are the ranks of a node that send to
 * these switches. If `direct`, the other ranks send to all heads directly; if not, data go from
 * rank to rank along a chain. */
static NcclEstimate coll_net(const NcclCase *c, bool direct)
{
    double g = c->per_node, channels = c->ring.channels;
    if (!c->cluster->fabric.sharp || c->n_nodes <= 1 || c->kind != COLLECTIVE_all_reduce ||
        (direct && (!nccl_has_switch(c->cluster) || g > 8)))
        return (NcclEstimate){0, 0};
    double bus = channels * c->ring.intra;
    if (!direct) {
        double latency = 2 * (g - 1) * chain_hop_us + chain_network_us;
        return (NcclEstimate){latency, 1000 * bus / 2};
    }
    double factor = g / channels;
    factor -= (factor - 1) / 2;
    bus /= factor;
    if (sm90(c)) bus *= .85;
    double latency = 2 * (fmin(1, g - 1) * direct_hop_us + (g - 1) * .4) + direct_network_us;
    return (NcclEstimate){latency, 1000 * bus / 2};
}

/* Estimates parallel aggregated trees (PAT), which need a group with one rank on each node. */
static NcclEstimate pat(const NcclCase *c)
{
    bool possible = c->kind != COLLECTIVE_all_reduce && goes_round(c->kind) && c->per_node <= 1 &&
                    c->n_nodes > 1 && c->generation != GENERATION_volta;
    if (!possible) return (NcclEstimate){0, 0};
    double latency =
        pat_base_us + floor(log2(c->n_nodes)) * pat_network_us / 3.5 + 2.8 * c->n_ranks;
    return (NcclEstimate){latency, 1000 * .75 * bus_of(c, &c->ring)};
}

NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol)
{
    NcclEstimate never = {0, 0};
    if (protocol != SIMPLE && c->n_nodes > 1 && c->cluster->fabric.simple_only) return never;
    /* LL128 needs 128 bytes to arrive as a whole: they do over NVLink and similar links, but not
     * over PCIe */
    if (protocol == LL128 && c->cluster->intra == FABRIC_pcie && c->per_node > 1) return never;
    bool simple = protocol == SIMPLE;
    switch (algorithm) {
    case NCCL_Ring: return ring(c, protocol);
    case NCCL_Tree: return tree(c, protocol);
    case NCCL_CollNetDirect: return simple ? coll_net(c, true) : never;
    case NCCL_CollNetChain: return simple ? coll_net(c, false) : never;
    case NCCL_NVLS: return simple ? nvls(c, false) : never;
    case NCCL_NVLSTree: return simple ? nvls(c, true) : never;
    case NCCL_PAT: return simple ? pat(c) : never;
    case NCCL_ALGORITHM_COUNT: break;
    }
    return never;
}

bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol)
{
    double best_us = INFINITY;
    for (NcclAlgorithm a = 0; a < NCCL_ALGORITHM_COUNT; a++) {
        for (uint32_t p = 0; p < N_PROTOCOLS; p++) {
            NcclEstimate e = nccl_tuner(c, a, p);
            if (e.bytes_per_us <= 0) continue;
            double us = e.latency_us + c->bytes / e.bytes_per_us;
            if (us >= best_us) continue;
            best_us = us;
            *algorithm = a;
            *protocol = p;
        }
    }
    return isfinite(best_us);
}
