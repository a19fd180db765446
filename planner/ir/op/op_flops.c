/* Computes an op's FLOPs from its row in ops.def and the sizes of its indices. */
#include <math.h>

#include "planner/ir/op/op_private.h"

/* The kernels of Mamba-2 (github.com/state-spaces/mamba, mamba_ssm/ops/triton) do not run the
 * recurrence token by token. They work in chunks of L tokens, which adds matrix products with L x L
 * scores in each chunk. Returns the FLOPs with these products divided by the FLOPs of the
 * recurrence, which ops.def states.
 *
 * `weighed`: products of scores with the features of a head; half of the scores are zero (causal).
 * `scored`: products of B and C that give the scores; all heads of a group share them. */
static double in_chunks(OpKind op, const Binding *b, const Attrs *attrs)
{
    const double weighed = op == OP_state_scan_grad ? 2 : 1,
                 scored = op == OP_state_scan_shared ? 4 : 2;
    const double heads = (double)b->size[(int)op_letter(op, INDEX_heads)],
                 E = (double)b->size[(int)op_whole_letter(op, INDEX_head)],
                 Q = (double)b->size[(int)op_whole_letter(op, INDEX_state)],
                 tokens = (double)b->size[(int)op_whole_letter(op, INDEX_tokens)];
    const double L = fmin((double)attrs->chunk, tokens);
    return 1 + L * (weighed / Q + scored / (heads * E)) / op_info(op)->flops_per_point;
}

double op_seen(OpKind op, const Binding *b, const Attrs *attrs)
{
    if (op_keeps_state(op)) return in_chunks(op, b, attrs);
    if (!attrs->causal || !op_mixes_tokens(op)) return 1;
    const int64_t keys = b->size[(int)op_whole_letter(op, INDEX_tokens)];
    if (attrs->window == 0 || 2 * attrs->window >= keys) return 0.5;
    /* the first `window` queries have fewer keys before them than the window allows */
    const double window = (double)attrs->window, all = (double)keys;
    return window * (1 - (window - 1) / (2 * all)) / all;
}

/* Attention with V features in a value and E in a key: the points of the signature count V * E, but
 * each matrix product has only V or E. Returns the factor that corrects this. Forward, one product
 * has E and one V; of the five products of the gradient, three have E and two V. */
static double share_of_products(OpKind op, const int64_t size['z' + 1])
{
    const char value = op_whole_letter(op, INDEX_value);
    if (!value || !op_mixes_tokens(op)) return 1;
    const double products = op_info(op)->flops_per_point / 2, with_values = floor(products / 2);
    const double V = (double)size[(int)value],
                 E = (double)size[(int)op_whole_letter(op, INDEX_head)];
    return ((products - with_values) / V + with_values / E) / products;
}

/* True for ops whose index S lists all tokens, but each token s uses only row s of it. */
static bool takes_own_row(OpKind op)
{
    return op == OP_position || op == OP_position_grad || op == OP_balance || op == OP_balance_grad;
}

double op_flops(OpKind op, const Binding *b, const int64_t size['z' + 1], double seen)
{
    double points = 1;
    for (uint32_t i = 0; i < b->n_letters; i++) points *= (double)size[(int)b->letters[i]];
    for (uint32_t arg = 0; arg < (uint32_t)b->n_in + b->n_out; arg++) {
        char chosen = op_looked_up(op, b, arg);
        if (chosen) points /= (double)size[(int)chosen];
    }
    if (op == OP_attention_table || op == OP_attention_table_grad) points /= (double)size['N'];
    if (takes_own_row(op)) points /= (double)size['S'];
    return op_info(op)->flops_per_point * points * share_of_products(op, size) * seen;
}
