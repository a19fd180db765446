/* tandem.nn as people use it for their own models: each module and each function gives the right
 * nodes and parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "planner/front/front.h"
#include "tests/support/command.h"

typedef struct Traced {
    Arena *arena;
    Graph graph;
    Config config;
} Traced;

/* Traces the body of a plan's build function, in which nn is available. */
static Traced trace(const char *body)
{
    Traced t = {.arena = arena_new()};
    Diag d = diag_in(t.arena);
    command_write_file(
        "own.lua",
        arena_print(t.arena,
                    "local nn = require 'tandem.nn'\n"
                    "local function build(c)\n%s\nend\n"
                    "return plan { batch = { seq = 6, global = 4, micro = 2 },\n"
                    "  model = { name = 'own', config = { dim = 8 }, build = build } }\n",
                    body));
    bool fine = front_load("own.lua", NULL, t.arena, &t.config, &t.graph, &d);
    Str text = str_in(t.arena);
    diag_print(&d, &text);
    if (!fine) print_error("%s", str_text(&text));
    assert_true(fine);
    return t;
}

static void assert_ops(const Traced *t, const OpKind *ops, uint32_t n)
{
    assert_int_equal(t->graph.nodes.n, n + 1);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(t->graph.nodes.at[i + 1].op, ops[i]);
}

static const Tensor *param(const Traced *t, const char *name)
{
    for (TensorId id = 1; id < t->graph.tensors.n; id++)
        if (strcmp(t->graph.tensors.at[id].name, name) == 0) return &t->graph.tensors.at[id];
    print_error("no parameter %s\n", name);
    fail();
    return NULL;
}

static void every_module_and_function_traces(void **state)
{
    (void)state;
    Traced t =
        trace("  local e = nn.embedding(11, c.dim, { init = nn.uniform(-1, 1) })\n"
              "  return nn.module {\n"
              "    e = e, p = nn.position(16, c.dim),\n"
              "    norms = nn.list { nn.layernorm(c.dim), nn.rmsnorm(c.dim, { eps = 1e-6 }) },\n"
              "    a = nn.attention { dim = c.dim, heads = 4, kv_heads = 2, causal = false, bias = "
              "true },\n"
              "    up = nn.linear(c.dim, 12, { bias = true, init = nn.zeros }),\n"
              "    down = nn.linear(12, c.dim),\n"
              "    head = nn.linear(c.dim, 11, { weight = e, bias = true }),\n"
              "    forward = function(m, t, y)\n"
              "      local x = m.norms(m.p(m.e(t)))\n"
              "      x = x + m.a(x)\n"
              "      x = nn.rope(x, { theta = 100 }) * m.down(nn.gelu(m.up(x)))\n"
              "      return nn.cross_entropy(m.head(nn.silu(x)), y)\n"
              "    end }\n");
    static const OpKind ops[] = {
        OP_batch,    OP_embed,     OP_position,    OP_layernorm, OP_rmsnorm,  OP_linear_q,
        OP_bias,     OP_linear_kv, OP_bias,        OP_linear_kv, OP_bias,     OP_attention,
        OP_linear_o, OP_bias,      OP_add,         OP_rope,      OP_linear,   OP_bias,
        OP_gelu,     OP_linear,    OP_mul,         OP_silu,      OP_linear_t, OP_bias,
        OP_xent_max, OP_xent_pick, OP_xent_sumexp, OP_xent_loss};
    assert_ops(&t, ops, sizeof ops / sizeof *ops);
    assert_int_equal(param(&t, "p.weight")->dim[0], 6);
    assert_int_equal(param(&t, "norms.0.weight")->init.kind, INIT_ones);
    assert_int_equal(param(&t, "up.weight")->init.kind, INIT_zeros);
    assert_int_equal(param(&t, "e.weight")->init.kind, INIT_uniform);
    assert_true(param(&t, "e.weight")->init.a == -1 && param(&t, "e.weight")->init.b == 1);
    assert_int_equal(param(&t, "a.wk.bias")->n_dims, 2);
    assert_int_equal(param(&t, "head.bias")->dim[0], 11);
    for (NodeId n = 1; n < t.graph.nodes.n; n++) {
        const Node *node = &t.graph.nodes.at[n];
        const Attrs *a = graph_attrs_at(&t.graph, node->attrs);
        if (node->op == OP_attention) assert_int_equal(a->causal, 0);
        if (node->op == OP_rmsnorm) assert_true(a->eps == 1e-6);
        if (node->op == OP_rope) assert_true(a->theta == 100 && a->rope_factor == 0);
        if (node->op == OP_xent_loss) assert_true(a->scale == 1.0 / 24);
        assert_string_equal(node->loc.file, "own.lua");
    }
    assert_int_equal(t.graph.nodes.at[21].loc.line, 14); /* the product `*` */
    assert_int_equal(t.graph.info.n_layers, 0);
    assert_string_equal(t.graph.info.name, "own");
    arena_free(t.arena);
}

static void a_shared_module_has_one_weight(void **state)
{
    (void)state;
    Traced t = trace(
        "  local shared = nn.linear(c.dim, c.dim)\n"
        "  return nn.module { e = nn.embedding(5, c.dim), first = shared,\n"
        "    second = nn.module { inner = shared, forward = function(m, x) return m.inner(x) end "
        "},\n"
        "    head = nn.linear(c.dim, 5),\n"
        "    forward = function(m, t, y)\n"
        "      return nn.cross_entropy(m.head(m.second(m.first(m.first(m.e(t))))), y) end }\n");
    TensorId weight = 0;
    uint32_t uses = 0, params = 0;
    for (TensorId id = 1; id < t.graph.tensors.n; id++) {
        params += t.graph.tensors.at[id].role == ROLE_param;
        if (strcmp(t.graph.tensors.at[id].name, "first.weight") == 0) weight = id;
    }
    assert_int_not_equal(weight, 0);
    for (NodeId n = 1; n < t.graph.nodes.n; n++) uses += t.graph.nodes.at[n].in[1] == weight;
    assert_int_equal(uses, 3);
    assert_int_equal(params, 3);
    assert_int_equal(t.graph.info.n_params, 5 * 8 + 8 * 8 + 8 * 5);
    arena_free(t.arena);
}

static void marks_of_modules_reach_the_graph(void **state)
{
    (void)state;
    Traced t =
        trace("  local function layer() return nn.block {\n"
              "    f = nn.module { up = nn.linear(c.dim, 12, { bias = true }), down = "
              "nn.linear(12, c.dim, { bias = true }),\n"
              "      fsdp2_shard = true, forward = function(m, x) return m.down(m.up(x)) end },\n"
              "    tp_col = 'f.up', tp_row = { 'f.down' }, forward = function(m, x) return x + "
              "m.f(x) end } end\n"
              "  return nn.module { e = nn.embedding(5, c.dim), layers = nn.list(3, layer), head = "
              "nn.linear(c.dim, 5),\n"
              "    tp_vocab = { 'e', 'head' }, forward = function(m, t, y)\n"
              "      return nn.cross_entropy(m.head(m.layers(m.e(t))), y) end }\n");
    static const struct {
        const char *name;
        TpStyle tp;
    } styles[] = {{"e.weight", TP_vocab},
                  {"head.weight", TP_vocab},
                  {"layers.2.f.up.weight", TP_column},
                  {"layers.2.f.up.bias", TP_column},
                  {"layers.2.f.down.weight", TP_row},
                  {"layers.2.f.down.bias", TP_none}};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        assert_int_equal(param(&t, styles[i].name)->tp, styles[i].tp);
    uint32_t units = 0, layer = 0;
    for (ModuleId m = 1; m < t.graph.modules.n; m++) {
        const Module *at = &t.graph.modules.at[m];
        if (at->fsdp2_shard) {
            assert_string_equal(at->path, units == 0   ? "layers.0.f"
                                          : units == 1 ? "layers.1.f"
                                                       : "layers.2.f");
            units++;
        }
        if (at->is_block) assert_int_equal(at->layer, ++layer);
        assert_int_equal(at->layer, strncmp(at->path, "layers.", 7) == 0 ? layer : 0);
    }
    assert_int_equal(units, 3);
    assert_int_equal(t.graph.info.n_layers, 3);
    arena_free(t.arena);
}

static void a_module_without_a_config_is_a_model(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    command_write_file(
        "alone.lua",
        "local nn = require 'tandem.nn'\n"
        "return plan { batch = { seq = 4 }, init = 'varied', precision = { compute = 'fp64' },\n"
        "  model = nn.module { e = nn.embedding(7, 7), n = nn.rmsnorm(7),\n"
        "    forward = function(m, t, y) return nn.cross_entropy(m.n(m.e(t)), y) end } }\n");
    assert_true(front_load("alone.lua", NULL, arena, &config, &graph, &d));
    uint32_t n_weights = 0, n_activations = 0;
    for (TensorId id = 1; id < graph.tensors.n; id++) {
        const Tensor *t = &graph.tensors.at[id];
        if (strcmp(t->name, "n.weight") == 0) {
            assert_true(t->init.kind == INIT_normal && t->init.a == 1 && t->init.b == 0.1);
            n_weights++;
        }
        if (t->role == ROLE_activation) {
            assert_int_equal(t->dtype, DT_f64);
            n_activations++;
        }
    }
    assert_int_equal(n_weights, 1);
    assert_true(n_activations >= 2); /* the embedding and the norm make one each */
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_module_and_function_traces),
        cmocka_unit_test(a_shared_module_has_one_weight),
        cmocka_unit_test(marks_of_modules_reach_the_graph),
        cmocka_unit_test(a_module_without_a_config_is_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
