/* Stores a small payload for every byte of memory, addresses 0 to 2^64 - 1. Consecutive bytes with
 * the same payload are one range. Reading or writing [lo, hi) first splits the ranges at lo and hi;
 * writing then makes all of it one range. An access takes logarithmic time, amortised. */
#ifndef TANDEM_VERIFY_MAP_H
#define TANDEM_VERIFY_MAP_H

#include <stdbool.h>

#include "planner/base/list.h"

enum { RANGE_BLOCK = 64 };
typedef struct RangeBlock {
    uint32_t n;
    uint64_t lo[RANGE_BLOCK];
    unsigned char *payload; /* [RANGE_BLOCK * size] */
} RangeBlock;

typedef struct RangeAt {
    uint32_t block, i;
} RangeAt;

typedef struct RangeMap {
    Arena *arena;
    size_t size; /* the number of bytes that are stored for a range */
    LIST(RangeBlock *) blocks;
    LIST(uint64_t) starts; /* [block]: the address at which it begins; searched before blocks */
    LIST(RangeBlock *) spare;
    /* For each hash of an address, the range that the last look-up of such an address found. Ranges
     * move, so it is used only if it still begins at the address. */
    RangeAt *seen;
} RangeMap;

/* Starts the map as one range with payload zero. */
void range_map_init(RangeMap *m, Arena *arena, size_t payload_size);
RangeAt range_find(const RangeMap *m, uint64_t address); /* returns the range with this address */
RangeAt range_split(RangeMap *m, uint64_t address); /* splits the range that contains `address`, and
                                                       returns the range that now begins there */
/* Splits ranges so that one begins at lo and one ends at hi. Returns the range that begins at lo.
 * Most accesses have the bounds of an earlier access, so they split nothing. */
RangeAt range_cut(RangeMap *m, uint64_t lo, uint64_t hi);
/* Makes [lo, hi) one range with this payload. */
void range_assign(RangeMap *m, uint64_t lo, uint64_t hi, const void *payload);
static inline void *range_payload(const RangeMap *m, RangeAt at)
{
    return m->blocks.at[at.block]->payload + at.i * m->size;
}
static inline uint64_t range_lo(const RangeMap *m, RangeAt at)
{
    return m->blocks.at[at.block]->lo[at.i];
}
/* Moves `at` to the next range; returns false at the end. */
static inline bool range_next(const RangeMap *m, RangeAt *at)
{
    if (++at->i < m->blocks.at[at->block]->n) return true;
    at->i = 0;
    return ++at->block < m->blocks.n;
}
static inline uint64_t range_hi(const RangeMap *m, RangeAt at)
{
    return range_next(m, &at) ? range_lo(m, at) : UINT64_MAX;
}

#endif
