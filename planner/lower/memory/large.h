/* The large buffers of a program. Their offsets are chosen before those of all other buffers. */
#ifndef TANDEM_LOWER_LARGE_H
#define TANDEM_LOWER_LARGE_H

#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/lives.h"

typedef struct LargeBuffer {
    /* one buffer, or the first and the last of a chain of buffers that share memory in place */
    BufferId first, last;
    uint64_t offset, size;
    Pc begins;       /* the first pc of the kernel that touches `first` */
    Knowledge knows; /* the instructions that are known to have finished at that pc */
    End end;         /* the end of `last` */
} LargeBuffer;

typedef struct LargeBuffers {
    const Lives *l;
    LIST(LargeBuffer) list; /* in the order in which they begin */
    uint32_t *of;           /* [buffer]: 1 + its index in `list`; 0: it is not listed */
    uint32_t next;          /* the first one that has not begun yet */
    uint32_t *order;        /* [index in `list`]: its index in `sorted` */
    Extent *sorted;         /* the bytes of all of them, sorted by offset */
    LIST(Extent) ahead;     /* the result of large_ahead */
    uint64_t *set;          /* a set of indices in `sorted`; empty between calls */
} LargeBuffers;

/* Says which buffers are listed. */
typedef struct LargeWanted {
    uint64_t least; /* the smallest size, in bytes */
    /* A buffer must begin in one of the first n_microbatches micro-batches, or in one of
     * n_microbatches micro-batches from micro-batch `full` on. full = 0: only in one of the
     * first. */
    uint32_t n_microbatches, full;
    /* [pc]: the number of instructions up to pc at which memory is nearly full. Only buffers that
     * are in use at such an instruction count; NULL: all count */
    const uint32_t *tight;
    const uint64_t *placed; /* [buffer]: not 0 if it has an offset already; NULL: none has */
    /* The results of earlier calls. A list that equals one of them is not wanted again. */
    const LargeBuffers *earlier;
    uint32_t n_earlier;
} LargeWanted;

/* Places the wanted buffers, the largest first. Returns false if there are none or too many, or if
 * an earlier call has listed the same buffers. */
bool large_find(LargeBuffers *r, const Lives *l, const LargeWanted *wanted, uint64_t bottom);
static inline uint64_t large_offset(const LargeBuffers *r, BufferId b)
{
    return r->list.at[r->of[b] - 1].offset;
}
/* Fills `ahead` with the bytes of the large buffers that begin after `b` begins and before `b` has
 * certainly ended, sorted by offset. Callers must ask in the order in which buffers begin. */
void large_ahead(LargeBuffers *r, BufferId b);

#endif
