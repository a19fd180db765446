/* Networks whose switches limit traffic: the links between nodes, and a message's path of links
 * from node to node. Ranks and time are not used here. */
#ifndef TANDEM_SIM_NET_ROUTES_H
#define TANDEM_SIM_NET_ROUTES_H

#include "planner/front/config.h"

/* The pattern of a collective's messages between nodes, numbered by their order in the group. */
typedef enum EdgeKind {
    EDGE_ring,     /* each node sends to the next */
    EDGE_tree,     /* NCCL's two trees, up and down: each edge carries half of the bytes */
    EDGE_exchange, /* each node sends to all others */
    EDGE_message   /* two nodes: the first sends to the second */
} EdgeKind;

typedef struct Routes {
    Topology topology;
    uint32_t n_links, n_places, most_hops;
} Routes;

/* Returns the routes of a cluster's network; n_links 0: its switches do not limit traffic. */
Routes routes_of(const Cluster *cluster);
/* Writes the links from one node to another in order (room: most_hops) and returns their number. */
uint32_t routes_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links);
double routes_bytes_per_s(const Routes *r, uint32_t link);
/* Writes the receivers of node i of n to `to` (room: n + 4) and returns their number; a receiver
 * may be listed twice. */
uint32_t routes_edges(EdgeKind kind, uint32_t i, uint32_t n, uint32_t *to);
/* Returns the seconds of the busiest link in a pattern over the first n nodes, with `bytes` on each
 * edge. */
double routes_busiest_s(const Routes *r, EdgeKind kind, uint32_t n, double bytes);

#endif
