/* --verify runs a plan that is scaled down. Its sizes must still divide evenly, and it must keep
 * the structure of the plan, or the run would prove something about another plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/loaded.h"

/* If the model cannot choose small sizes, tp becomes a divisor of its old size, which still divides
 * the model's sizes. */
static void shrinking_keeps_sizes_divisible(void **state)
{
    (void)state;
    static const uint32_t tp[][2] = {{2, 2}, {3, 3}, {4, 4},  {5, 5},
                                     {6, 2}, {9, 3}, {25, 5}, {12, 4}};
    for (size_t i = 0; i < sizeof tp / sizeof *tp; i++) {
        Arena *arena = arena_new();
        FrontOptions options = {.shrink = true};
        Loaded l = load_text(
            arena_print(arena,
                        "local nn = require 'tandem.nn'\n"
                        "return plan { model = nn.module { e = nn.embedding(32, 30), h = "
                        "nn.linear(30, 32, { segments = { 12, 20 } }), o = nn.linear(12, 32),\n"
                        "forward = function(m, x, y) return nn.cross_entropy(m.o(nn.segment("
                        "m.h(m.e(x)), 1)), y) end },\n"
                        "batch = { seq = 900, global = 8 }, mesh = { dp_shard = 8, tp = %u } }\n",
                        tp[i][0]),
            &options);
        if (!l.fine) print_error("%s", l.errors);
        assert_true(l.fine);
        assert_int_equal(l.config.axis_size[AXIS_tp], tp[i][1]);
        assert_int_equal(l.config.seq, 5 * tp[i][1]);
        assert_int_equal(l.config.axis_size[AXIS_dp_shard], 2);
        arena_free(l.arena);
        arena_free(arena);
    }
}

static void shrinking_keeps_the_structure(void **state)
{
    (void)state;
    static const struct {
        const char *set[8];
        uint32_t replicate, shard, tp;
    } cases[] = {
        {{"mesh.dp_shard=8", "mesh.tp=2"}, 1, 2, 2},
        {{"mesh.dp_shard=1", "mesh.tp=16"}, 1, 1, 4},
        {{"mesh.dp_shard=16", "mesh.tp=1"}, 1, 2, 1},
        {{"mesh.dp_shard=4", "mesh.tp=1", "mesh.dp_replicate=4"}, 2, 2, 1},
        {{"mesh.dp_shard=8", "mesh.tp=2", "parallel.fsdp2.reshard_after_forward=4"}, 1, 4, 2},
        {{"mesh.dp_shard=3", "mesh.tp=5", "cluster.devices_per_node=15", "cluster.nodes=1",
          "model.heads=40", "model.kv_heads=5", "model.head_dim=128"},
         1,
         3,
         3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *set[9];
        uint32_t n = 0;
        for (; n < 8 && cases[i].set[n] != NULL; n++) set[n] = cases[i].set[n];
        set[n++] = "batch.global=720";
        if (i < 5) set[n - 1] = "batch.global=128";
        FrontOptions options = {.set = set, .n_set = n, .shrink = true};
        Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
        if (!l.fine) print_error("%s", l.errors);
        assert_true(l.fine);
        const Config *c = &l.config;
        assert_int_equal(c->axis_size[AXIS_dp_replicate], cases[i].replicate);
        assert_int_equal(c->axis_size[AXIS_dp_shard], cases[i].shard);
        assert_int_equal(c->axis_size[AXIS_tp], cases[i].tp);
        uint32_t data = cases[i].replicate * cases[i].shard;
        assert_true(data * cases[i].tp <= 16);
        assert_int_equal(c->global_batch, 3 * c->micro_batch * data);
        assert_int_equal(c->seq % cases[i].tp, 0);
        assert_int_equal(l.graph.info.n_layers, 2);
        /* In the plan, 16 ranks share 8 KV heads, two ranks a head. In the small plan, 4 ranks
         * remain, and two of them still share a head. */
        assert_int_equal(l.graph.info.n_kv_heads, cases[i].tp == 4 ? 2 : cases[i].tp);
        assert_int_equal(l.graph.info.n_heads, 2 * cases[i].tp);
        assert_true(l.graph.info.n_params < 20000);
        for (TensorId t = 1; t < l.graph.tensors.n; t++) {
            const Tensor *at = &l.graph.tensors.at[t];
            if (at->role == ROLE_param)
                assert_true(at->init.kind == INIT_normal && at->init.b >= 0.1);
        }
        arena_free(l.arena);
    }
}

/* Five axes of two ranks make 32 ranks, so one axis gets one rank. The stages must stay: without
 * them the run would not show that the pipeline is right. */
static void at_most_sixteen_ranks_stay(void **state)
{
    (void)state;
    const char *set[] = {"mesh.dp_replicate=2", "mesh.dp_shard=2", "mesh.tp=2",
                         "mesh.cp=2",           "mesh.pp=2",       "cluster.nodes=4",
                         "parallel.cp=true",    "parallel.pp=true"};
    FrontOptions options = {.set = set, .n_set = sizeof set / sizeof *set, .shrink = true};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    uint32_t n_two = 0;
    for (int a = 0; a < AXIS_NAMES; a++) {
        assert_true(l.config.axis_size[a] <= 2);
        n_two += l.config.axis_size[a] == 2;
    }
    assert_int_equal(n_two, 4);
    assert_int_equal(l.config.axis_size[AXIS_pp], 2);
    assert_int_equal(l.config.axis_size[AXIS_dp_replicate], 1);
    arena_free(l.arena);
}

/* Only a function of the model itself can make it small. */
static void a_large_model_needs_its_own_sizes(void **state)
{
    (void)state;
    static const char script[] =
        "local nn = require 'tandem.nn'\n"
        "return plan { batch = { seq = 4 },\n"
        "  model = nn.module { e = nn.embedding(32, 5000), h = nn.linear(5000, 5000), o = "
        "nn.linear(5000, 32),\n"
        "    forward = function(m, x, y) return nn.cross_entropy(m.o(m.h(m.e(x))), y) end } }\n";
    FrontOptions options = {.shrink = true};
    Loaded l = load_text(script, &options);
    assert_false(l.fine);
    assert_string_equal(
        l.errors,
        "script.lua:3: error[shrink-missing]: the model is too large for --verify and has no "
        "function shrink\n  hint: give the model shrink = function(config, mesh) ... return "
        "small_config end\n");
    arena_free(l.arena);
    l = load_text(script, NULL);
    assert_true(l.fine);
    arena_free(l.arena);
}

/* A model of fields chooses small sizes itself. Its inputs must have the sizes of the shrunk
 * configuration. */
static void shrunk_fields_fit_the_model(void **state)
{
    (void)state;
    static const char *const names[] = {"wxformer_domain", "unet_domain"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *arena = arena_new();
        FrontOptions options = {.shrink = true};
        Loaded l = load_text(arena_print(arena, "return require 'plans.%s'", names[i]), &options);
        if (!l.fine) print_error("%s", l.errors);
        assert_true(l.fine);
        uint32_t n = 0;
        for (TensorId t = 1; t < l.graph.tensors.n; t++) {
            const Tensor *at = &l.graph.tensors.at[t];
            if (at->role != ROLE_input || at->n_dims != 4) continue;
            assert_int_equal(at->dim[1], n == 0 ? l.config.channels : l.config.targets);
            assert_int_equal(at->dim[2], l.config.height);
            assert_int_equal(at->dim[3], l.config.width);
            n++;
        }
        assert_int_equal(n, 2);
        assert_int_equal(l.config.seq, l.config.height * l.config.width);
        arena_free(l.arena);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrinking_keeps_sizes_divisible),
        cmocka_unit_test(shrinking_keeps_the_structure),
        cmocka_unit_test(at_most_sixteen_ranks_stay),
        cmocka_unit_test(a_large_model_needs_its_own_sizes),
        cmocka_unit_test(shrunk_fields_fit_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
