/* Results that the proof of values keeps for one program, so that it computes them once. */
#ifndef TANDEM_VERIFY_CACHE_H
#define TANDEM_VERIFY_CACHE_H

#include "planner/verify/value/value.h"

/* The value that was read from a buffer, and the number of changes of its root at that time. */
typedef struct KnownRead {
    Val val;
    uint32_t changes;
} KnownRead;

struct ValueCache {
    /* [group of twins]: true if one of the twins has passed all checks of op.c, so that the others
     * may skip most of them (is_plain in op.c); NULL: checks skip no twins */
    bool *plain;
    uint32_t *changes; /* [root buffer]: count of writes to it so far */
    uint32_t *read_of; /* [buffer]: index of its entry in `reads`; 0: it was not read yet */
    LIST(KnownRead) reads;
};

/* Returns the value that an earlier instruction read from buffer b, if it is still there; else
 * NULL. Like values of whole buffers (whole.c), it counts only if the program has no races. */
const Val *value_known(const Verifier *v, Pc pc, BufferId b);
/* Remembers the value that instruction pc has read from buffer b. */
void value_remember(Verifier *v, Pc pc, BufferId b, const Val *val);

#endif
