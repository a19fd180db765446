/* Axes of the mesh that no pass uses, and passes whose axis has one rank: either would silently do
 * nothing. */
#include "planner/passes/pass.h"

/* ep may be carved only out of dp_shard: an ep group must not cross ranks that tp, cp or
 * dp_replicate separate. */
static void check_folded(const Config *config, Diag *d)
{
    if (config->ep_folded <= 1) return;
    diag_error(
        d, FAULT_input, "axis-unsupported", config->axis_loc[AXIS_ep],
        "mesh.ep = %u (folded): this version carves ep out of dp_shard alone, where neither tp "
        "nor cp lies inside of it",
        config->ep_folded);
    diag_hint(d, "make ep a factor of the world (ep_mode = \"extra\"), or a divisor of dp_shard "
                 "without tp and cp");
}

/* Ranks that share experts read different samples. A data pass must sum the gradients of the other
 * parameters over them. */
static void check_experts(const Config *config, const bool *has, Diag *d)
{
    const uint32_t *n = config->axis_size;
    if (n[AXIS_ep] > 1 && !has[PASS_ep]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_ep],
                   "mesh.ep = %u but parallel has no ep{}: every rank would hold all experts",
                   n[AXIS_ep]);
        diag_hint(d, "add ep{} to parallel, or make ep a part of dp_shard");
    }
    const bool sums = has[PASS_ddp] || has[PASS_fsdp2] || has[PASS_zero];
    if (n[AXIS_ep] > 1 && !sums) {
        diag_error(d, FAULT_input, "data-none", config->axis_loc[AXIS_ep],
                   "mesh.ep = %u but parallel has neither ddp{} nor fsdp2{} nor zero{}: ranks that "
                   "share experts have other samples, and would train the rest of the model apart",
                   n[AXIS_ep]);
        diag_hint(d, "add fsdp2{} or ddp{}");
    }
}

bool passes_check_axes(const Config *config, Diag *d)
{
    uint32_t before = d->n_errors;
    bool has[PASS_NAME_COUNT] = {false};
    for (uint32_t i = 0; i < config->n_passes; i++) has[config->passes[i].name] = true;
    const uint32_t *n = config->axis_size;
    if (n[AXIS_pp] > 1 && !has[PASS_pp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_pp],
                   "mesh.pp = %u but parallel has no pp{}: the model would not be cut into stages",
                   n[AXIS_pp]);
        diag_hint(d, "add pp{ schedule = \"1f1b\" } first in parallel, or remove pp from the mesh");
    }
    if (n[AXIS_tp] > 1 && !has[PASS_tp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_tp],
                   "mesh.tp = %u but parallel has no tp{}: %u ranks would repeat the same work",
                   n[AXIS_tp], n[AXIS_tp]);
        diag_hint(d, "add tp{} to parallel, or remove tp from the mesh");
    }
    if (n[AXIS_cp] > 1 && !has[PASS_cp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_cp],
                   "mesh.cp = %u but parallel has no cp{}: %u ranks would repeat the same work",
                   n[AXIS_cp], n[AXIS_cp]);
        diag_hint(d, "add cp{} to parallel, or make cp a part of dp_shard");
    }
    bool zero_shards = false;
    for (uint32_t i = 0; i < config->n_passes; i++)
        zero_shards = zero_shards || (config->passes[i].name == PASS_zero &&
                                      config->passes[i].zero.strategy != ZERO_no_shard);
    if (n[AXIS_dp_shard] > 1 && !has[PASS_fsdp2] && !zero_shards) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_dp_shard],
                   "mesh.dp_shard = %u but parallel has neither fsdp2{} nor a zero{} that shards: "
                   "gradients "
                   "would never be summed",
                   n[AXIS_dp_shard]);
        diag_hint(d, "add fsdp2{}, or use dp_replicate with ddp{}");
    }
    check_experts(config, has, d);
    if (n[AXIS_dp_replicate] > 1 && !has[PASS_ddp] && !has[PASS_fsdp2] && !has[PASS_zero]) {
        diag_error(d, FAULT_input, "data-none", config->axis_loc[AXIS_dp_replicate],
                   "mesh.dp_replicate = %u but parallel has neither ddp{} nor fsdp2{}: every "
                   "replica would train "
                   "a model of its own",
                   n[AXIS_dp_replicate]);
        diag_hint(d, "add ddp{}");
    }
    if (has[PASS_ddp] + has[PASS_fsdp2] + has[PASS_zero] > 1) {
        diag_error(
            d, FAULT_input, "data-twice", config->mesh_loc,
            "ddp{}, fsdp2{} and zero{} each own the data axes: gradients would be reduced twice");
        diag_hint(d, "keep one; fsdp2{} on a mesh with dp_replicate > 1 is already HSDP");
    }
    check_folded(config, d);
    if (n[AXIS_domain] > 1) {
        diag_error(d, FAULT_input, "axis-unsupported", config->axis_loc[AXIS_domain],
                   "mesh.domain = %u: this version has no pass that uses the domain axis",
                   n[AXIS_domain]);
        diag_hint(d, "set domain = 1; pp, dp_replicate, dp_shard, cp, ep and tp are available");
    }
    warn_not_applied(config, d);
    zero_check_options(config, d);
    return d->n_errors == before;
}
