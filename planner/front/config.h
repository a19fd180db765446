/* The contents of a plan script as plain data. All later code works on this data and on the graph.
 * Terms:
 *
 * - data ranks: the ranks that read different samples; the other ranks of a step share samples
 * - stage: the part of the model that runs between two pipeline transfers; a rank has 1 or more
 * - block: a repeated layer of the model, such as one transformer layer
 * - unit: a module whose parameters are sharded, gathered and reduced together, as in FSDP
 * - region: a module whose forward pass is run again in the backward pass (ac{}, checkpointing)
 * - fields: samples on a grid (channels x height x width), such as weather maps, instead of tokens
 */
#ifndef TANDEM_FRONT_CONFIG_H
#define TANDEM_FRONT_CONFIG_H

#include "planner/front/cluster_config.h"
#include "planner/front/runtime_config.h"
#include "planner/ir/graph.h"

typedef enum ReshardKind { RESHARD_true, RESHARD_false, RESHARD_to } ReshardKind;

/* ---- parallel = { tp{}, ac "full", fsdp2{} }, in the user's order ---- */
typedef enum PassName {
#define PASS(name) PASS_##name,
#include "planner/front/passes.def"
    PASS_NAME_COUNT
} PassName;

/* For each schedule: its name, the least and the greatest number of stages on a rank (`chunks`),
 * and the placement of stages on p pipeline ranks. loop: rank r has stages r, r + p, ... v: rank r
 * has stages r and 2p - 1 - r, so the first rank has the first and the last stage. */
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

/* The work of a stage for one micro-batch. F: forward. B: the whole backward. I: only the part of
 * the backward that computes gradients of inputs. W: only the gradients of weights. */
#define ACTIONS(X) X(F) X(B) X(I) X(W)
typedef enum ActionKind {
#define X(name) ACTION_##name,
    ACTIONS(X)
#undef X
        ACTION_COUNT
} ActionKind;
typedef struct Action {
    ActionKind kind;
    uint32_t stage, microbatch; /* stage: counted over the whole model, from 0 */
} Action;
typedef LIST(Action) Actions;

/* The part of a user's own schedule that one pipeline rank executes, in order. loc: its script line
 * or CSV line. */
typedef struct OwnRank {
    Loc loc;
    Actions actions;
} OwnRank;
typedef LIST(OwnRank) OwnSchedule;

enum { MAX_STAGES = 256 };
typedef struct PpOptions {
    ScheduleKind schedule; /* default 1f1b */
    /* number of stages on each rank; default: least_chunks of the schedule */
    uint32_t chunks;
    /* limit on the activations alive on a rank, each of one stage and one micro-batch; 0: no limit
     * (greedy_v: 2 x pp) */
    uint32_t cap;
    /* blocks in a stage; the user gives either this or `chunks`; 0: not given */
    uint32_t layers_per_stage;
    /* with layers_per_stage, if the number of stages is not a multiple of pp. 0: an error; 1: round
     * the number up; 2: round it down */
    uint32_t round;
    /* number of elements of `split`, the number of blocks in each stage; 0: all stages are equal */
    uint32_t n_split;
    uint32_t split[MAX_STAGES];
    bool has_split; /* the user gave a split, even an empty one */
    /* for a plan that --verify shrank, whose stages are equal: the first (last) stage keeps no
     * block, as in the user's plan, if the other stages can hold all blocks */
    bool empty_first, empty_last;
    bool is_own; /* the script gives the actions itself: a function (schedule) or a file (csv) */
    const char *csv;
    OwnSchedule own;
    uint32_t placement; /* the placement that `own` must have. 0: any, otherwise 1 + Placement */
    /* for a parameter that stages on two ranks use, such as a tied embedding. 0: sum its gradients
     * over the ranks; 1: report an error */
    uint32_t tied;
} PpOptions;

/* The path of modules, in which `*` stands for any one word: "layers.*.attention.wo" names wo in
 * every layer. */
typedef struct Pattern {
    const char *path;
    Loc loc;
    uint32_t style; /* for the plan of tp{}: a TpPlanStyle */
    bool may_miss;  /* --verify removed layers from the model, so a pattern may match no module */
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
    /* default false; true: sequence parallelism. Activations that tp does not split by features are
     * split by tokens */
    bool sequence;
    /* default true: the logits stay split over the vocabulary, and the loss is computed on the
     * parts */
    bool loss_parallel;
    /* keep the gathered input of column-parallel linears until the backward pass; false: gather
     * again */
    bool keep_gathered;
    /* default true: q, k and v read one gathered input; false: each gathers its own */
    bool share_gathers;
    /* average the gradients of parameters that every rank of tp holds whole. All ranks compute the
     * same gradient, but rounding may differ, and then their copies would drift apart */
    bool sync_replicated_gradients;
    /* styles by module path from the user's script; they override the model's own styles */
    Patterns plan;
    bool plan_only; /* default false; true: the model's own styles are ignored */
} TpOptions;
/* Options of float8{}: matrix products with 8-bit (nvfp4: 4-bit) operands. */
#define FLOAT8_RECIPES(X) X(tensorwise) X(rowwise) X(mxfp8) X(nvfp4)
typedef enum Float8Recipe {
#define X(name) FLOAT8_##name,
    FLOAT8_RECIPES(X)
#undef X
        FLOAT8_RECIPE_COUNT
} Float8Recipe;
typedef struct Float8Options {
    Float8Recipe recipe; /* default tensorwise */
    bool fsdp_gather;    /* default false; true: ranks gather sharded weights in 8 bits */
    /* default false: the product that computes the logits stays in the plan's dtype */
    bool head;
    /* a linear whose sizes do not fit the format stays unquantised; false: it is an error */
    bool skip_indivisible;
    /* default false: tp gathers quantised tokens; true: tp gathers first, then quantises */
    bool gather_first;
    /* inputs that the gradient of a weight needs are kept quantised until the backward pass */
    bool keep_quantised;
    /* skip: modules that are not quantised. only: the only modules to quantise */
    Patterns skip, only;
    /* any_size: allow sizes that are not a multiple of 16, because --verify shrank the plan. The
     * number of elements that share a scale is then chosen to fit a dimension cut into `cuts`
     * parts, so that the plan on one rank has the same scales. cuts 0: every element has its own
     * scale */
    bool any_size;
    uint32_t cuts;
} Float8Options;
typedef enum AcMode { AC_none, AC_full, AC_selective, AC_modules } AcMode;
/* FSDP2's MixedPrecisionPolicy, for every unit. DT_none: the dtype of `precision` (output: no
 * cast). */
typedef struct MpPolicy {
    DType param, reduce, output;
    bool cast_forward_inputs; /* default true: the inputs of a unit are cast to `param` */
} MpPolicy;
typedef struct Fsdp2Options {
    ReshardKind reshard_after_forward; /* default true */
    /* for RESHARD_to: size of the groups of ranks over which a unit stays sharded after forward */
    uint32_t reshard_to;
    /* default false; true: the root unit's parameters stay gathered after the forward pass */
    bool reshard_root;
    /* default true; false: the last block's parameters stay gathered after the forward pass */
    bool reshard_last;
    /* default false; true: weights are gathered once a step, before the first micro-batch of a
     * stage, and gradients reduced once, after the last (UNSHARD and REDUCE_GRAD in torch's
     * pipelines) */
    bool keep_gathered;
    /* default 1: number of units that are gathered ahead of the unit that runs */
    uint32_t prefetch;
    /* default false; true: parameters, gradients and optimizer state are in host memory */
    bool offload;
    /* default false: collectives read and write the parameters in place; true: through copies, as
     * in PyTorch */
    bool copy;
    /* default true: parameters other than experts are also sharded over ep; false: replicated */
    bool over_ep;
    MpPolicy mp;
    /* patterns of the modules that are units; empty: all blocks, and modules with fsdp2_shard */
    Patterns units;
    /* default false: reduce the gradients of each micro-batch; true: only after the last one */
    bool defer_grad_sync;
    /* default false; true: gather and reduce at the times at which torch's PipelineStage does */
    bool pipeline_stage;
} Fsdp2Options;
typedef enum DomainAs { DOMAIN_exact, DOMAIN_original } DomainAs;
typedef struct DomainOptions {
    /* original: reproduce a bug of miles-credit, whose gradients of group norms are wrong */
    DomainAs as;
    /* keep the received halo rows until the backward pass; false: exchange them again */
    bool keep_halos;
    /* default true: compute the rows that need no halo while the halo is exchanged */
    bool interior_first;
} DomainOptions;
typedef struct DdpOptions {
    double bucket_mib; /* size of a bucket of gradients [MiB]; default 25 */
} DdpOptions;

/* ZeRO with the option names of megatron-fsdp. A strategy names the state that is sharded over
 * dp_shard while it is not in use. */
#define ZERO_STRATEGIES(X) X(no_shard) X(optim) X(optim_grads) X(optim_grads_params)
typedef enum ZeroStrategy {
#define X(name) ZERO_##name,
    ZERO_STRATEGIES(X)
#undef X
        ZERO_COUNT
} ZeroStrategy;
/* A yes-or-no option whose default depends on other options (CHOICE_unset). */
typedef enum Choice { CHOICE_unset, CHOICE_no, CHOICE_yes } Choice;
#define ZERO_GATHERS(X) X(lazy) X(eager)
typedef enum ZeroGather {
#define X(name) ZERO_GATHER_##name,
    ZERO_GATHERS(X)
#undef X
        ZERO_GATHER_COUNT
} ZeroGather;
/* The options of megatron-fsdp. zero_options.c says what each one changes, or why it is refused. */
typedef struct ZeroOptions {
    ZeroStrategy strategy; /* default optim_grads_params */
    /* number of units that are gathered ahead of the unit that runs; default 1 */
    uint32_t prefetch;
    /* patterns of the modules that are units; empty: all blocks, and modules that ask for it */
    Patterns units;
    /* the plan sets `units`, perhaps to an empty list: then the whole model is one unit */
    bool has_units;
    int64_t bucket_size;    /* elements in a bucket of parameters; 0: max(40M, 1M x data ranks) */
    bool disable_bucketing; /* each unit gets one bucket, whatever its size */
    Choice overlap_grad_reduce, overlap_param_gather;       /* unset: both overlap */
    Choice grad_reduce_in_fp32;                             /* unset: precision.reduce decides */
    Choice preserve_fp32_weights;                           /* unset: precision.param decides */
    Choice average_in_collective, calculate_per_token_loss; /* see zero_options.c */
    bool fsdp_double_buffer; /* two fixed buffers are used in turn by all units of the same size */
    /* NCCL registers these two buffers, so collectives need fewer SMs */
    bool nccl_ub;
    Choice keep_fp8_transpose_cache, check_for_nan_in_grad;
    /* for optim and optim_grads, whose updated weights are spread over ranks. lazy: gather each
     * unit's weights just before its first use. eager: gather all right after the update */
    ZeroGather gather;
} ZeroOptions;

typedef struct TileOptions {
    /* each sequence is computed in this many pieces, one after the other; default 8 */
    uint32_t pieces;
} TileOptions;

/* Parameters that are not trained. */
typedef struct FreezeOptions {
    /* modules: frozen, with all modules inside them. except: trained, although inside a frozen
     * module */
    Patterns modules, except;
    /* default true; false: every rank stores all frozen parameters whole */
    bool shard;
    /* dtype of storage; DT_none: the dtype of the computation that reads them */
    DType dtype;
} FreezeOptions;

/* How the ranks of cp, which hold different tokens of a sequence, exchange tokens for attention. */
#define CP_MODES(X) X(all_gather) X(all_to_all) X(ring)
typedef enum CpMode {
#define X(name) CP_##name,
    CP_MODES(X)
#undef X
        CP_MODE_COUNT
} CpMode;
typedef struct CpOptions {
    CpMode mode;
    /* for a ring: ranks in groups of this size first exchange tokens for heads (Ulysses), then the
     * groups form the ring; 1: a ring of single ranks */
    uint32_t all_to_all;
} CpOptions;

typedef struct EpOptions {
    /* for dropless experts, where routing decides the number of rows on a rank: a rank allocates
     * memory for `bound` times the mean number of rows */
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
    /* recompute every n-th region (in a model of blocks: every n-th block); 0 and 1: all */
    uint32_t ac_every;
    Patterns ac_modules; /* for AC_modules: patterns of the modules that are regions */
    /* ops whose outputs a region keeps instead of recomputing them; "linear" includes linear_q, ...
     */
    Patterns ac_ops;
    /* of the matrix products of a region that ac_ops keeps, recompute the second, fourth, ... */
    bool ac_alternate;
    FreezeOptions freeze;
    Fsdp2Options fsdp2;
    DomainOptions domain;
    DdpOptions ddp;
    ZeroOptions zero;
    CompilePer compile; /* which ops may be compiled into one kernel; default: those of one block */
    TileOptions tile;
} PassConfig;

typedef enum OptimizerKind { OPTIMIZER_adamw, OPTIMIZER_sgd } OptimizerKind;
/* how bf16 weights are rounded */
typedef enum Rounding { ROUNDING_nearest, ROUNDING_stochastic } Rounding;
typedef struct Optimizer {
    OptimizerKind kind;
    Rounding rounding;
    double lr, beta1, beta2, eps, weight_decay;
    DType state; /* dtype of the moments; DT_none: the dtype of the parameters at rest */
    /* the norm to which larger gradients are scaled down; 0: no clipping; default 1.0 */
    double clip_norm;
    int64_t warmup_steps, total_steps;
    /* the learning rate rises linearly over warmup_steps, then falls as a cosine to lr *
     * min_lr_ratio at total_steps; total_steps 0: it stays constant */
    double min_lr_ratio;
} Optimizer;

enum { MOST_PASSES = 16 };
/* Where the ranks of ep, which divide a layer's experts among them, come from. extra: mesh.ep is a
 * factor of the number of ranks, like tp. folded: the tp, cp and dp ranks of a stage are used
 * again, so a rank has both roles. */
#define EP_MODES(X) X(extra) X(folded)
typedef enum EpMode {
#define X(name) EP_##name,
    EP_MODES(X)
#undef X
        EP_MODE_COUNT
} EpMode;

/* A script that the configuration depends on, or one that was required but is absent. */
typedef struct ScriptFile {
    const char *name;
    bool shipped; /* a file of the library; false: a file of the user, named as the user gave it */
    Hash128 hash; /* XXH3 hash of the file's bytes; zero: it could not be read */
} ScriptFile;

typedef struct Config {
    const char *file; /* path of the plan's script */
    /* all files that were read, the first one first; empty if the script's process crashed */
    LIST(ScriptFile) scripts;
    uint64_t source_lines;
    /* after the error mesh-product only: settings such as "mesh.tp=4". Each of them alone would
     * make the mesh use all devices of the cluster */
    LIST(const char *) fills;
    /* the user's -1 is already replaced by a size; 1: the plan does not use this axis */
    uint32_t axis_size[AXIS_NAMES];
    EpMode ep_mode; /* default extra */
    /* EP_folded: the sizes of the axes as the script gives them, with 1 for ep. In axis_size, the
     * ranks that ep takes from the data axes are counted under ep instead. Example: dp_shard 4, tp
     * 2, ep 4 gives axis_before dp_shard 4, tp 2 and axis_size dp_shard 2, tp 2, ep 2 */
    uint32_t axis_before[AXIS_NAMES];
    /* EP_folded: experts are also divided over the innermost ep_lent[axis] ranks of cp or tp; 0 or
     * 1: not over this axis. In the example: ep_lent[tp] = 2 */
    uint32_t ep_lent[AXIS_NAMES];
    Loc model_loc, mesh_loc, batch_loc, precision_loc;
    Loc axis_loc[AXIS_NAMES];
    /* sequences in a step; sequences that a data rank computes at a time; tokens in a sequence */
    int64_t global_batch, micro_batch, seq;
    int64_t channels, targets, height, width; /* shape of a batch of fields; 0: tokens */
    /* which tokens divide the summed loss; default kept */
    Denominator denominator;
    /* DENOMINATOR_microbatch_mean: sequences whose losses are averaged first; otherwise 0 */
    int64_t group;
    /* dtype in which parameters are stored; in which ops compute; in which gradients are summed */
    DType param, compute, reduce;
    Optimizer optimizer;
    uint32_t n_passes;
    PassConfig passes[MOST_PASSES];
    Cluster cluster;
    Runtime runtime;
    NcclSettings nccl;
    uint64_t seed;
    uint32_t train_steps;  /* default number of steps of `tandem run` */
    const char *data_file; /* the tokens to train on; NULL: synthetic data */
    /* a system whose known mistakes the plan reproduces, such as "miles-credit"; such a plan is
     * only simulated, never run; NULL: none */
    const char *original;
} Config;

/* Returns the plan's options for the pass `name`, or NULL if `parallel` does not list it. */
static inline const PassConfig *config_pass(const Config *c, PassName name)
{
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == name) return &c->passes[i];
    return NULL;
}

/* Returns the product of the sizes of the axes in the set `names`. */
static inline uint32_t config_ranks(const Config *c, AxisNames names)
{
    uint32_t n = 1;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(names, (AxisName)a)) n *= c->axis_size[a];
    return n;
}

/* Returns the number of data ranks: ranks that read different samples in a step. */
static inline int64_t config_data_ranks(const Config *c)
{
    return config_ranks(c, axes_cutting(INDEX_samples));
}

#endif
