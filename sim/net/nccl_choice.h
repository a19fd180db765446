/* NCCL's choice of algorithm and protocol for a collective, and the time that it takes. */
#ifndef TANDEM_SIM_NCCL_CHOICE_H
#define TANDEM_SIM_NCCL_CHOICE_H

#include "planner/front/config.h"
#include "planner/ir/trace.h"
#include "sim/fold.h"

/* NCCL's collectives. The second column is the factor with which nccl-tests converts bytes per time
 * to bus bandwidth, for n ranks. Sizes are counted as in nccl-tests: the larger of a rank's input
 * and output. */
#define COLLECTIVES(X)                                                                             \
    X(all_reduce, 2 * (n - 1) / n)                                                                 \
    X(all_gather, (n - 1) / n)                                                                     \
    X(reduce_scatter, (n - 1) / n)                                                                 \
    X(all_to_all, (n - 1) / n)                                                                     \
    X(broadcast, 1)                                                                                \
    X(reduce, 1)                                                                                   \
    X(gather, (n - 1) / n)                                                                         \
    X(scatter, (n - 1) / n)                                                                        \
    X(sendrecv, 1)
typedef enum Collective {
#define X(name, factor) COLLECTIVE_##name,
    COLLECTIVES(X)
#undef X
        COLLECTIVE_COUNT
} Collective;
const char *collective_name(Collective kind);
bool collective_find(const char *name, Collective *kind);
double collective_bus_factor(Collective kind, double n_ranks);

#define NCCL_ALGORITHMS(X)                                                                         \
    X(Tree) X(Ring) X(CollNetDirect) X(CollNetChain) X(NVLS) X(NVLSTree) X(PAT)
typedef enum NcclAlgorithm {
#define X(name) NCCL_##name,
    NCCL_ALGORITHMS(X)
#undef X
        NCCL_ALGORITHM_COUNT
} NcclAlgorithm;

/* How NCCL is called. pipelined: on a stream or in a graph among other work, as in plans. blocking:
 * the caller waits for each call, as in benchmarks. one_process: one process calls for all devices
 * of a node, as nccl-tests does without MPI. */
typedef enum NcclIssue { NCCL_pipelined, NCCL_blocking, NCCL_one_process } NcclIssue;
/* Where buffers lie. plain: anywhere. symmetric: in windows, which all ranks map into their memory;
 * NCCL has special kernels for these. copy_engine: also in windows, and copy engines move the data
 * without any SM. */
typedef enum NcclBuffers { NCCL_plain, NCCL_symmetric, NCCL_copy_engine } NcclBuffers;

/* The constants of a generation of devices: one row of nccl_fit.def, in its order. */
typedef struct NcclFit {
    double ring, steps, gather, nvls, ramp_us, ramp_mib, once_us, once_mib, p2p_us, p2p, exchange,
        exchange_us, exchange_mib, ll, ll_once, ll128, ll128_once, nvls_wide;
} NcclFit;
const NcclFit *nccl_fit(const Cluster *cluster);

typedef struct NcclQuestion {
    Collective kind;
    uint32_t n_nodes, ranks_per_node;
    uint64_t bytes;
    NcclIssue issue;
    NcclBuffers buffers;
    const NcclSettings *settings; /* numbers of thread blocks; NULL: NCCL chooses */
    const NcclFit *fit;           /* NULL: the constants of the cluster's devices */
} NcclQuestion;

/* The choice of NCCL for one collective of one group: its time, and the load that it puts on
 * links. */
typedef struct NcclChoice {
    Ps time_ps;              /* latency_ps + fluid_ps */
    Ps latency_ps, fluid_ps; /* fluid_ps: the part of the time that needs bandwidth */
    const char *algorithm, *protocol;
    double bus_bytes_per_s; /* bus bandwidth as nccl-tests defines it, over the whole time */
    uint32_t channels;      /* thread blocks of the kernel, each of which occupies an SM */
    /* bytes that the busiest rank sends through its NVLink port; through its NIC */
    double port_bytes, nic_bytes;
} NcclChoice;
NcclChoice nccl_answer(const Cluster *cluster, const NcclQuestion *question);
/* Returns NCCL's choice for a group that fills the first nodes of the cluster in order and uses the
 * network alone. As in net_maxmin.c, uplinks of nodes and pods limit its rate if they are slower
 * than the NICs below them. */
NcclChoice nccl_answer_alone(const Cluster *cluster, const NcclQuestion *question);
/* Returns the choice for an op of a plan, which is issued among other work (NCCL_pipelined). */
NcclChoice nccl_choose(const Cluster *cluster, OpKind op, uint32_t n_nodes, uint32_t ranks_per_node,
                       uint64_t bytes);
/* Returns the same with the plan's NCCL settings. If the settings put buffers in windows, NCCL uses
 * its kernels for windows. If they ask for copy engines and NCCL can use these, it uses them. */
NcclChoice nccl_choose_as(const Cluster *cluster, const NcclSettings *settings, OpKind op,
                          uint32_t n_nodes, uint32_t ranks_per_node, uint64_t bytes);
/* Returns the pattern of messages between nodes, for an op with the algorithm of this name.
 * Parallel trees and reductions in switches count as a ring. */
EdgeKind nccl_pattern(OpKind op, const char *algorithm);
/* Returns true if NCCL can use buffers of this kind on the cluster: its kernels or the copy engines
 * must be able to access them directly. */
bool nccl_buffers_possible(const Cluster *cluster, const NcclQuestion *question);
/* Returns how many SMs a gather or reduction of registered buffers occupies. UINT32_MAX: as many as
 * for other buffers. */
uint32_t nccl_registered_channels(const Cluster *cluster, OpKind op, uint32_t n_nodes,
                                  uint32_t ranks_per_node);
/* These return rates in bytes/s as NCCL counts them. The port's rate is that at which one device
 * sends to the others of its node. The NIC's rate is that at which one NIC sends to the network. */
double nccl_port_bytes_per_s(const Cluster *cluster);
double nccl_nic_bytes_per_s(const Cluster *cluster);

#endif
