/* Free pieces of an arena while its use is being planned. Offsets and sizes are bytes. */
#ifndef TANDEM_LOWER_PIECES_H
#define TANDEM_LOWER_PIECES_H

#include "planner/lower/clock.h"

/* Bytes [offset, offset + size) that nobody may write before `busy` has passed. */
typedef struct Piece {
    uint64_t offset, size;
    uint32_t busy; /* in Pieces.busy; 0: nothing to wait for */
} Piece;

typedef struct Extent {
    uint64_t lo, hi;
} Extent;

typedef struct Pieces {
    Arena *arena;
    LIST(Piece) list; /* by offset */
    LIST(Clock) busy; /* [0] passed */
    uint32_t many;    /* pieces from which on it pays to join some */
    uint64_t top;     /* end of what was ever taken */
} Pieces;

static inline uint64_t pieces_round(uint64_t bytes) /* offsets are multiples of 256 */
{
    return (bytes + 255) / 256 * 256;
}
/* The lowest place for `size` bytes from `start` on that none of `others`, by offset, reaches into.
 */
uint64_t extents_clear(const Extent *others, uint32_t n, uint64_t start, uint64_t size);

/* Everything from `bottom` on is free; what the pieces held before is forgotten. */
void pieces_init(Pieces *m, uint64_t bottom, Arena *arena);
/* Room from the top up to `end` is free too, although nothing was ever placed there. */
void pieces_reach(Pieces *m, uint64_t end);
/* The lowest offset where `size` bytes may be written at `now`, clear of `others` (by offset): what
 * will be taken later. The arena grows if need be. */
uint64_t pieces_take(Pieces *m, uint64_t size, const Clock *now, const Extent *others, uint32_t n);
/* ... in the smallest hole that is large enough; at the upper end of the highest one. */
uint64_t pieces_take_tightest(Pieces *m, uint64_t size, const Clock *now);
uint64_t pieces_take_highest(Pieces *m, uint64_t size, const Clock *now);
/* At a given place; false if it is not free. */
bool pieces_take_at(Pieces *m, uint64_t offset, uint64_t size, const Clock *now);
/* Gives bytes back; who touched them last is `busy`. */
void pieces_give(Pieces *m, uint64_t offset, uint64_t size, const Clock *busy, const Clock *now);

#endif
