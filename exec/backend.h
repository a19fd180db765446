/* What a real machine must do for the runtime. The runtime walks the program; a backend computes,
 * communicates and keeps time. One folder or file each: loopback, mpi, cuda. */
#ifndef TANDEM_EXEC_BACKEND_H
#define TANDEM_EXEC_BACKEND_H

#include "kernels/kernel.h"
#include "planner/ir/trace.h"

/* How the cuda backend turns a step into CUDA graphs. */
typedef enum CudaGraphs {
    CUDA_GRAPHS_auto,  /* whole where the program is short, else cut; none through the host */
    CUDA_GRAPHS_whole, /* the step is one graph */
    CUDA_GRAPHS_cut,   /* one each for the first, the inner and the last micro-batch */
    CUDA_GRAPHS_none
} CudaGraphs;

/* Zero is the default of each. */
typedef struct CudaOptions {
    CudaGraphs graphs;
    uint32_t device;       /* 1 + its number; 0: that of the local rank */
    bool share_device;     /* several ranks on one GPU: NCCL is told they are different hosts */
    bool host_comm;        /* communications go through the host, over MPI, instead of NCCL */
    uint32_t whole_length; /* auto: longer programs are cut; 0: 4000 instructions */
    bool tf32;             /* products of fp32 numbers may round them to 19 bits */
    bool cudnn;            /* attention by cuDNN where it takes it and is the fastest */
    bool mma;              /* attention by Hopper's own instructions nowhere */
    const char *record;    /* a folder: each rank writes where it is there; NULL: none */
    double patience_s;     /* for what a rank does on its host; 0: 120 s, or timeout_s if longer */
    const struct CudaChoices
        *choices; /* of algorithms for products, kept from run to run
                     (kernels/cuda/product/products.h); NULL: none, nothing is timed */
} CudaOptions;

typedef struct BackendOptions {
    double timeout_s; /* a communication that takes longer ends the run; 0: 60 s */
    bool poison;  /* fill the arena with signalling NaNs first; track the highest byte touched */
    bool measure; /* fill the arena with the same pattern once and look at the end how high it was
                   * written: steps are as fast as without */
    bool alone;   /* each instruction is a launch of its own: its time is measured, not that of the
                   * kernel which carries out several */
    uint64_t order_seed;    /* loopback: which legal interleaving; 0: the plain order */
    bool native_reductions; /* mpi: MPI_Op instead of rank-ordered sums */
    const char *module_dir; /* NULL: beside the command, or ../lib/tandem */
    CudaOptions cuda;
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
     * is changed. With `bad` every output is looked at, and the first bad one of this process told;
     * it may be NULL. Reports deadlock, timeout, arena-overrun. */
    bool (*step)(struct Backend *self, const Control *control, Trace *trace, BadNumber *bad,
                 Diag *d);
    /* Bytes of a buffer of a local rank, for reading and for initial values. NULL where the
     * host cannot touch them: then there are read and write, see backend_read. */
    void *(*memory)(struct Backend *self, Rank rank, BufferId b);
    bool (*read)(struct Backend *self, Rank rank, BufferId b, void *to, Diag *d);
    bool (*write)(struct Backend *self, Rank rank, BufferId b, const void *from, Diag *d);
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
/* A buffer (or view) of a local rank, copied whole: of any backend. */
bool backend_read(Backend *self, const Plan *plan, Rank rank, BufferId b, void *to, Diag *d);
bool backend_write(Backend *self, const Plan *plan, Rank rank, BufferId b, const void *from,
                   Diag *d);

/* Loads the module for the MPI this process was started under (or $TANDEM_MPI). NULL with a
 * diagnostic (module-missing). One rank, this process, where nobody started us. */
Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d);
/* Loads the module for CUDA, and that of the MPI that started this process, if one did. */
Backend *backend_cuda(Arena *arena, const char *module_dir, Diag *d);
/* By name: "loopback", "mpi", "cuda"; NULL: loopback. */
const char *backend_name(uint32_t i); /* of all that there are; NULL behind the last */
Backend *backend_named(const char *name, Arena *arena, const char *module_dir, Diag *d);

#endif
