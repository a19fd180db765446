/* Plans that are scaled down for --verify. If a plan is legal, its small plan must be legal, too:
 * the small sizes of its model must divide evenly over the small axes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "planner/lower/compile.h"
#include "tests/support/command.h"
#include "tests/support/loaded.h"
#include "tests/support/sample.h"

enum { SEQ = 960 };

#define KEMPNERFORGE(images)                                                                       \
    "kempnerforge' { dim = 384, n_layers = 2, n_heads = 24, n_kv_heads = 12, vocab_size = 256, "   \
    "norm_type = 'rmsnorm', norm_eps = 1e-5, activation = 'silu', hidden = 768, "                  \
    "head_dim = false, rope_theta = 1e4, tie_embeddings = false, qk_norm = false, "                \
    "init_std = 0.02, num_experts = 0, moe_top_k = 1, z_loss = 0, norm_weights = 1, "              \
    "images = " images " }"
#define IMAGES(arch)                                                                               \
    "{ tokens = 24, features = 8, type = 'mlp_2layer', hidden = 0, activation = 'gelu', "          \
    "arch = " arch " }"

/* The sizes of each of these models divide evenly over 2, 3, 4 and 6 ranks. */
static const char *const of_text[] = {
    KEMPNERFORGE("false"),
    KEMPNERFORGE(IMAGES("'joint_decoder'")),
    KEMPNERFORGE(IMAGES("'cross_attention', every = 1, heads = 24, kv_heads = 12")),
    "deepseek' { size = 'tiny', heads = 24 }",
    "gemma' { size = '2-tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768 }",
    "gpt2' { size = 'tiny', dim = 384, heads = 24, hidden = 768, positions = 960 }",
    "gpt_oss' { size = 'tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768 }",
    "llama' { size = 'tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768 }",
    "llava' { size = 'tiny', dim = 384, heads = 24, hidden = 768 }",
    "mamba2' { size = 'tiny', heads = 24, groups = 12 }",
    "nemotron_h' { size = 'tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768, "
    "groups = 12, scan_heads = 24 }",
    "phi' { size = '2-tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768 }",
    "qwen' { size = '3-moe-tiny', dim = 384, heads = 24, kv_heads = 12, hidden = 768 }",
    "qwen2_vl' { size = 'tiny', dim = 288, heads = 24, kv_heads = 12, head_dim = 12, "
    "hidden = 768, rows = 24, columns = 24 }",
    "t5' { size = 'tiny', heads = 24, dim = 384, hidden = 768 }",
};

typedef struct Sizes {
    uint32_t tp, cp;
    const char *context; /* the mode of cp */
    bool sequence;       /* tp divides tokens, too */
    bool blocks;         /* blocks of tokens or features share a scale */
} Sizes;

static const char *script_of(const char *model, const Sizes *s, Arena *arena)
{
    Str passes = str_in(arena);
    if (s->tp > 1) str_print(&passes, "tp { sequence = %s }, ", s->sequence ? "true" : "false");
    if (s->cp > 1) str_print(&passes, "cp '%s', ", s->context);
    if (s->blocks) str_add(&passes, "float8 { recipe = 'mxfp8', skip_indivisible = true }, ");
    if (s->cp > 1) str_add(&passes, "fsdp2 {}");
    return arena_print(arena,
                       "return plan { model = require 'models.%s,\n"
                       "  batch = { global = 2, seq = %d }, mesh = { tp = %u, cp = %u },\n"
                       "  parallel = { %s } }\n",
                       model, SEQ, s->tp, s->cp, str_text(&passes));
}

/* Returns true if the plan in script.lua loads and its passes accept it. Otherwise adds the errors
 * to `said`. */
static bool is_accepted(bool shrink, Str *said)
{
    const FrontOptions front = {.shrink = shrink};
    const LowerOptions lower = {.dtypes = dtype_map_all(DT_f64), .workspace = kernel_cpu_workspace};
    Loaded l = load_file("script.lua", &front);
    Diag d = diag_in(l.arena);
    const bool fine =
        l.fine && plan_compile(&l.config, &l.graph, &lower, NULL, l.arena, &d) != NULL;
    if (!fine) {
        str_add(said, l.errors);
        diag_print(&d, said);
    }
    arena_free(l.arena);
    return fine;
}

typedef struct Count {
    uint32_t legal, refused; /* refused: plans that are legal, but refused when scaled down */
} Count;

static void count(Count *n, const char *model, const Sizes *s)
{
    Arena *arena = arena_new();
    Str said = str_in(arena);
    const char *script = script_of(model, s, arena);
    command_write_file("script.lua", script);
    if (is_accepted(false, &said)) {
        n->legal++;
        if (!is_accepted(true, &said)) {
            n->refused++;
            print_error("%s%s", script, str_text(&said));
        }
    }
    arena_free(arena);
}

/* Counts the plans of one mesh, with and without sequence parallelism. Blocks with scales are tried
 * only without cp, because a rank's two chunks of a sequence cannot have them. */
static void count_mesh(Count *n, const char *model, uint32_t tp, uint32_t cp)
{
    static const char *const contexts[] = {"all_gather", "ring", "all_to_all"};
    for (uint32_t sequence = 0; sequence < (tp > 1 ? 2 : 1); sequence++)
        for (uint32_t way = 0; way < (cp > 1 ? 3 : 2); way++)
            count(n, model, &(Sizes){tp, cp, contexts[way], sequence == 1, cp == 1 && way == 1});
}

static void a_legal_plan_of_text_stays_legal(void **state)
{
    (void)state;
    static const uint32_t mesh[][2] = {{4, 1}, {1, 2}, {2, 2}, {1, 3}, {1, 4},
                                       {2, 1}, {3, 1}, {6, 1}, {4, 3}};
    const size_t n_meshes = SAMPLE(sizeof mesh / sizeof *mesh, 3);
    Count n = {0, 0};
    for (size_t m = 0; m < sizeof of_text / sizeof *of_text; m++) {
        const uint32_t before = n.legal;
        for (size_t i = 0; i < n_meshes; i++) count_mesh(&n, of_text[m], mesh[i][0], mesh[i][1]);
        if (n.legal - before < 2) fail_msg("too few legal plans of '%s", of_text[m]);
    }
    print_message("%u legal plans\n", n.legal);
    assert_int_equal(n.refused, 0);
    assert_true(n.legal > SAMPLE(300, 50));
}

/* ---- plans of fields ---- */

static void a_legal_plan_of_fields_stays_legal(void **state)
{
    (void)state;
    static const char *const models[] = {
        "unet' 'tiny',\n  batch = { global = 2, channels = 2, height = 480, width = 960 }",
        "wxformer_grid' 'tiny',\n"
        "  batch = { global = 2, channels = 4, targets = 3, height = 384, width = 768 }"};
    Count n = {0, 0};
    for (uint32_t i = 0; i < 2 * 4 * 3; i++) {
        Arena *arena = arena_new();
        Str said = str_in(arena);
        const char *script = arena_print(arena,
                                         "return plan { model = require 'models.%s,\n"
                                         "  mesh = { domain = %u, domain_w = %u },\n"
                                         "  parallel = { domain {}, ddp {} } }\n",
                                         models[i % 2], 1 + i / 2 % 4, 1 + i / 8);
        command_write_file("script.lua", script);
        if (is_accepted(false, &said)) {
            n.legal++;
            n.refused += !is_accepted(true, &said);
            print_error("%s", str_text(&said));
        }
        arena_free(arena);
    }
    print_message("%u legal plans\n", n.legal);
    assert_int_equal(n.refused, 0);
    assert_true(n.legal > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_legal_plan_of_text_stays_legal),
        cmocka_unit_test(a_legal_plan_of_fields_stays_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
