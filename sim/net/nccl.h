/* The model of NCCL, for files of sim only. nccl_graph.c finds rings and trees like NCCL's search.
 * nccl_tuner.c makes the estimates of NCCL's tuner. nccl_time.c computes the time of a collective.
 *
 * Numbers and formulas are those of NCCL 2.28.9 unless a comment names another source. Units in
 * these files: microseconds and GB/s (bytes / 1000 us). */
#ifndef TANDEM_SIM_NET_NCCL_H
#define TANDEM_SIM_NET_NCCL_H

#include "sim/sim.h"

enum { LL, LL128, SIMPLE, N_PROTOCOLS };

/* NCCL's buffers, in bytes, with the source file and name of each. */
enum {
    NCCL_STEPS = 8,                                /* device.h; the parts of a buffer */
    NCCL_LL_BYTES = 8 * 512 * NCCL_STEPS * 16,     /* init.cc: DEFAULT_LL_BUFFSIZE */
    NCCL_LL128_BYTES = 120 * 640 * NCCL_STEPS * 8, /* init.cc: DEFAULT_LL128_BUFFSIZE */
    /* init.cc: P2P_NET_CHUNKSIZE; the chunk of a message */
    NCCL_NET_CHUNK_BYTES = 128 << 10,
    NCCL_PCIE_CHUNK_BYTES = 128 << 10,   /* init.cc: P2P_PCI_CHUNKSIZE */
    NCCL_NVLINK_CHUNK_BYTES = 512 << 10, /* init.cc: P2P_NVL_CHUNKSIZE */
    /* transport/net.cc; the chunks of a channel for all messages together */
    NCCL_SHARED_STEPS = 16,
    NCCL_SWITCH_CHUNK_BYTES = 128 << 10, /* transport/nvls.cc: NVLS_CHUNKSIZE */
    NCCL_FIFO_BYTES = 1 << 20            /* init.cc: NCCL_WORK_FIFO_BYTES_DEFAULT */
};

/* Generations of devices. Each has constants that were fitted to published measurements. */
typedef enum Generation {
#define X(name, ...) GENERATION_##name,
#include "sim/net/nccl_fit.def"
#undef X
    GENERATION_COUNT
} Generation;

/* The channels of one algorithm, and the GB/s of a channel inside a node and between nodes. */
typedef struct Rings {
    double channels, intra, inter;
} Rings;

/* One collective of one group. */
typedef struct NcclCase {
    Generation generation;
    const Cluster *cluster;
    Collective kind;
    double n_nodes, per_node, n_ranks, bytes;
    Rings ring, tree, nvls;
    /* the rate of one hop of a ring inside a node: the rate of a device's port, or the rate that it
     * gets on the PCIe links */
    double port_bytes_per_us;
    double exchange_bytes_per_us; /* the rate from one device to all others of its node together */
    NcclSettings settings;        /* 0: NCCL chooses */
} NcclCase;

typedef struct NcclEstimate {
    double latency_us,
        /* the tuner's numbers for this size; both are 0 if the algorithm is impossible */
        bytes_per_us;
} NcclEstimate;

Generation nccl_generation(const Cluster *cluster);
NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes);
bool nccl_has_switch(const Cluster *cluster);

/* Returns the bytes of a connection's buffer for the protocol Simple: NCCL_BUFFSIZE if the
 * cluster's network needs a value of its own, else NCCL's default (init.cc: DEFAULT_BUFFSIZE). */
static inline double nccl_simple_bytes(const Cluster *cluster)
{
    return cluster->fabric.buffer_bytes > 0 ? cluster->fabric.buffer_bytes : 4 << 20;
}
/* nccl_channels returns the channels of a communicator. nccl_switch_channels returns the channels
 * of reductions in the switch. */
uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node);
uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes);
/* Returns the channels for a group of sends and receives with `n_peers` ranks, including the rank
 * itself. Each message has `bytes` bytes. */
uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes);
/* nccl_nics_used returns the number of NICs that the ranks of the group use on a node. Several NICs
 * of one device count as one NIC, because plugins present them to NCCL in this way. */
double nccl_nics_used(const NcclCase *c);
double nccl_nic_rails(const Cluster *cluster);
/* nccl_steps returns the number of hops in a ring of the ranks. nccl_crossings returns the number
 * of hops that leave a node. */
double nccl_steps(const NcclCase *c);
double nccl_crossings(const NcclCase *c);

/* For nodes with PCIe links, with the rates that NCCL assumes. pcie_ring_bytes_per_s returns the
 * rate of each hop in a ring of the first n devices. pcie_exchange_bytes_per_s returns the rate of
 * each device if all devices send to all. */
enum { MOST_BOX_DEVICES = 64 };
double pcie_ring_bytes_per_s(const Cluster *cluster, uint32_t n_devices);
double pcie_exchange_bytes_per_s(const Cluster *cluster, uint32_t n_devices);

/* Returns the estimate for buffers in windows. nccl_buffers_possible must be true. least_us is the
 * time of a reduction in the switch. */
NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us);

/* Returns the time to fill the levels of a tree of nodes with one chunk of each channel. Returns 0
 * if the fitted ramp of the fabric contains this time. hop_bytes_per_us is the rate of a hop
 * between nodes. */
double nccl_levels_us(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                      double channels, double hop_bytes_per_us);

/* Returns the tuner's estimate. The tuner's time is latency + bytes / rate [us]. */
NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol);
/* Sets the tuner's choice. Returns false if no algorithm is possible. */
bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol);

#endif
