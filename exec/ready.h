/* A program prepared to run. Every pointer, size, peer and wait is computed before the first step,
 * so that a step neither plans nor allocates. All backends share this file, which depends on no
 * backend. */
#ifndef TANDEM_EXEC_READY_H
#define TANDEM_EXEC_READY_H

#include "exec/backend.h"

/* ARENA_SLACK: bytes behind the arena; they stay poison unless a kernel writes beyond the arena's
 * end */
enum { ARENA_ALIGN = 4096, ARENA_SLACK = 4096 };
/* the largest number of ranks in a group whose bytes one process moves */
enum { MAX_MEMBERS = 4096 };

/* ---- facts that all ranks of a program share ---- */
typedef struct ProgramInfo {
    const Program *p;
    uint32_t *n_before; /* [pc] number of instructions that must finish before it starts */
    /* [pc]: start of pc's list in `then`; the list ends where the next one starts */
    uint32_t *first;
    Pc *then;                /* the instructions that wait for pc, ascending */
    const Binding **binding; /* [pc] NULL for communications and RESHAPE ops */
    uint64_t *bytes;         /* [pc] bytes shown in its trace row */
    uint32_t *n_touches;     /* [buffer] accesses to a root in one step, also through views */
    /* [buffer]: true if the last instruction that reads the buffer writes its result into the same
     * bytes */
    bool *passes_on;
    uint32_t n_instr; /* instructions are 1..n_instr */
} ProgramInfo;
/* Prepares a program. Communications with the same launch start together, so each waits for all
 * instructions for which any communication of the launch waits. */
const ProgramInfo *program_info(const Plan *plan, const Program *p, Arena *arena);

/* ---- one instruction on one rank ---- */
typedef struct Comm {
    OpKind op;
    Reduce reduce;
    DType dtype;
    Stream stream;
    AxisSet axes;
    uint32_t match, launch;
    /* size of the group, and this rank's position in it; a sender is part 0, its receiver part 1 */
    uint32_t n_members, part;
    /* leader: smallest rank of the group, or the sender. peer: the receiver (send, recv) */
    Rank leader, peer;
    char *in, *out; /* NULL: the receiver has no input, the sender no output */
    uint64_t in_bytes, out_bytes;
    bool wraps; /* halo_exchange: the first and the last member are neighbours */
    /* exchange_uneven: numbers of rows [experts, samples] that this rank sends [0] and receives
     * [1], with the sizes of both tables */
    const int32_t *counts[2];
    int64_t experts[2], samples[2];
    int64_t width; /* elements of a row */
} Comm;

typedef struct Ready {
    Kernel kernel; /* NULL for communications */
    KernelArgs *args;
    Comm *comm;
} Ready;

/* ---- a rank: its memory, and its position in the step ---- */
/* The capabilities of a device whose kernels do not run on this host. */
typedef struct RankMachine {
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
    WorkspaceBytes workspace;
} RankMachine;

typedef struct RankState {
    const Plan *plan;
    const ProgramInfo *info;
    Rank rank;
    bool poison, measure;
    char *device, *host; /* the arenas, of exactly program->bytes and program->host_bytes */
    void *blocks[2];     /* the allocations that contain them */
    uint64_t highest[2]; /* [space] with poison: end of the highest byte found written */
    Ready *at;           /* [pc] */
    const RankMachine *machine;
    LoadCounts *loads; /* counts of the run so far; NULL: nothing is counted */
    /* state of the step in progress */
    uint32_t *n_before, *n_touches;
    uint32_t n_left;
    bool not_finite; /* the gradient norm is not finite: updates are skipped */
} RankState;

/* Prepares each instruction for the existing arenas r->device and r->host. With machine NULL,
 * and for the host stream and OP_batch, it uses the CPU kernels. Reports backend-dtype,
 * exec-program. */
bool rank_prepare(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
                  const Control *control, const RankMachine *machine, Arena *arena, Diag *d);
/* Moves the device arena: every prepared instruction then refers to the new addresses. */
void rank_move(RankState *r, char *device);
/* Allocates the arenas (filled with poison if `poison` or `measure`, else with zeros) and
 * prepares each instruction. Reports backend-dtype, exec-program, exec-memory. */
bool rank_open(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
               const Control *control, const BackendOptions *options, Arena *arena, Diag *d);
void rank_close(RankState *r);
char *rank_memory(const RankState *r, BufferId b); /* memory of any buffer or view */
/* Starts a step: every instruction waits again. */
void rank_begin(RankState *r);
/* Runs a local instruction. */
void rank_compute(RankState *r, Pc pc);
/* Marks `pc` as finished. Writes the instructions that may now start to `next` (room for n_instr),
 * ascending, and returns their number. Poisons buffers that no later instruction uses. */
uint32_t rank_finish(RankState *r, Pc pc, Pc *next);
/* Writes the instructions that may start at once to `next`; returns their number. */
uint32_t rank_starters(const RankState *r, Pc *next);
/* After a step, with poison: finds writes beyond the arena (reports arena-overrun) and updates
 * r->highest. */
bool rank_inspect(RankState *r, Diag *d);
/* After the last step, with poison or measure: end of the highest byte written; else 0. */
uint64_t rank_highest(const RankState *r, Space space);
/* Finds the first number in the outputs of pc that is not finite. Returns false if all are
 * finite. */
bool rank_find_bad(const RankState *r, Pc pc, BadNumber *bad);
/* Returns "instruction 12 (compute matmul ...)". */
const char *instr_text(const Plan *plan, const Program *p, Pc pc, Arena *arena);
/* Returns the script line of the instruction's origin; file NULL if it has none. */
Loc instr_loc(const Plan *plan, const Instr *in);
/* Returns the head of a stream: its first unfinished instruction; 0 if all have finished. */
Pc rank_unfinished(const RankState *r, Stream stream, const bool *finished);

/* ---- collective.c ---- */
/* out [n] = part[0] + part[1] + ... (or the maximum), in that order. `out` may be one of the
 * parts. Sums of low-precision types are computed in fp32 and rounded once at the end, whatever
 * the number of ranks. */
void reduce_in_order(DType dtype, Reduce reduce, void *out, const void *const *part,
                     uint32_t n_parts, uint64_t n);
/* Carries out a communication of which all members have arrived. The members are in the order of
 * their parts. */
void collective_move(const Comm *const *member, uint32_t n_members);

/* ---- uneven.c ---- the exchange of uneven rows of experts (planner/ir/layout/rows.h) */
/* Returns the number of rows that this member receives. */
int64_t uneven_rows_to(const Comm *c);
/* Returns the number of rows that the samples of part `part` have for an expert. side: the table of
 * counts to read; 0: of sent rows, 1: of received rows. samples: the number of samples of a part.
 */
int64_t uneven_piece(const Comm *c, int side, int64_t expert, int64_t part, int64_t samples);
bool uneven_to_experts(const Comm *c); /* true if rows go from samples to experts; false: back */
int64_t uneven_room(const Comm *c);    /* the number of rows for which this member has memory */
/* Carries out the exchange. All members have arrived, and each has memory for its rows. */
void uneven_move(const Comm *const *member, uint32_t n_members);
/* Returns a text that names the rank and the layer that received too many rows, and a bound that
 * would be enough. */
const char *uneven_overflow(const Plan *plan, const Program *p, Pc pc, const Comm *c, Rank rank,
                            Arena *arena);

/* ---- poison.c ---- Poison: an 8-byte pattern that is NaN as f64, f32, f16 and bf16. */
void poison_fill(void *at, uint64_t bytes);
/* Returns the end of the last byte in [at + lo, at + hi) that is not poison; lo if all bytes are
 * poison. `at` is aligned to 8. */
uint64_t poison_end(const void *at, uint64_t lo, uint64_t hi);

#endif
