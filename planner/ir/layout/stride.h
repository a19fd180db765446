/* Strided deals: a part has pieces of rows at equal distances. The dimension is cut into X * n
 * equal pieces, X for each of n parts. Part p has the pieces p, p + n, p + 2n and so on. For
 * example, 12 rows over 2 parts with X = 2 are 4 pieces of 3 rows. Part 0 has pieces 0 and 2 (rows
 * 0-2 and 6-8), part 1 has pieces 1 and 3.
 *
 * Attention between points at a fixed distance uses this layout, because all points of a window are
 * then on one rank. In the ordinary contiguous layout, part p has the pieces p X to p X + X - 1. To
 * change from one layout to the other, each rank sends about X / n pieces to each other rank. */
#ifndef TANDEM_IR_STRIDE_H
#define TANDEM_IR_STRIDE_H

#include "planner/ir/layout/layout.h"

typedef struct Strides {
    uint32_t n_parts, part;
    int64_t pieces; /* X: pieces of each part */
    int64_t rows;   /* rows of each piece */
    /* pieces in each message. All messages have the same size: the most that one part sends to
     * another. */
    int64_t most;
    bool to_rows; /* the direction of the change; true: from strided pieces to contiguous rows */
} Strides;

/* Returns the strided deal with `pieces` pieces (X) for each part. Returns 0, the equal deal, for X
 * = 1. */
DealId deal_strided(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t pieces);
static inline bool deal_is_strided(const Deals *deals, DealId id)
{
    return id && deals->deals.at[id].kind == DEAL_strided;
}
/* Fills *out for part `part`, except `to_rows`. Returns false if the deal is not strided. */
bool strides_find(const Deals *deals, DealId id, uint32_t part, Strides *out);

/* Returns the first piece that part `of_rows` has in the contiguous layout and part `of_strides`
 * has in the strided layout. One of them sends it to the other. Further such pieces follow at
 * distance n_parts. */
static inline int64_t strides_first(const Strides *s, int64_t of_rows, int64_t of_strides)
{
    const int64_t lo = of_rows * s->pieces, n = s->n_parts;
    return lo + ((of_strides - lo) % n + n) % n;
}
/* Returns the place of `piece` among the pieces of the part that has it, in the contiguous layout
 * (in_rows) or in the strided one. */
static inline int64_t strides_place(const Strides *s, int64_t piece, bool in_rows)
{
    return in_rows ? piece % s->pieces : piece / s->n_parts;
}

#endif
