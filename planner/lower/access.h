/* The accesses of streams to buffers, from which the waits of later instructions follow. */
#ifndef TANDEM_LOWER_ACCESS_H
#define TANDEM_LOWER_ACCESS_H

#include "planner/ir/plan.h"

/* The newest access of each stream to a root buffer. Most buffers are used by one or two streams,
 * so two sets of streams say which entries are valid. */
typedef struct Access {
    uint16_t readers, writers; /* bit s: read[s] is valid; written[s] is valid */
    Pc read[STREAM_COUNT], written[STREAM_COUNT];
} Access;
_Static_assert(STREAM_COUNT <= 16, "a set of streams has 16 bits");

/* Marks a buffer as not accessed yet. The entries of `read` and `written` stay
 * undefined. */
static inline void access_clear(Access *a)
{
    a->readers = a->writers = 0;
}

static inline void access_note(Access *a, Stream stream, Pc pc, bool writes)
{
    uint16_t *streams = writes ? &a->writers : &a->readers;
    *streams = (uint16_t)(*streams | 1u << stream);
    (writes ? a->written : a->read)[stream] = pc;
}

#endif
