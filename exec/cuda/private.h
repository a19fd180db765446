/* Declarations that only the files of the CUDA backend use. */
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

/* The device and the software of a rank. Ranks compare these before they create anything on their
 * devices. */
typedef struct Identity {
    unsigned char uuid[16];
    uint64_t host; /* hash of the machine's names */
    int32_t driver, runtime, nccl;
    int32_t capability, device;
    char name[64];
} Identity;

/* A communicator of the plan, for one pair (axes, stream). */
typedef struct CudaComm {
    GroupKey key;
    const char *name;
    ncclComm_t comm;
    void *registered;    /* NCCL's handle of the arena (from ncclCommRegister); NULL: the arena is
                            not registered */
    ncclWindow_t window; /* NCCL's symmetric window on the arena, if has_window is true */
    bool has_window;
} CudaComm;

/* The data of one micro-batch, for one instruction that reads a batch. */
typedef struct Staged {
    Pc pc;
    KernelArgs host; /* arguments of the CPU kernel, which writes the data to `back` */
    uint32_t n;      /* number of outputs: 1 or 2 */
    char *front[2];  /* pinned memory that is copied to the device: tokens and labels, or fields */
    char *back[2];   /* memory for the data of the next step, filled while this step runs */
    uint64_t bytes[2];
    char *slot[2]; /* in device memory, if several micro-batches use one graph; NULL otherwise */
} Staged;

/* Begin and end of each launch of a traced step. If a launch carries out several instructions, the
 * first instruction gets the whole time of the launch. The others get an empty interval at its
 * end. */
typedef struct CudaTrace {
    cudaEvent_t *begin, *end; /* [pc]; NULL: this step is not traced */
    Pc *lead;                 /* [pc]: first instruction of the launch that carries out instruction
                                 pc */
    cudaEvent_t zero;
} CudaTrace;

/* One block of an output. When the stream reaches the block, the host checks it for numbers that
 * are not finite. */
typedef struct Scan {
    struct Cuda *cuda;
    Pc pc;
    uint32_t output;
    uint64_t from, n; /* in elements */
    DType dtype;
} Scan;

/* watch.c, check.c: progress of a step, and position of each stream. */
typedef struct CudaWatch {
    /* true while the device runs a step, or while the host waits for it. The run then ends if there
     * is no progress within the timeout. At other times, work on the host may take patience_s
     * seconds. */
    _Atomic bool watched;
    double patience_s;
    double more_s; /* seconds that exchanges may take beyond patience_s; see Backend.patience */
    _Atomic uint64_t beat; /* a counter that the issuing thread increases as long as it makes
                              progress */
    pthread_t watcher;     /* the thread that watches `beat` */
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_over; /* signalled when the watching thread must end */
    bool watches;
    _Atomic bool ends;
    const char *opens; /* name of the operation that watch_opening waits for, as messages show it */
    unsigned char *here; /* [n_ranks]: scratch memory of exchanges */
    bool dead;           /* communicators are broken and can only be aborted */
    bool closing;        /* all steps are over, so other ranks may end before this one */
    /* a kernel did not end, or the calls that abort communicators did not return; nothing may wait
     * for the device any more */
    bool stuck;
    _Atomic bool aborted;
    double last_progress_s;
    /* Pinned memory, which the streams write as they run. unfinished [STREAM_COUNT]: first
     * instruction of each stream that has not ended; 0: all have ended. unfinished[STREAM_none] is
     * the index of the running segment. begun [STREAM_COUNT]: the last communication of each stream
     * that has begun. */
    uint32_t *unfinished, *begun;
    /* In device memory: the numbers 0, 1, 2, ..., n_instr, which streams copy to `unfinished` and
     * `begun`. Behind them lie words for the warm-up in comm.c. */
    uint32_t *numbers;
    uint32_t seen[STREAM_COUNT];
    Pc first_on_stream[STREAM_COUNT];
    Pc *next_on_stream; /* [pc]: next instruction on the same stream in the order of issue; 0:
                           none */
} CudaWatch;

/* device.c, memory.c: the GPU, its arena and its control blocks. */
typedef struct CudaGpu {
    int device;
    uint64_t free_before, outside; /* bytes: free on the device before the backend was opened; used
                                      outside of the arena */
    char *arena;                   /* NULL: not allocated yet */
    bool arena_of_nccl;
    bool unsettled;       /* the default stream may still be writing data that other streams will
                             read */
    uint64_t arena_bytes; /* size as allocated */
    CudaContext context;
    CudaControl *control_host; /* pinned memory */
    CudaControl *control_device;
    uint32_t *fault_host, *fault_device;
} CudaGpu;

/* libraries.c: the kernels that compute attention. */
typedef struct CudaKernels {
    struct CudnnAttention *cudnn;     /* NULL: the user did not ask for cuDNN */
    CudaAttentionLibrary attention;   /* attention by cuDNN */
    struct AttentionChooser *chooser; /* chooses between cuDNN, Tandem's general kernels and
                                         Tandem's kernels for Hopper by timing them */
    CudaAttentionLibrary by_chooser;
} CudaKernels;

/* open.c, issue.c: the streams of the plan, and the events with which they wait for each other. */
typedef struct CudaStreams {
    cudaStream_t of[STREAM_COUNT];
    bool uses[STREAM_COUNT];
    cudaEvent_t fork, join[STREAM_COUNT], finished;
    cudaEvent_t *event; /* [pc]: the event after instruction pc; NULL: no other stream waits for
                           it */
} CudaStreams;

/* comm.c, hosted.c: communicators. */
typedef struct CudaComms {
    Identity mine, *all; /* mine: this rank's device; all [n_ranks]: those of all ranks */
    ncclComm_t world;
    CudaComm *of; /* [n_comms]: the communicators of the plan */
    uint32_t n_comms;
    uint32_t *comm_of;     /* [pc]: index in `of` of the communicator that instruction pc uses */
    int32_t *counts;       /* pinned memory for the tables of counts of an uneven exchange; NULL:
                              there is no such exchange */
    struct Hosted *hosted; /* communications through the host; NULL: communications go through
                              NCCL */
} CudaComms;

/* order.c, stage.c, graph.c: launches of several instructions, and captured CUDA graphs. */
typedef struct CudaLaunches {
    IssueOrder order;
    uint32_t *chain;  /* [pc]: number of instructions in the launch that begins with instruction pc;
                         1: only pc itself */
    uint32_t *unread; /* [pc]: CudaChainPart.unread of instruction pc */
    Staged *staged;
    uint32_t n_staged;
    /* [pc]: 1 + index of the entry in `staged`; 0: instruction pc reads no batch */
    uint32_t *staged_of;
    int64_t next_filled; /* step whose data `back` holds; -1: none */
    /* [segment]: the captured graph; NULL: not captured, or the segment uses the graph of an
     * earlier one */
    cudaGraphExec_t *graph;
    cudaGraphExec_t *traced; /* [segment]: graphs of the traced step, with events around each
                                instruction */
    int64_t n_steps;
} CudaLaunches;

/* scan.c, step.c: findings of a step, such as numbers that are not finite. */
typedef struct CudaStepFindings {
    CudaTrace trace;
    char **scans; /* [STREAM_COUNT]: pinned memory, during a search for numbers that are not finite;
                     NULL otherwise */
    Arena *scan_arena;
    BadNumber *bad;
} CudaStepFindings;

/* choices.c: how often each expert was chosen. */
typedef struct CudaChoiceCounts {
    uint64_t *device; /* in device memory: chosen [layer, expert], then dropped [layer]; NULL: the
                         plan has no experts */
    LoadCounts *host;
} CudaChoiceCounts;

/* watch.c, record.c: the position of this rank, as the launcher and the user can read it. */
typedef struct CudaReport {
    Status *status;
    StatusSlot *slot, alone;
    int record; /* 1 + file descriptor of the file in which this rank records its position; 0: there
                   is none */
    char record_host[64];
    double recorded_s;
    bool owns_status; /* no launcher started the ranks, so this process owns the status record and
                         prints the verdict */
    char status_path[512];
} CudaReport;

/* One rank on one GPU. The comment at the type of each member says which files use it. */
typedef struct Cuda {
    Arena *arena;
    const Transport *transport;
    Meet *meet;
    const Plan *plan;
    BackendOptions options;
    CudaOptions own;
    Control control; /* values that kernels on the host read */
    RankState state;
    Rank rank;
    uint32_t n_ranks;
    Diag *d;     /* where errors are reported while a function of the backend is being called */
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

/* ---- check.c: one macro for each library. It returns true if the call succeeded. If not, it
 * reports the call, its line in the source and the library's message, and returns false.
 * nccl_checked also waits until the communicator is ready, because a call of NCCL may return before
 * its work is done. */
bool cuda_checked(Cuda *c, cudaError_t error, const char *call, const char *file, int line);
bool nccl_checked(Cuda *c, const ncclComm_t *comm, ncclResult_t result, const char *call,
                  const char *file, int line);
#define CHECK_CUDA(c, name, arguments) cuda_checked((c), name arguments, #name, __FILE__, __LINE__)
/* comm: address of the communicator that the call uses or creates (for a split: of the parent);
 * NULL: the call uses none. */
#define CHECK_NCCL(c, comm, name, arguments)                                                       \
    nccl_checked((c), (comm), name arguments, #name, __FILE__, __LINE__)
/* Reports an error that our own code has found. Returns false. */
bool cuda_fail(Cuda *c, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- device.c ---- */
void device_environment(
    void); /* sets environment variables; must be called before any call of MPI, CUDA or NCCL */
bool device_choose(Cuda *c);   /* chooses a device and checks that it can be used */
bool device_identify(Cuda *c); /* describes this rank's device and compares it with the devices of
                                  all ranks */
/* Looks up a function of the driver for an API version and writes its address to *at. If there is
 * none, reports an error that ends with what_for, and returns false. */
bool device_driver(Cuda *c, const char *name, unsigned version, const char *what_for, void **at);
/* The functions `describe` and `device_name` of CudaModule. */
void device_describe(Arena *arena, CudaFindings *findings);
const char *device_name(Arena *arena, uint32_t device);

/* ---- libraries.c ---- */
bool libraries_open(Cuda *c);
/* Lets all ranks agree on the libraries' choices and on features that all ranks must use alike. All
 * ranks must call this function. */
bool libraries_settle(Cuda *c);
void libraries_close(Cuda *c);

/* ---- memory.c ---- */
/* memory_open allocates the host arena. Until memory_place allocates the device arena, the
 * instructions get a placeholder for its address. So kernels can be chosen between the two calls,
 * while the memory of the device is still free. memory_place then gives the instructions the real
 * address. */
bool memory_open(Cuda *c, const Program *p);
bool memory_place(Cuda *c);
bool memory_fill(Cuda *c); /* fills the device arena with zeros, or with poison */
void memory_close(Cuda *c);
/* Waits for writes of the host before streams read the data. cudaMemset, and cudaMemcpy from memory
 * that is not pinned, may return before the default stream has finished. Our streams do not wait
 * for the default stream. */
bool memory_settle(Cuda *c);
/* Copy a whole buffer to or from host memory, between steps. */
bool memory_read(Cuda *c, BufferId b, void *to);
bool memory_write(Cuda *c, BufferId b, const void *from);
/* memory_poison must be called before a step. It poisons the memory that holds no value between
 * steps. memory_inspect must be called after the step. It finds writes beyond the arena. */
bool memory_poison(Cuda *c);
bool memory_inspect(Cuda *c);
uint64_t memory_highest(Cuda *c, Space space); /* see Backend.highest_touched */
void memory_outside(Cuda *c);                  /* measures c->gpu.outside */

/* ---- load.c ---- Runs every kind of kernel that the program uses once, on an arena of zeros. */
bool load_kernels(Cuda *c);

/* ---- init.c: the function Backend.init */
bool init_buffer(Cuda *c, BufferId b, bool *done);

/* ---- stage.c: data from the host ---- */
bool stage_open(Cuda *c);
void stage_close(Cuda *c);
void stage_fill(Cuda *c);    /* fills `front` with the data of step c->control.step */
void stage_prepare(Cuda *c); /* fills `back` with the data of the next step while the device
                                works */
/* Issues an instruction that reads a batch. If `shared` is true, several micro-batches use the
 * segment's graph, and the instruction copies from its slot. */
bool stage_issue(Cuda *c, Pc pc, bool shared);
bool stage_open_slots(Cuda *c); /* allocates the slots of segments whose graph several micro-batches
                                   use */
/* Copies the data of a micro-batch to the slots of its segment, before the segment's graph runs. */
bool stage_to_slot(Cuda *c, const Segment *s);

/* ---- comm.c ---- */
bool comm_open(Cuda *c);
void comm_close(Cuda *c); /* destroys the communicators, or aborts them after a failure */
/* Aborts running communications. If the libraries do not return within a time limit, sets
 * c->watch.stuck and returns false. */
bool comm_abort(Cuda *c);
/* Issues one communication. If others start together with it, the caller must have opened an NCCL
 * group. */
bool comm_issue(Cuda *c, Pc pc);
/* uneven.c. uneven_open reports an error if the ranks cannot exchange uneven rows in this run. */
bool uneven_open(Cuda *c);
void uneven_close(Cuda *c);
bool uneven_issue(Cuda *c, Pc pc, ncclComm_t of, cudaStream_t stream);
bool comm_errors(Cuda *c); /* returns false if a communicator reports an error */

/* ---- hosted.c ---- */
typedef struct Hosted Hosted;
/* Starts the communicating thread. All ranks must call this function. */
bool hosted_open(Cuda *c);
/* ends the communicating thread, so that the caller may use MPI again; frees nothing */
void hosted_stop(Cuda *c);
void hosted_close(Cuda *c);
/* Issues communications that start together. */
bool hosted_issue(Cuda *c, const Pc *pc, uint32_t n);

/* ---- issue.c ---- */
bool issue_open(Cuda *c);
void issue_close(Cuda *c);
/* Returns how many instructions, from position `at` of the order on, are fused into one kernel.
 * Describes them in `part`. If it returns 0 or 1, the first instruction is not fused. */
uint32_t issue_kernel(const Cuda *c, uint32_t at, CudaChainPart part[CUDA_CHAIN_MAX]);
/* Finds launches of several instructions, and outputs that need not be written. Must be called
 * after products and segments were chosen. */
bool issue_find_chains(Cuda *c);
/* Launches an instruction of the compute stream or the host stream, or the chain of n_parts
 * instructions that begins with it. If `shared` is true, several micro-batches use the segment's
 * graph, so batch data come from slots. */
bool issue_compute(Cuda *c, Pc pc, uint32_t n_parts, bool shared);
/* Issues the instructions of a segment to the streams. All streams begin after the earlier work of
 * the compute stream, and end before its later work. */
bool issue_segment(Cuda *c, const Segment *s, bool captures);

/* ---- graph.c ---- */
bool graph_capture(Cuda *c); /* captures a graph for each segment into c->launches.graph */
bool graph_launch(Cuda *c, uint32_t segment);
void graph_close(Cuda *c);
/* Prepares the trace of one step, with events around each instruction. If by_graphs is true, the
 * step runs as graphs that are captured for it; otherwise it runs without graphs. */
bool trace_open(Cuda *c, bool by_graphs);
/* Appends a row for each instruction, while there is room. */
void trace_rows(Cuda *c, Trace *trace);
void trace_close(Cuda *c);

/* ---- scan.c ---- */
bool scan_open(Cuda *c, BadNumber *bad);
bool scan_issue(Cuda *c, Pc pc); /* lets the host check the outputs of instruction pc when the
                                    stream has computed them */
void scan_close(Cuda *c);

/* ---- choices.c: counts on the device how often experts are chosen ---- */
bool choices_open(Cuda *c);
bool choices_clear(Cuda *c); /* clears the counts, because kernels have run before the first step */
bool choices_issue(Cuda *c, Pc pc);      /* adds the choices that instruction pc has made, if it
                                            makes some */
const LoadCounts *choices_read(Cuda *c); /* returns the counts, between steps; NULL: there are no
                                            experts, or an error occurred */
void choices_close(Cuda *c);

/* ---- watch.c ---- */
bool watch_open(Cuda *c);
bool watch_begin(Cuda *c); /* starts the watching thread; must be called after everything else is
                              open */
void watch_close(Cuda *c);
/* Begins (`on` true) or ends a period in which the step must make progress. */
void watch_arm(Cuda *c, bool on);
/* Gathers `mine` of every rank into `all` [n_ranks, bytes], between steps. Reports ranks that do
 * not take part in time. */
bool watch_exchange(Cuda *c, const void *mine, size_t bytes, void *all);
/* A barrier before timed work. Without it, a fast rank would take the others' preparation for a
 * hang. */
bool watch_together(Cuda *c);
/* Waits until the device has reached the event c->streams.finished. If that takes too long, returns
 * false or ends the process. */
bool watch_step(Cuda *c);
/* Does the same while a library is being opened. `what` names that operation in messages. */
bool watch_opening(Cuda *c, const char *what);
/* Handles an error in a step: if there are several ranks, ends all of them; otherwise returns
 * false. */
bool watch_fail(Cuda *c);
/* If c->watch.stuck is true, ends the process at once, without exit handlers. The handlers of the
 * libraries would wait for the device. */
void watch_leave(Cuda *c);

/* Several micro-batches may use one graph, which was captured for one of them. Returns the
 * instruction of the running micro-batch that corresponds to instruction pc of the captured one. */
Pc watch_actual(const Cuda *c, Pc pc);

/* ---- record.c ---- */
bool record_open(Cuda *c);
/* Writes this rank's position to its file. `rule` is NULL if there is no error. */
void record_write(Cuda *c, const char *rule, const char *text);
void record_look(
    Cuda *c); /* calls record_write with rule NULL, unless that was done a short time ago */
void record_close(Cuda *c);

/* ---- step.c ---- */
/* Backend.step calls step_run, or step_find_bad if it gets a BadNumber. */
bool step_run(Cuda *c, const Control *control, Trace *trace);
bool step_find_bad(Cuda *c, const Control *control, Trace *trace, BadNumber *bad);

/* ---- open.c ---- */
bool cuda_open(Cuda *c, const Plan *plan, const BackendOptions *options);
void cuda_close(Cuda *c);

#endif
