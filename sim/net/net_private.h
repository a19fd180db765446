/* Concurrent transfers: what net_maxmin.c (who uses which links, and when) and net_fill.c (at which
 * rates) share. */
#ifndef TANDEM_SIM_NET_NET_PRIVATE_H
#define TANDEM_SIM_NET_NET_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* Per class of ranks: port out, port in. Per class of NICs, of nodes and of pods: out, in. Then the
 * classes of the network's own links. */
typedef struct Use {
    uint32_t link, count; /* alike ranks on this link */
    int64_t rate;         /* bytes/s of one rank when the flow runs alone */
    int64_t weight;       /* rate as a part of the flow's largest rate, in 2^-20 */
} Use;

/* All transfers alike in operation, group and size. */
typedef struct FlowShape {
    OpKind op;
    const FoldGroup *group;
    uint32_t sender, receiver;
    uint64_t bytes;
    Ps latency_ps, fluid_ps;
    int64_t rate;      /* largest of its uses' rates */
    uint32_t first, n; /* uses */
    uint32_t channels;
} FlowShape;

typedef enum FlowState { FLOW_none, FLOW_latent, FLOW_running } FlowState;

typedef struct Flow {
    FlowState state;
    uint32_t shape, version; /* events of older versions are void */
    Ps since;                /* when `left` was right */
    double left;             /* picoseconds at full speed */
    double speed;            /* part of full speed */
    double level;            /* speed being worked out; < 0: rising */
    Ps ends;
} Flow;

struct MaxMin {
    const Cluster *cluster;
    const Fold *fold;
    NcclSettings asks; /* the plan, of NCCL */
    Arena *arena;
    Store *store;        /* measured collectives; NULL: none */
    uint32_t n_measured; /* shapes that have their time from there */
    const char *machine;
    Diag *d;
    LIST(Use) uses;
    LIST(FlowShape) shapes; /* [0] none */
    uint32_t *table;        /* shapes by hash; 0: free */
    uint32_t room;
    LIST(Flow) flows;      /* by transfer id */
    LIST(uint32_t) active; /* ids that run */
    LIST(uint32_t) place;  /* [id] index in active */
    Heap heap;             /* a: flow id, b: version */
    uint32_t n_links, first_routed;
    uint32_t *on_routed;        /* [link of the network] while a shape is made */
    int64_t *capacity, *wanted; /* [link] bytes/s; the sum over running flows at full speed */
    int64_t *frozen, *rising;   /* [link] while filling */
    uint32_t n_overloaded;
    bool changed, slowed; /* flows came or went since rates were worked out; some are below 1 */
    Ps now;
};

/* Sets every running flow's `level`, the part of its full speed that it has. */
void maxmin_fill(MaxMin *m);

#endif
