/* ZeRO under the names of megatron-fsdp. no_shard is DDP; optim (ZeRO-1) shards the optimizer:
 * gradients are summed whole and scattered once a step; optim_grads (ZeRO-2) scatters them every
 * micro-batch; optim_grads_params (ZeRO-3) also gathers weights unit by unit. In 1 and 2 the
 * weights are gathered once a step and stay: before their first use, or right after the update. */
#include <assert.h>

#include "planner/ir/mesh_view.h"
#include "planner/passes/pass.h"

/* Elements of a bucket where the user names none, as megatron-fsdp has them. */
static const uint64_t least_bucket = 40000000, bucket_a_rank = 1000000;

static uint64_t bucket_elements(const Job *job, const ZeroOptions *o)
{
    uint64_t by_ranks = bucket_a_rank * mesh_size(&job->plan->mesh, job->data_axes);
    if (o->disable_bucketing) return 0;
    if (o->bucket_size) return (uint64_t)o->bucket_size;
    return by_ranks > least_bucket ? by_ranks : least_bucket;
}

/* "Parameter dtype" is the one in which weights are used. */
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

bool pass_zero(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_zero);
    assert(pass);
    const ZeroOptions *o = &pass->zero;
    bool shards_params = o->strategy == ZERO_optim_grads_params;
    UnitRule rule = {.shard = mesh_shard_axes(&job->plan->mesh),
                     .replicate = mesh_axes(&job->plan->mesh, AXIS_dp_replicate),
                     .root_elements = bucket_elements(job, o),
                     .may_be_one = o->has_units && o->units.n == 0,
                     .units = &o->units};
    if (job->gathers_bytes && o->gather == ZERO_GATHER_eager) {
        diag_error(
            job->diag, FAULT_input, "zero-option", pass->loc,
            "zero{}: gather = \"eager\" with weights gathered in 8 bits: their scale is that "
            "of the step that reads them");
        diag_hint(job->diag, "leave gather out, or gather in the dtype in use");
        return false;
    }
    choose_dtypes(job, o);
    job->reduce_waits = o->overlap_grad_reduce == CHOICE_no && !shards_params;
    job->gather_waits = o->overlap_param_gather == CHOICE_no && !shards_params;
    job->gather_eager = o->gather == ZERO_GATHER_eager;
    job->double_buffer = o->fsdp_double_buffer || o->nccl_ub;
    job->registered = o->nccl_ub;
    if (o->strategy == ZERO_no_shard) {
        if (!o->disable_bucketing)
            return units_by_bucket(job, (double)rule.root_elements, BUCKET_elements);
        rule.shard = 0;
        rule.replicate = job->data_axes;
        return units_by_block(job, pass, &rule);
    }
    job->resident = !shards_params;
    job->sharding =
        (Fsdp2Options){.reshard_after_forward = shards_params ? RESHARD_true : RESHARD_false,
                       .reshard_last = true,
                       .prefetch = job->gather_waits ? 0 : o->prefetch,
                       .defer_grad_sync = o->strategy == ZERO_optim};
    return units_by_block(job, pass, &rule);
}
