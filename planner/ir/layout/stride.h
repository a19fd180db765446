/* Strides: parts whose rows are not contiguous. A dimension of X runs of u rows is cut into X * n
 * equal pieces, where n is the number of parts. Part p has every n-th piece from piece p on: the
 * same u / n rows of each run. Attention between points that are u rows apart then finds all points
 * of a window on one rank. In the contiguous layout, rank p owns other pieces: the X pieces from
 * piece p X on. So every rank sends about X / n of its pieces to each other rank. */
#ifndef TANDEM_IR_STRIDE_H
#define TANDEM_IR_STRIDE_H

#include "planner/ir/layout/layout.h"

typedef struct Strides {
    uint32_t n_parts, part;
    int64_t pieces; /* of each part */
    int64_t rows;   /* of each piece */
    int64_t most;   /* pieces in one message: the most that two parts exchange */
    bool to_rows;   /* true: strided pieces are exchanged for contiguous rows; false: the other way
                     * round */
} Strides;

/* Makes the deal of `pieces` equal pieces for each part. Returns 0 if each part has one piece,
 * because such parts are equal and follow each other. */
DealId deal_strided(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t pieces);
static inline bool deal_is_strided(const Deals *deals, DealId id)
{
    return id && deals->deals.at[id].kind == DEAL_strided;
}
/* Computes the pieces of part `part`. Returns false if the deal has no strides. */
bool strides_find(const Deals *deals, DealId id, uint32_t part, Strides *out);

/* Returns the first piece of the dimension that part `of_rows` owns and part `of_strides` holds.
 * The next such pieces follow every n_parts pieces, up to the last piece that `of_rows` owns. */
static inline int64_t strides_first(const Strides *s, int64_t of_rows, int64_t of_strides)
{
    const int64_t lo = of_rows * s->pieces, n = s->n_parts;
    return lo + ((of_strides - lo) % n + n) % n;
}
/* Returns the position of piece `piece` of the dimension in the part that owns it, or in the part
 * that holds it. */
static inline int64_t strides_place(const Strides *s, int64_t piece, bool in_rows)
{
    return in_rows ? piece % s->pieces : piece / s->n_parts;
}

#endif
