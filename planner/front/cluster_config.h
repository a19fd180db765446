/* The hardware of a plan, as the table `cluster` of its script describes it: the devices, the links
 * between the devices of a node, and the network between nodes. Rates are in bytes/s. */
#ifndef TANDEM_FRONT_CLUSTER_CONFIG_H
#define TANDEM_FRONT_CLUSTER_CONFIG_H

#include "planner/verify/verify.h"

typedef struct Device {
    const char *name; /* "H100-SXM5-80GB" */
    const char *arch; /* "Hopper", "Ampere", "Blackwell", "cpu" */
    uint32_t sms;
    uint64_t memory_bytes; /* memory that programs can allocate */
    /* memory that the CUDA context and library workspaces take. Communicators are not included,
     * because their number depends on the plan */
    uint64_t reserved_bytes;
    double hbm_bytes_per_s;
    /* [dtype]: FLOP/s of dense matrix products; 0: the device has none for this dtype */
    double peak_flops[DT_COUNT];
    /* the device multiplies 8-bit operands together with one scale for each block (mxfp8), at the
     * rate peak_flops[DT_e8m0] */
    bool block_scales;
    /* fraction of peak_flops that large products reach; fraction of hbm_bytes_per_s that large
     * copies reach */
    double gemm_efficiency, memory_efficiency;
    /* fraction of gemm_efficiency that remains when the power limit lowers the clock; 0: 1 */
    double sustained;
    /* power of a kernel without matrix products / power of large products; 0: 1 */
    double light_power;
    double exponentials;   /* exponentials that one SM computes in a clock cycle; 0: 16 */
    double launch_s;       /* host time to launch a kernel */
    double kernel_floor_s; /* device time of an empty kernel */
    double usd_per_hour;
    double watts; /* power limit of the board; 0: unknown */
} Device;
typedef enum Fabric {
    FABRIC_nvswitch,
    FABRIC_nvlink, /* NVLink without a switch: each device has links to some of the others */
    FABRIC_mesh,   /* each device has one link to each of the others: xGMI */
    FABRIC_pcie,
    FABRIC_host
} Fabric;
/* The greatest distance between two devices of a node at which they read and write each other's
 * memory directly. Devices farther apart copy through host memory. off: all do. switch: below one
 * PCIe switch. socket: below one processor. node: all. auto: NCCL's rule, which is switch, and node
 * for a node of two devices with AMD processors. */
typedef enum PeerLevel { PEER_auto, PEER_off, PEER_switch, PEER_socket, PEER_node } PeerLevel;
/* The PCIe links between the devices of a node. All links have the same rate. Devices are numbered
 * so that neighbours share a switch, then a socket. */
typedef struct PcieBox {
    uint32_t sockets; /* processors; devices are divided evenly among them; 0: one */
    /* PCIe switches in a node. Each has one uplink to a processor, as fast as a device's link. 0:
     * no switch, each device is linked to a processor */
    uint32_t switches;
    double socket_bytes_per_s; /* rate between two processors, in each direction; 0: no limit */
    PeerLevel peer;
    /* the processors are Intel's. They split a device's write to another device into small packets,
     * which occupy the links 1.2 times as long (only if the write passes the processor) */
    bool intel;
} PcieBox;
/* How nodes are linked. Rates are those of one link in one direction. tree: a fat tree above each
 * node's NICs. Only `oversubscription` and the groups of nodes (Cluster) limit its switches. */
typedef enum TopologyKind {
    TOPOLOGY_tree,
    /* a grid with wrap-around and one node at each point, numbered with the first axis fastest. A
     * route follows one axis after the other, each in the shorter direction */
    TOPOLOGY_torus,
    /* groups of routers: a router has a link to every other router of its group, and some links to
     * other groups. Routes are the shortest ones */
    TOPOLOGY_dragonfly
} TopologyKind;
enum { MOST_TORUS_AXES = 4 };
typedef struct Topology {
    TopologyKind kind;
    uint32_t sizes[MOST_TORUS_AXES]; /* length of each axis; 0 and 1: no such axis */
    uint32_t groups, routers, nodes; /* groups in all; routers in a group; nodes at a router */
    /* links from one router to other groups; a group's links are spread evenly over the other
     * groups */
    uint32_t ways_out;
    double link_bytes_per_s;    /* torus: any link; dragonfly: a link within a group */
    double way_out_bytes_per_s; /* dragonfly: a link between groups */
} Topology;
/* Corrections to NCCL's model of a NIC with RDMA, as measurements of one network give them. */
typedef struct NetworkFabric {
    const char *name; /* name of the network, such as "ib"; NULL: none */
    double message_s; /* latency of a message in addition to the one in NCCL's tuner */
    /* fraction of a NIC's rate that large messages reach; 0: .96, as in NCCL's tuner */
    double achieved;
    /* ramp_s, ramp_bytes: extra time of S bytes until the pipeline of chunks is full, ramp_s * S /
     * (S + ramp_bytes). In a tree with protocol Simple: ramp_s * min(S / ramp_bytes, 1). ramp_bytes
     * 0: one chunk of each channel. buffer_bytes: NCCL_BUFFSIZE; 0: NCCL's default */
    double ramp_s, ramp_bytes, buffer_bytes;
    /* time to post a message that is cut into one part for each channel; added for messages from
     * about 24 KiB on */
    double spread_s;
    /* the network may split a store of 128 bytes, on which NCCL's protocols LL and LL128 rely, so
     * NCCL uses only Simple */
    bool simple_only;
    /* NVLink SHARP (reduction in the NVSwitch) is disabled in this network's configuration */
    bool no_nvls;
    bool sharp; /* the network's switches can add up data in flight (InfiniBand SHARP) */
} NetworkFabric;
enum { MOST_RING_DEVICES = 8 };
typedef struct Cluster {
    const char *name;
    Device device;
    uint32_t nodes, devices_per_node;
    Fabric intra;
    PcieBox pcie;             /* PCIe links; only for FABRIC_pcie */
    double intra_bytes_per_s; /* rate between devices of a node, per device and direction */
    uint32_t nics_per_node;
    double host_link_bytes_per_s; /* host to device and back, per device and direction; 0: PCIe 5 */
    uint64_t host_memory_bytes;   /* host memory of a node; 0: unknown, no limit */
    /* bandwidth of host memory that one device can use; 0: 2 x DDR5 */
    double host_bytes_per_s;
    double nic_bytes_per_s; /* rate of a NIC in each direction */
    /* total rate of a node's NICs / rate of the node's uplink; 1.0: equal rates */
    double oversubscription;
    NetworkFabric fabric;
    Topology topology;
    /* nodes below one switch of the next level (a pod); 0: all nodes */
    uint32_t nodes_per_group;
    double group_oversubscription; /* the same ratio at the uplink of a group; 1.0: equal rates */
    /* FABRIC_nvlink: rings[n] is the number of separate rings that the links between the first n
     * devices of a node form; 0: unknown */
    uint32_t rings[MOST_RING_DEVICES + 1];
    /* host time to launch a collective as one of several, or in a CUDA graph */
    double collective_launch_s;
    /* for the local CPU cluster: cores of the machine, which all its ranks share; 0 for others */
    uint32_t cores_per_node;
    /* the cluster is the machine on which Tandem runs, so costs are measured, not modelled */
    bool is_local;
} Cluster;
/* Returns the memory that a plan may use. communicators: bytes that NCCL's communicators allocate
 * on each device. */
static inline Capacity cluster_capacity(const Cluster *c, uint64_t communicators)
{
    return (Capacity){c->device.memory_bytes, c->device.reserved_bytes + communicators,
                      c->host_memory_bytes, c->devices_per_node};
}

#endif
