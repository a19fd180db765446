/* A plan in virtual time, in integer picoseconds; ties are broken by sequence number. The same
 * plan, models and seed give the same bytes.
 *
 * A step begins on all ranks at once and ends when the last rank's program ends. The next step
 * begins at that time, with an empty network: there is a barrier between steps, and within a step
 * only the plan orders ranks. All steps therefore take the same time, and no warm-up is needed. */
#ifndef TANDEM_SIM_SIM_H
#define TANDEM_SIM_SIM_H

#include "planner/front/config.h"
#include "planner/ir/trace.h"
#include "sim/compute/rows_share.h"
#include "sim/fold.h"
#include "sim/net/nccl_choice.h"
#include "store/store.h"

#define SIM_ENGINE_VERSION "sim/16" /* increased by any change that alters results */

/* Time of one compute instruction alone on its device. */
typedef struct CostModel {
    Ps (*compute)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Like `compute`, for a rank with its own rows of experts (compute/rows_share.h). */
    Ps (*compute_rows)(const void *self, const Plan *plan, const Program *p, const Instr *in,
                       const RowsShare *rows);
    /* The time that a host process takes to issue an instruction, in program order. No instruction
     * starts before it was issued. NULL: all instructions are issued ahead of time. */
    Ps (*issue)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Bytes of device memory that the instruction moves as executed (fused, or in several passes).
     * NULL: its inputs and outputs once each. */
    double (*bytes)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* True for a communication that the modelled system does not perform. NULL: it performs all. */
    bool (*leaves_out)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* The fraction of a communication for which later instructions wait, in (0, 1]. NULL: 1. */
    double (*waited)(const void *self, const Plan *plan, const Instr *in);
    Ps issue_from; /* start of issuing, from the start of the step */
    /* If true: before the host issues a kernel, it waits for the messages between stages that the
     * kernel reads, and for all messages that it has sent. If there are such messages, it also
     * waits for the kernels before them. */
    bool waits_messages;
    /* True if the host waits for the instruction's end before it issues the next. NULL: false. */
    bool (*waits)(const void *self, const Instr *in);
    const void *self;
} CostModel;

/* One communication whose group is complete. Ranks are classes of `fold` (single ranks if
 * unfolded). A folded transfer stands for all equivalent groups of those classes at once. */
typedef struct Transfer {
    OpKind op;
    const FoldGroup *group;    /* the group of a collective; NULL for send/recv */
    uint32_t sender, receiver; /* send/recv: the classes of the two ends */
    Rank from_rank,
        to_rank;    /* send/recv: two ranks of these classes that are peers of each other */
    uint64_t bytes; /* plan_comm_bytes */
    DType dtype;
    bool registered; /* its buffers are registered with the network */
    /* an exchange of experts' rows that differ from rank to rank (imbalance.h): its layer, from 1;
     * 0: none. back: the rows return to the ranks of their tokens. out, in: [class] the parts of
     * `bytes` that a member sends and receives; NULL: all bytes */
    uint32_t layer;
    bool back;
    const double *out, *in;
} Transfer;

/* A network model keeps state because transfers share links. `next` returns the transfer that ends
 * next if nothing else starts, or NET_RATES if rates change first. At that time the engine passes
 * the returned value to `finish`. The engine first asks for events that are due `now` (with settle
 * false; the answer is false if there is no such event). It lets rates settle only at the end of an
 * instant, so that all events of one instant count together, whatever their order. */
#define NET_RATES UINT32_MAX
typedef struct NetModel {
    void (*start)(void *self, uint32_t id, const Transfer *t, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when); /* false: none */
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
} NetModel;

/* Devices that share their arithmetic units with other work. It is called like a NetModel. */
typedef struct DeviceModel {
    void (*start)(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when);
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
    bool is_host; /* a host's processor: the host's own instructions start here too */
} DeviceModel;

/* Differences between devices: one is slower, and times vary at random (lognormal, median 1). */
typedef struct Unevenness {
    uint64_t seed;
    Rank straggler;
    double straggler_factor; /* factor above 1; otherwise no rank is slower */
    double jitter;           /* sigma of ln(time); 0: none */
} Unevenness;

typedef struct SimOptions {
    bool unfolded; /* simulate every rank; otherwise ranks are folded by refinement */
    bool trace;    /* keep rows (all simulated ranks) */
    bool explain;  /* also report the critical path, stages and kinds */
    bool alone;    /* transfers and kernels share no resource, which gives a lower bound of a step's
                      time */
    bool frees;    /* communications of free_op along free_axes take no time (with sends also their
                      receives) */
    OpKind free_op;
    const Unevenness *uneven; /* NULL: devices do not differ; needs `unfolded` */
    AxisSet free_axes;
    /* rows of experts on each rank; if NULL, or if they do not fit the plan: see `imbalance` */
    const struct RowLoads *loads;
    double imbalance; /* unevenness of routing: the busiest rank's rows divided by the mean; <= 1:
                       * even */
    uint64_t seed;
    /* the framework that executes the plan; NULL or without a name: Tandem itself */
    const Runtime *runtime;
    uint32_t steps; /* default 1, because all steps take the same time; the last step is reported */
    Store *store;   /* measured kernels and collectives; NULL: none */
    const char *machine; /* key of the measurements */
    const char *backend;
    bool no_memory;          /* leave the memory out of the report */
    const struct Held *held; /* sim_held of this plan and runtime; NULL: not computed yet */
    /* report a longer step of the same plan, with this many micro-batches; 0: the plan's own step.
     * Not allowed with `trace`, `explain` and `uneven`. */
    uint32_t microbatches;
    /* the plan whose arenas are reported: a shorter step of the same ranks, if the buffers of the
     * simulated plan have no offsets; NULL: the simulated plan */
    const Plan *placed;
} SimOptions;

/* Device memory under another system's profile (SimOptions.runtime): the maximum over ranks, and
 * the memory of the rank that its logs print. */
typedef struct Held {
    uint64_t allocated_bytes; /* live tensors */
    uint64_t reserved_bytes;  /* held by the framework's allocator */
    uint64_t process_bytes;   /* with context, libraries and communicators */
    uint64_t logged[MEMORY_KIND_COUNT];
    /* number of times in two steps that the allocator had to give segments back */
    uint32_t n_retries;
    bool fits;
} Held;

/* Numbers of distinct costs in a simulation: measured (from the store) and modelled. */
typedef struct CostCounts {
    uint32_t kernels_measured, kernels_modelled, collectives_measured, collectives_modelled;
} CostCounts;

/* Device memory that NCCL takes for one communicator of a rank (comm_memory.c). */
typedef struct CommMemory {
    AxisSet axes;
    Stream stream; /* under another system's profile: the first of the streams that share the
                    * communicator */
    uint32_t n_ranks, n_nodes, channels, n_peers; /* n_peers: of messages */
    uint64_t ring_bytes, tree_bytes, switch_bytes, message_bytes,
        bytes; /* `bytes`: the sum of the others */
} CommMemory;
typedef LIST(CommMemory) CommMemories;
/* Returns the bytes of all communicators of a program's ranks, with one row each; 0 if there is no
 * device. */
uint64_t comm_memory(const Plan *plan, uint32_t program, const Cluster *cluster,
                     const Runtime *runtime, Arena *arena, CommMemories *list);
/* Returns the largest comm_memory of all programs, with its rows. */
uint64_t comm_memory_most(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                          Arena *arena, CommMemories *list);

typedef struct AxisTime {
    AxisSet axes;
    Stream stream;
    uint32_t n;
    uint64_t bytes;
    Ps total_ps, exposed_ps;
} AxisTime;

/* One interval of the critical path: the chain of instructions that determines the step's time.
 * `pc` is in the program of `rank`. `host`: the rank waits for its host, which has not yet issued
 * `pc`. `data`: all instructions have ended, but the loader still reads the next step's sequences;
 * `pc` ended last. */
typedef struct PathPart {
    Rank rank;
    Pc pc;
    bool host, data;
    Ps from_ps, to_ps;
} PathPart;
typedef struct PathSum { /* a sum over intervals: compute by op, communication by op and axes */
    OpKind op;
    AxisSet axes;
    bool comm, host, data; /* host: the host's intervals; data: the data loader's; in both, `op` is
                              OP_none */
    uint32_t n;
    Ps time_ps;
} PathSum;
typedef struct StageRow { /* one role: times of its slowest rank; they add up to the step's time */
    uint32_t program;
    Rank rank;
    Ps compute_ps, exposed_ps, bubble_ps;
    uint64_t bytes;
} StageRow;
typedef struct KindRow { /* kernels of one op on the slowest rank */
    OpKind op;
    DType dtype; /* dtype of the first argument */
    uint32_t n;
    Ps time_ps;
    double flops, bytes;       /* FLOPs, and bytes of device memory */
    double of_peak, of_memory; /* achieved fractions of the device's rates */
} KindRow;

typedef struct SimReport {
    Ps step_ps;
    double tokens_per_s, tokens_per_s_per_device;
    double mfu; /* fraction of peak */
    double model_flops_per_token;
    const char *mfu_formula; /* "6 x 7,504,924,672 params (no input embedding) + 6 x 32 layers x
                                4096 x 8192 per token" */
    const char *peak_name;   /* "989.4 TFLOP/s dense bf16 H100-SXM5-80GB" */
    Rank slowest;            /* the first rank whose program ends last */
    Ps compute_ps;           /* busy time of the slowest rank's compute stream */
    Ps input_ps;             /* the last part of step_ps, in which the step waits for the loader */
    Ps idle_ps;              /* step_ps - compute_ps */
    /* the part of idle_ps in which communications are in flight (the sum over `axes`). In the
     * remainder the rank waits for other ranks, as in a pipeline's bubble */
    Ps exposed_ps;
    /* times of the slowest rank; exposed: its compute stream is idle and waits for the
     * communication */
    LIST(AxisTime) axes;
    LIST(CollectiveRow) collectives;
    uint64_t peak_bytes;  /* arena of the worst rank's program */
    uint64_t total_bytes; /* with reserved bytes (context, communicators) */
    Rank peak_rank;
    uint64_t memory[CATEGORY_COUNT]; /* live bytes by category, at the peak of that rank's
                                      * program */
    uint64_t memory_holes;           /* arena minus live bytes at that instant */
    Pc peak_pc;
    LIST(MemoryRow) memory_rows; /* `memory` for every program, for the store */
    Held held; /* under another framework's profile: gives `fits` and total_bytes; otherwise zero */
    uint32_t n_classes; /* simulated ranks */
    uint64_t n_events;  /* instructions finished on simulated ranks */
    CostCounts counts;
    double n_launches; /* kernels of the slowest rank */
    Ps host_ps;        /* time of the slowest rank's host to issue every instruction one by one */
    /* host_ps > step_ps: the host limits the step unless graphs are captured */
    bool fits, host_bound;
    /* options.microbatches was set, but no period was found; all other fields are unset */
    bool aperiodic;
    LIST(PathPart) path;     /* with `explain`: in order of time, without gaps */
    LIST(PathSum) path_sums; /* longest first */
    LIST(StageRow) stages;
    LIST(KindRow) kinds;
    Trace trace;
} SimReport;

/* Simulates the plan on the cluster. Returns false after reporting "sim-deadlock" with the ranks
 * and the event for which each waits, "sim-duplicate-match", "sim-peer", or "sim-cluster" (more
 * ranks than devices). */
bool sim_run(const Plan *plan, const Cluster *cluster, const SimOptions *options, Arena *arena,
             SimReport *report, Diag *d);

/* Returns the time in which the loader of a data rank reads the sequences of a step; 0: none. */
Ps sim_input_ps(const Plan *plan, const StepInfo *step, const Runtime *runtime);

/* ---- the engine alone: any plan, any models (tests use constants) ---- */

/* Times of an instruction of one simulated rank, from the start of the last step. */
typedef struct Moment {
    Ps reached, start, end; /* reached: the instructions that it waits for had ended; start:
                             * its group was complete */
    Pc by; /* the instruction whose end allowed this instruction to begin; 0: it could begin with
            * the step
            */
    uint32_t met; /* number of instructions that had to end first and have ended */
} Moment;

/* The times of one simulated rank's instructions. Ranks of one program run the same instruction at
 * about the same time. Memory therefore holds the times of one instruction for all ranks, then the
 * times of the next instruction for all ranks. */
typedef struct Timeline {
    Moment *first;
    uint32_t stride; /* number of ranks that have this program */
} Timeline;

static inline Moment *moment_of(const Timeline *line, Pc pc)
{
    return &line->first[(size_t)pc * line->stride];
}

/* The start of a burst, in which the host issues the instructions from `first` on without waiting.
 * by: the instruction for whose end the host waited before this burst; 0: it did not wait. */
typedef struct HostStart {
    Pc first, by;
    Ps from; /* time since the step's start */
} HostStart;

typedef struct HostLine {
    HostStart *at;
    uint32_t n;
} HostLine;

typedef struct EngineOptions {
    const CostModel *cost;
    NetModel *net;
    DeviceModel *device; /* NULL: every rank has its own device */
    const Fold *fold;
    const struct Imbalance *uneven; /* NULL: all ranks have equally many rows of experts */
    uint32_t steps;                 /* 0: one */
} EngineOptions;
typedef struct EngineResult {
    Ps step_ps; /* last step */
    Ps *end_ps; /* [class], from the start of that step */
    uint64_t n_events;
    Timeline *line; /* [class] */
    HostLine *host; /* [class] */
} EngineResult;
bool engine_run(const Plan *plan, const EngineOptions *options, Arena *arena, EngineResult *result,
                Diag *d);

/* ---- compute cost ---- */

/* Roofline with tile and wave quantisation. If the store has a kernel measured on `machine`, its
 * time is used instead. Results are cached by (op, attributes, argument shapes). */
typedef struct Cost Cost;
Cost *cost_new(const Cluster *cluster, const Runtime *runtime, Store *store, const char *machine,
               Arena *arena, Diag *d);
CostModel cost_model(Cost *cost);
void cost_counts(const Cost *cost, CostCounts *counts); /* counts kernels */

/* Returns the key under which the store keeps a compute instruction's time: op, dtype and local
 * sizes by letter. */
const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* ---- network ---- */

/* Returns a network like `inner` in which communications of `op` along `axes` take no time. */
typedef struct NetFree NetFree;
NetFree *net_free(NetModel inner, OpKind op, AxisSet axes, Arena *arena);
NetModel net_free_model(NetFree *net);

/* A network in which NCCL's model limits the rate of each transfer, and transfers share ports, NICs
 * and uplinks by max-min fairness. */
typedef struct MaxMin MaxMin;
MaxMin *maxmin_new(const Cluster *cluster, const Fold *fold, Arena *arena);
NcclSettings *
maxmin_asks(MaxMin *net); /* the plan's NCCL settings, for the caller to set; none at first */
/* From now on, a collective that runs alone takes the time that the store has for it (backend
 * "nccl" on `machine`), if there is one. */
void maxmin_measured(MaxMin *net, Store *store, const char *machine, Diag *d);
void maxmin_counts(const MaxMin *net, CostCounts *counts); /* counts the costs of collectives */
NetModel maxmin_net(MaxMin *net);
uint32_t maxmin_channels(const MaxMin *net, uint32_t id); /* the SMs that a running transfer
                                                           * occupies */
Ps maxmin_alone_ps(MaxMin *net, const Transfer *t);       /* time of a transfer that runs alone */

/* Returns a network in which each transfer takes its maxmin_alone_ps, and transfers share no
 * links. */
NetModel net_alone(MaxMin *times, Arena *arena);

/* A device model that takes one SM for each channel of a running collective away from computation
 * on its ranks. It wraps the network model to learn which collectives run. */
typedef struct Sms Sms;
Sms *sms_new(const Cluster *cluster, const Fold *fold, MaxMin *net, Arena *arena);
NetModel sms_net(Sms *sms);
DeviceModel sms_device(Sms *sms);

typedef struct SlowDevice SlowDevice;
SlowDevice *slow_device_new(DeviceModel inner, const Fold *fold, const Unevenness *how,
                            Arena *arena);
DeviceModel slow_device_model(SlowDevice *device);

/* ---- failures ---- */

typedef struct Faults {
    double mtbf_s;                  /* mean time between failures of the whole machine */
    double checkpoint_s, restart_s; /* time to write a checkpoint; time to resume after a failure */
} Faults;
/* Returns the fraction of time that is useful work if a checkpoint follows every `interval_s` of
 * work. */
double faults_goodput(const Faults *faults, double interval_s);
double faults_best_interval_s(const Faults *faults); /* Daly's estimate of the best interval */
double faults_draw_s(const Faults *faults, double interval_s, double work_s, uint64_t seed);

/* Models processes on one machine whose computation and communication share its cores. A collective
 * takes the time that the store has for it (`backend` on `machine`), otherwise the time of a
 * generic model. */
typedef struct Cores Cores;
Cores *cores_new(const Cluster *cluster, const Fold *fold, Store *store, const char *machine,
                 const char *backend, Arena *arena, Diag *d);
void cores_counts(const Cores *cores, CostCounts *counts); /* counts the costs of collectives */
NetModel cores_net(Cores *cores);
DeviceModel cores_device(Cores *cores);

/* ---- memory and reports ---- */

/* Live bytes over program order: for each pc the live bytes by category (device space). */
typedef struct MemoryCurve {
    uint64_t (*at)[CATEGORY_COUNT];
    uint32_t n;
    Pc peak;
    /* the most bytes that are reserved for buffers at one time, in multiples of 256 */
    uint64_t in_use;
    uint64_t waiting; /* in_use minus the most live bytes: unfinished communications may still read
                         these buffers */
} MemoryCurve;
void memory_curve(const Plan *plan, const Program *p, Arena *arena, MemoryCurve *curve);

/* Memory under the profile `runtime`, which must have a name. */
Held sim_held(const Plan *plan, const Cluster *cluster, const Runtime *runtime);
/* The same for the rank that holds most rows of experts. loads, imbalance: as in SimOptions. */
Held sim_held_uneven(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                     const struct RowLoads *loads, double imbalance);

/* Returns the FLOPs per token of the default MFU: 6 x (parameters without input embedding) + 6 x
 * layers x (heads x width of a head) x seq, with 12 instead of 6 if attention is not causal. Only
 * the experts that a token uses count. */
double mfu_flops_per_token(const Graph *g);

#endif
