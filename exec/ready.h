/* A program that is prepared to run on one rank. All pointers, sizes, peers and waits are computed
 * before the first step, so that a step neither plans nor allocates. All backends use this file,
 * and it depends on no backend. */
#ifndef TANDEM_EXEC_READY_H
#define TANDEM_EXEC_READY_H

#include "exec/backend.h"

/* ARENA_SLACK: bytes after the arena; they keep the poison pattern unless a kernel writes beyond
 * the arena */
enum { ARENA_ALIGN = 4096, ARENA_SLACK = 4096 };
/* largest number of ranks in a group whose bytes a single process moves */
enum { MAX_MEMBERS = 4096 };

/* ---- facts that are the same for all ranks of a program ---- */
typedef struct ProgramInfo {
    const Program *p;
    uint32_t *n_before; /* [pc]: number of instructions that must finish before instruction pc
                           starts */
    /* [pc]: first entry of the list of instruction pc in `then`; the list ends where the next one
     * begins */
    uint32_t *first;
    Pc *then;                /* for each instruction, the instructions that wait for it, in
                                ascending order */
    const Binding **binding; /* [pc]: NULL for communications and RESHAPE ops */
    uint64_t *bytes;         /* [pc]: number of bytes that the trace shows for the instruction */
    uint32_t *n_touches;     /* [buffer]: how often a step accesses a root buffer, also through
                                views */
    /* [buffer]: true if an instruction that reads the buffer writes its result to some of the same
     * bytes */
    bool *passes_on;
    uint32_t n_instr; /* instructions have the numbers 1 to n_instr */
} ProgramInfo;
/* Prepares a program. Communications of a launch group (Instr.launch) start together. So each of
 * them waits for all instructions that any of them waits for. */
const ProgramInfo *program_info(const Plan *plan, const Program *p, Arena *arena);

/* ---- one instruction on one rank ---- */
typedef struct Comm {
    OpKind op;
    Reduce reduce;
    DType dtype;
    Stream stream;
    AxisSet axes;
    uint32_t match, launch;
    /* n_members: size of the group; part: index of this rank in it. A sender is part 0, its
     * receiver is part 1. */
    uint32_t n_members, part;
    /* leader: smallest rank of the group, or the sender. peer: the receiver (of send and recv). */
    Rank leader, peer;
    char *in, *out; /* NULL: a receiver has no input, a sender has no output */
    uint64_t in_bytes, out_bytes;
    bool wraps; /* halo_exchange: the first and the last member of the group are neighbours */
    /* exchange_uneven: counts[0] says how many rows this rank sends, and counts[1] how many it
     * receives. Table k has the shape [experts[k], samples[k]]. */
    const int32_t *counts[2];
    int64_t experts[2], samples[2];
    int64_t width; /* exchange_uneven: number of elements in a row */
} Comm;

typedef struct Ready {
    Kernel kernel; /* NULL for communications */
    KernelArgs *args;
    Comm *comm;
} Ready;

/* ---- a rank: its memory, and how far it has come in the step ---- */
/* Describes a device whose kernels do not run on this host: the dtypes that its kernels accept, and
 * their scratch memory. */
typedef struct RankMachine {
    bool (*accepts)(OpKind op, const DType *dtype, uint32_t n_args);
    WorkspaceBytes workspace;
} RankMachine;

typedef struct RankState {
    const Plan *plan;
    const ProgramInfo *info;
    Rank rank;
    bool poison, measure;
    char *device, *host; /* arenas of program->bytes and program->host_bytes bytes */
    void *blocks[2];     /* the allocations that contain the two arenas */
    uint64_t highest[2]; /* [space]: end of the highest byte that was found written (only with
                            poison) */
    Ready *at;           /* [pc] */
    const RankMachine *machine;
    LoadCounts *loads; /* counts of expert choices since the beginning of the run; NULL: nothing is
                          counted */
    /* state of the step in progress; n_before and n_touches count down to 0 */
    uint32_t *n_before, *n_touches;
    uint32_t n_left;
    bool not_finite; /* the norm of the gradients is not finite, so updates are skipped */
} RankState;

/* Prepares each instruction for the arenas r->device and r->host, which must exist. CPU kernels
 * compute everything if `machine` is NULL; otherwise they compute only the host stream and
 * OP_batch. Reports backend-dtype, exec-program. */
bool rank_prepare(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
                  const Control *control, const RankMachine *machine, Arena *arena, Diag *d);
/* Moves the device arena to another address. Every prepared instruction then uses the new
 * address. */
void rank_move(RankState *r, char *device);
/* Allocates the arenas and prepares each instruction. Arenas are filled with poison if the option
 * `poison` or `measure` is set, and with zeros otherwise. Reports backend-dtype, exec-program,
 * exec-memory. */
bool rank_open(RankState *r, const Plan *plan, const ProgramInfo *info, Rank rank,
               const Control *control, const BackendOptions *options, Arena *arena, Diag *d);
void rank_close(RankState *r);
char *rank_memory(const RankState *r, BufferId b); /* returns the address of a buffer or view */
/* Starts a step: no instruction has finished yet. */
void rank_begin(RankState *r);
/* Runs a local instruction (one that is not a communication). */
void rank_compute(RankState *r, Pc pc);
/* Marks instruction pc as finished. Writes the instructions that may start now to `next` in
 * ascending order, and returns their number; `next` must have room for n_instr. Poisons buffers
 * that no later instruction of the step uses. */
uint32_t rank_finish(RankState *r, Pc pc, Pc *next);
/* Writes the instructions that may start at the beginning of a step to `next`, and returns their
 * number. */
uint32_t rank_starters(const RankState *r, Pc *next);
/* With poison, must be called after each step: looks for writes beyond the arena (reports
 * arena-overrun), and updates r->highest. */
bool rank_inspect(RankState *r, Diag *d);
/* With poison or measure, returns the end of the highest byte that was written during the run.
 * Returns 0 otherwise. */
uint64_t rank_highest(const RankState *r, Space space);
/* Finds the first number in the outputs of instruction pc that is not finite. Returns false if all
 * numbers are finite. */
bool rank_find_bad(const RankState *r, Pc pc, BadNumber *bad);
/* Returns a description such as "instruction 12 (compute matmul ...)". */
const char *instr_text(const Plan *plan, const Program *p, Pc pc, Arena *arena);
/* Returns the line of the Lua script from which the instruction originates. `file` is NULL if there
 * is none. */
Loc instr_loc(const Plan *plan, const Instr *in);
/* Returns the first unfinished instruction of a stream; 0: all have finished. */
Pc rank_unfinished(const RankState *r, Stream stream, const bool *finished);

/* ---- collective.c ---- */
/* Computes out [n] = part[0] + part[1] + ..., or the maximum, in this order. `out` may be one of
 * the parts. Numbers of low precision are added in fp32, and the sum is rounded once at the end,
 * whatever the number of parts. */
void reduce_in_order(DType dtype, Reduce reduce, void *out, const void *const *part,
                     uint32_t n_parts, uint64_t n);
/* Moves the bytes of a communication. All members must have arrived; they are given in the order of
 * their parts. */
void collective_move(const Comm *const *member, uint32_t n_members);

/* ---- uneven.c ---- the exchange of rows of experts, in which each rank may send a different
 * number of rows (planner/ir/layout/rows.h) */
/* Returns how many rows this member receives. */
int64_t uneven_rows_to(const Comm *c);
/* Returns how many rows the samples of part `part` have for one expert. `side` is the table of
 * counts to read: 0 for sent rows, 1 for received rows. `samples` is the number of samples in a
 * part. */
int64_t uneven_piece(const Comm *c, int side, int64_t expert, int64_t part, int64_t samples);
bool uneven_to_experts(const Comm *c); /* true: rows go from samples to experts; false: they go
                                          back */
int64_t uneven_room(const Comm *c);    /* how many rows fit into this member's memory */
/* Moves the rows of an exchange. All members must have arrived, and each must have memory for its
 * rows. */
void uneven_move(const Comm *const *member, uint32_t n_members);
/* Returns a message for an exchange with too many rows. It names the rank, the layer, and a bound
 * on rows that would suffice. */
const char *uneven_overflow(const Plan *plan, const Program *p, Pc pc, const Comm *c, Rank rank,
                            Arena *arena);

/* ---- poison.c ---- Fills memory with an 8-byte pattern that is NaN as f64, f32, f16 and bf16. */
void poison_fill(void *at, uint64_t bytes);
/* Returns the end of the last byte that is not poison among bytes at + lo to at + hi - 1. Returns
 * lo if all of them are poison. `at` must be a multiple of 8. */
uint64_t poison_end(const void *at, uint64_t lo, uint64_t hi);

#endif
