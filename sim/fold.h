/* Folding: ranks that behave alike form a class, and one rank of each class is simulated.
 *
 * Ranks of a class agree in their program, the classes of their peers, and the distribution of
 * their groups over nodes. They also agree in the classes of the ranks with which they share a
 * node, a NIC or a network link. Classes are refined until no class changes. Time plays no role. */
#ifndef TANDEM_SIM_FOLD_H
#define TANDEM_SIM_FOLD_H

#include "planner/ir/plan.h"
#include "sim/net/routes.h"

typedef struct FoldMember {
    uint32_t class_, n; /* a class, and the number of its ranks in one group */
} FoldMember;

/* All groups along `axes` whose members have the same classes. */
typedef struct FoldGroup {
    AxisSet axes;
    Rank first; /* the smallest rank of one such group */
    uint32_t n_ranks, n_nodes, min_per_node, max_per_node;
    /* the number of NICs that its members use on the node with the most members; 0: it lies on one
     * node */
    uint32_t n_nics;
    /* the number of pods over which it extends, and its members in the pod with the most */
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

/* A network link that messages of a rank use. */
typedef struct FoldEdge {
    uint32_t link, count; /* the link, and the number of messages on it; all have one size */
} FoldEdge;
/* The links that the messages of each rank use: in a collective along `axes`, or in messages to the
 * rank `hop` places away. */
typedef struct FoldEdges {
    EdgeKind kind;
    AxisSet axes;
    int32_t hop;
    uint32_t *first, *n; /* [rank] */
    LIST(FoldEdge) edges;
} FoldEdges;

typedef struct Fold {
    uint32_t n_ranks, n_classes, devices_per_node, nics_per_node;
    uint32_t nodes_per_pod;     /* 0: all nodes form one pod */
    uint32_t *class_of;         /* [rank] */
    Rank *rank_of;              /* [class]: its smallest rank */
    uint32_t *size;             /* [class]: the number of its ranks */
    uint32_t *node_of, *nic_of; /* [class]: the class of its node, and of its NIC */
    /* [class]: its ranks on each of its nodes, and on each of its NICs */
    uint32_t *on_node, *on_nic;
    /* [class]: the class of its pod, and its ranks in each of its pods */
    uint32_t *pod_of, *on_pod;
    uint32_t n_node_classes, n_nic_classes, n_pod_classes;
    LIST(FoldAxes) axes; /* all sets of axes of collectives in the plan */
    const Mesh *mesh;
    const Routes *routes;  /* NULL: the links of the network do not limit traffic */
    LIST(FoldEdges) edges; /* only if the network has routes */
    /* Links with equal rates form a link class if each class of ranks uses them equally often. */
    uint32_t n_link_classes;
    uint32_t *link_of; /* [link class]: one of its links */
} Fold;

/* The nodes of a cluster and their ranks. Consecutive ranks fill a node, and consecutive nodes fill
 * a pod. The nodes of a pod share one uplink to other pods. */
typedef struct FoldNodes {
    uint32_t devices_per_node; /* 0: all ranks are on one node */
    uint32_t nics_per_node;    /* 0: one */
    uint32_t nodes_per_pod;    /* 0: all nodes form one pod */
    const Routes *routes;      /* NULL or n_links = 0: switches do not limit traffic */
    /* [rank]: a number; ranks with different numbers are not folded. NULL: there are no such
     * numbers. */
    const uint32_t *apart;
} FoldNodes;

/* Folds the ranks of a plan. If `unfolded` is true, each rank is a class of its own. */
Fold *fold_ranks_on(const Plan *plan, FoldNodes nodes, bool unfolded, Arena *arena);
/* The same for a network of one pod without links of its own. */
Fold *fold_ranks(const Plan *plan, uint32_t devices_per_node, uint32_t nics_per_node, bool unfolded,
                 Arena *arena);
/* Returns the links of these messages; NULL if no message leaves a node. */
const FoldEdges *fold_edges(const Fold *fold, EdgeKind kind, AxisSet axes, int32_t hop);
/* Returns the index in fold->axes; UINT32_MAX: no collective uses these axes. */
uint32_t fold_axes(const Fold *fold, AxisSet axes);
/* Sets *peer to the rank that is `hop` places after `rank` along the axis, wrapping around. Returns
 * false unless `axes` is a single axis. */
bool fold_peer(const Mesh *mesh, Rank rank, AxisSet axes, int32_t hop, Rank *peer);

#endif
