/* NCCL's own model of a collective: for every algorithm and protocol a latency and a bandwidth; the
 * fastest is what it would run, and (plus launch and pipeline fill, which its tuner leaves out) how
 * long it takes alone. Numbers and formulas are those of NCCL 2.28.9 (src/graph/tuning.cc,
 * src/graph/search.cc, src/enqueue.cc); units there: microseconds, GB/s = bytes / 1000 us.
 *
 * Knows one group at a time: sharing of links is net_maxmin.c's. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/sim.h"

typedef enum Arch { ARCH_volta, ARCH_ampere, ARCH_hopper, ARCH_blackwell } Arch;
enum { LL, LL128, SIMPLE, N_PROTOCOLS };
typedef enum Algorithm { TREE, RING, NVLS, NVLS_TREE, PAT, N_ALGORITHMS } Algorithm;
static const char *const protocol_name[N_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const algorithm_name[N_ALGORITHMS] = {"Tree", "Ring", "NVLS", "NVLSTree", "PAT"};

/* us: base latency of an algorithm, and of one hop over NVLink or PCIe, and over the network. */
static const double base_us[N_ALGORITHMS][N_PROTOCOLS] = {
    {6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}};
static const double nvlink_us[2][N_PROTOCOLS] = {{.6, 1.25, 4.0}, {.6, 1.9, 3.4}};
static const double pci_us[2][N_PROTOCOLS] = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}};
static const double network_us[2][N_PROTOCOLS] = {{5.0, 8.5, 14}, {2.7, 4.0, 14}};
static const double nvls_us = 25, nvls_tree_network_us = 20.9;
static const double pat_network_us = 14;

/* GB/s caps for 1, 2, more nodes. */
typedef struct Caps {
    double ll[3], ring_ll128[3], tree_ll128[3], tree[3], nvls_tree[3], nvls_efficiency;
} Caps;
static const Caps caps_of[] = {
    {{39, 39, 20.4}, {20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {0, 0, 0}, 0},
    {{87.7, 22.5, 19}, {20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {0, 0, 0}, 0},
    {{141, 45, 35}, {36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, .85},
    {{282, 90, 70}, {73.4, 34.6, 73.4}, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 43.8}, .74}};

/* Tree all-reduce by log2(bytes / 64). */
static const double tree_correction[N_PROTOCOLS][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

/* Speeds (GB/s per channel) that the search tries, inside a node and between nodes. */
static const double intra_old[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 0};
static const double intra_hopper[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3, 0};
static const double intra_blackwell[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18, 0};
static const double inter_old[] = {48, 30, 28, 24, 20, 18,  15,  12,  10,  9,
                                   7,  6,  5,  4,  3,  2.4, 1.2, .24, .12, 0};
static const double inter_hopper[] = {48, 45, 42, 40, 30,  24,  22,  20,  17.5,
                                      15, 12, 6,  3,  2.4, 1.2, .24, .12, 0};
static const double inter_blackwell[] = {96, 48, 45.1, 42, 40,  30,  24,  22,  20, 17.5,
                                         15, 12, 6,    3,  2.4, 1.2, .24, .12, 0};

typedef struct Rings {
    double channels, intra, inter; /* per channel GB/s */
} Rings;

typedef struct Case {
    Arch arch;
    const Cluster *cluster;
    OpKind op;
    double n_nodes, per_node, n_ranks, bytes;
    Rings ring, nvls;
} Case;

typedef struct Estimate {
    double latency_us, bytes_per_us; /* of the tuner's size; 0: not possible */
} Estimate;

static Arch arch_of(const Cluster *cluster)
{
    const char *name = cluster->device.arch == NULL ? "" : cluster->device.arch;
    if (strncmp(name, "Blackwell", 9) == 0) return ARCH_blackwell;
    if (strncmp(name, "Hopper", 6) == 0) return ARCH_hopper;
    if (strncmp(name, "Volta", 5) == 0) return ARCH_volta;
    return ARCH_ampere;
}

double nccl_port_bytes_per_s(const Cluster *cluster)
{
    /* topo.h counts 20, 20.6 (Hopper), 40.1 (Blackwell) GB/s a link of nominally 25, 25, 50; PCIe
     * gen 4 x16 as 24 of 31.5. */
    static const double part[] = {.8, .8, 20.6 / 25, 40.1 / 50};
    bool nvlink = cluster->intra == FABRIC_nvswitch || cluster->intra == FABRIC_nvlink;
    return cluster->intra_bytes_per_s * (nvlink ? part[arch_of(cluster)] : .76);
}

double nccl_nic_bytes_per_s(const Cluster *cluster)
{
    return cluster->nic_bytes_per_s * .96; /* paths: 24 of HDR's 25, 48 of NDR's 50 GB/s */
}

/* Rings as search.cc finds them: the per-channel speed with the most bandwidth in total, then twice
 * the channels at half the speed where that helps. */
static Rings find_rings(const Case *c)
{
    static const double *const intra[] = {intra_old, intra_old, intra_hopper, intra_blackwell};
    static const double *const inter[] = {inter_old, inter_old, inter_hopper, inter_blackwell};
    double port = nccl_port_bytes_per_s(c->cluster) / 1e9, channels = 0, best = 0;
    bool alone = c->cluster->intra == FABRIC_pcie || c->cluster->intra == FABRIC_host;
    if (c->n_nodes <= 1) {
        for (const double *speed = intra[c->arch]; *speed > 0; speed++) {
            double n = floor(port / *speed + 1e-9);
            if (n > 16) n = 16;
            if (alone && n > 1) n = 1;
            if (best > 0 && *speed / best < .49) break;
            if (n * *speed > channels * best) {
                channels = n;
                best = *speed;
            }
        }
    } else {
        double nics = c->cluster->nics_per_node, devices = c->cluster->devices_per_node;
        double mine =
            nics >= devices ? floor(c->per_node * nics / devices) : fmin(c->per_node, nics);
        double rate = nccl_nic_bytes_per_s(c->cluster) / 1e9;
        for (const double *speed = inter[c->arch]; *speed > 0 && best <= 0; speed++) {
            if (*speed <= rate + 1e-9) best = *speed;
        }
        channels = fmin(fmax(mine, 1), 32);
        if (best <= 0) best = rate;
        double inside = (c->per_node - 1) / c->per_node; /* one hop in g leaves by the NIC */
        if (channels * best * inside > port) channels = fmax(floor(port / (best * inside)), 1);
    }
    if (channels <= 0) return (Rings){1, port, port};
    bool sm90 = c->arch == ARCH_hopper || c->arch == ARCH_blackwell;
    if (best >= 25 && !(sm90 && best < 50 && channels > 4)) {
        channels *= 2;
        best /= 2;
    }
    return (Rings){channels, best, best};
}

/* One head a GPU; each GPU's port carries (heads + 1) times a channel's speed. */
static Rings find_nvls(const Case *c)
{
    const double *list = c->arch == ARCH_blackwell ? intra_blackwell : intra_hopper;
    double port = nccl_port_bytes_per_s(c->cluster) / 1e9, n = fmin(c->per_node, 32);
    Rings r = {n, 0, 0};
    for (const double *speed = list; *speed > 0 && r.intra <= 0; speed++) {
        if (*speed <= port / (n + 1) + 1e-9) r.intra = *speed;
    }
    /* Inside a node the search raises the other speed to at most twice this one; measured bus
     * bandwidths (5 and 6 H200, 8 B200) show that its list's largest entry does not limit. */
    r.inter = 2 * r.intra;
    if (c->n_nodes > 1) r.inter = fmin(r.inter, nccl_nic_bytes_per_s(c->cluster) / 1e9);
    return r;
}

static double n_steps(const Case *c)
{
    return c->op == OP_all_reduce ? 2 * (c->n_ranks - 1) : c->n_ranks - 1;
}

static bool between_nodes(const Case *c)
{
    return c->n_nodes > 1;
}

static double hop_us(const Case *c, uint32_t tree_or_ring, uint32_t protocol)
{
    bool pci = c->cluster->intra == FABRIC_pcie || c->cluster->intra == FABRIC_host;
    return (pci ? pci_us : nvlink_us)[tree_or_ring][protocol];
}

static uint32_t cap_index(const Case *c)
{
    return c->n_nodes <= 1 ? 0 : c->n_nodes <= 2 ? 1 : 2;
}

static Estimate ring(const Case *c, uint32_t protocol)
{
    const Caps *caps = &caps_of[c->arch];
    uint32_t i = cap_index(c);
    double bus = c->ring.channels * (c->n_nodes <= 2 ? c->ring.intra : c->ring.inter);
    if (protocol == LL) bus = fmin(caps->ll[i], .5 * bus);
    if (protocol == LL128) bus = fmin(.92 * bus, c->ring.channels * caps->ring_ll128[i]);
    double steps = n_steps(c), nodes = c->n_nodes, crossing = 0, overhead = 0;
    if (between_nodes(c)) {
        crossing = c->op == OP_all_reduce ? 2 * (nodes - 1) : nodes - 1;
        overhead = protocol == SIMPLE ? 3 : 1; /* host of a NIC, Intel: 1 us */
    }
    double hop_network = network_us[c->per_node <= 1 ? TREE : RING][protocol];
    double latency = base_us[RING][protocol] +
                     (steps - crossing) * fmax(hop_us(c, RING, protocol), overhead) +
                     crossing * hop_network;
    bool plateau = protocol == SIMPLE && c->op == OP_all_reduce && between_nodes(c) &&
                   c->bytes / (2 * c->ring.channels * c->n_ranks) >= 64;
    if (plateau) latency *= c->arch == ARCH_volta ? 1.9 : 1.4;
    return (Estimate){latency, 1000 * bus * c->n_ranks / steps};
}

static Estimate tree(const Case *c, uint32_t protocol)
{
    if (c->op != OP_all_reduce) return (Estimate){0, 0};
    const Caps *caps = &caps_of[c->arch];
    uint32_t i = cap_index(c);
    double channels = c->ring.channels;
    double bus = channels * (c->n_nodes <= 2 ? c->ring.intra : c->ring.inter);
    double b = fmin(.92 * bus, channels * caps->tree[i]);
    if (protocol == LL) b = fmin(b / 3.8, caps->ll[i]);
    if (protocol == LL128) {
        b = fmin(b * (c->n_nodes <= 1 ? 7. / 9 : 120. / 128), channels * caps->tree_ll128[i]);
    }
    bool sm90 = c->arch == ARCH_hopper || c->arch == ARCH_blackwell;
    if (sm90 && between_nodes(c)) b *= .85; /* a plain tree inside the node */
    if (c->bytes < 512. * 1024 * 1024) {
        double at = floor(log2(fmax(c->bytes, 64) / 64));
        if (at >= 0 && at < 24) b *= tree_correction[protocol][(uint32_t)at];
    }
    double latency =
        base_us[TREE][protocol] + 2 * ((c->per_node - 1) * hop_us(c, TREE, protocol) +
                                       floor(log2(c->n_nodes)) * network_us[TREE][protocol]);
    return (Estimate){latency, 1000 * b / 2};
}

static Estimate nvls(const Case *c, bool across)
{
    const Caps *caps = &caps_of[c->arch];
    bool possible = caps->nvls_efficiency > 0 && c->cluster->intra == FABRIC_nvswitch &&
                    c->nvls.channels >= 2 && c->nvls.intra > 0 && between_nodes(c) == across;
    if (!possible || (across && c->op != OP_all_reduce)) return (Estimate){0, 0};
    double g = c->per_node, channels = c->nvls.channels;
    double intra = c->nvls.intra * caps->nvls_efficiency * (channels - 1) / channels;
    intra *= c->op == OP_all_reduce ? 2 : (g - 1) / g;
    double inter = c->nvls.inter * (c->n_nodes <= 2 && across ? 2 : 1);
    double bus = fmin(intra, inter), latency = nvls_us;
    if (across) {
        bus = fmin(bus, caps->nvls_tree[cap_index(c)]);
        latency += 2 * floor(log2(c->n_nodes)) * nvls_tree_network_us;
    }
    return (Estimate){latency, 1000 * channels * bus * c->n_ranks / n_steps(c)};
}

/* Parallel aggregated trees: one rank a node. */
static Estimate pat(const Case *c)
{
    bool possible =
        c->op != OP_all_reduce && c->per_node <= 1 && between_nodes(c) && c->arch != ARCH_volta;
    if (!possible) return (Estimate){0, 0};
    double latency =
        base_us[PAT][SIMPLE] + floor(log2(c->n_nodes)) * pat_network_us / 3.5 + 2.8 * c->n_ranks;
    double bus = .75 * c->ring.channels * (c->n_nodes <= 2 ? c->ring.intra : c->ring.inter);
    return (Estimate){latency, 1000 * bus};
}

static Estimate estimate(const Case *c, Algorithm algorithm, uint32_t protocol)
{
    switch (algorithm) {
    case RING: return ring(c, protocol);
    case TREE: return tree(c, protocol);
    case NVLS: return protocol == SIMPLE ? nvls(c, false) : (Estimate){0, 0};
    case NVLS_TREE: return protocol == SIMPLE ? nvls(c, true) : (Estimate){0, 0};
    case PAT: return protocol == SIMPLE ? pat(c) : (Estimate){0, 0};
    case N_ALGORITHMS: break;
    }
    return (Estimate){0, 0};
}

/* Bytes that leave each rank by its port and by its NIC in the whole collective. */
static void traffic(const Case *c, Algorithm algorithm, NcclChoice *choice)
{
    double n = c->n_ranks, g = c->per_node, nodes = c->n_nodes, s = c->bytes;
    double hop = (c->op == OP_all_reduce ? 2 : 1) * (n - 1) / n * s;
    switch (algorithm) {
    case RING:
        choice->port_bytes = between_nodes(c) ? hop * (g - 1) / g : hop;
        choice->nic_bytes = between_nodes(c) ? hop / g : 0;
        break;
    case TREE:
        choice->port_bytes = g > 1 ? 2 * s : 0;
        choice->nic_bytes = 2 * s * (nodes - 1) / nodes / g;
        break;
    case NVLS:
    case NVLS_TREE:
        choice->port_bytes = s * (1 + 1 / g);
        choice->nic_bytes = 2 * s * (nodes - 1) / nodes / g;
        break;
    case PAT: choice->nic_bytes = hop; break;
    case N_ALGORITHMS: break;
    }
}

/* Channels for a size (enqueue.cc): fewer until each thread has enough to do. */
static uint32_t channels_for(const Case *c, Algorithm algorithm, uint32_t protocol)
{
    static const double bytes_a_thread[N_PROTOCOLS] = {8, 8, 64};
    static const double threads[N_PROTOCOLS] = {512, 640, 512};
    if (algorithm == NVLS || algorithm == NVLS_TREE) return c->arch == ARCH_blackwell ? 24 : 16;
    double n = fmin(2 * c->ring.channels, 64), least = threads[protocol] * bytes_a_thread[protocol];
    if (algorithm == RING && protocol == LL) least *= c->n_ranks;
    n = fmin(n, fmax(1, floor(c->bytes / least)));
    return (uint32_t)n;
}

/* megatron-fsdp's table for user buffers: within a node through the switch (gather 4, scatter 5),
 * across nodes with several ranks each 16, with one rank a node 1 and 4. Older devices and nodes
 * without a switch copy as ever. */
uint32_t nccl_registered_channels(const Cluster *cluster, OpKind op, uint32_t n_nodes,
                                  uint32_t ranks_per_node)
{
    Arch arch = arch_of(cluster);
    bool gathers = op == OP_all_gather;
    if ((!gathers && op != OP_reduce_scatter) || cluster->intra != FABRIC_nvswitch ||
        (arch != ARCH_hopper && arch != ARCH_blackwell))
        return UINT32_MAX;
    if (n_nodes <= 1) return gathers ? 4 : 5;
    return ranks_per_node > 1 ? 16 : gathers ? 1 : 4;
}

static Ps ps_of_us(double us)
{
    return (Ps)llround(us * 1e6);
}

/* All to all: n sends and receives in one launch. 10.5 us below 4 KiB on 8 H20 (pipelined); rates
 * leaving a GPU: A100 226, H100 340 of NCCL's 240 and 370.8 GB/s; a NIC .9 of its path. */
static NcclChoice all_to_all(const Case *c)
{
    double n = c->n_ranks, g = c->per_node, s = c->bytes;
    NcclChoice choice = {.algorithm = "P2P", .protocol = "Simple", .channels = 16};
    choice.port_bytes = s * (g - 1) / n;
    choice.nic_bytes = s * (n - g) / n;
    double port = nccl_port_bytes_per_s(c->cluster) * (c->arch == ARCH_ampere ? .94 : .917);
    double nics = fmin(1, c->cluster->nics_per_node / (double)c->cluster->devices_per_node);
    double fluid = choice.port_bytes / port;
    if (between_nodes(c)) {
        fluid = fmax(fluid, choice.nic_bytes / (.9 * nccl_nic_bytes_per_s(c->cluster) * nics));
    }
    choice.latency_ps = ps_of_us(between_nodes(c) ? 24.5 : 10.5);
    choice.fluid_ps = ps_of_us(fluid * 1e6);
    return choice;
}

/* One pair: 6.5 us + S / 355 GB/s on H100, 10 us + S / 245 on A100 over NVLink; 17 us and .96 of
 * the path of one NIC between nodes (fits to vidur's measurements, 5 %). */
static NcclChoice send(const Case *c)
{
    NcclChoice choice = {.algorithm = "P2P", .protocol = "Simple", .channels = 8};
    bool ampere = c->arch == ARCH_ampere || c->arch == ARCH_volta;
    double port = nccl_port_bytes_per_s(c->cluster) * (ampere ? 1.02 : .957), fluid;
    if (between_nodes(c)) {
        choice.nic_bytes = c->bytes;
        fluid = c->bytes / (.96 * nccl_nic_bytes_per_s(c->cluster));
        choice.latency_ps = ps_of_us(17);
    } else {
        choice.port_bytes = c->bytes;
        fluid = c->bytes / port;
        choice.latency_ps = ps_of_us(ampere ? 10 : 6.5);
    }
    choice.fluid_ps = ps_of_us(fluid * 1e6);
    return choice;
}

static NcclChoice collective(const Case *c)
{
    const Cluster *cluster = c->cluster;
    double best_us = INFINITY;
    NcclChoice choice = {.algorithm = "none", .protocol = "none"};
    for (Algorithm a = 0; a < N_ALGORITHMS; a++) {
        for (uint32_t p = 0; p < N_PROTOCOLS; p++) {
            Estimate e = estimate(c, a, p);
            if (e.bytes_per_us <= 0) continue;
            double fluid = c->bytes / e.bytes_per_us, us = e.latency_us + fluid;
            if (us >= best_us) continue;
            best_us = us;
            choice = (NcclChoice){.algorithm = algorithm_name[a], .protocol = protocol_name[p]};
            choice.latency_ps = ps_of_us(e.latency_us);
            choice.fluid_ps = ps_of_us(fluid);
            choice.channels = channels_for(c, a, p);
            traffic(c, a, &choice);
        }
    }
    /* What the tuner leaves out: the launch, and the filling of the pipeline. */
    double ramp = cluster->collective_ramp_s * c->bytes /
                  (c->bytes + fmax(cluster->collective_ramp_bytes, 1));
    choice.latency_ps += ps_of_us((cluster->collective_launch_s + ramp) * 1e6);
    return choice;
}

NcclChoice nccl_choose(const Cluster *cluster, OpKind op, uint32_t n_nodes, uint32_t ranks_per_node,
                       uint64_t bytes)
{
    assert(n_nodes > 0);
    assert(ranks_per_node > 0);
    Case c = {.arch = arch_of(cluster), .cluster = cluster, .op = op};
    c.n_nodes = n_nodes;
    c.per_node = ranks_per_node;
    c.n_ranks = c.n_nodes * c.per_node;
    c.bytes = (double)bytes;
    if (n_nodes == 1 && ranks_per_node == 1) { /* a copy on the device */
        NcclChoice copy = {.algorithm = "copy", .protocol = "Simple"};
        copy.time_ps = ps_of_us(2e6 * c.bytes / fmax(cluster->device.hbm_bytes_per_s, 1));
        copy.latency_ps = copy.time_ps;
        return copy;
    }
    c.ring = find_rings(&c);
    c.nvls = find_nvls(&c);
    NcclChoice choice;
    if (op == OP_send || op == OP_recv)
        choice = send(&c);
    else if (op == OP_all_to_all)
        choice = all_to_all(&c);
    else
        choice = collective(&c);
    choice.time_ps = choice.latency_ps + choice.fluid_ps;
    double part = op == OP_send || op == OP_recv ? 1 : (c.n_ranks - 1) / c.n_ranks;
    if (op == OP_all_reduce) part *= 2;
    double seconds = (double)choice.time_ps / (double)PS_PER_S;
    choice.bus_bytes_per_s = seconds > 0 ? c.bytes * part / seconds : 0;
    return choice;
}
