#include "sim/net/routes.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Routes routes_of(const Cluster *cluster)
{
    const Topology *t = &cluster->topology;
    Routes r = {.topology = *t, .n_places = cluster->nodes};
    if (t->kind == TOPOLOGY_torus) {
        r.n_places = 1;
        for (uint32_t a = 0; a < MOST_TORUS_AXES; a++) {
            uint32_t size = t->sizes[a] < 2 ? 1 : t->sizes[a];
            r.topology.sizes[a] = size;
            r.n_places *= size;
            r.most_hops += size / 2;
        }
        r.n_links = r.n_places * MOST_TORUS_AXES * 2;
    } else if (t->kind == TOPOLOGY_dragonfly) {
        uint32_t inside = t->routers * t->routers, outside = t->routers * t->ways_out;
        r.n_places = t->groups * t->routers * t->nodes;
        r.n_links = t->groups * (inside + outside);
        r.most_hops = 3;
    }
    return r;
}

/* Writes the path through a torus: along one axis after the other, each in the shorter direction.
 * If both directions are equally long, nodes with an even place go up and nodes with an odd place
 * go down. */
static uint32_t torus_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links)
{
    uint32_t n = 0, stride = 1, at = from;
    for (uint32_t a = 0; a < MOST_TORUS_AXES; a++) {
        uint32_t size = r->topology.sizes[a];
        uint32_t x = at / stride % size, end = to / stride % size, up = (end + size - x) % size;
        bool down = 2 * up > size || (2 * up == size && x % 2 == 1);
        for (uint32_t hops = down ? size - up : up; hops > 0; hops--) {
            links[n++] = (at * MOST_TORUS_AXES + a) * 2 + down;
            uint32_t next = (x + (down ? size - 1 : 1)) % size;
            at = at - x * stride + next * stride;
            x = next;
        }
        stride *= size;
    }
    return n;
}

/* Writes the path through a dragonfly network. The outgoing links of a group lead to all other
 * groups in turn, so each pair of groups has the same number of links. The routers of a group share
 * their links to another group evenly. A path goes to the router with the outgoing link, over this
 * link, and from its end to the last router. Inside each of the two groups, it uses at most one
 * link. */
static uint32_t dragonfly_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links)
{
    const Topology *t = &r->topology;
    uint32_t a = from / t->nodes, b = to / t->nodes, n = 0; /* numbers of the routers */
    uint32_t group = a / t->routers, other = b / t->routers;
    uint32_t outs = t->routers * t->ways_out, each = t->routers * t->routers + outs;
    a %= t->routers;
    b %= t->routers;
    if (group == other) {
        if (a != b) links[n++] = group * each + a * t->routers + b;
        return n;
    }
    uint32_t offset = (other + t->groups - group - 1) % t->groups;
    uint32_t ways = outs / (t->groups - 1), way = a % ways * (t->groups - 1);
    uint32_t leaves = (way + offset) / t->ways_out;
    uint32_t arrives = (way + t->groups - 2 - offset) / t->ways_out;
    if (a != leaves) links[n++] = group * each + a * t->routers + leaves;
    links[n++] = group * each + t->routers * t->routers + way + offset;
    if (arrives != b) links[n++] = other * each + arrives * t->routers + b;
    return n;
}

uint32_t routes_path(const Routes *r, uint32_t from, uint32_t to, uint32_t *links)
{
    assert(from < r->n_places);
    assert(to < r->n_places);
    switch (r->topology.kind) {
    case TOPOLOGY_tree: return 0;
    case TOPOLOGY_torus: return torus_path(r, from, to, links);
    case TOPOLOGY_dragonfly: return dragonfly_path(r, from, to, links);
    }
    return 0;
}

double routes_bytes_per_s(const Routes *r, uint32_t link)
{
    const Topology *t = &r->topology;
    if (t->kind != TOPOLOGY_dragonfly) return t->link_bytes_per_s;
    uint32_t inside = t->routers * t->routers, each = inside + t->routers * t->ways_out;
    return link % each < inside ? t->link_bytes_per_s : t->way_out_bytes_per_s;
}

/* Returns the parent of node i in NCCL's binary tree (trees.cc); n: i is the root. */
static uint32_t parent_of(uint32_t i, uint32_t n)
{
    if (i == 0) return n;
    uint32_t bit = i & ~(i - 1), up = (i ^ bit) | (bit << 1);
    return up < n ? up : i ^ bit;
}

/* Returns the parent of node i in the second tree. This tree is the first one mirrored or, if the
 * number of nodes is odd, shifted by one. */
static uint32_t second_parent_of(uint32_t i, uint32_t n)
{
    uint32_t there = n % 2 == 0 ? n - 1 - i : (i + n - 1) % n, up = parent_of(there, n);
    if (up == n) return n;
    return n % 2 == 0 ? n - 1 - up : (up + 1) % n;
}

static uint32_t tree_edges(uint32_t i, uint32_t n, uint32_t *to)
{
    uint32_t n_to = 0;
    for (uint32_t tree = 0; tree < 2; tree++) {
        uint32_t (*up)(uint32_t i, uint32_t n) = tree == 0 ? parent_of : second_parent_of;
        if (up(i, n) < n) to[n_to++] = up(i, n);
        for (uint32_t k = 0; k < n; k++)
            if (up(k, n) == i) to[n_to++] = k;
    }
    return n_to;
}

uint32_t routes_edges(EdgeKind kind, uint32_t i, uint32_t n, uint32_t *to)
{
    uint32_t n_to = 0;
    if (n < 2) return 0;
    switch (kind) {
    case EDGE_ring: to[n_to++] = (i + 1) % n; break;
    case EDGE_tree: return tree_edges(i, n, to);
    case EDGE_exchange:
        for (uint32_t k = 0; k < n; k++)
            if (k != i) to[n_to++] = k;
        break;
    case EDGE_message:
        if (i == 0) to[n_to++] = 1;
        break;
    }
    return n_to;
}

double routes_busiest_s(const Routes *r, EdgeKind kind, uint32_t n, double bytes)
{
    if (r->n_links == 0 || n < 2) return 0;
    Arena *arena = arena_new();
    uint32_t *to = arena_array(arena, n + 4, sizeof *to);
    uint32_t *path = arena_array(arena, r->most_hops + 1, sizeof *path);
    uint32_t *on = arena_array(arena, r->n_links, sizeof *on);
    double longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_to = routes_edges(kind, i, n, to);
        for (uint32_t k = 0; k < n_to; k++) {
            uint32_t hops = routes_path(r, i, to[k], path);
            for (uint32_t h = 0; h < hops; h++) {
                double s = ++on[path[h]] * bytes / routes_bytes_per_s(r, path[h]);
                longest = fmax(longest, s);
            }
        }
    }
    arena_free(arena);
    return longest;
}
