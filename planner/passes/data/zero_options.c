/* Checks the options of zero{}, which have the names of megatron-fsdp. Every option either changes
 * the program, or is refused here with a reason and an alternative. None is silently ignored. */
#include "planner/passes/pass.h"

static void refuse(Diag *d, const PassConfig *pass, const char *what, const char *hint)
{
    diag_error(d, FAULT_input, "zero-option", pass->loc, "zero{}: %s", what);
    diag_hint(d, "%s", hint);
}

static const char *strategy_name(ZeroStrategy s)
{
    static const char *const names[] = {
#define X(name) #name,
        ZERO_STRATEGIES(X)
#undef X
    };
    return names[s];
}

/* Refuses options that change the divisor of the loss. Tandem always divides by the tokens of the
 * whole step. */
static void check_scaling(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->average_in_collective == CHOICE_yes && o->calculate_per_token_loss != CHOICE_yes)
        refuse(d, pass,
               "average_in_collective is not supported, because it would give tokens of some ranks "
               "more weight than others",
               "leave it out; the loss is divided by the tokens of the whole step");
    else if (o->average_in_collective == CHOICE_yes)
        refuse(d, pass,
               "average_in_collective does not work with calculate_per_token_loss, because "
               "gradients would be divided twice",
               "leave out average_in_collective");
    if (o->calculate_per_token_loss == CHOICE_no)
        refuse(d, pass,
               "calculate_per_token_loss = false is not supported, because it would give tokens of "
               "some ranks more weight than others",
               "leave it out; the loss is divided by the tokens of the whole step");
}

static void check_overlap(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->overlap_grad_reduce == CHOICE_no && o->strategy == ZERO_optim_grads)
        refuse(d, pass,
               "overlap_grad_reduce = false does not work with optim_grads, which reduces "
               "gradients during the backward pass",
               "leave out overlap_grad_reduce, or use strategy = \"optim\"");
    if (o->strategy != ZERO_optim_grads_params) return;
    if (o->overlap_grad_reduce == CHOICE_no || o->overlap_param_gather == CHOICE_no)
        diag_warning(d, "not-applied", pass->loc,
                     "zero{}: %s = false has no effect, because optim_grads_params always overlaps "
                     "its communication",
                     o->overlap_grad_reduce == CHOICE_no ? "overlap_grad_reduce"
                                                         : "overlap_param_gather");
}

static void check_buffers(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    const char *name = o->nccl_ub ? "nccl_ub" : "fsdp_double_buffer";
    if (!o->nccl_ub && !o->fsdp_double_buffer) return;
    if (o->strategy == ZERO_no_shard || o->strategy == ZERO_optim) {
        diag_error(d, FAULT_input, "zero-option", pass->loc,
                   "zero{}: %s does not work with %s, because two buffers cannot hold the weights "
                   "and gradients of all units",
                   name, strategy_name(o->strategy));
        diag_hint(d, "use strategy = \"optim_grads\" or \"optim_grads_params\"");
    } else if (o->prefetch > 1) {
        diag_error(
            d, FAULT_input, "zero-option", pass->loc,
            "zero{}: %s has two buffers, so only one unit can be gathered early, but prefetch = %u",
            name, o->prefetch);
        diag_hint(d, "set prefetch = 1, or leave out %s", name);
    }
}

static void check_others(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->keep_fp8_transpose_cache == CHOICE_yes)
        refuse(d, pass,
               "keep_fp8_transpose_cache is not supported, because Tandem makes no transposed "
               "float8 copies of weights",
               "leave it out");
    if (o->check_for_nan_in_grad == CHOICE_yes)
        refuse(d, pass,
               "check_for_nan_in_grad is not supported, because `run` always checks the gradient "
               "norm before an update",
               "leave it out");
    if (o->gather == ZERO_GATHER_eager && o->strategy != ZERO_optim &&
        o->strategy != ZERO_optim_grads) {
        diag_error(d, FAULT_input, "zero-option", pass->loc,
                   "zero{}: gather = \"eager\" does not work with %s: %s",
                   strategy_name(o->strategy),
                   o->strategy == ZERO_no_shard ? "weights are never gathered"
                                                : "weights are sharded between steps");
        diag_hint(d, "leave out gather, or use strategy = \"optim\" or \"optim_grads\"");
    }
    if (o->bucket_size && o->disable_bucketing)
        refuse(d, pass, "bucket_size and disable_bucketing exclude each other",
               "leave out one of them");
    if (o->strategy == ZERO_no_shard && (o->units.n || o->has_units) && !o->disable_bucketing)
        refuse(d, pass, "units do not work with no_shard, whose buckets are made by size",
               "leave out units, or add disable_bucketing = true to make each unit one bucket");
}

void zero_check_options(const Config *config, Diag *d)
{
    for (uint32_t i = 0; i < config->n_passes; i++) {
        const PassConfig *pass = &config->passes[i];
        if (pass->name != PASS_zero) continue;
        check_scaling(pass, d);
        check_overlap(pass, d);
        check_buffers(pass, d);
        check_others(pass, d);
    }
}
