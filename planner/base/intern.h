/* Interning: storing equal records of a list only once (plan_shape, graph_attrs). An Intern is a
 * hash table from the bytes of a record to its index in the list. It never changes the list. A
 * zeroed Intern is an empty table. It belongs to the first list with which it is used. */
#ifndef TANDEM_BASE_INTERN_H
#define TANDEM_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef struct Intern {
    uint32_t *slot;   /* hash table with open addressing: 1 + the index of a record; 0: free */
    uint32_t n, room; /* `n`: records entered so far; `room`: slots of the table, a power of two */
} Intern;

/* Returns the index of the first of the `n_items` records in `items` whose bytes equal `value`.
 * Returns UINT32_MAX if there is none; the caller then appends `value` to the list. The next call
 * enters appended records by itself. */
uint32_t intern_find(Intern *t, Arena *arena, const void *items, uint32_t n_items, size_t size,
                     const void *value);

#endif
