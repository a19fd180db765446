/* Which ranks behave alike. Ranks are folded by refinement until stable under (program, classes of
 * the peers along every axis set that the program uses, how those groups lie on nodes, who shares
 * the node and its NICs, which links of the network they take with whom); one representative of a
 * class is simulated, and stands for all. A group that straddles nodes unevenly never folds with
 * one that does not. Knows nothing of time. */
#ifndef TANDEM_SIM_FOLD_H
#define TANDEM_SIM_FOLD_H

#include "planner/ir/plan.h"
#include "sim/net/routes.h"

typedef struct FoldMember {
    uint32_t class_, n; /* n ranks of that class in one group */
} FoldMember;

/* All groups along `axes` with the same classes of members. */
typedef struct FoldGroup {
    AxisSet axes;
    Rank first; /* smallest rank of one of them */
    uint32_t n_ranks, n_nodes, min_per_node, max_per_node;
    uint32_t n_nics; /* NICs of the fullest node that its members may use; 0: on one node */
    uint32_t n_pods, max_per_pod; /* pods that it spans; members in the fullest */
    uint32_t n_members;
    FoldMember *members;
} FoldGroup;

typedef struct FoldAxes {
    AxisSet axes;
    uint32_t n_groups;
    FoldGroup *groups;
    uint32_t *group_of; /* [class] */
} FoldAxes;

/* Links of the network that messages of a rank take: of a collective along `axes` in one of its
 * patterns, or of messages to the rank `hop` away. */
typedef struct FoldEdge {
    uint32_t link, count; /* messages of one size each */
} FoldEdge;
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
    uint32_t *node_of, *nic_of; /* [class] class of nodes, of NICs, that it lies on */
    uint32_t *on_node, *on_nic; /* [class] ranks of this class on one such node, NIC */
    uint32_t *pod_of, *on_pod;  /* [class] the same of pods */
    uint32_t n_node_classes, n_nic_classes, n_pod_classes;
    LIST(FoldAxes) axes; /* all axis sets that some collective of the plan uses */
    const Mesh *mesh;
    const Routes *routes;    /* NULL: the network has none */
    LIST(FoldEdges) edges;   /* only with routes */
    uint32_t n_link_classes; /* links that the same of every class of ranks take */
    uint32_t *link_of;       /* [class] one such link */
} Fold;

/* Where ranks are, in their order: so many on a node, so many nodes of a pod (whatever shares a way
 * to the other pods). */
typedef struct FoldPlaces {
    uint32_t devices_per_node; /* 0: one node */
    uint32_t nics_per_node;    /* 0: one */
    uint32_t nodes_per_pod;    /* 0: one pod */
    const Routes *routes;      /* NULL or without links: switches that do not limit */
} FoldPlaces;

/* `unfolded`: every rank its own class. */
Fold *fold_ranks_on(const Plan *plan, FoldPlaces places, bool unfolded, Arena *arena);
/* One pod. */
Fold *fold_ranks(const Plan *plan, uint32_t devices_per_node, uint32_t nics_per_node, bool unfolded,
                 Arena *arena);
/* NULL: nothing of the kind leaves a node. */
const FoldEdges *fold_edges(const Fold *fold, EdgeKind kind, AxisSet axes, int32_t hop);
/* Index in fold->axes; UINT32_MAX: no collective uses them. */
uint32_t fold_axes(const Fold *fold, AxisSet axes);
/* The rank `hop` away from `rank` along the single axis of `axes`, wrapping; false if `axes` is not
 * one axis. */
bool fold_peer(const Mesh *mesh, Rank rank, AxisSet axes, int32_t hop, Rank *peer);

#endif
