/* Plans of all models of the library, drawn by seed over all passes and axes together. Each must
 * pass every proof and compute the result of one rank (`tandem run --verify`). The test counts what
 * was drawn. It fails if some pass or model was never drawn, or if too few plans have a rare
 * feature. TANDEM_SEED and TANDEM_PLANS choose another draw; with TANDEM_FIRST it begins at that
 * plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/config.h"
#include "tests/support/command.h"
#include "tests/support/plans/drawn.h"

#ifdef __SANITIZE_ADDRESS__
enum { N_PLANS = 24 };
#else
enum { N_PLANS = 320 };
#endif
enum { SEED = 20261127, ONE_OF_FIELDS = 4, MOST_MODELS = 64 };

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- what was drawn ---- */

static const char *const passes[] = {
#define PASS(name) #name,
#include "planner/front/passes.def"
};
enum { N_PASSES = sizeof passes / sizeof passes[0] };

/* For each feature, the number of drawn plans that have it. */
typedef struct Seen {
    uint32_t n, with_pass[N_PASSES], with_model[MOST_MODELS];
    uint32_t folded, rings, exchanges, beside_tp, groups, domain_rows, domain_columns, both;
    uint32_t dropless, uneven, empty, empty_dropless;
} Seen;

/* Finds the files of models that a plan can name. Other files are only parts of these models. */
static uint32_t find_models(Arena *arena, const char **names)
{
    glob_t found;
    uint32_t n = 0;
    assert_int_equal(glob(TANDEM_SOURCE_DIR "/scripts/models/*.lua", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t bytes;
        const char *text = command_read_file(arena, found.gl_pathv[i], &bytes);
        if (strstr(text, "build = build") == NULL) continue;
        assert_true(n < MOST_MODELS);
        char *name = arena_dup(arena, strrchr(found.gl_pathv[i], '/') + 1);
        *strstr(name, ".lua") = 0;
        names[n++] = arena_print(arena, "'models.%s'", name);
    }
    globfree(&found);
    return n;
}

static bool has_pass(Arena *arena, const char *text, const char *pass)
{
    const char *list = strstr(text, "parallel = ");
    return strstr(list, arena_print(arena, " %s {", pass)) != NULL ||
           strstr(list, arena_print(arena, " %s '", pass)) != NULL;
}

static void count(Seen *seen, Arena *arena, const char *text, const char *const *models)
{
    const bool ring = strstr(text, "'ring'") != NULL;
    const bool exchanges = strstr(text, "all_to_all") != NULL;
    const bool rows = strstr(text, "domain = ") && !strstr(text, "domain = 1,");
    const bool columns = strstr(text, "domain_w = ") && !strstr(text, "domain_w = 1,");
    seen->n++;
    for (uint32_t p = 0; p < N_PASSES; p++) seen->with_pass[p] += has_pass(arena, text, passes[p]);
    for (uint32_t m = 0; models[m] != NULL; m++)
        seen->with_model[m] += strstr(text, models[m]) != NULL;
    seen->folded += strstr(text, "folded") != NULL;
    seen->rings += ring, seen->exchanges += exchanges, seen->groups += ring && exchanges;
    seen->beside_tp += exchanges && has_pass(arena, text, "tp");
    seen->domain_rows += rows, seen->domain_columns += columns, seen->both += rows && columns;
}

/* Counts runs in which an expert got no token, and runs in which experts got unequal rows. */
static void count_run(Seen *seen, const char *text, const char *answer)
{
    json_t *said = json_loads(answer, 0, NULL);
    assert_non_null(said);
    const bool dropless = strstr(text, "'dropless'") != NULL;
    const bool empty = json_integer_value(json_object_get(said, "experts_without_token")) > 0;
    seen->dropless += dropless;
    seen->uneven += dropless && json_real_value(json_object_get(said, "most_tokens")) > 1.01;
    seen->empty += empty, seen->empty_dropless += empty && dropless;
    json_decref(said);
}

static void print_seen(const Seen *s, const char *const *models)
{
    print_message("%u plans. With", s->n);
    for (uint32_t p = 0; p < N_PASSES; p++)
        print_message("%s %s %u", p ? "," : "", passes[p], s->with_pass[p]);
    print_message("\nmodels:");
    for (uint32_t m = 0; models[m] != NULL; m++)
        print_message("%s %s %u", m ? "," : "", models[m], s->with_model[m]);
    print_message("\nrings %u, exchanges of heads %u (beside tp %u, in groups of a ring %u)\n"
                  "domains in rows %u, in columns %u, in both %u\n"
                  "folded experts %u, dropless %u, of these with uneven rows %u\n"
                  "experts without a token %u, of these dropless %u\n",
                  s->rings, s->exchanges, s->beside_tp, s->groups, s->domain_rows,
                  s->domain_columns, s->both, s->folded, s->dropless, s->uneven, s->empty,
                  s->empty_dropless);
}

static void all_were_drawn(const Seen *s, const char *const *models)
{
    const uint32_t n = s->n;
    if (n < 200) return;
    for (uint32_t p = 0; p < N_PASSES; p++)
        if (s->with_pass[p] < n / 100) fail_msg("too few plans with %s", passes[p]);
    for (uint32_t m = 0; models[m] != NULL; m++)
        if (s->with_model[m] == 0) fail_msg("no plan of %s", models[m]);
    assert_true(s->rings > n / 40 && s->exchanges > n / 50 && s->beside_tp > 0 && s->groups > 0);
    assert_true(s->both > n / 25 && s->folded > n / 25);
    assert_true(s->uneven > n / 25 && s->empty > n / 25 && s->empty_dropless > n / 50);
}

/* ---- */

static void every_plan_computes_what_one_rank_does(void **state)
{
    (void)state;
    Seen seen = {.n = 0};
    Arena *whole = arena_new();
    const char *models[MOST_MODELS + 1] = {NULL};
    find_models(whole, models);
    drawn_write_experts();
    const uint64_t seed = number_of("TANDEM_SEED", SEED), n = number_of("TANDEM_PLANS", N_PLANS);
    uint32_t failed = 0;
    for (uint64_t i = number_of("TANDEM_FIRST", 0); i < n; i++) {
        Arena *arena = arena_new();
        Drawn d = drawn_new(seed, i, arena);
        const char *text =
            draw(&d, ONE_OF_FIELDS) == 0 ? drawn_fields_plan(&d) : drawn_tokens_plan(&d);
        count(&seen, arena, text, models);
        command_write_file("random.lua", text);
        CommandResult r =
            COMMAND(arena, 60, "run", "random.lua", "--verify", "--db", "none", "--json");
        if (r.exit_code != 0 ||
            strstr(r.out, "\"verified\": true,\n  \"tolerance\": 1e-10,") == NULL) {
            failed++;
            print_error("seed %llu, plan %llu:\n", (unsigned long long)seed, (unsigned long long)i);
            print_error("%s%s", text, r.err);
        } else {
            count_run(&seen, text, r.out);
        }
        arena_free(arena);
    }
    print_seen(&seen, models);
    assert_int_equal(failed, 0);
    all_were_drawn(&seen, models);
    arena_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_computes_what_one_rank_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
