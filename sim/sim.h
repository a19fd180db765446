/* A plan in virtual time. Integer picoseconds; ties by sequence number; same plan + models + seed =
 * same bytes out.
 *
 * A step begins on every rank at once and ends when the last rank's program has ended; the next
 * one begins there, with an empty network (a barrier between steps; within a step nothing but the
 * plan orders ranks). So every step takes the same time: there is no warm-up to wait for. */
#ifndef TANDEM_SIM_SIM_H
#define TANDEM_SIM_SIM_H

#include "planner/front/config.h"
#include "planner/ir/trace.h"
#include "sim/fold.h"
#include "store/store.h"

#define SIM_ENGINE_VERSION "sim/9" /* bumped by any change that alters results */

/* Time of one compute instruction alone on its device. */
typedef struct CostModel {
    const char *name; /* "roofline", "measured" */
    Ps (*compute)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* What a host process takes to issue any instruction; it issues all in program order, waits for
     * none, and nothing starts before it is issued. NULL: issued ahead of time. */
    Ps (*issue)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Bytes of device memory that it moves as it is carried out: fused, in several passes. NULL:
     * its inputs and outputs once. */
    double (*bytes)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    /* Communications that what is modelled does not do. NULL: none. */
    bool (*leaves_out)(const void *self, const Plan *plan, const Program *p, const Instr *in);
    Ps issue_from; /* when it begins, from the start of the step */
    const void *self;
} CostModel;

/* One communication of a group that has gathered. Ranks are classes of `fold` (each rank its own
 * when unfolded); a folded transfer stands for all the alike groups of those classes at once. */
typedef struct Transfer {
    OpKind op;
    const FoldGroup *group;    /* collectives; NULL for send/recv */
    uint32_t sender, receiver; /* classes: send/recv */
    Rank from_rank, to_rank;   /* send/recv: representatives that really are peers */
    uint64_t bytes;            /* plan_comm_bytes */
    DType dtype;
    bool registered; /* its buffers lie in memory that the network was told of */
} Transfer;

/* Transfers share links, so a network model keeps state. `next` tells what ends next if nothing
 * else starts (or, as NET_RATES, when the model wants to be called because rates change by
 * themselves); what it tells is handed back by `finish` at that time. The engine first asks for
 * what is due `now` (settle false: false if nothing is), and lets rates settle only when the
 * instant is over, so what happens at one instant is seen as a whole, in whatever order it came. */
#define NET_RATES UINT32_MAX
typedef struct NetModel {
    const char *name; /* "nccl", "measured" */
    void (*start)(void *self, uint32_t id, const Transfer *t, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when); /* false: none */
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
} NetModel;

/* Devices that compute instructions do not have to themselves. Same manners. */
typedef struct DeviceModel {
    const char *name;
    void (*start)(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now);
    bool (*next)(void *self, Ps now, bool settle, uint32_t *id, Ps *when);
    void (*finish)(void *self, uint32_t id, Ps now);
    void *self;
    bool is_host; /* it is the host's processor: what the host does is started here too */
} DeviceModel;

/* Devices that are not alike: one that is slower, and times that scatter (lognormal, median 1). */
typedef struct Unevenness {
    uint64_t seed;
    Rank straggler;
    double straggler_factor; /* > 1; else nobody is slower */
    double jitter;           /* sigma of ln(time); 0: none */
} Unevenness;

typedef struct SimOptions {
    bool unfolded; /* every rank simulated; else ranks are folded by refinement */
    bool trace;    /* keep rows (all simulated ranks) */
    bool explain;  /* the critical path, stages and kinds of the report */
    bool frees;    /* as if this communication took no time (send stands for recv, too) */
    OpKind free_op;
    const Unevenness *uneven; /* NULL: all alike; needs `unfolded` */
    AxisSet free_axes;
    double imbalance; /* of the experts' choices: the busiest rank's rows by the mean; <= 1: none */
    uint64_t seed;
    const Runtime *runtime; /* whose execution it is; NULL, or without a name: Tandem's own */
    uint32_t steps;         /* default 1: all steps are alike; the last one is reported */
    Store *store;           /* measured kernels and collectives; NULL: none */
    const char *machine;    /* key of the measurements */
    const char *backend;
} SimOptions;

/* Device memory as another system has it (SimOptions.runtime), each the most of any rank, and of
 * the rank whose memory its logs print. */
typedef struct Held {
    uint64_t allocated_bytes; /* live tensors */
    uint64_t reserved_bytes;  /* what its allocator holds for them */
    uint64_t process_bytes;   /* and context, libraries, communicators */
    uint64_t logged[MEMORY_KIND_COUNT];
    uint32_t n_retries; /* times that free segments had to be given back, in two steps */
    bool fits;
} Held;

/* Distinct costs that a simulation used: from the store, and from the models. */
typedef struct CostCounts {
    uint32_t kernels_measured, kernels_modelled, collectives_measured, collectives_modelled;
} CostCounts;

/* What NCCL takes of a device's memory for one communicator of a rank (comm_memory.c). */
typedef struct CommMemory {
    AxisSet axes;
    Stream stream; /* under another system's profile: the first of those that share it */
    uint32_t n_ranks, n_nodes, channels, n_peers;                        /* peers: of messages */
    uint64_t ring_bytes, tree_bytes, switch_bytes, message_bytes, bytes; /* the last: all */
} CommMemory;
typedef LIST(CommMemory) CommMemories;
/* Of the ranks of a program, with a row for each communicator; 0 where there is no device. */
uint64_t comm_memory(const Plan *plan, uint32_t program, const Cluster *cluster,
                     const Runtime *runtime, Arena *arena, CommMemories *list);
/* The most of any program, with its rows. */
uint64_t comm_memory_most(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                          Arena *arena, CommMemories *list);

typedef struct AxisTime {
    AxisSet axes;
    Stream stream;
    uint32_t n;
    uint64_t bytes;
    Ps total_ps, exposed_ps;
} AxisTime;

/* A stretch of the chain of instructions that bounds the step; `pc` of the program of `rank`.
 * `host`: that rank's host, which had not yet issued `pc`. */
typedef struct PathPart {
    Rank rank;
    Pc pc;
    bool host;
    Ps from_ps, to_ps;
} PathPart;
typedef struct PathSum { /* of its stretches: compute by op, communication by op and axes */
    OpKind op;
    AxisSet axes;
    bool comm, host; /* host: of all stretches in which a host issued; no op */
    uint32_t n;
    Ps time_ps;
} PathSum;
typedef struct StageRow { /* a role, by its slowest rank; the three times add up to the step */
    uint32_t program;
    Rank rank;
    Ps compute_ps, exposed_ps, bubble_ps;
    uint64_t bytes;
} StageRow;
typedef struct KindRow { /* kernels of one op on the slowest rank */
    OpKind op;
    DType dtype; /* of the first argument */
    uint32_t n;
    Ps time_ps;
    double flops, bytes;       /* of device memory */
    double of_peak, of_memory; /* achieved parts of the device's rates */
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
    Ps compute_ps;           /* of the slowest rank's compute stream */
    Ps idle_ps;              /* step_ps - compute_ps */
    Ps exposed_ps;       /* of idle_ps: communications on the wire (the sum over `axes`); the rest
                          * waits for other ranks: a pipeline's bubble */
    LIST(AxisTime) axes; /* of the slowest rank; exposed: compute stream idle, waiting for it */
    LIST(CollectiveRow) collectives;
    uint64_t peak_bytes;  /* arena of the worst rank's program */
    uint64_t total_bytes; /* + reserved (context, communicators) */
    Rank peak_rank;
    uint64_t memory[CATEGORY_COUNT]; /* live bytes by category at the peak instant of that rank's
                                        program */
    uint64_t memory_holes;           /* arena minus live at that instant */
    Pc peak_pc;
    LIST(MemoryRow) memory_rows; /* as `memory`, for every program: what the store keeps */
    Held held; /* under another system's profile: `fits` and total_bytes go by it; else zero */
    uint32_t n_classes; /* simulated ranks */
    uint64_t n_events;  /* instructions finished on simulated ranks */
    CostCounts counts;
    Ps host_ps; /* issuing every instruction of the slowest rank one by one from the host */
    bool fits, host_bound; /* host_ps > step_ps: without captured graphs the host would limit */
    const char *cost_model, *net_model, *device_model;
    LIST(PathPart) path;     /* with `explain`: in order of time, without gaps */
    LIST(PathSum) path_sums; /* longest first */
    LIST(StageRow) stages;
    LIST(KindRow) kinds;
    Trace trace;
} SimReport;

/* Runs the plan on the cluster. Reports "sim-deadlock" with the ranks and what each waits for,
 * "sim-duplicate-match", "sim-peer", "sim-cluster" (more ranks than devices). */
bool sim_run(const Plan *plan, const Cluster *cluster, const SimOptions *options, Arena *arena,
             SimReport *report, Diag *d);

/* ---- the engine alone: any plan, any models (tests use constants) ---- */

/* Times of one simulated rank, by pc, from the start of the last step. */
typedef struct Timeline {
    Ps *reached, *start, *end; /* reached: its own turn had come; start: the group had gathered */
    Pc *by;                    /* whose end let it begin; 0: the step's start */
} Timeline;

typedef struct EngineOptions {
    const CostModel *cost;
    NetModel *net;
    DeviceModel *device; /* NULL: a device each */
    const Fold *fold;
    uint32_t steps; /* 0: one */
    bool record;    /* keep timelines */
} EngineOptions;
typedef struct EngineResult {
    Ps step_ps; /* last step */
    Ps *end_ps; /* [class], from the start of that step */
    uint64_t n_events;
    Timeline *line; /* [class], if recorded */
} EngineResult;
bool engine_run(const Plan *plan, const EngineOptions *options, Arena *arena, EngineResult *result,
                Diag *d);

/* ---- compute cost ---- */

/* Roofline with tile and wave quantisation; kernels measured on `machine` win where the store has
 * their key. Calls are cached by (op, attributes, argument shapes). */
typedef struct Cost Cost;
Cost *cost_new(const Cluster *cluster, const Runtime *runtime, Store *store, const char *machine,
               Arena *arena, Diag *d);
CostModel cost_model(Cost *cost);
void cost_counts(const Cost *cost, CostCounts *counts); /* of kernels */

/* The calibration key of a compute instruction: op, dtype and local sizes by letter. */
const char *cost_key(const Plan *plan, const Program *p, const Instr *in, Arena *arena);

/* ---- network ---- */

/* What NCCL knows, with the factor by which nccl-tests turns bytes over time into the bus bandwidth
 * of n ranks. Sizes are nccl-tests': the larger of what a rank gives and gets. */
#define COLLECTIVES(X)                                                                             \
    X(all_reduce, 2 * (n - 1) / n)                                                                 \
    X(all_gather, (n - 1) / n)                                                                     \
    X(reduce_scatter, (n - 1) / n)                                                                 \
    X(all_to_all, (n - 1) / n)                                                                     \
    X(broadcast, 1)                                                                                \
    X(reduce, 1)                                                                                   \
    X(gather, (n - 1) / n)                                                                         \
    X(scatter, (n - 1) / n)                                                                        \
    X(sendrecv, 1)
typedef enum Collective {
#define X(name, factor) COLLECTIVE_##name,
    COLLECTIVES(X)
#undef X
        COLLECTIVE_COUNT
} Collective;
const char *collective_name(Collective kind);
bool collective_find(const char *name, Collective *kind);
double collective_bus_factor(Collective kind, double n_ranks);

#define NCCL_ALGORITHMS(X)                                                                         \
    X(Tree) X(Ring) X(CollNetDirect) X(CollNetChain) X(NVLS) X(NVLSTree) X(PAT)
typedef enum NcclAlgorithm {
#define X(name) NCCL_##name,
    NCCL_ALGORITHMS(X)
#undef X
        NCCL_ALGORITHM_COUNT
} NcclAlgorithm;

/* How a call is made: among others on its stream or in a graph, as plans do; each one waited for,
 * as benchmarks do; all devices of a node by one process, which is nccl-tests without MPI. */
typedef enum NcclIssue { NCCL_pipelined, NCCL_blocking, NCCL_one_process } NcclIssue;
/* Where buffers lie: anywhere; in windows that all ranks map (kernels of their own); the same,
 * moved by copy engines without any SM. */
typedef enum NcclBuffers { NCCL_plain, NCCL_symmetric, NCCL_copy_engine } NcclBuffers;

/* What a generation of devices achieves: one row of nccl_fit.def, in its order. */
typedef struct NcclFit {
    double ring, steps, gather, nvls, ramp_us, ramp_mib, once_us, once_mib, p2p_us, p2p, exchange,
        exchange_us, exchange_mib, ll, ll_once, ll128, ll128_once, nvls_wide;
} NcclFit;
const NcclFit *nccl_fit(const Cluster *cluster);

typedef struct NcclQuestion {
    Collective kind;
    uint32_t n_nodes, ranks_per_node;
    uint64_t bytes;
    NcclIssue issue;
    NcclBuffers buffers;
    const NcclSettings *settings; /* thread blocks; NULL: NCCL's own choice */
    const NcclFit *fit;           /* NULL: the one of the cluster's devices */
} NcclQuestion;

/* NCCL's choice for one collective over a group, and what it means for links. */
typedef struct NcclChoice {
    Ps time_ps;              /* latency + fluid */
    Ps latency_ps, fluid_ps; /* the second part needs bandwidth */
    Ps tuner_ps;             /* what the tuner took it for; 0: it has no opinion */
    const char *algorithm, *protocol;
    double bus_bytes_per_s;       /* nccl-tests' bus bandwidth of the whole time */
    uint32_t channels;            /* blocks of the kernel: one SM each */
    double port_bytes, nic_bytes; /* that the busiest rank sends through its NVLink port, its NIC */
} NcclChoice;
NcclChoice nccl_answer(const Cluster *cluster, const NcclQuestion *question);
/* The same of the first nodes of the cluster, filled in order, alone on its network: a node's or a
 * pod's way out may be thinner than the NICs (net_maxmin.c has it for plans). */
NcclChoice nccl_answer_alone(const Cluster *cluster, const NcclQuestion *question);
/* The same for an op of a plan, pipelined. */
NcclChoice nccl_choose(const Cluster *cluster, OpKind op, uint32_t n_nodes, uint32_t ranks_per_node,
                       uint64_t bytes);
/* ... with what the plan asks of NCCL: windows have kernels of their own, and copy engines where it
 * says so and NCCL can. */
NcclChoice nccl_choose_as(const Cluster *cluster, const NcclSettings *settings, OpKind op,
                          uint32_t n_nodes, uint32_t ranks_per_node, uint64_t bytes);
/* Which node sends to which, of an op whose algorithm has this name; of what NCCL does otherwise
 * (parallel trees, reductions in switches) a ring. */
EdgeKind nccl_pattern(OpKind op, const char *algorithm);
/* The buffers that kernels or copy engines reach by themselves: possible for this kind? */
bool nccl_buffers_possible(const Cluster *cluster, const NcclQuestion *question);
/* SMs that a gather or reduction of registered buffers takes; UINT32_MAX: as many as others. */
uint32_t nccl_registered_channels(const Cluster *cluster, OpKind op, uint32_t n_nodes,
                                  uint32_t ranks_per_node);
/* What one device can send to the others of its node, one NIC to the fabric (as NCCL counts). */
double nccl_port_bytes_per_s(const Cluster *cluster);
double nccl_nic_bytes_per_s(const Cluster *cluster);

/* `inner`, on which communications of `op` along `axes` take no time. */
typedef struct NetFree NetFree;
NetFree *net_free(NetModel inner, OpKind op, AxisSet axes, Arena *arena);
NetModel net_free_model(NetFree *net);

/* Experts that are not chosen equally: the plan has some. */
typedef struct Imbalance Imbalance;
/* What goes through an exchange of tokens, by what the plan's rooms would be: `pads_late`. 1: all.
 */
double imbalance_exchanged(const Plan *plan, const Runtime *runtime);
Imbalance *imbalance_new(const Plan *plan, double factor, double exchanged, CostModel cost,
                         NetModel net, Arena *arena);
CostModel imbalance_cost(Imbalance *b);
NetModel imbalance_net(Imbalance *b);

/* Rates capped by NCCL's model, shared max-min over ports, NICs and node uplinks. */
typedef struct MaxMin MaxMin;
MaxMin *maxmin_new(const Cluster *cluster, const Fold *fold, Arena *arena);
NcclSettings *maxmin_asks(MaxMin *net); /* what the plan asks of NCCL; at first nothing */
/* Collectives that the store has times of (as backend "nccl" of `machine`) take those, alone. */
void maxmin_measured(MaxMin *net, Store *store, const char *machine, Diag *d);
void maxmin_counts(const MaxMin *net, CostCounts *counts); /* of collectives */
NetModel maxmin_net(MaxMin *net);
uint32_t maxmin_channels(const MaxMin *net, uint32_t id); /* SMs that a running transfer takes */

/* A collective's kernel takes one SM a channel from the members' compute while it runs. Wraps the
 * network so as to know what runs. */
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
    double mtbf_s;                  /* of the whole machine */
    double checkpoint_s, restart_s; /* to write one; to be back at work after a failure */
} Faults;
/* Part of the time that is useful work, a checkpoint after every `interval_s` of it. */
double faults_goodput(const Faults *faults, double interval_s);
double faults_best_interval_s(const Faults *faults); /* Daly's estimate */
double faults_draw_s(const Faults *faults, double interval_s, double work_s, uint64_t seed);

/* Processes on one machine: compute and communication share its cores. Collectives as measured by
 * the store (`backend` on `machine`), else a named generic model. */
typedef struct Cores Cores;
Cores *cores_new(const Cluster *cluster, const Fold *fold, Store *store, const char *machine,
                 const char *backend, Arena *arena, Diag *d);
void cores_counts(const Cores *cores, CostCounts *counts); /* of collectives */
NetModel cores_net(Cores *cores);
DeviceModel cores_device(Cores *cores);

/* ---- memory and reports ---- */

/* Live bytes over program order: for each pc the live bytes by category (device space). */
typedef struct MemoryCurve {
    uint64_t (*at)[CATEGORY_COUNT];
    uint32_t n;
    Pc peak;
} MemoryCurve;
void memory_curve(const Plan *plan, const Program *p, Arena *arena, MemoryCurve *curve);

/* `runtime` has a name. */
Held sim_held(const Plan *plan, const Cluster *cluster, const Runtime *runtime);

/* Default MFU: 6 x (parameters without input embedding) + 6 x layers x d_model x seq (causal) per
 * token; of experts those that a token goes to. */
double mfu_flops_per_token(const Graph *g);

#endif
