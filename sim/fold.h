/* Folding: ranks that behave alike form a class, and one rank of each class is simulated.
 *
 * Ranks of a class have the same program, peers of the same classes, and groups that are
 * distributed over nodes in the same way. The ranks with which they share a node, a NIC or a
 * network link also have the same classes. Folding starts with coarse classes and divides them
 * until nothing changes. */
#ifndef TANDEM_SIM_FOLD_H
#define TANDEM_SIM_FOLD_H

#include "planner/ir/plan.h"
#include "sim/net/routes.h"

typedef struct FoldMember {
    uint32_t class_, n; /* a class; how many of its ranks are in one group */
} FoldMember;

/* All groups along `axes` whose members have the same classes. */
typedef struct FoldGroup {
    AxisSet axes;
    Rank first; /* smallest rank of one of these groups */
    uint32_t n_ranks, n_nodes, min_per_node, max_per_node;
    /* number of NICs that the members use on the node with most members; 0: the group lies on one
     * node */
    uint32_t n_nics;
    /* n_pods: number of pods over which the group extends; max_per_pod: members in the pod with
     * most members */
    uint32_t n_pods, max_per_pod;
    uint32_t n_members;
    FoldMember *members;
} FoldGroup;

typedef struct FoldAxes {
    AxisSet axes;
    uint32_t n_groups;
    FoldGroup *groups;
    uint32_t *group_of; /* [class] */
} FoldAxes;

/* A link of the network that messages of a rank use. */
typedef struct FoldEdge {
    uint32_t link,
        count; /* index of the link; number of messages that go over it, all of the same size */
} FoldEdge;
/* Which links the messages of each rank use, in a collective along `axes` or in messages to the
 * rank that is `hop` steps away. */
typedef struct FoldEdges {
    EdgeKind kind;
    AxisSet axes;
    int32_t hop;
    uint32_t *first, *n; /* [rank] */
    LIST(FoldEdge) edges;
} FoldEdges;

typedef struct Fold {
    uint32_t n_ranks, n_classes, devices_per_node, nics_per_node;
    uint32_t nodes_per_pod;     /* 0: all nodes are one pod */
    uint32_t *class_of;         /* [rank] */
    Rank *rank_of;              /* [class]: smallest rank of the class */
    uint32_t *size;             /* [class]: number of ranks in the class */
    uint32_t *node_of, *nic_of; /* [class]: class of its node; class of its NIC */
    /* [class]: how many of its ranks are on each of their nodes; on each of their NICs */
    uint32_t *on_node, *on_nic;
    /* [class]: class of its pod; how many of its ranks are in each of their pods */
    uint32_t *pod_of, *on_pod;
    uint32_t n_node_classes, n_nic_classes, n_pod_classes;
    LIST(FoldAxes) axes; /* all sets of axes along which the plan has collectives */
    const Mesh *mesh;
    const Routes *routes;  /* NULL: links of the network do not limit traffic */
    LIST(FoldEdges) edges; /* only if the network has routes */
    /* A class of links: links with equal rates that each class of ranks uses equally often. */
    uint32_t n_link_classes;
    uint32_t *link_of; /* [class of links]: one link of the class */
} Fold;

/* How ranks are placed on the nodes of a cluster. Consecutive ranks fill a node, and consecutive
 * nodes fill a pod. The nodes of a pod share one uplink to other pods. */
typedef struct FoldNodes {
    uint32_t devices_per_node; /* 0: all ranks are on one node */
    uint32_t nics_per_node;    /* 0 stands for one */
    uint32_t nodes_per_pod;    /* 0: all nodes are one pod */
    const Routes *routes;      /* NULL or n_links = 0: switches do not limit traffic */
    /* [rank]: a number; ranks with different numbers are not folded into one class. NULL: there is
     * no such restriction. */
    const uint32_t *apart;
    bool every_rank; /* colours every rank, also ranks that are known to equal others; only tests
                        set this */
} FoldNodes;

/* Folds the ranks of a plan. If `unfolded` is true, each rank becomes a class. */
Fold *fold_ranks_on(const Plan *plan, FoldNodes nodes, bool unfolded, Arena *arena);
/* The same for a network that consists of one pod and whose links do not limit traffic. */
Fold *fold_ranks(const Plan *plan, uint32_t devices_per_node, uint32_t nics_per_node, bool unfolded,
                 Arena *arena);
/* Returns the links that these messages use; NULL if no message leaves a node. */
const FoldEdges *fold_edges(const Fold *fold, EdgeKind kind, AxisSet axes, int32_t hop);
/* Returns the index of this set of axes in fold->axes; UINT32_MAX: no collective uses it. */
uint32_t fold_axes(const Fold *fold, AxisSet axes);
/* Sets *peer to the rank that is `hop` steps after `rank` along `axes`, wrapping around. Returns
 * false if there is no other rank along `axes`. */
bool fold_peer(const Mesh *mesh, Rank rank, AxisSet axes, int32_t hop, Rank *peer);

#endif
