/* Compares the gradient of every op with finite differences in fp64. The gradient is wired exactly
 * as in the op table (through a graph of one node), so the wiring is tested together with the
 * kernels. Differences are central, of fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) /
 * 12h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/base/rng.h"
#include "tests/support/ops/choices.h"
#include "tests/support/ops/eval.h"
#include "tests/support/ops/fields.h"

enum { SEED = 77, SAMPLE = 60 };
#define TOLERANCE 1e-8
#define STEP      5e-4

typedef struct Case {
    OpKind op;
    Arena *arena;
    Graph graph;
    Eval eval;
    Value weight[MAX_OUT]; /* the scalar is the sum of weight * output over all outputs */
    bool large;
    int64_t size['z' + 1];
} Case;

static bool is_loss(OpKind op)
{
    return op == OP_xent_loss || op == OP_xent_loss_mean || op == OP_mse_loss;
}

static bool is_ids(OpKind op, uint32_t arg)
{
    return op_index_args(op) >> arg & 1;
}

/* Returns true for inputs that count as constants. A maximum gets no gradient, because it cancels
 * out. A spectral norm passes its gradient directly to its weight. A target is given data.
 * Distances from a mean sum to zero, whatever the mean is. */
static bool is_constant(OpKind op, uint32_t arg)
{
    if (op == OP_mse_loss) return arg == 1;
    return (op == OP_xent_sumexp && arg == 1) || (is_loss(op) && arg == 0) ||
           (op == OP_divide && arg == 1) || (op == OP_group_spread && arg == 1);
}

static int64_t size_of(char letter, bool large)
{
    static const struct {
        char letter;
        int64_t small, large;
    } sizes[] = {{'b', 2, 2}, {'s', 3, 37}, {'k', 5, 9},  {'n', 4, 8},   {'g', 2, 2}, {'r', 3, 2},
                 {'e', 2, 3}, {'v', 7, 7},  {'T', 5, 71}, {'D', 12, 20}, {'E', 4, 6}, {'y', 3, 3},
                 {'z', 5, 5}, {'F', 3, 3},  {'f', 3, 2},  {'c', 3, 5},   {'S', 4, 9}, {'K', 2, 3},
                 {'C', 5, 9}, {'m', 5, 9},  {'N', 5, 7},  {'h', 4, 7},   {'w', 3, 6}, {'u', 2, 3},
                 {'t', 2, 1}, {'X', 2, 2},  {'d', 2, 3},  {'V', 3, 5},   {'U', 3, 4}, {'p', 3, 2},
                 {'q', 3, 2}, {'Q', 5, 7},  {'R', 3, 2},  {'O', 6, 11},  {'I', 2, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].letter == letter) return large ? sizes[i].large : sizes[i].small;
    fail_msg("no size for index %c", letter);
    return 0;
}

static uint32_t term_dims(const Case *c, const SigTerm *term, int64_t dim[MAX_DIMS])
{
    uint32_t n = 0;
    for (int d = 0; d <= term->n_dims; d++) {
        if (term->ellipsis == d) {
            dim[n++] = size_of('y', c->large);
            dim[n++] = size_of('z', c->large);
        }
        if (d == term->n_dims) continue;
        int letter = term->dim[d].letter, inner = term->dim[d].inner;
        if (term->dim[d].reads) letter += 'A' - 'a';
        /* Here a rank has all tokens. */
        if (letter == 's' && (c->op == OP_position || c->op == OP_balance)) letter = 'S';
        dim[n] = c->size[letter] ? c->size[letter] : size_of((char)letter, c->large);
        if (inner) dim[n] *= c->size[inner] ? c->size[inner] : size_of((char)inner, c->large);
        n++;
    }
    return n;
}

static void fill_input(Case *c, uint32_t arg, Value *v)
{
    const Node *node = &c->graph.nodes.at[1];
    if (choices_fill(c->op, arg, graph_attrs_at(&c->graph, node->attrs), v)) return;
    for (int64_t i = 0; i < value_elements(v); i++) {
        double x = rng_normal(SEED, arg, (uint64_t)i);
        if (is_ids(c->op, arg)) {
            x = (double)rng_below(SEED, arg, (uint64_t)i, (uint64_t)size_of('v', c->large));
            if (c->op != OP_embed && i % 3 == 1) x = -1;
        } else if ((is_loss(c->op) && arg == 1) || (c->op == OP_group_norm && arg == 2) ||
                   (c->op == OP_state_scan && arg == 1)) {
            x = 0.5 + fabs(x); /* a sum of exponentials is positive, and so is a step size */
        }
        value_set(v, i, x);
    }
}

/* Makes a graph of one node, with filled inputs and random weights for its outputs. */
static void make_case(Case *c, OpKind op, bool large, bool causal)
{
    const Signature *sig = &op_info(op)->sig;
    *c = (Case){.op = op, .arena = arena_new(), .large = large};
    graph_init(&c->graph, c->arena);
    Attrs attrs = {.scale = 0.6,
                   .eps = 1e-3,
                   .theta = 50,
                   .causal = causal,
                   .smoothing = 0.1,
                   .z_loss = 0.03,
                   .drop = causal || op == OP_dropout ? 0.3 : 0,
                   .site = 1,
                   .group = 2,
                   .cap = causal ? 2 : 0,
                   .window = causal ? 3 : 0,
                   .distance = 6};
    attrs.top_k = size_of('K', large);
    attrs.experts =
        size_of(op == OP_route || op == OP_route_sigmoid || op == OP_balance ? 'N' : 'e', large);
    const bool uneven = op_info(op)->flags & OP_COUNTED;
    attrs.capacity = size_of(uneven ? 'O' : 'm', large);
    attrs.normalise = causal;
    if (op_info(op)->flags & OP_TAKES) attrs.first = 1, attrs.count = op == OP_part_head ? 1 : 2;
    if (op == OP_merge_tokens) attrs.count = size_of('I', large);
    /* This is a decoder with an image of 3 x 4 patches after 5 tokens, or an encoder of 1 x 3
     * patches. */
    if (op == OP_rope && causal && large)
        attrs.rows = 3, attrs.columns = 4, attrs.first = 5, attrs.lo = 1, attrs.hi = 2;
    if (op == OP_rope && causal && !large)
        attrs.rows = 1, attrs.columns = 3, attrs.hi = 1, attrs.count = 1;
    if (fields_has(op)) {
        static const char given[] = "bcnghwut";
        for (const char *l = given; *l; l++) c->size[(int)*l] = size_of(*l, large);
        fields_set(op, causal, c->size, &attrs);
    }
    TensorId in[MAX_IN];
    for (uint32_t i = 0; i < sig->n_in; i++) {
        int64_t dim[MAX_DIMS];
        uint32_t n = term_dims(c, &sig->in[i], dim);
        in[i] = graph_tensor(&c->graph, c->arena, arena_print(c->arena, "in%u", i), ROLE_input,
                             is_ids(op, i) ? DT_i32 : DT_f64, n, dim, (Loc){0});
    }
    Diag diag = diag_in(c->arena);
    TensorId out =
        graph_op(&c->graph, c->arena, op, in, sig->n_in, DT_f64, &attrs, 0, (Loc){0}, &diag);
    assert_int_not_equal(out, 0);
    if (is_loss(op)) c->graph.loss = out;
    c->eval = eval_new(c->arena, &c->graph, DT_f64, NULL);
    for (uint32_t i = 0; i < sig->n_in; i++) fill_input(c, i, &c->eval.value[in[i]]);
    const Node *node = &c->graph.nodes.at[1];
    for (uint32_t j = 0; j < node->n_out; j++) {
        const Value *v = &c->eval.value[node->out[j]];
        c->weight[j] = value_new(c->arena, DT_f64, v->n_dims, v->dim);
        for (int64_t i = 0; i < value_elements(v); i++)
            value_set(&c->weight[j], i, rng_normal(SEED, 50 + j, (uint64_t)i));
        if (!choices_are_rows(op, sig->n_in + j)) continue;
        /* Rows that no choice uses get the weight 0. */
        const Value *counts = &c->eval.value[in[op_counts_arg(op)]];
        const Value rooms = choices_rooms(c->arena, &c->weight[j], counts);
        c->weight[j] = choices_rows(c->arena, &rooms, counts);
    }
}

/* Returns true if any backward row reads the gradient of output j. Other outputs are statistics and
 * count as constants. */
static bool output_counts(OpKind op, uint32_t j)
{
    const OpInfo *info = op_info(op);
    for (uint32_t k = 0; k < info->n_backward; k++)
        for (uint32_t i = 0; i < info->backward[k].n_in; i++) {
            Wire w = info->backward[k].in[i];
            if (w.kind == WIRE_d && w.index == j) return true;
        }
    return false;
}

/* Returns f, whose derivative is tested: the weighted sum of the outputs, or the loss itself. */
static double scalar(Case *c)
{
    eval_forward(&c->eval);
    const Node *node = &c->graph.nodes.at[1];
    if (is_loss(c->op)) return value_get(&c->eval.value[node->out[0]], 0);
    double f = 0;
    for (uint32_t j = 0; j < node->n_out; j++)
        for (int64_t i = 0; output_counts(c->op, j) && i < value_elements(&c->weight[j]); i++)
            f += value_get(&c->weight[j], i) * value_get(&c->eval.value[node->out[j]], i);
    return f;
}

static double difference(Case *c, Value *x, int64_t i)
{
    static const double shift[] = {1, -1, 2, -2}, factor[] = {8, -8, -1, 1};
    double at = value_get(x, i), sum = 0;
    for (int k = 0; k < 4; k++) {
        value_set(x, i, at + shift[k] * STEP);
        sum += factor[k] * scalar(c);
    }
    value_set(x, i, at);
    return sum / (12 * STEP);
}

/* Computes the gradients of all inputs with the backward ops of the table. With `accumulate`, the
 * gradients start from random values, which are subtracted at the end. */
static void analytic(Case *c, bool accumulate, Value *gradient)
{
    const Node *node = &c->graph.nodes.at[1];
    eval_clear(&c->eval, true);
    (void)scalar(c);
    for (uint32_t j = 0; j < node->n_out; j++)
        if (output_counts(c->op, j)) *eval_seed(&c->eval, node->out[j]) = c->weight[j];
    for (uint32_t i = 0; accumulate && i < node->n_in; i++) {
        if (is_ids(c->op, i) || is_constant(c->op, i)) continue;
        Value *g = eval_seed(&c->eval, node->in[i]);
        for (int64_t k = 0; k < value_elements(g); k++)
            value_set(g, k, rng_normal(SEED, 90 + i, (uint64_t)k));
    }
    eval_backward(&c->eval);
    for (uint32_t i = 0; i < node->n_in; i++) {
        gradient[i] = c->eval.grad[node->in[i]];
        for (int64_t k = 0; accumulate && gradient[i].at && k < value_elements(&gradient[i]); k++)
            value_set(&gradient[i], k,
                      value_get(&gradient[i], k) - rng_normal(SEED, 90 + i, (uint64_t)k));
    }
}

/* Returns the worst error over a sample of an input's elements, relative to the input's largest
 * gradient. */
static double worst_of(Case *c, Value *x, const Value *gradient)
{
    int64_t n = value_elements(x), step = n > SAMPLE ? n / SAMPLE | 1 : 1;
    double worst = 0, top = 1e-3;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(value_get(gradient, i)));
    for (int64_t i = 0; i < n; i += step) {
        double d = fabs(difference(c, x, i) - value_get(gradient, i));
        if (!(d <= worst)) worst = d;
    }
    return worst / top;
}

static double check_op(OpKind op, bool large, bool causal, bool accumulate)
{
    Case c;
    make_case(&c, op, large, causal);
    Value gradient[MAX_IN];
    analytic(&c, accumulate, gradient);
    double worst = 0;
    const Node *node = &c.graph.nodes.at[1];
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (is_ids(op, i) || is_constant(op, i)) {
            assert_null(gradient[i].at);
            continue;
        }
        assert_non_null(gradient[i].at); /* every other input has a gradient */
        double d = worst_of(&c, &c.eval.value[node->in[i]], &gradient[i]);
        if (!(d <= TOLERANCE))
            print_error("%s: gradient of input %u is off by %g (large %d causal %d acc %d)\n",
                        op_info(op)->name, i, d, large, causal, accumulate);
        assert_true(d <= TOLERANCE);
        worst = fmax(worst, d);
    }
    arena_free(c.arena);
    return worst;
}

static void every_gradient_equals_finite_differences(void **state)
{
    (void)state;
    double worst = 0;
    uint32_t n = 0;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        /* The gradient of such a bias is a number of choices, not a derivative (test_moe). */
        if (op_info(op)->n_backward == 0 || op == OP_topk_biased) continue;
        n++;
        for (int k = 0; k < 8; k++) {
            bool causal = (k & 4) != 0;
            if (causal && !op_attends(op) && op != OP_route && op != OP_route_sigmoid &&
                op != OP_rope && !fields_has(op))
                continue;
            worst = fmax(worst, check_op(op, (k & 1) != 0, causal, (k & 2) != 0));
        }
    }
    print_message("%u ops, worst relative difference %g\n", n, worst);
    assert_true(n >= 25);
}

/* No gradient may flow through these ops. */
static const OpKind without_gradient[] = {
    OP_batch, OP_sigmoid_grad, OP_relu_grad, OP_field, OP_conv2d_weight, OP_conv2d_groups_weight,
    OP_conv2d_inner, OP_conv2d_border, OP_conv2d_weight_inner, OP_conv2d_weight_border,
    OP_conv2d_groups_inner, OP_conv2d_groups_border, OP_conv2d_groups_weight_inner,
    OP_conv2d_groups_weight_border, OP_channel_bias_grad, OP_channel_norm_grad, OP_group_sum_grad,
    OP_group_spread_grad, OP_group_norm_grad, OP_group_norm_weight, OP_avg_pool2d_grad,
    OP_max_pool2d_grad, OP_turn_poles_grad, OP_resize_grad, OP_pixel_unshuffle, OP_concat_first,
    OP_concat_last, OP_mse_loss_grad, OP_offsets, OP_image, OP_join_tokens_first,
    OP_join_tokens_last, OP_lead_tokens_grad, OP_merge_tokens_grad, OP_sum_features_grad,
    OP_window_bias_grad, OP_window_attention_grad, OP_strided_attention_grad, OP_channels_grad,
    OP_embed_grad, OP_position_grad, OP_bias_grad, OP_relu2_grad, OP_expert_bias_grad,
    OP_clamp_gate_grad, OP_clamp_up_grad, OP_soft_cap_grad, OP_attention_wide_grad,
    OP_attention_table_grad, OP_step_size_grad, OP_conv_heads_grad, OP_conv_groups_grad,
    OP_state_scan_grad, OP_state_scan_shared, OP_gated_norm_grad, OP_sink_grad,
    OP_join_heads_shared, OP_join_heads_own, OP_rmsnorm_grad, OP_rmsnorm_heads_grad,
    OP_layernorm_grad, OP_rope_grad, OP_attention_grad, OP_attention_part, OP_attention_part_grad,
    OP_silu_grad, OP_gelu_grad, OP_pass, OP_segment_grad, OP_topk, OP_loads, OP_slots, OP_counts,
    OP_dispatch_uneven_grad, OP_combine_uneven_grad, OP_combine_uneven_weights,
    OP_linear_uneven_rows, OP_linear_uneven_weight, OP_bias_uneven_grad, OP_route_grad,
    OP_route_sigmoid_grad, OP_dispatch_grad, OP_combine_grad, OP_combine_weights, OP_balance_grad,
    OP_router_z_grad, OP_charge_grad, OP_part_grad, OP_part_heads_grad, OP_part_head_grad,
    OP_tokens_grad, OP_span_grad, OP_xent_max, OP_xent_loss_grad, OP_xent_loss_mean_grad,
    OP_xent_smooth_grad, OP_xent_sumexp_grad, OP_xent_pick_grad, OP_amax, OP_amax_of_tokens,
    OP_amax_over_tokens, OP_amax_of_first, OP_amax_over_first, OP_amax_of_last, OP_amax_over_last,
    OP_quantise, OP_quantise_of_tokens, OP_quantise_over_tokens, OP_quantise_of_first,
    OP_quantise_over_first, OP_quantise_of_last, OP_quantise_over_last, OP_quantise_blocks_last,
    OP_quantise_blocks_first, OP_quantise_blocks_inner, OP_quantise_blocks_tokens,
    OP_quantise_pairs_last, OP_quantise_pairs_first, OP_quantise_pairs_inner,
    OP_quantise_pairs_tokens, OP_quantise_squares_first, OP_quantise_squares_last,
    OP_quantise_squares_inner, OP_quantise_squares_outer, OP_turn_tokens, OP_turn_first,
    OP_turn_last, OP_amax_range, OP_quantise_range,
    /* The gradients of these go through the spectral norm, which test_spectral.c tests. */
    OP_project_of_first, OP_project_over_first, OP_project_of_last, OP_project_over_last,
    OP_project_of_second, OP_project_over_second, OP_outer_second, OP_inner_product, OP_normalise,
    OP_divide_dot, OP_outer_first, OP_outer_last, OP_fill, OP_sumsq, OP_step_mean, OP_clip_coef,
    OP_adamw, OP_sgd, OP_sign_step};

/* The ops without a gradient are exactly those of the list above. */
static void only_the_listed_ops_have_no_gradient(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_compute) continue;
        bool listed = false;
        for (size_t i = 0; i < sizeof without_gradient / sizeof *without_gradient; i++)
            listed = listed || without_gradient[i] == op;
        if ((op_info(op)->n_backward == 0) != listed)
            fail_msg("%s: its row says that %s gradient flows through it, this list does not",
                     op_info(op)->name, listed ? "a" : "no");
    }
}

/* One op reads a tensor twice, and another op reads it, too. All contributions to its gradient must
 * add up. */
static void contributions_to_a_gradient_add_up(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Graph g;
    Attrs attrs = {0};
    graph_init(&g, arena);
    TensorId x =
        graph_tensor(&g, arena, "x", ROLE_input, DT_f64, 1, (const int64_t[]){3}, (Loc){0});
    TensorId pair[2] = {x, x};
    TensorId square = graph_op(&g, arena, OP_mul, pair, 2, DT_f64, &attrs, 0, (Loc){0}, &diag);
    pair[1] = square;
    TensorId cube = graph_op(&g, arena, OP_mul, pair, 2, DT_f64, &attrs, 0, (Loc){0}, &diag);
    Eval e = eval_new(arena, &g, DT_f64, NULL);
    for (int i = 0; i < 3; i++) value_set(&e.value[x], i, i + 1);
    eval_forward(&e);
    Value *seed = eval_seed(&e, cube);
    for (int i = 0; i < 3; i++) value_set(seed, i, 1);
    eval_backward(&e);
    /* x^3 has the derivative 3 x^2 */
    for (int i = 0; i < 3; i++) assert_true(value_get(&e.grad[x], i) == 3.0 * (i + 1) * (i + 1));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_gradient_equals_finite_differences),
                                       cmocka_unit_test(only_the_listed_ops_have_no_gradient),
                                       cmocka_unit_test(contributions_to_a_gradient_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
