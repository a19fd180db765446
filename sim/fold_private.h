/* Declarations that only the files of folding use. */
#ifndef TANDEM_SIM_FOLD_PRIVATE_H
#define TANDEM_SIM_FOLD_PRIVATE_H

#include "sim/fold.h"

typedef struct Colour {
    uint64_t a, b;
} Colour;

static inline uint64_t colour_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline Colour colour_of(uint64_t a, uint64_t b)
{
    return (Colour){colour_mix(a + UINT64_C(0x9e3779b97f4a7c15)),
                    colour_mix(b + UINT64_C(0xd1b54a32d192ed03))};
}

/* Combines two colours; their order matters. */
static inline Colour colour_chain(Colour into, Colour c)
{
    return (Colour){colour_mix(into.a * 3 + c.a), colour_mix(into.b * 5 + c.b)};
}

static inline bool colour_same(Colour x, Colour y)
{
    return x.a == y.a && x.b == y.b;
}

static inline uint32_t fold_node_of(const Fold *f, Rank rank)
{
    return f->devices_per_node == 0 ? 0 : rank / f->devices_per_node;
}

static inline uint32_t fold_pod_of(const Fold *f, Rank rank)
{
    return f->nodes_per_pod == 0 ? 0 : fold_node_of(f, rank) / f->nodes_per_pod;
}

/* Returns the NIC of a rank. The devices of a node share its NICs in order: with 8 devices and 4
 * NICs, neighbours use one NIC in pairs. */
static inline uint32_t fold_nic_of(const Fold *f, Rank rank)
{
    if (f->devices_per_node == 0) return 0;
    uint32_t per_node = f->nics_per_node;
    if (per_node == 0) per_node = 1;
    if (per_node > f->devices_per_node) per_node = f->devices_per_node;
    uint32_t local = rank % f->devices_per_node;
    return fold_node_of(f, rank) * per_node + local * per_node / f->devices_per_node;
}

/* ---- fold_groups.c ---- */

/* Sets leader[rank] to the smallest rank of its group along `axes`, for all ranks. */
void fold_leaders(const Fold *f, AxisSet axes, Rank *leader);
/* True if moving every rank by one along axis `a` moves whole nodes and pods, and changes no rank's
 * program. Then ranks that differ only along the axis behave alike, unless their messages differ.
 * program_of: [rank] */
bool fold_repeats(const Fold *f, uint32_t a, const uint32_t *program_of);
/* Fills in how the group of `first` is distributed. g->axes must be set. */
void fold_describe_group(const Fold *f, FoldGroup *g, Rank first, Arena *arena);

/* ---- fold_links.c ---- */

/* Adds the links that the messages of a collective use, or (EDGE_message) messages to the rank that
 * is `hop` steps away. */
void fold_add_edges(Fold *f, EdgeKind kind, AxisSet axes, int32_t hop, Arena *arena);
/* The first function computes the colours of links from the ranks that use them. The second one
 * computes colours of ranks from the links that they use, and combines these into `next`. */
void fold_colour_links(const Fold *f, const Colour *rank, Colour *link);
void fold_chain_links(const Fold *f, const Colour *link, Colour *next);
/* Numbers the classes of links in the order in which they first appear. If `colour` is NULL, each
 * link becomes a class. */
void fold_number_links(Fold *f, const Colour *colour, Arena *arena);

#endif
