/* Finds ranks that behave alike, so that one representative of each class is simulated for all of
 * them. Classes are refined until stable. Ranks stay in one class only if they agree in all of
 * these: their program; the classes of their peers along every axis set that the program uses; the
 * distribution of these groups over nodes; the classes that share their node and NICs; the network
 * links that they use and share. A group that straddles nodes unevenly is never folded with another
 * kind of group. Time is not used here. */
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
    Rank first; /* smallest rank of one such group */
    uint32_t n_ranks, n_nodes, min_per_node, max_per_node;
    uint32_t n_nics; /* NICs that its members may use on the fullest node; 0: all on one node */
    uint32_t n_pods, max_per_pod; /* number of pods that it spans; members in the fullest pod */
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
    uint32_t link, count; /* the link; the number of messages on it, all of one size */
} FoldEdge;
/* The links that each rank's messages use, in a collective along `axes` with one pattern, or in
 * messages to the rank `hop` away. */
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
    Rank *rank_of;              /* [class] its smallest rank */
    uint32_t *size;             /* [class] ranks in it */
    uint32_t *node_of, *nic_of; /* [class] the class of its node, of its NIC */
    uint32_t *on_node, *on_nic; /* [class]: number of its ranks on each node that has such ranks;
                                 * number on each NIC that serves such ranks */
    uint32_t *pod_of, *on_pod; /* [class] the class of its pod; number of its ranks in each pod that
                                * has such ranks */
    uint32_t n_node_classes, n_nic_classes, n_pod_classes;
    LIST(FoldAxes) axes; /* all axis sets that some collective of the plan uses */
    const Mesh *mesh;
    const Routes *routes;  /* NULL: the network has no links of its own */
    LIST(FoldEdges) edges; /* set only if the network has routes */
    /* links of one class are used by the same number of ranks of every class */
    uint32_t n_link_classes;
    uint32_t *link_of; /* [link class] one of its links */
} Fold;

/* The places of ranks: consecutive ranks fill a node, consecutive nodes fill a pod. A pod is a set
 * of nodes that share one uplink to the other pods. */
typedef struct FoldPlaces {
    uint32_t devices_per_node; /* 0: one node */
    uint32_t nics_per_node;    /* 0: one */
    uint32_t nodes_per_pod;    /* 0: one pod */
    const Routes *routes;      /* NULL, or n_links 0: the switches do not limit traffic */
    const uint32_t *apart;     /* [rank]: a number; ranks with different numbers never fold. NULL:
                                * no such numbers */
} FoldPlaces;

/* Folds the ranks of a plan. `unfolded`: every rank is its own class. */
Fold *fold_ranks_on(const Plan *plan, FoldPlaces places, bool unfolded, Arena *arena);
/* Does the work of fold_ranks_on with all nodes in one pod, whose network has no links of its
 * own. */
Fold *fold_ranks(const Plan *plan, uint32_t devices_per_node, uint32_t nics_per_node, bool unfolded,
                 Arena *arena);
/* Returns the links of a pattern; NULL if none of its messages leaves a node. */
const FoldEdges *fold_edges(const Fold *fold, EdgeKind kind, AxisSet axes, int32_t hop);
/* Returns the index in fold->axes; UINT32_MAX: no collective uses these axes. */
uint32_t fold_axes(const Fold *fold, AxisSet axes);
/* Sets *peer to the rank `hop` places after `rank`, wrapping around, along the single axis in
 * `axes`. Returns false if `axes` is not a single axis. */
bool fold_peer(const Mesh *mesh, Rank rank, AxisSet axes, int32_t hop, Rank *peer);

#endif
