/* Finds equal records in a list by their bytes: what plan_shape and graph_attrs intern with. It
 * only speeds up the search; the list alone is the truth, so a zeroed Intern fits any list. */
#ifndef TANDEM_IR_INTERN_H
#define TANDEM_IR_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef struct Intern {
    uint32_t *slot;   /* open addressing: index + 1 of an item; 0: free */
    uint32_t n, room; /* items of the list that are entered; slots, a power of two */
} Intern;

/* Index of the first item whose bytes equal `value`, or UINT32_MAX. Enters items added since the
 * last call, so callers just append what was not found. */
uint32_t intern_find(Intern *t, Arena *arena, const void *items, uint32_t n_items, size_t size,
                     const void *value);

#endif
