#include "kernels/argument.h"

static bool is_scalars(OpKind op, uint32_t arg)
{
    return op == OP_clip_coef || op == OP_step_mean || (op == OP_sumsq && arg == 1) ||
           (op == OP_adamw && arg == 4) || (op == OP_sgd && arg == 2);
}

ArgumentKind kernel_argument(OpKind op, uint32_t arg)
{
    if (op_index_args(op) >> arg & 1) return ARGUMENT_index;
    if (is_scalars(op, arg)) return ARGUMENT_scalars;
    if (op_takes_tokens(op)) return ARGUMENT_any;
    bool loss = (op == OP_xent_loss || op == OP_xent_loss_mean) && arg >= 4;
    loss = loss || (op == OP_mse_loss && arg >= 2);
    return loss ? ARGUMENT_loss : ARGUMENT_real;
}
