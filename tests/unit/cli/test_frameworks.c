/* Predictions for frameworks. If a plan names no runtime, each framework that could run it is
 * predicted, with the numbers of a plan that names the framework. A runtime also sets defaults of
 * passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "store/db.h"
#include "store/store.h"
#include "tests/support/command.h"

#define PLAN     TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua"
#define DROPLESS TANDEM_SOURCE_DIR "/scripts/plans/mixtral_8x7b_dropless.lua"

static json_t *document_of(CommandResult r)
{
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    return root;
}

static json_int_t bytes_of(const json_t *framework, const char *key)
{
    return json_integer_value(json_object_get(framework, key));
}

static const json_t *framework(const json_t *root, const char *name)
{
    size_t i;
    const json_t *each;
    json_array_foreach(json_object_get(root, "frameworks"), i, each)
    {
        if (strcmp(json_string_value(json_object_get(each, "runtime")), name) == 0) return each;
    }
    return NULL;
}

/* A plan with fsdp2 can run in torchtitan and in NeMo Automodel, but not in Megatron. */
static void frameworks_that_could_run_the_plan_are_predicted(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root = document_of(COMMAND(arena, 60, "check", PLAN, "--json"));
    assert_int_equal(json_array_size(json_object_get(root, "frameworks")), 2);
    assert_null(framework(root, "megatron_core"));
    const json_t *torchtitan = framework(root, "torchtitan");
    assert_non_null(torchtitan);
    assert_non_null(framework(root, "automodel"));
    assert_true(bytes_of(torchtitan, "process_bytes") > bytes_of(torchtitan, "reserved_bytes"));
    assert_true(bytes_of(torchtitan, "reserved_bytes") >= bytes_of(torchtitan, "allocated_bytes"));
    /* torchtitan's eager blocks keep more than Tandem's arena has room for. */
    assert_true(bytes_of(torchtitan, "allocated_bytes") > bytes_of(root, "peak_bytes"));
    json_decref(root);
    arena_free(arena);
}

/* A plan without a runtime gets the same report as the plan that names the runtime. */
static void a_framework_not_named_is_predicted_as_a_named_one(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *tried = document_of(COMMAND(arena, 60, "check", PLAN, "--json"));
    json_t *named =
        document_of(COMMAND(arena, 60, "check", PLAN, "--json", "--set", "runtime=torchtitan"));
    assert_int_equal(json_array_size(json_object_get(named, "frameworks")), 1);
    assert_true(json_equal(framework(tried, "torchtitan"), framework(named, "torchtitan")));
    json_decref(tried);
    json_decref(named);
    arena_free(arena);
}

/* A plan may fit under Tandem and not under torchtitan. */
static void a_plan_may_fit_only_without_a_framework(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 60, "check", PLAN, "--set", "batch.micro=2", "--set",
                              "batch.global=32", "--set", "parallel.ac.mode=none");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, " reserved: fits 79.1 GiB\n"));
    const char *line = strstr(r.out, "framework   torchtitan: ");
    assert_non_null(line);
    assert_non_null(strstr(line, "DOES NOT FIT\n"));
    arena_free(arena);
}

/* Returns the number of collectives over tp in one step. */
static json_int_t over_tp(Arena *arena, const char *runtime, const char *keep)
{
    json_t *root = document_of(
        COMMAND(arena, 60, "sim", PLAN, "--json", "--dry-run", "--set", runtime, "--set", keep));
    json_int_t n = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(root, "communication"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "axis")), "tp") == 0)
            n += json_integer_value(json_object_get(row, "collectives"));
    }
    json_decref(root);
    return n;
}

/* PyTorch's sequence parallelism keeps the gathered input of column linears. In each of 8
 * micro-batches it gathers 2 times fewer in each of 32 blocks, and once fewer at the head. */
static void a_runtime_sets_defaults_of_passes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *seed = "seed=0";
    const json_int_t kept = over_tp(arena, "runtime=torchtitan", seed),
                     again =
                         over_tp(arena, "runtime=torchtitan", "parallel.tp.keep_gathered=false");
    assert_true(kept > 0);
    assert_int_equal(again - kept, 8 * (2 * 32 + 1));
    assert_int_equal(over_tp(arena, "runtime=kempnerforge", seed), again);
    arena_free(arena);
}

/* `sim` prints a step for torchtitan beside Tandem's own. It equals the step of a plan that names
 * torchtitan, and both follow the scenario. */
static void a_scenario_reaches_every_framework(void **state)
{
    (void)state;
    static const struct {
        const char *plan, *option, *value, *runtime;
    } cases[] = {
        {PLAN, "--straggler", "3:2", "torchtitan"},
        {PLAN, "--jitter", "0.1", "torchtitan"},
        {DROPLESS, "--imbalance", "1.5", "automodel"},
        {DROPLESS, "--imbalance", "drawn", "automodel"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        const char *set = arena_print(arena, "runtime=%s", cases[i].runtime);
        const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
        for (int again = 0; again < 2; again++) { /* the second time, the store has the answers */
            json_t *plain = document_of(COMMAND(arena, 60, "sim", cases[i].plan, "--json", "--db",
                                                db, "--set", "model.layers=4"));
            json_t *tried =
                document_of(COMMAND(arena, 60, "sim", cases[i].plan, "--json", "--db", db, "--set",
                                    "model.layers=4", cases[i].option, cases[i].value));
            json_t *named = document_of(COMMAND(arena, 60, "sim", cases[i].plan, "--json",
                                                "--dry-run", "--set", "model.layers=4", "--set",
                                                set, cases[i].option, cases[i].value));
            const json_int_t step = bytes_of(framework(tried, cases[i].runtime), "step_ps");
            if (step == bytes_of(framework(plain, cases[i].runtime), "step_ps"))
                fail_msg("%s %s changes nothing", cases[i].option, cases[i].value);
            assert_int_equal(step, bytes_of(named, "step_ps"));
            json_decref(plain);
            json_decref(tried);
            json_decref(named);
        }
        arena_free(arena);
    }
}

/* The best plan of a sweep is simulated for the frameworks, too. */
static void the_best_plan_of_a_sweep_is_predicted_for_frameworks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 60, "sweep", PLAN, "--set", "mesh.dp_shard=-1", "--try",
                              "mesh.tp=1,2", "--db", "none");
    assert_int_equal(r.exit_code, 0);
    const char *best = strstr(r.out, "best        --set mesh.tp=");
    assert_non_null(best);
    assert_non_null(strstr(best, "best plan   in torchtitan: "));
    arena_free(arena);
}

/* Returns how often the script printed its line. */
static uint32_t count_evaluations(const char *text)
{
    uint32_t n = 0;
    while ((text = strstr(text, "evaluated\n")) != NULL) text++, n++;
    return n;
}

/* The process that simulated the best plan makes its lines. With --prove, the first process makes
 * the same lines, but must evaluate the script a second time. */
static void both_processes_print_the_same_best_lines(void **state)
{
    (void)state;
    static const char *const settings[] = {"batch.global=16", "batch.global=256",
                                           "runtime=torchtitan"};
    Arena *arena = arena_new();
    const char *plan = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(plan, "print 'evaluated'\nreturn require 'plans.llama3_8b'\n");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *said[2];
        uint32_t evaluations[2];
        for (int again = 0; again < 2; again++) {
            CommandResult r = COMMAND(arena, 60, "sweep", plan, "--set", "mesh.dp_shard=-1",
                                      "--set", "model.layers=4", "--set", settings[i], "--try",
                                      "mesh.tp=1,2", "--db", "none", again ? "--prove" : "-j1");
            assert_int_equal(r.exit_code, 0);
            said[again] = strstr(r.out, "best plan   in ");
            assert_non_null(said[again]);
            evaluations[again] = count_evaluations(r.err);
        }
        assert_string_equal(said[0], said[1]);
        /* The script is evaluated before the points, and by the process of the points. */
        assert_int_equal(evaluations[0], 2);
        assert_true(evaluations[1] > evaluations[0]);
    }
    arena_free(arena);
}

/* Changes the stored lines. A sweep that prints the change has read them from the store. */
static void change_best_lines(Arena *arena, const char *db)
{
    Diag d = diag_in(arena);
    Store *store = store_open(db, false, &d);
    assert_non_null(store);
    assert_true(db_exec(store_db(store),
                        "UPDATE found SET answer = json_set(answer, '$.text', "
                        "replace(answer ->> '$.text', 'best plan', 'found plan')) "
                        "WHERE answer ->> '$.text' IS NOT NULL",
                        &d));
    store_close(store);
}

/* A repeated sweep prints the stored lines about the best plan. A changed script makes new lines.
 */
static void a_repeated_sweep_prints_the_stored_best_lines(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *plan = arena_print(arena, "%s/p.lua", folder);
    size_t bytes = 0;
    const char *text = command_read_file(arena, PLAN, &bytes), *seq = strstr(text, "8192");
    assert_non_null(seq);
    const char *other =
        arena_print(arena, "%.*s4096%s", (int)(seq - text), text, seq + strlen("8192"));
    const char *lines[4];
    for (int i = 0; i < 4; i++) {
        const bool changed = i == 2;
        command_write_file(plan, i < 3 ? text : other);
        if (changed) change_best_lines(arena, db);
        CommandResult r = COMMAND(arena, 60, "sweep", plan, "--set", "mesh.dp_shard=-1", "--set",
                                  "model.layers=4", "--try", "mesh.tp=1,2", "--db", db);
        assert_int_equal(r.exit_code, 0);
        lines[i] = strstr(r.out, changed ? "found plan" : "best plan   in torchtitan: ");
        assert_non_null(lines[i]);
    }
    assert_string_equal(lines[0], lines[1]);
    assert_string_not_equal(lines[0], lines[3]);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_plan_of_a_sweep_is_predicted_for_frameworks),
        cmocka_unit_test(both_processes_print_the_same_best_lines),
        cmocka_unit_test(a_repeated_sweep_prints_the_stored_best_lines),
        cmocka_unit_test(frameworks_that_could_run_the_plan_are_predicted),
        cmocka_unit_test(a_framework_not_named_is_predicted_as_a_named_one),
        cmocka_unit_test(a_plan_may_fit_only_without_a_framework),
        cmocka_unit_test(a_scenario_reaches_every_framework),
        cmocka_unit_test(a_runtime_sets_defaults_of_passes),
    };
    return cmocka_run_group_tests_name("predictions for frameworks", tests, NULL, NULL);
}
