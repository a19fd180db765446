/* Networks whose switches limit traffic: the links between nodes, and the links that a message uses
 * from node to node. This file knows neither ranks nor time. */
#ifndef TANDEM_SIM_NET_ROUTES_H
#define TANDEM_SIM_NET_ROUTES_H

#include "planner/front/config.h"

/* The pattern of a collective's messages between nodes. Nodes are numbered by their order in the
 * group. */
typedef enum EdgeKind {
    EDGE_ring,     /* each node sends to the next one */
    EDGE_tree,     /* NCCL's two trees, up and down; each edge carries half of the bytes */
    EDGE_exchange, /* each node sends to all others */
    EDGE_message   /* the first of two nodes sends to the second one */
} EdgeKind;

typedef struct Routes {
    Topology topology;
    uint32_t n_links, n_places, most_hops;
} Routes;

/* Returns the routes of a cluster's network. n_links is 0 if its switches do not limit traffic. */
Routes routes_of(const Cluster *cluster);
/* Writes the links from one node to another in order and returns their number. `links` must have
 * room for most_hops. */
uint32_t routes_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links);
double routes_bytes_per_s(const Routes *r, uint32_t link);
/* Writes the nodes to which node i of n sends, and returns their number. `to` must have room for n
 * + 4. A node may occur twice. */
uint32_t routes_edges(EdgeKind kind, uint32_t i, uint32_t n, uint32_t *to);
/* Returns how many seconds the busiest link needs for a pattern over the first n nodes, with
 * `bytes` bytes on each edge. */
double routes_busiest_s(const Routes *r, EdgeKind kind, uint32_t n, double bytes);

#endif
