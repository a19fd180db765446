/* What a real machine must do for the runtime. The runtime walks the program; a backend computes,
 * communicates and keeps time. One folder or file each: loopback, mpi, cuda. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "kernels/kernel.h"
#include "planner/ir/trace.h"

typedef struct BackendOptions {
    double timeout_s; /* a communication that takes longer ends the run; 0: 60 s */
    bool poison;  /* fill the arena with signalling NaNs first; track the highest byte touched */
    bool measure; /* fill the arena with the same pattern once and look at the end how high it was
                   * written: steps are as fast as without */
    uint64_t order_seed;    /* loopback: which legal interleaving; 0: the plain order */
    bool native_reductions; /* mpi: MPI_Op instead of rank-ordered sums */
    const char *module_dir; /* NULL: beside the command, or ../lib/tandem */
} BackendOptions;

/* The first instruction whose output holds a number that is not finite. */
typedef struct BadNumber {
    Rank rank;
    Pc pc;            /* 0: none was found */
    uint32_t output;  /* which */
    uint64_t element; /* local, the first bad one */
    double value;
} BadNumber;

typedef struct Backend {
    const char *name; /* "loopback", "mpi", "cuda" */
    /* Loads nothing but the plan. All that a step needs is computed and allocated here. Reports
     * backend-dtype (a dtype that the backend cannot compute in), exec-program (a program that
     * cannot be executed), ranks-mismatch. */
    bool (*open)(struct Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
    /* Ranks of this process: loopback has every rank, mpi one. [first, first + n). */
    void (*ranks)(const struct Backend *self, Rank *first, uint32_t *n);
    /* Runs the whole train program of every local rank once. Trace rows are recorded inside the
     * compute and comm calls, and appended within the room that `trace` has; it may be NULL. When
     * the gradient norm is not finite, updates are left out, and nothing that lives between steps
     * is changed. Reports deadlock, timeout, arena-overrun. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, Diag *d);
    /* Runs the step again, looking at every output, and tells the first bad one of this process. */
    bool (*find_bad)(struct Backend *self, const Control *control, BadNumber *bad, Diag *d);
    /* Bytes of a root buffer of a local rank, for reading and for initial values. */
    void *(*memory)(struct Backend *self, Rank rank, BufferId root);
    /* Of one arena of a local rank, with poison or measure. */
    uint64_t (*highest_touched)(struct Backend *self, Rank rank, Space space);
    /* What the backend holds of a rank outside the arena: staging of collectives, and so on. */
    uint64_t (*outside_bytes)(struct Backend *self);
    /* All-gather of `bytes` over the processes of the run (also a barrier): all [n_processes,
     * bytes]. For verdicts and reports. */
    bool (*exchange)(struct Backend *self, const void *mine, size_t bytes, void *all, Diag *d);
    uint32_t (*processes)(const struct Backend *self, uint32_t *mine); /* how many; which is this */
    void (*close)(struct Backend *self);
    void *state;
} Backend;

Backend *backend_loopback(Arena *arena);
/* Loads the module for the MPI this process was started under (or $TANDEM_MPI). NULL with a
 * diagnostic (module-missing). One rank, this process, where nobody started us. */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);

#endif
