/* Strided deals: the rows of a part are not contiguous. The dimension is cut into X * n equal
 * pieces: X pieces for each of n parts. Part p has pieces p, p + n, p + 2n and so on.
 *
 * Attention between points at a fixed distance uses this layout, because all points of a window are
 * then on one rank. In the ordinary contiguous layout, part p holds pieces p X to p X + X - 1. To
 * change between the layouts, each rank sends about X / n pieces to each other rank. */
#ifndef TANDEM_IR_STRIDE_H
#define TANDEM_IR_STRIDE_H

#include "planner/ir/layout/layout.h"

typedef struct Strides {
    uint32_t n_parts, part;
    int64_t pieces; /* the number of pieces of each part */
    int64_t rows;   /* the number of rows of each piece */
    int64_t most;   /* the number of pieces in one message: the most that any two parts exchange */
    bool to_rows;   /* true: from strided pieces to contiguous rows; false: the other direction */
} Strides;

/* Makes a deal with `pieces` pieces for each part. Returns 0 for one piece, which is the equal
 * deal. */
DealId deal_strided(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t pieces);
static inline bool deal_is_strided(const Deals *deals, DealId id)
{
    return id && deals->deals.at[id].kind == DEAL_strided;
}
/* Computes the pieces of part `part`. Returns false if the deal is not strided. */
bool strides_find(const Deals *deals, DealId id, uint32_t part, Strides *out);

/* Returns the first piece that is contiguous on part `of_rows` and strided on part `of_strides`.
 * The next such pieces follow at distance n_parts. */
static inline int64_t strides_first(const Strides *s, int64_t of_rows, int64_t of_strides)
{
    const int64_t lo = of_rows * s->pieces, n = s->n_parts;
    return lo + ((of_strides - lo) % n + n) % n;
}
/* Returns the position of a piece in its contiguous part, or in its strided part. */
static inline int64_t strides_place(const Strides *s, int64_t piece, bool in_rows)
{
    return in_rows ? piece % s->pieces : piece / s->n_parts;
}

#endif
