/* Declarations that only the files of folding share. */
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

/* Combines two colours. The order of the two matters. */
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
/* Adds the links of a collective's messages, or of messages to the rank `hop` places away
 * (EDGE_message). */
void fold_add_edges(Fold *f, EdgeKind kind, AxisSet axes, int32_t hop, Arena *arena);
/* Computes the colours of links from the ranks that use them. Then computes the colours of ranks
 * from the links that they use, and writes them to `next`. */
void fold_colour_links(const Fold *f, const Colour *rank, Colour *link);
void fold_chain_links(const Fold *f, const Colour *link, Colour *next);
/* Numbers the classes of links in the order of their first appearance. If `colour` is NULL, each
 * link is a class of its own. */
void fold_number_links(Fold *f, const Colour *colour, Arena *arena);

#endif
