/* Folding on a network with routes. Ranks are equivalent only if their messages use equivalent
 * links, and links are equivalent only if equivalent ranks use them. So the classes of both are
 * divided together (fold.c). */
#include "sim/fold_private.h"

#include <assert.h>
#include <string.h>

bool fold_peer(const Mesh *mesh, Rank rank, AxisSet axes, int32_t hop, Rank *peer)
{
    uint32_t size = mesh_size(mesh, axes);
    if (axes == 0 || size < 2) return false;
    *peer = mesh_member(mesh, rank, axes, mesh_hop(mesh_part(mesh, rank, axes), hop, size));
    return true;
}

const FoldEdges *fold_edges(const Fold *f, EdgeKind kind, AxisSet axes, int32_t hop)
{
    for (uint32_t i = 0; i < f->edges.n; i++) {
        const FoldEdges *e = &f->edges.at[i];
        if (e->kind == kind && e->axes == axes && e->hop == hop) return e;
    }
    return NULL;
}

static void add_path(const Fold *f, FoldEdges *e, uint32_t from, uint32_t to, uint32_t count,
                     uint32_t *path, Arena *arena)
{
    uint32_t hops = routes_path(f->routes, from, to, path);
    for (uint32_t h = 0; h < hops; h++)
        list_push(arena, &e->edges, ((FoldEdge){.link = path[h], .count = count}));
}

/* A node of a group, and how many of the group's members are on it. A list of these has the order
 * of the members. */
typedef struct NodeRun {
    uint32_t node, n;
} NodeRun;

static uint32_t runs_of(const Fold *f, AxisSet axes, Rank leader, NodeRun *runs)
{
    uint32_t n = mesh_size(f->mesh, axes), n_runs = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t node = fold_node_of(f, mesh_rising(f->mesh, leader, axes, k));
        if (n_runs == 0 || runs[n_runs - 1].node != node) runs[n_runs++] = (NodeRun){.node = node};
        runs[n_runs - 1].n++;
    }
    return n_runs;
}

static void add_group(const Fold *f, FoldEdges *e, Rank leader, NodeRun *runs, uint32_t *to,
                      uint32_t *path, Arena *arena)
{
    uint32_t n_runs = runs_of(f, e->axes, leader, runs);
    for (uint32_t i = 0, k = 0; n_runs > 1 && i < n_runs; i++) {
        uint32_t n_to = routes_edges(e->kind, i, n_runs, to);
        for (uint32_t end = k + runs[i].n; k < end; k++) {
            Rank rank = mesh_rising(f->mesh, leader, e->axes, k);
            e->first[rank] = e->edges.n;
            for (uint32_t j = 0; j < n_to; j++) {
                uint32_t count = e->kind == EDGE_exchange ? runs[to[j]].n : 1;
                add_path(f, e, runs[i].node, runs[to[j]].node, count, path, arena);
            }
            e->n[rank] = e->edges.n - e->first[rank];
        }
    }
}

void fold_add_edges(Fold *f, EdgeKind kind, AxisSet axes, int32_t hop, Arena *arena)
{
    if (fold_edges(f, kind, axes, hop) != NULL) return;
    uint32_t n = mesh_size(f->mesh, axes);
    Arena *scratch = arena_new();
    NodeRun *runs = arena_array(scratch, n, sizeof *runs);
    uint32_t *to = arena_array(scratch, n + 4, sizeof *to);
    uint32_t *path = arena_array(scratch, f->routes->most_hops + 1, sizeof *path);
    FoldEdges *e = &f->edges.at[list_add(arena, &f->edges)];
    e->kind = kind;
    e->axes = axes;
    e->hop = hop;
    e->first = arena_array(arena, f->n_ranks, sizeof *e->first);
    e->n = arena_array(arena, f->n_ranks, sizeof *e->n);
    for (Rank r = 0; r < f->n_ranks; r++) {
        if (kind != EDGE_message) {
            if (mesh_group(f->mesh, r, axes) == r) add_group(f, e, r, runs, to, path, arena);
            continue;
        }
        Rank peer;
        if (!fold_peer(f->mesh, r, axes, hop, &peer)) continue;
        uint32_t from = fold_node_of(f, r), there = fold_node_of(f, peer);
        e->first[r] = e->edges.n;
        if (from != there) add_path(f, e, from, there, 1, path, arena);
        e->n[r] = e->edges.n - e->first[r];
    }
    arena_free(scratch);
}

static void add_colour(Colour *sum, Colour c, uint64_t of, uint64_t count)
{
    Colour more = colour_chain(c, colour_of(of, count));
    sum->a += more.a;
    sum->b += more.b;
}

void fold_colour_links(const Fold *f, const Colour *rank, Colour *link)
{
    for (uint32_t i = 0; i < f->routes->n_links; i++) {
        uint64_t rate = (uint64_t)routes_bytes_per_s(f->routes, i);
        link[i] = colour_of(rate, rate);
    }
    for (uint32_t i = 0; i < f->edges.n; i++) {
        const FoldEdges *e = &f->edges.at[i];
        for (Rank r = 0; r < f->n_ranks; r++) {
            for (uint32_t k = 0; k < e->n[r]; k++) {
                const FoldEdge *edge = &e->edges.at[e->first[r] + k];
                add_colour(&link[edge->link], rank[r], i, edge->count);
            }
        }
    }
}

void fold_chain_links(const Fold *f, const Colour *link, Colour *next)
{
    for (uint32_t i = 0; i < f->edges.n; i++) {
        const FoldEdges *e = &f->edges.at[i];
        for (Rank r = 0; r < f->n_ranks; r++) {
            Colour sum = {0, 0};
            for (uint32_t k = 0; k < e->n[r]; k++) {
                const FoldEdge *edge = &e->edges.at[e->first[r] + k];
                add_colour(&sum, link[edge->link], i, edge->count);
            }
            next[r] = colour_chain(next[r], sum);
        }
    }
}

void fold_number_links(Fold *f, const Colour *colour, Arena *arena)
{
    Arena *scratch = arena_new();
    uint32_t room = 16, n_links = f->routes->n_links;
    while (room < 4 * (uint64_t)n_links) room *= 2;
    uint8_t *used = arena_array(scratch, n_links, sizeof *used);
    uint32_t *table = arena_array(scratch, room, sizeof *table); /* 1 + the first link of each
                                                                    colour */
    f->link_of = arena_array(arena, n_links, sizeof *f->link_of);
    for (uint32_t i = 0; i < f->edges.n; i++)
        for (uint32_t k = 0; k < f->edges.at[i].edges.n; k++)
            used[f->edges.at[i].edges.at[k].link] = 1;
    for (uint32_t i = 0; i < n_links; i++) {
        if (!used[i]) continue;
        if (colour != NULL) {
            uint32_t at = (uint32_t)colour[i].a & (room - 1);
            while (table[at] != 0 && !colour_same(colour[table[at] - 1], colour[i]))
                at = (at + 1) & (room - 1);
            if (table[at] != 0) continue;
            table[at] = i + 1;
        }
        f->link_of[f->n_link_classes++] = i;
    }
    arena_free(scratch);
}
