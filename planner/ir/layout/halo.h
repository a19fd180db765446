/* Halos. A part of a split dimension owns some rows. A window, for example of a convolution, also
 * reads rows of the two neighbouring parts. These rows are the halo. A halo never reaches beyond
 * the direct neighbours. */
#ifndef TANDEM_IR_HALO_H
#define TANDEM_IR_HALO_H

#include "planner/ir/layout/layout.h"

/* The halo of one part. Rows have global indices. In a periodic dimension, an index may be negative
 * or exceed the size. */
typedef struct Halo {
    Interval own;          /* rows of this part */
    Interval held;         /* rows of this part and its halo */
    int64_t before, after; /* halo rows from the previous part and from the next part */
    /* The number of own rows that the next part and the previous part have as their halo. */
    int64_t to_next, to_previous;
    int64_t strip; /* rows in one message; all messages have the largest size that any part needs */
    bool wraps;    /* the first and the last part are neighbours, too */
} Halo;

/* Makes a deal whose parts overlap. DEAL_halo: each part has copies of its neighbours' rows.
 * DEAL_overlap: if several parts have a row, each of them has its own summand of this row. held:
 * the interval of each part. In a periodic dimension, an interval may exceed the edges. */
DealId deal_around(Deals *deals, Arena *arena, DealKind kind, int64_t size, uint32_t n_parts,
                   const Interval *held);
static inline bool deal_is_around(const Deals *deals, DealId id)
{
    const DealKind kind = deals->deals.at[id].kind;
    return id && (kind == DEAL_halo || kind == DEAL_overlap);
}
/* Computes the halo of one part. The dimension is split into equal parts, but the last may be
 * shorter. `around` is a deal of kind DEAL_halo or DEAL_overlap. Returns false if a part needs rows
 * from beyond its neighbours. */
bool halo_find(const Deals *deals, int64_t size, uint32_t n_parts, uint32_t part, DealId around,
               Halo *out);
/* Returns the dimension of `s` that has a halo or an overlap over `axes`; -1 if there is none. */
int halo_dim(const Shape *s, const Deals *deals, AxisSet axes);

#endif
