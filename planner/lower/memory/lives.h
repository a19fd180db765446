/* When each buffer of a program is in use. */
#ifndef TANDEM_LOWER_LIVES_H
#define TANDEM_LOWER_LIVES_H

#include "planner/lower/clock.h"

/* A launch group: communications on one stream that start together (Instr.launch). `first` and
 * `newest` are its first and last member, and n is their number. */
typedef struct Launch {
    Pc first, newest;
    uint32_t n;
} Launch;

typedef struct Lives {
    Program *p;
    Arena *scratch;
    Clock *clocks;      /* [pc]: the newest finished instruction of each stream when pc starts */
    Clock *touched;     /* [buffer]: the newest use by each stream */
    LIST(Pc) steady;    /* the computations outside of launch groups, in order (clock.h) */
    uint32_t *n_steady; /* [pc]: how many instructions of `steady` come before pc */
    End *end;    /* [buffer]: when its last use ends; only for temporary buffers in `space` */
    Clock never; /* a time that never comes; used for a result of the step, whose bytes are
                    not used again */
    /* [pc]: the first member of its launch group. At the first member: the whole group. */
    Launch *launches;
    Pc *kernel, *kernel_end;       /* [pc]: the first and last instruction of its kernel */
    Space space;                   /* the space of the buffers in these lists */
    uint32_t *starts, *next_start; /* lists of temporary buffers by first instruction: starts[pc] is
                                      the first buffer, next_start[buffer] the next one */
    uint32_t *ends, *next_end; /* lists of temporary buffers by last instruction, without results of
                                  the step */
    BufferId *taken_over;      /* [buffer]: the earlier buffer whose memory it uses in place; 0:
                                  none */
    /* [buffer]: the last of the buffers that use its memory in place, one after the other; the
     * buffer itself if there is none */
    BufferId *heir;
} Lives;

/* Sets only Buffer.first and Buffer.last, which suffices for plans whose buffers get no offsets. */
void lives_mark(Program *p);
/* Sets Buffer.first and Buffer.last, and fills all lists of `l`, which the choice of offsets
 * uses. */
void lives_find(Lives *l, Program *p, Arena *scratch);
/* Fills all lists of `l` without changing the program. The program may come from a file. */
void lives_read(Lives *l, const Program *p, Arena *scratch);
/* Lists the buffers of one memory space by their first and last instruction. */
void lives_of_space(Lives *l, Space space);
/* Sets in_use[pc] to the number of bytes in use when pc runs, including `bottom` bytes of
 * persistent buffers. A buffer counts until another buffer takes its bytes, or until its users have
 * certainly finished. Returns the largest in_use. Sets *alive to the largest total size of the
 * buffers that are between their first and last use at the same time. */
uint64_t lives_in_use(const Lives *l, uint64_t bottom, uint64_t *in_use, uint64_t *alive);
/* Returns the buffer whose memory output `out` of instruction pc takes over; 0: none. */
BufferId lives_taken_over(const Lives *l, Pc pc, BufferId out);

/* Returns the first instruction of the kernel that first uses the buffer. */
static inline Pc lives_first(const Lives *l, BufferId b)
{
    return l->kernel[l->p->buffers.at[b].first];
}
/* Returns the last instruction of the kernel that last uses the buffer. For a result it is the end
 * of the program. */
static inline Pc lives_last(const Lives *l, BufferId b)
{
    const Buffer *at = &l->p->buffers.at[b];
    return at->result ? (Pc)l->p->code.n : l->kernel_end[l->kernel[at->last]];
}
/* Returns the instructions that are known to have finished when pc starts. */
static inline Knowledge lives_knows(const Lives *l, Pc pc)
{
    const Instr *in = &l->p->code.at[pc];
    const bool steady = in->stream == STREAM_compute && !in->launch;
    return (Knowledge){&l->clocks[pc], steady ? pc : l->clocks[pc].at[STREAM_compute], steady};
}
/* True if all instructions that use `a` have finished at `now`. `a` is a temporary buffer of
 * l->space. */
static inline bool lives_passed(const Lives *l, BufferId a, const Knowledge *now)
{
    return knows_passed(now, &l->end[a]);
}

#endif
