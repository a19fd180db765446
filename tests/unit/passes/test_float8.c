/* The pass float8{}: the modules that it covers, the modules that it leaves out with a warning, and
 * the quantised forms that it shares and keeps. Each known bug of 8-bit scaling is planted in a
 * good plan, and a proof must report it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Tiny with(Float8Recipe recipe)
{
    Tiny t = tiny_default();
    t.layers = 1;
    t.use_float8 = true;
    t.float8.recipe = recipe;
    return t;
}

static uint32_t count(const Plan *plan, OpKind op)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++) n += plan->graph.nodes.at[id].op == op;
    return n;
}

static uint32_t count_scaled(const Plan *plan, Scaling scaling)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++)
        n += op_info(plan->graph.nodes.at[id].op)->scaling == scaling &&
             op_info(plan->graph.nodes.at[id].op)->class_ == OP_CLASS_contract;
    return n;
}

/* A block has seven linears. One quantised input serves q, k and v, and one serves w1 and w3. */
static void tensorwise_shares_quantised_inputs(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_tensorwise);
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_int_equal(count_scaled(plan, SCALING_tensorwise), 7 * 3);
    assert_int_equal(count_scaled(plan, SCALING_none), 3); /* the three products of the head */
    assert_int_equal(count(plan, OP_quantise), 7 + 4 + 7); /* weights, inputs, gradients */
    assert_int_equal(count(plan, OP_amax), 7 + 4 + 7);
    uint32_t n_wide = 0;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++) {
        const Node *n = &plan->graph.nodes.at[id];
        if (n->op != OP_quantise) continue;
        bool backward = id > plan->graph.n_forward;
        assert_int_equal(plan->graph.tensors.at[n->out[0]].dtype, backward ? DT_e5m2 : DT_e4m3);
        n_wide += backward;
    }
    assert_int_equal(n_wide, 7);
    /* A scaled-down plan does not report modules that are left out. */
    assert_int_equal(d.items.n, 0);
}

static void rowwise_scales_tokens_and_features(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_rowwise);
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_int_equal(count_scaled(plan, SCALING_rowwise), 7 * 3);
    /* 4 inputs and 7 gradients have scales for tokens, and all of them also have scales over
     * tokens. */
    assert_int_equal(count(plan, OP_quantise_of_tokens), 4 + 7);
    assert_int_equal(count(plan, OP_quantise_over_tokens), 7 + 4);
    for (NodeId id = 1; id < plan->graph.nodes.n; id++) {
        const Node *n = &plan->graph.nodes.at[id];
        if (op_info(n->op)->flags & OP_QUANTISES)
            assert_int_equal(plan->graph.tensors.at[n->out[0]].dtype, DT_e4m3);
    }
}

/* Checks that the first diagnostic of this rule contains `text`. */
static void says(const Diag *d, const char *rule, const char *text)
{
    for (uint32_t i = 0; i < d->items.n; i++) {
        if (strcmp(d->items.at[i].rule, rule) != 0) continue;
        if (!strstr(d->items.at[i].text, text)) fail_msg("%s", d->items.at[i].text);
        return;
    }
    Str s = str_in(arena);
    diag_print(d, &s);
    fail_msg("no %s in:\n%s", rule, str_text(&s));
}

static Tiny sized(void)
{
    Tiny t = with(FLOAT8_tensorwise);
    t.dim = 32, t.hidden = 64, t.groups = 4, t.head_dim = 16;
    t.float8.any_size = false;
    return t;
}

/* The sizes on a rank must be multiples of 16. Over 4 ranks, 64 hidden features are 16 a rank; over
 * 8 ranks they are 8. */
static void local_sizes_must_be_multiples_of_16(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = sized();
    t.tp = 4;
    assert_non_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-excluded", "rounded logits would change the loss");
    t.groups = t.tp = 8;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-divides", "feed_forward.w1.weight is 32 x 8 on each rank (tp = 8)");
    assert_int_equal(d.n_errors, 2); /* w1 and w3 have equal shapes, and w2 is their transpose */
    Diag again = diag_in(arena);
    t.float8.skip_indivisible = true;
    const Plan *plan = tiny_plan(&t, false, arena, &again);
    assert_non_null(plan);
    assert_int_equal(count_scaled(plan, SCALING_tensorwise), 4 * 3);
    assert_int_equal(again.n_errors, 0);
    says(&again, "float8-excluded", "logits");
    assert_non_null(strstr(again.items.at[1].text, "feed_forward and 2 more (of 8 linears)"));
}

static Pattern pattern(const char *path)
{
    return (Pattern){.path = path, .loc = {"tiny.lua", 1}};
}

static void skip_and_only_select_modules(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_tensorwise);
    list_push(arena, &t.float8.skip, pattern("layers.0.attention"));
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_int_equal(count_scaled(plan, SCALING_tensorwise), 3 * 3);
    list_push(arena, &t.float8.only, pattern("layers.*"));
    plan = tiny_plan(&t, false, arena, &d);
    assert_int_equal(count_scaled(plan, SCALING_tensorwise), 3 * 3);
    list_push(arena, &t.float8.skip, pattern("layers.*"));
    t.float8.any_size = false;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-matched-nothing", "excludes all 8 linears of the model");
}

/* The backward pass keeps inputs in one byte each. It does not keep quantised weights. */
static void only_inputs_are_kept_in_8_bits(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_tensorwise);
    t.layers = 2;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    const Program *p = &plan->programs.at[0];
    uint32_t n_kept = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->dtype != DT_e4m3 || at->parent) continue;
        bool crosses = p->code.at[at->first].phase == PHASE_forward &&
                       p->code.at[at->last].phase != PHASE_forward;
        bool of_weight = graph_weight(&plan->graph, at->tensor) != 0;
        assert_true(!crosses || !of_weight);
        n_kept += crosses;
    }
    assert_int_equal(n_kept, 2 * 4);
}

static uint32_t count_maxima(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        n += p->code.at[pc].op == OP_all_reduce &&
             graph_attrs_at(&plan->graph, p->code.at[pc].attrs)->reduce == REDUCE_max;
    return n;
}

static Tiny in_blocks(void)
{
    Tiny t = with(FLOAT8_mxfp8);
    t.dim = t.hidden = 64, t.groups = 2, t.head_dim = 32, t.seq = 64, t.microbatches = 2;
    t.float8.any_size = false;
    t.dp_shard = t.tp = 2;
    return t;
}

/* Every operand has blocks of 32 along the index over which its product sums. A block has a scale
 * of one byte. No scale needs a reduction over ranks. */
static void operands_have_blocks_along_the_summed_index(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = in_blocks();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    const Graph *g = &plan->graph;
    assert_int_equal(count_scaled(plan, SCALING_blocks), 7 * 3);
    /* 4 inputs and 7 gradients are quantised along features and along tokens, and weights along
     * both indices. */
    assert_int_equal(count(plan, OP_quantise_blocks_tokens), 4 + 7);
    assert_int_equal(count(plan, OP_quantise_blocks_first), 6);
    assert_int_equal(count(plan, OP_quantise_blocks_inner), 1); /* wo: [heads, features, dim] */
    assert_int_equal(count(plan, OP_quantise_blocks_last), 4 + 7 + 7);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!(op_info(n->op)->flags & OP_BLOCKS)) continue;
        assert_int_equal(graph_attrs_at(g, n->attrs)->group, 32);
        if (op_info(n->op)->scaling == SCALING_blocks) continue;
        assert_int_equal(g->tensors.at[n->out[0]].dtype, DT_e4m3);
        assert_int_equal(g->tensors.at[n->out[1]].dtype, DT_e8m0);
    }
    const Program *p = &plan->programs.at[0];
    uint32_t n_gathers = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool is_comm = op_info(in->op)->class_ == OP_CLASS_comm;
        n_gathers += is_comm && p->buffers.at[program_arg(p, in, 0)].dtype == DT_e8m0;
    }
    assert_true(n_gathers > 0); /* sequence parallelism gathers scales beside their values */
    t.use_float8 = false;
    const Plan *plain = tiny_plan(&t, false, arena, &d);
    assert_non_null(plain);
    /* the plan has only the maxima of the loss */
    assert_int_equal(count_maxima(plan), count_maxima(plain));
}

/* Sizes that would cut a block are refused, and so are sequences in chunks. */
static void sizes_that_cut_a_block_are_refused(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = in_blocks();
    t.hidden = 32;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-divides", "is 64 x 16 on each rank (tp = 2)");
    d = diag_in(arena);
    t = in_blocks();
    t.seq = 32;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-tokens", "each sequence has 32 tokens on 2 ranks");
    d = diag_in(arena);
    t.tp_options.sequence = false; /* each rank of tp has all tokens */
    assert_non_null(tiny_plan(&t, false, arena, &d));
    d = diag_in(arena);
    t = in_blocks();
    t.tp = 1, t.cp = 2, t.seq = 256;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-blocks-chunks", "two separate chunks of a sequence");
}

/* ---- bugs ---- */

typedef struct Case {
    Plan *plan;
    Program *p;
    Diag d;
} Case;

static Case split(Float8Recipe recipe)
{
    Diag d = diag_in(arena);
    Tiny t = with(recipe);
    t.dp_shard = t.tp = 2;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    Case c = {mutate_copy(plan, arena), NULL, diag_in(arena)};
    c.p = &c.plan->programs.at[0];
    return c;
}

static void rejected(Case *c, const char *rule, const char *text)
{
    assert_false(verify_plan(c->plan, VERIFY_all, false, &c->d));
    says(&c->d, rule, text);
}

/* TransformerEngine#600: each rank scales with the largest magnitude of its own part. */
static void a_maximum_of_one_rank_is_rejected(void **state)
{
    (void)state;
    /* The op that quantises reads the maximum before the reduction over ranks. */
    for (int recipe = 0; recipe < FLOAT8_mxfp8; recipe++) {
        Case c = split((Float8Recipe)recipe);
        for (Pc pc = 1; pc < c.p->code.n; pc++) {
            Instr *in = &c.p->code.at[pc];
            if (!(op_info(in->op)->flags & OP_QUANTISES)) continue;
            BufferId amax = program_arg(c.p, in, 1), part = 0;
            for (Pc k = 1; k < pc; k++) {
                const Instr *of = &c.p->code.at[k];
                if (of->op == OP_all_reduce && program_arg(c.p, of, 1) == amax)
                    part = program_arg(c.p, of, 0);
            }
            if (!part) continue;
            c.p->args.at[in->args.first + 1] = part;
            rejected(&c, "verify-layout", "the maximum of only one rank's part");
            break;
        }
    }
}

/* ---- weights gathered in 8 bits ---- */

static Tiny gathering(void)
{
    Tiny t = with(FLOAT8_tensorwise);
    t.dp_shard = t.tp = 2;
    t.microbatches = 2;
    t.float8.fsdp_gather = true;
    return t;
}

/* Covered weights are in a separate unit and are gathered as one byte a value. One reduction finds
 * all maxima of a step. */
static void covered_weights_are_gathered_in_bytes(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = gathering();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    const Program *p = &plan->programs.at[0];
    uint32_t n_tables = 0, n_gathers = 0, n_amax = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const Buffer *first = &p->buffers.at[program_arg(p, in, 0)];
        n_tables += in->op == OP_all_reduce && in->phase == PHASE_start;
        n_amax += in->op == OP_amax_range;
        bool in_bytes = in->unit && plan->graph.units.at[in->unit].dtype == DT_e4m3;
        if (in->op == OP_all_gather && in_bytes) {
            assert_int_equal(first->dtype, DT_e4m3);
            n_gathers++;
        }
        /* No op quantises a weight after its gather. */
        if (in->op == OP_amax || in->op == OP_quantise)
            assert_int_equal(graph_weight(&plan->graph, first->tensor), 0);
    }
    assert_int_equal(n_tables, 1);
    assert_int_equal(n_amax, 7);
    /* Two micro-batches each gather in the forward and in the backward pass. */
    assert_int_equal(n_gathers, 2 * 2);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
}

static Case gathered(void)
{
    Diag d = diag_in(arena);
    Tiny t = gathering();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    Case c = {mutate_copy(plan, arena), NULL, diag_in(arena)};
    c.p = &c.plan->programs.at[0];
    return c;
}

static Pc next(const Case *c, OpKind op, Pc after)
{
    Pc pc = after + 1;
    while (pc < c->p->code.n && c->p->code.at[pc].op != op) pc++;
    assert_true(pc < c->p->code.n);
    return pc;
}

/* Each planted scale is wrong: it comes from the rank's own part, from another weight, or from two
 * weights.
 */
static void wrong_scales_of_gathered_weights_are_rejected(void **state)
{
    (void)state;
    Case c = gathered();
    Pc amax = next(&c, OP_amax_range, 0), to = next(&c, OP_quantise_range, 0);
    c.p->args.at[c.p->code.at[to].args.first + 1] = program_arg(c.p, &c.p->code.at[amax], 1);
    rejected(&c, "verify-layout", "the maximum of only one rank's part");
    c = gathered();
    to = next(&c, OP_quantise_range, 0);
    Pc other = next(&c, OP_quantise_range, to);
    c.p->args.at[c.p->code.at[to].args.first + 1] = program_arg(c.p, &c.p->code.at[other], 1);
    rejected(&c, "verify-scale", "is scaled by");
    c = gathered();
    to = next(&c, OP_quantise_range, 0);
    Attrs attrs = *graph_attrs_at(&c.plan->graph, c.p->code.at[to].attrs);
    attrs.hi += 64;
    c.p->code.at[to].attrs = graph_attrs(&c.plan->graph, arena, &attrs);
    rejected(&c, "verify-layout", "must belong to one parameter");
}

static void gathering_bytes_without_effect_is_reported(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = gathering();
    t.dp_shard = 1;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    says(&d, "not-applied", "mesh.dp_shard = 1");
    t = gathering();
    t.float8.recipe = FLOAT8_rowwise;
    assert_null(tiny_plan(&t, false, arena, &d));
    says(&d, "float8-gather-rowwise", "needs other scales of a weight");
}

static Node *first(Case *c, OpKind op)
{
    for (NodeId id = 1; id < c->plan->graph.nodes.n; id++)
        if (c->plan->graph.nodes.at[id].op == op) return &c->plan->graph.nodes.at[id];
    fail_msg("no %s", op_info(op)->name);
    return NULL;
}

static Case square_rowwise(void)
{
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_rowwise);
    t.hidden = t.dim;
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    Case c = {mutate_copy(plan, arena), NULL, diag_in(arena)};
    c.p = &c.plan->programs.at[0];
    return c;
}

/* Node `id` scales a square matrix by the maxima of its rows or of its columns. Swaps rows and
 * columns. Returns false if the node is no such node. */
static bool maxima_along_the_other_index(Case *c, NodeId id)
{
    Graph *g = &c->plan->graph;
    Node *n = &g->nodes.at[id];
    static const OpKind other[][2] = {{OP_quantise_of_first, OP_quantise_of_last},
                                      {OP_quantise_over_first, OP_quantise_over_last},
                                      {OP_quantise_of_last, OP_quantise_of_first},
                                      {OP_quantise_over_last, OP_quantise_over_first}};
    const Tensor *x = &g->tensors.at[n->in[0]];
    size_t k = 0;
    while (k < 4 && n->op != other[k][0]) k++;
    if (k == 4 || x->n_dims != 2 || x->dim[0] != x->dim[1]) return false;
    n->op = other[k][1];
    return true;
}

/* Any single dtype of fsdp2.mp contradicts float8{}. */
static void every_mixed_precision_policy_is_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        Diag d = diag_in(arena);
        Tiny t = with(FLOAT8_tensorwise);
        t.dim = 32, t.hidden = 32, t.head_dim = 16, t.dp_shard = 2;
        if (i == 1) t.fsdp2.mp.param = DT_bf16;
        if (i == 2) t.fsdp2.mp.reduce = DT_f32;
        if (i == 3) t.fsdp2.mp.output = DT_bf16;
        assert_int_equal(tiny_plan(&t, false, arena, &d) != NULL, i == 0);
        if (i > 0) says(&d, "fsdp2-conflict", "fsdp2.mp does not work with float8{}");
    }
}

/* The graph itself may be wrong, and the program follows it. */
static void scales_of_other_operands_are_rejected(void **state)
{
    (void)state;
    Case c = split(FLOAT8_tensorwise);
    first(&c, OP_quantise)->in[1] = first(&c, OP_linear_tensorwise_along)->in[3];
    rejected(&c, "verify-scale", "is scaled by the largest magnitude of another tensor");
    /* The maxima of rows scale the columns of a square tensor. */
    c = square_rowwise();
    NodeId id = 1;
    while (!maxima_along_the_other_index(&c, id)) assert_true(++id < c.plan->graph.nodes.n);
    rejected(&c, "verify-scale", "is scaled by the largest magnitudes along a wrong index");
    c = split(FLOAT8_tensorwise);
    Node *n = first(&c, OP_linear_tensorwise_along);
    TensorId scale = n->in[2];
    n->in[2] = n->in[3], n->in[3] = scale;
    rejected(&c, "verify-scale", "divides by the scale of another operand");
    c = split(FLOAT8_tensorwise);
    n = first(&c, OP_linear_tensorwise_d0);
    /* The scale is that of two e4m3 operands, but the gradient is e5m2. */
    Attrs attrs = {.scale = 1.0 / 448 / 448};
    n->attrs = graph_attrs(&c.plan->graph, arena, &attrs);
    rejected(&c, "verify-scale", "does not undo the scales of its operands");
    c = split(FLOAT8_tensorwise);
    n = first(&c, OP_quantise);
    attrs.scale = 57344;
    n->attrs = graph_attrs(&c.plan->graph, arena, &attrs);
    rejected(&c, "verify-scale", "does not use the whole range of its type");
}

static Case in_blocks_case(void)
{
    Diag d = diag_in(arena);
    Tiny t = in_blocks();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    Case c = {mutate_copy(plan, arena), NULL, diag_in(arena)};
    c.p = &c.plan->programs.at[0];
    return c;
}

static void scales_of_other_blocks_are_rejected(void **state)
{
    (void)state;
    Case c = in_blocks_case(); /* w1 and w3 have equal shapes, and so have their scales */
    Node *n = first(&c, OP_linear_blocks), *other = n + 1;
    while (other->op != OP_linear_blocks || other->in[0] != n->in[0] || other->in[1] == n->in[1])
        other++;
    n->in[3] = other->in[3];
    rejected(&c, "verify-scale", "divides by the scale of another operand");
    c = in_blocks_case();
    Attrs attrs = {.scale = 57344, .group = 32};
    first(&c, OP_quantise_blocks_last)->attrs = graph_attrs(&c.plan->graph, arena, &attrs);
    rejected(&c, "verify-scale", "does not use the whole range of its type");
    c = in_blocks_case();
    n = first(&c, OP_quantise_blocks_last);
    c.plan->graph.tensors.at[n->out[1]].dtype = DT_e4m3;
    rejected(&c, "verify-scale", "must have scales that are powers of two");
    c = in_blocks_case();
    attrs = (Attrs){.group = 16};
    first(&c, OP_linear_blocks)->attrs = graph_attrs(&c.plan->graph, arena, &attrs);
    assert_false(verify_plan(c.plan, VERIFY_all, false, &c.d));
    /* A square weight gets blocks along the wrong index. */
    c = in_blocks_case();
    n = first(&c, OP_quantise_blocks_first);
    n->op = OP_quantise_blocks_last;
    assert_false(verify_plan(c.plan, VERIFY_all, false, &c.d));
}

static void float8_comes_before_fsdp2(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = with(FLOAT8_tensorwise);
    t.dp_shard = t.tp = 2;
    Config config;
    Graph graph;
    LowerOptions options = lower_options_default();
    tiny_build(&t, arena, &config, &graph);
    /* float8{} may come before tp{}, because the weights are split all the same. */
    PassConfig swap = config.passes[0];
    config.passes[0] = config.passes[1], config.passes[1] = swap;
    assert_non_null(plan_compile(&config, &graph, &options, NULL, arena, &d));
    tiny_build(&t, arena, &config, &graph);
    swap = config.passes[1];
    config.passes[1] = config.passes[2], config.passes[2] = swap;
    assert_null(plan_compile(&config, &graph, &options, NULL, arena, &d));
    says(&d, "pass-order", "still be gathered in 16 bits");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensorwise_shares_quantised_inputs),
        TEST(rowwise_scales_tokens_and_features),
        TEST(local_sizes_must_be_multiples_of_16),
        TEST(skip_and_only_select_modules),
        TEST(only_inputs_are_kept_in_8_bits),
        TEST(a_maximum_of_one_rank_is_rejected),
        TEST(float8_comes_before_fsdp2),
        TEST(every_mixed_precision_policy_is_refused),
        TEST(scales_of_other_operands_are_rejected),
        TEST(covered_weights_are_gathered_in_bytes),
        TEST(wrong_scales_of_gathered_weights_are_rejected),
        TEST(gathering_bytes_without_effect_is_reported),
        TEST(operands_have_blocks_along_the_summed_index),
        TEST(sizes_that_cut_a_block_are_refused),
        TEST(scales_of_other_blocks_are_rejected),
    };
    return cmocka_run_group_tests_name("float8", tests, NULL, NULL);
}
