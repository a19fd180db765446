/* From script to Config: values of a plan, defaults, --set, and a cluster by name. The same script
 * always gives the same bytes, because ids and stored predictions depend on them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/loaded.h"

static void a_plan_sets_its_configuration(void **state)
{
    (void)state;
    Loaded l = load_text(
        "return plan {\n"
        "  model = require 'models.llama' 'tiny',\n"
        "  cluster = require 'clusters.dgx_a100' { nodes = 2 },\n"
        "  batch = { global = 48, micro = 2, seq = 64 },\n"
        "  mesh = { dp_replicate = 2, dp_shard = -1, tp = 2 },\n"
        "  parallel = {\n"
        "    ac 'selective',\n"
        "    tp { sequence = true, loss_parallel = false },\n"
        "    fsdp2 { reshard_after_forward = 2, prefetch = 2 },\n"
        "    ddp { bucket_mib = 10 },\n"
        "  },\n"
        "  precision = { param = 'fp32', compute = 'bf16', reduce = 'f32' },\n"
        "  optimizer = sgd { lr = 0.5, clip_norm = 0, warmup_steps = 3, total_steps = 9 },\n"
        "  seed = 7, steps = 12, data = 'text',\n"
        "}\n",
        NULL);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    const Config *c = &l.config;
    assert_int_equal(c->axis_size[AXIS_dp_replicate], 2);
    assert_int_equal(c->axis_size[AXIS_dp_shard], 4);
    assert_int_equal(c->axis_size[AXIS_tp], 2);
    assert_int_equal(c->axis_size[AXIS_pp], 1);
    assert_int_equal(c->axis_loc[AXIS_tp].line, 5);
    assert_int_equal(c->batch_loc.line, 4);
    assert_int_equal(c->precision_loc.line, 12);
    assert_int_equal(c->global_batch, 48);
    assert_int_equal(c->micro_batch, 2);
    assert_int_equal(c->seq, 64);
    assert_int_equal(c->n_passes, 4);
    static const PassName order[] = {PASS_ac, PASS_tp, PASS_fsdp2, PASS_ddp};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(c->passes[i].name, order[i]);
        assert_int_equal(c->passes[i].loc.line, 7 + i);
    }
    assert_int_equal(c->passes[0].ac, AC_selective);
    assert_true(c->passes[1].tp.sequence && !c->passes[1].tp.loss_parallel);
    assert_true(c->passes[1].tp.share_gathers && !c->passes[1].tp.keep_gathered);
    assert_int_equal(c->passes[2].fsdp2.reshard_after_forward, RESHARD_to);
    assert_int_equal(c->passes[2].fsdp2.reshard_to, 2);
    assert_int_equal(c->passes[2].fsdp2.prefetch, 2);
    assert_true(c->passes[3].ddp.bucket_mib == 10);
    assert_int_equal(c->param, DT_f32);
    assert_int_equal(c->compute, DT_bf16);
    assert_int_equal(c->reduce, DT_f32);
    assert_int_equal(c->optimizer.kind, OPTIMIZER_sgd);
    assert_true(c->optimizer.lr == 0.5 && c->optimizer.clip_norm == 0);
    assert_int_equal(c->optimizer.warmup_steps, 3);
    assert_int_equal(c->seed, 7);
    assert_int_equal(c->train_steps, 12);
    assert_string_equal(c->data_file, "text");
    assert_int_equal(c->cluster.nodes, 2);
    assert_string_equal(c->cluster.device.name, "A100-SXM4-80GB");
    assert_in_range(c->source_lines, 400,
                    100000); /* this script, the model, the cluster and the library */
    arena_free(l.arena);
}

static void defaults_are_this_machine_in_fp32(void **state)
{
    (void)state;
    Loaded l =
        load_text("return plan { model = require 'models.llama' 'tiny', batch = { seq = 8 },\n"
                  "mesh = { dp_replicate = 3 }, parallel = { ddp {} } }\n",
                  NULL);
    assert_true(l.fine);
    const Config *c = &l.config;
    assert_true(c->cluster.is_local);
    assert_int_equal(c->cluster.nodes, 1);
    assert_int_equal(c->cluster.devices_per_node, 3);
    assert_true(c->cluster.cores_per_node >= 1);
    assert_true(c->cluster.device.memory_bytes > 1 << 20);
    assert_int_equal(c->micro_batch, 1);
    assert_int_equal(c->global_batch, 3);
    assert_int_equal(c->compute, DT_f32);
    assert_int_equal(c->optimizer.kind, OPTIMIZER_adamw);
    assert_true(c->optimizer.clip_norm == 1.0 && c->optimizer.beta1 == 0.9);
    arena_free(l.arena);
}

static void settings_change_any_value(void **state)
{
    (void)state;
    const char *set[] = {"mesh.tp=1",
                         "mesh.dp_shard=4",
                         "batch.micro=2",
                         "batch.global=24",
                         "precision.compute=fp64",
                         "precision.reduce=fp64",
                         "parallel.tp.sequence=false",
                         "parallel.fsdp2.reshard_after_forward=2",
                         "optimizer.lr=1e-2",
                         "model.layers=3",
                         "model.rope_scaling=false",
                         "seed=9",
                         "data='a=b'"};
    FrontOptions options = {.set = set, .n_set = sizeof set / sizeof *set};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua", &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    const Config *c = &l.config;
    assert_int_equal(c->axis_size[AXIS_tp], 1);
    assert_int_equal(c->axis_size[AXIS_dp_shard], 4);
    assert_int_equal(c->micro_batch, 2);
    assert_int_equal(c->global_batch, 24);
    assert_int_equal(c->compute, DT_f64);
    assert_false(c->passes[0].tp.sequence);
    assert_int_equal(c->passes[1].fsdp2.reshard_to, 2);
    assert_true(c->optimizer.lr == 1e-2);
    assert_int_equal(l.graph.info.n_layers, 3);
    assert_int_equal(c->seed, 9);
    assert_string_equal(c->data_file, "a=b");
    arena_free(l.arena);
}

/* A table that a setting replaces keeps the values of other settings for its keys, in any order of
 * the settings. */
static void tables_are_set_before_their_keys(void **state)
{
    (void)state;
    static const char *const orders[][3] = {
        {"cluster=dgx_a100", "gpu=H200", "cluster.device.memory_bytes=5e9"},
        {"cluster.device.memory_bytes=5e9", "gpu=H200", "cluster=dgx_a100"},
        {"gpu=H200", "cluster.device.memory_bytes=5e9", "cluster=dgx_a100"}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        FrontOptions options = {.set = (const char **)orders[i], .n_set = 3};
        Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
        if (!l.fine) print_error("%s", l.errors);
        assert_true(l.fine);
        assert_true(l.config.cluster.device.memory_bytes == 5000000000);
        assert_string_equal(l.config.cluster.device.arch, "Hopper");
        assert_string_equal(l.config.cluster.name, "dgx_a100");
        arena_free(l.arena);
    }
}

/* A text may stand in quotes of either kind. A single quote without its partner is a part of the
 * text. */
static void a_setting_may_be_quoted(void **state)
{
    (void)state;
    static const char *const values[][2] = {{"data=\"a b\"", "a b"}, {"data='4'", "4"},
                                            {"data='", "'"},         {"data='a\"", "'a\""},
                                            {"data=\"a", "\"a"},     {"data=a'", "a'"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        FrontOptions options = {.set = &values[i][0], .n_set = 1};
        Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua", &options);
        if (!l.fine) print_error("%s", l.errors);
        assert_true(l.fine);
        assert_string_equal(l.config.data_file, values[i][1]);
        arena_free(l.arena);
    }
}

/* A setting adds a pass to a plan without passes, and finds a pass that is listed after other
 * values. */
static void settings_add_passes(void **state)
{
    (void)state;
    const char *set[] = {"parallel.fsdp2=true", "parallel.tp.sequence=true", "parallel.ac=full",
                         "parallel.data=ddp", "parallel.data=ddp"};
    FrontOptions options = {.set = set, .n_set = sizeof set / sizeof *set};
    Loaded l = load_text(
        "return plan { model = require 'models.llama' 'tiny', batch = { seq = 8, global = 4 },\n"
        "  mesh = { tp = 2, dp_replicate = 2 } }\n",
        &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    assert_int_equal(l.config.n_passes, 3);
    assert_int_equal(l.config.passes[0].name, PASS_tp);
    assert_true(l.config.passes[0].tp.sequence);
    assert_int_equal(l.config.passes[1].name, PASS_ac);
    assert_int_equal(l.config.passes[2].name, PASS_ddp); /* ddp takes the place of fsdp2 */
    arena_free(l.arena);
}

/* Two models of one size share the tables of that size. A setting must change only the model of the
 * plan.
 */
static void settings_change_only_the_model_of_the_plan(void **state)
{
    (void)state;
    const char *set[] = {"model.rope_scaling.length=4096", "model.rope_scaling.short.2=1.75"};
    FrontOptions options = {.set = set, .n_set = sizeof set / sizeof *set};
    Loaded l = load_text(
        "local phi = require 'models.phi'\n"
        "local mine, other = phi '3-128k-tiny', phi '3-128k-tiny'\n"
        "local build = mine.build\n"
        "mine.build = function(c)\n"
        "  local own, shared = c.rope_scaling, other.config.rope_scaling\n"
        "  if own.length ~= 4096 or own.short[2] ~= 1.75 then error 'the setting is lost' end\n"
        "  if c.length ~= nil or c[2] ~= nil then error 'the setting is in the config' end\n"
        "  if shared.length ~= 2048 or shared.short[2] ~= 1.5 then error 'both changed' end\n"
        "  return build(c)\n"
        "end\n"
        "return plan { model = mine, batch = { global = 8, micro = 1, seq = 32 } }\n",
        &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    assert_int_equal(l.graph.info.n_layers, 2);
    uint32_t n = 0;
    for (NodeId id = 1; id < l.graph.nodes.n; id++) {
        const Node *node = &l.graph.nodes.at[id];
        if (node->op != OP_rope) continue;
        const Attrs *attrs = graph_attrs_at(&l.graph, node->attrs);
        assert_true(attrs->rope_pair[1] == 1.75);
        /* the root of 2, because 4096 is 64 x 64 */
        assert_true(fabs(attrs->rope_gain - sqrt(2)) < 1e-12);
        n++;
    }
    assert_int_equal(n, 4);
    arena_free(l.arena);
}

/* Returns a hash of the graph and the configuration. */
static Hash128 fingerprint(const Loaded *l)
{
    Str text = str_in(l->arena);
    Mesh mesh = mesh_make(l->config.axis_size);
    graph_print(&l->graph, &mesh, &text);
    for (TensorId t = 1; t < l->graph.tensors.n; t++)
        str_print(&text, "%s %llu %g\n", l->graph.tensors.at[t].name,
                  (unsigned long long)l->graph.tensors.at[t].init_stream,
                  l->graph.tensors.at[t].init.b);
    return hash_bytes(text.at, text.n);
}

/* Prints the hash in a new process. A forked process would have the addresses of its parent, and so
 * the same order of Lua's tables. */
static int print_fingerprint(void)
{
    FrontOptions none = {0};
    Loaded l = load_file("same.lua", &none);
    Hash128 h = fingerprint(&l);
    printf("%d %s\n%s", l.fine, hash_hex(l.arena, h), l.errors);
    arena_free(l.arena);
    return 0;
}

static void the_same_script_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char script[] =
        "local nn = require 'tandem.nn'\n"
        "local sizes = {}\n"
        "for k, v in pairs { zeta = 1, alpha = 2, [3] = 4, [true] = 5, beta = 6, gamma = 7 } do\n"
        "  sizes[#sizes + 1] = tostring(k) .. v .. tostring({}) .. math.random(1000)\n"
        "end\n"
        "local name = table.concat(sizes, ';')\n"
        "local fields = { e = nn.embedding(#name, 7), forward = function(m, t, y)\n"
        "  local x = m.e(t)\n"
        "  for key, layer in pairs(m) do if key ~= 'e' then x = layer(x) end end\n"
        "  return nn.cross_entropy(x, y) end }\n"
        "for i = 1, 20 do fields['l' .. i * 7919 % 101] = nn.linear(7, 7) end\n"
        "fields.n = nn.linear(7, 7, { init = nn.normal(0, 1 + #tostring(fields) + sizes[2]:byte()) "
        "})\n"
        "return plan { name = name, batch = { seq = 8 },\n"
        "  model = { name = name, build = function() return nn.module(fields) end } }\n";
    Arena *arena = arena_new();
    command_write_file("same.lua", script);
    const char *first = NULL;
    for (int i = 0; i < 10; i++) {
        const char *const argv[] = {"/proc/self/exe", "fingerprint", NULL};
        CommandResult r = command_run_program(arena, 60, argv);
        if (i == 0) first = r.out;
        assert_int_equal(r.exit_code, 0);
        assert_int_equal(r.out[0], '1');
        assert_string_equal(r.out, first);
    }
    arena_free(arena);
}

static void a_cluster_can_be_loaded_by_its_name(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const names[] = {"dgx_a100", "dgx_h100", "hgx_h200", "local_cpu"};
    for (size_t i = 0; i < 4; i++) {
        Diag d = diag_in(arena);
        Cluster c;
        assert_true(front_cluster(names[i], i < 3 ? 4 : 1, arena, &c, &d));
        assert_string_equal(c.name, names[i]);
        assert_true(c.device.memory_bytes > 0 && c.device.hbm_bytes_per_s > 0);
        assert_true(c.device.gemm_efficiency > 0.5 && c.device.peak_flops[DT_f32] > 0);
        assert_int_equal(c.nodes, i < 3 ? 4 : 1);
    }
    static const char *const bad[] = {"dgx_h10", "../plans/x", "", "DGX"};
    for (size_t i = 0; i < 4; i++) {
        Diag d = diag_in(arena);
        Cluster c;
        assert_false(front_cluster(bad[i], 1, arena, &c, &d));
        assert_int_equal(diag_exit_code(&d), 2);
        if (i == 0) assert_string_equal(d.items.at[0].hint, "did you mean 'dgx_h100'?");
    }
    arena_free(arena);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "fingerprint") == 0) return print_fingerprint();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_sets_its_configuration),
        cmocka_unit_test(defaults_are_this_machine_in_fp32),
        cmocka_unit_test(settings_change_any_value),
        cmocka_unit_test(tables_are_set_before_their_keys),
        cmocka_unit_test(a_setting_may_be_quoted),
        cmocka_unit_test(settings_add_passes),
        cmocka_unit_test(settings_change_only_the_model_of_the_plan),
        cmocka_unit_test(the_same_script_gives_the_same_bytes),
        cmocka_unit_test(a_cluster_can_be_loaded_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
