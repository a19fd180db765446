/* A hash table for the records of a list. A hit is compared with the record itself, so the table
 * never returns a wrong record. If a record is changed after it was entered, a later search may
 * fail to find it. */
#include "planner/base/intern.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

/* Returns a hash of the `size` bytes of a record. Every other 8-byte word goes into `a`, the others
 * into `b`, so that the processor can overlap the multiplications. The hash is never written to a
 * file, so it may be simple. */
static uint32_t hash_of(const void *value, size_t size)
{
    static const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15);
    if (size % 8 != 0) return (uint32_t)hash_bytes(value, size).lo;
    uint64_t a = size, b = odd;
    if (size % 16 != 0) memcpy(&a, (const char *)value + size - 8, sizeof a);
    for (size_t i = 0; i + 16 <= size; i += 16) {
        uint64_t word[2];
        memcpy(word, (const char *)value + i, sizeof word);
        a = (a ^ word[0]) * odd;
        b = (b ^ word[1]) * odd;
        a ^= a >> 29;
        b ^= b >> 31;
    }
    const uint64_t both = (a ^ (b << 32 | b >> 32)) * odd;
    return (uint32_t)(both >> 32);
}

static void enter(Intern *t, const char *items, uint32_t index, size_t size)
{
    uint32_t mask = t->room - 1;
    for (uint32_t i = hash_of(items + (size_t)index * size, size) & mask;; i = (i + 1) & mask) {
        if (t->slot[i]) continue;
        t->slot[i] = index + 1;
        return;
    }
}

static void make_room(Intern *t, Arena *arena, const char *items, uint32_t n_items, size_t size)
{
    if ((uint64_t)n_items * 2 <= t->room) return;
    uint32_t room = t->room ? t->room : 32;
    while (room < (uint64_t)n_items * 2) room *= 2;
    t->slot = arena_array(arena, room, sizeof *t->slot);
    t->room = room;
    uint32_t n = t->n;
    for (t->n = 0; t->n < n; t->n++) enter(t, items, t->n, size);
}

uint32_t intern_find(Intern *t, Arena *arena, const void *items, uint32_t n_items, size_t size,
                     const void *value)
{
    assert(n_items < UINT32_MAX / 4);
    make_room(t, arena, items, n_items + 1, size);
    for (; t->n < n_items; t->n++) enter(t, items, t->n, size);
    uint32_t mask = t->room - 1;
    for (uint32_t i = hash_of(value, size) & mask;; i = (i + 1) & mask) {
        if (!t->slot[i]) return UINT32_MAX;
        uint32_t index = t->slot[i] - 1;
        if (index < n_items && memcmp((const char *)items + (size_t)index * size, value, size) == 0)
            return index;
    }
}
