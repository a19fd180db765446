/* The large buffers of a program ("rocks"). Their offsets are chosen before the offsets of all
 * other buffers. */
#ifndef TANDEM_LOWER_ROCKS_H
#define TANDEM_LOWER_ROCKS_H

#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/lives.h"

typedef struct Rock {
    /* one buffer, or the first and the last of a chain of buffers that share memory in place */
    BufferId first, last;
    uint64_t offset, size;
    Pc begins;       /* the first pc of the kernel that touches `first` */
    Knowledge knows; /* the instructions that are known to have finished at that pc */
    End end;         /* the end of `last` */
} Rock;

typedef struct Rocks {
    const Lives *l;
    LIST(Rock) list; /* in the order in which the rocks begin */
    uint32_t *of;    /* [buffer]: 1 + its rock; 0: none */
    uint32_t next;   /* the first rock that has not begun yet */
    uint32_t *order; /* [rock]: its index in `sorted` */
    Extent *sorted;  /* the bytes of all rocks, sorted by offset */
    LIST(Extent) ahead;
} Rocks;

/* Says which buffers become rocks. */
typedef struct RocksWanted {
    uint64_t least;          /* bytes */
    uint32_t n_microbatches; /* a rock must begin in one of the first n_microbatches
                                micro-batches, */
    uint32_t full;           /* or in one of n_microbatches micro-batches from this one on */
    /* [pc]: number of instructions up to pc at which memory is nearly full. Only buffers that are
     * in use at such an instruction count; NULL: all count */
    const uint32_t *tight;
    const uint64_t *placed; /* [buffer]: not 0 if it has an offset already; NULL: none has */
} RocksWanted;

/* Places the wanted buffers, the largest first. Returns false if there are none or too many. */
bool rocks_find(Rocks *r, const Lives *l, const RocksWanted *wanted, uint64_t bottom);
static inline uint64_t rocks_offset(const Rocks *r, BufferId b)
{
    return r->list.at[r->of[b] - 1].offset;
}
/* Fills `ahead` with the bytes of the rocks that begin after `b` begins and before `b` has
 * certainly ended, sorted by offset. Callers must ask in the order in which buffers begin. */
void rocks_ahead(Rocks *r, BufferId b);

#endif
