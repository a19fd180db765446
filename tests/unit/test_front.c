/* From script to Config and Graph: what a model traces to, exactly; what a plan says; --set;
 * shrinking; and that the same script gives the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/front/front.h"
#include "tests/support/command.h"

typedef struct Loaded {
    Arena *arena;
    bool fine;
    Config config;
    Graph graph;
    const char *errors;
} Loaded;

static Loaded load_file(const char *path, const FrontOptions *options)
{
    Loaded l = {.arena = arena_new()};
    Diag d = diag_in(l.arena);
    l.fine = front_load(path, options, l.arena, &l.config, &l.graph, &d);
    Str text = str_in(l.arena);
    diag_print(&d, &text);
    l.errors = str_text(&text);
    assert_int_equal(l.fine, d.n_errors == 0);
    return l;
}

static Loaded load_text(const char *script, const FrontOptions *options)
{
    command_write_file("script.lua", script);
    return load_file("script.lua", options);
}

static Loaded load_model(const char *model, int seq)
{
    Arena *arena = arena_new();
    const char *script = arena_print(
        arena, "return plan { model = require 'models.%s, batch = { seq = %d } }\n", model, seq);
    Loaded l = load_text(script, NULL);
    arena_free(arena);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    return l;
}

static TensorId find(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (strcmp(g->tensors.at[t].name, name) == 0) return t;
    print_error("no tensor %s\n", name);
    fail();
    return 0;
}

/* The published sizes, exactly. */
static void models_have_their_parameter_counts(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int seq;
        uint64_t n, no_embedding;
        uint32_t layers, dim, heads, kv_heads, head_dim, vocab;
    } cases[] = {
        {"llama' '3.1-8b'", 8192, 8030261248, 7504924672, 32, 4096, 32, 8, 128, 128256},
        {"llama' '3.1-70b'", 8192, 70553706496, 69503033344, 80, 8192, 64, 8, 128, 128256},
        {"llama' '3.1-405b'", 8192, 405853388800, 403752042496, 126, 16384, 128, 8, 128, 128256},
        {"llama' '3.2-1b'", 8192, 1235814400, 1235814400, 16, 2048, 32, 8, 64, 128256},
        {"gpt2' '124m'", 1024, 124439808, 123653376, 12, 768, 12, 12, 64, 50257},
        {"gpt2' '350m'", 1024, 354823168, 353774592, 24, 1024, 16, 16, 64, 50257},
        {"gpt2' '774m'", 1024, 774030080, 772719360, 36, 1280, 20, 20, 64, 50257},
        {"gpt2' '1.5b'", 1024, 1557611200, 1555972800, 48, 1600, 25, 25, 64, 50257},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded l = load_model(cases[i].model, cases[i].seq);
        const ModelInfo *info = &l.graph.info;
        assert_int_equal(info->n_params, cases[i].n);
        assert_int_equal(info->n_params_no_embedding, cases[i].no_embedding);
        assert_int_equal(info->n_layers, cases[i].layers);
        assert_int_equal(info->d_model, cases[i].dim);
        assert_int_equal(info->n_heads, cases[i].heads);
        assert_int_equal(info->n_kv_heads, cases[i].kv_heads);
        assert_int_equal(info->head_dim, cases[i].head_dim);
        assert_int_equal(info->vocab, cases[i].vocab);
        assert_int_equal(info->seq, cases[i].seq);
        arena_free(l.arena);
    }
}

static void assert_param(const Graph *g, const char *name, TpStyle tp, uint32_t n_dims,
                         const int64_t *dim, uint32_t column, uint32_t row, InitKind init)
{
    const Tensor *t = &g->tensors.at[find(g, name)];
    assert_int_equal(t->role, ROLE_param);
    assert_int_equal(t->tp, tp);
    assert_int_equal(t->n_dims, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) assert_int_equal(t->dim[i], dim[i]);
    if (tp == TP_row)
        assert_int_equal(t->row_dim, row);
    else
        assert_int_equal(t->column_dim, column);
    assert_int_equal(t->init.kind, init);
    assert_int_equal(t->init_stream, hash_bytes(name, strlen(name)).lo);
    assert_string_not_equal(t->loc.file, "");
    assert_true(t->loc.line > 0);
}

static void llama_traces_to_the_graph_that_passes_expect(void **state)
{
    (void)state;
    FrontOptions options = {0};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    const Graph *g = &l.graph;
    static const OpKind block[] = {OP_rmsnorm, OP_linear_q, OP_linear_kv, OP_linear_kv,
                                   OP_rope,    OP_rope,     OP_attention, OP_linear_o,
                                   OP_add,     OP_rmsnorm,  OP_linear,    OP_silu,
                                   OP_linear,  OP_mul,      OP_linear,    OP_add};
    enum { N_BLOCK = sizeof block / sizeof *block };
    assert_int_equal(g->nodes.n, 1 + 2 + 32 * N_BLOCK + 2 + 4);
    assert_int_equal(g->nodes.at[1].op, OP_batch);
    assert_int_equal(g->nodes.at[2].op, OP_embed);
    for (uint32_t layer = 0; layer < 32; layer++)
        for (uint32_t i = 0; i < N_BLOCK; i++) {
            const Node *n = &g->nodes.at[3 + layer * N_BLOCK + i];
            assert_int_equal(n->op, block[i]);
            assert_int_equal(n->layer, layer + 1);
            assert_string_equal(n->loc.file, "models/llama.lua");
        }
    const Node *tail = &g->nodes.at[g->nodes.n - 6];
    static const OpKind ends[] = {OP_rmsnorm,   OP_linear,      OP_xent_max,
                                  OP_xent_pick, OP_xent_sumexp, OP_xent_loss};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(tail[i].op, ends[i]);
        assert_int_equal(tail[i].layer, 0);
    }
    static const int64_t q[] = {4096, 8, 4, 128}, kv[] = {4096, 8, 128}, o[] = {8, 4, 128, 4096};
    static const int64_t up[] = {4096, 14336}, down[] = {14336, 4096}, table[] = {128256, 4096};
    static const int64_t head[] = {4096, 128256}, norm[] = {4096};
    assert_param(g, "layers.3.attention.wq.weight", TP_column, 4, q, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wk.weight", TP_column, 3, kv, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wv.weight", TP_column, 3, kv, 1, 0, INIT_normal);
    assert_param(g, "layers.3.attention.wo.weight", TP_row, 4, o, 0, 0, INIT_normal);
    assert_param(g, "layers.31.feed_forward.w1.weight", TP_column, 2, up, 1, 0, INIT_normal);
    assert_param(g, "layers.31.feed_forward.w2.weight", TP_row, 2, down, 0, 0, INIT_normal);
    assert_param(g, "tok_embeddings.weight", TP_vocab, 2, table, 0, 0, INIT_normal);
    assert_param(g, "output.weight", TP_vocab, 2, head, 1, 0, INIT_normal);
    assert_param(g, "layers.0.ffn_norm.weight", TP_none, 1, norm, 0, 0, INIT_ones);
    arena_free(l.arena);
}

static void tensors_have_their_dtypes_and_sizes(void **state)
{
    (void)state;
    FrontOptions options = {0};
    Loaded l = load_file(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", &options);
    assert_true(l.fine);
    const Graph *g = &l.graph;
    for (TensorId id = 1; id < g->tensors.n; id++) {
        const Tensor *t = &g->tensors.at[id];
        if (t->role == ROLE_input) assert_int_equal(t->dtype, DT_i32);
        if (t->role == ROLE_param) {
            assert_int_equal(t->dtype, DT_bf16);
            assert_int_equal(t->rest_dtype, DT_f32);
            assert_int_equal(t->reduce_dtype, DT_f32);
        }
        if (t->role == ROLE_activation && t->n_dims > 0) {
            assert_int_equal(t->dim[0], 8); /* one sequence on each of 8 data ranks */
            assert_int_equal(t->dim[1], 8192);
        }
    }
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        bool statistic = n->op == OP_xent_max || n->op == OP_xent_pick || n->op == OP_xent_sumexp;
        DType first = g->tensors.at[n->out[0]].dtype;
        if (n->op != OP_batch && n->op != OP_xent_loss)
            assert_int_equal(first, statistic ? DT_f32 : DT_bf16);
        DType others = n->op == OP_xent_loss ? DT_f64 : DT_f32;
        for (uint32_t j = 1; j < n->n_out && n->op != OP_batch; j++)
            assert_int_equal(g->tensors.at[n->out[j]].dtype, others);
        const Attrs *a = graph_attrs_at(g, n->attrs);
        if (n->op == OP_attention) assert_true(a->causal == 1 && a->scale == 1 / sqrt(128));
        if (n->op == OP_rope)
            assert_true(a->theta == 500000 && a->rope_factor == 8 && a->rope_low == 1 &&
                        a->rope_high == 4 && a->rope_context == 8192);
        if (n->op == OP_xent_loss) assert_true(a->scale == 1.0 / (64.0 * 8192));
        if (n->op == OP_rmsnorm) assert_true(a->eps == 1e-5);
    }
    const Tensor *loss = &g->tensors.at[g->loss];
    assert_int_equal(loss->role, ROLE_loss);
    assert_int_equal(loss->dtype, DT_f64);
    assert_int_equal(loss->n_dims, 0);
    arena_free(l.arena);
}

static void gpt2_ties_its_head_and_has_biases(void **state)
{
    (void)state;
    Loaded l = load_model("gpt2' '124m'", 1024);
    const Graph *g = &l.graph;
    static const int64_t heads[] = {12, 1, 64}, groups[] = {12, 64}, dim[] = {768},
                         hidden[] = {3072};
    static const int64_t positions[] = {1024, 768};
    assert_param(g, "layers.11.attention.wq.bias", TP_column, 3, heads, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.attention.wk.bias", TP_column, 2, groups, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.attention.wo.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.mlp.up.bias", TP_column, 1, hidden, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.mlp.down.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "layers.11.ln_1.bias", TP_none, 1, dim, 0, 0, INIT_zeros);
    assert_param(g, "wpe.weight", TP_none, 2, positions, 0, 0, INIT_normal);
    TensorId table = find(g, "wte.weight");
    uint32_t uses = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op == OP_linear_t || n->op == OP_embed) {
            assert_int_equal(n->in[1], table);
            uses++;
        }
    }
    assert_int_equal(uses, 2);
    assert_int_equal(g->tensors.at[table].tp, TP_vocab);
    assert_false(g->tensors.at[table].input_embedding);
    arena_free(l.arena);
}

static void modules_have_paths_blocks_and_layers(void **state)
{
    (void)state;
    Loaded l = load_model("llama' 'tiny'", 32);
    const Graph *g = &l.graph;
    uint32_t blocks = 0, attentions = 0;
    assert_string_equal(g->modules.at[1].path, "");
    for (ModuleId m = 1; m < g->modules.n; m++) {
        const Module *at = &g->modules.at[m];
        assert_true(at->parent < m);
        if (at->is_block) {
            char path[32];
            snprintf(path, sizeof path, "layers.%u", blocks);
            assert_string_equal(at->path, path);
            assert_string_equal(at->class_, "block");
            assert_int_equal(at->layer, ++blocks);
        }
        attentions += strcmp(at->class_, "attention") == 0;
        if (at->parent != 0 && g->modules.at[at->parent].layer != 0)
            assert_int_equal(at->layer, g->modules.at[at->parent].layer);
    }
    assert_int_equal(blocks, 2);
    assert_int_equal(attentions, 2);
    arena_free(l.arena);
}

static void a_plan_says_its_configuration(void **state)
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
    assert_true(c->source_lines > 400); /* this script, the model, the cluster and the library */
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

static void set_changes_any_value(void **state)
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

/* Run in a process of its own: a fork has its parent's addresses, and with them Lua's order. */
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

/* Sizes that nobody makes anew: tp becomes what divides it, so that it divides them still. */
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
        /* 16 ranks share 8 KV heads: 4 share 2 */
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

static void a_cluster_can_be_named_alone(void **state)
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
        cmocka_unit_test(models_have_their_parameter_counts),
        cmocka_unit_test(llama_traces_to_the_graph_that_passes_expect),
        cmocka_unit_test(tensors_have_their_dtypes_and_sizes),
        cmocka_unit_test(gpt2_ties_its_head_and_has_biases),
        cmocka_unit_test(modules_have_paths_blocks_and_layers),
        cmocka_unit_test(a_plan_says_its_configuration),
        cmocka_unit_test(defaults_are_this_machine_in_fp32),
        cmocka_unit_test(set_changes_any_value),
        cmocka_unit_test(the_same_script_gives_the_same_bytes),
        cmocka_unit_test(shrinking_keeps_sizes_divisible),
        cmocka_unit_test(shrinking_keeps_the_structure),
        cmocka_unit_test(a_cluster_can_be_named_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
