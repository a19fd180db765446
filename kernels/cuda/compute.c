/* The dtypes and the scratch memory of all ops but contractions and attention. */
#include "kernels/argument.h"
#include "kernels/cuda/workspace.h"
#include "kernels/number.h"

/* The function that gives the scratch bytes of each op. An op that is not listed needs no scratch
 * memory. */
static CudaWorkspace_function *const workspace[OP_COUNT] = {
    [OP_bias_grad] = cuda_columns_workspace,
    [OP_rmsnorm_grad] = cuda_norm_grad_workspace,
    [OP_rmsnorm_heads_grad] = cuda_norm_grad_workspace,
    [OP_layernorm_grad] = cuda_norm_grad_workspace,
    [OP_embed_grad] = cuda_embed_grad_workspace,
    [OP_amax] = cuda_amax_workspace,
    [OP_amax_of_tokens] = cuda_amax_workspace,
    [OP_amax_over_tokens] = cuda_amax_workspace,
    [OP_amax_of_first] = cuda_amax_workspace,
    [OP_amax_over_first] = cuda_amax_workspace,
    [OP_amax_of_last] = cuda_amax_workspace,
    [OP_amax_over_last] = cuda_amax_workspace,
    [OP_amax_range] = cuda_amax_workspace,
    [OP_sumsq] = cuda_sumsq_workspace,
    [OP_balance] = cuda_balance_workspace,
    [OP_balance_grad] = cuda_balance_workspace,
    [OP_state_scan_grad] = cuda_scan_grad_workspace,
    [OP_state_scan_shared] = cuda_scan_grad_workspace,
    [OP_xent_loss] = cuda_loss_workspace,
    [OP_xent_loss_mean] = cuda_loss_workspace,
    [OP_xent_loss_mean_grad] = cuda_loss_workspace,
};

uint64_t cuda_compute_workspace(OpKind op, const DType *dtype, const int64_t *elements,
                                uint32_t n_args)
{
    return workspace[op] == NULL ? 0 : workspace[op](op, dtype, elements, n_args);
}

static bool is_eight(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

/* Returns true for ops that accept 8-bit numbers: they make, cast or move such numbers, or find
 * their largest magnitude. */
static bool takes_eight(OpKind op)
{
    const OpInfo *info = op_info(op);
    return op == OP_cast || op == OP_fill || op == OP_pass || op == OP_quantise_range ||
           info->flags & (OP_QUANTISES | OP_TURNS) || workspace[op] == cuda_amax_workspace;
}

static bool accepts(OpKind op, uint32_t arg, DType t)
{
    if (op == OP_fill && t == DT_f64)
        return true; /* a pipeline stage without a loss adds zero to its fp64 sum of losses */
    switch (kernel_argument(op, arg)) {
    case ARGUMENT_index: return t == DT_i32;
    case ARGUMENT_scalars: return t == DT_f64;
    case ARGUMENT_loss: return t == DT_f64 || t == DT_f32;
    case ARGUMENT_any:
        if (t == DT_i32) return true; /* fallthrough */
    case ARGUMENT_real:
        return t == DT_f32 || t == DT_bf16 || t == DT_f16 || (is_eight(t) && takes_eight(op));
    }
    return false;
}

static bool accepts_halo(OpKind op, const DType *dtype, uint32_t n_args)
{
    const uint32_t n = op == OP_halo_join || op == OP_halo_fold ? 3 : 2;
    for (uint32_t i = 0; i < n_args; i++)
        if (dtype[i] != dtype[0] || dtype[i] == DT_f64 || !number_is_real(dtype[i])) return false;
    return n_args == n;
}

bool cuda_compute_accepts(OpKind op, const DType *dtype, uint32_t n_args)
{
    const OpInfo *info = op_info(op);
    uint32_t n = (uint32_t)info->sig.n_in + info->sig.n_out;
    if (info->flags & OP_BLOCKS) return false; /* missing.h lists these ops */
    if (op_is_halo(op)) return accepts_halo(op, dtype, n_args);
    if (info->class_ == OP_CLASS_reshape) return n_args == 2 && dtype[0] == dtype[1];
    if (op == OP_cast && n_args == 2 && dtype[0] == dtype[1]) return true;
    if ((op_takes_tokens(op) || info->flags & OP_TURNS) && dtype[0] != dtype[1]) return false;
    if (n_args < n || n_args > n + 1 || (n_args == n + 1 && dtype[n] != DT_u8)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!accepts(op, i, dtype[i])) return false;
    return true;
}
