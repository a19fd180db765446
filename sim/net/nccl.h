/* The parts of NCCL's model that only sim's own files use: the rings and trees that NCCL's search
 * finds on a machine (nccl_graph.c), the tuner's estimates (nccl_tuner.c), and the real times
 * (nccl_time.c). Numbers and formulas are from NCCL 2.28.9 unless a comment says otherwise. Units
 * in these files: microseconds, GB/s = bytes / 1000 us. */
#ifndef TANDEM_SIM_NET_NCCL_H
#define TANDEM_SIM_NET_NCCL_H

#include "sim/sim.h"

enum { LL, LL128, SIMPLE, N_PROTOCOLS };

/* NCCL's buffers, in bytes, with the source file and name of each. */
enum {
    NCCL_STEPS = 8,                                /* device.h; parts of a buffer in flight */
    NCCL_LL_BYTES = 8 * 512 * NCCL_STEPS * 16,     /* init.cc: DEFAULT_LL_BUFFSIZE */
    NCCL_LL128_BYTES = 120 * 640 * NCCL_STEPS * 8, /* init.cc: DEFAULT_LL128_BUFFSIZE */
    NCCL_SIMPLE_BYTES = 4 << 20,                   /* init.cc: DEFAULT_BUFFSIZE */
    /* init.cc: P2P_NET_CHUNKSIZE; chunk of a message */
    NCCL_NET_CHUNK_BYTES = 128 << 10,
    NCCL_PCIE_CHUNK_BYTES = 128 << 10,   /* init.cc: P2P_PCI_CHUNKSIZE */
    NCCL_NVLINK_CHUNK_BYTES = 512 << 10, /* init.cc: P2P_NVL_CHUNKSIZE */
    NCCL_SHARED_STEPS = 16, /* transport/net.cc; chunks of a channel that all messages share */
    NCCL_SWITCH_CHUNK_BYTES = 128 << 10, /* transport/nvls.cc: NVLS_CHUNKSIZE */
    NCCL_FIFO_BYTES = 1 << 20            /* init.cc: NCCL_WORK_FIFO_BYTES_DEFAULT */
};

/* Generations of devices, each with constants fitted to published measurements. */
typedef enum Generation {
#define X(name, ...) GENERATION_##name,
#include "sim/net/nccl_fit.def"
#undef X
    GENERATION_COUNT
} Generation;

/* Number of channels of one algorithm, and GB/s of each inside a node and between nodes. */
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
    /* one hop of a ring inside a node: the port, or its share of a PCIe box */
    double port_bytes_per_us;
    double exchange_bytes_per_us; /* rate from one device to all others of its node together */
    NcclSettings settings;        /* zero: NCCL chooses */
} NcclCase;

typedef struct NcclEstimate {
    double latency_us, bytes_per_us; /* the tuner's numbers at this size; 0: the algorithm is not
                                      * possible */
} NcclEstimate;

Generation nccl_generation(const Cluster *cluster);
NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes);
bool nccl_has_switch(const Cluster *cluster);
/* Channels of a communicator over all its connections, and of reductions in the switch. */
uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node);
uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes);
/* Number of channels for a group of sends and receives to `n_peers` ranks (itself included),
 * `bytes` each. */
uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes);
/* Number of NICs on one node that the ranks of the group on this node use. Several NICs of one
 * device count as one NIC with that many rails, because plugins show them to NCCL in this way. */
double nccl_nics_used(const NcclCase *c);
double nccl_nic_rails(const Cluster *cluster);
/* The number of hops between the ranks of a ring, and the number of hops that leave a node. */
double nccl_steps(const NcclCase *c);
double nccl_crossings(const NcclCase *c);

/* For a PCIe box, by NCCL's own rates of links: the rate of each hop in a ring of the first n
 * devices, and the rate at which each device sends if all send to all. */
enum { MOST_BOX_DEVICES = 64 };
double pcie_ring_bytes_per_s(const Cluster *cluster, uint32_t n_devices);
double pcie_exchange_bytes_per_s(const Cluster *cluster, uint32_t n_devices);

/* Estimate for buffers in windows; valid only if nccl_buffers_possible. `least_us`: time of the
 * switch's reduction for these bytes. */
NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us);

/* Time to fill the levels of a tree of nodes with one chunk of each channel; 0 if the fabric's
 * fitted ramp already contains it. `hop_bytes_per_us`: rate of one hop between nodes. */
double nccl_levels_us(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                      double channels, double hop_bytes_per_us);

/* The tuner's estimate. Its time in us is latency + bytes / rate. */
NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol);
/* The tuner's choice; false if no algorithm is possible. */
bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol);

#endif
