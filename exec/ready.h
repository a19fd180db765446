/* A program made ready to run: every pointer, size, peer and wait is known before the first step,
 * so that a step does no planning and no allocation. Backends share this; it knows none of them. */
#ifndef TANDEM_EXEC_READY_H
#define TANDEM_EXEC_READY_H

#include "exec/backend.h"

enum { ARENA_ALIGN = 4096, ARENA_SLACK = 4096 }; /* the slack stays poison: nobody writes there */

/* ---- what all ranks of a program share ---- */
typedef struct ProgramInfo {
    const Program *p;
    uint32_t *n_before;      /* [pc] how many instructions must have finished before it starts */
    uint32_t *first;         /* [pc], [n]: where in `then` the list of pc begins */
    Pc *then;                /* those that wait for pc, ascending */
    const Binding **binding; /* [pc] NULL for communications and RESHAPE ops */
    uint64_t *bytes;         /* [pc] what a trace row says */
    uint32_t *n_touches;     /* [buffer] accesses of a root, through views too, in one step */
    bool *passes_on;         /* [buffer] its last user writes its result into the same bytes */
    uint32_t n_instr;        /* instructions are 1..n_instr */
} ProgramInfo;
/* Communications with the same launch start together: each waits for what any of them waits for. */
const ProgramInfo *program_info(const Plan *plan, const Program *p, Arena *arena);

/* ---- one instruction on one rank ---- */
typedef struct Comm {
    OpKind op;
    Reduce reduce;
    DType dtype;
    Stream stream;
    AxisSet axes;
    uint32_t match, launch;
    uint32_t n_members, part; /* of the group; a sender is part 0, its receiver part 1 */
    Rank leader, peer;        /* smallest rank of the group, sender; the receiver (send, recv) */
    char *in, *out;           /* NULL: the receiver has no input, the sender no output */
    uint64_t in_bytes, out_bytes;
} Comm;

typedef struct Ready {
    Kernel kernel; /* NULL for communications */
    KernelArgs *args;
    Comm *comm;
} Ready;

/* ---- a rank: its memory and where it is in the step ---- */
/* What a machine can compute, where it is not this host. */
typedef struct RankMachine {
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
    WorkspaceBytes workspace;
} RankMachine;

typedef struct RankState {
    const Plan *plan;
    const ProgramInfo *info;
    Rank rank;
    bool poison, measure;
    char *device, *host; /* the arenas, of exactly program->bytes and host_bytes */
    void *blocks[2];     /* what they were allocated as */
    uint64_t highest[2]; /* [space]: with poison: end of the highest byte found to be written */
    Ready *at;           /* [pc] */
    const RankMachine *machine;
    /* of the step in progress */
    uint32_t *n_before, *n_touches;
    uint32_t n_left;
    bool not_finite; /* the gradient norm is not: updates are left out */
} RankState;

/* Prepares each instruction for arenas that are there already, r->device and r->host. machine NULL,
 * and instructions of the host stream and of OP_batch: the CPU's kernels. Reports backend-dtype,
 * exec-program. */
bool rank_prepare(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
                  const Control *control, const RankMachine *machine, Arena *arena, Diag *d);
/* Allocates the arenas (poisoned with poison or measure, or zero) and prepares each instruction.
 * Reports backend-dtype, exec-program, exec-memory. */
bool rank_open(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
               const Control *control, const BackendOptions *options, Arena *arena, Diag *d);
void rank_close(RankState *r);
char *rank_memory(const RankState *r, BufferId b); /* of any buffer, views too */
/* Before a step: every instruction waits again. */
void rank_begin(RankState *r);
/* Runs a local instruction. */
void rank_compute(RankState *r, Pc pc);
/* `pc` has finished: writes the instructions that may start now to `next` (room for n_instr),
 * ascending, and returns how many. Poisons buffers that nobody will use again. */
uint32_t rank_finish(RankState *r, Pc pc, Pc *next);
/* The instructions that may start at once. */
uint32_t rank_starters(const RankState *r, Pc *next);
/* After a step, with poison: whether something was written beyond the arena (arena-overrun), and
 * how high. */
bool rank_inspect(RankState *r, Diag *d);
/* After the last step: end of the highest byte that was written, with poison or measure; else 0. */
uint64_t rank_highest(const RankState *r, Space space);
/* Of the outputs of pc (NULL: none): the first number that is not finite. */
bool rank_find_bad(const RankState *r, Pc pc, BadNumber *bad);
/* "instruction 12 (compute matmul ...)", in `arena`. */
const char *instr_text(const Plan *plan, const Program *p, Pc pc, Arena *arena);
/* The script's place of an instruction's origin, or nowhere. */
Loc instr_loc(const Plan *plan, const Instr *in);
/* The stuck instruction of a stream, its head: the first that has not finished; 0: all have. */
Pc rank_head(const RankState *r, Stream stream, const bool *finished);

/* ---- collective.c ---- */
/* out [n] = part[0] + part[1] + ... (or their maximum), in that order; `out` may be one of them.
 * Sums of a low-precision type are fp32 and rounded once, at the end: one rounding a collective,
 * however many ranks there are. */
void reduce_in_order(DType dtype, Reduce reduce, void *out, const void *const *part,
                     uint32_t n_parts, uint64_t n);
/* Carries out a communication of which all members (in order of their parts) are here. */
void collective_move(const Comm *const *member, uint32_t n_members);

/* ---- poison.c ---- 8 bytes that are NaNs as f64, f32, f16 and bf16 */
void poison_fill(void *at, uint64_t bytes);
/* End of the last byte of [at + lo, at + hi) that is not poison; lo if there is none. at: aligned
 * to 8. */
uint64_t poison_end(const void *at, uint64_t lo, uint64_t hi);

#endif
