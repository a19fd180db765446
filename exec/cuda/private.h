/* What the files of the CUDA backend share. */
#ifndef TANDEM_EXEC_CUDA_PRIVATE_H
#define TANDEM_EXEC_CUDA_PRIVATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "exec/cuda/meet.h"
#include "exec/cuda/module.h"
#include "exec/cuda/order.h"
#include "exec/ending.h"
#include "exec/groups.h"
#include "kernels/cuda/cuda.h"

/* What ranks tell each other of their devices before anything is made on them. */
typedef struct Identity {
    unsigned char uuid[16];
    uint64_t host; /* a hash of what names the machine */
    int32_t driver, runtime, nccl;
    int32_t capability, device;
    char name[64];
} Identity;

/* A communicator: (axes, stream). */
typedef struct CudaComm {
    GroupKey key;
    const char *name;
    ncclComm_t comm;
    void *registered;    /* ncclCommRegister's handle of the arena */
    ncclWindow_t window; /* or its symmetric window */
    bool has_window;
} CudaComm;

/* The data of one micro-batch, for one instruction. */
typedef struct Staged {
    Pc pc;
    KernelArgs host; /* of kernel_cpu(OP_batch): points into `back` */
    char *front[2];  /* pinned: what is copied to the device. [tokens, labels] */
    char *back[2];   /* of the next step, filled while this one runs */
    uint64_t bytes[2];
    char *slot[2]; /* in device memory, where several micro-batches share a graph; else NULL */
} Staged;

/* While a step is traced: when each launch began and ended. A launch may carry out several
 * instructions; the first stands for it, the others take no time at its end. */
typedef struct CudaTrace {
    cudaEvent_t *begin, *end; /* [pc]; NULL: not traced */
    Pc *lead;                 /* [pc] the first instruction of its launch */
    cudaEvent_t zero;
} CudaTrace;

/* While bad numbers are looked for: a piece of an output, when the stream gets there. */
typedef struct Scan {
    struct Cuda *cuda;
    Pc pc;
    uint32_t output;
    uint64_t from, n; /* elements */
    DType dtype;
} Scan;

typedef struct Cuda {
    Arena *arena;
    const Transport *transport;
    Meet *meet;
    const Plan *plan;
    BackendOptions options;
    Control control; /* what kernels on the host read */
    RankState state;
    Rank rank;
    uint32_t n_ranks;
    Diag *d;     /* where errors go while a call of the backend is in progress */
    bool failed; /* an error was told: what follows from it is not */
    const char *why_rule, *why;
    /* The device is given a step, or waited for: something moves, or the run is ended after the
     * timeout. What a host does takes as long as it takes, up to patience_s. */
    _Atomic bool watched;
    double patience_s;
    _Atomic uint64_t beat; /* of the thread that issues: it goes on */
    pthread_t watcher;     /* while it does not */
    bool watches;
    _Atomic bool watch_ends;
    const char *opens;   /* what watch_opening waits for */
    unsigned char *here; /* [n_ranks] */
    bool dead;           /* communicators are broken: they can only be aborted */
    bool stuck;          /* and that did not return: nothing may wait for the device */
    _Atomic bool aborted;

    Identity mine, *all; /* [n_ranks] */
    int device;
    uint64_t free_before, outside; /* device bytes: before open; what lies outside the arena */
    bool arena_of_nccl;
    bool unsettled;       /* the default stream may still write what streams are to read */
    uint64_t arena_bytes; /* as allocated */
    CudaContext context;
    struct CudnnAttention *cudnn;   /* NULL: not asked for */
    CudaAttentionLibrary attention; /* cuDNN's */
    struct AttentionWays *ways;     /* that, our own kernels', Hopper's: what was fastest */
    CudaAttentionLibrary by_way;
    CudaControl *control_host; /* pinned */
    CudaControl *control_device;
    uint32_t *fault_host, *fault_device;
    /* Pinned, written by the streams as they go. heads [STREAM_COUNT]: the first instruction that
     * is not done, 0: all are; of STREAM_none, the segment. begun [STREAM_COUNT]: the communication
     * that was begun last. */
    uint32_t *heads, *begun;
    uint32_t *numbers; /* [n_instr + 1] device: 0, 1, 2, ...: what is copied to heads */
    uint32_t seen[STREAM_COUNT];
    Pc first_on_stream[STREAM_COUNT];
    Pc *next_on_stream; /* [pc] by the order of issue; 0: none */

    cudaStream_t stream[STREAM_COUNT];
    bool uses[STREAM_COUNT];
    cudaEvent_t fork, join[STREAM_COUNT], finished;
    cudaEvent_t *event; /* [pc]; NULL: nobody on another stream waits for it */

    ncclComm_t world;
    CudaComm *comm; /* [n_comms] */
    uint32_t n_comms;
    uint32_t *comm_of;     /* [pc] */
    struct Hosted *hosted; /* communications go through the host; NULL: NCCL's */

    Order order;
    uint32_t *chain;  /* [pc] how many instructions are one launch, from pc on; 1: alone */
    uint32_t *unread; /* [pc] CudaChainPart.unread of a part */
    Staged *staged;
    uint32_t n_staged;
    uint32_t *staged_of; /* [pc] 1 + index; 0: not a batch */
    int64_t next_filled; /* the step that `back` holds; -1: none */

    cudaGraphExec_t *graph;  /* [segment] NULL: not captured; of equal segments the first has it */
    cudaGraphExec_t *traced; /* [segment] with events around each instruction, for one step */
    CudaTrace trace;
    char **scans; /* [STREAM_COUNT] pinned, while bad numbers are looked for; else NULL */
    Arena *scan_arena;
    BadNumber *bad;
    int64_t n_steps;
    double last_progress_s;

    Status *status;
    StatusSlot *slot, alone;
    int record; /* 1 + the descriptor of this rank's file; 0: none */
    char record_host[64];
    double recorded_s;
    bool owns_status; /* nobody launched us: the status is ours, and so is telling */
    char status_path[512];
} Cuda;

/* ---- check.c: one macro a library. They tell the call, where it stands, and the library's own
 * words; true if all is well. After a call of NCCL this waits until the communicator is ready for
 * the next one: a call may return before it has ended. */
bool cuda_checked(Cuda *c, cudaError_t error, const char *call, const char *file, int line);
bool nccl_checked(Cuda *c, const ncclComm_t *comm, ncclResult_t result, const char *call,
                  const char *file, int line);
#define CHECK_CUDA(c, name, arguments) cuda_checked((c), name arguments, #name, __FILE__, __LINE__)
/* comm: a pointer to the communicator that is busy with the call, which the call itself may make;
 * of a split, the parent. NULL: the call concerns none. */
#define CHECK_NCCL(c, comm, name, arguments)                                                       \
    nccl_checked((c), (comm), name arguments, #name, __FILE__, __LINE__)
/* An error that is not a library's; false. */
bool cuda_fail(Cuda *c, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- device.c ---- */
void device_environment(void); /* before the first call of MPI, CUDA or NCCL */
bool device_choose(Cuda *c);   /* which one, and that it can be used */
bool device_identify(Cuda *c); /* what this rank has; then compares with all others' */
/* A function of the driver, as the API of that version has it; the message ends with what_for. */
bool device_driver(Cuda *c, const char *name, unsigned version, const char *what_for, void **at);
void device_describe(Arena *arena, CudaFindings *findings);
const char *device_name(Arena *arena, uint32_t device);

/* ---- libraries.c ---- */
bool libraries_open(Cuda *c);
/* All ranks call it: what several of them carry out is carried out alike. */
bool libraries_settle(Cuda *c);
void libraries_close(Cuda *c);

/* ---- memory.c ---- */
bool memory_open(Cuda *c, const Program *p);
void memory_close(Cuda *c);
/* Before streams use what the host wrote: cudaMemset, and cudaMemcpy of memory that is not pinned,
 * return before the default stream has done it, and our streams do not wait for that one. */
bool memory_settle(Cuda *c);
bool memory_read(Cuda *c, BufferId b, void *to);
bool memory_write(Cuda *c, BufferId b, const void *from);
/* Poison where nothing lives between steps, before a step; and after it, whether something was
 * written beyond the arena. */
bool memory_poison(Cuda *c);
bool memory_inspect(Cuda *c);
uint64_t memory_highest(Cuda *c, Space space);
void memory_outside(Cuda *c); /* measures c->outside */

/* ---- stage.c: data from the host ---- */
bool stage_open(Cuda *c);
void stage_close(Cuda *c);
void stage_fill(Cuda *c);    /* `front` gets the data of c->control.step */
void stage_prepare(Cuda *c); /* while the device works: `back` gets that of the next step */
/* Carries out the batch instruction; from the slot in a segment that is shared. */
bool stage_issue(Cuda *c, Pc pc, bool shared);
bool stage_open_slots(Cuda *c); /* of the segments that are shared */
/* Before a shared segment runs: its micro-batch's data go to the slots. */
bool stage_to_slot(Cuda *c, const Segment *s);

/* ---- comm.c ---- */
bool comm_open(Cuda *c);
void comm_close(Cuda *c); /* destroys, or aborts where something failed */
/* Ends what is under way, within a bound: false, and c->stuck, when a library does not return. */
bool comm_abort(Cuda *c);
bool comm_issue(Cuda *c, Pc pc); /* one; within a group of NCCL's where it starts with others */
bool comm_errors(Cuda *c);       /* false: one of them says that it is broken */

/* ---- hosted.c ---- */
typedef struct Hosted Hosted;
bool hosted_open(Cuda *c);
void hosted_stop(Cuda *c); /* the thread: MPI is the caller's again; frees nothing */
void hosted_close(Cuda *c);
bool hosted_issue(Cuda *c, const Pc *pc, uint32_t n); /* those that start together */

/* ---- issue.c ---- */
bool issue_open(Cuda *c);
void issue_close(Cuda *c);
/* The instructions that are one kernel from place `at` of the order on; 0 or 1: none. */
uint32_t issue_kernel(const Cuda *c, uint32_t at, CudaChainPart part[CUDA_CHAIN_MAX]);
/* Once products are settled and segments are chosen: what is one launch, and which outputs stay
 * unwritten. */
bool issue_find_chains(Cuda *c);
/* Sends instructions [first, first + n) of the order to the streams, which all begin after, and end
 * before, what is on the compute stream. */
bool issue_segment(Cuda *c, const Segment *s, bool captures);

/* ---- graph.c ---- */
bool graph_capture(Cuda *c); /* c->graph of all segments */
bool graph_launch(Cuda *c, uint32_t segment);
void graph_close(Cuda *c);
/* One step with events around each instruction: by graphs of its own, or without. */
bool trace_open(Cuda *c, bool by_graphs);
void trace_rows(Cuda *c, Trace *trace);
void trace_close(Cuda *c);

/* ---- scan.c ---- */
bool scan_open(Cuda *c, BadNumber *bad);
bool scan_issue(Cuda *c, Pc pc); /* looks at the outputs of pc, when the stream gets there */
void scan_close(Cuda *c);

/* ---- watch.c ---- */
bool watch_open(Cuda *c);
bool watch_begin(Cuda *c); /* when all is open */
void watch_close(Cuda *c);
/* From here on something must move; until here. */
void watch_arm(Cuda *c, bool on);
/* all [n_ranks, bytes] = what each rank gave, between steps; who does not come is told. */
bool watch_exchange(Cuda *c, const void *mine, size_t bytes, void *all);
/* All ranks come here: who was faster does not count the others' preparations as a hang. */
bool watch_together(Cuda *c);
/* Waits until c->finished is recorded; false, or no return, when that does not come. */
bool watch_step(Cuda *c);
/* The same before steps, while something is opened: `what` tells. */
bool watch_opening(Cuda *c, const char *what);
/* What follows an error in a step: several ranks are ended, all of them; one returns false. */
bool watch_fail(Cuda *c);
/* Where a library's abort does not return the process ends here and now: at an ordinary exit the
 * libraries' own handlers would wait for the device too. */
void watch_leave(Cuda *c);

/* An instruction of a graph that several micro-batches share, as the running one's. */
Pc watch_actual(const Cuda *c, Pc pc);

/* ---- record.c ---- */
bool record_open(Cuda *c);
/* rule NULL: nothing is wrong yet. */
void record_write(Cuda *c, const char *rule, const char *text);
void record_look(Cuda *c); /* the same, if the last time was a while ago */
void record_close(Cuda *c);

/* ---- step.c ---- */
bool step_run(Cuda *c, const Control *control, Trace *trace);
bool step_find_bad(Cuda *c, const Control *control, Trace *trace, BadNumber *bad);

/* ---- open.c ---- */
bool cuda_open(Cuda *c, const Plan *plan, const BackendOptions *options);
void cuda_close(Cuda *c);

#endif
