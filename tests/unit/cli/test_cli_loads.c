/* The argument of --imbalance: files and pipes of counts, ranks that share cores, and mistakes in
 * its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/command.h"

/* Writes a plan whose experts have this capacity: 'dropless' or a factor. */
static void write_plan(Arena *arena, const char *capacity)
{
    command_write_file(
        "imbalance.lua",
        arena_print(arena,
                    "return plan { model = require 'models.mixtral' { size = 'tiny', "
                    "capacity_factor = %s },\n  cluster = require 'clusters.dgx_h100' { nodes = 1 "
                    "},\n  batch = { micro = 1, seq = 64 }, mesh = { dp_shard = 2, ep = 4 },\n"
                    "  parallel = { ep { bound = 4 }, fsdp2 {} } }\n",
                    capacity));
}

static double step_of(const CommandResult *r)
{
    const char *step = strstr(r->out, "\n  \"step_ps\": ");
    if (r->exit_code != 0 || step == NULL) fail_msg("%s%s", r->out, r->err);
    return strtod(step + strlen("\n  \"step_ps\": "), NULL);
}

static double step_ps(Arena *arena, const char *how)
{
    write_plan(arena, "'dropless'");
    CommandResult r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", "none", "--json",
                              "--imbalance", how, "--seed", "1");
    return step_of(&r);
}

/* A pipe can be read only once, so the command must not read its counts a second time. */
static void counts_may_come_from_a_pipe(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'");
    const char *script = arena_print(
        arena,
        "printf '4 3 3 2\\n2 3 3 4\\n' | %s sim imbalance.lua --db none --json --seed 1 "
        "--imbalance /dev/stdin",
        TANDEM_COMMAND);
    CommandResult r =
        command_run_program(arena, 60, (const char *const[]){"sh", "-c", script, NULL});
    command_write_file("counts.txt", "4 3 3 2\n2 3 3 4\n");
    assert_true(step_of(&r) == step_ps(arena, "counts.txt"));
    assert_true(step_of(&r) > step_ps(arena, "1"));
    arena_free(arena);
}

/* A factor and a file with the same load give the same step, also where ranks share cores. */
static void a_factor_equals_a_file_of_that_load_on_shared_cores(void **state)
{
    (void)state;
    static const char *const same[][2] = {{"2", "1 1 0 0\n"}, {"1.5", "3 3 1 1\n"}};
    for (int k = 0; k < 2; k++) {
        Arena *arena = arena_new();
        command_write_file("counts.txt", same[k][1]);
        command_write_file("cores.lua",
                           "return plan { model = require 'models.mixtral' { size = 'tiny', "
                           "capacity_factor = 'dropless' },\n  cluster = require "
                           "'clusters.local_cpu' {}, batch = { micro = 1, seq = 64 },\n  mesh = { "
                           "dp_shard = 4, ep = 2 }, parallel = { ep { bound = 2 }, fsdp2 {} } }\n");
        double step[3];
        for (int i = 0; i < 3; i++) {
            const char *how = i == 0 ? same[k][0] : i == 1 ? "counts.txt" : "1";
            CommandResult r = COMMAND(arena, 60, "sim", "cores.lua", "--db", "none", "--json",
                                      "--imbalance", how);
            step[i] = step_of(&r);
        }
        assert_true(step[0] == step[1] && step[0] > step[2]);
        arena_free(arena);
    }
}

/* Under a framework's profile, memory has room for the rows of the busiest rank. */
static void memory_of_a_framework_has_room_for_the_busiest_rank(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    double bytes[2];
    write_plan(arena, "'dropless'");
    for (int k = 0; k < 2; k++) {
        CommandResult r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", "none", "--json",
                                  "--imbalance", k ? "2" : "1");
        const char *at = strstr(r.out, "\"allocated_bytes\": ");
        if (r.exit_code != 0 || at == NULL) fail_msg("%s%s", r.out, r.err);
        bytes[k] = strtod(at + strlen("\"allocated_bytes\": "), NULL);
    }
    assert_true(bytes[0] > 0 && bytes[1] > bytes[0]);
    arena_free(arena);
}

static CommandResult sim_of(Arena *arena, const char *capacity, const char *how)
{
    write_plan(arena, capacity);
    return COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance", how);
}

/* A typing mistake is reported before errors of the plan. */
static void typing_mistakes_are_reported_first(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r;
    static const char *const bad[][2] = {
        {"drwan", "--imbalance 'drwan': a factor, `drawn` or a file of counts is expected (No "},
        {"",
         "--imbalance '': a factor, `drawn` or a file of counts is expected (the text is empty)"},
        {".",
         "--imbalance '.': a factor, `drawn` or a file of counts is expected (it is a folder)"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        /* These experts have a capacity, so --imbalance would be refused for this plan, too. */
        r = sim_of(arena, "1.0", bad[k][0]);
        assert_int_equal(r.exit_code, 2);
        if (!strstr(r.err, bad[k][1]) || strstr(r.err, "uneven choices")) fail_msg("%s", r.err);
    }
    command_write_file("8", "10 30 10 10\n");
    r = sim_of(arena, "'dropless'", "8");
    if (!strstr(r.err, "./8 names the file")) fail_msg("%s", r.err);
    assert_int_equal(sim_of(arena, "'dropless'", "./8").exit_code, 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_may_come_from_a_pipe),
        cmocka_unit_test(a_factor_equals_a_file_of_that_load_on_shared_cores),
        cmocka_unit_test(memory_of_a_framework_has_room_for_the_busiest_rank),
        cmocka_unit_test(typing_mistakes_are_reported_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
