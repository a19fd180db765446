/* A map of address ranges: sorted arrays, cut into blocks. A range is found by two binary searches,
 * or at the position where the last look-up of the same address found it. */
#include "planner/verify/value/map.h"

#include <assert.h>
#include <string.h>

static RangeBlock *new_block(RangeMap *m)
{
    if (m->spare.n) return m->spare.at[--m->spare.n];
    RangeBlock *b = arena_alloc(m->arena, sizeof *b);
    b->payload = arena_array(m->arena, RANGE_BLOCK, m->size);
    return b;
}

enum { SEEN_BITS = 9 };

void range_map_init(RangeMap *m, Arena *arena, size_t payload_size)
{
    *m = (RangeMap){.arena = arena, .size = payload_size};
    m->seen = arena_array(arena, 1 << SEEN_BITS, sizeof *m->seen);
    RangeBlock *b = new_block(m);
    b->n = 1;
    list_push(arena, &m->blocks, b);
    list_push(arena, &m->starts, 0);
}

/* Returns the index of the last of n > 0 sorted addresses that is at most `address`; 0 if all are
 * larger. The loop has no branches, because a processor would predict half of them wrongly. */
static uint32_t last_at_most(const uint64_t *at, uint32_t n, uint64_t address)
{
    uint32_t first = 0;
    while (n > 1) {
        const uint32_t half = n / 2;
        first = at[first + half] <= address ? first + half : first;
        n -= half;
    }
    return first;
}

RangeAt range_find(const RangeMap *m, uint64_t address)
{
    RangeAt *seen = &m->seen[(address * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - SEEN_BITS)];
    if (seen->block < m->blocks.n && seen->i < m->blocks.at[seen->block]->n &&
        m->blocks.at[seen->block]->lo[seen->i] == address)
        return *seen;
    const uint32_t block = last_at_most(m->starts.at, m->starts.n, address);
    const RangeBlock *b = m->blocks.at[block];
    *seen = (RangeAt){block, last_at_most(b->lo, b->n, address)};
    return *seen;
}

/* Inserts block b at index `at` of the list. */
static void insert_block(RangeMap *m, uint32_t at, RangeBlock *b)
{
    list_push(m->arena, &m->blocks, b);
    memmove(m->blocks.at + at + 1, m->blocks.at + at,
            (m->blocks.n - 1 - at) * sizeof *m->blocks.at);
    m->blocks.at[at] = b;
    list_push(m->arena, &m->starts, 0);
    memmove(m->starts.at + at + 1, m->starts.at + at,
            (m->starts.n - 1 - at) * sizeof *m->starts.at);
    m->starts.at[at] = b->lo[0];
}

static void copy_ranges(const RangeMap *m, RangeBlock *to, uint32_t i, const RangeBlock *from,
                        uint32_t k, uint32_t n)
{
    memmove(to->lo + i, from->lo + k, n * sizeof *to->lo);
    memmove(to->payload + i * m->size, from->payload + k * m->size, n * m->size);
}

RangeAt range_split(RangeMap *m, uint64_t address)
{
    RangeAt at = range_find(m, address);
    RangeBlock *b = m->blocks.at[at.block];
    if (b->lo[at.i] == address) return at;
    if (b->n == RANGE_BLOCK) {
        RangeBlock *upper = new_block(m);
        upper->n = RANGE_BLOCK / 2;
        b->n = RANGE_BLOCK - upper->n;
        copy_ranges(m, upper, 0, b, b->n, upper->n);
        insert_block(m, at.block + 1, upper);
        if (at.i >= b->n) at = (RangeAt){at.block + 1, at.i - b->n};
        b = m->blocks.at[at.block];
    }
    copy_ranges(m, b, at.i + 1, b, at.i, b->n - at.i);
    b->n++;
    b->lo[at.i + 1] = address;
    return (RangeAt){at.block, at.i + 1};
}

static void remove_block(RangeMap *m, uint32_t at)
{
    list_push(m->arena, &m->spare, m->blocks.at[at]);
    m->blocks.n--;
    memmove(m->blocks.at + at, m->blocks.at + at + 1, (m->blocks.n - at) * sizeof *m->blocks.at);
    m->starts.n--;
    memmove(m->starts.at + at, m->starts.at + at + 1, (m->starts.n - at) * sizeof *m->starts.at);
}

RangeAt range_cut(RangeMap *m, uint64_t lo, uint64_t hi)
{
    assert(lo < hi);
    RangeAt at = range_find(m, lo);
    if (range_lo(m, at) == lo && range_hi(m, at) == hi) return at;
    range_split(m, hi);
    return range_split(m, lo);
}

/* Assigns to ranges of one block. Returns false if they reach into the next block, or if the block
 * has no room. */
static bool assign_within(RangeMap *m, uint64_t lo, uint64_t hi, const void *payload)
{
    const RangeAt at = range_find(m, lo);
    RangeBlock *b = m->blocks.at[at.block];
    uint32_t end = at.i + 1; /* after the last range that [lo, hi) touches */
    while (end < b->n && b->lo[end] < hi) end++;
    const uint64_t old_hi = range_hi(m, (RangeAt){at.block, end - 1});
    const bool left = b->lo[at.i]<lo, right = old_hi> hi; /* parts of old ranges that stay */
    const uint32_t i = at.i + left, next = i + 1 + right;
    if (old_hi < hi || b->n - end + next > RANGE_BLOCK) return false;
    if (next > end) copy_ranges(m, b, next, b, end, b->n - end);
    if (right) {
        if (i + 1 != end - 1) copy_ranges(m, b, i + 1, b, end - 1, 1);
        b->lo[i + 1] = hi;
    }
    if (next < end) copy_ranges(m, b, next, b, end, b->n - end);
    b->n = b->n - end + next;
    b->lo[i] = lo;
    memcpy(b->payload + i * m->size, payload, m->size);
    return true;
}

void range_assign(RangeMap *m, uint64_t lo, uint64_t hi, const void *payload)
{
    if (assign_within(m, lo, hi, payload)) return;
    RangeAt at = range_cut(m, lo, hi);
    memcpy(range_payload(m, at), payload, m->size);
    if (range_hi(m, at) == hi) return;
    RangeAt next = {at.block, at.i + 1};
    for (;;) {
        if (next.block < m->blocks.n && next.i == m->blocks.at[next.block]->n)
            next = (RangeAt){next.block + 1, 0};
        if (next.block == m->blocks.n) return;
        RangeBlock *b = m->blocks.at[next.block];
        uint32_t end = next.i;
        while (end < b->n && b->lo[end] < hi) end++;
        if (end == next.i) return;
        copy_ranges(m, b, next.i, b, end, b->n - end);
        b->n -= end - next.i;
        if (next.i == 0 && b->n > 0) m->starts.at[next.block] = b->lo[0];
        if (b->n == 0)
            remove_block(m, next.block);
        else if (next.i < b->n)
            return;
    }
}
