/* The interface between the runtime and a machine. The runtime walks through the program. A backend
 * computes, communicates and measures times. The backends are loopback, process (with mpi) and
 * cuda, each in a folder of its own. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "exec/loads.h"
#include "kernels/choices.h"
#include "kernels/kernel.h"
#include "planner/ir/trace.h"

typedef struct BackendOptions {
    double timeout_s; /* the run ends if a communication takes longer; 0: 60 s */
    /* fill unused memory with signalling NaNs, and find the highest byte that was written */
    bool poison;
    /* fill the arena with a pattern once, and find the highest byte that was written; steps run at
     * full speed */
    bool measure;
    /* launch each instruction separately, so that its own time is measured */
    bool alone;
    /* loopback: the seed that chooses an order among the legal ones; 0: the plain order */
    uint64_t order_seed;
    bool native_reductions; /* mpi: use MPI's reductions, not sums in the order of ranks */
    const char *module_dir; /* NULL: the folder of the command, or ../lib/tandem */
    /* algorithms from earlier runs; NULL: none are known, and none is timed */
    const KernelChoices *choices;
    const void *own; /* options of this backend (exec/options.h); NULL: the defaults */
} BackendOptions;

/* The first number in the outputs of a step that is not finite. */
typedef struct BadNumber {
    Rank rank;
    Pc pc;            /* 0: all numbers are finite */
    uint32_t output;  /* number of the output */
    uint64_t element; /* index of the first bad element in the rank's part */
    double value;
} BadNumber;

typedef struct Backend {
    const char *name; /* "loopback", "mpi", "cuda" */
    /* Prepares a run and allocates all that steps need. Reports backend-dtype, exec-program or
     * ranks-mismatch. */
    bool (*open)(struct Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
    /* Sets the ranks of this process, [first, first + n). In loopback these are all ranks; in mpi
     * and cuda it is one rank. */
    void (*ranks)(const struct Backend *self, Rank *first, uint32_t *n);
    /* Runs the train program of every local rank once. Rows are appended to `trace` while it has
     * room; `trace` may be NULL. If the gradient norm is not finite, values that live between steps
     * do not change. If `bad` is not NULL, all outputs are checked, and the first bad number of
     * this process is stored there. Reports deadlock, timeout or arena-overrun. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, BadNumber *bad,
                 Diag *d);
    /* Returns the memory of a buffer of a local rank. The function is NULL if the host cannot
     * access the memory; then the backend has `read` and `write` (see backend_read). */
    void *(*memory)(struct Backend *self, Rank rank, BufferId b);
    bool (*read)(struct Backend *self, Rank rank, BufferId b, void *to, Diag *d);
    bool (*write)(struct Backend *self, Rank rank, BufferId b, const void *from, Diag *d);
    /* Writes the initial values of a buffer of weights or optimizer states. If the backend cannot
     * do so, it sets *done to false, and the caller writes them. The function is NULL if the
     * backend never can. */
    bool (*init)(struct Backend *self, Rank rank, BufferId b, bool *done, Diag *d);
    /* Returns the end of the highest byte that was written in an arena of a local rank. Needs the
     * option poison or measure. */
    uint64_t (*highest_touched)(struct Backend *self, Rank rank, Space space);
    /* Returns the choices of experts that a local rank counted; NULL if it counted none. The
     * function is NULL if the backend cannot count. */
    const LoadCounts *(*loads)(struct Backend *self, Rank rank);
    /* Returns the bytes that the backend uses for a rank outside the arena, such as staging memory.
     */
    uint64_t (*outside_bytes)(struct Backend *self);
    /* Gathers `bytes` bytes of every process into `all` [n_processes, bytes] on every process. It
     * also serves as a barrier. */
    bool (*exchange)(struct Backend *self, const void *mine, size_t bytes, void *all, Diag *d);
    /* Lets the next exchanges wait `more_s` longer than the timeout, because a process is busy with
     * files. 0 ends this. The function is NULL if exchanges never wait. */
    void (*patience)(struct Backend *self, double more_s);
    /* Returns the number of processes. *mine is the number of this process. */
    uint32_t (*processes)(const struct Backend *self, uint32_t *mine);
    void (*close)(struct Backend *self);
    void *state;
} Backend;

Backend *backend_loopback(Arena *arena);
/* Copies the whole buffer of a local rank, with any backend. */
bool backend_read(Backend *self, const Plan *plan, Rank rank, BufferId b, void *to, Diag *d);
bool backend_write(Backend *self, const Plan *plan, Rank rank, BufferId b, const void *from,
                   Diag *d);

/* Loads the module for the MPI that started this process, or for $TANDEM_MPI. Returns NULL with the
 * diagnostic module-missing. If no MPI started the process, it is the only rank. */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);
/* Loads the module for CUDA. If an MPI started this process, loads its module, too. */
Backend *backend_cuda(Arena *arena, const char *module_dir, Diag *d);
/* backend_named makes the backend with a name; NULL means loopback. */
const char *backend_name(uint32_t i); /* returns the i-th name; NULL after the last */
Backend *backend_named(const char *name, Arena *arena, const char *module_dir, Diag *d);

#endif
