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

/* ---- fold_links.c ---- */

uint32_t fold_node_of(const Fold *f, Rank rank);
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
