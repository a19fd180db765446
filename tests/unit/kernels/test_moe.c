/* nn.moe and ep{} as people write them: the graph of a mixture of experts, the slots of an expert,
 * the exchanges of tokens, and the mistakes that are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/ir/experts.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/ir/text/text.h"
#include "planner/lower/compile.h"
#include "tests/support/command.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

typedef struct Result {
    Config config;
    Graph graph;
    Diag d;
    const Plan *plan; /* NULL: the plan was refused */
} Result;

static Result plan_of(const char *script)
{
    Result r = {.d = diag_in(arena)};
    LowerOptions options = lower_options_default();
    command_write_file("moe.lua", script);
    if (front_load("moe.lua", NULL, arena, &r.config, &r.graph, &r.d))
        r.plan = plan_compile(&r.config, &r.graph, &options, NULL, arena, &r.d);
    return r;
}

static const char *told(Result *r)
{
    Str text = str_in(arena);
    diag_print(&r->d, &text);
    return str_text(&text);
}

/* Returns the plan of a model with an embedding, a mixture between residuals, and a head. */
static Result plan_with(const char *moe, const char *mesh, const char *parallel)
{
    return plan_of(arena_print(
        arena,
        "local nn = require 'tandem.nn'\n"
        "local moe = %s\n"
        "local block = nn.block { norm = nn.rmsnorm(8), moe = moe,\n"
        "  tp_col = { 'moe.w1', 'moe.w3' }, tp_row = 'moe.w2',\n"
        "  forward = function(m, x) return x + m.moe(m.norm(x)) end }\n"
        "return plan { batch = { seq = 6, global = 8, micro = 1 },\n"
        "  mesh = { %s }, parallel = { %s },\n"
        "  model = nn.module { e = nn.embedding(12, 8), b = block, h = nn.linear(8, 12),"
        "\n    forward = function(m, t, y) return nn.cross_entropy(m.h(m.b(m.e(t))), y) "
        "end } }\n",
        moe, mesh, parallel));
}

static const Tensor *param(const Graph *g, const char *name)
{
    for (TensorId id = 1; id < g->tensors.n; id++)
        if (strcmp(g->tensors.at[id].name, name) == 0) return &g->tensors.at[id];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void a_mixture_traces_to_this_graph(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_batch,    OP_embed,          OP_rmsnorm,   OP_linear,
                                 OP_topk,     OP_route,          OP_balance,   OP_slots,
                                 OP_dispatch, OP_linear_experts, OP_silu,      OP_linear_experts,
                                 OP_mul,      OP_linear_experts, OP_combine,   OP_add,
                                 OP_linear,   OP_xent_max,       OP_xent_pick, OP_xent_sumexp,
                                 OP_charge,   OP_xent_loss};
    Result r = plan_with("nn.moe { dim = 8, hidden = 10, experts = 4, init = nn.ones,\n"
                         "  out_init = nn.zeros }",
                         "", "");
    if (!r.plan) fail_msg("%s", told(&r));
    for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++)
        assert_int_equal(r.graph.nodes.at[i + 1].op, ops[i]);
    static const struct {
        const char *name;
        int64_t dim[3];
        InitKind init;
        TpStyle tp;
    } params[] = {{"b.moe.router.weight", {8, 4}, INIT_ones, TP_none},
                  {"b.moe.w1.weight", {4, 8, 10}, INIT_ones, TP_column},
                  {"b.moe.w3.weight", {4, 8, 10}, INIT_ones, TP_column},
                  {"b.moe.w2.weight", {4, 10, 8}, INIT_zeros, TP_row}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        const Tensor *t = param(&r.graph, params[i].name);
        for (int d = 0; d < t->n_dims; d++) assert_int_equal(t->dim[d], params[i].dim[d]);
        assert_int_equal(t->init.kind, params[i].init);
        assert_int_equal(t->tp, params[i].tp);
    }
    const Attrs *a = graph_attrs_at(&r.graph, r.graph.nodes.at[8].attrs);
    assert_int_equal(a->top_k, 2);
    assert_int_equal(a->experts, 4);
    assert_int_equal(graph_attrs_at(&r.graph, r.graph.nodes.at[6].attrs)->normalise, 1);
    assert_true(graph_attrs_at(&r.graph, r.graph.nodes.at[7].attrs)->scale == 0.01);
    assert_int_equal(r.graph.tensors.at[r.graph.nodes.at[8].out[0]].dtype, DT_i32);
}

static void capacity_counts_the_tokens_of_a_sequence(void **state)
{
    (void)state;
    static const struct {
        const char *factor;
        int64_t top_k, experts, capacity; /* capacity: how many of the 6 tokens an expert takes */
    } cases[] = {{"nil", 2, 4, 4},   {"1.25", 2, 4, 4}, {"1", 2, 4, 3},    {"1.0", 1, 4, 2},
                 {"'all'", 2, 4, 6}, {"1.1", 1, 5, 2},  {"0.01", 2, 4, 1}, {"100", 2, 4, 6},
                 {"1.0", 4, 4, 6},   {"0.5", 3, 3, 3},  {"1.0", 1, 24, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Result r = plan_with(
            arena_print(arena,
                        "nn.moe { dim = 8, hidden = 4, experts = %lld, top_k = "
                        "%lld, capacity_factor = %s, normalise = false, aux_loss = 0 }",
                        (long long)cases[i].experts, (long long)cases[i].top_k, cases[i].factor),
            "", "");
        if (!r.plan) fail_msg("%s", told(&r));
        const Node *slots = &r.graph.nodes.at[7], *dispatch = slots + 1;
        assert_int_equal(graph_attrs_at(&r.graph, slots->attrs)->capacity, cases[i].capacity);
        assert_int_equal(r.graph.tensors.at[dispatch->out[0]].dim[2], cases[i].capacity);
        assert_int_equal(graph_attrs_at(&r.graph, slots[-1].attrs)->normalise, 0);
    }
}

typedef struct Refused {
    const char *moe, *mesh, *parallel, *rule, *words;
} Refused;

static void assert_refused(const Refused *c)
{
    Result r = plan_with(c->moe, c->mesh, c->parallel);
    const char *text = told(&r);
    uint32_t n = 0;
    for (uint32_t i = 0; i < r.d.items.n; i++) n += strcmp(r.d.items.at[i].rule, c->rule) == 0;
    if (r.plan || n != 1 || !strstr(text, c->words))
        fail_msg("%s, mesh %s, parallel %s: %s", c->moe, c->mesh, c->parallel, text);
}

#define AROUND                                                                                     \
    "w3 = nn.linear(8, 4), w2 = nn.linear(4, 8), forward = function(m, x) return m.w1(x) end }"

static void mistakes_in_a_mixture_are_reported(void **state)
{
    (void)state;
    static const Refused cases[] = {
        {"nn.moe(4)", "", "", "wrong-type", "needs a table, not number"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, topk = 1 }", "", "", "unknown-key",
         "did you mean 'top_k'"},
        {"nn.moe { dim = 8, hidden = 4 }", "", "", "wrong-type", "experts must be an integer"},
        {"nn.moe { hidden = 4, experts = 4 }", "", "", "wrong-type", "dim must be an integer"},
        {"nn.moe { dim = 8, experts = 4 }", "", "", "wrong-type", "hidden must be an integer"},
        {"nn.moe { dim = 8, hidden = 4, experts = 0 }", "", "", "out-of-range", "experts = 0"},
        {"nn.moe { dim = 8, hidden = 4, experts = 1025 }", "", "", "out-of-range",
         "is more than 1024"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, top_k = 5 }", "", "", "out-of-range",
         "top_k may be 1 to 4"},
        {"nn.moe { dim = 8, hidden = 4, experts = 1 }", "", "", "out-of-range",
         "top_k = 2 is not possible with 1"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, capacity_factor = 0 }", "", "", "out-of-range",
         "must be positive"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, capacity_factor = 'most' }", "", "",
         "unknown-word", "\"all\""},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, capacity_factor = {} }", "", "", "wrong-type",
         "capacity_factor must be a number"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, capacity_factor = true }", "", "",
         "wrong-type", "must be a number, \"all\" or \"dropless\", not boolean"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, capacity_factor = 0 / 0 }", "", "",
         "out-of-range", "or \"all\" or \"dropless\""},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, normalise = 1 }", "", "", "wrong-type",
         "normalise must be true or false"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, aux_loss = -1 }", "", "", "out-of-range",
         "0 leaves it out"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, z_loss = -1 }", "", "", "out-of-range",
         "0 leaves it out"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, balance_rate = 0.1 }", "", "", "out-of-range",
         "sigmoid = true"},
        {"nn.moe { dim = 8, hidden = 4, experts = 4, out_init = 0 }", "", "", "wrong-type",
         "init must be"},
        {"nn.moe { dim = 6, hidden = 4, experts = 4 }", "", "", "shape-mismatch", "router"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(&cases[i]);
}

/* Each token chooses the experts with the largest sigmoid plus bias. The gradient of the bias
 * counts choices. The update moves the bias towards equal shares. */
static void a_bias_balances_the_choices(void **state)
{
    (void)state;
    double logits[] = {1, 0, -1, 2, 1, 0}, bias[] = {0, 0, 0.6}, counts[] = {1, 0, 0};
    int32_t ids[2];
    const Value of_logits = {DT_f64, 3, {1, 2, 3}, logits}, of_bias = {DT_f64, 1, {3}, bias};
    const Value of_ids = {DT_i32, 3, {1, 2, 1}, ids}, of_counts = {DT_f64, 1, {3}, counts};
    const Attrs choose = {.top_k = 1, .experts = 3, .capacity = 2};
    eval_op(OP_topk_biased, &choose, (Value[]){of_logits, of_bias, of_ids}, 2, 1, NULL, NULL, 0);
    assert_int_equal(ids[0], 2); /* expert 2 has 0.269 + 0.6, and expert 0 only 0.731 */
    assert_int_equal(ids[1], 2); /* expert 2 has 0.5 + 0.6, and expert 0 only 0.881 */
    const Attrs more = {.accumulate = 1};
    eval_op(OP_loads, &more, (Value[]){of_ids, of_counts}, 1, 1, NULL, NULL, 0);
    assert_true(counts[0] == 1 && counts[1] == 0 && counts[2] == 2);
    const Attrs step = {.scale = 0.25, .mean = 1};
    eval_op(OP_sign_step, &step, (Value[]){of_bias, of_counts, of_bias}, 2, 1, NULL, NULL, 0);
    assert_true(bias[0] == 0 && bias[1] == 0.25 && bias[2] == 0.6 - 0.25);
}

#define SIX "nn.moe { dim = 8, hidden = 4, experts = 6 }"
static const char six[] = SIX;
static const char none[] = "nn.module { w1 = nn.linear(8, 4), w3 = nn.linear(8, 4),\n"
                           "  w2 = nn.linear(4, 8), forward = function(m, x)\n"
                           "    return m.w2(nn.silu(m.w1(x)) * m.w3(x)) end }";

static void mistakes_in_ep_are_reported(void **state)
{
    (void)state;
    static const Refused cases[] = {
        {six, "ep = 4", "ep {}, fsdp2 {}", "divides-experts", "ep may be 1, 2, 3, 6"},
        {none, "ep = 2", "ep {}, fsdp2 {}", "ep-matched-nothing", "nn.moe"},
        {six, "ep = 2", "fsdp2 {}", "axis-unused", "add ep{}"},
        {six, "ep = 2", "ep {}", "data-none", "add fsdp2{}"},
        {six, "ep = 2, tp = 2", "ep {}, tp {}, fsdp2 {}", "pass-order",
         "{ tp{...}, ep{...}, fsdp2{...} }"},
        {six, "ep = 2", "fsdp2 {}, ep {}", "pass-order", "hold different experts"},
        {six, "ep = 2", "zero 'optim', ep {}", "pass-order", "{ ep{...}, zero{...} }"},
        {six, "ep = 2", "ddp {}, ep {}", "pass-order", "{ ep{...}, ddp{...} }"},
        {six, "ep = 2", "ac 'full', ep {}, fsdp2 {}", "pass-order", "exchange of tokens"},
        {six, "ep = 2", "float8 {}, ep {}, fsdp2 {}", "pass-order", "{ ep{...}, float8{...}"},
        {six, "ep = 2", "compile 'block', ep {}, fsdp2 {}", "pass-order",
         "{ ep{...}, compile{...}, fsdp2{...} }"},
        {six, "ep = 2", "ep {}, fsdp2 {}, ep {}", "pass-twice", "write one ep{}"},
        {six, "ep = 2", "ep { experts = 2 }, fsdp2 {}", "unknown-key", "experts"},
        {six, "ep = 3", "ep {}, fsdp2 {}", "divides-batch", "8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(&cases[i]);
    Result r = plan_with(six, "dp_shard = 2", "ep {}, fsdp2 {}");
    if (!r.plan || !strstr(told(&r), "ep{} has no effect, because mesh.ep is 1"))
        fail_msg("%s", told(&r));
}

/* If ep is carved only out of dp_shard, the plan is the same as with a separate axis ep. */
static void ep_folded_into_dp_shard_equals_a_separate_axis(void **state)
{
    (void)state;
    Result folded = plan_with(six, "dp_shard = 4, ep = 2, ep_mode = 'folded'", "ep {}, fsdp2 {}"),
           extra = plan_with(six, "dp_shard = 2, ep = 2", "ep {}, fsdp2 {}");
    if (!folded.plan || !extra.plan) fail_msg("%s%s", told(&folded), told(&extra));
    assert_int_equal(folded.plan->mesh.n_ranks, 4);
    const Hash128 a = text_plan_id(folded.plan, arena), b = text_plan_id(extra.plan, arena);
    assert_memory_equal(&a, &b, sizeof a);
}

typedef struct Exchanges {
    /* n counts each all_to_all on stream ep along ep alone, and `other` every other one. */
    uint32_t n, other;
    uint64_t bytes;
} Exchanges;

static Exchanges exchanges(const Plan *plan)
{
    Exchanges x = {0, 0, 0};
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (in->op != OP_all_to_all) continue;
            const bool own = in->stream == STREAM_ep && in->axes == mesh_axes(&plan->mesh, AXIS_ep);
            x.n += own, x.other += !own;
            x.bytes += plan_comm_bytes(plan, p, in);
        }
    }
    return x;
}

/* Experts are folded over tp, or over tp and data ranks. The test checks which axes split them, and
 * their exchanges. The ranks of tp divide the rows among them, so no row is sent twice. If ep is a
 * separate axis beside tp, a rank sends whole rows and gets back parts of rows. */
static void folded_experts_are_divided_over_ranks_of_tp(void **state)
{
    (void)state;
    static const char *const twelve =
        "nn.moe { dim = 8, hidden = 12, experts = 12, capacity_factor = 12 }";
    static const struct {
        const char *mesh, *axes, *inside; /* inside: the axes that split each single expert */
        /* n: the number of exchanges; each one moves `sent` / `of` of the rows */
        uint32_t n, sent, of;
    } cases[] = {
        {"dp_shard = 2, tp = 2, ep = 2, ep_mode = 'folded'", "tp", "-", 0, 1, 1},
        {"dp_shard = 2, tp = 4, ep = 2, ep_mode = 'folded'", "tp.1", "tp.0", 0, 1, 1},
        {"dp_shard = 4, tp = 2, ep = 4, ep_mode = 'folded'", "tp,ep", "-", 4, 1, 2},
        {"dp_replicate = 2, dp_shard = 2, tp = 3, ep = 12, ep_mode = 'folded'", "tp,ep", "-", 4, 1,
         3},
        {"dp_shard = 2, ep = 2, tp = 2", "ep", "tp", 4, 3, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Result r = plan_with(twelve, cases[i].mesh, "tp {}, ep {}, fsdp2 {}");
        if (!r.plan) fail_msg("%s: %s", cases[i].mesh, told(&r));
        const Tensor *w1 = param(&r.plan->graph, "b.moe.w1.weight");
        const Mesh *mesh = &r.plan->mesh;
        assert_string_equal(mesh_axes_text(arena, mesh, layout_axes_split(&w1->use, 0)),
                            cases[i].axes);
        assert_string_equal(mesh_axes_text(arena, mesh, layout_axes_split(&w1->use, 2)),
                            cases[i].inside);
        assert_int_equal(experts_axes(&r.plan->graph), layout_axes_split(&w1->use, 0));
        const Exchanges x = exchanges(r.plan);
        const uint64_t rows = 12 * 6 * 8; /* experts, slots of a sequence, features */
        const uint32_t steps = 8 / mesh_dp_size(mesh);
        assert_int_equal(x.n, cases[i].n * steps);
        assert_int_equal(x.other, 0);
        assert_int_equal(x.bytes * cases[i].of, x.n * rows * 4 * cases[i].sent);
    }
}

/* Tokens go to the experts and back, in the forward and in the backward pass: 4 exchanges for each
 * layer and micro-batch, and 6 if a block is recomputed. Each exchange moves the rows of all
 * experts. */
static void tokens_are_exchanged_to_experts_and_back(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= 3; m++)
        for (uint32_t layers = 1; layers <= 3; layers++)
            for (int ac = AC_none; ac <= AC_full; ac++)
                for (uint32_t ep = 1; ep <= 4; ep *= 2) {
                    Tiny t = tiny_default();
                    t.experts = 8, t.capacity = 3, t.ep = ep, t.layers = layers;
                    t.microbatches = m, t.ac = (AcMode)ac, t.micro = 2;
                    Diag d = diag_in(arena);
                    const Plan *plan = tiny_plan(&t, false, arena, &d);
                    assert_non_null(plan);
                    const Exchanges x = exchanges(plan);
                    const uint32_t n = ep == 1 ? 0 : m * layers * (ac == AC_full ? 6 : 4);
                    const uint64_t rows = 8 * 2 * 3 * 12; /* experts, sequences, slots, features */
                    assert_int_equal(x.n, n);
                    assert_int_equal(x.other, 0);
                    assert_int_equal(x.bytes, n * rows * 4);
                }
}

/* The gradients of experts are summed over the ranks with the same experts. All other gradients are
 * summed over all ranks with samples. */
static void experts_form_a_separate_unit(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        Tiny t = tiny_default();
        t.experts = 4, t.ep = 2, t.dp_replicate = 2, t.dp_shard = kind == 1 || kind == 3 ? 2 : 1;
        t.use_ddp = kind == 0, t.use_zero = kind >= 2;
        t.zero = kind == 2 ? ZERO_no_shard : ZERO_optim_grads;
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Graph *g = &plan->graph;
        const AxisSet ep = mesh_axes(&plan->mesh, AXIS_ep),
                      replicate = mesh_axes(&plan->mesh, AXIS_dp_replicate),
                      shard = mesh_axes(&plan->mesh, AXIS_dp_shard);
        uint32_t n = 0;
        for (TensorId id = 1; id < g->tensors.n; id++) {
            const Tensor *at = &g->tensors.at[id];
            if (at->role != ROLE_param) continue;
            const bool own = at->n_dims == 3 && strstr(at->name, "feed_forward") != NULL;
            const Unit *unit = &g->units.at[at->unit];
            assert_int_equal(layout_axes_split(&at->use, 0) & ep, own ? ep : 0);
            assert_int_equal(unit->shard | unit->replicate, replicate | shard | (own ? 0 : ep));
            n += own;
        }
        assert_int_equal(n, 2 * 3);
    }
}

/* Path patterns, like the model's own marks, split each expert over tp instead of dividing the
 * experts among ranks. */
static void path_patterns_split_each_expert(void **state)
{
    (void)state;
    Result r = plan_with(six, "tp = 2, ep = 2",
                         "tp { plan = { ['b.moe.w1'] = 'colwise', ['b.moe.w3'] = 'colwise', "
                         "['b.moe.w2'] = 'rowwise' } }, ep {}, ddp {}");
    if (!r.plan) fail_msg("%s", told(&r));
    const AxisSet tp = mesh_axes(&r.plan->mesh, AXIS_tp), ep = mesh_axes(&r.plan->mesh, AXIS_ep);
    const Tensor *up = param(&r.plan->graph, "b.moe.w1.weight"),
                 *down = param(&r.plan->graph, "b.moe.w2.weight");
    assert_int_equal(layout_axes_split(&up->use, 2), tp);
    assert_int_equal(layout_axes_split(&down->use, 1), tp);
    assert_int_equal(layout_axes_split(&up->use, 0), ep);
    assert_int_equal(exchanges(r.plan).other, 0);
}

/* A weight that a token meets counts once, however often its module is called. */
static void active_parameters_count_each_weight_once(void **state)
{
    (void)state;
    Result once = plan_with(six, "dp_replicate = 2", "ddp {}");
    Result twice = plan_of("local nn = require 'tandem.nn'\n"
                           "return plan { batch = { seq = 6, global = 8, micro = 1 },\n"
                           "  mesh = { dp_replicate = 2 }, parallel = { ddp {} },\n"
                           "  model = nn.module { e = nn.embedding(12, 8), norm = nn.rmsnorm(8),\n"
                           "    moe = " SIX ", h = nn.linear(8, 12),\n"
                           "    forward = function(m, t, y)\n"
                           "      local x = m.moe(m.moe(m.norm(m.e(t))))\n"
                           "      return nn.cross_entropy(m.h(x), y) end } }\n");
    if (!once.plan) fail_msg("%s", told(&once));
    const uint64_t all = once.plan->graph.info.n_params_no_embedding;
    assert_int_equal(experts_active_params(&once.plan->graph), all - 3 * 8 * 4 * (6 - 2));
    if (!twice.plan) fail_msg("%s", told(&twice));
    assert_int_equal(experts_active_params(&twice.plan->graph), all - 3 * 8 * 4 * (6 - 2));
    const Graph *g = &twice.plan->graph; /* a text that was not proven may contain anything */
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].op == OP_dispatch)
            twice.plan->graph.attrs.at[g->nodes.at[id].attrs].experts = 0;
    assert_int_equal(experts_active_params(g), all);
}

/* With reshard_last = false, the last block's experts stay gathered like the rest of the block. */
static void the_last_block_keeps_both_its_units(void **state)
{
    (void)state;
    uint32_t gathers[2] = {0, 0};
    for (int whole = 0; whole < 2; whole++) {
        Tiny t = tiny_default();
        t.experts = 4, t.ep = 2, t.dp_shard = 2;
        t.fsdp2.reshard_after_forward = RESHARD_true;
        t.fsdp2.reshard_last = whole != 0;
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Program *p = plan_program(plan, 0);
        for (Pc pc = 1; pc < p->code.n; pc++)
            gathers[whole] += p->code.at[pc].op == OP_all_gather && p->code.at[pc].unit != 0;
    }
    assert_int_equal(gathers[1], gathers[0] + 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mixture_traces_to_this_graph),
        TEST(capacity_counts_the_tokens_of_a_sequence),
        TEST(mistakes_in_ep_are_reported),
        TEST(mistakes_in_a_mixture_are_reported),
        TEST(tokens_are_exchanged_to_experts_and_back),
        TEST(experts_form_a_separate_unit),
        TEST(ep_folded_into_dp_shard_equals_a_separate_axis),
        TEST(folded_experts_are_divided_over_ranks_of_tp),
        TEST(path_patterns_split_each_expert),
        TEST(a_bias_balances_the_choices),
        TEST(active_parameters_count_each_weight_once),
        TEST(the_last_block_keeps_both_its_units),
    };
    return cmocka_run_group_tests_name("moe", tests, NULL, NULL);
}
