/* Requests of a plan that have no effect: passes whose axis has one rank, and options that nothing
 * of the plan reads. Each is said; the plan is what the rest of it says. */
#include "planner/passes/pass.h"

/* Whether a data pass is there is asked of the plan, not of the config: without other data ranks
 * FSDP2's policy does not apply either. */
static void warn_axes(const Config *config, const PassConfig *pass, Diag *d)
{
    const bool over_ep = pass->name != PASS_fsdp2 || pass->fsdp2.over_ep;
    const uint32_t ep = config->axis_size[AXIS_ep], cp = config->axis_size[AXIS_cp],
                   shard = config->axis_size[AXIS_dp_shard] * cp * (over_ep ? ep : 1),
                   replicate = config->axis_size[AXIS_dp_replicate] * cp * ep;
    const MpPolicy *mp = &pass->fsdp2.mp;
    const bool policy = (mp->param || mp->reduce || mp->output) && replicate <= 1;
    if (pass->name == PASS_fsdp2 && shard <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "fsdp2{} is asked for but mesh.dp_shard is 1: parameters stay whole%s%s",
                     policy ? ", and precision holds instead of fsdp2.mp" : "",
                     pass->fsdp2.offload ? ", and on the device: offload moves shards" : "");
    if (pass->name == PASS_fsdp2 && shard > 1 && config->axis_size[AXIS_dp_shard] * cp <= 1 &&
        pass->fsdp2.offload)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "fsdp2 { offload = true } but mesh.dp_shard is 1: experts, which only ep "
                     "shares, stay on the device");
    if (pass->name == PASS_zero && pass->zero.strategy != ZERO_no_shard && shard <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "zero{} is asked to shard but mesh.dp_shard is 1: nothing is sharded");
    if (pass->name == PASS_zero && pass->zero.strategy == ZERO_no_shard && replicate <= 1)
        diag_warning(
            d, "not-applied", config->mesh_loc,
            "zero \"no_shard\" is asked for but mesh.dp_replicate is 1: there is nobody to "
            "sum gradients with");
    if (pass->name == PASS_ddp && replicate <= 1)
        diag_warning(d, "not-applied", config->mesh_loc,
                     "ddp{} is asked for but mesh.dp_replicate is 1");
}

/* optim_grads_params answers for its overlaps in zero_options.c. */
static void warn_zero(const PassConfig *pass, Diag *d)
{
    const ZeroOptions *o = &pass->zero;
    const bool whole = o->strategy == ZERO_no_shard, eager = o->gather == ZERO_GATHER_eager;
    const bool waits = o->overlap_param_gather == CHOICE_no;
    const char *never = whole   ? "with no_shard: weights are whole, nothing is gathered"
                        : eager ? "with gather = \"eager\": all is gathered right after the update"
                                : NULL;
    const char *ahead = never ? never
                        : waits && o->strategy != ZERO_optim_grads_params
                            ? "with overlap_param_gather = false: nothing is gathered ahead"
                            : NULL;
    if (o->prefetch != 1 && ahead)
        diag_warning(d, "not-applied", pass->loc, "zero{}: prefetch = %u %s", o->prefetch, ahead);
    if (waits && never)
        diag_warning(d, "not-applied", pass->loc, "zero{}: overlap_param_gather = false %s", never);
}

static void warn_options(const Config *config, const PassConfig *pass, Diag *d)
{
    const uint32_t *n = config->axis_size;
    const Fsdp2Options *fsdp2 = &pass->fsdp2;
    const char *kept = fsdp2->reshard_after_forward == RESHARD_false && !fsdp2->keep_gathered
                           ? "reshard_after_forward = false keeps every unit gathered until its "
                             "backward pass"
                           : NULL;
    switch (pass->name) {
    case PASS_tp:
        if (n[AXIS_tp] > 1 && pass->tp.keep_gathered && !pass->tp.sequence && !pass->tp.plan.n)
            diag_warning(d, "not-applied", pass->loc,
                         "tp{}: keep_gathered = true without sequence: what column linears read "
                         "is whole and is not gathered");
        break;
    case PASS_ac:
        if (pass->ac == AC_none && pass->ac_every > 1)
            diag_warning(d, "not-applied", pass->loc,
                         "ac{}: every = %u with mode = \"none\": nothing is recomputed",
                         pass->ac_every);
        break;
    case PASS_fsdp2:
        if (n[AXIS_ep] <= 1 && !fsdp2->over_ep)
            diag_warning(d, "not-applied", pass->loc,
                         "fsdp2{}: over_ep = false is not applied: mesh.ep is 1");
        if (n[AXIS_dp_shard] * n[AXIS_cp] > 1 && kept && fsdp2->reshard_root)
            diag_warning(d, "not-applied", pass->loc,
                         "fsdp2{}: reshard_root = true is not applied: %s", kept);
        if (n[AXIS_dp_shard] * n[AXIS_cp] > 1 && kept && !fsdp2->reshard_last)
            diag_warning(d, "not-applied", pass->loc,
                         "fsdp2{}: reshard_last = false says nothing more: %s", kept);
        break;
    case PASS_zero: warn_zero(pass, d); break;
    case PASS_pp:
    case PASS_ep:
    case PASS_cp:
    case PASS_float8:
    case PASS_ddp:
    case PASS_compile:
    case PASS_tile:
    case PASS_meta:
    case PASS_materialize:
    case PASS_NAME_COUNT: break;
    }
}

void warn_not_applied(const Config *config, Diag *d)
{
    bool has[PASS_NAME_COUNT] = {false};
    for (uint32_t i = 0; i < config->n_passes; i++) {
        has[config->passes[i].name] = true;
        warn_axes(config, &config->passes[i], d);
    }
    if (has[PASS_pp] && config->axis_size[AXIS_pp] <= 1)
        diag_warning(d, "not-applied", config->mesh_loc, "pp{} is asked for but mesh.pp is 1");
    if (has[PASS_ep] && config->axis_size[AXIS_ep] <= 1 && config->ep_folded <= 1)
        diag_warning(d, "not-applied", config->mesh_loc, "ep{} is asked for but mesh.ep is 1");
    if (has[PASS_cp] && config->axis_size[AXIS_cp] <= 1)
        diag_warning(d, "not-applied", config->mesh_loc, "cp{} is asked for but mesh.cp is 1");
    if (has[PASS_tp] && config->axis_size[AXIS_tp] <= 1)
        diag_warning(d, "not-applied", config->mesh_loc, "tp{} is asked for but mesh.tp is 1");
    for (uint32_t i = 0; i < config->n_passes; i++) warn_options(config, &config->passes[i], d);
}
