/* Every CUDA kernel of ops.def except contractions and attention, on the target, compared with the
 * CPU's kernels in fp64. Cases cover each precision, and sizes that do and do not fill vectors and
 * blocks. They also cover rows wider than a block can hold, memory that does not allow wide
 * accesses, and parts of split tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "tests/cuda/compare.h"
#include "tests/support/ops/choices.h"
#include "tests/support/ops/fields.h"
#include "tests/support/sample.h"

#define ATTRS                                                                                      \
    {                                                                                              \
        .eps = 1e-5, .drop = 0.25, .site = 9, .smoothing = 0.1, .z_loss = 0.01, .group = 1,        \
        .scale = 0.5, .theta = 1e4, .beta1 = .9, .beta2 = .95, .weight_decay = .1, .clip = 1,      \
        .lo = 3, .hi = 1000000, .segment = 1,                                                      \
    }
#define CASE(name, types, accumulates)                                                             \
    {                                                                                              \
        OP_##name, cuda_##name, types, ATTRS, accumulates, NULL, 0                                 \
    }

static const CudaCase cases[] = {
    CASE(add, "fff", 0),
    CASE(mul, "fff", 1),
    CASE(scale, "ff", 1),
    CASE(silu, "ff", 0),
    CASE(silu_grad, "fff", 1),
    CASE(sigmoid, "ff", 0),
    CASE(sigmoid_grad, "fff", 1),
    CASE(relu, "ff", 0),
    CASE(relu_grad, "fff", 1),
    CASE(relu2, "ff", 0),
    CASE(relu2_grad, "fff", 1),
    CASE(clamp_gate, "fff", 0),
    CASE(clamp_gate_grad, "ffff", 1),
    CASE(clamp_up_grad, "ffff", 1),
    CASE(expert_bias, "fff", 0),
    CASE(expert_bias_grad, "fF", 1),
    CASE(counts, "ii", 0),
    CASE(dispatch_uneven, "fiif", 0),
    CASE(dispatch_uneven_grad, "fiif", 1),
    CASE(dispatch_uneven_grad, "fiiF", 1),
    CASE(combine_uneven, "iffif", 0),
    CASE(combine_uneven, "iFfif", 0),
    CASE(combine_uneven_grad, "fifif", 1),
    CASE(combine_uneven_weights, "fifif", 1),
    CASE(combine_uneven_weights, "fifiF", 1),
    CASE(linear_uneven, "ffif", 0),
    CASE(linear_uneven_rows, "ffif", 1),
    CASE(linear_uneven_weight, "ffiF", 1),
    CASE(linear_uneven_weight, "ffif", 1),
    CASE(bias_uneven, "ffif", 0),
    CASE(bias_uneven_grad, "fiF", 1),
    CASE(sinusoid, "ff", 0),
    CASE(soft_cap, "ff", 0),
    CASE(soft_cap_grad, "fff", 1),
    CASE(attention_wide, "ffffF", 0),
    CASE(attention_wide_grad, "fffffFfff", 7),
    CASE(attention_sink, "fffffF", 0),
    CASE(sink_grad, "ffFfF", 1),
    CASE(attention_table, "fffffF", 0),
    CASE(attention_table_grad, "ffffffFfffF", 15),
    CASE(step_size, "ffF", 0),
    CASE(step_size_grad, "FffFf", 3),
    CASE(conv_heads, "ffff", 0),
    CASE(conv_heads_grad, "fffffff", 7),
    CASE(conv_groups, "ffff", 0),
    CASE(conv_groups_grad, "fffffff", 7),
    CASE(state_scan, "fPfffff", 0),
    CASE(state_scan_grad, "ffPffffffFF", 15),
    CASE(state_scan_shared, "ffPfffff", 3),
    CASE(gated_norm, "ffffF", 0),
    CASE(gated_norm_grad, "ffffPfff", 7),
    CASE(join_tokens, "fff", 0),
    CASE(join_tokens_first, "ff", 1),
    CASE(join_tokens_last, "ff", 1),
    CASE(lead_tokens, "fff", 0),
    CASE(lead_tokens_grad, "ff", 1),
    CASE(merge_tokens, "ff", 0),
    CASE(merge_tokens_grad, "ff", 1),
    CASE(join_heads, "fff", 0),
    CASE(join_heads_shared, "ff", 1),
    CASE(join_heads_own, "ff", 1),
    CASE(gelu, "ff", 0),
    CASE(gelu_grad, "fff", 1),
    CASE(pass, "fF", 1),
    CASE(pass, "Ff", 1),
    CASE(cast, "fF", 0),
    CASE(cast, "Ff", 0),
    CASE(cast, "fq", 0),
    CASE(cast, "qf", 0),
    CASE(fill, "f", 0),
    CASE(fill, "d", 0),
    CASE(dropout, "ff", 1),
    CASE(bias, "fff", 0),
    CASE(bias, "fFf", 0),
    CASE(bias_grad, "ff", 1),
    CASE(bias_grad, "fF", 1),
    CASE(position, "fff", 0),
    CASE(position_grad, "fF", 1),
    CASE(segment, "ff", 0),
    CASE(segment_grad, "ff", 1),
    CASE(part, "ff", 0),
    CASE(part_grad, "ff", 1),
    CASE(part_heads, "ff", 0),
    CASE(part_heads_grad, "fF", 1),
    CASE(part_head, "ff", 0),
    CASE(part_head_grad, "ff", 1),
    CASE(tokens, "ff", 0),
    CASE(tokens, "ii", 0), /* of ids */
    CASE(tokens_grad, "ff", 1),
    CASE(span, "ff", 0),
    CASE(span, "ii", 0),
    CASE(span_grad, "ff", 1),
    CASE(topk, "fi", 0),
    CASE(route, "fif", 0),
    CASE(route, "fiF", 0),
    CASE(route_grad, "ffif", 1),
    CASE(route_grad, "FfiF", 1),
    CASE(route_sigmoid, "fif", 0),
    CASE(route_sigmoid, "fiF", 0),
    CASE(route_sigmoid_grad, "ffif", 1),
    CASE(route_sigmoid_grad, "FFiF", 1),
    CASE(slots, "ii", 0),
    CASE(dispatch, "fif", 0),
    CASE(dispatch_grad, "fif", 1),
    CASE(dispatch_grad, "fiF", 1),
    CASE(combine, "ifff", 0),
    CASE(combine, "iFff", 0),
    CASE(combine_grad, "fiff", 1),
    CASE(combine_weights, "fiff", 1),
    CASE(combine_weights, "fifF", 1),
    CASE(balance, "fif", 0),
    CASE(balance, "fiF", 0),
    CASE(balance_grad, "ffif", 1),
    CASE(balance_grad, "FfiF", 1),
    CASE(topk_biased, "ffi", 0),
    CASE(topk_biased, "fFi", 0),
    CASE(loads, "if", 1),
    CASE(loads, "iF", 1),
    CASE(router_z, "ff", 0),
    CASE(router_z, "fF", 0),
    CASE(router_z_grad, "fff", 1),
    CASE(router_z_grad, "FfF", 1),
    CASE(charge, "fff", 0),
    CASE(charge, "fFF", 0),
    CASE(charge_grad, "ff", 1),
    CASE(charge_grad, "fF", 1),
    CASE(embed, "iff", 0),
    CASE(embed_grad, "fif", 1),
    CASE(embed_grad, "fiF", 1),
    CASE(rmsnorm, "fffF", 0),
    CASE(rmsnorm, "ffff", 0),
    CASE(rmsnorm_grad, "fffPff", 3),
    CASE(rmsnorm_grad, "fffPfF", 3),
    CASE(rmsnorm_heads, "fffF", 0),
    CASE(rmsnorm_heads_grad, "fffPfF", 3),
    CASE(layernorm, "ffffFF", 0),
    CASE(layernorm_grad, "fffFPfFF", 7),
    CASE(rope, "ff", 0),
    CASE(rope_grad, "ff", 1),
    CASE(xent_max, "fF", 0),
    CASE(xent_pick, "fiF", 0),
    CASE(xent_smooth, "fiF", 0),
    CASE(xent_sumexp, "fPF", 0),
    CASE(xent_loss, "fPFidd", 3),
    CASE(xent_loss, "fPFiFF", 3),
    CASE(xent_loss_mean, "fPFidd", 3),
    CASE(xent_loss_grad, "fPiff", 3),
    CASE(xent_loss_mean_grad, "fPiFF", 3),
    CASE(xent_sumexp_grad, "fFPf", 1),
    CASE(xent_pick_grad, "Fif", 1),
    CASE(xent_smooth_grad, "Fif", 1),
    CASE(conv2d, "fff", 1),
    CASE(conv2d, "FfF", 1),
    CASE(conv_transpose2d, "fff", 1),
    CASE(conv2d_weight, "ffF", 1),
    CASE(conv2d_groups, "fff", 1),
    CASE(conv_transpose2d_groups, "fff", 1),
    CASE(conv2d_groups_weight, "fff", 1),
    CASE(channel_bias, "fff", 0),
    CASE(channel_bias_grad, "fF", 1),
    CASE(channel_norm, "ffffFF", 0),
    CASE(channel_norm_grad, "fffFPfFF", 7),
    CASE(group_sum, "fF", 0),
    CASE(group_sum_grad, "Ff", 1),
    CASE(group_spread, "fFF", 0),
    CASE(group_spread_grad, "FfFf", 1),
    CASE(group_norm, "fFPfff", 0),
    CASE(group_norm_grad, "ffFPffFF", 7),
    CASE(group_norm_weight, "ffFPfF", 3),
    CASE(avg_pool2d, "ff", 0),
    CASE(avg_pool2d_grad, "ff", 1),
    CASE(turn_poles, "ff", 0),
    CASE(turn_poles_grad, "ff", 1),
    CASE(max_pool2d, "ff", 0),
    CASE(max_pool2d_grad, "fff", 1),
    CASE(resize, "ff", 0),
    CASE(resize_grad, "ff", 1),
    CASE(pixel_shuffle, "ff", 0),
    CASE(pixel_unshuffle, "ff", 1),
    CASE(concat, "fff", 0),
    CASE(concat_first, "ff", 1),
    CASE(concat_last, "ff", 1),
    CASE(channels, "ff", 0),
    CASE(channels_grad, "ff", 1),
    CASE(sum_features, "fF", 0),
    CASE(sum_features_grad, "Ff", 1),
    CASE(window_bias, "ff", 0),
    CASE(window_bias_grad, "fF", 1),
    CASE(window_attention, "fffffF", 0),
    CASE(strided_attention, "fffffF", 0),
    CASE(window_attention_grad, "ffffffFfffF", 15),
    CASE(strided_attention_grad, "ffffffFfffF", 15),
    CASE(mse_loss, "fFdd", 3),
    CASE(mse_loss, "fFFF", 3),
    CASE(mse_loss_grad, "fFf", 0),
    CASE(amax, "fF", 0),
    CASE(amax, "qf", 0),
    CASE(amax_of_tokens, "fF", 0),
    CASE(amax_over_tokens, "fF", 0),
    CASE(amax_of_first, "fF", 0),
    CASE(amax_over_first, "fF", 0),
    CASE(amax_of_last, "fF", 0),
    CASE(amax_over_last, "fF", 0),
    CASE(amax_range, "fF", 0),
    CASE(quantise, "fPq", 0),
    CASE(quantise, "fPf", 0),
    CASE(quantise_of_tokens, "fPq", 0),
    CASE(quantise_over_tokens, "fPq", 0),
    CASE(quantise_of_first, "fPq", 0),
    CASE(quantise_over_first, "fPq", 0),
    CASE(quantise_of_last, "fPq", 0),
    CASE(quantise_over_last, "fPq", 0),
    CASE(quantise_range, "fPq", 1),
    CASE(turn_tokens, "ff", 0),
    CASE(turn_tokens, "qq", 0),
    CASE(turn_first, "ff", 0),
    CASE(turn_first, "qq", 0),
    CASE(turn_last, "ff", 0),
    CASE(turn_last, "qq", 0),
    CASE(project_of_first, "fFF", 0),
    CASE(project_over_first, "fFF", 0),
    CASE(project_of_last, "fFF", 0),
    CASE(project_over_last, "fFF", 0),
    CASE(project_of_second, "fFF", 0),
    CASE(project_over_second, "fFF", 0),
    CASE(inner_product, "FFF", 0),
    CASE(normalise, "FFPF", 0),
    CASE(divide, "fPf", 1),
    CASE(divide_dot, "ffPF", 0),
    CASE(outer_first, "FFFf", 1),
    CASE(outer_last, "FFFF", 1),
    CASE(outer_second, "FFFf", 1),
    CASE(sumsq, "fd", 1),
    CASE(step_mean, "dddd", 0),
    CASE(clip_coef, "ddd", 0),
    CASE(adamw, "ffpFdffp", 0),
    CASE(adamw, "FfpFdFfp", 0),
    CASE(adamw, "fFpfdfFp", 0),
    CASE(sgd, "ffdf", 0),
    CASE(sign_step, "FFF", 0),
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

static const Sizes odd = {
    {['b'] = 2, ['s'] = 5, ['k'] = 9, ['D'] = 14, ['E'] = 6, ['v'] = 11, ['x'] = 701, ['T'] = 5,
     ['F'] = 3, ['X'] = 2, ['g'] = 2, ['r'] = 2,  ['n'] = 7, ['N'] = 5,  ['S'] = 5,   ['K'] = 2,
     ['C'] = 3, ['m'] = 3, ['e'] = 5, ['M'] = 2,  ['V'] = 7, ['c'] = 3,  ['f'] = 5,   ['U'] = 3,
     ['Z'] = 5, ['d'] = 3, ['Q'] = 5, ['R'] = 3,  ['I'] = 3},
    {3, 5}};
static const Sizes even = {{['b'] = 2,    ['s'] = 4, ['k'] = 16, ['D'] = 64, ['E'] = 16, ['v'] = 40,
                            ['x'] = 4096, ['T'] = 4, ['F'] = 24, ['X'] = 16, ['g'] = 2,  ['r'] = 4,
                            ['n'] = 24,   ['N'] = 3, ['S'] = 4,  ['K'] = 4,  ['C'] = 4,  ['m'] = 4,
                            ['e'] = 8,    ['M'] = 2, ['V'] = 16, ['c'] = 4,  ['f'] = 24, ['U'] = 24,
                            ['Z'] = 40,   ['d'] = 8, ['Q'] = 16, ['R'] = 2,  ['I'] = 4},
                           {2, 8}};
static const Sizes wide = {
    {['b'] = 1,    ['s'] = 3,  ['k'] = 2056, ['D'] = 8200, ['E'] = 264, ['v'] = 4101,
     ['x'] = 9001, ['T'] = 3,  ['F'] = 4,    ['X'] = 2,    ['g'] = 2,   ['r'] = 2,
     ['n'] = 1032, ['N'] = 40, ['S'] = 3,    ['K'] = 9,    ['C'] = 2,   ['m'] = 2,
     ['e'] = 72,   ['M'] = 2,  ['V'] = 40,   ['c'] = 2,    ['f'] = 40,  ['U'] = 6,
     ['Z'] = 8,    ['d'] = 33, ['Q'] = 100,  ['R'] = 5,    ['I'] = 2},
    {3, 24}};
static const Sizes tall = {
    {['b'] = 13,    ['s'] = 61, ['k'] = 8,  ['D'] = 24, ['E'] = 8,  ['v'] = 300,
     ['x'] = 12000, ['T'] = 73, ['F'] = 3,  ['X'] = 2,  ['g'] = 1,  ['r'] = 2,
     ['n'] = 8,     ['N'] = 3,  ['S'] = 61, ['K'] = 3,  ['C'] = 33, ['m'] = 33,
     ['e'] = 6,     ['M'] = 2,  ['V'] = 12, ['c'] = 9,  ['f'] = 8,  ['U'] = 5,
     ['Z'] = 7,     ['d'] = 5,  ['Q'] = 6,  ['R'] = 3,  ['I'] = 4},
    {1, 16}};

static int64_t first_taken(const Sizes *sizes) /* attrs.first of ops that take a part */
{
    return sizes == &even ? 8 : 1;
}

/* Sets the sizes of fields, which are as small as the table's other sizes allow. */
static void set_field(OpKind op, const Sizes *sizes, Sizes *own, Attrs *attrs)
{
    int64_t most = sizes == &wide ? 33 : 13;
    own->size['h'] = sizes->size['s'] > most ? most : sizes->size['s'] + 1;
    own->size['w'] = sizes->size['E'] > most ? most : sizes->size['E'];
    own->size['c'] = sizes->size['X'], own->size['n'] = 3, own->size['u'] = 2, own->size['t'] = 3;
    /* The op reads X of the F channels: some channels before them, and one after them, are left
     * out. */
    if (op_info(op)->flags & OP_TAKES) own->size['F'] = own->size['X'] + first_taken(sizes) + 1;
    if (own->size['E'] > 24) own->size['E'] = 24;
    attrs->scale = 0.2;
    fields_set(op, sizes == &even || sizes == &tall, own->size, attrs);
}

enum { MOST_APART = 9 };
/* the most features in products of uneven rows, because these are slow on the CPU */
enum { MOST_UNEVEN = 300 };

static bool has_uneven_rows(OpKind op)
{
    return op_info(op)->flags & OP_COUNTED || op_counts_rows(op);
}

static bool is_uneven_product(OpKind op)
{
    return op == OP_linear_uneven || op == OP_linear_uneven_rows || op == OP_linear_uneven_weight;
}

/* Returns the index of a matrix [k,n,...] over which the op does not sum, or 0. If both of its
 * indices were wide, the matrix would have 100 million numbers. */
static unsigned char sums_apart(OpKind op)
{
    if (op == OP_project_over_second) return 'k';
    return op == OP_project_of_second || op == OP_outer_second ? 'n' : 0;
}

static CudaCase case_of(uint32_t i, DType eight, const Sizes *sizes)
{
    CudaCase c = cases[i];
    if (op_info(c.op)->flags & OP_TAKES) c.attrs.first = first_taken(sizes);
    /* the labels are for the last piece of the sequence */
    if (c.op == OP_xent_loss_mean || c.op == OP_xent_loss_mean_grad)
        c.attrs.first = sizes->size['T'] - sizes->size['s'];
    if (op_info(c.op)->flags & OP_QUANTISES || c.op == OP_quantise_range)
        c.attrs.scale = eight == DT_e4m3 ? 448 : 57344;
    c.attrs.hi = c.op == OP_amax_range || c.op == OP_quantise_range || c.op == OP_sumsq ? 690 : 0;
    if (c.op == OP_xent_loss_mean_grad || c.op == OP_xent_loss_grad) c.attrs.z_loss = 0.02;
    c.attrs.top_k = sizes->size['K'], c.attrs.experts = sizes->size['e'];
    c.attrs.capacity = has_uneven_rows(c.op) ? sizes->size['S'] + CHOICES_SPARE : sizes->size['m'];
    /* route has two cases; the types choose one */
    c.attrs.normalise = strchr(c.types, 'F') != NULL;
    if (op_mixes_tokens(c.op)) {
        const bool causal = sizes == &even || sizes == &tall;
        c.attrs.causal = causal, c.attrs.window = causal ? 3 : 0, c.attrs.cap = causal ? 2 : 0;
        c.attrs.distance = 6,
        c.tolerance = 160; /* the exponential of a difference magnifies its rounding */
    }
    /* each token multiplies the state by a rounded exponential */
    if (op_keeps_state(c.op)) c.tolerance = 100;
    if (is_uneven_product(c.op)) c.tolerance = 32; /* sums of some hundred products */
    c.attrs.mean = 0.1;
    if (c.op == OP_merge_tokens || c.op == OP_merge_tokens_grad) c.attrs.count = sizes->size['I'];
    if ((c.op == OP_topk || c.op == OP_topk_biased) &&
        c.attrs.experts % 2 == 0) { /* an odd number of experts forms one group */
        c.attrs.expert_groups = c.attrs.experts / 2, c.attrs.sigmoid = 1;
        c.attrs.top_groups = (c.attrs.experts / 2 + 1) / 2;
        while (2 * c.attrs.top_groups < c.attrs.top_k) c.attrs.top_groups++;
    }
    Sizes own = *sizes;
    if (fields_has(c.op)) set_field(c.op, sizes, &own, &c.attrs);
    return c;
}

/* The logits of experts have one entry for each expert. */
static Sizes sizes_of(OpKind op, const Sizes *sizes)
{
    static const OpKind of_logits[] = {
        OP_topk,    OP_route,        OP_route_grad, OP_route_sigmoid, OP_route_sigmoid_grad,
        OP_balance, OP_balance_grad, OP_router_z,   OP_router_z_grad, OP_topk_biased,
        OP_loads};
    Sizes own = *sizes;
    for (size_t i = 0; i < sizeof of_logits / sizeof of_logits[0]; i++)
        if (op == of_logits[i]) own.size['N'] = own.size['e'];
    own.size['O'] = own.size['S'] + CHOICES_SPARE;
    if (is_uneven_product(op) && own.size['k'] > MOST_UNEVEN) own.size['k'] = MOST_UNEVEN;
    const unsigned char apart = sums_apart(op); /* only this index has a limit */
    if (apart && own.size[apart] > MOST_APART) own.size[apart] = MOST_APART;
    Attrs ignored = {0};
    if (fields_has(op)) set_field(op, sizes, &own, &ignored);
    return own;
}

/* Runs all cases. `part` is the number of the test's part: under the sanitizers, each part runs
 * only half of the cases. The build without them runs all, and watches each load and store. */
static void each(const Sizes *sizes, DType real, Lie lie, uint32_t part)
{
    for (uint32_t i = part % SAMPLE(1, 2); i < N_CASES; i += SAMPLE(1, 2))
        for (int k = 0; k < (strchr(cases[i].types, 'q') != NULL ? 2 : 1); k++) {
            DType eight = k == 0 ? DT_e4m3 : DT_e5m2;
            CudaCase c = case_of(i, eight, sizes);
            const Sizes own = sizes_of(c.op, sizes);
            compare(&c, &own, real, eight, 0, lie);
            if (c.accumulates) compare(&c, &own, real, eight, c.accumulates, lie);
        }
}

static void odd_sizes_match_the_cpu(void **state)
{
    (void)state;
    each(&odd, DT_f32, LIE_aligned, 0);
    each(&odd, DT_bf16, LIE_odd, 1);
    each(&odd, DT_f16, LIE_aligned, 2);
}

static void whole_vectors_match_the_cpu(void **state)
{
    (void)state;
    each(&even, DT_f32, LIE_aligned, 0);
    each(&even, DT_bf16, LIE_aligned, 1);
    each(&even, DT_f16, LIE_odd, 2);
}

static void wide_rows_match_the_cpu(void **state)
{
    (void)state;
    each(&wide, DT_bf16, LIE_aligned, 0);
    each(&wide, DT_f32, LIE_odd, 1);
}

/* Rows that fit neither into registers nor into shared memory, on some devices or on all. */
static void the_widest_rows_match_the_cpu(void **state)
{
    (void)state;
    static const struct {
        int64_t width;
        uint32_t capability;
    } rows[] = {{21504, 80}, {12800, 86}, {21504, 90}, {29601, 90}};
    const uint32_t usual = target_context()->compute_capability;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        if (!target_has(rows[k].capability)) continue;
        Sizes widest = wide;
        widest.size['D'] = rows[k].width, widest.size['s'] = 2;
        target_context()->compute_capability = rows[k].capability;
        for (uint32_t i = 0; i < N_CASES; i++)
            if (cases[i].op == OP_layernorm_grad || cases[i].op == OP_layernorm)
                compare(&cases[i], &widest, DT_bf16, DT_e4m3, cases[i].accumulates, LIE_aligned);
    }
    target_context()->compute_capability = usual;
}

static bool is_norm_of_tokens(OpKind op)
{
    return op == OP_layernorm || op == OP_rmsnorm || op == OP_layernorm_grad ||
           op == OP_rmsnorm_grad;
}

/* Norms have special kernels for bf16 rows of these widths. The widths are multiples of a warp and
 * others, the narrowest and the widest; the numbers of rows leave one row over for the last
 * threads, or exceed a grid. */
static void norms_of_common_widths_match_the_cpu(void **state)
{
    (void)state;
    static const struct {
        int64_t width, rows;
    } sizes[] = {{256, 9},  {264, 9},  {512, 7},  {768, 11}, {1000, 9},   {1024, 1},  {1600, 3},
                 {2048, 5}, {2056, 3}, {4096, 3}, {4104, 2}, {768, 2125}, {264, 3200}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        Sizes own = wide;
        own.size['D'] = sizes[k].width, own.size['s'] = sizes[k].rows;
        for (uint32_t i = 0; i < N_CASES; i++) {
            if (!is_norm_of_tokens(cases[i].op)) continue;
            compare(&cases[i], &own, DT_bf16, DT_e4m3, cases[i].accumulates, LIE_aligned);
            if (k == 3) compare(&cases[i], &own, DT_bf16, DT_e4m3, 0, LIE_odd);
        }
    }
}

static void many_rows_match_the_cpu(void **state)
{
    (void)state;
    each(&tall, DT_bf16, LIE_aligned, 0);
    each(&tall, DT_f32, LIE_aligned, 1);
}

/* More work than all threads of a grid handle at once, and a rest. */
static void more_work_than_a_grid_matches_the_cpu(void **state)
{
    (void)state;
    static const OpKind flat[] = {OP_add,  OP_mul,  OP_scale,   OP_silu_grad, OP_pass,
                                  OP_cast, OP_fill, OP_dropout, OP_amax,      OP_quantise};
    const Sizes many = {{0}, {203, 397}};
    for (uint32_t i = 0; i < N_CASES; i++)
        for (size_t k = 0; k < sizeof flat / sizeof flat[0]; k++) {
            if (cases[i].op != flat[k]) continue;
            CudaCase c = case_of(i, DT_e4m3, &many);
            compare(&c, &many, DT_bf16, DT_e4m3, c.accumulates, LIE_aligned);
        }
}

/* The sequences have more choices than a block searches at once, and an expert has more slots than
 * a block handles. */
static void experts_of_long_sequences_match_the_cpu(void **state)
{
    (void)state;
    static const OpKind looking[] = {OP_slots,        OP_dispatch, OP_combine,
                                     OP_combine_grad, OP_balance,  OP_balance_grad,
                                     OP_charge_grad,  OP_router_z, OP_router_z_grad};
    Sizes sizes = {{['b'] = 2, ['S'] = 701, ['K'] = 4, ['e'] = 9, ['m'] = 300, ['k'] = 24}, {0, 0}};
    sizes.size['N'] = 9, sizes.size['s'] = 1301;
    for (uint32_t i = 0; i < N_CASES; i++)
        for (size_t k = 0; k < sizeof looking / sizeof looking[0]; k++) {
            if (cases[i].op != looking[k]) continue;
            Sizes own = sizes;
            if (cases[i].op == OP_balance || cases[i].op == OP_balance_grad)
                own.size['S'] = own.size['s'];
            CudaCase c = case_of(i, DT_e4m3, &own);
            compare(&c, &own, DT_bf16, DT_e4m3, 0, LIE_aligned);
        }
}

/* Each 16-bit number must become the 8-bit number of the definition, also at ties, at the ends of
 * the range, and below the smallest number. */
static void every_number_is_rounded_as_defined(void **state)
{
    (void)state;
    enum { ALL = 1 << 16 };
    static const DType from[] = {DT_f16, DT_bf16}, to[] = {DT_e4m3, DT_e5m2};
    for (int i = 0; i < 4 && compare_asks_for(OP_cast); i++) {
        uint16_t *x = compare_alloc(ALL * sizeof *x, 0);
        uint8_t *y = compare_alloc(ALL, 0), expected;
        CudaError error = {{0}};
        KernelArgs args = {.n_in = 1, .n_args = 2, .rows = ALL};
        args.ptr[0] = x, args.dtype[0] = from[i / 2], args.ptr[1] = y, args.dtype[1] = to[i % 2];
        args.elements[0] = args.elements[1] = ALL;
        for (uint32_t k = 0; k < ALL; k++) x[k] = (uint16_t)k;
        assert_true(TARGET_RUN(1, cuda_cast(&args, target_context(), &error), &error));
        for (uint32_t k = 0; k < ALL; k++) {
            double value = number_read(from[i / 2], x, k);
            number_write(to[i % 2], &expected, 0, value);
            if (y[k] != expected && !isnan(value))
                fail_msg("%s %.9g becomes %s %02x, not %02x", dtype_name(from[i / 2]), value,
                         dtype_name(to[i % 2]), y[k], expected);
        }
        compare_free();
    }
}

static void every_kernel_is_tested(void **state)
{
    (void)state;
    static const OpKind others[] = {
        OP_batch,          OP_field,
        OP_offsets,        OP_image,
        OP_attention,      OP_attention_grad,
        OP_attention_part, OP_attention_part_grad}; /* tested by test_attention_part */
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        bool found = op_info(op)->class_ != OP_CLASS_compute;
        for (uint32_t i = 0; i < N_CASES; i++) found |= cases[i].op == op;
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) found |= others[i] == op;
        found |= op_of_rows(op) != OP_none;             /* tested by test_rows */
        found |= (op_info(op)->flags & OP_BLOCKS) != 0; /* no kernel: missing.h */
        if (!found) fail_msg("%s", op_info(op)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_sizes_match_the_cpu),
        cmocka_unit_test(whole_vectors_match_the_cpu),
        cmocka_unit_test(the_widest_rows_match_the_cpu),
        cmocka_unit_test(norms_of_common_widths_match_the_cpu),
        cmocka_unit_test(wide_rows_match_the_cpu),
        cmocka_unit_test(many_rows_match_the_cpu),
        cmocka_unit_test(more_work_than_a_grid_matches_the_cpu),
        cmocka_unit_test(experts_of_long_sequences_match_the_cpu),
        cmocka_unit_test(every_number_is_rounded_as_defined),
        cmocka_unit_test(every_kernel_is_tested),
    };
    return cmocka_run_group_tests_name("CUDA kernels", tests, NULL, NULL);
}
