/* Plans of the library's models, drawn by seed over meshes, passes and their options: each must
 * pass every proof and compute the result of one rank (`tandem run --verify`). TANDEM_SEED and
 * TANDEM_PLANS choose another draw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/base/str.h"
#include "tests/support/command.h"

#ifdef __SANITIZE_ADDRESS__
enum { N_PLANS = 20 };
#else
enum { N_PLANS = 200 };
#endif
enum { SEED = 20261125, MOST_RANKS = 16, KV_HEADS = 8 };

typedef struct Family {
    const char *name, *size;
    bool experts, halves; /* halves: an encoder and a decoder, so two stages at most, and no cp */
    bool plain;           /* attention that a ring can compute */
    bool heads;           /* heads that cp may exchange beside tp */
    bool images;          /* a sample has one label instead of tokens */
} Family;

static const Family families[] = {
    {"deepseek", "tiny", true, false, false, true, false},
    {"deepseek", "v2", true, false, false, true, false},
    {"deepseek", "v2-lite", true, false, false, true, false},
    {"t5", "tiny", false, true, false, false, false},
    {"t5", "v1.1-tiny", false, true, false, false, false},
    {"gemma", "2-tiny", false, false, false, true, false},
    {"gemma", "3-tiny", false, false, false, true, false},
    {"qwen", "3-moe-tiny", true, false, true, true, false},
    {"qwen", "2.5-tiny", false, false, true, true, false},
    {"llama", "tiny", false, false, true, true, false},
    {"mixtral", "tiny", true, false, true, true, false},
    {"gpt_oss", "tiny", true, false, false, true, false},
    {"phi", "2-tiny", false, false, true, true, false},
    {"phi", "3-128k-tiny", false, false, true, true, false},
    {"llava", "tiny", false, true, false, false, false},
    {"qwen2_vl", "tiny", false, true, false, false, false},
    {"mamba2", "tiny", false, false, false, false, false},
    {"nemotron_h", "tiny", false, false, false, false, false},
    {"vit", "tiny", false, false, false, false, true},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

typedef struct Draw {
    uint64_t seed, stream, n;
    Arena *arena;
    Str passes;
} Draw;

static uint32_t draw(Draw *d, uint32_t n)
{
    return (uint32_t)rng_below(d->seed, d->stream, d->n++, n);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static const char *one_of(Draw *d, uint32_t n, const char *const *words)
{
    return words[draw(d, n)];
}
#define ONE_OF(d, ...)                                                                             \
    one_of(d, sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *),                     \
           (const char *const[]){__VA_ARGS__})

static void add(Draw *d, const char *text)
{
    str_print(&d->passes, "%s%s", d->passes.n ? ", " : "", text);
}

typedef struct Axes {
    uint32_t pp, dp_replicate, dp_shard, ep, cp, tp;
    bool folded; /* ep first takes ranks of tp, then of cp, then of the data axes */
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
static uint32_t part_of(Draw *d, uint32_t n)
{
    uint32_t k;
    do {
        k = 1 + draw(d, n);
    } while (n % k != 0);
    return k;
}

/* Takes ranks of the next axis only if all ranks of the inner axes are taken. */
static uint32_t draw_fold(Draw *d, const Axes *a)
{
    const uint32_t sizes[] = {a->tp, a->cp, a->dp_shard, a->dp_replicate};
    uint32_t ep = 1, k, i = 0;
    do {
        k = part_of(d, sizes[i]);
        ep *= k;
    } while (k == sizes[i] && ++i < 4);
    return ep;
}

static Axes draw_axes(Draw *d, const Family *f)
{
    static const uint32_t sizes[] = {1, 1, 2, 2, 3, 4};
    Axes a;
    a.cp = f->halves || f->images || draw(d, 2) ? 1 : 2u << (f->plain && draw(d, 2));
    a.tp = 1u << draw(d, 3);
    /* tp cuts the two groups of a scan, and leaves their heads to cp */
    if (scans(f) && a.cp > 1 && a.tp > 2) a.tp = 2;
    do {
        a.pp = f->halves ? 1 + draw(d, 2) : sizes[draw(d, 6)];
        a.dp_replicate = sizes[draw(d, 6)], a.dp_shard = sizes[draw(d, 6)];
        a.folded = f->experts && draw(d, 2);
        a.ep = a.folded ? draw_fold(d, &a) : f->experts ? 1 + draw(d, 2) : 1;
        /* a family's smallest size has four experts */
    } while (ranks_of(&a) > MOST_RANKS || (a.folded && 4 % a.ep != 0));
    return a;
}

/* Ranks of cp exchange heads that tp leaves whole, and tokens that tp does not cut. */
static bool may_exchange(const Family *f, const Axes *a, bool sequence, uint32_t n)
{
    if (scans(f)) return a->tp == 1;
    return f->heads && KV_HEADS % (a->tp * n) == 0 && !(a->tp > 1 && sequence);
}

static const char *draw_context(Draw *d, const Family *f, const Axes *a, bool sequence)
{
    const char *modes[4] = {"cp { mode = 'all_gather' }"};
    uint32_t n = 1;
    if (f->plain) modes[n++] = "cp { mode = 'ring' }";
    if (may_exchange(f, a, sequence, a->cp)) modes[n++] = "cp { mode = 'all_to_all' }";
    const bool groups = f->plain && !f->experts && a->cp == 4 && may_exchange(f, a, sequence, 2);
    if (groups && (a->tp > 1 || draw(d, 2))) return "cp { mode = 'ring', all_to_all = 2 }";
    return one_of(d, n, modes);
}

static void draw_data(Draw *d, const Axes *a)
{
    if (a->dp_shard == 1 && (a->ep == 1 || a->folded)) {
        if (a->dp_replicate > 1) add(d, "ddp {}");
        return;
    }
    const uint32_t n = a->dp_replicate == 1 ? 6 : 3; /* zero{} has no replicas */
    add(d, ((const char *const[]){"fsdp2 {}", "fsdp2 { reshard_after_forward = false }",
                                  "fsdp2 { copy = true }", "zero 'optim'", "zero 'optim_grads'",
                                  "zero 'optim_grads_params'"})[draw(d, n)]);
}

static void draw_passes(Draw *d, const Family *f, const Axes *a)
{
    if (a->pp > 1) add(d, ONE_OF(d, "pp '1f1b'", "pp 'gpipe'", "pp 'zb_h1'"));
    const bool sequence = a->tp > 1 && !f->images && draw(d, 2);
    if (a->tp > 1)
        add(d, sequence ? ONE_OF(d, "tp { sequence = true }",
                                 "tp { sequence = true, keep_gathered = true }")
                        : ONE_OF(d, "tp {}", "tp { loss_parallel = false }"));
    if (a->ep > 1) add(d, "ep {}");
    if (a->cp > 1) add(d, draw_context(d, f, a, sequence));
    const uint32_t ac = draw(d, 3);
    const bool attends = strcmp(f->name, "mamba2") != 0; /* "selective" recomputes attention */
    if (ac) add(d, ac == 1 || !attends ? "ac 'full'" : "ac 'selective'");
    draw_data(d, a);
    if (draw(d, 3) == 0) add(d, "compile {}");
}

/* Returns options that give each rank of tp and cp whole heads to exchange. */
static const char *heads_of(const Family *f, const Axes *a)
{
    if (a->cp == 1 || !f->heads) return "";
    return strcmp(f->name, "deepseek") == 0 ? ", heads = 8"
           : strcmp(f->name, "phi") == 0    ? ", heads = 16, kv_heads = 8, head_dim = 8"
                                            : ", heads = 16, kv_heads = 8";
}

static const char *draw_plan(Draw *d)
{
    const Family *f = &families[draw(d, N_FAMILIES)];
    const Axes a = draw_axes(d, f);
    draw_passes(d, f, &a);
    const uint32_t micro = 1 + draw(d, 2),
                   data = a.dp_replicate * a.dp_shard * (a.folded ? 1 : a.ep);
    const uint32_t global = data * micro * a.pp * (1 + draw(d, 3));
    /* uneven rows have no rooms that ranks of cp could share */
    const bool dropless =
        f->experts && draw(d, 2) && (a.cp == 1 || (a.folded && a.ep % (a.cp * a.tp) == 0));
    const uint32_t layers = f->halves ? 2 : a.pp * (1 + draw(d, 2)) + (f->experts ? 1 : 0);
    return arena_print(d->arena,
                       "return plan {\n"
                       "  model = require 'models.%s' { size = '%s', layers = %u%s%s },\n"
                       "  batch = { global = %u, micro = %u, seq = %d },\n"
                       "  mesh = { pp = %u, dp_replicate = %u, dp_shard = %u, ep = %u, cp = %u, "
                       "tp = %u%s },\n"
                       "  parallel = { %s },\n"
                       "}\n",
                       f->name, f->size, layers, heads_of(f, &a),
                       dropless ? ", capacity_factor = 'dropless'" : "", global, micro,
                       f->images ? 1 : 640, a.pp, a.dp_replicate, a.dp_shard, a.ep, a.cp, a.tp,
                       a.folded ? ", ep_mode = 'folded'" : "", str_text(&d->passes));
}

/* How many of the drawn plans have rare features. */
typedef struct Seen {
    uint32_t folded, rings, beside_tp, groups_beside_tp, images;
} Seen;

static void count(Seen *seen, const char *text)
{
    const bool exchanges = strstr(text, "all_to_all") != NULL, tp = strstr(text, "tp {") != NULL;
    const bool ring = strstr(text, "'ring'") != NULL;
    seen->folded += strstr(text, "folded") != NULL;
    seen->rings += ring;
    seen->images += strstr(text, "models.vit") != NULL;
    seen->beside_tp += exchanges && tp && !ring;
    seen->groups_beside_tp += exchanges && tp && ring;
}

static void every_plan_computes_what_one_rank_does(void **state)
{
    (void)state;
    Seen seen = {0};
    const uint64_t seed = number_of("TANDEM_SEED", SEED), n = number_of("TANDEM_PLANS", N_PLANS);
    uint32_t failed = 0;
    for (uint64_t i = 0; i < n; i++) {
        Arena *arena = arena_new();
        Draw d = {.seed = seed, .stream = i, .arena = arena, .passes = str_in(arena)};
        const char *text = draw_plan(&d);
        count(&seen, text);
        command_write_file("random.lua", text);
        CommandResult r = COMMAND(arena, 60, "run", "random.lua", "--verify", "--db", "none");
        if (r.exit_code != 0 || strstr(r.out, "PASS (tolerance 1e-10)") == NULL) {
            failed++;
            print_error("seed %llu, plan %llu:\n%s%s%s", (unsigned long long)seed,
                        (unsigned long long)i, text, r.out, r.err);
        }
        arena_free(arena);
    }
    print_message("%llu plans: %u folded, %u rings, %u exchanges of heads beside tp, %u of them in "
                  "groups of a ring\n",
                  (unsigned long long)n, seen.folded, seen.rings,
                  seen.beside_tp + seen.groups_beside_tp, seen.groups_beside_tp);
    assert_int_equal(failed, 0);
    assert_true(n < 200 ||
                (seen.folded > n / 10 && seen.rings > n / 20 && seen.beside_tp > n / 50 &&
                 seen.groups_beside_tp > 0 && seen.images > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_computes_what_one_rank_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
