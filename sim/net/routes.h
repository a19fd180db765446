/* Networks whose switches limit traffic: the links between nodes, and the links on a message's
 * way from node to node. Ranks and time play no part here. */
#ifndef TANDEM_SIM_NET_ROUTES_H
#define TANDEM_SIM_NET_ROUTES_H

#include "planner/front/config.h"

/* Which node sends to which in a collective; nodes in the group's order. */
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

/* The routes of a cluster's network; n_links 0: switches that never limit. */
Routes routes_of(const Cluster *cluster);
/* Links from node to node, in order; at most most_hops. */
uint32_t routes_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links);
double routes_bytes_per_s(const Routes *r, uint32_t link);
/* Writes the receivers of node i of n to `to` (room: n + 4) and returns their number; a receiver
 * may be listed twice. */
uint32_t routes_edges(EdgeKind kind, uint32_t i, uint32_t n, uint32_t *to);
/* Seconds of the busiest link in a pattern over the first n nodes, with `bytes` on each edge. */
double routes_busiest_s(const Routes *r, EdgeKind kind, uint32_t n, double bytes);

#endif
