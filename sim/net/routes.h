/* Networks that are more than switches which do not limit: the links between nodes, and which of
 * them a message from node to node takes. Knows nothing of ranks and of time. */
#ifndef TANDEM_SIM_NET_ROUTES_H
#define TANDEM_SIM_NET_ROUTES_H

#include "planner/front/config.h"

/* Who sends to whom in a collective, node by node in the group's order. */
typedef enum EdgeKind {
    EDGE_ring,     /* each to the next */
    EDGE_tree,     /* NCCL's two trees, up and down: half of the bytes on each edge */
    EDGE_exchange, /* each to all */
    EDGE_message   /* of two: the first to the second */
} EdgeKind;

typedef struct Routes {
    Topology topology;
    uint32_t n_links, n_places, most_hops;
} Routes;

/* n_links 0: a network that has no routes. */
Routes routes_of(const Cluster *cluster);
/* Links from node to node, in order; at most most_hops. */
uint32_t routes_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links);
double routes_bytes_per_s(const Routes *r, uint32_t link);
/* To whom the i-th of n sends; room for `to`: n + 4. One may be there twice. */
uint32_t routes_edges(EdgeKind kind, uint32_t i, uint32_t n, uint32_t *to);
/* What the busiest link takes of a pattern over the first n nodes, `bytes` on each edge. */
double routes_busiest_s(const Routes *r, EdgeKind kind, uint32_t n, double bytes);

#endif
