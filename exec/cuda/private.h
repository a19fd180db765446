/* Shared by the files of the CUDA backend. */
#ifndef TANDEM_EXEC_CUDA_PRIVATE_H
#define TANDEM_EXEC_CUDA_PRIVATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "exec/cuda/meet/meet.h"
#include "exec/cuda/module.h"
#include "exec/cuda/options.h"
#include "exec/cuda/order.h"
#include "exec/ending.h"
#include "exec/groups.h"
#include "exec/loads.h"
#include "kernels/cuda/cuda.h"

/* A rank's device and software. Ranks compare them before they create anything on the devices. */
typedef struct Identity {
    unsigned char uuid[16];
    uint64_t host; /* a hash of the machine's names */
    int32_t driver, runtime, nccl;
    int32_t capability, device;
    char name[64];
} Identity;

/* A communicator: (axes, stream). */
typedef struct CudaComm {
    GroupKey key;
    const char *name;
    ncclComm_t comm;
    void *registered;    /* handle of the arena from ncclCommRegister; NULL: none */
    ncclWindow_t window; /* symmetric window of the arena, if has_window */
    bool has_window;
} CudaComm;

/* The data of one micro-batch, for one batch instruction. */
typedef struct Staged {
    Pc pc;
    KernelArgs host; /* arguments of the CPU's kernel, which writes to `back` */
    uint32_t n;      /* outputs of the source: 1 or 2 */
    char *front[2];  /* pinned, copied to the device: [tokens, labels], or fields */
    char *back[2];   /* data of the next step, filled while this step runs */
    uint64_t bytes[2];
    char *slot[2]; /* in device memory, if several micro-batches share a graph; else NULL */
} Staged;

/* Begin and end of each launch, while a step is traced. If a launch carries out several
 * instructions, the first one gets the launch's time. The others get an empty interval at the
 * launch's end. */
typedef struct CudaTrace {
    cudaEvent_t *begin, *end; /* [pc]; NULL: not traced */
    Pc *lead;                 /* [pc]: the first instruction of its launch */
    cudaEvent_t zero;
} CudaTrace;

/* One block of an output. When the stream reaches it, it is checked for numbers that are not
 * finite. */
typedef struct Scan {
    struct Cuda *cuda;
    Pc pc;
    uint32_t output;
    uint64_t from, n; /* elements */
    DType dtype;
} Scan;

/* watch.c, check.c: the progress of a step, and the position of each stream. */
typedef struct CudaWatch {
    /* While the device runs a step or the host waits for it, the run ends if no progress is made
     * within the timeout. Work on the host may take up to patience_s. */
    _Atomic bool watched;
    double patience_s;
    double more_s; /* beyond patience_s, in exchanges; see Backend.patience */
    _Atomic uint64_t
        beat;          /* a counter that the issuing thread changes as long as it makes progress */
    pthread_t watcher; /* the thread that watches this counter */
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_over; /* signalled when the watcher has to end */
    bool watches;
    _Atomic bool ends;
    const char *opens;   /* the operation for which watch_opening waits */
    unsigned char *here; /* [n_ranks] */
    bool dead;           /* communicators are broken and can only be aborted */
    bool closing;        /* all steps are over, so other ranks may end before this one */
    /* the calls that abort the communicators did not return either, so no code may wait for the
     * device */
    bool stuck;
    _Atomic bool aborted;
    double last_progress_s;
    /* Pinned memory that the streams write as they run. unfinished [STREAM_COUNT]: the first
     * instruction that is not done; 0: all are done. unfinished[STREAM_none] is the segment. begun
     * [STREAM_COUNT]: the newest communication that began. */
    uint32_t *unfinished, *begun;
    uint32_t
        *numbers; /* [n_instr + 1] on the device: 0, 1, 2, ..., the values copied to unfinished */
    uint32_t seen[STREAM_COUNT];
    Pc first_on_stream[STREAM_COUNT];
    Pc *next_on_stream; /* [pc] next instruction in issue order; 0: none */
} CudaWatch;

/* device.c, memory.c: the GPU, its arena and the control blocks. */
typedef struct CudaGpu {
    int device;
    uint64_t free_before,
        outside; /* free device bytes before open; device bytes used outside the arena */
    char *arena; /* NULL: not allocated yet */
    bool arena_of_nccl;
    bool unsettled;       /* the default stream may still be writing data that other streams read */
    uint64_t arena_bytes; /* bytes as allocated */
    CudaContext context;
    CudaControl *control_host; /* pinned */
    CudaControl *control_device;
    uint32_t *fault_host, *fault_device;
} CudaGpu;

/* libraries.c: the kernels that compute attention. */
typedef struct CudaKernels {
    struct CudnnAttention *cudnn;     /* NULL: cuDNN was not asked for */
    CudaAttentionLibrary attention;   /* cuDNN's attention */
    struct AttentionChooser *chooser; /* the choice, by measurement, between cuDNN, Tandem's general
                                   kernels and its kernels for Hopper */
    CudaAttentionLibrary by_chooser;
} CudaKernels;

/* open.c, issue.c: the plan's streams, and the events between them. */
typedef struct CudaStreams {
    cudaStream_t of[STREAM_COUNT];
    bool uses[STREAM_COUNT];
    cudaEvent_t fork, join[STREAM_COUNT], finished;
    cudaEvent_t *event; /* [pc]; NULL: no other stream waits for it */
} CudaStreams;

/* comm.c, hosted.c: the ranks' communicators. */
typedef struct CudaComms {
    Identity mine, *all; /* [n_ranks] */
    ncclComm_t world;
    CudaComm *of; /* [n_comms] */
    uint32_t n_comms;
    uint32_t *comm_of;     /* [pc] */
    int32_t *counts;       /* pinned: the counts of one exchange of uneven rows; NULL: none */
    struct Hosted *hosted; /* communication through the host; NULL: through NCCL */
} CudaComms;

/* order.c, stage.c, graph.c: launches of several instructions, and captured graphs. */
typedef struct CudaLaunches {
    IssueOrder order;
    uint32_t *chain;  /* [pc] number of instructions in the launch that begins at pc; 1: alone */
    uint32_t *unread; /* [pc]: CudaChainPart.unread of a part */
    Staged *staged;
    uint32_t n_staged;
    uint32_t *staged_of; /* [pc]: 1 + index; 0: not a batch instruction */
    int64_t next_filled; /* the step whose data `back` holds; -1: none */
    /* [segment]; NULL: not captured, or shared with an equal earlier segment */
    cudaGraphExec_t *graph;
    cudaGraphExec_t *traced; /* [segment]: graphs of one step with events around each instruction */
    int64_t n_steps;
} CudaLaunches;

/* scan.c, step.c: the findings of a step. */
typedef struct CudaStepFindings {
    CudaTrace trace;
    char **scans; /* [STREAM_COUNT]: pinned memory during a search for bad numbers; else NULL */
    Arena *scan_arena;
    BadNumber *bad;
} CudaStepFindings;

/* choices.c: how often experts were chosen. */
typedef struct CudaChoiceCounts {
    uint64_t *device; /* chosen [layer, expert], dropped [layer]; NULL: the plan has no experts */
    LoadCounts *host;
} CudaChoiceCounts;

/* record.c: the rank's state, for the launcher and for people. */
typedef struct CudaReport {
    Status *status;
    StatusSlot *slot, alone;
    int record; /* 1 + the descriptor of this rank's file; 0: none */
    char record_host[64];
    double recorded_s;
    bool owns_status; /* no launcher: this process owns the status and prints the verdict */
    char status_path[512];
} CudaReport;

/* One rank on one GPU. The comment at each part's type names the files that use it. */
typedef struct Cuda {
    Arena *arena;
    const Transport *transport;
    Meet *meet;
    const Plan *plan;
    BackendOptions options;
    CudaOptions own;
    Control control; /* settings that kernels on the host read */
    RankState state;
    Rank rank;
    uint32_t n_ranks;
    Diag *d;     /* receives errors while a call of the backend is in progress */
    bool failed; /* an error was reported; errors that follow from it are not reported */
    const char *why_rule, *why;
    CudaWatch watch;
    CudaGpu gpu;
    CudaKernels kernels;
    CudaStreams streams;
    CudaComms comms;
    CudaLaunches launches;
    CudaStepFindings findings;
    CudaChoiceCounts choices;
    CudaReport report;
} Cuda;

/* ---- check.c: one macro for each library. It returns true if there is no error. Otherwise it
 * reports the call, its source line and the library's message, and returns false. nccl_checked also
 * waits until the communicator is ready, because a call of NCCL may return before it has ended. */
bool cuda_checked(Cuda *c, cudaError_t error, const char *call, const char *file, int line);
bool nccl_checked(Cuda *c, const ncclComm_t *comm, ncclResult_t result, const char *call,
                  const char *file, int line);
#define CHECK_CUDA(c, name, arguments) cuda_checked((c), name arguments, #name, __FILE__, __LINE__)
/* comm: points to the communicator that the call uses or creates; for a split, to the parent; NULL:
 * the call uses none. */
#define CHECK_NCCL(c, comm, name, arguments)                                                       \
    nccl_checked((c), (comm), name arguments, #name, __FILE__, __LINE__)
/* Reports an error of our own code; returns false. */
bool cuda_fail(Cuda *c, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- device.c ---- */
void device_environment(
    void); /* sets environment variables; called before any call of MPI, CUDA or NCCL */
bool device_choose(Cuda *c);   /* chooses a device and checks that it can be used */
bool device_identify(Cuda *c); /* describes this rank's device and compares it with all others' */
/* Writes the address of a driver function of the given API version to *at. If there is none,
 * reports an error that ends with what_for and returns false. */
bool device_driver(Cuda *c, const char *name, unsigned version, const char *what_for, void **at);
void device_describe(Arena *arena, CudaFindings *findings);
const char *device_name(Arena *arena, uint32_t device);

/* ---- libraries.c ---- */
bool libraries_open(Cuda *c);
/* All ranks call it, to agree on the features that all must use or none. */
bool libraries_settle(Cuda *c);
void libraries_close(Cuda *c);

/* ---- memory.c ---- */
/* memory_open allocates the host arena. The device arena first has a placeholder address, so that
 * instructions can be prepared. memory_place allocates the arena and gives the instructions its
 * real address. Kernels are chosen between the two calls, while the device's memory is still
 * free. */
bool memory_open(Cuda *c, const Program *p);
bool memory_place(Cuda *c);
bool memory_fill(Cuda *c); /* fills the arenas with zeroes, or with poison */
void memory_close(Cuda *c);
/* Waits for host writes before streams use them. cudaMemset, and cudaMemcpy from memory that is
 * not pinned, may return before the default stream has finished, and our streams do not wait for
 * it. */
bool memory_settle(Cuda *c);
bool memory_read(Cuda *c, BufferId b, void *to);
bool memory_write(Cuda *c, BufferId b, const void *from);
/* Before a step, memory_poison fills the memory that holds no value between steps. memory_inspect
 * then finds writes beyond the arena. */
bool memory_poison(Cuda *c);
bool memory_inspect(Cuda *c);
uint64_t memory_highest(Cuda *c, Space space);
void memory_outside(Cuda *c); /* measures c->gpu.outside */

/* ---- load.c ---- Runs every kind of kernel of the program once, on an arena of zeroes. */
bool load_kernels(Cuda *c);

/* ---- init.c ---- Backend.init */
bool init_buffer(Cuda *c, BufferId b, bool *done);

/* ---- stage.c: data from the host ---- */
bool stage_open(Cuda *c);
void stage_close(Cuda *c);
void stage_fill(Cuda *c);    /* fills `front` with the data of c->control.step */
void stage_prepare(Cuda *c); /* while the device works: fills `back` with the next step's data */
/* Issues a batch instruction. In a shared segment, the instruction copies from its slot. */
bool stage_issue(Cuda *c, Pc pc, bool shared);
bool stage_open_slots(Cuda *c); /* allocates the slots of shared segments */
/* Copies the data of a shared segment's micro-batch to the slots before it runs. */
bool stage_to_slot(Cuda *c, const Segment *s);

/* ---- comm.c ---- */
bool comm_open(Cuda *c);
void comm_close(Cuda *c); /* destroys communicators, or aborts them after a failure */
/* Aborts running communications within a time limit. If a library does not return, returns false
 * and sets c->watch.stuck. */
bool comm_abort(Cuda *c);
/* Issues one communication. If others start with it, the caller has opened an NCCL group. */
bool comm_issue(Cuda *c, Pc pc);
/* uneven.c. uneven_open refuses a run whose ranks have no way to exchange uneven rows. */
bool uneven_open(Cuda *c);
void uneven_close(Cuda *c);
bool uneven_issue(Cuda *c, Pc pc, ncclComm_t of, cudaStream_t stream);
bool comm_errors(Cuda *c); /* false if a communicator reports an error */

/* ---- hosted.c ---- */
typedef struct Hosted Hosted;
bool hosted_open(Cuda *c);
/* ends the thread, so that the caller may use MPI again; frees nothing */
void hosted_stop(Cuda *c);
void hosted_close(Cuda *c);
/* Issues communications that start together. */
bool hosted_issue(Cuda *c, const Pc *pc, uint32_t n);

/* ---- issue.c ---- */
bool issue_open(Cuda *c);
void issue_close(Cuda *c);
/* Returns how many instructions, from index `at` of the order on, form one kernel; 0 or 1: the
 * first one is alone. */
uint32_t issue_kernel(const Cuda *c, uint32_t at, CudaChainPart part[CUDA_CHAIN_MAX]);
/* Finds launches of several instructions, and outputs that stay unwritten. Call it after the choice
 * of products and of segments. */
bool issue_find_chains(Cuda *c);
/* Launches an instruction of a compute or host stream, or the n_parts of a chain that begins with
 * it. shared: the segment is shared, so its data come from slots. */
bool issue_compute(Cuda *c, Pc pc, uint32_t n_parts, bool shared);
/* Issues the instructions of a segment to the streams. All streams begin after the earlier work of
 * the compute stream and end before its later work. */
bool issue_segment(Cuda *c, const Segment *s, bool captures);

/* ---- graph.c ---- */
bool graph_capture(Cuda *c); /* captures c->launches.graph of every segment */
bool graph_launch(Cuda *c, uint32_t segment);
void graph_close(Cuda *c);
/* Prepares the trace of one step, with events around each instruction. by_graphs: with additional
 * graphs; otherwise without graphs. */
bool trace_open(Cuda *c, bool by_graphs);
void trace_rows(Cuda *c, Trace *trace);
void trace_close(Cuda *c);

/* ---- scan.c ---- */
bool scan_open(Cuda *c, BadNumber *bad);
bool scan_issue(Cuda *c, Pc pc); /* checks the outputs of pc when the stream reaches it */
void scan_close(Cuda *c);

/* ---- choices.c: counts of the experts' choices on the device ---- */
bool choices_open(Cuda *c);
bool choices_clear(Cuda *c); /* forgets the counts of kernels that ran before the first step */
bool choices_issue(Cuda *c, Pc pc);      /* counts the choices of pc, if it makes some */
const LoadCounts *choices_read(Cuda *c); /* between steps; NULL: no experts, or an error */
void choices_close(Cuda *c);

/* ---- watch.c ---- */
bool watch_open(Cuda *c);
bool watch_begin(Cuda *c); /* starts the watching thread; call it after everything is open */
void watch_close(Cuda *c);
/* Starts and ends a period in which progress is required. */
void watch_arm(Cuda *c, bool on);
/* Gathers `mine` of every rank into `all` [n_ranks, bytes], between steps. Reports ranks that do
 * not take part in time. */
bool watch_exchange(Cuda *c, const void *mine, size_t bytes, void *all);
/* A barrier before timed work, so that a fast rank does not take the others' preparation for a
 * hang. */
bool watch_together(Cuda *c);
/* Waits until the device has reached c->streams.finished. If that does not happen in time, returns
 * false or ends the process. */
bool watch_step(Cuda *c);
/* Waits in the same way while a library is opened; `what` names the operation in messages. */
bool watch_opening(Cuda *c, const char *what);
/* Handles an error in a step: ends all ranks if there are several, otherwise returns false. */
bool watch_fail(Cuda *c);
/* Ends the process at once if c->watch.stuck. At an ordinary exit, the libraries' own handlers
 * would wait for the device. */
void watch_leave(Cuda *c);

/* Translates an instruction of a graph that several micro-batches share into the instruction of the
 * running micro-batch. */
Pc watch_actual(const Cuda *c, Pc pc);

/* ---- record.c ---- */
bool record_open(Cuda *c);
/* Writes this rank's state. rule NULL: there is no error yet. */
void record_write(Cuda *c, const char *rule, const char *text);
void record_look(
    Cuda *c); /* calls record_write without a rule, unless the state was written recently */
void record_close(Cuda *c);

/* ---- step.c ---- */
bool step_run(Cuda *c, const Control *control, Trace *trace);
bool step_find_bad(Cuda *c, const Control *control, Trace *trace, BadNumber *bad);

/* ---- open.c ---- */
bool cuda_open(Cuda *c, const Plan *plan, const BackendOptions *options);
void cuda_close(Cuda *c);

#endif
