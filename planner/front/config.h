/* A plan script's contents as plain data. Everything after the front works on this and the graph.
 */
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

/* Name, least and most stages ("chunks") a rank, and how stages are placed: loop: rank r has r,
 * r + p, ...; v: rank r has r and 2p - 1 - r. */
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

/* F: forward. B: the whole backward. I: the backward's input gradients only, W: its weight
 * gradients. */
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

/* A schedule of the user's own: what each pipeline rank does, and where it says so. */
typedef struct OwnRank {
    Loc loc;
    Actions actions;
} OwnRank;
typedef LIST(OwnRank) OwnSchedule;

enum { MAX_STAGES = 256 };
typedef struct PpOptions {
    ScheduleKind schedule; /* default 1f1b */
    uint32_t chunks;       /* stages a rank; default: the schedule's least */
    uint32_t cap;          /* most activations of stages in flight on a rank; 0: no bound (greedy_v:
                              2 x pp) */
    uint32_t layers_per_stage; /* chunks follow from it; 0: not named */
    uint32_t round;            /* stages to a multiple of pp: 0 they must be one, 1 up, 2 down */
    uint32_t n_split;          /* blocks a stage, if named: uneven splits; 0: even */
    uint32_t split[MAX_STAGES];
    bool has_split; /* named, be it an empty list */
    bool is_own;    /* the schedule is the script's own function, or the file `csv` */
    const char *csv;
    OwnSchedule own;
    uint32_t placement; /* demanded of an own schedule: 0 as it says, else 1 + Placement */
    uint32_t tied;      /* a parameter that two ranks need: 0 gradients are summed, 1 refused */
} PpOptions;

/* A module's path where `*` stands for any one part: "layers.*.attention.wo". */
typedef struct Pattern {
    const char *path;
    Loc loc;
    uint32_t style; /* tp: a TpPlanStyle */
    bool may_miss;  /* the model was shrunk: its later layers are gone */
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
    bool sequence;      /* activations between column/row pairs SPLIT(seq) on tp */
    bool loss_parallel; /* default true: the logits stay split over the vocabulary */
    bool keep_gathered; /* keep the gathered input of column linears for the backward pass */
    bool share_gathers; /* default true: one gather for q, k, v */
    bool sync_replicated_gradients; /* average what all ranks of tp hold alike: drift pinning */
    Patterns plan;                  /* goes over the model's own table */
    bool plan_only;                 /* default false; true: the model's own table is not read */
} TpOptions;
/* 8-bit matrix products. */
#define FLOAT8_RECIPES(X) X(tensorwise) X(rowwise)
typedef enum Float8Recipe {
#define X(name) FLOAT8_##name,
    FLOAT8_RECIPES(X)
#undef X
        FLOAT8_RECIPE_COUNT
} Float8Recipe;
typedef struct Float8Options {
    Float8Recipe recipe;   /* default tensorwise */
    bool fsdp_gather;      /* default false; true: sharded weights are gathered in 8 bits */
    bool head;             /* default false: the logits are computed as they are */
    bool skip_indivisible; /* leave out what is no multiple of 16, instead of an error */
    Patterns skip, only;   /* modules left out; the only ones covered */
    bool any_size;         /* scaled down for comparison on CPUs: they take any */
} Float8Options;
typedef enum AcMode { AC_none, AC_full, AC_selective, AC_modules } AcMode;
/* FSDP2's MixedPrecisionPolicy, of every unit. DT_none: as `precision` says (output: as computed).
 */
typedef struct MpPolicy {
    DType param, reduce, output;
    bool cast_forward_inputs; /* default true: what a unit is given is cast to `param` */
} MpPolicy;
typedef struct Fsdp2Options {
    ReshardKind reshard_after_forward; /* default true */
    uint32_t reshard_to;               /* RESHARD_to: ranks */
    bool reshard_root; /* default false: the root unit stays gathered through forward */
    bool reshard_last; /* default true; false: the last block stays gathered, too */
    /* default false; true: gathered once a step, reduced once, whatever lies between (torch's
     * UNSHARD and REDUCE_GRAD around all micro-batches of a stage) */
    bool keep_gathered;
    uint32_t prefetch; /* units gathered ahead; default 1 */
    bool offload; /* default false; true: parameters, gradients, optimizer state in host memory */
    bool copy;    /* default false: zero-copy units; true: PyTorch's copies around collectives */
    bool over_ep; /* default true: what is no expert is sharded over ep, too; else replicated */
    MpPolicy mp;
    Patterns units; /* the modules that are units; none: blocks, and those that ask for it */
    bool
        defer_grad_sync; /* default false: reduce every micro-batch; true: unsharded accumulation */
} Fsdp2Options;
typedef struct DdpOptions {
    double bucket_mib; /* default 25 */
} DdpOptions;

/* ZeRO by the names of megatron-fsdp: what is sharded over dp_shard between uses. */
#define ZERO_STRATEGIES(X) X(no_shard) X(optim) X(optim_grads) X(optim_grads_params)
typedef enum ZeroStrategy {
#define X(name) ZERO_##name,
    ZERO_STRATEGIES(X)
#undef X
        ZERO_COUNT
} ZeroStrategy;
/* A switch whose default depends on other options. */
typedef enum Choice { CHOICE_unset, CHOICE_no, CHOICE_yes } Choice;
#define ZERO_GATHERS(X) X(lazy) X(eager)
typedef enum ZeroGather {
#define X(name) ZERO_GATHER_##name,
    ZERO_GATHERS(X)
#undef X
        ZERO_GATHER_COUNT
} ZeroGather;
/* Each of them acts on the program, or is refused with a reason: zero_options.c. */
typedef struct ZeroOptions {
    ZeroStrategy strategy; /* default optim_grads_params */
    uint32_t prefetch;     /* units gathered ahead; default 1 */
    Patterns units;        /* the modules that are units; none: blocks, and those that ask for it */
    bool has_units;        /* units was named; an empty list: the whole model is the root unit */
    int64_t bucket_size;   /* elements of a bucket; 0: max(40M, 1M * data ranks) */
    bool disable_bucketing;                           /* one bucket for each unit, however large */
    Choice overlap_grad_reduce, overlap_param_gather; /* default yes */
    Choice grad_reduce_in_fp32;                       /* default: precision.reduce */
    Choice preserve_fp32_weights;                     /* default: precision.param */
    Choice average_in_collective, calculate_per_token_loss; /* see zero_options.c */
    bool fsdp_double_buffer; /* two buffers at fixed places for the units of equal size */
    bool nccl_ub;            /* these are registered: collectives take fewer SMs; and needs them */
    Choice keep_fp8_transpose_cache, check_for_nan_in_grad;
    ZeroGather gather; /* optim, optim_grads: updated weights before their first use, or at once */
} ZeroOptions;

typedef struct TileOptions {
    uint32_t pieces; /* of the tokens of each sequence; default 8 */
} TileOptions;

/* How attention sees the tokens of other ranks of cp. */
#define CP_MODES(X) X(all_gather) X(all_to_all)
typedef enum CpMode {
#define X(name) CP_##name,
    CP_MODES(X)
#undef X
        CP_MODE_COUNT
} CpMode;
typedef struct CpOptions {
    CpMode mode;
} CpOptions;

typedef struct PassConfig {
    PassName name;
    Loc loc;
    PpOptions pp;
    TpOptions tp;
    CpOptions cp;
    Float8Options float8;
    AcMode ac;
    uint32_t ac_every;   /* every n-th region is recomputed; 0 and 1: each */
    Patterns ac_modules; /* AC_modules: these are the regions */
    Patterns ac_ops;     /* ops whose outputs a region keeps: "linear" is also linear_q, ... */
    bool ac_alternate;   /* of a region's products only the first, third, ... that ac_ops names */
    Fsdp2Options fsdp2;
    DdpOptions ddp;
    ZeroOptions zero;
    CompilePer compile; /* default block */
    TileOptions tile;
} PassConfig;

typedef enum OptimizerKind { OPTIMIZER_adamw, OPTIMIZER_sgd } OptimizerKind;
typedef enum Rounding { ROUNDING_nearest, ROUNDING_stochastic } Rounding; /* of bf16 weights */
typedef struct Optimizer {
    OptimizerKind kind;
    Rounding rounding;
    double lr, beta1, beta2, eps, weight_decay;
    DType state;      /* of the moments; DT_none: as parameters at rest */
    double clip_norm; /* 0: no clipping; default 1.0 */
    int64_t warmup_steps, total_steps;
    double min_lr_ratio; /* warm-up then cosine; total 0: constant */
} Optimizer;

/* ---- hardware ---- */
typedef struct Device {
    const char *name; /* "H100-SXM5-80GB" */
    const char *arch; /* "Hopper", "Ampere", "Blackwell", "cpu" */
    uint32_t sms;
    uint64_t memory_bytes;   /* usable */
    uint64_t reserved_bytes; /* context, library workspace; communicators are a plan's */
    double hbm_bytes_per_s;
    double peak_flops[DT_COUNT];               /* dense; 0: not supported */
    double gemm_efficiency, memory_efficiency; /* eta and be of the wave model */
    double sustained;      /* part of that which lasts in a run, under the limit of power; 0: all */
    double launch_s;       /* host cost of a kernel launch */
    double kernel_floor_s; /* device time of an empty kernel */
    double usd_per_hour;
} Device;
typedef enum Fabric {
    FABRIC_nvswitch,
    FABRIC_nvlink, /* some links to some of the others */
    FABRIC_mesh,   /* one link to each of the others: xGMI */
    FABRIC_pcie,
    FABRIC_host
} Fabric;
/* How far apart two devices of a node may be to write into each other's memory; further apart, and
 * with `off`, they meet in the host's. auto: what NCCL takes, one PCIe switch, or anywhere for two
 * devices on AMD's processors. */
typedef enum PeerLevel { PEER_auto, PEER_off, PEER_switch, PEER_socket, PEER_node } PeerLevel;
/* The PCIe links between the devices of a node; all parts are alike, devices in order.
 */
typedef struct PcieBox {
    uint32_t sockets;          /* processors; 0: one */
    uint32_t switches;         /* each with one link of a device's rate up; 0: none, every device
                                  has its own way to its processor */
    double socket_bytes_per_s; /* between two processors, each direction; 0: does not limit */
    PeerLevel peer;
    bool intel; /* the processors split what one device writes to another: a sixth more of a link */
} PcieBox;
/* How nodes are linked to each other; rates are of one link, each direction. tree: every node's
 * NICs lead to switches that do not limit but for `oversubscription` and groups. */
typedef enum TopologyKind {
    TOPOLOGY_tree,
    TOPOLOGY_torus,    /* a node a place, nodes in order, the first axis fastest; routes go axis
                          after axis, each the shorter way round */
    TOPOLOGY_dragonfly /* groups of routers, each linked to all others of its group, with some
                          links to other groups; routes are the shortest */
} TopologyKind;
enum { MOST_TORUS_AXES = 4 };
typedef struct Topology {
    TopologyKind kind;
    uint32_t sizes[MOST_TORUS_AXES]; /* 0 and 1: no axis */
    uint32_t groups, routers, nodes; /* routers of a group, nodes of a router */
    uint32_t ways_out;               /* links of a router to other groups, spread evenly */
    double link_bytes_per_s;         /* torus; dragonfly: between two routers of a group */
    double way_out_bytes_per_s;
} Topology;
/* Additions of a network to NCCL's own numbers for a NIC with RDMA. */
typedef struct NetworkFabric {
    const char *name;          /* "ib"; NULL: not named */
    double message_s;          /* a message takes so much longer than NCCL's tuner counts */
    double achieved;           /* part of a NIC's rate that data reach; 0: .96, as NCCL counts */
    double ramp_s, ramp_bytes; /* filling its pipeline: ramp_s * S / (S + ramp_bytes) */
    double spread_s;  /* posting a message in as many parts as there are channels, from some
                         24 KiB on */
    bool simple_only; /* no stores of 128 bytes that arrive whole: neither LL nor LL128 */
    bool no_nvls;     /* its configuration rules NVLink SHARP out */
    bool sharp;       /* reductions in its switches */
} NetworkFabric;
enum { MOST_RING_DEVICES = 8 };
typedef struct Cluster {
    const char *name;
    Device device;
    uint32_t nodes, devices_per_node;
    Fabric intra;
    PcieBox pcie;             /* FABRIC_pcie */
    double intra_bytes_per_s; /* per device and direction */
    uint32_t nics_per_node;
    double host_link_bytes_per_s; /* host to device and back, per device and direction; 0: PCIe 5 */
    uint64_t host_memory_bytes;   /* of a node; 0: not known, no limit */
    double host_bytes_per_s;      /* a device's share of host memory's bandwidth; 0: 2 x DDR5 */
    double nic_bytes_per_s;       /* per NIC and direction */
    double oversubscription;      /* of a node's way to the others; 1.0: none */
    NetworkFabric fabric;
    Topology topology;
    uint32_t nodes_per_group;              /* a pod; 0: all nodes */
    double group_oversubscription;         /* of a group's way to the others; 1.0: none */
    uint32_t rings[MOST_RING_DEVICES + 1]; /* FABRIC_nvlink: [devices] rings of one link each that
                                              its links make; 0: not known */
    double collective_launch_s;            /* of a call among others, or in a graph */
    uint32_t cores_per_node;               /* local CPU cluster: ranks share them; 0 elsewhere */
    bool is_local;                         /* this machine: costs come from self-measurement */
} Cluster;
/* `communicators`: their bytes on a device, which no plan may use either. */
static inline Capacity cluster_capacity(const Cluster *c, uint64_t communicators)
{
    return (Capacity){c->device.memory_bytes, c->device.reserved_bytes + communicators,
                      c->host_memory_bytes, c->devices_per_node};
}

enum { MOST_PASSES = 16 };
/* The meaning of mesh.ep: a factor of the world, or carved out of dp x cp x tp of a stage. */
#define EP_MODES(X) X(extra) X(folded)
typedef enum EpMode {
#define X(name) EP_##name,
    EP_MODES(X)
#undef X
        EP_MODE_COUNT
} EpMode;

typedef struct Config {
    const char *file; /* the script */
    uint64_t source_lines;
    uint32_t axis_size[AXIS_NAMES]; /* after -1 has been resolved; 1 = absent */
    EpMode ep_mode;                 /* default extra */
    uint32_t ep_folded; /* EP_folded: how many ranks share a layer's experts; no axis of the mesh */
    Loc mesh_loc, batch_loc, precision_loc;
    Loc axis_loc[AXIS_NAMES];
    int64_t global_batch, micro_batch,
        seq;                      /* micro_batch: sequences per data rank and micro-step */
    Denominator denominator;      /* of the loss; default kept */
    int64_t group;                /* microbatch_mean: sequences that are averaged alone; else 0 */
    DType param, compute, reduce; /* at rest; in use; gradient accumulation and reduction */
    Optimizer optimizer;
    uint32_t n_passes;
    PassConfig passes[MOST_PASSES];
    Cluster cluster;
    Runtime runtime;
    NcclSettings nccl;
    uint64_t seed;
    uint32_t train_steps;  /* `run`: default number of steps */
    const char *data_file; /* `run`: NULL: synthetic */
    const char *original;  /* the system whose known mistakes this reproduces: never run; NULL */
} Config;

/* Ranks with samples of their own: those that share experts have, too. */
static inline int64_t config_data_ranks(const Config *c)
{
    return (int64_t)c->axis_size[AXIS_dp_replicate] * c->axis_size[AXIS_dp_shard] *
           c->axis_size[AXIS_ep];
}

#endif
