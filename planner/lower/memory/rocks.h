/* The large buffers of a program ("rocks"), whose places are fixed before those of all other
 * buffers. */
#ifndef TANDEM_LOWER_ROCKS_H
#define TANDEM_LOWER_ROCKS_H

#include "planner/lower/memory/lives.h"
#include "planner/lower/pieces.h"

typedef struct Rock {
    /* one buffer, or the first and the last of a chain of buffers that share memory in place */
    BufferId first, last;
    uint64_t offset, size;
    Pc begins;       /* the first pc of the kernel that touches `first` */
    Knowledge knows; /* of that pc */
    End end;         /* of `last` */
} Rock;

typedef struct Rocks {
    const Lives *l;
    LIST(Rock) list; /* in the order in which the rocks begin */
    uint32_t *of;    /* [buffer]: 1 + its rock; 0: none */
    uint32_t next;   /* the first rock that has not begun yet */
    uint32_t *order; /* [rock]: its number by offset */
    Extent *sorted;  /* [number] */
    LIST(Extent) ahead;
} Rocks;

/* The buffers whose places are fixed first. */
typedef struct RocksWanted {
    uint64_t least;          /* bytes */
    uint32_t n_microbatches; /* they begin in the first ones */
    const uint32_t *tight;   /* [pc]: instructions so far at which memory is nearly full. Only
                                buffers that live at one of them count; NULL: all count */
} RocksWanted;

/* Places such buffers, the largest first. Returns false if there are none or too many. */
bool rocks_find(Rocks *r, const Lives *l, const RocksWanted *wanted, uint64_t bottom);
static inline uint64_t rocks_offset(const Rocks *r, BufferId b)
{
    return r->list.at[r->of[b] - 1].offset;
}
/* Fills `ahead` with the places, by offset, of rocks that begin after `b` does and before `b` has
 * surely ended. Callers must ask in the order in which buffers begin. */
void rocks_ahead(Rocks *r, BufferId b);

#endif
