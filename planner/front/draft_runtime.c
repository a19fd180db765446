/* Values of a framework's profile that follow from the plan's passes. */
#include "planner/front/draft.h"

void draft_find_scattered(Config *c)
{
    const PassConfig *fsdp2 = config_pass(c, PASS_fsdp2), *zero = config_pass(c, PASS_zero);
    c->runtime.scatters_gradients =
        (fsdp2 != NULL && !fsdp2->fsdp2.keep_gathered && !fsdp2->fsdp2.defer_grad_sync) ||
        (zero != NULL && (zero->zero.strategy == ZERO_optim_grads ||
                          zero->zero.strategy == ZERO_optim_grads_params));
}
