/* Halos: where the parts of a split dimension lie, and which rows each part reads. A part's other
 * rows come from its two neighbours, never from farther away. */
#ifndef TANDEM_IR_HALO_H
#define TANDEM_IR_HALO_H

#include "planner/ir/layout/layout.h"

/* One part. Rows count in the global index. In a periodic dimension, rows beyond the edges have
 * indices below 0 or above the size. */
typedef struct Halo {
    Interval own;          /* rows that the part owns */
    Interval held;         /* rows that the part holds, including its halo */
    int64_t before, after; /* halo rows that the previous and the next part own */
    /* The numbers of own rows that the neighbours hold as halo: the next part holds so many of the
     * last rows, the previous part so many of the first. */
    int64_t to_next, to_previous;
    int64_t strip; /* rows of each of the two messages: the most that any part needs */
    bool wraps;    /* the first and the last part are neighbours */
} Halo;

/* Makes a deal of kind DEAL_halo (each part holds copies) or DEAL_overlap (each part holds its
 * share of a sum) from the interval of each part. Intervals may lie beyond the edges if the
 * dimension is periodic. */
DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held);
static inline bool deal_is_around(const Deals *deals, DealId id)
{
    const DealKind kind = deals->deals.at[id].kind;
    return id && (kind == DEAL_halo || kind == DEAL_overlap);
}
/* Computes part `part` of a dimension cut into equal parts (the last may be short), in the form
 * that `around` gives. Returns false if a part needs rows from beyond its neighbours. */
bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *out);
/* Returns the dimension of `s` that has a halo or an overlap over `axes`; -1: none. */
int halo_dim(const Shape *s, const Deals *deals, AxisSet axes);

#endif
