/* The parts of the model of NCCL that only files of sim use: the rings and trees that NCCL's search
 * finds on a machine (nccl_graph.c), the tuner's estimates (nccl_tuner.c), and the times that
 * collectives really take (nccl_time.c). Numbers and formulas are from NCCL 2.28.9 unless a comment
 * says otherwise. Units in these files: microseconds, GB/s = bytes / 1000 us. */
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
    /* rate of one hop of a ring inside a node: of a device's port, or of its share of the PCIe
     * links */
    double port_bytes_per_us;
    double exchange_bytes_per_us; /* rate from one device to all others of its node together */
    NcclSettings settings;        /* zero: NCCL chooses */
} NcclCase;

typedef struct NcclEstimate {
    double latency_us,
        bytes_per_us; /* the tuner's numbers at this size; both 0: the algorithm is not possible */
} NcclEstimate;

Generation nccl_generation(const Cluster *cluster);
NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes);
bool nccl_has_switch(const Cluster *cluster);
/* nccl_channels returns the number of channels of a communicator over all its connections;
 * nccl_switch_channels returns the number for reductions in the switch. */
uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node);
uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes);
/* Returns the number of channels for a group of sends and receives with `n_peers` ranks (the rank
 * itself included), of `bytes` bytes each. */
uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes);
/* nccl_nics_used returns the number of NICs of one node that the group's ranks on this node use.
 * Several NICs of one device count as one NIC with that many rails, because plugins show them to
 * NCCL in this way. */
double nccl_nics_used(const NcclCase *c);
double nccl_nic_rails(const Cluster *cluster);
/* nccl_steps returns the number of hops between the ranks of a ring. nccl_crossings returns the
 * number of these hops that leave a node. */
double nccl_steps(const NcclCase *c);
double nccl_crossings(const NcclCase *c);

/* For a node with PCIe links, at NCCL's own rates of links. pcie_ring_bytes_per_s returns the rate
 * of each hop in a ring of the first n devices. pcie_exchange_bytes_per_s returns the rate at which
 * each device sends if all devices send to all. */
enum { MOST_BOX_DEVICES = 64 };
double pcie_ring_bytes_per_s(const Cluster *cluster, uint32_t n_devices);
double pcie_exchange_bytes_per_s(const Cluster *cluster, uint32_t n_devices);

/* Returns the estimate for buffers in windows; valid only if nccl_buffers_possible. least_us: the
 * time of the switch's reduction for these bytes. */
NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us);

/* Returns the time to fill the levels of a tree of nodes with one chunk of each channel; 0 if the
 * fabric's fitted ramp already contains this time. hop_bytes_per_us: rate of one hop between
 * nodes. */
double nccl_levels_us(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                      double channels, double hop_bytes_per_us);

/* Returns the tuner's estimate; the tuner's time [us] is latency + bytes / rate. */
NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol);
/* Writes the tuner's choice. Returns false if no algorithm is possible. */
bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol);

#endif
