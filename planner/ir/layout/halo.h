/* Halos. If the rows of an image are split over ranks, a rank owns a part of the rows. A
 * convolution at the edge of its part also reads rows of the two neighbours. These rows are the
 * part's halo. For example, part 1 owns rows 4 to 7; a 3 x 3 convolution reads rows 3 to 8, so its
 * halo is rows 3 and 8. A halo never reaches beyond the direct neighbours. */
#ifndef TANDEM_IR_HALO_H
#define TANDEM_IR_HALO_H

#include "planner/ir/layout/layout.h"

/* The halo of one part. Intervals are global row indices. In a periodic dimension (longitude), an
 * index may be negative or exceed the size: row -1 is the last row. */
typedef struct Halo {
    Interval own;          /* rows that the part owns */
    Interval held;         /* rows of the part and its halo */
    int64_t before, after; /* count of halo rows in front of `own` and behind it */
    /* how many of the own rows belong to the halo of the next part, and of the previous part */
    int64_t to_next, to_previous;
    /* rows in each message. All messages have the same size, so it is the widest halo of any
     * part. */
    int64_t strip;
    bool wraps; /* periodic: the first and the last part are also neighbours */
} Halo;

/* Returns a deal in which part i has the rows held[i]; intervals of neighbours overlap. `kind` says
 * what the common rows are. DEAL_halo: copies of a neighbour's rows. DEAL_overlap: summands, as in
 * the gradient of a convolution's input, where both parts contribute to the common rows. In a
 * periodic dimension, an interval may exceed the edges. */
DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held);
static inline bool deal_is_around(const Deals *deals, DealId id)
{
    const DealKind kind = deals->deals.at[id].kind;
    return id && (kind == DEAL_halo || kind == DEAL_overlap);
}
/* Computes the halo of part `part` of a dimension that is split into equal parts (the last may be
 * shorter). `around`, a deal of kind DEAL_halo or DEAL_overlap, says which rows each part needs.
 * Returns false if some part needs rows that its neighbours do not own. */
bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *out);
/* Returns the dimension of `s` that is split over exactly `axes` with a deal of kind DEAL_halo or
 * DEAL_overlap; -1: none. */
int halo_dim(const Shape *s, const Deals *deals, AxisSet axes);

#endif
