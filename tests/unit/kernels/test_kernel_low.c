/* Kernels on low-precision arguments must equal the fp32 kernels on the widened arguments, with
 * each output rounded once. This holds bit for bit, for every op that computes, in each format,
 * with and without accumulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/ir/op/op_private.h"
#include "tests/support/ops/choices.h"
#include "tests/support/ops/eval.h"
#include "tests/support/ops/fields.h"
#include "tests/support/test_arena.h"

enum {
    B = 2,
    S = 5,
    K = 9,
    N = 7,
    G = 2,
    R = 2,
    E = 4,
    C = 3,
    V = 11,
    X = 700,
    Q = S + CHOICES_SPARE
};

/* `types` has a letter for each argument: f is fp32 or the low type, F always fp32, d fp64, and i
 * ids below V. */
typedef struct Case {
    OpKind op;
    const char *types;
    int64_t dim[MAX_ARGS][MAX_DIMS];
    uint32_t accumulates; /* a bit for each output that may accumulate */
} Case;

static const Case cases[] = {
    {OP_linear, "fff", {{B, S, K}, {K, N}, {B, S, N}}, 1},
    /* this kernel stores the result in fp32 */
    {OP_linear, "ffF", {{B, S, K}, {K, N}, {B, S, N}}, 1},
    {OP_linear_d0, "fff", {{B, S, N}, {K, N}, {B, S, K}}, 1},
    {OP_linear_d1, "ffF", {{B, S, K}, {B, S, N}, {K, N}}, 1},
    {OP_linear_kv, "fff", {{B, S, K}, {K, G, E}, {B, S, G, E}}, 1},
    {OP_linear_tensorwise, "ffFFf", {{B, S, K}, {K, N}, {0}, {0}, {B, S, N}}, 1},
    {OP_linear_rowwise, "ffFFf", {{B, S, K}, {K, N}, {B, S}, {N}, {B, S, N}}, 1},
    {OP_linear_q_rowwise_d1,
     "ffFFF",
     {{B, S, K}, {B, S, G, R, E}, {K}, {G, R, E}, {K, G, R, E}},
     1},
    {OP_amax, "fF", {{B, S, K}, {0}}, 0},
    {OP_amax_of_tokens, "fF", {{B, S, K}, {B, S}}, 0},
    {OP_amax_over_tokens, "fF", {{B, S, G, E}, {G, E}}, 0},
    {OP_amax_of_first, "fF", {{K, G, E}, {K}}, 0},
    {OP_amax_over_first, "fF", {{K, G, E}, {G, E}}, 0},
    {OP_amax_of_last, "fF", {{G, E, N}, {N}}, 0},
    {OP_amax_over_last, "fF", {{G, E, N}, {G, E}}, 0},
    {OP_quantise, "FFf", {{B, S, K}, {0}, {B, S, K}}, 0},
    {OP_quantise_of_tokens, "fFf", {{B, S, K}, {B, S}, {B, S, K}}, 0},
    {OP_quantise_over_tokens, "fFf", {{B, S, G, E}, {G, E}, {B, S, G, E}}, 0},
    {OP_quantise_of_first, "fFf", {{K, G, E}, {K}, {K, G, E}}, 0},
    {OP_quantise_over_first, "fFf", {{K, G, E}, {G, E}, {K, G, E}}, 0},
    {OP_quantise_of_last, "fFf", {{G, E, N}, {N}, {G, E, N}}, 0},
    {OP_quantise_over_last, "fFf", {{G, E, N}, {G, E}, {G, E, N}}, 0},
    {OP_turn_tokens, "ff", {{B, S, G, E}, {G, E, B, S}}, 0},
    {OP_turn_first, "ff", {{K, G, E}, {G, E, K}}, 0},
    {OP_turn_last, "ff", {{G, E, N}, {N, G, E}}, 0},
    {OP_linear_tensorwise_along_d1, "ffFFf", {{K, B, S}, {N, B, S}, {0}, {0}, {K, N}}, 1},
    {OP_linear_o_rowwise_along,
     "ffFFf",
     {{B, S, G, R, E}, {N, G, R, E}, {B, S}, {N}, {B, S, N}},
     1},
    {OP_linear_blocks, "ffFFf", {{B, S, 2, R}, {2, R, N}, {B, S, 2}, {2, N}, {B, S, N}}, 1},
    {OP_linear_o_blocks_d1,
     "ffFFF",
     {{B, R, 2, G, R, E}, {B, R, 2, N}, {B, R, G, R, E}, {B, R, N}, {G, R, E, N}},
     1},
    {OP_quantise_blocks_last, "ffF", {{B, S, 4}, {B, S, 2, R}, {B, S, 2}}, 0},
    {OP_quantise_blocks_first, "ffF", {{4, G, E}, {2, R, G, E}, {2, G, E}}, 0},
    {OP_quantise_blocks_inner, "ffF", {{G, 4, N}, {G, 2, R, N}, {G, 2, N}}, 0},
    {OP_quantise_blocks_tokens, "ffF", {{B, 4, K}, {B, 2, R, K}, {B, 2, K}}, 0},
    {OP_amax_range, "fF", {{X}, {0}}, 0},
    {OP_quantise_range, "fFf", {{X}, {0}, {X}}, 1},
    {OP_project_of_first, "fFF", {{K, G, E}, {G, E}, {K}}, 0},
    {OP_project_over_first, "fFF", {{K, G, E}, {K}, {G, E}}, 0},
    {OP_project_of_last, "fFF", {{G, E, N}, {G, E}, {N}}, 0},
    {OP_project_over_last, "fFF", {{G, E, N}, {N}, {G, E}}, 0},
    {OP_project_of_second, "fFF", {{K, N, G, E}, {K, G, E}, {N}}, 0},
    {OP_project_over_second, "fFF", {{K, N, G, E}, {N}, {K, G, E}}, 0},
    {OP_inner_product, "FfF", {{G, E}, {G, E}, {0}}, 0},
    {OP_normalise, "FfFF", {{G, E}, {G, E}, {0}, {G, E}}, 0},
    {OP_divide, "fFf", {{B, S, K, N}, {0}, {B, S, K, N}}, 1},
    {OP_divide_dot, "ffFF", {{B, S, K}, {B, S, K}, {0}, {B, S}}, 0},
    {OP_outer_first, "FFFf", {{B, S}, {K}, {G, E}, {K, G, E}}, 1},
    {OP_outer_last, "FFFf", {{B, S}, {G, E}, {N}, {G, E, N}}, 1},
    {OP_outer_second, "FFFf", {{B, S}, {K, G, E}, {N}, {K, N, G, E}}, 1},
    {OP_embed, "iff", {{B, S}, {V, K}, {B, S, K}}, 0},
    {OP_embed_grad, "fif", {{B, S, K}, {B, S}, {V, K}}, 1},
    {OP_position, "fff", {{B, S, K}, {S, K}, {B, S, K}}, 0},
    {OP_position_grad, "fF", {{B, S, K}, {S, K}}, 1},
    {OP_bias, "fff", {{B, S, G, E}, {G, E}, {B, S, G, E}}, 0},
    {OP_bias_grad, "ff", {{B, S, G, E}, {G, E}}, 1},
    {OP_rmsnorm, "fffF", {{B, S, K}, {K}, {B, S, K}, {B, S}}, 0},
    {OP_rmsnorm_heads, "fffF", {{B, S, G, E}, {E}, {B, S, G, E}, {B, S, G}}, 0},
    {OP_rmsnorm_heads_grad,
     "fffFfF",
     {{B, S, G, E}, {B, S, G, E}, {E}, {B, S, G}, {B, S, G, E}, {E}},
     3},
    {OP_scale, "ff", {{B, S, K}, {B, S, K}}, 1},
    {OP_rmsnorm_grad, "fffFfF", {{B, S, K}, {B, S, K}, {K}, {B, S}, {B, S, K}, {K}}, 3},
    {OP_layernorm, "ffffFF", {{B, S, K}, {K}, {K}, {B, S, K}, {B, S}, {B, S}}, 0},
    {OP_layernorm_grad,
     "fffFFfff",
     {{B, S, K}, {B, S, K}, {K}, {B, S}, {B, S}, {B, S, K}, {K}, {K}},
     7},
    {OP_rope, "ff", {{B, S, G, E}, {B, S, G, E}}, 0},
    {OP_rope_grad, "ff", {{B, S, G, E}, {B, S, G, E}}, 1},
    {OP_attention,
     "ffffF",
     {{B, S, G, R, E}, {B, S, G, E}, {B, S, G, E}, {B, S, G, R, E}, {B, S, G, R}},
     0},
    {OP_attention_grad,
     "fffffFfff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, E},
      {B, S, G, R, E},
      {B, S, G, R},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, E}},
     7},
    {OP_attention_wide,
     "ffffF",
     {{B, S, G, R, E}, {B, S, G, E}, {B, S, G, C}, {B, S, G, R, C}, {B, S, G, R}},
     0},
    {OP_attention_wide_grad,
     "fffffFfff",
     {{B, S, G, R, C},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, C},
      {B, S, G, R, C},
      {B, S, G, R},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, C}},
     7},
    {OP_attention_sink,
     "fffffF",
     {{B, S, G, R, E}, {B, S, G, E}, {B, S, G, C}, {G, R}, {B, S, G, R, C}, {B, S, G, R}},
     0},
    {OP_sink_grad, "ffFff", {{B, S, G, R, C}, {B, S, G, R, C}, {B, S, G, R}, {G, R}, {G, R}}, 1},
    {OP_attention_table,
     "fffffF",
     {{B, S, G, R, E}, {B, S, G, E}, {B, S, G, C}, {N, G, R}, {B, S, G, R, C}, {B, S, G, R}},
     0},
    {OP_attention_table_grad,
     "ffffffFffff",
     {{B, S, G, R, C},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, C},
      {N, G, R},
      {B, S, G, R, C},
      {B, S, G, R},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, C},
      {N, G, R}},
     15},
    {OP_join_heads, "fff", {{B, S, C}, {B, S, G, E}, {B, S, G, C + E}}, 0},
    {OP_join_heads_shared, "ff", {{B, S, G, C + E}, {B, S, C}}, 1},
    {OP_join_heads_own, "ff", {{B, S, G, C + E}, {B, S, G, E}}, 1},
    {OP_join_tokens, "fff", {{B, S, K}, {B, 3, K}, {B, S + 3, K}}, 0},
    {OP_join_tokens_first, "ff", {{B, S + 3, K}, {B, S, K}}, 1},
    {OP_join_tokens_last, "ff", {{B, S + 3, K}, {B, 3, K}}, 1},
    {OP_lead_tokens, "fff", {{3, K}, {B, S, K}, {B, S + 3, K}}, 0},
    {OP_lead_tokens_grad, "ff", {{B, S + 3, K}, {3, K}}, 1},
    {OP_merge_tokens, "ff", {{B, 2 * S, K}, {B, S, 2 * K}}, 0},
    {OP_merge_tokens_grad, "ff", {{B, S, 2 * K}, {B, 2 * S, K}}, 1},
    {OP_relu2, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_relu2_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_clamp_gate, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 0},
    {OP_clamp_gate_grad, "ffff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_clamp_up_grad, "ffff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_expert_bias, "fff", {{E, B, C, K}, {E, K}, {E, B, C, K}}, 0},
    {OP_expert_bias_grad, "ff", {{E, B, C, K}, {E, K}}, 1},
    {OP_step_size, "fff", {{B, S, G, R}, {G, R}, {B, S, G, R}}, 0},
    {OP_step_size, "ffF", {{B, S, G, R}, {G, R}, {B, S, G, R}}, 0},
    {OP_step_size_grad, "FffFf", {{B, S, G, R}, {B, S, G, R}, {G, R}, {B, S, G, R}, {G, R}}, 3},
    {OP_conv_heads, "ffff", {{B, S, G, R, E}, {G, R, E, C}, {G, R, E}, {B, S, G, R, E}}, 0},
    {OP_conv_heads_grad,
     "fffffff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {G, R, E, C},
      {G, R, E},
      {B, S, G, R, E},
      {G, R, E, C},
      {G, R, E}},
     7},
    {OP_conv_groups, "ffff", {{B, S, G, E}, {G, E, C}, {G, E}, {B, S, G, E}}, 0},
    {OP_conv_groups_grad,
     "fffffff",
     {{B, S, G, E}, {B, S, G, E}, {G, E, C}, {G, E}, {B, S, G, E}, {G, E, C}, {G, E}},
     7},
    {OP_state_scan,
     "fFfffff",
     {{B, S, G, R, E}, {B, S, G, R}, {G, R}, {B, S, G, N}, {B, S, G, N}, {G, R}, {B, S, G, R, E}},
     0},
    {OP_state_scan_grad,
     "ffFffffffff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {B, S, G, R},
      {G, R},
      {B, S, G, N},
      {B, S, G, N},
      {G, R},
      {B, S, G, R, E},
      {B, S, G, R},
      {G, R},
      {G, R}},
     15},
    {OP_state_scan_shared,
     "ffFfffff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {B, S, G, R},
      {G, R},
      {B, S, G, N},
      {B, S, G, N},
      {B, S, G, N},
      {B, S, G, N}},
     3},
    {OP_gated_norm,
     "ffffF",
     {{B, S, G, R, E}, {B, S, G, R, E}, {G, R, E}, {B, S, G, R, E}, {B, S, G}},
     0},
    {OP_gated_norm_grad,
     "ffffFfff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {B, S, G, R, E},
      {G, R, E},
      {B, S, G},
      {B, S, G, R, E},
      {B, S, G, R, E},
      {G, R, E}},
     7},
    {OP_sinusoid, "ff", {{B, S, E}, {B, S, E}}, 0},
    {OP_soft_cap, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_soft_cap_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_attention_part,
     "ffffF",
     {{B, S, G, R, E}, {B, S, G, E}, {B, S, G, E}, {B, S, G, R, E}, {B, S, G, R}},
     3},
    {OP_attention_part_grad,
     "fffffFfff",
     {{B, S, G, R, E},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, E},
      {B, S, G, R, E},
      {B, S, G, R},
      {B, S, G, R, E},
      {B, S, G, E},
      {B, S, G, E}},
     7},
    {OP_add, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 0},
    {OP_mul, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_silu, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_silu_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_sigmoid, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_sigmoid_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_relu, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_relu_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_sum_features, "fF", {{B, S, K}, {B, S}}, 0},
    {OP_sum_features_grad, "Ff", {{B, S}, {B, S, K}}, 1},
    {OP_gelu, "ff", {{B, S, K, N}, {B, S, K, N}}, 0},
    {OP_gelu_grad, "fff", {{B, S, K, N}, {B, S, K, N}, {B, S, K, N}}, 1},
    {OP_dropout, "ff", {{B, S, K, N}, {B, S, K, N}}, 1},
    {OP_segment, "ff", {{B, S, 3, G, E}, {B, S, G, E}}, 0},
    {OP_segment_grad, "ff", {{B, S, G, E}, {B, S, 3, G, E}}, 1},
    {OP_part, "ff", {{B, S, N, 3}, {B, S, 2 * N}}, 0},
    {OP_part_grad, "ff", {{B, S, 2 * N}, {B, S, N, 3}}, 1},
    {OP_part_heads, "ff", {{B, S, G, 3, E}, {B, S, G, R, E}}, 0},
    {OP_part_heads_grad, "ff", {{B, S, G, R, E}, {B, S, G, 3, E}}, 1},
    {OP_part_head, "ff", {{B, S, G, 3, E}, {B, S, G, E}}, 0},
    {OP_part_head_grad, "ff", {{B, S, G, E}, {B, S, G, 3, E}}, 1},
    {OP_tokens, "ff", {{B, S, K, N}, {B, 3, K, N}}, 0},
    {OP_span, "ff", {{B, S, K, N}, {B, 3, K, N}}, 0},
    {OP_span_grad, "ff", {{B, 3, K, N}, {B, S, K, N}}, 1},
    {OP_tokens_grad, "ff", {{B, 3, K, N}, {B, S, K, N}}, 1},
    {OP_pass, "fF", {{B, S, K, N}, {B, S, K, N}}, 1},
    {OP_pass, "Ff", {{B, S, K, N}, {B, S, K, N}}, 1},
    {OP_xent_max, "fF", {{B, S, V}, {B, S}}, 0},
    {OP_xent_pick, "fiF", {{B, S, V}, {B, S}, {B, S}}, 0},
    {OP_xent_sumexp, "fFF", {{B, S, V}, {B, S}, {B, S}}, 0},
    {OP_xent_smooth, "fiF", {{B, S, V}, {B, S}, {B, S}}, 0},
    {OP_xent_loss, "fFFidd", {{B, S}, {B, S}, {B, S}, {B, S}, {0}, {0}}, 3},
    {OP_xent_loss_mean, "fFFidd", {{B, S}, {B, S}, {B, S}, {B, S}, {0}, {0}}, 3},
    {OP_xent_loss_grad, "fFiff", {{B, S}, {B, S}, {B, S}, {B, S}, {B, S}}, 0},
    {OP_xent_loss_mean_grad, "fFiff", {{B, S}, {B, S}, {B, S}, {B, S}, {B, S}}, 0},
    {OP_xent_sumexp_grad, "fFFf", {{B, S, V}, {B, S}, {B, S}, {B, S, V}}, 1},
    {OP_xent_pick_grad, "Fif", {{B, S}, {B, S}, {B, S, V}}, 1},
    {OP_xent_smooth_grad, "Fif", {{B, S}, {B, S}, {B, S, V}}, 1},
    {OP_linear_experts, "fff", {{E, B, C, K}, {E, K, N}, {E, B, C, N}}, 1},
    {OP_linear_experts_d1, "ffF", {{E, B, C, K}, {E, B, C, N}, {E, K, N}}, 1},
    {OP_topk, "fi", {{B, S, N}, {B, S, R}}, 0},
    {OP_slots, "ii", {{B, S, R}, {B, S, R}}, 0},
    {OP_route, "fif", {{B, S, N}, {B, S, R}, {B, S, R}}, 0},
    {OP_route_grad, "ffif", {{B, S, R}, {B, S, N}, {B, S, R}, {B, S, N}}, 1},
    {OP_route_sigmoid, "fif", {{B, S, N}, {B, S, R}, {B, S, R}}, 0},
    {OP_route_sigmoid_grad, "ffif", {{B, S, R}, {B, S, N}, {B, S, R}, {B, S, N}}, 1},
    {OP_dispatch, "fif", {{B, S, K}, {B, S, R}, {E, B, C, K}}, 0},
    {OP_dispatch_grad, "fif", {{E, B, C, K}, {B, S, R}, {B, S, K}}, 1},
    {OP_combine, "ifff", {{B, S, R}, {B, S, R}, {E, B, C, K}, {B, S, K}}, 0},
    {OP_combine_grad, "fiff", {{B, S, K}, {B, S, R}, {B, S, R}, {E, B, C, K}}, 1},
    {OP_combine_weights, "fiff", {{B, S, K}, {B, S, R}, {E, B, C, K}, {B, S, R}}, 1},
    {OP_counts, "ii", {{B, S, R}, {E, B}}, 0},
    {OP_dispatch_uneven, "fiif", {{B, S, K}, {B, S, R}, {E, B}, {E, B, Q, K}}, 0},
    {OP_dispatch_uneven_grad, "fiif", {{E, B, Q, K}, {B, S, R}, {E, B}, {B, S, K}}, 1},
    {OP_combine_uneven, "iffif", {{B, S, R}, {B, S, R}, {E, B, Q, K}, {E, B}, {B, S, K}}, 0},
    {OP_combine_uneven_grad, "fifif", {{B, S, K}, {B, S, R}, {B, S, R}, {E, B}, {E, B, Q, K}}, 1},
    {OP_combine_uneven_weights,
     "fifif",
     {{B, S, K}, {B, S, R}, {E, B, Q, K}, {E, B}, {B, S, R}},
     1},
    {OP_linear_uneven, "ffif", {{E, B, Q, K}, {E, K, N}, {E, B}, {E, B, Q, N}}, 0},
    {OP_linear_uneven_rows, "ffif", {{E, B, Q, N}, {E, K, N}, {E, B}, {E, B, Q, K}}, 1},
    {OP_linear_uneven_weight, "ffiF", {{E, B, Q, K}, {E, B, Q, N}, {E, B}, {E, K, N}}, 1},
    {OP_bias_uneven, "ffif", {{E, B, Q, K}, {E, K}, {E, B}, {E, B, Q, K}}, 0},
    {OP_bias_uneven_grad, "fif", {{E, B, Q, K}, {E, B}, {E, K}}, 1},
    {OP_balance, "fiF", {{B, S, N}, {B, S, R}, {B}}, 0},
    {OP_balance_grad, "Ffif", {{B}, {B, S, N}, {B, S, R}, {B, S, N}}, 1},
    {OP_topk_biased, "ffi", {{B, S, N}, {N}, {B, S, R}}, 0},
    {OP_loads, "if", {{B, S, R}, {N}}, 1},
    {OP_router_z, "fF", {{B, S, N}, {B}}, 0},
    {OP_router_z_grad, "Fff", {{B}, {B, S, N}, {B, S, N}}, 1},
    {OP_charge, "FFF", {{B, S}, {B}, {B, S}}, 0},
    {OP_charge_grad, "FF", {{B, S}, {B}}, 1},
    {OP_sign_step, "fff", {{X}, {X}, {X}}, 0},
    {OP_adamw, "fffFdfff", {{X}, {X}, {X}, {X}, {2}, {X}, {X}, {X}}, 0},
    {OP_adamw, "FFFfdFFF", {{X}, {X}, {X}, {X}, {2}, {X}, {X}, {X}}, 0},
    {OP_sgd, "ffdf", {{X}, {X}, {2}, {X}}, 0},
};

static DType type_of(char c, DType low)
{
    if (c == 'i') return DT_i32;
    if (c == 'd') return DT_f64;
    return c == 'f' ? low : DT_f32;
}

static uint32_t n_dims(const int64_t *dim)
{
    uint32_t n = 0;
    while (n < MAX_DIMS && dim[n]) n++;
    return n;
}

/* Fills v with positive numbers around 1, which are also valid as statistics and second moments. */
static void fill(Value *v, uint32_t arg)
{
    for (int64_t i = 0; i < value_elements(v); i++) {
        uint32_t draw = ((uint32_t)i * 2654435761u + arg * 40503u) >> 8 & 1023;
        if (v->dtype == DT_i32)
            value_set(v, i, draw % V);
        else
            number_write(v->dtype, v->at, (uint64_t)i, 0.25 + draw / 700.0);
    }
}

/* Runs the case on `value`, with scratch if the op needs any. */
static void run(const Case *c, const Attrs *attrs, Value *value, uint32_t n_in, uint32_t n)
{
    Control control = {.step = 3, .lr = 0.01};
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
    for (uint32_t i = 0; i < n; i++) {
        dtype[i] = value[i].dtype;
        elements[i] = value_elements(&value[i]);
    }
    int64_t bytes = (int64_t)kernel_cpu_workspace(c->op, dtype, elements, n);
    if (bytes > 0) value[n] = value_new(arena, DT_u8, 1, &bytes);
    eval_op_scratch(c->op, attrs, value, n_in, n - n_in, bytes > 0 ? &value[n] : NULL, &control);
}

static void field_sizes(OpKind op, int64_t size['z' + 1], Attrs *attrs)
{
    static const char letters[] = "bcnghwutskEFX";
    static const int64_t sizes[] = {2, 3, 2, 2, 4, 5, 2, 2, 5, 3, 4, 5, 2};
    for (size_t i = 0; letters[i]; i++) size[(int)letters[i]] = sizes[i];
    attrs->first = op == OP_channels || op == OP_channels_grad;
    attrs->count = size['X'];
    fields_set(op, 0, size, attrs);
}

static void check(const Case *c, DType low, uint32_t accumulate)
{
    uint32_t n = (uint32_t)strlen(c->types), n_in = op_info(c->op)->sig.n_in;
    Value narrow[MAX_ARGS], wide[MAX_ARGS];
    Attrs attrs = {.eps = 1e-5,
                   .first =
                       op_takes_tokens(c->op) || c->op == OP_tokens_grad || c->op == OP_span_grad,
                   .drop = 0.25,
                   .smoothing = 0.1,
                   .z_loss = 0.01,
                   .group = 1,
                   .scale = 0.5,
                   .theta = 1e4,
                   .causal = 1,
                   .cap = 3,
                   .window = 3,
                   .distance = 6,
                   .beta1 = .9,
                   .beta2 = .95,
                   .weight_decay = .1,
                   .lo = 100,
                   .hi = X - 150,
                   .accumulate = accumulate,
                   .top_k = R};
    const bool uneven = op_info(c->op)->flags & OP_COUNTED || op_counts_rows(c->op);
    attrs.capacity = uneven ? Q : C;
    bool scores = c->op == OP_topk || c->op == OP_route || c->op == OP_route_grad ||
                  c->op == OP_route_sigmoid || c->op == OP_route_sigmoid_grad ||
                  c->op == OP_balance || c->op == OP_balance_grad || c->op == OP_topk_biased ||
                  c->op == OP_loads;
    attrs.experts = scores ? N : E;
    int64_t size['z' + 1] = {0};
    if (fields_has(c->op)) field_sizes(c->op, size, &attrs);
    if (op_info(c->op)->flags & OP_BLOCKS) attrs.group = R;
    if (c->op == OP_merge_tokens || c->op == OP_merge_tokens_grad) attrs.count = 2;
    assert_int_equal(n, n_in + op_info(c->op)->sig.n_out);
    for (uint32_t i = 0; i < n; i++) {
        DType t = type_of(c->types[i], low);
        narrow[i] = value_new(arena, t, n_dims(c->dim[i]), c->dim[i]);
        wide[i] = value_new(arena, t == low ? DT_f32 : t, n_dims(c->dim[i]), c->dim[i]);
        bool fresh = i >= n_in && !(accumulate >> (i - n_in) & 1);
        if (fresh) value_poison(&narrow[i]), value_poison(&wide[i]);
        if (fresh) continue;
        if (!choices_fill(c->op, i, &attrs, &narrow[i])) fill(&narrow[i], i);
        int64_t elements = value_elements(&narrow[i]);
        if (t == low)
            number_widen(low, narrow[i].at, wide[i].at, elements);
        else
            memcpy(wide[i].at, narrow[i].at, (size_t)elements * dtype_bytes(t));
    }
    run(c, &attrs, narrow, n_in, n);
    run(c, &attrs, wide, n_in, n);
    for (uint32_t i = n_in; i < n; i++) {
        uint64_t elements = (uint64_t)value_elements(&wide[i]);
        void *expected = wide[i].at;
        if (narrow[i].dtype == low) {
            expected = arena_alloc(arena, elements * dtype_bytes(low));
            number_round(low, wide[i].at, expected, (int64_t)elements);
        }
        if (memcmp(expected, narrow[i].at, elements * dtype_bytes(narrow[i].dtype)) != 0)
            fail_msg("%s %s, %s, accumulate %u: output %u", op_info(c->op)->name, c->types,
                     dtype_name(low), accumulate, i - n_in);
        for (uint64_t k = 0; k < elements && narrow[i].dtype != DT_i32; k++)
            assert_true(fabs(number_read(narrow[i].dtype, narrow[i].at, k)) < HUGE_VAL);
    }
    arena_reset(arena);
}

static void every_listed_op_equals_fp32_rounded_once(void **state)
{
    (void)state;
    static const DType low[] = {DT_bf16, DT_f16, DT_e4m3, DT_e5m2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 4; t++) {
            check(&cases[i], low[t], 0);
            if (cases[i].accumulates) check(&cases[i], low[t], cases[i].accumulates);
        }
}

static bool is_of_fields(OpKind op)
{
    const OpInfo *info = op_info(op);
    return fields_has(op) && info->sig.n_in > 0 && info->class_ == OP_CLASS_compute;
}

/* The sizes of ops of fields must fit their attributes, so the test chooses them. */
static void every_op_of_fields_equals_fp32_rounded_once(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        char types[MAX_ARGS + 1] = "ffffffffffff";
        Case c = {.op = op, .types = types};
        int64_t size['z' + 1] = {0};
        Attrs ignored = {0};
        if (!is_of_fields(op)) continue;
        n++;
        field_sizes(op, size, &ignored);
        types[info->sig.n_in + info->sig.n_out] = 0;
        if (op == OP_mse_loss) types[2] = types[3] = 'd';
        for (uint32_t i = 0; types[i]; i++)
            (void)fields_dims(sig_term(&info->sig, i), size, c.dim[i]);
        for (int k = 0; k < 2; k++) {
            check(&c, k ? DT_bf16 : DT_f16, 0);
            if (info->flags & OP_ACCUMULATES) check(&c, k ? DT_bf16 : DT_f16, 1);
        }
    }
    assert_true(n > 30);
}

/* An op that computes and is missing in the list above has another test here, or no floating
 * point. */
static void every_op_that_computes_has_a_low_precision_test(void **state)
{
    (void)state;
    static const OpKind others[] = {OP_batch, OP_field, OP_offsets,   OP_image,    OP_cast,
                                    OP_fill,  OP_sumsq, OP_step_mean, OP_clip_coef};
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        OpClass class_ = op_info(op)->class_;
        bool found = class_ != OP_CLASS_compute || is_of_fields(op);
        found |= op_has_pairs(op); /* test_pairs.c tests these */
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) found |= cases[i].op == op;
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) found |= others[i] == op;
        if (!found) fail_msg("%s", op_info(op)->name);
    }
}

/* The kernel must add squares in doubles, and only the squares of elements lo to hi - 1. */
static void sums_of_squares_are_added_in_doubles(void **state)
{
    (void)state;
    Value x = value_new(arena, DT_bf16, 1, (int64_t[]){X});
    Value table = value_new(arena, DT_f64, 1, (int64_t[]){2});
    fill(&x, 1);
    value_set(&table, 0, 0);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        Attrs attrs = {.lo = 10, .hi = X - 20, .accumulate = accumulate};
        Control control = {.step = 0};
        double expected = accumulate ? value_get(&table, 1) : 0;
        for (uint64_t i = 10; i < X - 20; i++) expected += pow(number_read(DT_bf16, x.at, i), 2);
        Value sum = {.dtype = DT_f64, .n_dims = 1, .dim = {1}, .at = (double *)table.at + 1};
        Value args[] = {x, sum};
        eval_op(OP_sumsq, &attrs, args, 1, 1, NULL, &control, 0);
        assert_true(fabs(value_get(&table, 1) - expected) < 1e-12 * expected);
        assert_true(value_get(&table, 0) == 0);
    }
}

static void casts_and_fills_round_once(void **state)
{
    (void)state;
    Value x = value_new(arena, DT_f64, 1, (int64_t[]){X}), y = value_new(arena, DT_e4m3, 1, x.dim);
    fill(&x, 2);
    Value args[] = {x, y};
    Attrs attrs = {.scale = 0.3};
    eval_op(OP_cast, &attrs, args, 1, 1, NULL, NULL, 0);
    for (uint64_t i = 0; i < X; i++) {
        uint8_t code;
        number_write(DT_e4m3, &code, 0, number_read(DT_f64, x.at, i));
        assert_int_equal(((uint8_t *)y.at)[i], code);
    }
    Value z = value_new(arena, DT_bf16, 1, x.dim);
    eval_op(OP_fill, &attrs, &z, 0, 1, NULL, NULL, 0);
    for (int i = 0; i < X; i++) assert_int_equal(((uint16_t *)z.at)[i], 0x3e9a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_listed_op_equals_fp32_rounded_once, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(every_op_of_fields_equals_fp32_rounded_once,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(every_op_that_computes_has_a_low_precision_test,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(sums_of_squares_are_added_in_doubles, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(casts_and_fills_round_once, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("kernels in low precision", tests, NULL, NULL);
}
