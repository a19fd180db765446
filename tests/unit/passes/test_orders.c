/* Tests the order of passes. The order in which each system applies its parallelisms is accepted.
 * If two passes must have one order, the reverse is refused, and the hint lists the right order. A
 * pass without effect is refused, and all violations are reported at once. Ranks that differ in no
 * data axis read the same batch. Parameters have the same names on every mesh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "tests/support/command.h"

typedef struct Result {
    Arena *arena;
    Config config;
    Diag d;
    const Plan *plan; /* NULL: refused */
} Result;

static Result plan_of(const char *script, const char *stop_after)
{
    Arena *arena = arena_new();
    Result r = {.arena = arena, .d = diag_in(arena)};
    Graph graph;
    LowerOptions options = lower_options_default();
    memset(&graph, 0, sizeof graph);
    command_write_file("script.lua", script);
    if (front_load("script.lua", NULL, arena, &r.config, &graph, &r.d))
        r.plan = plan_compile(&r.config, &graph, &options, stop_after, arena, &r.d);
    return r;
}

static const char *told(Result *r)
{
    Str text = str_in(r->arena);
    diag_print(&r->d, &text);
    return str_text(&text);
}

static const char tiny[] = "require 'models.llama' { size = 'tiny', layers = 4 }";

static Result plan_in_order(const char *mesh, const char *parallel)
{
    Arena *arena = arena_new();
    Result r = plan_of(arena_print(arena,
                                   "return plan { model = %s, batch = { global = 8, seq = 64 },\n"
                                   "  mesh = { %s },\n  parallel = { %s } }\n",
                                   tiny, mesh, parallel),
                       NULL);
    arena_free(arena);
    return r;
}

static void the_order_of_each_system_is_legal(void **state)
{
    (void)state;
    static const struct {
        const char *system, *mesh, *parallel;
    } orders[] = {
        {"KempnerForge with TP", "dp_shard = 2, tp = 2",
         "meta {}, tp { sequence = true }, ac 'full', fsdp2 {}, materialize {}, compile 'model'"},
        {"KempnerForge", "dp_shard = 2", "ac 'full', fsdp2 {}, compile 'model'"},
        {"KempnerForge with PP", "pp = 2, dp_shard = 2, tp = 2",
         "pp '1f1b', meta {}, tp {}, ac 'full', fsdp2 {}, materialize {}, compile 'model'"},
        {"miles-credit, FSDP2", "dp_shard = 2, tp = 2", "tp {}, ac 'full', fsdp2 {}"},
        {"miles-credit, DDP", "dp_replicate = 2, tp = 2", "tp {}, ddp {}, ac 'full'"},
        {"Automodel", "dp_replicate = 2, dp_shard = 2, tp = 2",
         "tp { sequence = true }, ac 'full', fsdp2 {}, compile 'block'"},
        {"Automodel with PP", "pp = 2, dp_shard = 2, tp = 2",
         "pp '1f1b', tp {}, ac 'full', fsdp2 {}, compile 'block'"},
        {"Automodel, megatron_fsdp", "dp_shard = 2, tp = 2", "tp {}, zero 'optim_grads_params'"},
        {"DeepSpeed Ulysses", "dp_shard = 2, cp = 2",
         "cp { mode = 'all_to_all' }, ac 'full', zero 'optim_grads_params'"},
        {"torchtitan", "pp = 2, dp_shard = 2, tp = 2",
         "pp '1f1b', tp { sequence = true }, ac 'full', compile 'block', fsdp2 {}"},
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        Result r = plan_in_order(orders[i].mesh, orders[i].parallel);
        if (r.plan == NULL) fail_msg("%s: %s", orders[i].system, told(&r));
        arena_free(r.arena);
    }
}

static uint32_t count_rule(const Diag *d, const char *rule)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->items.n; i++) n += strcmp(d->items.at[i].rule, rule) == 0;
    return n;
}

static void each_hard_edge_is_refused_with_the_right_list(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *parallel, *rule;
        uint32_t n;        /* number of broken edges */
        const char *right; /* the right order, as the hint lists it */
    } cases[] = {
        {"dp_shard = 2, tp = 2", "fsdp2 {}, tp {}", "pass-order", 1, "{ tp{...}, fsdp2{...} }"},
        {"dp_shard = 2, tp = 2", "zero 'optim', tp {}", "pass-order", 1, "{ tp{...}, zero{...} }"},
        {"dp_replicate = 2, tp = 2", "ddp {}, tp {}", "pass-order", 1, "{ tp{...}, ddp{...} }"},
        {"dp_shard = 2", "fsdp2 {}, ac 'full'", "pass-order", 1, "{ ac{...}, fsdp2{...} }"},
        {"dp_shard = 2", "zero 'optim_grads', ac 'full'", "pass-order", 1,
         "{ ac{...}, zero{...} }"},
        {"tp = 2", "ac 'full', tp {}", "pass-order", 1, "{ tp{...}, ac{...} }"},
        {"pp = 2, tp = 2", "tp {}, pp '1f1b'", "pass-order", 1, "{ pp{...}, tp{...} }"},
        {"pp = 2, dp_shard = 2", "fsdp2 {}, pp '1f1b'", "pass-order", 1, "{ pp{...}, fsdp2{...} }"},
        {"tp = 2", "tp {}, meta {}, materialize {}", "pass-order", 1,
         "{ meta{...}, tp{...}, materialize{...} }"},
        {"dp_shard = 2", "meta {}, materialize {}, fsdp2 {}", "pass-order", 1,
         "{ meta{...}, fsdp2{...}, materialize{...} }"},
        {"tp = 2", "compile 'block', tp {}", "pass-order", 1, "{ tp{...}, compile{...} }"},
        {"dp_shard = 2", "compile 'model', fsdp2 {}", "compile-position", 1, "last"},
        {"pp = 2, dp_shard = 2, tp = 2", "fsdp2 {}, ac 'full', tp {}, pp '1f1b'", "pass-order", 6,
         "{ pp{...}, tp{...}, ac{...}, fsdp2{...} }"},
        {"dp_shard = 2, cp = 2", "fsdp2 {}, cp {}", "pass-order", 1, "{ cp{...}, fsdp2{...} }"},
        {"dp_replicate = 2, cp = 2", "ddp {}, cp {}", "pass-order", 1, "{ cp{...}, ddp{...} }"},
        {"pp = 2, cp = 2", "cp {}, pp '1f1b'", "pass-order", 1, "{ pp{...}, cp{...} }"},
        {"cp = 2", "ac 'full', cp {}", "pass-order", 1, "{ cp{...}, ac{...} }"},
        {"cp = 2", "float8 {}, cp {}", "pass-order", 1, "{ cp{...}, float8{...} }"},
        {"cp = 2", "compile 'block', cp {}", "pass-order", 1, "{ cp{...}, compile{...} }"},
        {"dp_shard = 2", "fsdp2 {}, fsdp2 {}", "pass-twice", 1, "write one fsdp2{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Result r = plan_in_order(cases[i].mesh, cases[i].parallel);
        assert_null(r.plan);
        const char *text = told(&r);
        if (count_rule(&r.d, cases[i].rule) != cases[i].n || r.d.n_errors != cases[i].n ||
            strstr(text, cases[i].right) == NULL)
            fail_msg("%s: %s", cases[i].parallel, text);
        arena_free(r.arena);
    }
}

/* A model of two linears, without blocks or attention. Many passes find nothing to do in it. */
static const char bare[] =
    "local nn = require 'tandem.nn'\n"
    "local model = nn.module { e = nn.embedding(12, 8), a = nn.linear(8, 8), h = nn.linear(8, "
    "12),\n"
    "  forward = function(m, x, y) return nn.cross_entropy(m.h(m.a(m.e(x))), y) end }\n";

static void a_pass_that_would_do_nothing_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *parallel, *rule;
    } cases[] = {
        {"tp = 2", "tp {}", "tp-matched-nothing"},
        {"tp = 2", "tp { plan_only = true }", "tp-matched-nothing"},
        {"tp = 2", "tp { plan = { ['layers.*'] = 'colwise' } }", "pattern-matched-nothing"},
        {"cp = 2", "cp {}", "cp-matched-nothing"},
        {"dp_shard = 2", "fsdp2 {}", "fsdp2-matched-nothing"},
        {"dp_shard = 2", "zero 'optim_grads_params'", "fsdp2-matched-nothing"},
        {"dp_shard = 2", "fsdp2 { units = { 'layers.*' } }", "pattern-matched-nothing"},
        {"dp_replicate = 2", "ac 'full', ddp {}", "ac-matched-nothing"},
        {"dp_replicate = 2", "ac 'selective', ddp {}", "ac-matched-nothing"},
        {"pp = 2", "pp '1f1b'", "pp-layers"},
        {"tp = 2", "", "axis-unused"},
        {"pp = 2", "", "axis-unused"},
        {"dp_shard = 2", "", "axis-unused"},
        {"dp_shard = 2", "zero 'no_shard'", "axis-unused"},
        {"dp_replicate = 2", "", "data-none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Result r = plan_of(arena_print(arena,
                                       "%sreturn plan { model = model, batch = { global = 4, "
                                       "seq = 8 }, mesh = { %s }, parallel = { %s } }\n",
                                       bare, cases[i].mesh, cases[i].parallel),
                           NULL);
        if (r.plan != NULL || count_rule(&r.d, cases[i].rule) != 1)
            fail_msg("%s on %s: %s", cases[i].parallel, cases[i].mesh, told(&r));
        arena_free(r.arena);
        arena_free(arena);
    }
}

/* One run reports every violation of a layer, each with its rule. */
static void all_violations_are_reported_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        const char *rules[10];
    } cases[] = {
        {"return require 'dialects.automodel' { world_size = 8, seq_length = 64, model = require\n"
         "  'models.llama' { size = 'tiny', heads = 4, kv_heads = 2 }, distributed = {\n"
         "  strategy = 'ddp', dp_replicate_size = 3, dp_size = 8, tp_size = 3, ep_size = 5,\n"
         "  activation_checkpointing_scope = 'all+vision', no_option = 1 },\n"
         "  step_scheduler = { global_batch_size = 15 } }\n",
         {"unknown-key", "replicate-strategy", "strategy-axes", "mesh-product", "replicate-divides",
          "ep-divides", "ep-without-experts", "ac-scope", "divides-batch"}},
        {"return require 'dialects.credit' { world_size = 8, seq_length = 64, model = require\n"
         "  'models.wxformer' 'tiny', trainer = { parallelism = { data = 'none', tensor = 1,\n"
         "  pipeline = 2 }, amp = true, fsdp2_mp_policy = { param_dtype = 'floof32' },\n"
         "  seed_by_dp_rank = 'before_build', grad_max_norm = 'dynamic', cpu_offload = true } }\n",
         {"unknown-key", "unknown-word", "data-none", "seed-before-build", "clip-dynamic",
          "dialect-unsupported"}},
        {"return plan { model = require 'models.llama' { size = 'tiny', heads = 3, kv_heads = 3,\n"
         "  head_dim = 4, hidden = 15 }, batch = { global = 4, seq = 15 }, mesh = { tp = 2 },\n"
         "  parallel = { tp { sequence = true } } }\n",
         {"divides-heads", "divides-features", "divides-seq"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Result r = plan_of(cases[i].script, NULL);
        assert_null(r.plan);
        for (uint32_t k = 0; cases[i].rules[k] != NULL; k++)
            if (count_rule(&r.d, cases[i].rules[k]) == 0)
                fail_msg("no %s: %s", cases[i].rules[k], told(&r));
        arena_free(r.arena);
    }
}

static const char *const meshes[][2] = {
    {"dp_replicate = 2, dp_shard = 2, tp = 2", "tp {}, fsdp2 {}"},
    {"pp = 2, dp_replicate = 2, dp_shard = 2, tp = 2", "pp '1f1b', tp {}, fsdp2 {}"},
    {"pp = 2, dp_replicate = 4", "pp '1f1b', ddp {}"},
    {"dp_shard = 4, tp = 2", "tp { sequence = true }, fsdp2 { reshard_after_forward = 2 }"},
    {"tp = 2", "tp {}"},
};

/* Ranks that differ only in tp or pp read the same samples. Ranks that differ in a data axis never
 * do. */
static void ranks_of_one_batch_are_those_along_the_other_axes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        Result r = plan_in_order(meshes[i][0], meshes[i][1]);
        if (r.plan == NULL) fail_msg("%s: %s", meshes[i][0], told(&r));
        const Graph *g = &r.plan->graph;
        const Mesh *mesh = &r.plan->mesh;
        AxisSet data =
            (AxisSet)(mesh_axes(mesh, AXIS_dp_replicate) | mesh_axes(mesh, AXIS_dp_shard));
        uint32_t n_inputs = 0;
        for (TensorId t = 1; t < g->tensors.n; t++) {
            const Tensor *input = &g->tensors.at[t];
            if (input->role != ROLE_input) continue;
            n_inputs++;
            Shape shape = {.n_dims = input->n_dims, .layout = input->use};
            memcpy(shape.dim, input->dim, sizeof shape.dim);
            assert_int_equal(layout_axes_split(&input->use, 0), data);
            for (Rank a = 0; a < mesh->n_ranks; a++)
                for (Rank b = 0; b < mesh->n_ranks; b++) {
                    bool same = shape_start(&shape, mesh, &g->deals, 0, a) ==
                                shape_start(&shape, mesh, &g->deals, 0, b);
                    assert_int_equal(same, mesh_part(mesh, a, data) == mesh_part(mesh, b, data));
                }
        }
        assert_int_equal(n_inputs, 2);
        arena_free(r.arena);
    }
}

/* A parameter's name in a checkpoint does not depend on the rank that has it, and no two names are
 * equal. */
static void parameters_have_the_same_names_on_every_mesh(void **state)
{
    (void)state;
    Result one = plan_in_order("", "");
    assert_non_null(one.plan);
    const Graph *whole = &one.plan->graph;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        Result r = plan_in_order(meshes[i][0], meshes[i][1]);
        assert_non_null(r.plan);
        const Graph *g = &r.plan->graph;
        for (TensorId t = 1; t < whole->tensors.n; t++) {
            const Tensor *want = &whole->tensors.at[t];
            uint32_t n = 0;
            for (TensorId k = 1; want->role == ROLE_param && k < g->tensors.n; k++) {
                const Tensor *have = &g->tensors.at[k];
                if (have->role != ROLE_param || strcmp(have->name, want->name) != 0) continue;
                n++;
                assert_int_equal(have->n_dims, want->n_dims);
                assert_memory_equal(have->dim, want->dim, sizeof want->dim);
                assert_int_equal(have->init_stream, want->init_stream);
            }
            assert_int_equal(n, want->role == ROLE_param);
        }
        arena_free(r.arena);
    }
    arena_free(one.arena);
}

static uint32_t count_instr(const Plan *plan, OpKind op, Phase phase, AxisName axis)
{
    const Program *p = plan_program(plan, 0);
    AxisSet axes = mesh_axes(&plan->mesh, axis);
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n += in->op == op && in->phase == phase && in->axes == axes;
    }
    return n;
}

/* Tests sums that implementers forget. The gradient of a column linear's input is a partial sum on
 * every rank. If the sequence is split, the gradient of a norm's weight is a partial sum, too. Both
 * sums follow from the layouts. */
static void sums_that_implementers_forget_are_in_the_plan(void **state)
{
    (void)state;
    enum { LAYERS = 4, DIM = 64, MICRO_BATCHES = 8 };
    Result r = plan_in_order("tp = 2", "tp { share_gathers = false }");
    assert_non_null(r.plan);
    /* Each layer sums one gradient for each of q, k, v, gate and up. The head sums one more. */
    assert_int_equal(count_instr(r.plan, OP_all_reduce, PHASE_backward, AXIS_tp),
                     MICRO_BATCHES * (5 * LAYERS + 1));
    /* Each layer sums the outputs of o and down. The embedding is summed, too, and three scalars of
     * the loss for each token. */
    assert_int_equal(count_instr(r.plan, OP_all_reduce, PHASE_forward, AXIS_tp),
                     MICRO_BATCHES * (2 * LAYERS + 1 + 3));
    arena_free(r.arena);

    r = plan_in_order("tp = 2", "tp { sequence = true }");
    assert_non_null(r.plan);
    const Graph *g = &r.plan->graph;
    uint64_t partial = 0, norms = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *param = &g->tensors.at[t];
        partial += param->partial ? (uint64_t)param->dim[0] : 0;
        if (param->role != ROLE_param || param->n_dims != 1) continue;
        norms++;
        assert_int_equal(param->partial, mesh_axes(&r.plan->mesh, AXIS_tp));
    }
    assert_int_equal(norms, 2 * LAYERS + 1);
    assert_int_equal(partial, norms * DIM);
    assert_int_equal(count_instr(r.plan, OP_reduce_scatter, PHASE_backward, AXIS_tp),
                     MICRO_BATCHES * (2 * LAYERS + 1));
    arena_free(r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_each_system_is_legal),
        cmocka_unit_test(each_hard_edge_is_refused_with_the_right_list),
        cmocka_unit_test(a_pass_that_would_do_nothing_is_refused),
        cmocka_unit_test(all_violations_are_reported_at_once),
        cmocka_unit_test(ranks_of_one_batch_are_those_along_the_other_axes),
        cmocka_unit_test(parameters_have_the_same_names_on_every_mesh),
        cmocka_unit_test(sums_that_implementers_forget_are_in_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
