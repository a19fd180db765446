/* Halos: how the parts of a split dimension and the rows that each part reads lie to each other.
 * Rows beyond a part's own come from its two neighbours, never from farther away. */
#ifndef TANDEM_IR_HALO_H
#define TANDEM_IR_HALO_H

#include "planner/ir/layout/layout.h"

/* One part. Rows count in the global index; behind the edges of a periodic dimension they go on
 * below 0 and above its size. */
typedef struct Halo {
    Interval own;          /* rows that it owns */
    Interval held;         /* rows that it holds with its halo */
    int64_t before, after; /* halo rows, of the previous and of the next part */
    /* The rows of the halos of its neighbours: of its own last ones the next part has so many, of
     * its own first ones the previous part. */
    int64_t to_next, to_previous;
    int64_t strip; /* rows of each of the two messages: the most that any part has */
    bool wraps;    /* the first and the last part are neighbours */
} Halo;

/* A deal of kind DEAL_halo (each part holds copies) or DEAL_overlap (each part holds its share of a
 * sum) by the interval of each part. Intervals may lie beyond the edges if the dimension is
 * periodic. */
DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held);
static inline bool deal_is_around(const Deals *deals, DealId id)
{
    const DealKind kind = deals->deals.at[id].kind;
    return id && (kind == DEAL_halo || kind == DEAL_overlap);
}
/* Part `part` of a dimension in equal parts (the last may be short), in the form that `around`
 * says. False: some part would need rows from beyond its neighbours. */
bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *out);
/* The dimension of `s` that has a halo or an overlap over `axes`; -1: none. */
int halo_dim(const Shape *s, const Deals *deals, AxisSet axes);

#endif
