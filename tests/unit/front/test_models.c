/* The library's model families have exactly the published numbers of parameters, and the features
 * of each family. A plan of each family with tensor and sequence parallelism and sharding computes
 * what one rank computes. */
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
    Graph graph;
} Loaded;

static Loaded load(const char *family, const char *size)
{
    Loaded l = {.arena = arena_new()};
    Config config;
    Diag d = diag_in(l.arena);
    command_write_file(
        "script.lua",
        arena_print(l.arena,
                    "return plan { model = require 'models.%s' '%s', batch = { seq = %d } }\n",
                    /* a vit has one label for an image */
                    family, size, strcmp(family, "vit") == 0 ? 1 : 1024));
    bool fine = front_load("script.lua", NULL, l.arena, &config, &l.graph, &d);
    Str text = str_in(l.arena);
    diag_print(&d, &text);
    if (!fine) print_error("%s", str_text(&text));
    assert_true(fine);
    return l;
}

static const Tensor *param(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].role == ROLE_param && strcmp(g->tensors.at[t].name, name) == 0)
            return &g->tensors.at[t];
    return NULL;
}

static uint32_t count_ops(const Graph *g, OpKind op)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) n += g->nodes.at[id].op == op;
    return n;
}

/* The counts are those of model cards and weight files. Gemma 3 from 4b on counts without the
 * vision tower (416866032) and its projector (1152 x dim + 1152), which the published totals
 * include. */
static void parameter_counts_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *family, *size;
        uint64_t n;
        uint32_t layers, dim, heads, kv_heads, head_dim, vocab;
    } cases[] = {
        /* num_params in torchvision's models/vision_transformer.py (h14: with the weights of SWAG).
         * LLaVA: all parameters of huggingface.co/llava-hf/llava-1.5-7b-hf, less CLIP's last block
         * (12596224) and the norm after it (2048), which are never computed. */
        {"vit", "b16", 86567656, 12, 768, 12, 12, 64, 1000},
        {"vit", "b32", 88224232, 12, 768, 12, 12, 64, 1000},
        {"vit", "l16", 304326632, 24, 1024, 16, 16, 64, 1000},
        {"vit", "h14", 632045800, 32, 1280, 16, 16, 80, 1000},
        {"llava", "1.5-7b", 7063427072 - 12596224 - 2048, 23 + 32, 4096, 16, 16, 64, 32064},
        /* These follow from the shapes in config.json of huggingface.co/Qwen/Qwen2-VL-*-Instruct.
         * The model cards say 2.21, 8.29 and 73.4 billion. The heads are those of the encoder. */
        {"qwen2_vl", "2b", 2208985600, 32 + 28, 1536, 16, 16, 80, 151936},
        {"qwen2_vl", "7b", 8291375616, 32 + 28, 3584, 16, 16, 80, 152064},
        {"qwen2_vl", "72b", 73405560320, 32 + 80, 8192, 16, 16, 80, 152064},
        {"qwen", "2.5-0.5b", 494032768, 24, 896, 14, 2, 64, 151936},
        {"qwen", "2.5-1.5b", 1543714304, 28, 1536, 12, 2, 128, 151936},
        {"qwen", "2.5-3b", 3085938688, 36, 2048, 16, 2, 128, 151936},
        {"qwen", "2.5-7b", 7615616512, 28, 3584, 28, 4, 128, 152064},
        {"qwen", "2.5-14b", 14770033664, 48, 5120, 40, 8, 128, 152064},
        {"qwen", "2.5-32b", 32763876352, 64, 5120, 40, 8, 128, 152064},
        {"qwen", "2.5-72b", 72706203648, 80, 8192, 64, 8, 128, 152064},
        {"qwen", "3-0.6b", 596049920, 28, 1024, 16, 8, 128, 151936},
        {"qwen", "3-1.7b", 1720574976, 28, 2048, 16, 8, 128, 151936},
        {"qwen", "3-4b", 4022468096, 36, 2560, 32, 8, 128, 151936},
        {"qwen", "3-8b", 8190735360, 36, 4096, 32, 8, 128, 151936},
        {"qwen", "3-14b", 14768307200, 40, 5120, 40, 8, 128, 151936},
        {"qwen", "3-32b", 32762123264, 64, 5120, 64, 8, 128, 151936},
        {"gemma", "2-2b", 2614341888, 26, 2304, 8, 4, 256, 256000},
        {"gemma", "2-9b", 9241705984, 42, 3584, 16, 8, 256, 256000},
        {"gemma", "2-27b", 27227128320, 46, 4608, 32, 16, 128, 256000},
        {"gemma", "3-1b", 999885952, 26, 1152, 4, 1, 256, 262144},
        {"gemma", "3-4b", 4300079472 - 416866032 - 1152 * 2560 - 1152, 34, 2560, 8, 4, 256, 262208},
        {"gemma", "3-12b", 12187325040 - 416866032 - 1152 * 3840 - 1152, 48, 3840, 16, 8, 256,
         262208},
        {"gemma", "3-27b", 27432406640 - 416866032 - 1152 * 5376 - 1152, 62, 5376, 32, 16, 128,
         262208},
        {"phi", "1.5", 1418270720, 24, 2048, 32, 32, 64, 51200},
        {"phi", "2", 2779683840, 32, 2560, 32, 32, 80, 51200},
        {"phi", "3-mini", 3821079552, 32, 3072, 32, 32, 96, 32064},
        {"phi", "3-mini-128k", 3821079552, 32, 3072, 32, 32, 96, 32064},
        {"phi", "3-medium", 13960238080, 40, 5120, 40, 10, 128, 32064},
        {"phi", "4", 14659507200, 40, 5120, 40, 10, 128, 100352},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded l = load(cases[i].family, cases[i].size);
        const ModelInfo *info = &l.graph.info;
        assert_int_equal(info->n_params, cases[i].n);
        assert_int_equal(info->n_layers, cases[i].layers);
        assert_int_equal(info->d_model, cases[i].dim);
        assert_int_equal(info->n_heads, cases[i].heads);
        assert_int_equal(info->n_kv_heads, cases[i].kv_heads);
        assert_int_equal(info->head_dim, cases[i].head_dim);
        assert_int_equal(info->vocab, cases[i].vocab);
        arena_free(l.arena);
    }
}

/* tests/data/model_parameters.csv has the published numbers, and the parameters that the family
 * leaves out. */
static void parameter_counts_are_those_of_the_table_of_sources(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    FILE *file = fopen(TANDEM_SOURCE_DIR "/tests/data/model_parameters.csv", "r");
    char line[512];
    uint32_t n = 0;
    assert_non_null(file);
    /* the first line has the names of the columns */
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        char family[64], size[64];
        unsigned long long all, left_out;
        assert_int_equal(sscanf(line, "%63[^,],%63[^,],%llu,%llu,", family, size, &all, &left_out),
                         4);
        Loaded l = load(family, size);
        if (l.graph.info.n_params != all - left_out)
            print_error("%s %s: %llu\n", family, size, (unsigned long long)l.graph.info.n_params);
        assert_int_equal(l.graph.info.n_params, all - left_out);
        arena_free(l.arena);
        n++;
    }
    fclose(file);
    arena_free(arena);
    assert_true(n >= 20);
}

static void qwen_has_biases_or_head_norms(void **state)
{
    (void)state;
    Loaded two = load("qwen", "2.5-tiny"), three = load("qwen", "3-tiny");
    assert_non_null(param(&two.graph, "layers.1.attention.wk.bias"));
    assert_null(param(&two.graph, "layers.1.attention.wo.bias"));
    assert_null(param(&two.graph, "layers.1.attention.q_norm.weight"));
    assert_null(param(&two.graph, "output.weight")); /* the head shares the embedding's weight */
    assert_null(param(&three.graph, "layers.1.attention.wk.bias"));
    assert_non_null(param(&three.graph, "output.weight"));
    const Tensor *norm = param(&three.graph, "layers.1.attention.q_norm.weight");
    assert_non_null(norm);
    assert_int_equal(norm->n_dims, 1); /* all heads share one weight */
    assert_int_equal(norm->dim[0], 16);
    assert_int_equal(count_ops(&three.graph, OP_rmsnorm_heads), 4);
    assert_int_equal(count_ops(&three.graph, OP_rope), 4);
    for (NodeId id = 1; id < three.graph.nodes.n; id++) /* the norm comes before RoPE */
        if (three.graph.nodes.at[id].op == OP_rope) {
            const Tensor *x = &three.graph.tensors.at[three.graph.nodes.at[id].in[0]];
            assert_int_equal(three.graph.nodes.at[x->producer].op, OP_rmsnorm_heads);
        }
    arena_free(two.arena);
    arena_free(three.arena);
}

static void gemma_scales_its_embeddings(void **state)
{
    (void)state;
    Loaded l = load("gemma", "3-tiny");
    const Graph *g = &l.graph;
    uint32_t n_global = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const Attrs *a = graph_attrs_at(g, n->attrs);
        if (n->op == OP_scale) assert_true(a->scale == 8); /* sqrt(64) */
        if (n->op == OP_attention) assert_true(a->scale == 0.25);
        if (n->op == OP_rope) n_global += a->theta == 1e6;
    }
    assert_int_equal(count_ops(g, OP_scale), 1);
    assert_int_equal(n_global, 2); /* q and k of the sixth layer */
    assert_int_equal(count_ops(g, OP_rmsnorm), 6 * 4 + 1);
    assert_int_equal(count_ops(g, OP_gelu), 6);
    arena_free(l.arena);
}

static void phi_2_adds_attention_and_mlp_of_one_norm(void **state)
{
    (void)state;
    Loaded two = load("phi", "2-tiny"), three = load("phi", "3-tiny");
    assert_int_equal(count_ops(&two.graph, OP_layernorm), 2 + 1);
    assert_int_equal(count_ops(&three.graph, OP_rmsnorm), 2 * 2 + 1);
    assert_non_null(param(&two.graph, "head.bias"));
    assert_null(param(&three.graph, "head.bias"));
    assert_int_equal(count_ops(&two.graph, OP_rope), 4);
    for (NodeId id = 1; id < two.graph.nodes.n; id++)
        if (two.graph.nodes.at[id].op == OP_rope)
            assert_int_equal(graph_attrs_at(&two.graph, two.graph.nodes.at[id].attrs)->rope_dims,
                             6);
    arena_free(two.arena);
    arena_free(three.arena);
}

/* The factors, 4096 tokens, 32 turns and 1 turn come from each model's config.json. DeepSeek's
 * scores are scaled by (0.1 mscale ln 40 + 1)^2 / sqrt(128 + 64). gpt-oss multiplies the rotated
 * elements by 0.1 ln 32 + 1. */
static void deepseek_and_gpt_oss_scale_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *family, *size;
        double factor, gain, scale;
        int64_t yarn;
        OpKind attention;
    } cases[] = {
        {"deepseek", "v2-lite", 40, 0, 0.11472138679292611, 2, OP_attention_wide},
        {"deepseek", "v2", 40, 0, 0.11472138679292611, 2, OP_attention_wide},
        {"deepseek", "v3", 40, 0, 0.13523377886088010, 2, OP_attention_wide},
        {"gpt_oss", "20b", 32, 1.3465735902799727, 0.125, 1, OP_attention_sink},
        {"gpt_oss", "120b", 32, 1.3465735902799727, 0.125, 1, OP_attention_sink},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded l = load(cases[i].family, cases[i].size);
        const Graph *g = &l.graph;
        for (NodeId id = 1; id < g->nodes.n; id++) {
            const Attrs *a = graph_attrs_at(g, g->nodes.at[id].attrs);
            if (g->nodes.at[id].op == cases[i].attention)
                assert_true(fabs(a->scale - cases[i].scale) < 1e-15);
            if (g->nodes.at[id].op != OP_rope) continue;
            assert_true(a->rope_factor == cases[i].factor && a->rope_context == 4096);
            assert_true(a->rope_low == 1 && a->rope_high == 32);
            assert_true(fabs(a->rope_gain - cases[i].gain) < 1e-15);
            assert_int_equal(a->rope_yarn, cases[i].yarn);
        }
        assert_int_equal(count_ops(g, OP_rope), 2 * g->info.n_layers);
        assert_int_equal(count_ops(g, cases[i].attention), g->info.n_layers);
        arena_free(l.arena);
    }
}

/* This is the model before its context was extended: it has no scaling, and ordinary scores of
 * attention. */
static void yarn_can_be_switched_off(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file("off.lua", "return plan { model = require 'models.deepseek' { size = 'v3', "
                                  "rope_scaling = false }, batch = { seq = 64 } }\n");
    Config config;
    Graph g;
    Diag d = diag_in(arena);
    assert_true(front_load("off.lua", NULL, arena, &config, &g, &d));
    for (NodeId id = 1; id < g.nodes.n; id++) {
        const Attrs *a = graph_attrs_at(&g, g.nodes.at[id].attrs);
        if (g.nodes.at[id].op == OP_rope) assert_true(a->rope_factor == 0 && a->rope_yarn == 0);
        if (g.nodes.at[id].op == OP_attention_wide)
            assert_true(fabs(a->scale - 1 / sqrt(192)) < 1e-15);
    }
    assert_int_equal(count_ops(&g, OP_rope), 2 * 61);
    assert_int_equal(count_ops(&g, OP_attention_wide), 61);
    arena_free(arena);
}

/* config.json of Phi-3-mini-128k: 48 factors of each kind. Up to 4096 tokens the short factors are
 * used, and above that the long ones. Both kinds also multiply by sqrt(1 + ln 32 / ln 4096). */
static void phi_3_takes_its_factors_by_the_length_of_a_sequence(void **state)
{
    (void)state;
    static const struct {
        int seq;
        double first, middle, last;
    } cases[] = {{4096, 1.1, 2.000000000000001, 3.049999999999997},
                 {8192, 1.0700000524520874, 53.66000747680664, 64.76000213623047}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        command_write_file("long.lua", arena_print(arena,
                                                   "return plan { model = require 'models.phi' "
                                                   "'3-mini-128k', batch = { seq = %d } }\n",
                                                   cases[i].seq));
        Config config;
        Graph g;
        Diag d = diag_in(arena);
        assert_true(front_load("long.lua", NULL, arena, &config, &g, &d));
        for (NodeId id = 1; id < g.nodes.n; id++) {
            const Attrs *a = graph_attrs_at(&g, g.nodes.at[id].attrs);
            if (g.nodes.at[id].op != OP_rope) continue;
            assert_int_equal(attr_rope_pairs(a), 48);
            assert_true(a->rope_pair[0] == cases[i].first && a->rope_pair[24] == cases[i].middle);
            assert_true(a->rope_pair[47] == cases[i].last && a->rope_factor == 0);
            assert_true(fabs(a->rope_gain - 1.1902380714238083) < 1e-15);
        }
        assert_int_equal(count_ops(&g, OP_rope), 2 * 32);
        arena_free(arena);
    }
}

/* The text of a plan contains the factors, so it reads back as the same plan. */
static void the_text_of_a_plan_keeps_rope_factors(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file("long.lua",
                       "return plan { model = require 'models.phi' { size = '3-128k-tiny',\n"
                       "  layers = 1 }, batch = { global = 1, micro = 1, seq = 128 } }\n");
    CommandResult text = COMMAND(arena, 60, "show", "long.lua", "--text");
    assert_int_equal(text.exit_code, 0);
    assert_non_null(strstr(text.out, " rope_pair=1.1,4,30,33\n"));
    command_write_file("long.plan", text.out);
    CommandResult again = COMMAND(arena, 60, "show", "long.plan", "--text");
    assert_int_equal(again.exit_code, 0);
    assert_string_equal(again.out, text.out);
    CommandResult check = COMMAND(arena, 60, "check", "long.plan", "--db", "none");
    assert_int_equal(check.exit_code, 0);
    arena_free(arena);
}

/* The plans also have replicated weights whose gradients are partial sums over tp: q_norm, and all
 * norms. */
static void plans_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const models[][2] = {
        {"qwen", "2.5-7b"},     {"qwen", "2.5-0.5b"}, {"qwen", "3-8b"},    {"gemma", "2-2b"},
        {"gemma", "3-12b"},     {"phi", "2"},         {"phi", "3-medium"}, {"deepseek", "v2-lite"},
        {"deepseek", "v2"},     {"deepseek", "v3"},   {"gpt_oss", "20b"},  {"gpt_oss", "tiny"},
        {"phi", "3-mini-128k"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Arena *arena = arena_new();
        command_write_file(
            "verify.lua",
            arena_print(
                arena,
                "return plan { model = require 'models.%s' '%s',\n"
                "  batch = { global = 8, micro = 2, seq = 64 }, mesh = { dp_shard = 2, tp = "
                "2 },\n  parallel = { tp { sequence = true }, ac 'selective', fsdp2 {} } }\n",
                models[i][0], models[i][1]));
        CommandResult r = COMMAND(arena, 60, "run", "verify.lua", "--verify", "--db", "none");
        if (r.exit_code != 0) print_error("%s %s\n%s%s", models[i][0], models[i][1], r.out, r.err);
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
        arena_free(arena);
    }
}

/* gpt-oss has a sink for each head. Heads are split over tp, then over the ranks of cp that
 * exchange them. So a rank has the gradient of only some sinks, and only a partial sum of it. */
static void sinks_are_cut_over_tp_and_cp(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file(
        "sinks.lua", "return plan { model = require 'models.gpt_oss' { size = 'tiny', heads = 16,\n"
                     "  kv_heads = 8 }, batch = { global = 2, micro = 1, seq = 64 },\n"
                     "  mesh = { dp_shard = 2, cp = 2, tp = 2 },\n"
                     "  parallel = { tp {}, cp 'all_to_all', fsdp2 {} } }\n");
    CommandResult r = COMMAND(arena, 60, "run", "sinks.lua", "--verify", "--db", "none");
    if (r.exit_code != 0) print_error("%s%s", r.out, r.err);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
    arena_free(arena);
}

/* Tokens of the encoder have no labels. All layers read the same two tables of distances. */
static void encoder_and_decoder_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const plans[][2] = {
        {"base", "mesh = { dp_shard = 2, tp = 2 }, parallel = { tp { sequence = true }, ac "
                 "'selective', fsdp2 {} }"},
        {"v1.1-base",
         "mesh = { dp_replicate = 2, tp = 4 }, parallel = { tp {}, ac 'full', ddp {} }"},
        {"v1.1-large", "mesh = { pp = 2, dp_shard = 2 }, parallel = { pp {}, fsdp2 {} }"},
        {"small", "mesh = { dp_shard = 4 }, parallel = { zero 'optim_grads', compile {} }"},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        Arena *arena = arena_new();
        command_write_file("t5.lua",
                           arena_print(arena,
                                       "return plan { model = require 'models.t5' '%s',\n"
                                       "  batch = { global = 8, micro = 2, seq = 640 }, %s }\n",
                                       plans[i][0], plans[i][1]));
        CommandResult r = COMMAND(arena, 60, "run", "t5.lua", "--verify", "--db", "none");
        if (r.exit_code != 0) print_error("%s, %s\n%s%s", plans[i][0], plans[i][1], r.out, r.err);
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
        arena_free(arena);
    }
}

/* The image comes before the text or within it. The encoder is trained, frozen and sharded, or
 * frozen and whole. One model classifies images. */
static void models_of_images_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const plans[][3] = {
        {"vit' 'b16'", "seq = 1",
         "mesh = { dp_shard = 2, tp = 2 }, parallel = { tp {}, ac 'full', fsdp2 {} }"},
        {"llava' '1.5-7b'", "seq = 64",
         "mesh = { dp_shard = 2, tp = 2 }, parallel = { tp { sequence = true }, ac 'selective', "
         "fsdp2 {} }"},
        {"llava' '1.5-7b'", "seq = 64",
         "mesh = { dp_replicate = 2, dp_shard = 2 }, parallel = { freeze { modules = { 'encoder' } "
         "}, fsdp2 {} }"},
        {"llava' { size = '1.5-7b', before = 2 }", "seq = 64",
         "mesh = { dp_shard = 3 }, parallel = { freeze { modules = { 'encoder', 'layers' }, shard "
         "= false }, fsdp2 {} }"},
        {"llava' '1.5-7b'", "seq = 64",
         "mesh = { dp_shard = 4 }, parallel = { freeze { modules = { 'encoder' } }, zero "
         "'optim_grads' }"},
        {"llava' '1.5-7b'", "seq = 64",
         "mesh = { pp = 2 }, parallel = { pp {}, freeze { modules = { 'encoder' } } }"},
        {"qwen2_vl' '2b'", "seq = 64",
         "mesh = { dp_shard = 2, tp = 2 }, parallel = { tp { sequence = true }, ac 'selective', "
         "fsdp2 {} }"},
        {"qwen2_vl' '7b'", "seq = 64",
         "mesh = { dp_replicate = 2, dp_shard = 2 }, parallel = { freeze { modules = { 'encoder' } "
         "}, fsdp2 {} }"},
        {"qwen2_vl' { size = '7b', before = 2 }", "seq = 64",
         "mesh = { dp_shard = 3 }, parallel = { freeze { modules = { 'encoder', 'layers' }, shard "
         "= false }, fsdp2 {} }"},
        {"qwen2_vl' '7b'", "seq = 64",
         "mesh = { pp = 2, tp = 2 }, parallel = { pp {}, tp {}, freeze { modules = { 'encoder' } "
         "} }"},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        Arena *arena = arena_new();
        command_write_file("images.lua",
                           arena_print(arena,
                                       "return plan { model = require 'models.%s,\n"
                                       "  batch = { global = 24, micro = 2, %s }, %s }\n",
                                       plans[i][0], plans[i][1], plans[i][2]));
        CommandResult r = COMMAND(arena, 60, "run", "images.lua", "--verify", "--db", "none");
        if (r.exit_code != 0) print_error("%s, %s\n%s%s", plans[i][0], plans[i][2], r.out, r.err);
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
        arena_free(arena);
    }
}

/* Fused projections have fewer keys than heads, or fewer than ranks. They are tested under every
 * pass. */
static void fused_plans_compute_what_one_rank_does(void **state)
{
    (void)state;
    static const char *const plans[][3] = {
        {"phi' { size = '3-medium'", "dp_shard = 2, tp = 2",
         "tp { sequence = true }, ac 'selective', fsdp2 {}"},
        {"phi' { size = '3-medium'", "tp = 20",
         "tp { sequence = true }, ac { ops = { 'attention', 'linear' } }"},
        {"phi' { size = '2', dropout = 0.1", "dp_shard = 2, tp = 4",
         "tp { sequence = true }, ac 'full', fsdp2 {}"},
        {"phi' { size = '4'", "pp = 2, tp = 2", "pp 'zb_h1', tp {}, ac 'full'"},
        {"llama' { size = '3.1-8b'", "dp_shard = 2, tp = 16",
         "tp { sequence = true }, zero 'optim'"},
        {"llama' { size = '3.1-8b'", "dp_shard = 4, tp = 2",
         "tp { sequence = true }, float8 'rowwise', fsdp2 {}"},
        {"llama' { size = '3.1-8b'", "dp_shard = 4, tp = 2",
         "tp {}, float8 { fsdp_gather = true }, fsdp2 {}"},
        {"qwen' { size = '2.5-7b'", "dp_replicate = 2, tp = 4", "tp { sequence = true }, ddp {}"},
        {"qwen' { size = '2.5-3b'", "pp = 2, dp_shard = 2, tp = 4", "pp 'gpipe', tp {}, fsdp2 {}"},
        {"qwen' { size = '3-8b'", "dp_replicate = 2, dp_shard = 2, tp = 2",
         "tp {}, fsdp2 { copy = true }, compile {}"},
        {"gpt2' { size = '124m', dropout = 0.1", "dp_shard = 2, tp = 3",
         "tp { sequence = true }, ac 'full', zero 'optim_grads_params'"},
        {"gpt2' { size = '124m'", "cp = 2, tp = 2", "tp {}, cp 'all_to_all'"},
        {"gpt2' { size = '124m'", "cp = 4", "cp { mode = 'ring', all_to_all = 2 }"},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        Arena *arena = arena_new();
        command_write_file(
            "fused.lua",
            arena_print(arena,
                        "return plan { model = require 'models.%s, fused = true },\n"
                        "  batch = { global = 24, micro = 2, seq = 960 }, mesh = { %s },\n"
                        "  %s\n"
                        "  parallel = { %s } }\n",
                        plans[i][0], plans[i][1],
                        strstr(plans[i][2], "float8")
                            ? "cluster = require 'clusters.dgx_h100' { nodes = 1 },"
                            : "",
                        plans[i][2]));
        CommandResult r = COMMAND(arena, 60, "run", "fused.lua", "--verify", "--db", "none");
        if (r.exit_code != 0) print_error("%s, %s\n%s%s", plans[i][0], plans[i][1], r.out, r.err);
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_the_published_ones),
        cmocka_unit_test(parameter_counts_are_those_of_the_table_of_sources),
        cmocka_unit_test(qwen_has_biases_or_head_norms),
        cmocka_unit_test(gemma_scales_its_embeddings),
        cmocka_unit_test(phi_2_adds_attention_and_mlp_of_one_norm),
        cmocka_unit_test(deepseek_and_gpt_oss_scale_as_published),
        cmocka_unit_test(yarn_can_be_switched_off),
        cmocka_unit_test(phi_3_takes_its_factors_by_the_length_of_a_sequence),
        cmocka_unit_test(the_text_of_a_plan_keeps_rope_factors),
        cmocka_unit_test(sinks_are_cut_over_tp_and_cp),
        cmocka_unit_test(plans_compute_what_one_rank_does),
        cmocka_unit_test(encoder_and_decoder_compute_what_one_rank_does),
        cmocka_unit_test(models_of_images_compute_what_one_rank_does),
        cmocka_unit_test(fused_plans_compute_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
