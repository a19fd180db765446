/* Declarations for transfers that share links. net_maxmin.c decides which links a transfer uses and
 * when; net_fill.c computes its rate. */
#ifndef TANDEM_SIM_NET_NET_PRIVATE_H
#define TANDEM_SIM_NET_NET_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* One link that a flow uses. Links are numbered in this order: port out and port in of each class
 * of ranks; out and in of each class of NICs, of nodes and of pods; then the classes of the
 * network's own links. */
typedef struct LinkUse {
    uint32_t link, count; /* count: number of equivalent ranks on the link */
    int64_t rate;         /* bytes/s of one rank when the flow runs alone */
    /* rate on this link divided by the flow's largest rate, in units of 2^-20 */
    int64_t weight;
} LinkUse;

/* Values that are the same for all transfers with the same operation, group and size. */
typedef struct FlowShape {
    OpKind op;
    const FoldGroup *group;
    uint32_t sender, receiver;
    uint64_t bytes;
    const double *out, *in; /* see Transfer */
    Ps latency_ps, fluid_ps;
    int64_t rate;      /* largest rate of all its uses */
    uint32_t first, n; /* its uses are entries first to first + n - 1 of MaxMin.uses */
    uint32_t channels;
} FlowShape;

typedef enum FlowState { FLOW_none, FLOW_latent, FLOW_running } FlowState;

typedef struct Flow {
    FlowState state;
    uint32_t shape, version; /* events with an older version do not count */
    Ps since;                /* time at which `left` was last computed */
    double left;             /* picoseconds that are left at full speed */
    double speed;            /* present speed as a fraction of full speed */
    double level;            /* new speed while rates are being computed; negative: not known yet */
    double limit;            /* rate to which a link limits the flow in the present round of
                                filling */
    uint32_t first, room;    /* its entries of MaxMin.entries: one for each link that it uses */
    uint32_t seen; /* the last filling that included the flow (net_fill.c), counted from 1 */
} Flow;

/* A running flow, as an entry in the list of a link. */
typedef struct FlowEntry {
    uint32_t flow, next, previous; /* 0: there is none */
} FlowEntry;

struct MaxMin {
    const Cluster *cluster;
    const Fold *fold;
    NcclSettings settings; /* the plan's NCCL settings */
    Arena *arena;
    Store *store;        /* store with measured collectives; NULL: none */
    uint32_t n_measured; /* number of shapes whose time came from the store */
    const char *machine;
    Diag *d;
    LIST(LinkUse) uses;
    LIST(FlowShape) shapes; /* entry 0 is unused */
    uint32_t *table;        /* indices of shapes, by hash; 0: unused */
    uint32_t room;
    LIST(Flow) flows;        /* [number of the transfer] */
    LIST(uint32_t) active;   /* numbers of flows that run */
    LIST(uint32_t) index;    /* [flow]: its position in `active` */
    LIST(FlowEntry) entries; /* entry 0 is unused */
    uint32_t *on;            /* [link]: first entry of the link's list; 0: none */
    /* links whose demand has changed since rates were computed, and which are or were overloaded */
    LIST(uint32_t) changed;
    LIST(uint32_t) part;   /* during a filling: flows whose rates may change */
    LIST(uint32_t) risers; /* flows of `part` that use an overloaded link */
    LIST(uint32_t) narrow; /* overloaded links of `part` */
    uint32_t *marked;      /* [link]: number of the filling for which the link is in `changed` */
    uint32_t *seen;        /* [link]: number of the last filling in which the link took part */
    uint32_t n_fillings;
    Heap heap; /* a: index of a flow, b: its version */
    uint32_t n_links, first_routed;
    uint32_t *on_routed;        /* [link of the network]: scratch memory, used while a shape is
                                   being made */
    int64_t *capacity, *wanted; /* [link] bytes/s: what the link can carry; what all its running
                                   flows would need at full speed */
    int64_t *frozen, *rising; /* [link], during a filling: the sum of the rates that are fixed; the
                                 sum of the weights of flows whose rates still rise */
    double *full; /* [link], during a filling: the common rate of its flows at which the link is
                     full */
    Ps now;
};

/* Lists in `part` the flows whose rates may have changed. Sets the `level` of each to its new
 * fraction of full speed. */
void maxmin_fill(MaxMin *m);

#endif
