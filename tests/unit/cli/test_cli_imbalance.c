/* sim --imbalance: the plans that accept it, its upper limit, and that a prediction states it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/command.h"

static CommandResult sim_of(Arena *arena, const char *capacity, const char *runtime,
                            const char *mesh, const char *factor)
{
    const char *plan =
        arena_print(arena,
                    "return plan { model = require 'models.mixtral' { size = 'tiny', "
                    "capacity_factor = %s },\n  cluster = require 'clusters.dgx_h100' { nodes = 1 "
                    "},\n  batch = { micro = 1, seq = 64 }, mesh = { %s }, %s\n"
                    "  parallel = { ep {}, fsdp2 {} } }\n",
                    capacity, mesh, runtime);
    command_write_file("imbalance.lua", plan);
    return command_run(
        arena, 60,
        (const char *const[]){"sim", "imbalance.lua", "--dry-run", "--imbalance", factor, NULL});
}

static CommandResult sim(Arena *arena, const char *runtime, const char *mesh, const char *factor)
{
    return sim_of(arena, "1.0", runtime, mesh, factor);
}

static void refused(const char *runtime, const char *mesh, const char *factor, const char *why)
{
    Arena *arena = arena_new();
    CommandResult r = sim(arena, runtime, mesh, factor);
    if (r.exit_code != 2 || !strstr(r.err, why))
        fail_msg("--imbalance %s: code %d\n%s%s", factor, r.exit_code, r.out, r.err);
    arena_free(arena);
}

#define DROPS_NOBODY "runtime = 'megatron',"
#define EIGHT        "dp_shard = 2, ep = 4"

static void only_what_can_be(void **state)
{
    (void)state;
    refused("", EIGHT, "1.5", "uneven choices drop tokens and take no longer");
    refused(DROPS_NOBODY, "dp_shard = 8", "1.5", "no experts that ranks share");
    /* each rank has one of 4 experts, and a token with 2 choices sends it at most one */
    refused(DROPS_NOBODY, EIGHT, "2.5", "to 2, one of 4 ranks");
    refused(DROPS_NOBODY, EIGHT, "0.5", "from 1");
    refused(DROPS_NOBODY, EIGHT, "nan", "a positive number");
}

static void a_prediction_says_so(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult uneven = sim(arena, DROPS_NOBODY, EIGHT, "2"),
                  even = sim(arena, DROPS_NOBODY, EIGHT, "1");
    if (uneven.exit_code || !strstr(uneven.out, "scenario    experts x 2\n"))
        fail_msg("code %d\n%s%s", uneven.exit_code, uneven.out, uneven.err);
    assert_int_equal(even.exit_code, 0);
    assert_null(strstr(even.out, "scenario"));
    arena_free(arena);
}

/* Dropless experts drop nobody in Tandem's own runs, either. */
static void dropless_experts_may_be_uneven(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = sim_of(arena, "'dropless'", "", EIGHT, "1.5");
    if (r.exit_code || !strstr(r.out, "scenario    experts x 1.5\n"))
        fail_msg("code %d\n%s%s", r.exit_code, r.out, r.err);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_can_be),
        cmocka_unit_test(a_prediction_says_so),
        cmocka_unit_test(dropless_experts_may_be_uneven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
