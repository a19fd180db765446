/* Leaves out the middle micro-batches of a program. They repeat the micro-batch before them, so its
 * offsets serve all of them. */
#ifndef TANDEM_LOWER_SHORTER_H
#define TANDEM_LOWER_SHORTER_H

#include "planner/ir/plan.h"
#include "planner/lower/memory/placement.h"

/* The number of micro-batches that a short program keeps: the first ones up to PLACEMENT_SETTLED,
 * and the last. session_fewer compiles a step with this number of micro-batches. */
enum { SHORTER_MICROBATCHES = PLACEMENT_SETTLED + 2 };

typedef struct ShortProgram {
    Program program;
    /* [buffer of the long program]: its counterpart in the short one; 0: it has none, because no
     * instruction uses it */
    BufferId *like;
} ShortProgram;

/* Makes the short program of `p`. Buffer.first must be set. Returns false if `p` has at most
 * SHORTER_MICROBATCHES micro-batches, or if the middle ones do not repeat. */
bool shorter_make(ShortProgram *s, const Program *p, Arena *arena);

#endif
