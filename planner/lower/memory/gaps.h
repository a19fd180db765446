/* The free ranges of an arena while offsets are chosen. Offsets and sizes are in bytes. */
#ifndef TANDEM_LOWER_GAPS_H
#define TANDEM_LOWER_GAPS_H

#include "planner/lower/clock.h"

/* Bytes [offset, offset + size), which may be used again after `end`. */
typedef struct Gap {
    uint64_t offset, size;
    End end;
} Gap;

typedef struct Extent {
    uint64_t lo, hi;
} Extent;

typedef struct Gaps {
    Arena *arena;
    LIST(Gap) list; /* sorted by offset */
    /* If there are more gaps than this, gaps_give joins some. UINT32_MAX: only gaps_compact joins
     * gaps. */
    uint32_t many;
    uint64_t top; /* the end of the highest byte that was ever used */
} Gaps;

/* Rounds up to a multiple of 256, because all offsets are multiples of 256. */
static inline uint64_t gaps_round(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
/* Returns the lowest offset from `start` on at which `size` bytes overlap none of `others`, which
 * are sorted by offset. */
uint64_t extents_clear(const Extent *others, uint32_t n, uint64_t start, uint64_t size);

/* Frees all bytes from `bottom` on, and forgets earlier gaps. */
void gaps_init(Gaps *m, uint64_t bottom, Arena *arena);
/* Takes `size` bytes at the lowest offset that is free at `now`, and returns the offset. The bytes
 * must not overlap the ranges in `others`, which later calls will take. The arena grows if no gap
 * is large enough. */
uint64_t gaps_take(Gaps *m, uint64_t size, const Knowledge *now, const Extent *others, uint32_t n);
/* Takes `size` bytes from the smallest gap that is large enough and free at `now`, and returns
 * their offset. */
uint64_t gaps_take_tightest(Gaps *m, uint64_t size, const Knowledge *now);
/* Takes bytes [offset, offset + size). Returns false if they are not free at `now`. */
bool gaps_take_at(Gaps *m, uint64_t offset, uint64_t size, const Knowledge *now);
/* Gives bytes back, which may be used again after `end`. The clock to which `end` points must stay
 * valid. */
void gaps_give(Gaps *m, uint64_t offset, uint64_t size, End end, const Knowledge *now);
/* Joins adjacent gaps that are all free at `now`, so that the list stays short. */
void gaps_compact(Gaps *m, const Knowledge *now);

#endif
