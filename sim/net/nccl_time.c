/* Computes the time of a collective: the latency of NCCL's algorithm and protocol, the time of the
 * bytes on links, the launch, and the filling of the pipeline. With LL and LL128, and for a few
 * algorithms with Simple, the time of the bytes follows from the bandwidth of NCCL's tuner instead
 * of from the links. This file looks at one group at a time; net_maxmin.c divides links among
 * groups. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/net/nccl.h"

static const char *const protocol_name[N_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const algorithm_name[] = {
#define X(name) #name,
    NCCL_ALGORITHMS(X)
#undef X
};

/* Extra times in microseconds. blocking_us is added to a call for which the caller waits.
 * one_process_send_us is added for each send if one process calls for all devices. Both were
 * measured with nccl-tests and torch on 8 A100, H200 and B200: calls take 20 to 25 us, compared
 * with 6 to 10 us in graphs. */
static const double blocking_us = 14, one_process_send_us = 8.2;

/* Number of heads (nccl.h) of a reduction in the switch on a board of eight devices. The constants
 * `nvls` and `ramp_us` of nccl_fit.def were fitted to boards with this number. */
static const double board_heads = 8;

/* Messages with more bytes than this are spread over several channels. (In measurements on EFA, the
 * time that this takes appears between 8 and 64 KiB.) */
static const double spread_bytes = 24 << 10;

const NcclFit *nccl_fit(const Cluster *cluster)
{
    static const NcclFit fits[GENERATION_COUNT] = {
#define X(name, ...) {__VA_ARGS__},
#include "sim/net/nccl_fit.def"
#undef X
    };
    return &fits[nccl_generation(cluster)];
}

const char *collective_name(Collective kind)
{
    static const char *const names[] = {
#define X(name, factor) #name,
        COLLECTIVES(X)
#undef X
    };
    return names[kind];
}

bool collective_find(const char *name, Collective *kind)
{
    for (Collective k = 0; k < COLLECTIVE_COUNT; k++) {
        if (strcmp(collective_name(k), name) != 0) continue;
        *kind = k;
        return true;
    }
    return false;
}

double collective_bus_factor(Collective kind, double n)
{
    const double factors[] = {
#define X(name, factor) factor,
        COLLECTIVES(X)
#undef X
    };
    return factors[kind];
}

static Ps ps_of_us(double us)
{
    return ps_of(us * 1e6);
}

/* Returns how many times a buffer leaves through the NICs of the busiest node. Each of two trees
 * carries half of the buffer, up and down. With two nodes, each of them is the root of one tree.
 * With three, a leaf of one tree has two children in the other one. With more, it also has a parent
 * there. */
static double tree_leaves(double n_nodes)
{
    return n_nodes <= 1 ? 0 : n_nodes <= 2 ? 1 : n_nodes <= 3 ? 1.5 : 2;
}

/* Computes the bytes that leave the busiest rank through its port and through its NIC. */
static void traffic(const NcclCase *c, NcclAlgorithm algorithm, NcclChoice *choice)
{
    double n = c->n_ranks, g = c->per_node, s = c->bytes;
    bool across = c->n_nodes > 1, round = c->kind <= COLLECTIVE_reduce_scatter;
    double hop = round ? (c->kind == COLLECTIVE_all_reduce ? 2 : 1) * (n - 1) / n * s : s;
    switch (algorithm) {
    case NCCL_Ring:
        choice->port_bytes = across ? hop * (g - 1) / g : hop;
        choice->nic_bytes = across ? hop / g : 0;
        break;
    case NCCL_Tree:
        choice->port_bytes = g > 1 ? 2 * s : 0;
        choice->nic_bytes = tree_leaves(c->n_nodes) * s / g;
        break;
    case NCCL_NVLS:
    case NCCL_CollNetDirect:
    case NCCL_CollNetChain:
        choice->port_bytes = s * (1 + 1 / g);
        choice->nic_bytes = across ? s / g : 0;
        break;
    case NCCL_NVLSTree:
        choice->port_bytes = s * (1 + 1 / g);
        choice->nic_bytes = tree_leaves(c->n_nodes) * s / g;
        break;
    case NCCL_PAT: choice->nic_bytes = hop; break;
    case NCCL_ALGORITHM_COUNT: break;
    }
}

/* Returns the bytes per microsecond of all NICs that the group uses on a node. */
static double nics_bytes_per_us(const NcclCase *c)
{
    return nccl_nics_used(c) * nccl_nic_rails(c->cluster) * nccl_nic_bytes_per_s(c->cluster) * 1e-6;
}

/* Returns the time [us] of a reduction in the switch. The port of a device carries (heads + 1)
 * times the bytes of one head. Gathers and scatters move half as many bytes. */
static double nvls_us(const NcclCase *c, const NcclFit *fit)
{
    double heads = c->nvls.channels, g = c->per_node;
    double port = nccl_port_bytes_per_s(c->cluster) * 1e-6;
    double part = heads > board_heads && fit->nvls_wide > 0 ? fit->nvls_wide : fit->nvls;
    double bus = heads * port / (heads + 1) * part * (heads - 1) / heads;
    bus *= c->kind == COLLECTIVE_all_reduce ? 2 : (g - 1) / g;
    double inside = c->kind == COLLECTIVE_all_reduce ? 2 * (g - 1) / g : (g - 1) / g;
    return c->bytes * inside / bus;
}

/* Returns the fraction of the bandwidth that is left if the plan limits the number of thread
 * blocks. Each block is assumed to carry the same number of bytes. */
static double part_left(const NcclCase *c, double channels)
{
    double most = c->settings.max_ctas;
    return most > 0 && most < channels ? most / channels : 1;
}

/* Returns the time [us] of the bytes with the protocol Simple, on the busiest link. PAT, and Tree
 * inside a node, use the tuner's bandwidth instead. */
static double simple_us(const NcclCase *c, NcclAlgorithm algorithm, const NcclFit *fit,
                        const NcclChoice *choice)
{
    bool reduces = c->kind == COLLECTIVE_all_reduce;
    double part = reduces ? fit->ring : fit->gather;
    double port = c->port_bytes_per_us * part;
    double more = reduces ? 1 + fit->steps / nccl_steps(c) : 1;
    double away = c->n_nodes > 1 ? choice->nic_bytes * c->per_node / nics_bytes_per_us(c) : 0;
    switch (algorithm) {
    case NCCL_Ring: {
        bool by_links = c->n_nodes > 1 || c->cluster->intra == FABRIC_pcie;
        double bus = by_links ? port : c->ring.channels * c->ring.intra * 1e3 * part;
        return fmax(choice->port_bytes * more / bus, away);
    }
    case NCCL_Tree:
        if (c->n_nodes > 1) return fmax(choice->port_bytes / port, away);
        break;
    case NCCL_CollNetDirect:
    case NCCL_CollNetChain:
    case NCCL_NVLS:
    case NCCL_NVLSTree: return fmax(nvls_us(c, fit), away);
    case NCCL_PAT:
    case NCCL_ALGORITHM_COUNT: break;
    }
    return c->bytes / (nccl_tuner(c, algorithm, SIMPLE).bytes_per_us * part);
}

/* Returns the number of channels for a size, as in enqueue.cc. Small sizes use fewer channels. */
static uint32_t channels_for(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol)
{
    static const double bytes_a_thread[N_PROTOCOLS] = {8, 8, 64};
    static const double threads[N_PROTOCOLS] = {512, 640, 512};
    if (algorithm == NCCL_NVLS || algorithm == NCCL_NVLSTree)
        return nccl_settings_ctas(&c->settings,
                                  nccl_switch_channels(c->cluster, (uint32_t)c->n_nodes));
    double least = threads[protocol] * bytes_a_thread[protocol];
    double n = nccl_settings_ctas(&c->settings, (uint32_t)nccl_all_channels(c));
    if (algorithm == NCCL_Ring && protocol == LL) least *= c->n_ranks;
    n = fmin(n, fmax(1, floor(c->bytes / least)));
    return (uint32_t)n;
}

/* Returns the number of messages between nodes that wait for one another. The latency of the
 * network delays each of them. */
static double messages(const NcclCase *c, NcclAlgorithm algorithm)
{
    if (c->n_nodes <= 1) return 0;
    double depth = floor(log2(c->n_nodes));
    switch (algorithm) {
    case NCCL_Ring: return nccl_crossings(c);
    case NCCL_Tree:
    case NCCL_NVLSTree: return 2 * depth;
    case NCCL_PAT: return depth;
    case NCCL_CollNetDirect:
    case NCCL_CollNetChain:
    case NCCL_NVLS: return 1;
    case NCCL_ALGORITHM_COUNT: break;
    }
    return 0;
}

static double filled(double us, double at_bytes, double bytes)
{
    return us <= 0 ? 0 : us * bytes / (bytes + fmax(at_bytes, 1));
}

/* Returns the time [us] of the fabric's ramp: extra time between nodes, until all chunks of the
 * pipeline are on their way. It was fitted to all-reduces, whose data go between nodes twice. Data
 * of other collectives go once. A tree with Simple passes on only whole chunks
 * (all_reduce.h: ProtoSimple<1, 1>). Until every channel has a chunk, its hops do not overlap, so
 * the ramp grows in proportion to the bytes; after that it stays the same. */
static double fabric_ramp_us(const NcclCase *c, bool whole_chunks)
{
    const NetworkFabric *fabric = &c->cluster->fabric;
    if (c->n_nodes <= 1) return 0;
    double part = c->kind == COLLECTIVE_all_reduce ? 1 : .5, us = fabric->ramp_s * 1e6;
    double chunk = nccl_simple_bytes(c->cluster) / NCCL_STEPS;
    double at = fabric->ramp_bytes > 0 ? fabric->ramp_bytes : nccl_all_channels(c) * chunk;
    double ramp = whole_chunks && us > 0 ? us * fmin(c->bytes / at, 1) : filled(us, at, c->bytes);
    return part * (ramp + filled(fabric->spread_s * 1e6, spread_bytes, c->bytes));
}

/* Returns the time [us] to fill the pipeline. It was fitted to 8 ranks. With fewer ranks, a ring
 * fills in proportion to its hops. A reduction in the switch has one chunk for each channel and
 * head at a time, so its time grows in proportion to the heads. */
static double ramp_us(const NcclCase *c, NcclAlgorithm algorithm, const NcclFit *fit)
{
    double hops = algorithm == NCCL_Ring ? fmin((c->n_ranks - 1) / 7, 1) : 1;
    if (algorithm == NCCL_NVLS || algorithm == NCCL_NVLSTree) {
        double wider = fmax(c->nvls.channels / board_heads, 1);
        return filled(wider * fit->ramp_us, wider * fit->ramp_mib * 0x1p20, c->bytes);
    }
    if (c->kind == COLLECTIVE_all_reduce)
        return hops * filled(fit->ramp_us, fit->ramp_mib * 0x1p20, c->bytes);
    return hops * filled(fit->once_us, fit->once_mib * 0x1p20, c->bytes);
}

/* Returns latency and rate of one algorithm with one protocol; both are 0 if NCCL does not have
 * this pair. */
static NcclEstimate takes(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                          const NcclFit *fit, const NcclChoice *links)
{
    NcclEstimate e = nccl_tuner(c, algorithm, protocol);
    if (e.bytes_per_us <= 0) return e;
    bool by_switch = algorithm == NCCL_NVLS || algorithm == NCCL_NVLSTree;
    double channels =
        by_switch ? nccl_switch_channels(c->cluster, (uint32_t)c->n_nodes) : nccl_all_channels(c);
    double left = part_left(c, channels);
    bool reduces = c->kind == COLLECTIVE_all_reduce;
    e.latency_us += messages(c, algorithm) * c->cluster->fabric.message_s * 1e6 +
                    fabric_ramp_us(c, algorithm == NCCL_Tree && protocol == SIMPLE);
    if (protocol == LL) {
        e.bytes_per_us *= reduces ? fit->ll : fit->ll_once;
    } else if (protocol == LL128) {
        e.bytes_per_us *= reduces ? fit->ll128 : fit->ll128_once;
    } else {
        e.latency_us += ramp_us(c, algorithm, fit);
        e.bytes_per_us = c->bytes / simple_us(c, algorithm, fit, links);
    }
    /* the rate at which data leave a node: that of its NICs or, if lower, that of the tree */
    double hop = fmin(nics_bytes_per_us(c), tree_leaves(c->n_nodes) * e.bytes_per_us);
    e.latency_us += nccl_levels_us(c, algorithm, protocol, channels, hop);
    e.bytes_per_us *= left;
    return e;
}

/* Returns the time with the tuner's algorithm and the fastest protocol. The size at which NCCL
 * changes the protocol differs between versions, but each version tries to use the fastest one. */
static NcclChoice collective(const NcclCase *c, const NcclFit *fit)
{
    NcclAlgorithm algorithm = NCCL_Ring;
    uint32_t protocol = SIMPLE;
    NcclChoice choice = {.algorithm = "none", .protocol = "none"};
    if (!nccl_tuner_best(c, &algorithm, &protocol)) return choice;
    choice.algorithm = algorithm_name[algorithm];
    traffic(c, algorithm, &choice);
    double best_us = INFINITY;
    for (uint32_t p = 0; p < N_PROTOCOLS; p++) {
        NcclEstimate e = takes(c, algorithm, p, fit, &choice);
        if (e.bytes_per_us <= 0) continue;
        double fluid = c->bytes / e.bytes_per_us, us = e.latency_us + fluid;
        if (us >= best_us) continue;
        best_us = us;
        choice.protocol = protocol_name[p];
        choice.latency_ps = ps_of_us(e.latency_us);
        choice.fluid_ps = ps_of_us(fluid);
        choice.channels = channels_for(c, algorithm, p);
    }
    return choice;
}

/* Returns the time of an all-to-all: n sends and receives in one launch. (Below 4 KiB it takes 10.5
 * us on 8 H20.) For a gather or a scatter, only the messages to or from its root count. A NIC
 * carries only the traffic of its own ranks. */
static NcclChoice exchange(const NcclCase *c, const NcclFit *fit)
{
    double n = c->n_ranks, g = c->per_node, s = c->bytes;
    NcclChoice choice = {.algorithm = "P2P", .protocol = "Simple"};
    double channels = nccl_message_channels(c, c->n_ranks, s / n);
    choice.channels = nccl_settings_ctas(&c->settings, (uint32_t)channels);
    choice.port_bytes = s * (g - 1) / n;
    choice.nic_bytes = s * (n - g) / n;
    double port = c->exchange_bytes_per_us * fit->exchange;
    double fluid = choice.port_bytes / port, latency = 10.5;
    if (c->n_nodes > 1) {
        double nics = nics_bytes_per_us(c) / g;
        fluid = fmax(fluid, choice.nic_bytes / (.94 * nics)); /* with the .96 in `nics`, 0.9
                                                                 of the nominal rate */
        latency = 24.5 + c->cluster->fabric.message_s * 1e6;
    }
    latency += fabric_ramp_us(c, false) + filled(fit->exchange_us, fit->exchange_mib * 0x1p20, s);
    choice.latency_ps = ps_of_us(latency);
    choice.fluid_ps = ps_of_us(fluid / part_left(c, channels));
    return choice;
}

/* Returns the time of one message to one peer. (Between nodes it takes 17 us, measured by vidur for
 * H100 with NDR.) */
static NcclChoice message(const NcclCase *c, const NcclFit *fit)
{
    NcclChoice choice = {.algorithm = "P2P", .protocol = "Simple"};
    double channels = nccl_message_channels(c, 2, c->bytes);
    choice.channels = nccl_settings_ctas(&c->settings, (uint32_t)channels);
    double fluid, latency = fit->p2p_us;
    if (c->n_nodes > 1) {
        choice.nic_bytes = c->bytes;
        fluid = c->bytes / (nccl_nic_bytes_per_s(c->cluster) * 1e-6 * nccl_nic_rails(c->cluster));
        latency = 17 + c->cluster->fabric.message_s * 1e6;
    } else {
        choice.port_bytes = c->bytes;
        bool box = c->cluster->intra == FABRIC_pcie; /* the fitted constants are for NVLink ports */
        fluid = c->bytes / (c->port_bytes_per_us * (box ? 1 : fit->p2p));
    }
    choice.latency_ps = ps_of_us(latency);
    choice.fluid_ps = ps_of_us(fluid / part_left(c, channels));
    return choice;
}

static NcclChoice answer_plain(const NcclCase *c, const NcclFit *fit, NcclIssue issue)
{
    NcclChoice choice;
    bool sends = false;
    switch (c->kind) {
    case COLLECTIVE_all_reduce:
    case COLLECTIVE_all_gather:
    case COLLECTIVE_reduce_scatter:
    case COLLECTIVE_broadcast:
    case COLLECTIVE_reduce: choice = collective(c, fit); break;
    case COLLECTIVE_all_to_all:
    case COLLECTIVE_gather:
    case COLLECTIVE_scatter:
        choice = exchange(c, fit);
        sends = true;
        break;
    case COLLECTIVE_sendrecv:
        choice = message(c, fit);
        sends = true;
        break;
    case COLLECTIVE_COUNT: assert(false && "no collective"); return (NcclChoice){0};
    }
    double launch = sends ? 0 : c->cluster->collective_launch_s * 1e6;
    if (issue != NCCL_pipelined) launch += blocking_us;
    if (issue == NCCL_one_process && sends) launch += one_process_send_us * c->per_node;
    choice.latency_ps += ps_of_us(launch);
    return choice;
}

static void add_up(const NcclCase *c, NcclChoice *choice)
{
    choice->time_ps = choice->latency_ps + choice->fluid_ps;
    double seconds = (double)choice->time_ps / (double)PS_PER_S;
    double part = collective_bus_factor(c->kind, c->n_ranks);
    choice->bus_bytes_per_s = seconds > 0 ? c->bytes * part / seconds : 0;
}

NcclChoice nccl_answer(const Cluster *cluster, const NcclQuestion *q)
{
    NcclCase c = nccl_case(cluster, q->kind, q->n_nodes, q->ranks_per_node, q->bytes);
    if (q->settings != NULL) c.settings = *q->settings;
    NcclChoice choice;
    if (c.n_ranks < 2) { /* a group of one: a copy on one device */
        choice = (NcclChoice){.algorithm = "copy", .protocol = "Simple"};
        choice.latency_ps = ps_of_us(2e6 * c.bytes / fmax(cluster->device.hbm_bytes_per_s, 1));
    } else if (q->buffers != NCCL_plain && nccl_buffers_possible(cluster, q)) {
        double least_us = nvls_us(&c, q->fit != NULL ? q->fit : nccl_fit(cluster));
        choice = nccl_answer_mapped(&c, q->buffers, least_us);
        if (q->issue != NCCL_pipelined) choice.latency_ps += ps_of_us(blocking_us);
    } else {
        choice = answer_plain(&c, q->fit != NULL ? q->fit : nccl_fit(cluster), q->issue);
    }
    add_up(&c, &choice);
    return choice;
}

EdgeKind nccl_pattern(OpKind op, const char *algorithm)
{
    if (op_exchanges(op)) return EDGE_exchange;
    bool tree = strcmp(algorithm, "Tree") == 0 || strcmp(algorithm, "NVLSTree") == 0;
    return tree ? EDGE_tree : EDGE_ring;
}

NcclChoice nccl_answer_alone(const Cluster *cluster, const NcclQuestion *q)
{
    NcclChoice choice = nccl_answer(cluster, q);
    NcclCase c = nccl_case(cluster, q->kind, q->n_nodes, q->ranks_per_node, q->bytes);
    double node = nccl_nic_bytes_per_s(cluster) * fmax(cluster->nics_per_node, 1) /
                  fmax(cluster->oversubscription, 1);
    double bytes = choice.nic_bytes * c.per_node, s = bytes / node;
    double nodes = cluster->nodes_per_group, here = nodes * c.per_node;
    if (nodes > 0 && c.n_nodes > nodes) { /* rings and trees leave each pod once */
        if (q->kind == COLLECTIVE_all_to_all)
            bytes = c.bytes * here * (c.n_ranks - here) / c.n_ranks;
        s = fmax(s, bytes / (node * nodes) * fmax(cluster->group_oversubscription, 1));
    }
    Routes routes = routes_of(cluster);
    OpKind op = q->kind == COLLECTIVE_all_to_all ? OP_all_to_all : OP_all_reduce;
    EdgeKind kind =
        q->kind == COLLECTIVE_sendrecv ? EDGE_message : nccl_pattern(op, choice.algorithm);
    bytes = choice.nic_bytes * c.per_node; /* for each edge, the bytes of all members on a node */
    if (kind == EDGE_exchange) bytes = c.bytes / c.n_ranks * c.per_node * c.per_node;
    if (kind == EDGE_tree) bytes = c.bytes / 2;
    if (q->n_nodes <= routes.n_places)
        s = fmax(s, routes_busiest_s(&routes, kind, q->n_nodes, bytes));
    Ps least = ps_of(s * (double)PS_PER_S);
    if (c.n_nodes <= 1 || least <= choice.fluid_ps) return choice;
    choice.fluid_ps = least;
    add_up(&c, &choice);
    return choice;
}

/* Returns NCCL's collective for an op of a plan. A halo exchange counts as sends and receives. */
static Collective kind_of(OpKind op)
{
    Collective kind = COLLECTIVE_sendrecv;
    collective_find(op_info(op)->name, &kind);
    return kind;
}

NcclChoice nccl_choose(const Cluster *cluster, OpKind op, uint32_t n_nodes, uint32_t ranks_per_node,
                       uint64_t bytes)
{
    static const NcclSettings none;
    return nccl_choose_as(cluster, &none, op, n_nodes, ranks_per_node, bytes);
}

/* A window is memory that all ranks have registered with NCCL, which has faster kernels for it. If
 * the plan says register = auto, the executor also makes a window of each rank's buffers. But the
 * kernels for windows are assumed only if the plan asks for them, because their times are NCCL's
 * claims and were not measured. */
NcclChoice nccl_choose_as(const Cluster *cluster, const NcclSettings *settings, OpKind op,
                          uint32_t n_nodes, uint32_t ranks_per_node, uint64_t bytes)
{
    NcclQuestion q = {.kind = kind_of(op), .n_nodes = n_nodes, .bytes = bytes};
    q.ranks_per_node = ranks_per_node;
    q.settings = settings;
    q.buffers = NCCL_copy_engine;
    if (settings->cta_policy == NCCL_CTAS_zero && nccl_buffers_possible(cluster, &q))
        return nccl_answer(cluster, &q);
    bool windows =
        settings->registration == NCCL_REGISTER_window || settings->cta_policy == NCCL_CTAS_zero;
    q.buffers = windows ? NCCL_symmetric : NCCL_plain;
    return nccl_answer(cluster, &q);
}
