/* A plan script's contents as plain data. All later code works on this data and on the graph. */
#ifndef TANDEM_FRONT_CONFIG_H
#define TANDEM_FRONT_CONFIG_H

#include "planner/front/runtime_config.h"
#include "planner/ir/graph.h"
#include "planner/verify/verify.h"

typedef enum ReshardKind { RESHARD_true, RESHARD_false, RESHARD_to } ReshardKind;

/* ---- parallel = { tp{}, ac "full", fsdp2{} }, in the user's order ---- */
typedef enum PassName {
#define PASS(name) PASS_##name,
#include "planner/front/passes.def"
    PASS_NAME_COUNT
} PassName;

/* For each schedule: its name, the least and the greatest number of stages ("chunks") on a rank,
 * and the placement of stages on p ranks. In a loop, rank r has stages r, r + p, and so on. In a v,
 * rank r has stages r and 2p - 1 - r. */
#define SCHEDULES(X)                                                                               \
    X(gpipe, 1, 1, loop)                                                                           \
    X(1f1b, 1, 1, loop)                                                                            \
    X(interleaved_1f1b, 2, 64, loop)                                                               \
    X(zb_h1, 1, 1, loop)                                                                           \
    X(zb_v, 2, 2, v)                                                                               \
    X(dualpipe_v, 2, 2, v)                                                                         \
    X(v_half, 2, 2, v)                                                                             \
    X(greedy_v, 2, 2, v)
typedef enum ScheduleKind {
#define X(name, least, most, placement) SCHEDULE_##name,
    SCHEDULES(X)
#undef X
        SCHEDULE_COUNT
} ScheduleKind;

typedef enum Placement { PLACEMENT_loop, PLACEMENT_v } Placement;
typedef struct ScheduleTraits {
    const char *name;
    uint32_t least_chunks, most_chunks;
    Placement placement;
} ScheduleTraits;
static inline ScheduleTraits schedule_traits(ScheduleKind kind)
{
    static const ScheduleTraits table[] = {
#define X(name, least, most, placement) {#name, least, most, PLACEMENT_##placement},
        SCHEDULES(X)
#undef X
    };
    return table[kind];
}

/* F: forward. B: the whole backward. I: only the gradients of inputs. W: only those of weights. */
#define ACTIONS(X) X(F) X(B) X(I) X(W)
typedef enum ActionKind {
#define X(name) ACTION_##name,
    ACTIONS(X)
#undef X
        ACTION_COUNT
} ActionKind;
typedef struct Action {
    ActionKind kind;
    uint32_t stage, microbatch; /* the stage's global number */
} Action;
typedef LIST(Action) Actions;

/* A user's own schedule: for each pipeline rank its actions, and the script line that lists
 * them. */
typedef struct OwnRank {
    Loc loc;
    Actions actions;
} OwnRank;
typedef LIST(OwnRank) OwnSchedule;

enum { MAX_STAGES = 256 };
typedef struct PpOptions {
    ScheduleKind schedule; /* default 1f1b */
    uint32_t chunks;       /* stages of a rank; default: the schedule's least */
    /* the most activations (stage x micro-batch) on a rank; 0: no limit (greedy_v: 2 x pp) */
    uint32_t cap;
    uint32_t layers_per_stage; /* the user gives this or chunks; 0: not given */
    /* the rounding of a number of stages that is no multiple of pp. 0: error; 1: up; 2: down */
    uint32_t round;
    /* number of stages in an uneven split (blocks of each stage); 0: an even split */
    uint32_t n_split;
    uint32_t split[MAX_STAGES];
    bool has_split; /* the user gave a split, even an empty one */
    /* for a shrunk plan, whose split is even: the first (or last) stage gets no block if the other
     * stages can take all blocks */
    bool empty_first, empty_last;
    bool is_own; /* the script gave the actions, by a function or a CSV file */
    const char *csv;
    OwnSchedule own;
    uint32_t placement; /* required placement of the user's own schedule: 0: any, else 1 +
                         * Placement */
    /* if two pipeline ranks need a parameter: 0: its gradients are summed; 1: it is an error */
    uint32_t tied;
} PpOptions;

/* A module's path in which `*` stands for any one word: "layers.*.attention.wo". */
typedef struct Pattern {
    const char *path;
    Loc loc;
    uint32_t style; /* for tp: a TpPlanStyle */
    bool may_miss;  /* the model was shrunk, so layers that the pattern names may be missing */
} Pattern;
typedef LIST(Pattern) Patterns;

#define TP_PLAN_STYLES(X) X(colwise) X(rowwise) X(colwise_rep) X(rowwise_rep) X(sequence_parallel)
typedef enum TpPlanStyle {
#define X(name) TP_PLAN_##name,
    TP_PLAN_STYLES(X)
#undef X
        TP_PLAN_STYLE_COUNT
} TpPlanStyle;

typedef struct TpOptions {
    /* default false; true: activations that are not split by features are split by tokens */
    bool sequence;
    bool loss_parallel; /* default true: ranks of tp keep the logits split over the vocabulary */
    bool keep_gathered; /* keep the gathered input of column linears for the backward pass */
    bool share_gathers; /* default true: one gather for q, k, v */
    /* average gradients that all ranks of tp compute, so that rounding keeps their copies equal */
    bool sync_replicated_gradients;
    Patterns plan;  /* the user's styles, which override those of the model */
    bool plan_only; /* default false; true: the styles of the model are not read */
} TpOptions;
/* Options of float8{}: 8-bit matrix products. */
#define FLOAT8_RECIPES(X) X(tensorwise) X(rowwise) X(mxfp8) X(nvfp4)
typedef enum Float8Recipe {
#define X(name) FLOAT8_##name,
    FLOAT8_RECIPES(X)
#undef X
        FLOAT8_RECIPE_COUNT
} Float8Recipe;
typedef struct Float8Options {
    Float8Recipe recipe;   /* default tensorwise */
    bool fsdp_gather;      /* default false; true: ranks gather sharded weights in 8 bits */
    bool head;             /* default false: the product that makes the logits is not quantised */
    bool skip_indivisible; /* modules with sizes that do not fit are left out; false: an error */
    bool gather_first;     /* default false; true: tp gathers tokens before they are quantised */
    bool keep_quantised;   /* inputs kept for gradients of weights are kept in 8 bits */
    Patterns skip, only;   /* modules to leave out; the only modules to quantise */
    /* allows sizes that are not a multiple of 16, because the plan was scaled down for a comparison
     * on CPUs. A block of numbers with one scale then has the length that fits a dimension cut into
     * `cuts` parts. The plan on one rank has the same blocks. cuts 0: each block is one number */
    bool any_size;
    uint32_t cuts;
} Float8Options;
typedef enum AcMode { AC_none, AC_full, AC_selective, AC_modules } AcMode;
/* FSDP2's MixedPrecisionPolicy, for every unit. DT_none: follow `precision` (for output: keep the
 * computed type). */
typedef struct MpPolicy {
    DType param, reduce, output;
    bool cast_forward_inputs; /* default true: the inputs of a unit are cast to `param` */
} MpPolicy;
typedef struct Fsdp2Options {
    ReshardKind reshard_after_forward; /* default true */
    uint32_t reshard_to;               /* for RESHARD_to: ranks that share parameters */
    bool reshard_root; /* default false; true: the root unit is not resharded after forward */
    bool reshard_last; /* default true; false: the last block is not resharded after forward */
    /* default false; true: weights are gathered once a step and gradients reduced once (torch's
     * UNSHARD and REDUCE_GRAD around all micro-batches of a stage) */
    bool keep_gathered;
    uint32_t prefetch; /* default 1: number of units that are gathered before they are needed */
    /* default false; true: parameters, gradients and optimizer state are in host memory */
    bool offload;
    bool copy; /* default false: zero-copy units; true: PyTorch's copies around collectives */
    /* default true: parameters other than experts are also sharded over ep; false: replicated */
    bool over_ep;
    MpPolicy mp;
    /* the modules that are units; if none is given: the blocks, and the modules that ask for it */
    Patterns units;
    bool defer_grad_sync; /* default false: reduce in each micro-batch; true: in the last only */
    bool pipeline_stage;  /* default false; true: gather and reduce as torch's PipelineStage does */
} Fsdp2Options;
typedef enum DomainAs { DOMAIN_exact, DOMAIN_original } DomainAs;
typedef struct DomainOptions {
    DomainAs as;         /* original: miles-credit's gradients, which are wrong */
    bool keep_halos;     /* keep halos for the backward pass instead of exchanging them again */
    bool interior_first; /* default true: compute inner rows while a halo is exchanged */
} DomainOptions;
typedef struct DdpOptions {
    double bucket_mib; /* size of a bucket of gradients [MiB]; default 25 */
} DdpOptions;

/* ZeRO with the option names of megatron-fsdp. A strategy names the state that is sharded over
 * dp_shard between uses. */
#define ZERO_STRATEGIES(X) X(no_shard) X(optim) X(optim_grads) X(optim_grads_params)
typedef enum ZeroStrategy {
#define X(name) ZERO_##name,
    ZERO_STRATEGIES(X)
#undef X
        ZERO_COUNT
} ZeroStrategy;
/* A yes-or-no option whose default depends on other options. */
typedef enum Choice { CHOICE_unset, CHOICE_no, CHOICE_yes } Choice;
#define ZERO_GATHERS(X) X(lazy) X(eager)
typedef enum ZeroGather {
#define X(name) ZERO_GATHER_##name,
    ZERO_GATHERS(X)
#undef X
        ZERO_GATHER_COUNT
} ZeroGather;
/* Each option changes the program or is refused with a reason: zero_options.c. */
typedef struct ZeroOptions {
    ZeroStrategy strategy; /* default optim_grads_params */
    uint32_t prefetch;     /* number of units gathered ahead; default 1 */
    /* the modules that are units; if none is given: the blocks, and the modules that ask for it */
    Patterns units;
    /* the plan sets `units`; an empty list makes the whole model the root unit */
    bool has_units;
    int64_t bucket_size;    /* elements of a bucket; 0: the larger of 40M and 1M * data ranks */
    bool disable_bucketing; /* each unit gets one bucket, whatever its size */
    Choice overlap_grad_reduce, overlap_param_gather;       /* unset: both overlap */
    Choice grad_reduce_in_fp32;                             /* unset: precision.reduce decides */
    Choice preserve_fp32_weights;                           /* unset: precision.param decides */
    Choice average_in_collective, calculate_per_token_loss; /* see zero_options.c */
    bool fsdp_double_buffer; /* units of equal size use two fixed buffers alternately */
    /* the two fixed buffers are registered, so collectives take fewer SMs; needs
     * fsdp_double_buffer */
    bool nccl_ub;
    Choice keep_fp8_transpose_cache, check_for_nan_in_grad;
    /* for optim and optim_grads. lazy: gathers updated weights just before their first use. eager:
     * gathers them right after the update */
    ZeroGather gather;
} ZeroOptions;

typedef struct TileOptions {
    uint32_t pieces; /* number of pieces into which each sequence is cut; default 8 */
} TileOptions;

/* Parameters that are not trained. */
typedef struct FreezeOptions {
    Patterns modules, except; /* modules: frozen, with all modules inside them. except: trained,
                                 although an enclosing module is frozen */
    bool shard;               /* default true; false: every rank holds frozen parameters whole */
    DType dtype;              /* dtype between steps; DT_none: the dtype in which they are used */
} FreezeOptions;

/* How attention gets the tokens that other ranks of cp hold. */
#define CP_MODES(X) X(all_gather) X(all_to_all) X(ring)
typedef enum CpMode {
#define X(name) CP_##name,
    CP_MODES(X)
#undef X
        CP_MODE_COUNT
} CpMode;
typedef struct CpOptions {
    CpMode mode;
    uint32_t all_to_all; /* for a ring: size of the groups of neighbours that exchange tokens for
                          * heads; 1: no exchange */
} CpOptions;

typedef struct EpOptions {
    /* for experts that drop no token: a rank has memory for `bound` times the mean number of rows
     * on a rank */
    double bound;
} EpOptions;

typedef struct PassConfig {
    PassName name;
    Loc loc;
    PpOptions pp;
    TpOptions tp;
    CpOptions cp;
    EpOptions ep;
    Float8Options float8;
    AcMode ac;
    uint32_t ac_every;   /* every n-th region is recomputed; 0 and 1: every region */
    Patterns ac_modules; /* for AC_modules: the modules that are regions */
    /* ops whose outputs a region keeps; "linear" also stands for linear_q, ... */
    Patterns ac_ops;
    /* do not keep a region's second, fourth, ... product, even if ac_ops names it */
    bool ac_alternate;
    FreezeOptions freeze;
    Fsdp2Options fsdp2;
    DomainOptions domain;
    DdpOptions ddp;
    ZeroOptions zero;
    CompilePer compile; /* which ops are compiled together; default block */
    TileOptions tile;
} PassConfig;

typedef enum OptimizerKind { OPTIMIZER_adamw, OPTIMIZER_sgd } OptimizerKind;
/* how bf16 weights are rounded */
typedef enum Rounding { ROUNDING_nearest, ROUNDING_stochastic } Rounding;
typedef struct Optimizer {
    OptimizerKind kind;
    Rounding rounding;
    double lr, beta1, beta2, eps, weight_decay;
    DType state;      /* dtype of the moments; DT_none: the dtype of the parameters at rest */
    double clip_norm; /* gradients are scaled down to this norm; 0: never; default 1.0 */
    int64_t warmup_steps, total_steps;
    double min_lr_ratio; /* final learning rate / lr. The rate warms up, then follows a cosine;
                            total_steps 0: it stays constant */
} Optimizer;

/* ---- hardware ---- */
typedef struct Device {
    const char *name; /* "H100-SXM5-80GB" */
    const char *arch; /* "Hopper", "Ampere", "Blackwell", "cpu" */
    uint32_t sms;
    uint64_t memory_bytes; /* memory that programs can use */
    /* memory for the context and library workspace, without communicators, which depend on the
     * plan */
    uint64_t reserved_bytes;
    double hbm_bytes_per_s;
    double peak_flops[DT_COUNT]; /* rate of products of dense matrices; 0: no such products */
    /* products multiply 8-bit blocks with a scale for each block (mxfp8), at peak_flops[DT_e8m0] */
    bool block_scales;
    /* fractions of the peak rate and of the bandwidth that long kernels reach */
    double gemm_efficiency, memory_efficiency;
    double sustained;    /* fraction of gemm_efficiency that remains under the power limit; 0: 1 */
    double light_power;  /* power without products / power of large products; 0: 1 */
    double exponentials; /* exponentials of one multiprocessor in a clock cycle; 0: 16 */
    double launch_s;     /* host time to launch a kernel */
    double kernel_floor_s; /* device time of an empty kernel */
    double usd_per_hour;
    double watts; /* power limit of the board; 0: unknown */
} Device;
typedef enum Fabric {
    FABRIC_nvswitch,
    FABRIC_nvlink, /* NVLink without a switch: each device has links to some of the others */
    FABRIC_mesh,   /* each device has one link to each of the others: xGMI */
    FABRIC_pcie,
    FABRIC_host
} Fabric;
/* The largest distance within a node at which two devices write into each other's memory. Devices
 * that are farther apart exchange data through host memory. off: always through host memory. auto:
 * NCCL's rule, which allows devices below one PCIe switch, and any two devices of a node with AMD
 * processors. */
typedef enum PeerLevel { PEER_auto, PEER_off, PEER_switch, PEER_socket, PEER_node } PeerLevel;
/* The PCIe links between the devices of a node. All links of a node have the same rate, and devices
 * are numbered in order. */
typedef struct PcieBox {
    uint32_t sockets; /* sockets (processors); 0: one */
    /* PCIe switches of a node, each with one uplink as fast as a device's link; 0: each device has
     * its own link to its processor */
    uint32_t switches;
    double socket_bytes_per_s; /* rate between two sockets, in each direction; 0: no limit */
    PeerLevel peer;
    /* Intel processors: they split a write from one device to another into small packets, so
     * the write occupies the link a sixth longer */
    bool intel;
} PcieBox;
/* How nodes are linked. Rates are of one link in each direction. tree: the NICs of every node are
 * linked to switches, and only `oversubscription` and the groups limit the switches' rate. */
typedef enum TopologyKind {
    TOPOLOGY_tree,
    /* torus: one node at each place, numbered with the first axis fastest. A route follows one axis
     * after the other, the shorter way round */
    TOPOLOGY_torus,
    /* groups of routers: each router has a link to every router of its group and some links to
     * other groups; routes are the shortest */
    TOPOLOGY_dragonfly
} TopologyKind;
enum { MOST_TORUS_AXES = 4 };
typedef struct Topology {
    TopologyKind kind;
    uint32_t sizes[MOST_TORUS_AXES]; /* length of each axis; 0 and 1: no such axis */
    uint32_t groups, routers, nodes; /* groups; routers in each group; nodes on each router */
    /* links of a router to other groups, spread evenly over these groups */
    uint32_t ways_out;
    double link_bytes_per_s; /* torus: any link; dragonfly: a link within a group */
    double way_out_bytes_per_s;
} Topology;
/* Corrections for a network, added to NCCL's own numbers for a NIC with RDMA. */
typedef struct NetworkFabric {
    const char *name; /* such as "ib"; NULL: not named */
    double message_s; /* seconds that a message takes in addition to the estimate of NCCL's tuner */
    double achieved;  /* fraction of a NIC's rate that messages reach; 0: .96, as in NCCL's tuner */
    /* time to fill the pipeline for S bytes: ramp_s * S / (S + ramp_bytes); in a tree with the
     * protocol Simple: ramp_s * min(S / ramp_bytes, 1). ramp_bytes 0: one chunk of each channel */
    double ramp_s, ramp_bytes, buffer_bytes; /* buffer_bytes: NCCL_BUFFSIZE; 0: NCCL's own */
    /* time to post a message that is cut into one part for each channel; added to the time of
     * messages from about 24 KiB on */
    double spread_s;
    /* the network may split stores of 128 bytes, so NCCL uses neither LL nor LL128 */
    bool simple_only;
    bool no_nvls; /* the network is configured without NVLink SHARP */
    bool sharp;   /* the network's switches can reduce data (SHARP) */
} NetworkFabric;
enum { MOST_RING_DEVICES = 8 };
typedef struct Cluster {
    const char *name;
    Device device;
    uint32_t nodes, devices_per_node;
    Fabric intra;
    PcieBox pcie;             /* PCIe links; only for FABRIC_pcie */
    double intra_bytes_per_s; /* rate between devices of a node, per device and direction */
    uint32_t nics_per_node;
    double host_link_bytes_per_s; /* host to device and back, per device and direction; 0: PCIe 5 */
    uint64_t host_memory_bytes;   /* host memory of a node; 0: unknown, no limit */
    double host_bytes_per_s;      /* bandwidth of host memory for each device; 0: 2 x DDR5 */
    double nic_bytes_per_s;       /* rate of a NIC in each direction */
    double oversubscription;      /* rate of a node's NICs / rate of its uplink; 1.0: equal */
    NetworkFabric fabric;
    Topology topology;
    uint32_t nodes_per_group;      /* nodes of a group (a pod); 0: all nodes */
    double group_oversubscription; /* the same ratio for the uplink of a group; 1.0: equal */
    /* FABRIC_nvlink: [n] the number of rings that single links form among the first n devices of a
     * node; 0: unknown */
    uint32_t rings[MOST_RING_DEVICES + 1];
    /* launch time of a collective that is launched with others, or in a graph */
    double collective_launch_s;
    /* a local CPU cluster: the cores of a node, which its ranks share; 0 for other clusters */
    uint32_t cores_per_node;
    bool is_local; /* the cluster is this machine, and its costs are measured */
} Cluster;
/* Returns the memory that a plan may use. communicators: the bytes that NCCL's communicators take
 * on each device. */
static inline Capacity cluster_capacity(const Cluster *c, uint64_t communicators)
{
    return (Capacity){c->device.memory_bytes, c->device.reserved_bytes + communicators,
                      c->host_memory_bytes, c->devices_per_node};
}

enum { MOST_PASSES = 16 };
/* extra: mesh.ep multiplies the number of ranks. folded: the ranks of ep are taken from the dp, cp
 * and tp ranks of a stage. */
#define EP_MODES(X) X(extra) X(folded)
typedef enum EpMode {
#define X(name) EP_##name,
    EP_MODES(X)
#undef X
        EP_MODE_COUNT
} EpMode;

/* A script that was read for the configuration, or a script that is missing although a script
 * requires it. */
typedef struct ScriptFile {
    const char *name;
    bool shipped; /* a file of the library; false: `path` is as the user gave it */
    Hash128 hash; /* hash of the file's bytes; zero: it could not be read */
} ScriptFile;

typedef struct Config {
    const char *file;         /* path of the plan's script */
    LIST(ScriptFile) scripts; /* all files that were read, in this order; empty after a crash */
    uint64_t source_lines;
    /* filled only after the error mesh-product: settings such as "mesh.tp=4", each of which alone
     * would make the mesh fill the cluster */
    LIST(const char *) fills;
    uint32_t axis_size[AXIS_NAMES]; /* -1 is already replaced; 1: no such axis */
    EpMode ep_mode;                 /* default extra */
    /* EP_folded: the axis sizes before folding, which turns ranks of the data axes into the axis
     * ep. In this list the size of ep is 1
     */
    uint32_t axis_before[AXIS_NAMES];
    /* [axis]: the number of the axis's innermost ranks over which experts are divided, in addition
     * to the ranks of ep; 0 or 1: none */
    uint32_t ep_lent[AXIS_NAMES];
    Loc model_loc, mesh_loc, batch_loc, precision_loc;
    Loc axis_loc[AXIS_NAMES];
    /* sequences of a step; sequences of a micro-step of a data rank; tokens of a sequence */
    int64_t global_batch, micro_batch, seq;
    int64_t channels, targets, height, width; /* sizes of a batch of fields; 0: tokens */
    Denominator denominator;                  /* denominator of the loss; default kept */
    /* microbatch_mean: number of sequences averaged as one group; else 0 */
    int64_t group;
    /* dtypes: of parameters between steps; of computation; of sums of gradients */
    DType param, compute, reduce;
    Optimizer optimizer;
    uint32_t n_passes;
    PassConfig passes[MOST_PASSES];
    Cluster cluster;
    Runtime runtime;
    NcclSettings nccl;
    uint64_t seed;
    uint32_t train_steps;  /* `run`: default number of steps */
    const char *data_file; /* the tokens to train on; NULL: synthetic data */
    /* the system whose known mistakes this plan reproduces; such a plan never runs; NULL: none */
    const char *original;
} Config;

/* Returns the user's options for a pass, or NULL if `parallel` does not list the pass. */
static inline const PassConfig *config_pass(const Config *c, PassName name)
{
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == name) return &c->passes[i];
    return NULL;
}

/* Returns the product of the sizes of these axes. */
static inline uint32_t config_ranks(const Config *c, AxisNames names)
{
    uint32_t n = 1;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(names, (AxisName)a)) n *= c->axis_size[a];
    return n;
}

/* Returns the number of ranks that read different samples. */
static inline int64_t config_data_ranks(const Config *c)
{
    return config_ranks(c, axes_cutting(INDEX_samples));
}

#endif
