/* When the buffers of a program are in use. */
#ifndef TANDEM_LOWER_LIVES_H
#define TANDEM_LOWER_LIVES_H

#include "planner/lower/clock.h"

/* A communication's launch group. */
typedef struct Launch {
    Pc first, newest;
    uint32_t n;
} Launch;

typedef struct Lives {
    Program *p;
    Arena *scratch;
    Clock *clocks;           /* [pc]: newest pc of each stream that has finished when pc starts */
    Clock *touched;          /* [buffer]: newest touch by each stream */
    Launch *launches;        /* [pc]: first; [first]: the rest */
    Pc *kernel, *kernel_end; /* [pc]: the first, the last part of its kernel */
    Space space;             /* the one whose buffers are listed by */
    uint32_t *starts, *next_start; /* [pc], [buffer]: transient buffers by first pc, linked */
    uint32_t *ends, *next_end;     /* the same by last pc; results of the step never end */
} Lives;

/* Sets Buffer.first and last of every buffer. */
void lives_find(Lives *l, Program *p, Arena *scratch);
/* Lists what begins and ends in one space. */
void lives_of_space(Lives *l, Space space);
/* The buffer that dies at pc, as the first input, and whose memory the output `out` takes over; 0:
 * there is none. */
BufferId lives_taken_over(const Lives *l, Pc pc, BufferId out);

static inline Pc lives_first(const Lives *l, BufferId b) /* with all of its kernel */
{
    return l->kernel[l->p->buffers.at[b].first];
}
static inline Pc lives_last(const Lives *l, BufferId b) /* a result's is behind the program */
{
    const Buffer *at = &l->p->buffers.at[b];
    return at->result ? (Pc)l->p->code.n : l->kernel_end[l->kernel[at->last]];
}
/* Has everything that touches `a` finished when pc starts? */
static inline bool lives_passed(const Lives *l, BufferId a, Pc pc)
{
    return !l->p->buffers.at[a].result && clock_passed(&l->touched[a], &l->clocks[pc]);
}

#endif
