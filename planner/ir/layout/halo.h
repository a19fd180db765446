/* Halos: the rows that each part of a split dimension owns, and the rows that it reads. The rows
 * that a part reads but does not own belong to its two neighbours, never to parts farther away. */
#ifndef TANDEM_IR_HALO_H
#define TANDEM_IR_HALO_H

#include "planner/ir/layout/layout.h"

/* One part. Rows count in the global index. In a periodic dimension, rows beyond the edges have
 * indices below 0 or above the size. */
typedef struct Halo {
    Interval own;          /* rows that the part owns */
    Interval held;         /* rows that the part holds, including its halo */
    int64_t before, after; /* halo rows that the previous and the next part own */
    /* The next part holds the last `to_next` own rows as halo; the previous part holds the first
     * `to_previous`. */
    int64_t to_next, to_previous;
    int64_t strip; /* rows of each of the two messages: the most that any part needs */
    bool wraps;    /* the first and the last part are neighbours */
} Halo;

/* Makes a deal of kind DEAL_halo (each part holds copies) or DEAL_overlap (each part holds its
 * share of a sum). held: the interval of each part. Intervals may lie beyond the edges if the
 * dimension is periodic. */
DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held);
static inline bool deal_is_around(const Deals *deals, DealId id)
{
    const DealKind kind = deals->deals.at[id].kind;
    return id && (kind == DEAL_halo || kind == DEAL_overlap);
}
/* Computes the halo of part `part` of a dimension that is cut into equal parts (the last may be
 * short). `around` is the deal of kind DEAL_halo or DEAL_overlap. Returns false if a part needs
 * rows that neither it nor its neighbours own. */
bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *out);
/* Returns the dimension of `s` that has a halo or an overlap over `axes`; -1: none. */
int halo_dim(const Shape *s, const Deals *deals, AxisSet axes);

#endif
