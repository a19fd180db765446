/* The options of zero{}, with megatron-fsdp's names. Each option changes the program, or is refused
 * here with the reason and an alternative. No option is silently ignored. */
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

/* Refuses scaling options that ask for another divisor of the loss. Tandem always divides the loss
 * by the tokens of the whole step. */
static void check_scaling(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->average_in_collective == CHOICE_yes && o->calculate_per_token_loss != CHOICE_yes)
        refuse(d, pass,
               "average_in_collective without calculate_per_token_loss: a mean of the ranks' means "
               "gives tokens of a rank with few tokens more weight",
               "leave it out: gradients are summed, and the loss is divided by the tokens of the "
               "whole step");
    else if (o->average_in_collective == CHOICE_yes)
        refuse(d, pass,
               "average_in_collective with calculate_per_token_loss: gradients are divided by the "
               "tokens of the whole step already, an average would divide by the data ranks again",
               "leave average_in_collective out");
    if (o->calculate_per_token_loss == CHOICE_no)
        refuse(d, pass,
               "calculate_per_token_loss = false: the mean of the ranks' means is another loss "
               "wherever ranks have different numbers of tokens",
               "leave it out or write true: the loss is divided by the tokens of the whole step");
}

static void check_overlap(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->overlap_grad_reduce == CHOICE_no && o->strategy == ZERO_optim_grads)
        refuse(d, pass,
               "overlap_grad_reduce = false with optim_grads: gradients must be scattered during "
               "the backward pass, so that only one unit's gradients are whole at a time",
               "leave it out, or use strategy = \"optim\"");
    if (o->strategy != ZERO_optim_grads_params) return;
    if (o->overlap_grad_reduce == CHOICE_no || o->overlap_param_gather == CHOICE_no)
        diag_warning(d, "not-applied", pass->loc,
                     "zero{}: optim_grads_params always overlaps its gathers and reductions; %s "
                     "= false is not applied",
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
                   "zero{}: %s with %s: weights and gradients of all units are whole at the same "
                   "time, so two buffers cannot hold them in turns",
                   name, strategy_name(o->strategy));
        diag_hint(d, "use strategy = \"optim_grads\" or \"optim_grads_params\"");
    } else if (o->prefetch > 1) {
        diag_error(d, FAULT_input, "zero-option", pass->loc,
                   "zero{}: %s has room for one unit in use and one gathered ahead, but prefetch = "
                   "%u gathers more units ahead",
                   name, o->prefetch);
        diag_hint(d, "set prefetch = 1, or leave %s out", name);
    }
}

static void check_others(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    if (o->keep_fp8_transpose_cache == CHOICE_yes)
        refuse(d, pass,
               "keep_fp8_transpose_cache: no transposed float8 copy of a weight exists that could "
               "be kept",
               "leave it out");
    if (o->check_for_nan_in_grad == CHOICE_yes)
        refuse(d, pass,
               "check_for_nan_in_grad: the gradient norm of every step covers every element. If it "
               "is not finite, the run stops before the update and names the instruction",
               "leave it out: the check is always on and costs no scan of its own");
    if (o->gather == ZERO_GATHER_eager && o->strategy != ZERO_optim &&
        o->strategy != ZERO_optim_grads) {
        diag_error(d, FAULT_input, "zero-option", pass->loc,
                   "zero{}: gather = \"eager\" with %s: %s", strategy_name(o->strategy),
                   o->strategy == ZERO_no_shard ? "weights are whole, nothing is gathered"
                                                : "weights do not stay gathered between steps");
        diag_hint(d, "it is for strategy = \"optim\" and \"optim_grads\"");
    }
    if (o->bucket_size && o->disable_bucketing)
        refuse(d, pass, "bucket_size and disable_bucketing contradict each other",
               "keep one of them");
    if (o->strategy == ZERO_no_shard && (o->units.n || o->has_units) && !o->disable_bucketing)
        refuse(d, pass, "units with no_shard: its buckets are made by size, not by module",
               "add disable_bucketing = true for one bucket a unit, or leave units out");
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
