/* What a real machine must do for the runtime. The runtime walks the program; a backend computes,
 * communicates and keeps time. One folder or file each: loopback, mpi, cuda. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "kernels/kernel.h"
#include "planner/ir/trace.h"

/* A device of one rank: an arena of exactly program->bytes, streams, communicators. */
typedef struct Device Device;

typedef struct BackendOptions {
    double timeout_s; /* a communication that takes longer ends the run */
    bool poison; /* fill the arena with signalling NaNs first; track the highest byte touched */
    uint64_t order_seed;    /* loopback: which legal interleaving */
    bool native_reductions; /* mpi: MPI_Op instead of rank-ordered sums */
    const char *module_dir;
} BackendOptions;

typedef struct Backend {
    const char *name; /* "loopback", "mpi", "cuda" */
    /* All ranks of this process: loopback has every rank, mpi one. Ranks [first_rank, first_rank +
     * n_ranks). */
    bool (*open)(struct Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
    void (*ranks)(const struct Backend *self, Rank *first, uint32_t *n);
    /* Runs the whole train program of every local rank once. Trace rows are recorded inside the
     * compute and comm calls; rows may be NULL. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, Diag *d);
    /* Bytes of a root buffer of a local rank, for reading and for initial values. */
    void *(*memory)(struct Backend *self, Rank rank, BufferId root);
    uint64_t (*highest_touched)(struct Backend *self, Rank rank); /* with poison */
    /* Sum of `n` doubles over all ranks of the run in rank order; barrier. For verdicts and
     * reports, not for steps. */
    bool (*exchange)(struct Backend *self, const void *mine, size_t bytes, void *all,
                     Diag *d); /* all-gather over processes */
    void (*close)(struct Backend *self);
    void *state;
} Backend;

Backend *backend_loopback(Arena *arena);
/* Loads the module for the MPI this process was started under (or `name`). NULL with a diagnostic.
 */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);
/* The symbol every backend module exports. */
typedef Backend *(*BackendModule)(Arena *arena);

#endif
