/* A hash index beside a list. Each entry is checked against the list. If somebody changed a plan by
 * hand, the index can miss a match but cannot return a wrong one. */
#include "planner/base/intern.h"

#include <assert.h>
#include <string.h>

#include "planner/base/str.h"

static void enter(Intern *t, const char *items, uint32_t index, size_t size)
{
    uint64_t hash = hash_bytes(items + (size_t)index * size, size).lo;
    uint32_t mask = t->room - 1;
    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
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
    for (uint32_t i = (uint32_t)hash_bytes(value, size).lo & mask;; i = (i + 1) & mask) {
        if (!t->slot[i]) return UINT32_MAX;
        uint32_t index = t->slot[i] - 1;
        if (index < n_items && memcmp((const char *)items + (size_t)index * size, value, size) == 0)
            return index;
    }
}
