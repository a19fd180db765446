/* The interface between the runtime and a real machine. The runtime walks the program; a backend
 * computes, communicates and measures time. Each backend has a folder of its own: loopback, process
 * (with mpi), cuda. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "exec/loads.h"
#include "kernels/choices.h"
#include "kernels/kernel.h"
#include "planner/ir/trace.h"

typedef struct BackendOptions {
    double timeout_s; /* a communication that takes longer ends the run; 0: 60 s */
    bool poison;      /* fill memory without a value with signalling NaNs, and find the highest byte
                         written */
    /* fill the arena with the same pattern once, and find the highest byte written at the end;
     * steps run at full speed */
    bool measure;
    /* launch each instruction by itself, so that its own time is measured instead of a fused
     * kernel's */
    bool alone;
    uint64_t order_seed;    /* loopback: the seed that selects a legal interleaving; 0: the plain
                             * order */
    bool native_reductions; /* mpi: MPI_Op instead of rank-ordered sums */
    const char *module_dir; /* NULL: beside the command, or ../lib/tandem */
    const KernelChoices *choices; /* algorithms chosen in earlier runs; NULL: none are known, and no
                                     algorithm is timed */
    const void *own; /* the backend's own options (exec/options.h); NULL: the defaults */
} BackendOptions;

/* The first number in the outputs of a step that is not finite. */
typedef struct BadNumber {
    Rank rank;
    Pc pc;            /* pc 0: every number is finite */
    uint32_t output;  /* number of the output */
    uint64_t element; /* local index of the first bad element */
    double value;
} BadNumber;

typedef struct Backend {
    const char *name; /* "loopback", "mpi", "cuda" */
    /* Prepares a run: computes and allocates everything that steps need. Reports backend-dtype (a
     * dtype that the backend cannot compute in), exec-program (a program that it cannot run),
     * ranks-mismatch. */
    bool (*open)(struct Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
    /* Writes the ranks of this process, [first, first + n): all ranks in loopback, one in mpi and
     * cuda. */
    void (*ranks)(const struct Backend *self, Rank *first, uint32_t *n);
    /* Runs the whole train program of every local rank once. Trace rows are recorded inside the
     * compute and comm calls and appended while `trace` has room; it may be NULL. If the gradient
     * norm is not finite, updates are skipped and all values that live between steps stay
     * unchanged. If `bad` is not NULL, checks every output and stores this process's first bad
     * number there. Reports deadlock, timeout, arena-overrun. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, BadNumber *bad,
                 Diag *d);
    /* Returns the memory of a local rank's buffer, for reading and for initial values. The function
     * is NULL if the host cannot access the memory; the backend then has `read` and `write` (see
     * backend_read). */
    void *(*memory)(struct Backend *self, Rank rank, BufferId b);
    bool (*read)(struct Backend *self, Rank rank, BufferId b, void *to, Diag *d);
    bool (*write)(struct Backend *self, Rank rank, BufferId b, const void *from, Diag *d);
    /* Writes the initial values of a local rank's buffer of weights or optimizer states. If it
     * cannot, sets *done to false, and the caller writes them. The function is NULL if the backend
     * never can. */
    bool (*init)(struct Backend *self, Rank rank, BufferId b, bool *done, Diag *d);
    /* Returns the end of the highest byte written in one arena of a local rank; needs poison or
     * measure. */
    uint64_t (*highest_touched)(struct Backend *self, Rank rank, Space space);
    /* Returns the choices of experts that a local rank counted; NULL if it counted none. The
     * function is NULL if the backend cannot count. */
    const LoadCounts *(*loads)(struct Backend *self, Rank rank);
    /* Returns the bytes that the backend holds for a rank outside the arena, such as staging memory
     * of collectives. */
    uint64_t (*outside_bytes)(struct Backend *self);
    /* Gathers `bytes` bytes of every process into `all` [n_processes, bytes], in every process.
     * Serves verdicts and reports, and as a barrier. */
    bool (*exchange)(struct Backend *self, const void *mine, size_t bytes, void *all, Diag *d);
    /* Lets the next exchanges wait this much longer than the timeout, because a process works on
     * files meanwhile; 0: as usual. The function is NULL if exchanges never wait. */
    void (*patience)(struct Backend *self, double more_s);
    /* Returns the number of processes; *mine is the index of this process. */
    uint32_t (*processes)(const struct Backend *self, uint32_t *mine);
    void (*close)(struct Backend *self);
    void *state;
} Backend;

Backend *backend_loopback(Arena *arena);
/* Copies a whole buffer or view of a local rank, with any backend. */
bool backend_read(Backend *self, const Plan *plan, Rank rank, BufferId b, void *to, Diag *d);
bool backend_write(Backend *self, const Plan *plan, Rank rank, BufferId b, const void *from,
                   Diag *d);

/* Loads the module for the MPI that started this process (or $TANDEM_MPI). Returns NULL with a
 * diagnostic (module-missing). If no MPI started the process, it is the only rank. */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);
/* Loads the CUDA module, and the module of the MPI that started this process if one did. */
Backend *backend_cuda(Arena *arena, const char *module_dir, Diag *d);
/* backend_named makes the backend of that name; NULL: loopback. */
const char *backend_name(uint32_t i); /* the i-th name; NULL after the last */
Backend *backend_named(const char *name, Arena *arena, const char *module_dir, Diag *d);

#endif
