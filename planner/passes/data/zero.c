/* ZeRO, with the option names of megatron-fsdp:
 *
 *   no_shard            DDP
 *   optim               ZeRO-1: the optimizer state is sharded. Gradients are summed whole, and
 *                       scattered once a step
 *   optim_grads         ZeRO-2: gradients are scattered after every micro-batch
 *   optim_grads_params  ZeRO-3: weights are sharded, too, and gathered unit by unit
 *
 * With ZeRO-1 and ZeRO-2, weights are gathered once a step, before their first use or right after
 * the update, and stay gathered. */
#include <assert.h>

#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/pass.h"

/* The default size of a bucket in elements, as in megatron-fsdp: 1 million for each data rank, but
 * at least 40 million. */
static const uint64_t least_bucket = 40000000, bucket_a_rank = 1000000;

static uint64_t bucket_elements(const Job *job, const ZeroOptions *o)
{
    uint64_t by_ranks = bucket_a_rank * mesh_size(&job->plan->mesh, job->data_axes);
    if (o->disable_bucketing) return 0;
    if (o->bucket_size) return (uint64_t)o->bucket_size;
    return by_ranks > least_bucket ? by_ranks : least_bucket;
}

/* Sets the dtypes of units. What megatron-fsdp calls the parameter dtype is the dtype in which
 * Tandem's weights are used, Unit.dtype. */
static void choose_dtypes(Job *job, const ZeroOptions *o)
{
    Graph *g = &job->plan->graph;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param) continue;
        if (o->grad_reduce_in_fp32)
            at->reduce_dtype = o->grad_reduce_in_fp32 == CHOICE_yes ? DT_f32 : at->dtype;
        if (o->preserve_fp32_weights)
            at->rest_dtype = o->preserve_fp32_weights == CHOICE_yes ? DT_f32 : at->dtype;
    }
}

static bool pass_zero(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_zero);
    assert(pass);
    const ZeroOptions *o = &pass->zero;
    bool shards_params = o->strategy == ZERO_optim_grads_params;
    UnitRule rule = {.shard = mesh_shard_axes(&job->plan->mesh),
                     .root_elements = bucket_elements(job, o),
                     .may_be_one = o->has_units && o->units.n == 0,
                     .units = &o->units};
    rule.replicate = (AxisSet)(job->data_axes & ~rule.shard);
    if (job->sharding.gathers_bytes && o->gather == ZERO_GATHER_eager) {
        diag_error(job->diag, FAULT_input, "zero-option", pass->loc,
                   "zero{}: gather = \"eager\" does not work with 8-bit weights, whose scale is "
                   "known only in the next step");
        diag_hint(job->diag, "leave out gather, or float8 { fsdp_gather }");
        return false;
    }
    choose_dtypes(job, o);
    job->sharding.reduce_waits = o->overlap_grad_reduce == CHOICE_no && !shards_params;
    job->sharding.gather_waits = o->overlap_param_gather == CHOICE_no && !shards_params;
    job->sharding.gather_eager = o->gather == ZERO_GATHER_eager;
    job->sharding.double_buffer = o->fsdp_double_buffer || o->nccl_ub;
    job->sharding.registered = o->nccl_ub;
    if (o->strategy == ZERO_no_shard) {
        if (!o->disable_bucketing)
            return units_by_bucket(job, (double)rule.root_elements, BUCKET_elements);
        rule.shard = 0;
        rule.replicate = job->data_axes;
        return units_by_block(job, pass, &rule);
    }
    job->sharding.resident = !shards_params;
    job->sharding.options =
        (Fsdp2Options){.reshard_after_forward = shards_params ? RESHARD_true : RESHARD_false,
                       .reshard_last = true,
                       .prefetch = job->sharding.gather_waits ? 0 : o->prefetch,
                       .defer_grad_sync = o->strategy == ZERO_optim};
    return units_by_block(job, pass, &rule);
}

static const char *const strategies[] = {
#define X(name) #name,
    ZERO_STRATEGIES(X)
#undef X
        NULL};

#define OPTION_CHOICE(member, open, unit, doc)                                                     \
    OPTION_OPEN(choice, member, 0, 1, NULL, open, unit, doc)
static const PassOption options[] = {
    OPTION_WORD(
        zero.strategy, strategies, ZERO_optim_grads_params, "",
        "What is sharded over dp_shard. no_shard: nothing. optim: optimizer state (ZeRO-1). "
        "optim_grads: also gradients (ZeRO-2). optim_grads_params: also weights (ZeRO-3)."),
    OPTION(u32, zero.prefetch, 0, 64, 1, "units",
           "The number of units whose weights are gathered before they are needed."),
    OPTION_LIST("zero.units", modules, zero.units, offsetof(PassConfig, zero.has_units), NULL,
                "the blocks", "",
                "Paths of the modules that are units. `{}`: the whole model is one unit."),
    OPTION_OPEN(i64, zero.bucket_size, 1, 9.0e15, NULL, "40e6, or 1e6 x data ranks if that is more",
                "elements",
                "The size of a bucket. Parameters outside units are communicated in buckets. "
                "Default: 40M, or 1M for each data rank if that is more."),
    OPTION_FLAG(zero.disable_bucketing, 0, "", "true: each unit is one bucket of any size."),
    OPTION_CHOICE(zero.overlap_grad_reduce, "true", "",
                  "false: computation waits for each reduction."),
    OPTION_CHOICE(zero.overlap_param_gather, "true", "",
                  "false: computation waits for each gather."),
    OPTION_CHOICE(zero.grad_reduce_in_fp32, "as precision.reduce says", "",
                  "true: gradients are summed in fp32. false: in the type of the weights in use."),
    OPTION_CHOICE(zero.preserve_fp32_weights, "as precision.param says", "",
                  "true: weights are stored in fp32 between steps. false: in the type in use."),
    OPTION_CHOICE(
        zero.average_in_collective, "false", "",
        "Not supported, because the loss is already divided by the tokens of the whole step."),
    OPTION_CHOICE(zero.calculate_per_token_loss, "true", "",
                  "Only true is allowed: the loss is divided by the tokens of the whole step."),
    OPTION_FLAG(zero.fsdp_double_buffer, 0, "",
                "true: units of equal size use two fixed buffers in turn."),
    OPTION_FLAG(
        zero.nccl_ub, 0, "",
        "true: like fsdp_double_buffer. The two buffers, and weights that stay gathered, are "
        "also registered with NCCL, so collectives use fewer SMs."),
    OPTION_CHOICE(zero.keep_fp8_transpose_cache, "false", "",
                  "Not supported. The error names an alternative."),
    OPTION_CHOICE(zero.check_for_nan_in_grad, "false", "",
                  "Not supported. The error names an alternative."),
    OPTION_WORD(zero.gather, OPTION_WORDS("lazy", "eager"), ZERO_GATHER_lazy, "",
                "Only for optim and optim_grads. lazy: updated weights are gathered before their "
                "first use. eager: they are gathered right after the update."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "zero(%s", strategies[pass->zero.strategy]);
    if (pass->zero.gather == ZERO_GATHER_eager) str_add(out, ", eager");
    if (pass->zero.overlap_grad_reduce == CHOICE_no) str_add(out, ", waits for reductions");
    if (pass->zero.overlap_param_gather == CHOICE_no) str_add(out, ", waits for gathers");
    if (pass->zero.fsdp_double_buffer || pass->zero.nccl_ub) str_add(out, ", double buffer");
    if (pass->zero.nccl_ub) str_add(out, ", registered");
    str_add(out, ")");
}

static bool shards(const PassConfig *pass)
{
    return pass->zero.strategy != ZERO_no_shard;
}

static void warn_axes(const Config *config, const PassConfig *pass, Diag *d)
{
    const bool is_sharding = shards(pass);
    if (is_sharding && config_ranks(config, axes_with(AXIS_STATES)) <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "zero{} shards nothing, because mesh.dp_shard is 1");
    if (!is_sharding && config_ranks(config, axes_cutting_batch() & ~axes_with(AXIS_UNITS)) <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "zero \"no_shard\" has no effect, because mesh.dp_replicate is 1");
}

/* Warns of options without effect. zero_options.c has the warnings about overlap in
 * optim_grads_params. */
static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    (void)config;
    const bool whole = o->strategy == ZERO_no_shard, eager = o->gather == ZERO_GATHER_eager;
    const bool waits = o->overlap_param_gather == CHOICE_no;
    const char *never =
        whole   ? "with no_shard, weights are never gathered"
        : eager ? "with gather = \"eager\", all weights are gathered right after the update"
                : NULL;
    const char *ahead = never ? never
                        : waits && o->strategy != ZERO_optim_grads_params
                            ? "with overlap_param_gather = false, no weights are gathered early"
                            : NULL;
    if (o->prefetch != 1 && ahead)
        diag_warning(d, "not-applied", pass->loc, "zero{}: prefetch = %u has no effect: %s",
                     o->prefetch, ahead);
    if (waits && never)
        diag_warning(d, "not-applied", pass->loc,
                     "zero{}: overlap_param_gather = false has no effect: %s", never);
}

const PassSpec pass_spec_zero = {
    .name = "zero",
    .doc = {"zero", "", "ZeRO 0 to 3, with the option names of megatron-fsdp."},
    .options = options,
    .short_key = "strategy",
    .reports = true,
    .is_data = true,
    .shards = shards,
    .run = pass_zero,
    .trials = OPTION_WORDS("parallel.zero.prefetch=2"),
    .print = print,
    .warn_axes = warn_axes,
    .warn_options = warn_options,
};
