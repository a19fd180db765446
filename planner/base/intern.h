/* Finds a record in a list by its bytes, so that equal records are stored only once (plan_shape,
 * graph_attrs). An Intern never changes the list. It is a hash index that makes the search fast. A
 * zeroed Intern is an empty index. Once it is used, it belongs to that list. */
#ifndef TANDEM_BASE_INTERN_H
#define TANDEM_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef struct Intern {
    uint32_t *slot;   /* open addressing: index + 1 of an item; 0: free */
    uint32_t n, room; /* items entered so far; number of slots, a power of two */
} Intern;

/* Returns the index of the first item whose bytes equal `value`, or UINT32_MAX if there is none.
 * The items that were appended since the last call are entered first, so the caller only has to
 * append a missing value to the list. */
uint32_t intern_find(Intern *t, Arena *arena, const void *items, uint32_t n_items, size_t size,
                     const void *value);

#endif
