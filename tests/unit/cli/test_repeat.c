/* A repeated `sim` prints the stored output and compiles nothing, until something changes on which
 * the output depends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "store/private.h"
#include "tests/support/command.h"

static const char mark[] = "UPDATE found SET answer = replace(answer, ?, ?)";

#define PLAN TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua"

static const char small_plan[] =
    "return plan {\n"
    "  model = require 'models.mine' (4),\n"
    "  cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
    "  batch = { global = 8, micro = 1, seq = 512 },\n"
    "  mesh = { dp_shard = 8 },\n"
    "  parallel = { fsdp2 {} },\n"
    "  precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' },\n"
    "  optimizer = adamw { lr = 3e-4 },\n"
    "}\n";
static const char small_model[] =
    "return function(layers)\n"
    "  return require 'models.llama' { size = 'tiny', layers = layers }\n"
    "end\n";

/* Changes every stored answer and gives its row the right digest. If a command prints the change,
 * it has read the answer. */
static void change_answers(const char *db, const char *sql)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Store *store = store_open(db, false, &d);
    assert_non_null(store);
    assert_true(db_run(store_db(store), &d, sql, "ss", "throughput ", "THROUGHPUT "));
    store_close(store);
    arena_free(arena);
}

static CommandResult sim(Arena *arena, const char *plan, const char *db, const char *more)
{
    CommandResult r = COMMAND(arena, 60, "sim", plan, "--db", db, more);
    assert_false(r.timed_out);
    return r;
}

static void a_repeated_command_prints_the_same(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    static const char *const more[] = {NULL, "--json", "--tokens=15T", "--set=runtime=torchtitan"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        CommandResult first = sim(arena, PLAN, db, more[i]);
        CommandResult again = sim(arena, PLAN, db, more[i]);
        assert_int_not_equal(access(arena_print(arena, "%s-wal", db), F_OK), 0);
        assert_int_equal(first.exit_code, again.exit_code);
        assert_string_equal(first.err, again.err);
        const char *line = strstr(first.out, ".db  (calibration");
        if (line == NULL) { /* with --json, the second command prints the run of the first */
            assert_string_equal(first.out, again.out);
            continue;
        }
        const size_t n = (size_t)(line - first.out) + 3;
        assert_memory_equal(first.out, again.out, n);
        const char *added = ": found, not simulated again";
        assert_memory_equal(again.out + n, added, strlen(added));
        assert_string_equal(first.out + n, again.out + n + strlen(added));
    }
    arena_free(arena);
}

static void a_repeated_command_prints_the_stored_answer(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    sim(arena, PLAN, db, NULL);
    change_answers(db, mark);
    assert_non_null(strstr(sim(arena, PLAN, db, NULL).out, "\nTHROUGHPUT "));
    /* An answer holds only for the same options. */
    assert_null(strstr(sim(arena, PLAN, db, "--set=batch.global=128").out, "THROUGHPUT"));
    assert_null(strstr(sim(arena, PLAN, db, "--explain").out, "THROUGHPUT"));
    arena_free(arena);
}

/* The answer holds while the same scripts are found, with the same bytes. */
static void a_changed_script_is_read_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *plan = arena_print(arena, "%s/plan.lua", folder);
    const char *models = arena_print(arena, "%s/models", folder);
    CommandResult made =
        command_run_program(arena, 10, (const char *const[]){"mkdir", models, NULL});
    assert_int_equal(made.exit_code, 0);
    const char *model = arena_print(arena, "%s/mine.lua", models);
    command_write_file(plan, small_plan);
    command_write_file(model, small_model);
    CommandResult first = sim(arena, plan, db, NULL);
    assert_int_equal(first.exit_code, 0);
    change_answers(db, mark);
    assert_non_null(strstr(sim(arena, plan, db, NULL).out, "THROUGHPUT"));
    command_write_file(model, arena_print(arena, "%s-- a comment\n", small_model));
    assert_null(strstr(sim(arena, plan, db, NULL).out, "THROUGHPUT"));
    change_answers(db, mark);
    /* A file beside the plan hides the library's file of that name. */
    const char *hides = arena_print(arena, "%s/llama.lua", models);
    command_write_file(hides, "return 1\n");
    CommandResult hidden = sim(arena, plan, db, NULL);
    assert_int_equal(hidden.exit_code, 3);
    assert_null(strstr(hidden.out, "THROUGHPUT"));
    arena_free(arena);
}

static const char with_override[] =
    "local there, override = pcall(require, 'override')\n"
    "return plan {\n"
    "  model = require 'models.llama' { size = 'tiny', layers = 4 },\n"
    "  cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
    "  batch = { global = there and override.global or 8, micro = 1, seq = 512 },\n"
    "  mesh = { dp_shard = 8 }, parallel = { fsdp2 {} }, optimizer = adamw { lr = 3e-4 },\n"
    "  precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' },\n"
    "}\n";

/* The plan also depends on a script that `require` did not find. */
static void a_script_that_was_absent_changes_the_answer(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *plan = arena_print(arena, "%s/plan.lua", folder);
    command_write_file(plan, with_override);
    sim(arena, plan, db, NULL);
    change_answers(db, mark);
    assert_non_null(strstr(sim(arena, plan, db, NULL).out, "THROUGHPUT"));
    const char *const sweep[] = {"sweep", plan, "--db", db, "--try=batch.seq=256,512", NULL};
    CommandResult few = command_run(arena, 60, sweep);
    assert_int_equal(few.exit_code, 0);
    command_write_file(arena_print(arena, "%s/override.lua", folder), "return { global = 64 }\n");
    CommandResult more = sim(arena, plan, db, NULL);
    assert_null(strstr(more.out, "THROUGHPUT"));
    assert_non_null(strstr(more.out, "64 sequences"));
    CommandResult swept = command_run(arena, 60, sweep);
    const char *row = strstr(swept.out, " 256 ");
    assert_non_null(row);
    assert_null(strstr(few.out, arena_copy(arena, row, strcspn(row, "\n"))));
    arena_free(arena);
}

/* Returns true if the store answers the second of two equal commands. The plan looks for `n_absent`
 * scripts that do not exist. */
static bool is_repeated(int n_absent)
{
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *plan = arena_print(arena, "%s/plan.lua", folder);
    command_write_file(plan,
                       arena_print(arena, "for i = 1, %d do pcall(require, 'no' .. i) end\n%s",
                                   n_absent, with_override));
    sim(arena, plan, db, NULL);
    change_answers(db, mark);
    const bool repeated = strstr(sim(arena, plan, db, NULL).out, "THROUGHPUT") != NULL;
    arena_free(arena);
    return repeated;
}

/* The list of absent scripts has room for 31. One of them is `override`. With a longer list, no
 * answer is stored. */
static void with_too_many_absent_scripts_no_answer_is_stored(void **state)
{
    (void)state;
    assert_true(is_repeated(30));
    assert_false(is_repeated(31));
    assert_false(is_repeated(32));
    assert_false(is_repeated(40));
}

/* A damaged prediction is an error, as in every command that reads it. */
static void a_damaged_prediction_is_not_printed_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    sim(arena, PLAN, db, NULL);
    Diag d = diag_in(arena);
    /* a connection that writes no digests */
    Db *raw = db_open(db, false, store_migrations, store_n_migrations, &d);
    assert_non_null(raw);
    assert_true(db_run(raw, &d, "UPDATE run SET step_ps = 1", ""));
    db_close(raw);
    CommandResult damaged = sim(arena, PLAN, db, NULL);
    assert_int_equal(damaged.exit_code, 7);
    assert_non_null(strstr(damaged.err, "store-damaged"));
    arena_free(arena);
}

/* An answer is not used if its run is missing, or if a value was changed. */
static void a_lost_or_changed_answer_is_made_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    sim(arena, PLAN, db, NULL);
    const CommandResult again = sim(arena, PLAN, db, NULL);
    Diag d = diag_in(arena);
    /* a connection that writes no digests */
    Db *raw = db_open(db, false, store_migrations, store_n_migrations, &d);
    assert_non_null(raw);
    assert_true(db_run(raw, &d, mark, "ss", "throughput ", "T "));
    db_close(raw);
    assert_string_equal(sim(arena, PLAN, db, NULL).out, again.out);
    change_answers(db, "UPDATE found SET run = NULL, answer = replace(answer, ?, ?)");
    assert_string_equal(sim(arena, PLAN, db, NULL).out, again.out);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_command_prints_the_same),
        cmocka_unit_test(a_repeated_command_prints_the_stored_answer),
        cmocka_unit_test(a_changed_script_is_read_again),
        cmocka_unit_test(a_script_that_was_absent_changes_the_answer),
        cmocka_unit_test(with_too_many_absent_scripts_no_answer_is_stored),
        cmocka_unit_test(a_damaged_prediction_is_not_printed_again),
        cmocka_unit_test(a_lost_or_changed_answer_is_made_again),
    };
    return cmocka_run_group_tests_name("a repeated sim", tests, NULL, NULL);
}
