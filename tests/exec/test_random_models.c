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
enum { SEED = 20261125, MOST_RANKS = 16 };

typedef struct Family {
    const char *name, *size;
    bool experts, halves; /* halves: an encoder and a decoder, so two stages at most, and no cp */
} Family;

static const Family families[] = {
    {"deepseek", "tiny", true, false},    {"deepseek", "v2", true, false},
    {"deepseek", "v2-lite", true, false}, {"t5", "tiny", false, true},
    {"t5", "v1.1-tiny", false, true},     {"gemma", "2-tiny", false, false},
    {"gemma", "3-tiny", false, false},    {"qwen", "3-moe-tiny", true, false},
    {"qwen", "2.5-tiny", false, false},   {"llama", "tiny", false, false},
    {"mixtral", "tiny", true, false},     {"gpt_oss", "tiny", true, false},
    {"phi", "2-tiny", false, false},      {"mamba2", "tiny", false, false},
    {"nemotron_h", "tiny", false, false},
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
} Axes;

static bool scans(const Family *f)
{
    return strcmp(f->name, "mamba2") == 0 || strcmp(f->name, "nemotron_h") == 0;
}

static Axes draw_axes(Draw *d, const Family *f)
{
    static const uint32_t sizes[] = {1, 1, 2, 2, 3, 4};
    Axes a;
    do {
        a.pp = f->halves ? 1 + draw(d, 2) : sizes[draw(d, 6)];
        a.dp_replicate = sizes[draw(d, 6)], a.dp_shard = sizes[draw(d, 6)];
        a.ep = f->experts ? 1 + draw(d, 2) : 1;
        a.cp = f->experts || f->halves ? 1 : 1 + (draw(d, 3) == 0);
        a.tp = 1u << draw(d, 3);
        /* tp cuts the two groups of a scan, and leaves their heads to cp */
        if (scans(f) && a.cp > 1 && a.tp > 2) a.tp = 2;
    } while (a.pp * a.dp_replicate * a.dp_shard * a.ep * a.cp * a.tp > MOST_RANKS);
    return a;
}

static void draw_data(Draw *d, const Axes *a)
{
    if (a->dp_shard == 1 && a->ep == 1) {
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
    if (a->tp > 1)
        add(d, ONE_OF(d, "tp {}", "tp { sequence = true }", "tp { loss_parallel = false }",
                      "tp { sequence = true, keep_gathered = true }"));
    if (a->ep > 1) add(d, "ep {}");
    if (a->cp > 1)
        add(d,
            a->tp > 1 || draw(d, 2) ? "cp { mode = 'all_gather' }" : "cp { mode = 'all_to_all' }");
    const uint32_t ac = draw(d, 3);
    const bool attends = strcmp(f->name, "mamba2") != 0; /* "selective" recomputes attention */
    if (ac) add(d, ac == 1 || !attends ? "ac 'full'" : "ac 'selective'");
    draw_data(d, a);
    if (draw(d, 3) == 0) add(d, "compile {}");
}

static const char *draw_plan(Draw *d)
{
    const Family *f = &families[draw(d, N_FAMILIES)];
    const Axes a = draw_axes(d, f);
    draw_passes(d, f, &a);
    const uint32_t micro = 1 + draw(d, 2), data = a.dp_replicate * a.dp_shard * a.ep;
    const uint32_t global = data * micro * a.pp * (1 + draw(d, 3));
    const bool dropless = f->experts && draw(d, 2);
    const uint32_t layers = f->halves ? 2 : a.pp * (1 + draw(d, 2)) + (f->experts ? 1 : 0);
    return arena_print(d->arena,
                       "return plan {\n"
                       "  model = require 'models.%s' { size = '%s', layers = %u%s },\n"
                       "  batch = { global = %u, micro = %u, seq = 640 },\n"
                       "  mesh = { pp = %u, dp_replicate = %u, dp_shard = %u, ep = %u, cp = %u, "
                       "tp = %u },\n"
                       "  parallel = { %s },\n"
                       "}\n",
                       f->name, f->size, layers, dropless ? ", capacity_factor = 'dropless'" : "",
                       global, micro, a.pp, a.dp_replicate, a.dp_shard, a.ep, a.cp, a.tp,
                       str_text(&d->passes));
}

static void every_plan_computes_what_one_rank_does(void **state)
{
    (void)state;
    const uint64_t seed = number_of("TANDEM_SEED", SEED), n = number_of("TANDEM_PLANS", N_PLANS);
    uint32_t failed = 0;
    for (uint64_t i = 0; i < n; i++) {
        Arena *arena = arena_new();
        Draw d = {.seed = seed, .stream = i, .arena = arena, .passes = str_in(arena)};
        const char *text = draw_plan(&d);
        command_write_file("random.lua", text);
        CommandResult r = COMMAND(arena, 60, "run", "random.lua", "--verify", "--db", "none");
        if (r.exit_code != 0 || strstr(r.out, "PASS (tolerance 1e-10)") == NULL) {
            failed++;
            print_error("seed %llu, plan %llu:\n%s%s%s", (unsigned long long)seed,
                        (unsigned long long)i, text, r.out, r.err);
        }
        arena_free(arena);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_computes_what_one_rank_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
