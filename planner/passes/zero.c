/* ZeRO under the names of megatron-fsdp. no_shard is DDP; optim (ZeRO-1) shards the optimizer:
 * gradients are summed whole and scattered once a step; optim_grads (ZeRO-2) scatters them every
 * micro-batch; optim_grads_params (ZeRO-3) also gathers weights unit by unit. In 1 and 2 the
 * weights are gathered once a step and stay, which is megatron-fsdp's gather after the update,
 * moved to the first use. */
#include <assert.h>

#include "planner/passes/pass.h"

bool pass_zero(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_zero);
    assert(pass);
    const ZeroOptions *o = &pass->zero;
    bool shards_params = o->strategy == ZERO_optim_grads_params;
    if (o->strategy == ZERO_no_shard) return units_by_bucket(job, o->bucket_mib);
    job->resident = !shards_params;
    job->sharding =
        (Fsdp2Options){.reshard_after_forward = shards_params ? RESHARD_true : RESHARD_false,
                       .reshard_last = true,
                       .prefetch = o->prefetch,
                       .defer_grad_sync = o->strategy == ZERO_optim};
    return units_by_block(job, pass);
}
