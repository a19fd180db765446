/* Concurrent transfers. net_maxmin.c decides which links a transfer uses and when; net_fill.c
 * computes its rate. */
#ifndef TANDEM_SIM_NET_NET_PRIVATE_H
#define TANDEM_SIM_NET_NET_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* One link that a flow uses. Links are numbered: port out and port in of each class of ranks;
 * out and in of each class of NICs, nodes and pods; then the classes of the network's own links. */
typedef struct LinkUse {
    uint32_t link, count; /* number of equivalent ranks on the link */
    int64_t rate;         /* bytes/s of one rank when the flow runs alone */
    /* rate on this link as a fraction of the flow's largest rate, in units of 2^-20 */
    int64_t weight;
} LinkUse;

/* Transfers with the same operation, group and size share one shape. */
typedef struct FlowShape {
    OpKind op;
    const FoldGroup *group;
    uint32_t sender, receiver;
    uint64_t bytes;
    const double *out, *in; /* see Transfer */
    Ps latency_ps, fluid_ps;
    int64_t rate;      /* the largest rate of its uses */
    uint32_t first, n; /* uses */
    uint32_t channels;
} FlowShape;

typedef enum FlowState { FLOW_none, FLOW_latent, FLOW_running } FlowState;

typedef struct Flow {
    FlowState state;
    uint32_t shape, version; /* events with an older version are void */
    Ps since;                /* when `left` was last computed */
    double left;             /* remaining picoseconds at full speed */
    double speed;            /* fraction of full speed */
    double level;            /* the speed during the computation of rates; < 0: not yet known */
    double limit;            /* the rate to which a link limits the flow in this round */
    Ps ends;
    uint32_t first, room; /* its elements of `entries`: one for each link that it uses */
    uint32_t seen;        /* number of the last filling (net_fill.c) with this flow */
} Flow;

/* A running flow in the list of a link. */
typedef struct FlowEntry {
    uint32_t flow, next, previous; /* 0: none */
} FlowEntry;

struct MaxMin {
    const Cluster *cluster;
    const Fold *fold;
    NcclSettings asks; /* the plan's NCCL settings */
    Arena *arena;
    Store *store;        /* measured collectives; NULL: none */
    uint32_t n_measured; /* shapes whose time came from the store */
    const char *machine;
    Diag *d;
    LIST(LinkUse) uses;
    LIST(FlowShape) shapes; /* [0] none */
    uint32_t *table;        /* shapes by hash; 0: free */
    uint32_t room;
    LIST(Flow) flows;        /* indexed by the transfer's id */
    LIST(uint32_t) active;   /* ids that run */
    LIST(uint32_t) index;    /* [id] index in active */
    LIST(FlowEntry) entries; /* [0] none */
    uint32_t *on;            /* [link] the first entry of its list; 0: none */
    /* links that are or were overloaded, and whose demand changed since rates were computed */
    LIST(uint32_t) changed;
    LIST(uint32_t) part;   /* while filling: the flows whose rates may change */
    LIST(uint32_t) risers; /* flows of `part` that use an overloaded link */
    LIST(uint32_t) narrow; /* the overloaded links of `part` */
    uint32_t *marked;      /* [link] number of the filling for which the link is in `changed` */
    uint32_t *seen;        /* [link] number of the last filling that the link took part in */
    uint32_t n_fillings;
    Heap heap; /* a: flow id, b: version */
    uint32_t n_links, first_routed;
    uint32_t *on_routed;        /* [link of the network] scratch, used while a shape is built */
    int64_t *capacity, *wanted; /* [link]: bytes/s; demand of all running flows at full speed */
    int64_t *frozen, *rising;   /* [link] during a filling */
    double *full; /* [link] the common rate of its flows at which the link is full; valid only
                     during a filling */
    Ps now;
};

/* Lists in `part` the flows whose rates may have changed, and sets the `level` of each: its new
 * fraction of full speed. */
void maxmin_fill(MaxMin *m);

#endif
