/* The span of instructions during which each buffer of a program is in use. */
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
    Clock *clocks;      /* [pc]: newest pc of each stream that has finished when pc starts */
    Clock *touched;     /* [buffer]: newest touch by each stream */
    LIST(Pc) steady;    /* the steady instructions (Knowledge), in order */
    uint32_t *n_steady; /* [pc]: number of steady instructions before it */
    End *end;           /* [buffer]: end of the use of a transient buffer of the space */
    Clock never;        /* the end of a result of the step, whose bytes are not reused */
    Launch *launches;   /* [pc]: pc of the first member of its launch group; at that first pc: the
                           whole group */
    Pc *kernel, *kernel_end; /* [pc]: the first and the last part of its kernel */
    Space space;             /* the space of the buffers in the lists below */
    uint32_t *starts,
        *next_start;           /* [pc], [buffer]: linked lists of transient buffers by first pc */
    uint32_t *ends, *next_end; /* the same by last pc; results of the step are in no list */
    BufferId *taken_over;      /* [buffer]: lives_taken_over at its first instruction */
    BufferId *heir; /* [buffer]: end of the chain of buffers that take over its memory; the buffer
                       itself if none does */
} Lives;

/* Sets Buffer.first and last of every buffer, and nothing else: for a plan that is not placed. */
void lives_mark(Program *p);
/* Sets first and last, and fills the other lists of Lives, for placement. */
void lives_find(Lives *l, Program *p, Arena *scratch);
/* Fills the lists of Lives for a program that may come from a file. Neither changes nor checks
 * it. */
void lives_read(Lives *l, const Program *p, Arena *scratch);
/* Lists the buffers of one space that begin and end at each instruction. */
void lives_of_space(Lives *l, Space space);
/* Sets in_use[pc] to the bytes that are in use when pc runs, `bottom` persistent bytes among them.
 * A buffer stays in use until pc reaches an instruction that is sure to run after all users of the
 * buffer, and so may take the bytes of the buffer. Returns the largest in_use. A placement needs
 * fewer bytes only if it gives a stream the bytes of other ended buffers than this function gives.
 * `alive` receives the largest sum of buffers that are between their first and last use. */
uint64_t lives_in_use(const Lives *l, uint64_t bottom, uint64_t *in_use, uint64_t *alive);
/* Returns the buffer whose memory output `out` of instruction pc takes over: the first input, if pc
 * is its last user. 0: none. */
BufferId lives_taken_over(const Lives *l, Pc pc, BufferId out);

/* Returns the first pc of the kernel that touches the buffer first. */
static inline Pc lives_first(const Lives *l, BufferId b)
{
    return l->kernel[l->p->buffers.at[b].first];
}
/* Returns the last pc of the last kernel that touches the buffer; for a result, the end of the
 * program. */
static inline Pc lives_last(const Lives *l, BufferId b)
{
    const Buffer *at = &l->p->buffers.at[b];
    return at->result ? (Pc)l->p->code.n : l->kernel_end[l->kernel[at->last]];
}
/* Returns which instructions are known to have finished when pc starts. */
static inline Knowledge lives_knows(const Lives *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    const bool steady = in->stream == STREAM_compute && !in->launch;
    return (Knowledge){&l->clocks[pc], steady ? pc : l->clocks[pc].at[STREAM_compute], steady};
}
/* True if `now` knows that all instructions that touch `a` have finished. `a` is a transient buffer
 * of l->space. */
static inline bool lives_passed(const Lives *l, BufferId a, const Knowledge *now)
{
    return knows_passed(now, &l->end[a]);
}

#endif
