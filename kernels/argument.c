#include "kernels/argument.h"

static bool is_index(OpKind op, uint32_t arg)
{
    bool ids = (op == OP_embed && arg == 0) || (op == OP_embed_grad && arg == 1);
    bool picks = op == OP_xent_pick || op == OP_xent_pick_grad || op == OP_xent_smooth ||
                 op == OP_xent_smooth_grad;
    bool grad = op == OP_xent_loss_grad || op == OP_xent_loss_mean_grad;
    bool loss = op == OP_xent_loss || op == OP_xent_loss_mean;
    return op == OP_batch || ids || (picks && arg == 1) || (grad && arg == 2) || (loss && arg == 3);
}

static bool is_scalars(OpKind op, uint32_t arg)
{
    return op == OP_clip_coef || op == OP_step_mean || (op == OP_sumsq && arg == 1) ||
           (op == OP_adamw && arg == 4) || (op == OP_sgd && arg == 2);
}

ArgumentKind kernel_argument(OpKind op, uint32_t arg)
{
    if (is_index(op, arg)) return ARGUMENT_index;
    if (is_scalars(op, arg)) return ARGUMENT_scalars;
    if (op == OP_tokens) return ARGUMENT_any;
    bool loss = (op == OP_xent_loss || op == OP_xent_loss_mean) && arg >= 4;
    return loss ? ARGUMENT_loss : ARGUMENT_real;
}
