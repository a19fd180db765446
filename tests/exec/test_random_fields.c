/* Plans of the library's models of fields, drawn by seed over domains in one and two directions,
 * tensor and data parallelism, recomputation, micro-batches and the models' own choices: each must
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
enum { N_PLANS = 12 };
#else
enum { N_PLANS = 200 };
#endif
enum { SEED = 20261126, MOST_RANKS = 16, POLES = 16 /* rows of padding, both poles together */ };

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

static void add(Draw *d, const char *text)
{
    str_print(&d->passes, "%s%s", d->passes.n ? ", " : "", text);
}

typedef struct Axes {
    uint32_t domain, domain_w, tp, dp_shard, dp_replicate;
} Axes;

static uint32_t ranks(const Axes *a)
{
    return a->domain * a->domain_w * a->tp * a->dp_shard * a->dp_replicate;
}

static Axes draw_axes(Draw *d, bool splits_channels)
{
    Axes a;
    do {
        a.domain = 1 + draw(d, 4), a.domain_w = 1 + draw(d, 3);
        a.tp = splits_channels ? 1 + draw(d, 2) : 1;
        a.dp_shard = 1 + draw(d, 3), a.dp_replicate = 1 + (draw(d, 3) == 0);
    } while (ranks(&a) > MOST_RANKS || a.domain * a.domain_w == 1);
    return a;
}

static void draw_passes(Draw *d, const Axes *a)
{
    static const char *const domains[] = {"domain {}", "domain {}", "domain { keep_halos = true }",
                                          "domain { interior_first = false }"};
    static const char *const data[] = {"fsdp2 {}", "fsdp2 { reshard_after_forward = false }",
                                       "zero 'optim'", "zero 'optim_grads'",
                                       "zero 'optim_grads_params'"};
    add(d, domains[draw(d, 4)]);
    if (a->tp > 1) add(d, "tp {}");
    if (draw(d, 3) == 0) add(d, "ac 'full'");
    const uint32_t way = draw(d, a->dp_replicate == 1 ? 5 : 2); /* zero{} has no replicas */
    add(d, a->dp_shard > 1 ? data[way] : "ddp {}");
    if (draw(d, 4) == 0) add(d, "compile {}");
}

/* One plan in eight is of WXFormer, because its plans take the longest. */
static const char *draw_plan(Draw *d)
{
    static const char *const decoders[] = {"transpose", "resize", "shuffle"};
    static const char *const poles[] = {"", ", pad_mode = 'mirror', pad_lat = 8",
                                        ", pad_mode = 'mirror', pad_lat = { 7, 9 }",
                                        ", pad_mode = 'earth', pad_lat = 8"};
    const bool wxformer = draw(d, 8) == 0;
    const Axes a = draw_axes(d, wxformer);
    draw_passes(d, &a);
    const uint32_t micro = 1 + draw(d, 2), pads = draw(d, 4);
    const uint32_t global = a.dp_replicate * a.dp_shard * micro * (1 + draw(d, 3));
    const char *model =
        !wxformer ? "require 'models.unet' 'tiny'"
                  : arena_print(d->arena,
                                "require 'models.wxformer_grid' { size = 'tiny', decoder = '%s', "
                                "use_spectral_norm = %s%s }",
                                decoders[draw(d, 3)], draw(d, 3) ? "false" : "true", poles[pads]);
    const uint32_t level = wxformer ? 32 : 16, less = wxformer && pads ? POLES : 0;
    return arena_print(d->arena,
                       "return plan {\n"
                       "  model = %s,\n"
                       "  batch = { global = %u, micro = %u, channels = %u, targets = %u, "
                       "height = %u, width = %u },\n"
                       "  mesh = { domain = %u, domain_w = %u, tp = %u, dp_shard = %u, "
                       "dp_replicate = %u },\n"
                       "  parallel = { %s },\n"
                       "}\n",
                       model, global, micro, wxformer ? 4u : 2u, wxformer ? 3u : 2u,
                       level * a.domain - less, 2 * level * a.domain_w, a.domain, a.domain_w, a.tp,
                       a.dp_shard, a.dp_replicate, str_text(&d->passes));
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
        command_write_file("field.lua", text);
        CommandResult r = COMMAND(arena, 60, "run", "field.lua", "--verify", "--db", "none");
        if (r.exit_code != 0 || strstr(r.out, "PASS (tolerance 1e-10)") == NULL) {
            failed++;
            print_error("seed %llu, plan %llu:\n%s%s%s", (unsigned long long)seed,
                        (unsigned long long)i, text, r.out, r.err);
        }
        arena_free(arena);
    }
    assert_int_equal(failed, 0);
}

/* Fields are read in fp32, and convolutions compute in bf16. The strips of the first convolution's
 * border then have another dtype than its output. Runs use the plan's own kernels with scratch. */
static void plans_in_16_bits_are_proven_and_run(void **state)
{
    (void)state;
    static const char *const sizes[][2] = {{"mesh.domain=2", "mesh.domain_w=1"},
                                           {"mesh.domain=1", "mesh.domain_w=2"},
                                           {"mesh.domain=2", "mesh.domain_w=2"}};
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/unet_domain.lua";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Arena *arena = arena_new();
        CommandResult r =
            COMMAND(arena, 60, "run", plan, "--set", sizes[i][0], "--set", sizes[i][1], "--set",
                    "precision.compute=bf16", "--backend", "loopback", "--steps", "3", "-q");
        if (r.exit_code != 0) fail_msg("%s %s:\n%s%s", sizes[i][0], sizes[i][1], r.out, r.err);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_computes_what_one_rank_does),
                                       cmocka_unit_test(plans_in_16_bits_are_proven_and_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
