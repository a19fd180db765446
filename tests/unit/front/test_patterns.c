/* A script may name modules by path patterns, to say how weights are split, which regions are
 * recomputed and what forms a unit. The patterns must set the right marks. Every such plan must
 * compute what one rank computes. tests/bad_input has the refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "tests/support/command.h"

typedef struct Compiled {
    Arena *arena;
    Config config;
    const Graph *graph;
} Compiled;

/* Compiles the plan up to `pass`, and returns the graph after it. */
static Compiled compile(const char *model, const char *mesh, const char *parallel, const char *pass)
{
    Compiled c = {.arena = arena_new()};
    Diag d = diag_in(c.arena);
    command_write_file("script.lua",
                       arena_print(c.arena,
                                   "return plan { model = require 'models.%s,\n"
                                   "  batch = { global = 4, seq = 64 }, mesh = { %s },\n"
                                   "  parallel = { %s } }\n",
                                   model, mesh, parallel));
    Graph graph;
    Plan *plan = NULL;
    LowerOptions options = lower_options_default();
    if (front_load("script.lua", NULL, c.arena, &c.config, &graph, &d))
        plan = plan_compile(&c.config, &graph, &options, pass, c.arena, &d);
    Str text = str_in(c.arena);
    diag_print(&d, &text);
    if (!plan) fail_msg("%s", str_text(&text));
    c.graph = &plan->graph;
    return c;
}

static const Tensor *param(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (strcmp(g->tensors.at[t].name, name) == 0) return &g->tensors.at[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

static bool is_of(const Graph *g, const Node *n, const char *module)
{
    return n->module && strcmp(g->modules.at[n->module].path, module) == 0;
}

static const Tensor *output_of(const Graph *g, const char *module)
{
    for (NodeId id = g->nodes.n; id-- > 1;)
        if (is_of(g, &g->nodes.at[id], module)) return &g->tensors.at[g->nodes.at[id].out[0]];
    fail_msg("no module %s", module);
    return NULL;
}

static void styles_split_the_named_dimensions(void **state)
{
    (void)state;
    Compiled c =
        compile("llama' 'tiny'", "tp = 2",
                "tp { plan = { ['layers.*.attention.wo'] = 'colwise_rep',\n"
                "  ['layers.1.feed_forward.w2'] = 'rowwise_rep', tok_embeddings = 'colwise',\n"
                "  ['layers.*.ffn_norm'] = 'sequence_parallel' } }",
                "propagate");
    const Graph *g = c.graph;
    assert_int_equal(c.config.passes[0].tp.plan.n, 4);
    assert_int_equal(param(g, "layers.0.attention.wo.weight")->use.on[0], SPLIT(3));
    assert_int_equal(output_of(g, "layers.0.attention.wo")->use.on[0], WHOLE);
    assert_int_equal(param(g, "layers.1.feed_forward.w2.weight")->use.on[0], SPLIT(0));
    assert_int_equal(param(g, "tok_embeddings.weight")->use.on[0], SPLIT(1));
    assert_int_equal(output_of(g, "tok_embeddings")->use.on[0], SPLIT(2));
    assert_int_equal(output_of(g, "layers.1.ffn_norm")->use.on[0], SPLIT(1));
    assert_int_equal(param(g, "layers.1.ffn_norm.weight")->use.on[0], WHOLE);
    /* Each rank computes a part of the norm, instead of computing all of it and keeping a part. */
    uint32_t n_norms = 0, n_products = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (is_of(g, n, "layers.1.ffn_norm")) {
            assert_int_equal(n->split[0], 's');
            n_norms++;
        }
        if (is_of(g, n, "layers.1.feed_forward.w2")) {
            assert_int_equal(g->tensors.at[n->in[0]].use.on[0], WHOLE);
            n_products++;
        }
    }
    assert_int_equal(n_norms, 1);
    assert_int_equal(n_products, 1);
    /* Tensors that no pattern names follow the marks of the model. */
    assert_int_equal(param(g, "layers.0.attention.wq.weight")->use.on[0], SPLIT(1));
    assert_int_equal(param(g, "layers.0.feed_forward.w1.weight")->use.on[0], SPLIT(1));
    assert_int_equal(output_of(g, "layers.0.attention_norm")->use.on[0], WHOLE);
    arena_free(c.arena);
}

/* Returns the layouts in use of a model's parameters, as text. Its weights have several segments,
 * and biases. `marks` are marks of the model, `parallel` the passes of the plan. */
static const char *layouts_of(Arena *arena, const char *marks, const char *parallel)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    command_write_file(
        "marks.lua",
        arena_print(arena,
                    "local nn = require 'tandem.nn'\n"
                    "local function build() return nn.module { %s\n"
                    "  embed = nn.embedding(32, 8), head = nn.linear(8, 32, { bias = true }),\n"
                    "  both = nn.linear(8, 32, { segments = 2, bias = true }),\n"
                    "  wide = nn.linear(8, 16, { bias = true }),\n"
                    "  down = nn.linear(16, 8, { bias = true }),\n"
                    "  forward = function(m, tokens, labels)\n"
                    "    local x = m.embed(tokens)\n"
                    "    local y = m.both(x)\n"
                    "    y = nn.silu(nn.segment(y, 1)) * nn.segment(y, 2)\n"
                    "    return nn.cross_entropy(m.head(m.down(y + m.wide(x))), labels) end } end\n"
                    "return plan { model = { name = 'm', config = {}, build = build },\n"
                    "  batch = { global = 2, seq = 8 }, mesh = { tp = 2 }, parallel = { %s } }\n",
                    marks, parallel));
    LowerOptions options = lower_options_default();
    Plan *plan = NULL;
    Str text = str_in(arena), errors = str_in(arena);
    if (front_load("marks.lua", NULL, arena, &config, &graph, &d))
        plan = plan_compile(&config, &graph, &options, "propagate", arena, &d);
    diag_print(&d, &errors);
    if (!plan) fail_msg("%s", str_text(&errors));
    for (TensorId t = 1; t < plan->graph.tensors.n; t++) {
        const Tensor *at = &plan->graph.tensors.at[t];
        if (at->role == ROLE_param) str_print(&text, "%s %d\n", at->name, at->use.on[0]);
    }
    return str_text(&text);
}

/* Patterns that say the same as the model's marks split the same dimension of every weight and
 * bias. */
static void patterns_equal_to_the_marks_give_the_same_layouts(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *marked = layouts_of(
        arena, "tp_vocab = { 'embed', 'head' }, tp_col = { 'both', 'wide' }, tp_row = 'down',",
        "tp {}");
    const char *named =
        layouts_of(arena, "",
                   "tp { plan = { embed = 'rowwise', head = 'colwise', both = 'colwise',"
                   " wide = 'colwise', down = 'rowwise' } }");
    assert_string_equal(marked, named);
    /* the bias is split as a whole, not within each segment */
    const char *bias = arena_print(arena, "both.bias %d\n", SPLIT(1));
    assert_non_null(strstr(marked, bias));
    arena_free(arena);
}

static void verify(const char *model, const char *mesh, const char *parallel)
{
    Arena *arena = arena_new();
    command_write_file(
        "verify.lua", arena_print(arena,
                                  "return plan { model = require 'models.%s,\n"
                                  "  batch = { global = 16, micro = 2, seq = 64 }, mesh = { %s },\n"
                                  "  parallel = { %s } }\n",
                                  model, mesh, parallel));
    CommandResult r = COMMAND(arena, 60, "run", "verify.lua", "--verify", "--db", "none");
    if (r.exit_code != 0) print_error("%s: %s\n%s%s", model, parallel, r.out, r.err);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
    arena_free(arena);
}

/* With plan_only, the model's own marks do not count, and only the named modules are split. */
static void plan_only_splits_only_the_named_modules(void **state)
{
    (void)state;
    for (int only = 0; only < 2; only++) {
        const char *tp = only ? "tp { plan_only = true, plan = { ['layers.*.feed_forward.w1'] ="
                                " 'colwise', ['layers.*.feed_forward.w2'] = 'rowwise' } }"
                              : "tp { plan = { ['layers.*.feed_forward.w1'] = 'colwise',"
                                " ['layers.*.feed_forward.w2'] = 'rowwise' } }";
        const Compiled c = compile("llama' 'tiny'", "tp = 2", tp, "tp");
        uint32_t n_named = 0, n_other = 0;
        for (TensorId t = 1; t < c.graph->tensors.n; t++) {
            const Tensor *at = &c.graph->tensors.at[t];
            if (at->role != ROLE_param || at->tp == TP_none) continue;
            const bool named = strstr(at->name, "feed_forward.w1.") != NULL ||
                               strstr(at->name, "feed_forward.w2.") != NULL;
            n_named += named, n_other += !named;
        }
        assert_true(n_named > 0);
        assert_true((n_other == 0) == (only == 1));
        arena_free(c.arena);
    }
}

static void every_style_computes_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"llama' '3.1-8b'", "['layers.*.attention.wo'] = 'rowwise', output = 'colwise'"},
        {"llama' '3.1-8b'", "['layers.*.attention.wo'] = 'rowwise_rep', output = 'colwise_rep',"
                            "['layers.*.feed_forward.w1'] = 'colwise_rep',"
                            "['layers.*.attention.wq'] = 'rowwise_rep'"},
        {"llama' '3.1-8b'", "['layers.*.attention_norm'] = 'sequence_parallel',"
                            "norm = 'sequence_parallel', tok_embeddings = 'sequence_parallel'"},
        {"phi' '3-mini'", "['layers.*.attention.wq'] = 'rowwise_rep',"
                          "['layers.*.attention.wk'] = 'rowwise_rep',"
                          "['layers.*.attention.wv'] = 'rowwise_rep',"
                          "['layers.*.attention.wo'] = 'colwise_rep'"},
        {"gpt2' '124m'", "wte = 'rowwise', head = 'colwise'"},
        {"gpt2' '124m'",
         "['layers.*.mlp.up'] = 'colwise_rep', ['layers.*.mlp.down'] = 'rowwise_rep',"
         "['layers.*.ln_1'] = 'sequence_parallel', wte = 'colwise'"},
        {"qwen' '3-8b'", "['layers.0.attention.q_norm'] = 'sequence_parallel'"},
        {"phi' '2'", "head = 'colwise_rep', embed = 'rowwise_rep'"},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        verify(plans[i][0], "dp_shard = 2, tp = 2",
               arena_print(arena, "tp { sequence = %s, plan = { %s } }, fsdp2 {}",
                           i % 2 ? "true" : "false", plans[i][1]));
    arena_free(arena);
}

/* tp has two parts: it splits KV heads, and query heads of one KV head. A pattern's layout then
 * changes two nested parts of one dimension. */
static void styles_fit_more_ranks_than_kv_heads(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"llama' { size = 'tiny', layers = 2 }",
         "sequence = true, plan = { ['layers.*.attention.wq'] = 'rowwise' }"},
        {"llama' { size = 'tiny', layers = 2 }",
         "sequence = true, plan = { ['layers.*.attention.wk'] = 'rowwise',"
         "['layers.*.attention.wv'] = 'rowwise_rep' }"},
        {"llama' { size = 'tiny', layers = 2 }",
         "plan = { ['layers.*.attention.wq'] = 'sequence_parallel' }"},
        {"qwen' { size = '3-tiny', layers = 2 }",
         "sequence = true, plan = { ['layers.*.attention.q_norm'] = 'sequence_parallel' }"},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        verify(plans[i][0], "dp_shard = 2, tp = 4",
               arena_print(arena, "tp { %s }, fsdp2 {}", plans[i][1]));
    arena_free(arena);
}

/* Only the feed-forward is split. The embedding reads the whole tied table, but the head reads it
 * for a part of the sequence. So one contribution to the table's gradient is whole, and the other
 * is a partial sum. */
static void a_tied_head_may_read_a_part_of_the_sequence(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"qwen' '2.5-0.5b'", "['layers.*.feed_forward.w1'] = 'colwise',"
                             "['layers.*.feed_forward.w3'] = 'colwise',"
                             "['layers.*.feed_forward.w2'] = 'rowwise'"},
        {"gpt2' '124m'", "['layers.*.mlp.up'] = 'colwise', ['layers.*.mlp.down'] = 'rowwise'"},
        {"gemma' '3-1b'", "['layers.*.mlp.gate'] = 'colwise', ['layers.*.mlp.up'] = 'colwise',"
                          "['layers.*.mlp.down'] = 'rowwise'"},
    };
    static const char *const data[][3] = {{"tp = 2", "", ""},
                                          {"dp_shard = 2, tp = 2", "", ", fsdp2 {}"},
                                          {"pp = 2, tp = 2", "pp '1f1b', ", ""}};
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (size_t k = 0; k < sizeof data / sizeof *data; k++)
            verify(plans[i][0], data[k][0],
                   arena_print(arena, "%stp { sequence = true, plan_only = true, plan = { %s } }%s",
                               data[k][1], plans[i][1], data[k][2]));
    arena_free(arena);
}

/* A head that stays split over the sequence makes the loss a sum over tp, too. */
static void the_loss_is_summed_over_a_split_sequence(void **state)
{
    (void)state;
    static const char plan[] = "tp { sequence = true, plan = { output = 'sequence_parallel',"
                               "tok_embeddings = 'sequence_parallel' } }";
    Arena *arena = arena_new();
    verify("llama' '3.1-8b'", "tp = 2", plan);
    verify("llama' '3.1-8b'", "dp_shard = 2, tp = 2", arena_print(arena, "%s, fsdp2 {}", plan));
    verify("llama' '3.1-8b'", "pp = 2, dp_shard = 2, tp = 2",
           arena_print(arena, "pp '1f1b', %s, fsdp2 {}", plan));
    arena_free(arena);
}

/* The proofs were once wrong for these units. One is a single norm weight, whose flat form equals
 * its own shape. The other is an embedding: its backward pass reads no weights, so a gather before
 * it serves the next micro-batch. */
static void plans_with_units_of_one_tensor_are_proven(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"dp_replicate = 2", "ddp { bucket_mib = 0.02 }"},
        {"dp_shard = 2", "fsdp2 { units = { 'norm', 'layers.*' } }"},
        {"dp_shard = 2", "fsdp2 { units = { 'layers.*', 'tok_embeddings' } }"},
        {"dp_shard = 2", "fsdp2 { units = { 'layers.*', 'tok_embeddings' }, prefetch = 2 }"},
        {"dp_shard = 2", "ac 'full', fsdp2 { units = { 'layers.*', 'tok_embeddings' } }"},
        {"pp = 2, dp_shard = 2", "pp 'v_half', ac 'full', fsdp2 {}"},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        verify("llama' { size = 'tiny', layers = 4 }", plans[i][0], plans[i][1]);
        CommandResult r = COMMAND(arena, 60, "check", "verify.lua");
        if (strstr(r.out, "verify-") || strstr(r.err, "verify-"))
            fail_msg("%s: %s%s", plans[i][1], r.out, r.err);
        assert_int_equal(r.exit_code, 0);
    }
    arena_free(arena);
}

static const char *region_path(const Graph *g, const char *module)
{
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (is_of(g, &g->nodes.at[id], module)) {
            uint32_t region = g->nodes.at[id].region;
            return region ? g->modules.at[region].path : "";
        }
    fail_msg("no module %s", module);
    return "";
}

static void regions_are_the_listed_modules(void **state)
{
    (void)state;
    Compiled c = compile("llama' { size = 'tiny', layers = 5 }", "tp = 1",
                         "ac { mode = 'full', every = 2 }", "ac");
    assert_string_equal(region_path(c.graph, "layers.0.attention.wq"), "");
    assert_string_equal(region_path(c.graph, "layers.1.attention.wq"), "layers.1");
    assert_string_equal(region_path(c.graph, "layers.2.feed_forward.w2"), "");
    assert_string_equal(region_path(c.graph, "layers.3.feed_forward.w2"), "layers.3");
    assert_string_equal(region_path(c.graph, "layers.4.ffn_norm"), "");
    assert_string_equal(region_path(c.graph, "norm"), "");
    arena_free(c.arena);
    c = compile("llama' 'tiny'", "tp = 1",
                "ac { modules = { 'layers.*.feed_forward', 'layers.0', 'layers.0.attention' } }",
                "ac");
    assert_string_equal(region_path(c.graph, "layers.0.feed_forward.w1"), "layers.0");
    assert_string_equal(region_path(c.graph, "layers.0.attention.wo"), "layers.0");
    assert_string_equal(region_path(c.graph, "layers.1.feed_forward.w1"), "layers.1.feed_forward");
    assert_string_equal(region_path(c.graph, "layers.1.attention.wo"), "");
    arena_free(c.arena);
    c = compile("llama' 'tiny'", "tp = 1", "ac { mode = 'none', modules = { 'layers.0' } }", "ac");
    assert_string_equal(region_path(c.graph, "layers.0.attention.wo"), "");
    arena_free(c.arena);
}

static const Unit *unit_of(const Graph *g, const char *name)
{
    return &g->units.at[param(g, name)->unit];
}

static void units_are_the_listed_modules(void **state)
{
    (void)state;
    Compiled c = compile("llama' 'tiny'", "dp_shard = 2",
                         "fsdp2 { units = { 'layers.*.attention', 'layers.1', 'tok_embeddings' } }",
                         "fsdp2");
    const Graph *g = c.graph;
    assert_int_equal(g->units.n, 1 + 5);
    assert_string_equal(unit_of(g, "tok_embeddings.weight")->name, "tok_embeddings");
    assert_string_equal(unit_of(g, "layers.0.attention.wq.weight")->name, "layers.0.attention");
    assert_string_equal(unit_of(g, "layers.1.attention.wq.weight")->name, "layers.1.attention");
    assert_string_equal(unit_of(g, "layers.1.feed_forward.w1.weight")->name, "layers.1");
    assert_string_equal(unit_of(g, "layers.0.feed_forward.w1.weight")->name, "root");
    assert_string_equal(unit_of(g, "output.weight")->name, "root");
    arena_free(c.arena);
}

static void regions_and_units_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"llama' '3.1-8b'", "ac { mode = 'full', every = 2 }, fsdp2 {}"},
        {"llama' '3.1-8b'",
         "ac { modules = { 'layers.*.feed_forward', 'norm' } }, fsdp2 { units = { "
         "'layers.*.attention', 'output' } }"},
        {"gpt2' '124m'", "ac { modules = { 'layers.*.mlp', 'layers.0.ln_1' }, every = 2 }, fsdp2 { "
                         "units = { 'wte', 'layers.*.mlp' }, reshard_after_forward = false }"},
        {"qwen' '3-0.6b'", "ac { mode = 'selective', every = 3 }, fsdp2 { units = { 'layers.*', "
                           "'tok_embeddings' }, reshard_root = true }"},
        {"llama' '3.1-8b'", "ac { modules = { 'layers.31' } }, fsdp2 { units = { 'layers.30' } }"},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        verify(plans[i][0], "dp_shard = 2, tp = 2",
               arena_print(arena, "tp { sequence = true }, %s", plans[i][1]));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(styles_split_the_named_dimensions),
        cmocka_unit_test(patterns_equal_to_the_marks_give_the_same_layouts),
        cmocka_unit_test(plan_only_splits_only_the_named_modules),
        cmocka_unit_test(every_style_computes_what_one_rank_does),
        cmocka_unit_test(regions_are_the_listed_modules),
        cmocka_unit_test(units_are_the_listed_modules),
        cmocka_unit_test(regions_and_units_compute_what_one_rank_does),
        cmocka_unit_test(styles_fit_more_ranks_than_kv_heads),
        cmocka_unit_test(a_tied_head_may_read_a_part_of_the_sequence),
        cmocka_unit_test(plans_with_units_of_one_tensor_are_proven),
        cmocka_unit_test(the_loss_is_summed_over_a_split_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
