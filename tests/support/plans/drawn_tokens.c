/* Plans for models of tokens and images, on meshes of all axes except the domains. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/command.h"
#include "tests/support/plans/drawn.h"

enum { KV_HEADS = 8 };

typedef struct Family {
    const char *name, *size;
    /* halves: the model has an encoder and a decoder, so it allows at most two stages, and no cp */
    bool experts, halves;
    bool plain;         /* the attention is of a kind that a ring can compute */
    bool heads;         /* cp may exchange tokens for heads, also beside tp */
    bool images;        /* a sample has one label, and no tokens */
    const char *frozen; /* the name of a module that may be frozen */
} Family;

static const Family families[] = {
    {"deepseek", "tiny", true, false, false, true, false, "layers.0"},
    {"deepseek", "v2", true, false, false, true, false, "layers.0"},
    {"deepseek", "v2-lite", true, false, false, true, false, "layers.0"},
    {"t5", "tiny", false, true, false, false, false, "encoder"},
    {"t5", "v1.1-tiny", false, true, false, false, false, "encoder"},
    {"gemma", "2-tiny", false, false, false, true, false, "layers.0"},
    {"gemma", "3-tiny", false, false, false, true, false, "layers.0"},
    {"gpt2", "tiny", false, false, true, false, false, "layers.0"},
    {"qwen", "3-moe-tiny", true, false, true, true, false, "layers.0"},
    {"qwen", "2.5-tiny", false, false, true, true, false, "layers.0"},
    {"llama", "tiny", false, false, true, true, false, "layers.0"},
    {"mixtral", "tiny", true, false, true, true, false, "layers.0"},
    {"gpt_oss", "tiny", true, false, false, true, false, "layers.0"},
    {"phi", "2-tiny", false, false, true, true, false, "layers.0"},
    {"phi", "3-128k-tiny", false, false, true, true, false, "layers.0"},
    {"llava", "tiny", false, true, false, false, false, "encoder"},
    {"qwen2_vl", "tiny", false, true, false, false, false, "encoder"},
    {"mamba2", "tiny", false, false, false, false, false, "layers.0"},
    {"nemotron_h", "tiny", false, false, false, false, false, "layers.0"},
    {"vit", "tiny", false, false, false, false, true, "encoder"},
    {"wxformer", "tiny", false, true, false, false, false, "levels.0"},
    {"kempnerforge", NULL, false, true, false, false, false, "layers.0"},
    {"drawn_experts", "own", true, false, false, false, false, "layers.0"},
    {"drawn_experts", "own", true, false, false, false, false, "layers.0"},
    {"drawn_experts", "own", true, false, false, false, false, "layers.0"},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

typedef struct Axes {
    uint32_t pp, dp_replicate, dp_shard, ep, cp, tp;
    bool folded; /* ep takes ranks of tp first, then of cp, then of the data axes */
} Axes;

static bool scans(const Family *f)
{
    return strcmp(f->name, "mamba2") == 0 || strcmp(f->name, "nemotron_h") == 0;
}

static uint32_t ranks_of(const Axes *a)
{
    return a->pp * a->dp_replicate * a->dp_shard * (a->folded ? 1 : a->ep) * a->cp * a->tp;
}

/* Draws a divisor of n. */
static uint32_t part_of(Drawn *d, uint32_t n)
{
    uint32_t k;
    do {
        k = 1 + draw(d, n);
    } while (n % k != 0);
    return k;
}

/* Draws the number of ranks over which experts are folded. An axis lends ranks only if all axes
 * inside it lend all of their ranks. */
static uint32_t draw_fold(Drawn *d, const Axes *a)
{
    const uint32_t sizes[] = {a->tp, a->cp, a->dp_shard, a->dp_replicate};
    uint32_t ep = 1, k, i = 0;
    do {
        k = part_of(d, sizes[i]);
        ep *= k;
    } while (k == sizes[i] && ++i < 4);
    return ep;
}

static Axes draw_axes(Drawn *d, const Family *f)
{
    static const uint32_t sizes[] = {1, 1, 2, 2, 3, 4};
    Axes a;
    a.cp = f->halves || f->images || draw(d, 2) ? 1 : 2u << (f->plain && draw(d, 2));
    a.tp = 1u << draw(d, 3);
    /* tp cuts the two groups of a scan, and cp cuts their heads. */
    if (scans(f) && a.cp > 1 && a.tp > 2) a.tp = 2;
    do {
        a.pp = f->halves ? 1 + draw(d, 2) : sizes[draw(d, 6)];
        a.dp_replicate = sizes[draw(d, 6)], a.dp_shard = sizes[draw(d, 6)];
        a.folded = f->experts && draw(d, 2);
        a.ep = a.folded ? draw_fold(d, &a) : f->experts ? 1 + draw(d, 2) : 1;
        /* The smallest size of each family has four experts. */
    } while (ranks_of(&a) > DRAWN_MOST_RANKS || (a.folded && 4 % a.ep != 0));
    return a;
}

/* Returns true if `n` ranks of cp may exchange tokens for heads. The number of heads must be
 * divisible by tp times n, and tp must not cut the tokens. Models with state-space layers allow the
 * exchange only without tp. */
static bool may_exchange(const Family *f, const Axes *a, bool sequence, uint32_t n)
{
    if (scans(f)) return a->tp == 1;
    return f->heads && KV_HEADS % (a->tp * n) == 0 && !(a->tp > 1 && sequence);
}

static const char *draw_context(Drawn *d, const Family *f, const Axes *a, bool sequence)
{
    const char *modes[4] = {"cp { mode = 'all_gather' }"};
    uint32_t n = 1;
    if (f->plain) modes[n++] = "cp { mode = 'ring' }";
    if (may_exchange(f, a, sequence, a->cp)) modes[n++] = "cp { mode = 'all_to_all' }";
    const bool groups = f->plain && !f->experts && a->cp == 4 && may_exchange(f, a, sequence, 2);
    if (groups && (a->tp > 1 || draw(d, 2))) return "cp { mode = 'ring', all_to_all = 2 }";
    return draw_word(d, n, modes);
}

static void draw_data(Drawn *d, const Axes *a)
{
    if (a->dp_shard == 1 && (a->ep == 1 || a->folded)) {
        if (a->dp_replicate > 1) draw_pass(d, "ddp {}");
        return;
    }
    const uint32_t n = a->dp_replicate == 1 ? 6 : 3; /* zero{} cannot be used with replicas */
    draw_pass(d,
              ((const char *const[]){"fsdp2 {}", "fsdp2 { reshard_after_forward = false }",
                                     "fsdp2 { copy = true }", "zero 'optim'", "zero 'optim_grads'",
                                     "zero 'optim_grads_params'"})[draw(d, n)]);
}

/* Leaves out models with experts, soft caps, long positions or state-space layers. They are so
 * small that rounding to 8 bits hides their whole gradient. */
static void draw_float8(Drawn *d, const Family *f)
{
    if (f->experts || !f->plain || strstr(f->size, "128k") || draw(d, 2) > 0) return;
    draw_pass(
        d,
        DRAW_WORD(d, "float8 { skip_indivisible = true }",
                  "float8 { recipe = 'rowwise', skip_indivisible = true }",
                  "float8 { recipe = 'rowwise', gather_first = true, skip_indivisible = true }"));
}

static void draw_passes(Drawn *d, const Family *f, const Axes *a)
{
    const bool meta = draw(d, 8) == 0;
    if (a->pp > 1) draw_pass(d, DRAW_WORD(d, "pp '1f1b'", "pp 'gpipe'", "pp 'zb_h1'"));
    if (meta) draw_pass(d, "meta {}");
    const bool sequence = a->tp > 1 && !f->images && draw(d, 2);
    if (a->tp > 1)
        draw_pass(d, sequence ? DRAW_WORD(d, "tp { sequence = true }",
                                          "tp { sequence = true, keep_gathered = true }")
                              : DRAW_WORD(d, "tp {}", "tp { loss_parallel = false }"));
    if (a->ep > 1) draw_pass(d, "ep {}");
    if (a->cp > 1) draw_pass(d, draw_context(d, f, a, sequence));
    draw_float8(d, f);
    const uint32_t ac = draw(d, 3);
    /* "selective" recomputes attention, which this model lacks */
    const bool attends = strcmp(f->name, "mamba2") != 0;
    if (ac) draw_pass(d, ac == 1 || !attends ? "ac 'full'" : "ac 'selective'");
    if (!meta && draw(d, 5) == 0)
        draw_pass(d, arena_print(d->arena, "freeze { modules = { '%s' } }", f->frozen));
    draw_data(d, a);
    if (draw(d, 3) == 0) draw_pass(d, "compile {}");
    if (meta) draw_pass(d, "materialize {}");
    /* tile{} allows nothing but a linear between the last block and the loss. */
    const bool tiles = !f->halves && !f->images && strcmp(f->name, "gemma") != 0;
    if (a->cp == 1 && tiles && draw(d, 3) == 0) draw_pass(d, "tile { pieces = 2 }");
}

/* Returns options of the model: enough heads for each rank of tp and cp to exchange whole ones, or
 * a position for each token. */
static const char *heads_of(const Family *f, const Axes *a)
{
    if (strcmp(f->name, "gpt2") == 0) return ", positions = 640";
    if (a->cp == 1 || !f->heads) return "";
    return strcmp(f->name, "deepseek") == 0 ? ", heads = 8"
           : strcmp(f->name, "phi") == 0    ? ", heads = 16, kv_heads = 8, head_dim = 8"
                                            : ", heads = 16, kv_heads = 8";
}

/* A shrunk model of the library has so few experts that each of them gets tokens. This model has
 * many experts, and a token chooses only one of them. */
void drawn_write_experts(void)
{
    command_write_file(DRAWN_EXPERTS,
                       "local nn = require 'tandem.nn'\n"
                       "return function(what)\n"
                       "  what.size = 'tiny'\n"
                       "  local m = require 'models.mixtral' (what)\n"
                       "  return { name = m.name, config = m.config, build = m.build,\n"
                       "    shrink = function(c, mesh)\n"
                       "      return nn.small(c, mesh, { experts = 6 * math.max(mesh.ep, 2), "
                       "top_k = 1 })\n"
                       "    end }\n"
                       "end\n");
}

static const char *kempnerforge(Drawn *d, uint32_t layers)
{
    const char *arch = DRAW_WORD(d, "", "'joint_decoder'",
                                 "'cross_attention', every = 1, heads = 4, kv_heads = 2");
    const char *images = arch[0] == 0
                             ? "false"
                             : arena_print(d->arena,
                                           "{ tokens = 4, features = 8, type = 'mlp_2layer', "
                                           "hidden = 0, activation = 'gelu', arch = %s }",
                                           arch);
    return arena_print(
        d->arena,
        "require 'models.kempnerforge' { dim = 64, n_layers = %u, n_heads = 4, n_kv_heads = 2, "
        "vocab_size = 256,\n"
        "    norm_type = '%s', norm_eps = 1e-5, activation = '%s', hidden = 96, head_dim = false, "
        "rope_theta = 1e4,\n"
        "    tie_embeddings = false, qk_norm = %s, init_std = 0.02, num_experts = 0, moe_top_k = "
        "1, "
        "z_loss = 0,\n"
        "    images = %s, norm_weights = 1 }",
        layers, DRAW_WORD(d, "rmsnorm", "layernorm"), DRAW_WORD(d, "silu", "gelu"),
        DRAW_WORD(d, "true", "false"), images);
}

static const char *model_of(Drawn *d, const Family *f, const Axes *a, bool dropless)
{
    const uint32_t layers = f->halves ? 2 : a->pp * (1 + draw(d, 2)) + (f->experts ? 1 : 0);
    if (strcmp(f->name, "kempnerforge") == 0) return kempnerforge(d, layers);
    if (strcmp(f->name, "wxformer") == 0)
        return arena_print(d->arena,
                           "require 'models.wxformer' { size = 'tiny', "
                           "use_spectral_norm = %s }",
                           DRAW_WORD(d, "true", "false"));
    const bool own = strcmp(f->size, "own") == 0;
    return arena_print(d->arena, "require '%s%s' { size = '%s', layers = %u%s%s }",
                       own ? "" : "models.", f->name, f->size, layers, heads_of(f, a),
                       dropless ? ", capacity_factor = 'dropless'" : "");
}

const char *drawn_tokens_plan(Drawn *d)
{
    const Family *f = &families[draw(d, N_FAMILIES)];
    const Axes a = draw_axes(d, f);
    draw_passes(d, f, &a);
    const uint32_t micro = 1 + draw(d, 2),
                   data = a.dp_replicate * a.dp_shard * (a.folded ? 1 : a.ep);
    const uint32_t global = data * micro * a.pp * (1 + draw(d, 3));
    /* Ranks of cp cannot share the memory of uneven rows, unless the experts are folded over all of
     * cp and tp. */
    const bool dropless =
        f->experts && draw(d, 4) && (a.cp == 1 || (a.folded && a.ep % (a.cp * a.tp) == 0));
    return arena_print(d->arena,
                       "return plan {\n"
                       "  model = %s,\n"
                       "  batch = { global = %u, micro = %u, seq = %d },\n"
                       "  mesh = { pp = %u, dp_replicate = %u, dp_shard = %u, ep = %u, cp = %u, "
                       "tp = %u%s },\n"
                       "  parallel = { %s },\n"
                       "}\n",
                       model_of(d, f, &a, dropless), global, micro, f->images ? 1 : 640, a.pp,
                       a.dp_replicate, a.dp_shard, a.ep, a.cp, a.tp,
                       a.folded ? ", ep_mode = 'folded'" : "", str_text(&d->passes));
}
