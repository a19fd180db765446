/* Finds equal records in a list by their bytes, for interning (plan_shape, graph_attrs). It is
 * only a faster search over the list, so a zeroed Intern works for any list. */
#ifndef TANDEM_BASE_INTERN_H
#define TANDEM_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef struct Intern {
    uint32_t *slot;   /* open addressing: index + 1 of an item; 0: free */
    uint32_t n, room; /* items entered so far; number of slots, a power of two */
} Intern;

/* Returns the index of the first item whose bytes equal `value`, or UINT32_MAX. It first enters the
 * items added since the last call, so a caller only has to append a missing value to the list. */
uint32_t intern_find(Intern *t, Arena *arena, const void *items, uint32_t n_items, size_t size,
                     const void *value);

#endif
