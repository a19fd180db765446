/* See group_place.h. The members of a group, in ascending order, form rows of ranks at equal
 * distances. Most rows fill whole nodes or have one member on each node, so their nodes are counted
 * without visiting the members. */
#include "sim/memory/group_place.h"

#include <assert.h>

/* A row of ranks: first, first + stride, first + 2 * stride, ... */
typedef struct MemberRow {
    Rank first;
    uint32_t stride, n;
} MemberRow;

typedef struct NodeCounter {
    GroupPlace *place;
    uint32_t per_node, own, last; /* own: the node of the rank. last: the newest node. */
} NodeCounter;

static void add_member(NodeCounter *c, Rank member)
{
    const uint32_t node = c->per_node == 0 ? 0 : member / c->per_node;
    c->place->n_nodes += node != c->last;
    c->place->here += node == c->own;
    c->last = node;
}

/* Adds n nodes, the first of which is `node`. The next one is `step` nodes away. Each has `members`
 * members. */
static void add_nodes(NodeCounter *c, uint32_t node, uint32_t step, uint32_t n, uint32_t members)
{
    c->place->n_nodes += n - (node == c->last);
    if (c->own >= node && (c->own - node) % step == 0 && (c->own - node) / step < n)
        c->place->here += members;
    c->last = node + (n - 1) * step;
}

static void add_row(NodeCounter *c, MemberRow row)
{
    const uint32_t per_node = c->per_node;
    if (per_node > 0 && row.stride % per_node == 0) {
        add_nodes(c, row.first / per_node, row.stride / per_node, row.n, 1);
    } else if (per_node > 0 && per_node % row.stride == 0 && row.n % (per_node / row.stride) == 0) {
        assert(row.first % per_node < row.stride); /* a row of a mesh begins with a node */
        const uint32_t members = per_node / row.stride;
        add_nodes(c, row.first / per_node, 1, row.n / members, members);
    } else {
        for (uint32_t k = 0; k < row.n; k++) add_member(c, row.first + k * row.stride);
    }
}

/* Returns the longest row that consists of whole axes, and removes these axes from *axes. */
static MemberRow take_row(const Mesh *mesh, AxisSet *axes)
{
    MemberRow row = {0, 0, 1};
    for (bool grows = true; grows;) {
        uint32_t next = MAX_AXES; /* the axis with the smallest stride */
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (*axes >> a & 1 &&
                (next == MAX_AXES || mesh->axis[a].stride < mesh->axis[next].stride))
                next = a;
        grows =
            next != MAX_AXES && (row.stride == 0 || mesh->axis[next].stride == row.n * row.stride);
        if (!grows) continue;
        if (row.stride == 0) row.stride = mesh->axis[next].stride;
        row.n *= mesh->axis[next].size;
        *axes = (AxisSet)(*axes & ~(1u << next));
    }
    if (row.stride == 0) row.stride = 1;
    return row;
}

GroupPlace group_place(const Mesh *mesh, Rank rank, uint32_t devices_per_node, AxisSet axes)
{
    GroupPlace place = {.axes = axes, .n_ranks = mesh_size(mesh, axes)};
    NodeCounter c = {.place = &place, .per_node = devices_per_node, .last = UINT32_MAX};
    c.own = devices_per_node == 0 ? 0 : rank / devices_per_node;
    AxisSet others = axes;
    MemberRow row = take_row(mesh, &others);
    row.first = mesh_group(mesh, rank, axes);
    for (uint32_t i = 0; i < place.n_ranks; i += row.n) {
        add_row(&c, row);
        row.first = mesh_next(mesh, row.first, others);
    }
    return place;
}
