/* The model of NCCL, which only files of sim/ use. nccl_graph.c finds rings and trees as NCCL's
 * search does. nccl_tuner.c makes the estimates of NCCL's tuner. nccl_time.c computes the time of a
 * collective.
 *
 * Numbers and formulas are those of NCCL 2.28.9 unless a comment names another source. These files
 * use microseconds and GB/s (1 GB/s = 1000 bytes per microsecond). */
#ifndef TANDEM_SIM_NET_NCCL_H
#define TANDEM_SIM_NET_NCCL_H

#include "sim/sim.h"

enum { LL, LL128, SIMPLE, N_PROTOCOLS };

/* Sizes of NCCL's buffers in bytes, with the file and the name in NCCL's source. */
enum {
    NCCL_STEPS = 8,                                /* device.h: number of parts of a buffer */
    NCCL_LL_BYTES = 8 * 512 * NCCL_STEPS * 16,     /* init.cc: DEFAULT_LL_BUFFSIZE */
    NCCL_LL128_BYTES = 120 * 640 * NCCL_STEPS * 8, /* init.cc: DEFAULT_LL128_BUFFSIZE */
    /* init.cc: P2P_NET_CHUNKSIZE, chunk of a message through a NIC */
    NCCL_NET_CHUNK_BYTES = 128 << 10,
    NCCL_PCIE_CHUNK_BYTES = 128 << 10,   /* init.cc: P2P_PCI_CHUNKSIZE */
    NCCL_NVLINK_CHUNK_BYTES = 512 << 10, /* init.cc: P2P_NVL_CHUNKSIZE */
    /* transport/net.cc: chunks of a channel that all messages use together */
    NCCL_SHARED_STEPS = 16,
    NCCL_SWITCH_CHUNK_BYTES = 128 << 10, /* transport/nvls.cc: NVLS_CHUNKSIZE */
    NCCL_FIFO_BYTES = 1 << 20            /* init.cc: NCCL_WORK_FIFO_BYTES_DEFAULT */
};

/* Generations of devices. The constants of each are fitted to published measurements. */
typedef enum Generation {
#define X(name, ...) GENERATION_##name,
#include "sim/net/nccl_fit.def"
#undef X
    GENERATION_COUNT
} Generation;

/* The channels of one algorithm: how many there are, and the speed of one channel in GB/s inside a
 * node and between nodes. */
typedef struct Rings {
    double channels, intra, inter;
} Rings;

/* One collective of one group of ranks. */
typedef struct NcclCase {
    Generation generation;
    const Cluster *cluster;
    Collective kind;
    double n_nodes, per_node, n_ranks, bytes;
    Rings ring, tree, nvls;
    /* rate of one hop of a ring inside a node: that of a device's port, or the share that it gets
     * of the PCIe links */
    double port_bytes_per_us;
    double exchange_bytes_per_us; /* rate at which one device sends to all others of its node
                                     together */
    NcclSettings settings;        /* for each setting that is 0, NCCL chooses */
} NcclCase;

/* The tuner's numbers for one size. If the algorithm is impossible, both are 0. */
typedef struct NcclEstimate {
    double latency_us, bytes_per_us;
} NcclEstimate;

Generation nccl_generation(const Cluster *cluster);
NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes);
bool nccl_has_switch(const Cluster *cluster);
bool nccl_has_nvlink(const Cluster *cluster); /* also true with switches */

/* Returns the bytes of a connection's buffer for the protocol Simple: NCCL_BUFFSIZE if the network
 * of the cluster needs its own value, and otherwise NCCL's default (init.cc: DEFAULT_BUFFSIZE). */
static inline double nccl_simple_bytes(const Cluster *cluster)
{
    return cluster->fabric.buffer_bytes > 0 ? cluster->fabric.buffer_bytes : 4 << 20;
}
/* nccl_channels returns the number of channels of a communicator, nccl_switch_channels the number
 * of channels of reductions in the NVLink switch. (In such a reduction, a head is a rank that gets
 * the sum of one part of the data from the switch, and returns it to all ranks.) */
uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node);
uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes);
/* Returns the number of channels of the communicator of a case: two for each ring, at most 64. */
double nccl_all_channels(const NcclCase *c);
/* Returns the number of channels for a group of sends and receives with `n_peers` ranks, including
 * the rank itself. Each message has `bytes` bytes. */
uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes);
/* nccl_nics_used returns how many NICs of a node the ranks of the group use. Several NICs of one
 * device count as a single one, because plugins present them to NCCL in this way. */
double nccl_nics_used(const NcclCase *c);
double nccl_nic_rails(const Cluster *cluster);
/* nccl_steps returns the number of hops in a ring of the ranks, nccl_crossings the number of hops
 * that leave a node. */
double nccl_steps(const NcclCase *c);
double nccl_crossings(const NcclCase *c);

/* Two functions for nodes with PCIe links, with the rates that NCCL assumes. pcie_ring_bytes_per_s
 * returns the rate of each hop in a ring of the first n devices. pcie_exchange_bytes_per_s returns
 * the rate of each device if all devices send to all others. */
enum { MOST_BOX_DEVICES = 64 };
double pcie_ring_bytes_per_s(const Cluster *cluster, uint32_t n_devices);
double pcie_exchange_bytes_per_s(const Cluster *cluster, uint32_t n_devices);

/* Returns the time of a collective on buffers in windows (NcclBuffers), for which
 * nccl_buffers_possible must be true. least_us is the time in microseconds of a reduction in the
 * switch. */
NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us);

/* Returns the time to fill the levels of a tree of nodes with one chunk of each channel. The ramp
 * of a fabric is the extra time until the pipeline of chunks is full (cluster_config.h). Returns 0
 * if the fitted ramp already contains the time of the levels. hop_bytes_per_us is the rate of a hop
 * between nodes. */
double nccl_levels_us(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                      double channels, double hop_bytes_per_us);

/* Returns the tuner's estimate. The tuner assumes that a collective takes latency + bytes / rate
 * microseconds. */
NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol);
/* Sets *algorithm and *protocol to the tuner's choice. Returns false if no algorithm is
 * possible. */
bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol);

#endif
