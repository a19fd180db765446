/* The interface between the runtime, which walks through the program, and a backend, which
 * computes, communicates and measures times. The backends are loopback, process (which uses MPI)
 * and cuda; each has its own folder. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "exec/loads.h"
#include "kernels/choices.h"
#include "kernels/kernel.h"
#include "planner/ir/trace.h"

typedef struct BackendOptions {
    double timeout_s; /* the run ends if a communication takes longer than this many seconds; 0: 60
                         s */
    /* fill memory that holds no value with signalling NaNs, and find the highest byte that was
     * written */
    bool poison;
    /* fill the arena with a pattern once, and find the highest byte that was written; steps run at
     * full speed */
    bool measure;
    /* launch each instruction by itself, so that its own time is measured */
    bool alone;
    /* loopback: seed that chooses one of the allowed orders of events; 0: the plain order */
    uint64_t order_seed;
    const char *module_dir; /* folder of the modules; NULL: the folder of the command, or
                               ../lib/tandem */
    /* choices of algorithms from earlier runs; NULL: none are known, and no algorithm is timed */
    const KernelChoices *choices;
    /* options that only this backend has (exec/module/options.h); NULL: their defaults */
    const void *own;
} BackendOptions;

/* Among the outputs of a step: the first number that is not finite. */
typedef struct BadNumber {
    Rank rank;
    Pc pc;            /* the instruction that wrote it; 0: all numbers are finite */
    uint32_t output;  /* index among the instruction's outputs */
    uint64_t element; /* index in the rank's part of the output */
    double value;
} BadNumber;

typedef struct Backend {
    const char *name; /* "loopback", "mpi", "cuda" */
    /* Prepares a run and allocates everything that steps need. Reports backend-dtype, exec-program
     * or ranks-mismatch. */
    bool (*open)(struct Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
    /* Sets *first and *n: this process runs ranks *first to *first + *n - 1. With loopback these
     * are all ranks; with mpi and cuda it is one rank. */
    void (*ranks)(const struct Backend *self, Rank *first, uint32_t *n);
    /* Runs the training program of every local rank once. Appends rows to `trace` (which may be
     * NULL) while it has room. If the norm of the gradients is not finite, values that are kept
     * between steps do not change. If `bad` is not NULL, all outputs are checked, and *bad gets the
     * first number of this process that is not finite. Reports deadlock, timeout or
     * arena-overrun. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, BadNumber *bad,
                 Diag *d);
    /* Returns the memory of a buffer of a local rank. This member is NULL if the host cannot read
     * that memory; the backend then has `read` and `write` (see backend_read). */
    void *(*memory)(struct Backend *self, Rank rank, BufferId b);
    bool (*read)(struct Backend *self, Rank rank, BufferId b, void *to, Diag *d);
    bool (*write)(struct Backend *self, Rank rank, BufferId b, const void *from, Diag *d);
    /* Writes the initial values of a buffer of weights or optimizer states. If the backend cannot
     * do this, it sets *done to false, and the caller writes them. This member is NULL if the
     * backend never can. */
    bool (*init)(struct Backend *self, Rank rank, BufferId b, bool *done, Diag *d);
    /* Returns the end of the highest byte that was written in an arena of a local rank. Needs the
     * option poison or measure. */
    uint64_t (*highest_touched)(struct Backend *self, Rank rank, Space space);
    /* Returns the counts of expert choices of a local rank; NULL if it has counted none. This
     * member is NULL if the backend cannot count. */
    const LoadCounts *(*loads)(struct Backend *self, Rank rank);
    /* Returns how many bytes the backend uses for a rank outside of the arena, such as staging
     * memory. */
    uint64_t (*outside_bytes)(struct Backend *self);
    /* Gathers `bytes` bytes of every process into `all` [n_processes, bytes], on every process. It
     * also serves as a barrier. */
    bool (*exchange)(struct Backend *self, const void *mine, size_t bytes, void *all, Diag *d);
    /* Lets the following exchanges wait `more_s` seconds longer than the timeout, while a process
     * is busy with files. 0 restores the timeout. NULL if exchanges never time out. */
    void (*patience)(struct Backend *self, double more_s);
    /* Returns the number of processes, and sets *mine to the index of this one. */
    uint32_t (*processes)(const struct Backend *self, uint32_t *mine);
    void (*close)(struct Backend *self);
    void *state;
} Backend;

/* Makes the backend that runs all ranks in this process. */
Backend *backend_loopback(Arena *arena);
/* Copy a whole buffer of a local rank from or to host memory, with any backend. */
bool backend_read(Backend *self, const Plan *plan, Rank rank, BufferId b, void *to, Diag *d);
bool backend_write(Backend *self, const Plan *plan, Rank rank, BufferId b, const void *from,
                   Diag *d);

/* Loads the module for the MPI that has started this process, or for $TANDEM_MPI. Returns NULL with
 * the diagnostic module-missing if this fails. If no MPI has started the process, it is the only
 * rank. */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);
/* Loads the module for CUDA. If an MPI has started this process, also loads the module of that MPI.
 */
Backend *backend_cuda(Arena *arena, const char *module_dir, Diag *d);
const char *backend_name(uint32_t i); /* returns the name of backend i; NULL after the last one */
/* Makes the backend with this name, which must be one of backend_name(); NULL stands for loopback.
 * Returns NULL after a diagnostic. */
Backend *backend_named(const char *name, Arena *arena, const char *module_dir, Diag *d);

#endif
