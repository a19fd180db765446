/* Runs a plan in virtual time, in whole picoseconds. Events at the same time are ordered by
 * sequence number. The same plan, models and seed give the same bytes.
 *
 * A step begins on all ranks at the same time and ends when the last rank's program ends. The next
 * step begins at that time, with an empty network. So there is a barrier between steps; within a
 * step, only the plan orders ranks. All steps therefore take the same time, and no warm-up is
 * needed. */
#ifndef TANDEM_SIM_SIM_H
#define TANDEM_SIM_SIM_H

#include "planner/front/config.h"
#include "planner/ir/trace.h"
#include "sim/compute/rows_share.h"
#include "sim/fold.h"
#include "sim/net/nccl_choice.h"
#include "store/store.h"

#define SIM_ENGINE_VERSION "sim/16" /* raised by any change that alters results */

/* A model of the time that one compute instruction takes alone on its device. */
typedef struct CostModel {
    Ps (*compute)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Returns the same for a rank whose experts process `rows` (compute/rows_share.h). */
    Ps (*compute_rows)(const void *self, const Plan *plan, const Program *p, const Instr *in,
                       const RowsShare *rows);
    /* Returns how long the host takes to issue an instruction. The host issues instructions in the
     * order of the program, and no instruction starts before it was issued. NULL: all instructions
     * are issued before the step. */
    Ps (*issue)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Returns the bytes of device memory that the instruction moves as it is executed (fused, or in
     * several passes). NULL: its inputs and outputs are moved once each. */
    double (*bytes)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Returns true for an instruction that the modelled system leaves out. NULL: it leaves out
     * none. */
    bool (*leaves_out)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Returns the fraction of a communication for which later instructions wait, in (0, 1]. NULL:
     * 1. */
    double (*waited)(const void *self, const Plan *plan, const Instr *in);
    Ps issue_from; /* when the host begins to issue, counted from the beginning of the step */
    /* true: before the host issues a kernel, it waits for the messages between stages that the
     * kernel reads, and for all messages that it has sent. If there are such messages, it also
     * waits for the kernels before them. */
    bool waits_messages;
    /* Returns true if the host waits for the end of the instruction before it issues the next one.
     * NULL: it never does. */
    bool (*waits)(const void *self, const Instr *in);
    /* true: instructions that do the same work (engine_alike.h) have the same costs. So the
     * functions of this model may not read an instruction's layer or micro-batch. */
    bool by_shape;
    const void *self;
} CostModel;

/* One communication whose members have all arrived. The members are classes of equivalent ranks
 * (fold.h). If ranks are not folded, each class is a single rank. A transfer stands for the
 * communications of all groups that consist of these classes. They run at the same time. */
typedef struct Transfer {
    OpKind op;
    const FoldGroup *group;    /* the group of a collective; NULL for a send or receive */
    uint32_t sender, receiver; /* classes of the two ends of a send or receive */
    Rank from_rank, to_rank;   /* two ranks of these classes that communicate with each other */
    uint64_t bytes;            /* plan_comm_bytes */
    DType dtype;
    bool registered; /* its buffers are registered with the network */
    /* For an exchange of tokens in which ranks have different numbers of rows (imbalance.h).
     * layer: number of the layer, from 1; 0: not such an exchange. back: the rows return to the
     * ranks of their tokens. out[class], in[class]: the fractions of `bytes` that a member sends
     * and receives; NULL: all bytes. */
    uint32_t layer;
    bool back;
    const double *out, *in;
} Transfer;

/* A network model has a state, because transfers share links. `next` returns the transfer that ends
 * next if nothing else starts, or NET_RATES if rates change before that. When this time has come,
 * the engine passes the returned value to `finish`. With `settle` false, the engine asks for an
 * event that is due at `now`; `next` returns false if there is none. At the end of an instant, the
 * engine sets `settle`, and the model computes new rates. So all events of an instant count
 * together, whatever their order. */
#define NET_RATES UINT32_MAX
typedef struct NetModel {
    void (*start)(void *self, uint32_t id, const Transfer *t, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when); /* false: no event */
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
} NetModel;

/* A model of devices that share their arithmetic units with other work. It is called like a
 * NetModel. */
typedef struct DeviceModel {
    void (*start)(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when);
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
    bool is_host; /* the device is the processor of a host, so the host's own instructions start
                     here as well */
} DeviceModel;

/* Differences between devices: one may be slower, and times may vary at random (lognormal with
 * median 1). */
typedef struct Unevenness {
    uint64_t seed;
    Rank straggler;
    double straggler_factor; /* factor of the straggler's times; if it is not above 1, no rank is
                                slower */
    double jitter;           /* sigma of ln(time); 0: times do not vary */
} Unevenness;

typedef struct SimOptions {
    bool unfolded; /* simulate every rank; otherwise equivalent ranks are folded into classes */
    bool trace;    /* keep the trace rows of all simulated ranks */
    bool explain;  /* also report the critical path, the stages and the kinds of ops */
    bool alone;    /* transfers and kernels share no resource, which gives a lower bound of the
                      step's time */
    bool frees;    /* communications of free_op along free_axes take no time (for sends, also their
                      receives) */
    OpKind free_op;
    const Unevenness *uneven; /* NULL: devices do not differ. If not NULL, `unfolded` must be
                                 true. */
    AxisSet free_axes;
    /* the rows that the experts of each rank process; if NULL, or if the numbers do not fit the
     * plan, `imbalance` is used */
    const struct RowLoads *loads;
    double imbalance; /* rows of the busiest rank's experts, divided by the mean over ranks; <= 1:
                         all ranks have equally many rows */
    uint64_t seed;
    /* the framework that executes the plan; NULL, or without a name: Tandem itself */
    const Runtime *runtime;
    uint32_t steps; /* default 1, because all steps take the same time; the last one is reported */
    Store *store;   /* store with measured kernels and collectives; NULL: none */
    const char *machine; /* name under which the store keeps the measurements */
    const char *backend;
    bool no_memory;          /* leave memory out of the report */
    const struct Held *held; /* result of sim_held for this plan and runtime; NULL: it is not known
                                yet */
    /* report a longer step of the same plan, with this many micro-batches; 0: the plan's own step.
     * Not allowed together with `trace`, `explain` or `uneven`. */
    uint32_t microbatches;
    /* the plan whose arenas are reported; NULL: the simulated plan. It is needed if buffers of the
     * simulated plan have no offsets. It has the same ranks and a shorter step. */
    const Plan *placed;
    bool exact; /* simulate every micro-batch, even if it repeats the one before it */
} SimOptions;

/* Device memory under the profile of another framework, its kernels and costs (SimOptions.runtime):
 * the largest over all ranks, and that of the rank whose numbers its logs print. */
typedef struct Held {
    uint64_t allocated_bytes; /* bytes of live tensors */
    uint64_t reserved_bytes;  /* bytes that the framework's allocator has taken from the device */
    uint64_t process_bytes;   /* reserved_bytes plus CUDA context, libraries and communicators */
    uint64_t logged[MEMORY_KIND_COUNT];
    /* how often the allocator had to give segments back to the device, in two steps */
    uint32_t n_retries;
    bool fits;
} Held;

/* Numbers of distinct costs in a simulation: measured ones (from the store) and modelled ones. */
typedef struct CostCounts {
    uint32_t kernels_measured, kernels_modelled, collectives_measured, collectives_modelled;
} CostCounts;

/* Device memory that NCCL takes for one communicator on a rank (comm_memory.c). */
typedef struct CommMemory {
    AxisSet axes;
    Stream stream; /* under another system's profile: the first of the streams that use the
                      communicator */
    uint32_t n_ranks, n_nodes, channels, n_peers; /* n_peers: number of ranks with which messages
                                                     are exchanged */
    uint64_t ring_bytes, tree_bytes, switch_bytes, message_bytes,
        bytes; /* bytes: sum of the others */
} CommMemory;
typedef LIST(CommMemory) CommMemories;
/* Returns the bytes of all communicators on a rank of `program`, and adds one entry to *list for
 * each; 0 if there is no device. */
uint64_t comm_memory(const Plan *plan, uint32_t program, const Cluster *cluster,
                     const Runtime *runtime, Arena *arena, CommMemories *list);
/* Returns the largest comm_memory of all programs, with its entries. */
uint64_t comm_memory_most(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                          Arena *arena, CommMemories *list);

/* All communications of the slowest rank along one set of axes, on one stream. */
typedef struct AxisTime {
    AxisSet axes;
    Stream stream;
    uint32_t n; /* number of communications */
    uint64_t bytes;
    Ps total_ps, exposed_ps;
} AxisTime;

/* One interval of the critical path, which is the chain of instructions that determines the step's
 * time. `pc` is an instruction in the program of `rank`. host: the rank waits for its host, which
 * has not issued `pc` yet. data: all instructions have ended, `pc` last, and the step waits until
 * the loader has read the next step's sequences. */
typedef struct PathPart {
    Rank rank;
    Pc pc;
    bool host, data;
    Ps from_ps, to_ps;
} PathPart;
typedef struct PathSum { /* a sum of intervals: of computation by op, of communication by op and
                            axes */
    OpKind op;
    AxisSet axes;
    bool comm, host, data; /* host: intervals of the host; data: intervals of the loader of data; in
                              both, op is OP_none */
    uint32_t n;
    Ps time_ps;
} PathSum;
typedef struct StageRow { /* one role (program): the times of its slowest rank, which add up to the
                             time of the step */
    uint32_t program;
    Rank rank;
    Ps compute_ps, exposed_ps, bubble_ps;
    uint64_t bytes;
} StageRow;
typedef struct KindRow { /* all kernels of one op on the slowest rank */
    OpKind op;
    DType dtype; /* dtype of the first argument */
    uint32_t n;
    Ps time_ps;
    double flops, bytes;       /* FLOPs; bytes of device memory that were moved */
    double of_peak, of_memory; /* reached fractions of the device's peak and of its memory rate */
} KindRow;

typedef struct SimReport {
    Ps step_ps;
    double tokens_per_s, tokens_per_s_per_device;
    double mfu; /* fraction of the peak */
    double model_flops_per_token;
    const char *mfu_formula; /* such as "6 x 7,504,924,672 params (no input embedding) + 6 x 32
                                layers x 4096 x 8192 per token" */
    const char *peak_name;   /* such as "989.4 TFLOP/s dense bf16 H100-SXM5-80GB" */
    Rank slowest;            /* first rank whose program ends last */
    Ps compute_ps;           /* time in which the slowest rank's compute stream is busy */
    Ps input_ps;             /* last part of step_ps, in which the step waits for the loader of
                                data */
    Ps idle_ps;              /* step_ps - compute_ps */
    /* the part of idle_ps in which communications are in progress (the sum over `axes`). In the
     * rest of idle_ps, the rank waits for other ranks, as in the bubble of a pipeline. */
    Ps exposed_ps;
    /* times of the slowest rank; exposed: its compute stream is idle and waits for the
     * communication */
    LIST(AxisTime) axes;
    LIST(CollectiveRow) collectives;
    uint64_t peak_bytes;  /* bytes of the arena, for the program that needs most */
    uint64_t total_bytes; /* the same with reserved bytes (context, communicators) */
    Rank peak_rank;
    uint64_t memory[CATEGORY_COUNT]; /* live bytes of each category, at the peak of that rank's
                                        program */
    uint64_t memory_holes;           /* bytes of the arena that no live buffer uses at that
                                        instant */
    LIST(MemoryRow) memory_rows;     /* `memory` of every program, for the store */
    Held held; /* memory under another framework's profile, which determines `fits` and total_bytes;
                  all zero otherwise */
    uint32_t n_classes; /* number of simulated ranks */
    uint64_t n_events;  /* number of instructions that simulated ranks have finished */
    /* periods that the engine has left out, because they repeat the ones before them; each has one
     * micro-batch */
    uint32_t n_left_out;
    CostCounts counts;
    double n_launches; /* number of kernels on the slowest rank */
    Ps host_ps;        /* how long the slowest rank's host takes to issue all instructions one by
                          one */
    /* host_bound: host_ps > step_ps, so the host limits the step unless graphs are captured */
    bool fits, host_bound;
    /* options.microbatches was set, but no period was found; all other members are then unset */
    bool aperiodic;
    LIST(PathPart) path;     /* with options.explain: in the order of time, without gaps */
    LIST(PathSum) path_sums; /* sorted, the longest first */
    LIST(StageRow) stages;
    LIST(KindRow) kinds;
    Trace trace;
} SimReport;

/* Simulates the plan on the cluster. Returns false after reporting sim-deadlock (with the ranks,
 * and for what each of them waits), sim-duplicate-match, sim-peer, or sim-cluster (there are more
 * ranks than devices). */
bool sim_run(const Plan *plan, const Cluster *cluster, const SimOptions *options, Arena *arena,
             SimReport *report, Diag *d);

/* Returns how long the loader of a data rank takes to read the sequences of a step; 0: no time. */
Ps sim_input_ps(const Plan *plan, const StepInfo *step, const Runtime *runtime);

/* ---- the engine by itself: any plan, any models (tests use constants) ---- */

/* Times of one instruction on a simulated rank, counted from the start of the last step. */
typedef struct Moment {
    Ps reached, start, end; /* reached: all instructions that it waits for had ended; start: all
                               members of its group had arrived */
    Pc by;        /* the instruction whose end allowed this one to begin; 0: it could begin with the
                     step */
    uint32_t met; /* how many of the instructions that must end first have ended */
} Moment;

/* The times of the instructions of one simulated rank. Ranks of one program run the same
 * instruction at about the same time. So memory holds the times of one instruction for all these
 * ranks, then those of the next instruction. */
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
    Ps from; /* time since the start of the step */
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
    uint32_t steps;                 /* number of steps; 0 stands for one */
    /* Micro-batches that repeat the ones before them may be left out (leap/leap.c); the result
     * has their times, too. The models may then depend on nothing but the instructions and
     * differences of times. */
    bool leaps;
} EngineOptions;
typedef struct EngineResult {
    Ps step_ps; /* time of the last step */
    Ps *end_ps; /* [class]: end of its program, counted from the start of that step */
    uint64_t n_events;
    Timeline *line;      /* [class] */
    HostLine *host;      /* [class] */
    uint32_t n_left_out; /* how many periods of one micro-batch were left out */
} EngineResult;
bool engine_run(const Plan *plan, const EngineOptions *options, Arena *arena, EngineResult *result,
                Diag *d);

/* ---- compute cost ---- */

/* Costs by a roofline with tiles and waves. If the store has a kernel measured on `machine`, its
 * time is used instead. Times are cached by (op, attributes, shapes of arguments). */
typedef struct Cost Cost;
Cost *cost_new(const Cluster *cluster, const Runtime *runtime, Store *store, const char *machine,
               Arena *arena, Diag *d);
CostModel cost_model(Cost *cost);
void cost_counts(const Cost *cost, CostCounts *counts); /* counts the distinct costs of kernels */

/* Returns the key under which the store keeps the time of a compute instruction. It contains op,
 * dtype and local sizes by letter. */
const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* ---- network ---- */

/* Returns a network like `inner` on which communications of `op` along `axes` take no time. */
typedef struct NetFree NetFree;
NetFree *net_free(NetModel inner, OpKind op, AxisSet axes, Arena *arena);
NetModel net_free_model(NetFree *net);

/* A network on which NCCL's model limits the rate of each transfer, and transfers share ports, NICs
 * and uplinks by max-min fairness. */
typedef struct MaxMin MaxMin;
MaxMin *maxmin_new(const Cluster *cluster, const Fold *fold, Arena *arena);
/* Returns the NCCL settings of the plan. At first none are set; the caller may set them. */
NcclSettings *maxmin_settings(MaxMin *net);
/* Uses measured times from now on: a collective that runs alone takes the time that the store has
 * for it (backend "nccl" on `machine`), if there is one. */
void maxmin_measured(MaxMin *net, Store *store, const char *machine, Diag *d);
void maxmin_counts(const MaxMin *net, CostCounts *counts); /* counts the distinct costs of
                                                              collectives */
NetModel maxmin_net(MaxMin *net);
uint32_t maxmin_channels(const MaxMin *net, uint32_t id); /* returns how many SMs a running transfer
                                                             occupies */
Ps maxmin_alone_ps(MaxMin *net, const Transfer *t);       /* returns the time of a transfer that
                                                             runs alone */

/* Returns a network on which each transfer takes the time of maxmin_alone_ps, and transfers share
 * no links. */
NetModel net_alone(MaxMin *times, Arena *arena);

/* A device model in which each channel of a running collective takes one SM away from computation
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
    double mtbf_s;                  /* mean time between failures of the whole machine, in
                                       seconds */
    double checkpoint_s, restart_s; /* seconds to write a checkpoint; seconds to resume after a
                                       failure */
} Faults;
/* Returns the fraction of the time that is useful work if a checkpoint is written after every
 * `interval_s` seconds of work. */
double faults_goodput(const Faults *faults, double interval_s);
double faults_best_interval_s(const Faults *faults); /* Daly's estimate of the best interval, in
                                                        seconds */
double faults_draw_s(const Faults *faults, double interval_s, double work_s, uint64_t seed);

/* A model of processes on one machine, whose computation and communication share its cores. A
 * collective takes the time that the store has for it (`backend` on `machine`), or else the time of
 * a generic model. */
typedef struct Cores Cores;
Cores *cores_new(const Cluster *cluster, const Fold *fold, Store *store, const char *machine,
                 const char *backend, Arena *arena, Diag *d);
void cores_counts(const Cores *cores, CostCounts *counts); /* counts the distinct costs of
                                                              collectives */
NetModel cores_net(Cores *cores);
DeviceModel cores_device(Cores *cores);

/* ---- memory and reports ---- */

/* The instruction at which the most bytes of device memory are live, and the live bytes of each
 * category of buffers at this instruction. */
typedef struct MemoryPeak {
    uint64_t at[CATEGORY_COUNT];
    Pc pc;
    /* largest number of bytes that are reserved for buffers at one time, in multiples of 256 */
    uint64_t in_use;
    uint64_t waiting; /* in_use minus the largest number of live bytes: buffers that unfinished
                         communications may still read */
} MemoryPeak;
void memory_peak(const Program *p, Arena *arena, MemoryPeak *peak);

/* Returns the memory under the profile `runtime`, which must have a name. */
Held sim_held(const Plan *plan, const Cluster *cluster, const Runtime *runtime);
/* Returns the same for the rank with most rows of experts. loads and imbalance mean the same as in
 * SimOptions. */
Held sim_held_uneven(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                     const struct RowLoads *loads, double imbalance);

#endif
