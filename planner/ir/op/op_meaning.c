/* Tells what kind an op is, from the columns of its row in ops.def: signature, reduction, flags and
 * backward. */
#include "planner/ir/op/op_private.h"

static bool is_scalar(const SigTerm *term)
{
    return term->n_dims == 0 && term->ellipsis < 0;
}

static bool is_plain(OpKind op, uint32_t n_in)
{
    const OpInfo *info = op_info(op);
    return info->class_ == OP_CLASS_compute && info->sig.n_in == n_in && info->sig.n_out > 0;
}

bool op_attends(OpKind op)
{
    return op_mixes_tokens(op) && !op_is_gradient(op);
}

bool op_is_by_scalar(OpKind op)
{
    return is_plain(op, 2) && is_scalar(&op_info(op)->sig.in[1]);
}

bool op_adds_bias(OpKind op)
{
    return is_plain(op, 2) && op_info(op)->flags & OP_AFFINE && !op_is_by_scalar(op);
}

bool op_sums_bias(OpKind op)
{
    const OpInfo *info = op_info(op);
    return is_plain(op, 1) && info->reduce == REDUCE_sum && info->sig.out[0].ellipsis == 0 &&
           op_dim(op, 0, INDEX_tokens) >= 0 && op_dim(op, 1, INDEX_tokens) < 0;
}

bool op_scales_whole(OpKind op)
{
    const OpInfo *info = op_info(op);
    if (info->flags & OP_RANGE) return false;
    if (info->flags & OP_MAGNITUDE) return is_scalar(&info->sig.out[0]);
    return info->flags & OP_QUANTISES && op_is_by_scalar(op);
}

bool op_reads_logits(OpKind op)
{
    return op_info(op)->flags & OP_OF_LOSS && op_dim(op, 0, INDEX_vocab) >= 0;
}

bool op_starts_loss(OpKind op)
{
    return op_reads_logits(op) && op_info(op)->reduce == REDUCE_max;
}

bool op_makes_images(OpKind op)
{
    return op == OP_image;
}

bool op_makes_loss(OpKind op)
{
    const OpInfo *info = op_info(op);
    return info->flags & OP_OF_LOSS && info->sig.n_out == 2 && is_scalar(&info->sig.out[0]) &&
           is_scalar(&info->sig.out[1]);
}

bool op_means_groups(OpKind op)
{
    return op_makes_loss(op) && op_reads_whole_labels(op, op_info(op)->sig.n_in - 1u);
}

/* True if an input contains tokens that were sent to experts. */
static bool reads_rooms(OpKind op)
{
    for (uint32_t i = 0; i < op_info(op)->sig.n_in; i++)
        if (op_dim(op, i, INDEX_rooms) >= 0) return true;
    return false;
}

static bool makes(OpKind op, IndexRole role)
{
    return op_dim(op, op_info(op)->sig.n_in, role) >= 0;
}

static bool sends_tokens(OpKind op)
{
    return !op_is_gradient(op) && !reads_rooms(op) && op_dim(op, 0, INDEX_tokens) >= 0 &&
           makes(op, INDEX_rooms);
}

static bool collects_tokens(OpKind op)
{
    return !op_is_gradient(op) && reads_rooms(op) && makes(op, INDEX_tokens);
}

/* Answers that passes need for every node. They are computed once for each op and kept as bits. Two
 * threads may compute them at the same time, which does no harm, because both get the same
 * result. */
enum { KNOWN = 1, SENDS = 2, COLLECTS = 4 };
static uint8_t answers_about(OpKind op)
{
    static uint8_t answers[OP_COUNT];
    uint8_t known = __atomic_load_n(&answers[op], __ATOMIC_RELAXED);
    if (known != 0) return known;
    known =
        (uint8_t)(KNOWN | (sends_tokens(op) ? SENDS : 0) | (collects_tokens(op) ? COLLECTS : 0));
    __atomic_store_n(&answers[op], known, __ATOMIC_RELAXED);
    return known;
}

bool op_sends_tokens(OpKind op)
{
    return answers_about(op) & SENDS;
}

bool op_collects_tokens(OpKind op)
{
    return answers_about(op) & COLLECTS;
}

bool op_counts_choices(OpKind op)
{
    const OpInfo *info = op_info(op);
    return info->reduce == REDUCE_sum && info->sig.n_in == 1 && info->flags & OP_ACCUMULATES &&
           op_index_args(op) == 1;
}

bool op_is_plain_attention(OpKind op)
{
    return op_mixes_tokens(op) && op_whole_letter(op, INDEX_value) == 0;
}

bool op_takes_tokens(OpKind op)
{
    return op_info(op)->flags & OP_TAKES_TOKENS && !op_is_gradient(op);
}

bool op_takes_piece(OpKind op)
{
    return op_info(op)->flags & OP_OF_TILE && !op_is_gradient(op);
}

bool op_returns_piece(OpKind op)
{
    return op_info(op)->flags & OP_OF_TILE && !!op_is_gradient(op);
}

int op_taken_dim(OpKind op)
{
    const Signature *sig = &op_info(op)->sig;
    if (!(op_info(op)->flags & OP_TAKES)) return -1;
    const SigTerm *whole = !op_is_gradient(op) ? &sig->in[0] : &sig->out[0],
                  *part = !op_is_gradient(op) ? &sig->out[0] : &sig->in[0];
    for (int d = 0; d < whole->n_dims; d++)
        if (!sig_term_uses(part, whole->dim[d].letter)) return d;
    return -1;
}

bool op_joins_heads(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_contract && op_dim(op, 1, INDEX_groups) >= 0 &&
           op_dim(op, 1, INDEX_heads) >= 0 && !makes(op, INDEX_groups);
}

bool op_counts_rows(OpKind op)
{
    return op_index_args(op) == 3 && op_info(op)->sig.n_in == 1 &&
           op_dim(op, 1, INDEX_experts) >= 0;
}

int op_counts_arg(OpKind op)
{
    return op_info(op)->flags & OP_COUNTED ? op_info(op)->sig.n_in - 1 : -1;
}

bool op_is_product(OpKind op)
{
    const OpInfo *info = op_info(op);
    if (info->class_ == OP_CLASS_contract) return true;
    /* pooling and biases of uneven rows have these flags, too, but cost 1 FLOP a point */
    return info->flags & (OP_WINDOWED | OP_COUNTED) && info->flops_per_point == 2;
}

uint32_t op_index_args(OpKind op)
{
    enum { IN0 = 1, IN1 = 2, IN2 = 4, IN3 = 8, OUT_OF_1 = 2 };
    static const uint8_t ids[OP_COUNT] = {
        [OP_batch] = 3, /* bits 0 and 1: both outputs are ids */
        [OP_embed] = IN0,
        [OP_embed_grad] = IN1,
        [OP_xent_pick] = IN1,
        [OP_xent_pick_grad] = IN1,
        [OP_xent_smooth] = IN1,
        [OP_xent_smooth_grad] = IN1,
        [OP_xent_loss] = IN3,
        [OP_xent_loss_mean] = IN3,
        [OP_xent_loss_grad] = IN2,
        [OP_xent_loss_mean_grad] = IN2,
        [OP_topk] = OUT_OF_1,
        [OP_topk_biased] = 4, /* bit 2: the output, which comes after two inputs */
        [OP_loads] = IN0,
        [OP_slots] = IN0 | OUT_OF_1,
        [OP_route] = IN1,
        [OP_route_grad] = IN2,
        [OP_route_sigmoid] = IN1,
        [OP_route_sigmoid_grad] = IN2,
        [OP_dispatch] = IN1,
        [OP_dispatch_grad] = IN1,
        [OP_combine] = IN0,
        [OP_combine_grad] = IN1,
        [OP_combine_weights] = IN1,
        [OP_counts] = IN0 | OUT_OF_1,
        [OP_dispatch_uneven] = IN1 | IN2,
        [OP_dispatch_uneven_grad] = IN1 | IN2,
        [OP_combine_uneven] = IN0 | IN3,
        [OP_combine_uneven_grad] = IN1 | IN3,
        [OP_combine_uneven_weights] = IN1 | IN3,
        [OP_linear_uneven] = IN2,
        [OP_linear_uneven_rows] = IN2,
        [OP_linear_uneven_weight] = IN2,
        [OP_bias_uneven] = IN2,
        [OP_bias_uneven_grad] = IN1,
        [OP_balance] = IN1,
        [OP_balance_grad] = IN2,
    };
    return ids[op];
}
