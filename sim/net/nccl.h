/* The parts of NCCL's model that only sim's own files see: what NCCL's search finds on a machine
 * (nccl_graph.c), what its tuner thinks of it (nccl_tuner.c), and what it really takes
 * (nccl_time.c). Numbers and formulas are those of NCCL 2.28.9 unless a comment says otherwise;
 * units there: microseconds, GB/s = bytes / 1000 us. */
#ifndef TANDEM_SIM_NET_NCCL_H
#define TANDEM_SIM_NET_NCCL_H

#include "sim/sim.h"

enum { LL, LL128, SIMPLE, N_PROTOCOLS };

/* NCCL's buffers, in bytes, beside the file of its sources and the name there. */
enum {
    NCCL_STEPS = 8,                                /* device.h; what is under way in a buffer */
    NCCL_LL_BYTES = 8 * 512 * NCCL_STEPS * 16,     /* init.cc: DEFAULT_LL_BUFFSIZE */
    NCCL_LL128_BYTES = 120 * 640 * NCCL_STEPS * 8, /* init.cc: DEFAULT_LL128_BUFFSIZE */
    NCCL_SIMPLE_BYTES = 4 << 20,                   /* init.cc: DEFAULT_BUFFSIZE */
    NCCL_NET_CHUNK_BYTES = 128 << 10,              /* init.cc: P2P_NET_CHUNKSIZE; of messages */
    NCCL_PCIE_CHUNK_BYTES = 128 << 10,             /* init.cc: P2P_PCI_CHUNKSIZE */
    NCCL_NVLINK_CHUNK_BYTES = 512 << 10,           /* init.cc: P2P_NVL_CHUNKSIZE */
    NCCL_SHARED_STEPS = 16, /* transport/net.cc; chunks of a channel that all messages share */
    NCCL_SWITCH_CHUNK_BYTES = 128 << 10, /* transport/nvls.cc: NVLS_CHUNKSIZE */
    NCCL_FIFO_BYTES = 1 << 20            /* init.cc: NCCL_WORK_FIFO_BYTES_DEFAULT */
};

/* Generations of devices, each with what was fitted to published measurements of it. */
typedef enum Generation {
#define X(name, ...) GENERATION_##name,
#include "sim/net/nccl_fit.def"
#undef X
    GENERATION_COUNT
} Generation;

/* Channels of one algorithm and GB/s of each, inside a node and between nodes. */
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
    double port_bytes_per_us;     /* of a ring's hop in a node: the port, or its share of a box */
    double exchange_bytes_per_us; /* what one device sends to all others of its node together */
    NcclSettings settings;        /* zero: NCCL's own choice */
} NcclCase;

typedef struct NcclEstimate {
    double latency_us, bytes_per_us; /* of the tuner's size; 0: not possible */
} NcclEstimate;

Generation nccl_generation(const Cluster *cluster);
NcclCase nccl_case(const Cluster *cluster, Collective kind, uint32_t n_nodes,
                   uint32_t ranks_per_node, uint64_t bytes);
bool nccl_has_switch(const Cluster *cluster);
/* Of a communicator: all that it connects, whatever a collective uses; of reductions in the switch.
 */
uint32_t nccl_channels(const Cluster *cluster, uint32_t n_nodes, uint32_t ranks_per_node);
uint32_t nccl_switch_channels(const Cluster *cluster, uint32_t n_nodes);
/* Of a group of sends and receives of so many bytes each, to `n_peers` ranks (itself counts): how
 * many channels they lie on. */
uint32_t nccl_message_channels(const NcclCase *c, double n_peers, double bytes);
/* NICs of one node that the group's ranks there use; several of one device count as one with as
 * many rails, as plugins show them to NCCL. */
double nccl_nics_used(const NcclCase *c);
double nccl_nic_rails(const Cluster *cluster);
/* Hops between ranks of a ring, and how many of them leave a node. */
double nccl_steps(const NcclCase *c);
double nccl_crossings(const NcclCase *c);

/* In a box of PCIe, NCCL's own numbers of its links: the rate of each hop of a ring of the first n
 * devices; what each of them sends when all send to all. */
enum { MOST_BOX_DEVICES = 64 };
double pcie_ring_bytes_per_s(const Cluster *cluster, uint32_t n_devices);
double pcie_exchange_bytes_per_s(const Cluster *cluster, uint32_t n_devices);

/* Of buffers in windows; only where nccl_buffers_possible. `least_us`: what the switch's reduction
 * takes for the bytes. */
NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us);

/* What the tuner thinks. `us` of the estimate: latency + bytes / rate. */
NcclEstimate nccl_tuner(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol);
/* The one it takes; false: none is possible. */
bool nccl_tuner_best(const NcclCase *c, NcclAlgorithm *algorithm, uint32_t *protocol);

#endif
