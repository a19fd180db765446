/* The free bytes of an arena while offsets in the arena are being planned. Offsets and sizes are
 * bytes. */
#ifndef TANDEM_LOWER_PIECES_H
#define TANDEM_LOWER_PIECES_H

#include "planner/lower/clock.h"

/* Bytes [offset, offset + size) that may be written only after `end`. */
typedef struct Piece {
    uint64_t offset, size;
    End end;
} Piece;

typedef struct Extent {
    uint64_t lo, hi;
} Extent;

typedef struct Pieces {
    Arena *arena;
    LIST(Piece) list; /* by offset */
    /* with more pieces than this, pieces_give joins some of them; UINT32_MAX: only pieces_compact
     * does */
    uint32_t many;
    uint64_t top; /* end of the highest bytes that were ever taken */
} Pieces;

/* rounds up to a multiple of 256, as all offsets are */
static inline uint64_t pieces_round(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
/* Returns the lowest place for `size` bytes from `start` on that overlaps none of `others` (sorted
 * by offset). */
uint64_t extents_clear(const Extent *others, uint32_t n, uint64_t start, uint64_t size);

/* Frees everything from `bottom` on and forgets all earlier pieces. */
void pieces_init(Pieces *m, uint64_t bottom, Arena *arena);
/* Takes `size` bytes at the lowest offset at which they may be written at `now`, and returns this
 * offset. The bytes do not overlap `others`: extents, sorted by offset, that later calls will take.
 * The arena grows if necessary. */
uint64_t pieces_take(Pieces *m, uint64_t size, const Knowledge *now, const Extent *others,
                     uint32_t n);
/* Like pieces_take, but takes the bytes from the smallest hole that fits. */
uint64_t pieces_take_tightest(Pieces *m, uint64_t size, const Knowledge *now);
/* Takes the bytes [offset, offset + size). Returns false if they are not free at `now`. */
bool pieces_take_at(Pieces *m, uint64_t offset, uint64_t size, const Knowledge *now);
/* Gives bytes back. The clock of `end` must stay valid. */
void pieces_give(Pieces *m, uint64_t offset, uint64_t size, End end, const Knowledge *now);
/* Keeps the list short: joins adjacent pieces that are all free at `now`. */
void pieces_compact(Pieces *m, const Knowledge *now);

#endif
