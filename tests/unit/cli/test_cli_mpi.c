/* tandem run under a real mpirun: the demonstration for newcomers, and exit codes. Rows in the
 * store, warnings and errors must come once for the whole run, not once for each rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/support/document.h"
#include "tests/support/sample.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

static json_t *parse(const CommandResult *r)
{
    json_error_t error;
    json_t *root = json_loads(r->out, 0, &error);
    if (root == NULL) fail_msg("no JSON: %s\n%s\n%s", error.text, r->out, r->err);
    return root;
}

enum { STEPS = SAMPLE(200, 20) };

/* 4 ranks as dp_shard 2 x tp 2 learn the text: the mean of the last 10 losses is under 0.6 of the
 * first. (With fewer steps under the sanitizers, it only has to be lower.) The prediction uses this
 * machine's own measurements. */
static void a_text_is_learnt_on_four_ranks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 500, "run", tiny, "-n", "4", "--db", db,
                              UNDER_SANITIZERS ? "--steps" : NULL, arena_print(arena, "%d", STEPS));
    if (r.exit_code != 0) fail_msg("code %d\n%s\n%s", r.exit_code, r.out, r.err);
    assert_non_null(strstr(r.out, "step    0  loss"));
    assert_non_null(strstr(r.out, arena_print(arena, "step  %3d  loss", STEPS - 1)));
    assert_non_null(strstr(r.out, "grad_norm"));
    assert_non_null(strstr(r.out, "tok/s"));
    assert_non_null(strstr(r.out, "(predicted "));
    const char *done = strstr(r.out, arena_print(arena, "done        %d steps", STEPS));
    assert_non_null(done);
    const char *factor = strchr(done, '(');
    assert_non_null(factor);
    double ratio = strtod(factor + 1, NULL);
    if (!(ratio > 0 && ratio < (UNDER_SANITIZERS ? 1 : 0.6)))
        fail_msg("loss only falls to %.2f of the first", ratio);
    r = COMMAND(arena, 60, "compare", "--db", db, "--json");
    json_t *compared = parse(&r);
    assert_true(document_number(compared, "unjoined_rows") == 0);
    assert_true(document_number(compared, "joined_rows") > 0);
    double step = document_number(compared, "step_ratio");
    assert_true(step > 0 && step < HUGE_VAL); /* a busy machine cannot show how accurate it is */
    print_message("predicted / measured step %.2f\n", step);
    json_decref(compared);
    /* The store has all measurements now, so a second run measures nothing. */
    r = COMMAND(arena, 60, "calibrate", tiny, "--db", db);
    if (r.exit_code != 0) fail_msg("%s", r.err);
    assert_null(strstr(r.err, "measuring"));
    assert_non_null(strstr(r.out, "missing       0 kernels, 0 collectives"));
    arena_free(arena);
}

static void check_both_backends(const char *plan)
{
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult a = COMMAND(arena, 300, "run", plan, "--steps", "3", "--db", db, "--json");
    CommandResult b = COMMAND(arena, 300, "run", plan, "--steps", "3", "--db", db, "--backend",
                              "loopback", "--json");
    if (a.exit_code != 0 || b.exit_code != 0) fail_msg("%s\n%s", a.err, b.err);
    json_t *mpi = parse(&a), *loopback = parse(&b);
    assert_true(document_number(mpi, "first_loss") == document_number(loopback, "first_loss"));
    assert_true(document_number(mpi, "last_loss") == document_number(loopback, "last_loss"));
    /* Each run prints one document, although several processes run the ranks. */
    const char *key;
    json_t *value;
    json_object_foreach(loopback, key, value) if (json_object_get(mpi, key) == NULL)
        fail_msg("under mpirun there is no '%s'", key);
    static const char *const same[] = {
        "plan_id",        "file",         "model",      "mesh",  "ranks",
        "cluster",        "global_batch", "seq",        "roles", "instructions",
        "communications", "microbatches", "arena_bytes"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        json_t *one = json_object_get(mpi, same[i]), *other = json_object_get(loopback, same[i]);
        if (one == NULL || !json_equal(one, other)) fail_msg("'%s' differs", same[i]);
    }
    /* Without --poison, memory is measured for the worst rank, and equals the plan. */
    assert_true(document_number(mpi, "highest_byte_touched") ==
                document_number(loopback, "highest_byte_touched"));
    assert_true(document_number(mpi, "highest_byte_touched") ==
                document_number(mpi, "arena_bytes"));
    CommandResult c =
        COMMAND(arena, 60, "compare", arena_print(arena, "%.0f", document_number(mpi, "run")),
                "--db", db, "--json");
    json_t *compared = parse(&c);
    assert_true(document_number(compared, "measured_peak_bytes") ==
                document_number(mpi, "highest_byte_touched"));
    json_decref(compared);
    json_decref(mpi);
    json_decref(loopback);
    arena_free(arena);
}

static void both_backends_give_the_same_losses(void **state)
{
    (void)state;
    check_both_backends(tiny);
}

/* The ranks of a domain exchange halos by MPI. */
static void both_backends_give_the_same_losses_with_domains(void **state)
{
    (void)state;
    check_both_backends(TANDEM_SOURCE_DIR "/scripts/plans/unet_domain.lua");
}

/* Checks the kind and the status of the store's newest row. */
static void newest(Arena *arena, const char *db, const char *kind, const char *status)
{
    CommandResult r = COMMAND(arena, 60, "runs", "--db", db, "--limit", "1", "--json");
    json_t *root = parse(&r), *row = json_array_get(json_object_get(root, "runs"), 0);
    assert_non_null(row);
    assert_string_equal(json_string_value(json_object_get(row, "kind")), kind);
    assert_string_equal(json_string_value(json_object_get(row, "status")), status);
    json_decref(root);
}

/* If a rank is killed, the store keeps a row for the failed run. */
static void a_run_that_dies_leaves_a_row(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 300, "run", tiny, "--steps", "2", "--db", db);
    if (r.exit_code != 0) fail_msg("%s", r.err);
    /* A process whose first argument is `run` and that has no children is a rank. In step 2 all
     * ranks exist. */
    const char *script = arena_print(
        arena,
        "%s run %s --steps 1000000 -v --db %s >%s.out & run=$!\n"
        "below() { for c in $(cat /proc/$1/task/*/children); do below $c; echo $c; done; }\n"
        "until grep -q '^step    2 ' %s.out; do kill -0 $run || break; sleep 0.1; done\n"
        "for p in $(below $run 2>/dev/null); do\n"
        "  tr '\\0' '\\n' </proc/$p/cmdline | sed -n 2p | grep -qx run || continue\n"
        "  [ -z \"$(cat /proc/$p/task/*/children)\" ] && kill -9 $p && break\n"
        "done 2>/dev/null; wait $run",
        TANDEM_COMMAND, tiny, db, db, db);
    r = command_run_program(arena, 300, (const char *const[]){"sh", "-c", script, NULL});
    if (r.exit_code != 6) fail_msg("code %d\n%s", r.exit_code, r.err);
    assert_non_null(strstr(r.err, "error[rank-died]"));
    newest(arena, db, "measured", "failed");
    r = COMMAND(arena, 60, "compare", "--db", db); /* `compare` takes the run that succeeded */
    assert_int_equal(r.exit_code, 0);
    r = COMMAND(arena, 60, "runs", "--db", db);
    assert_non_null(strstr(r.out, "failed"));
    arena_free(arena);
}

/* A folder takes the name of the file of counts while the run goes on, so the counts cannot be
 * written after the last step. The store then has one row, of a run that succeeded. */
static void counts_that_cannot_be_written_add_no_row(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena), *plan = arena_print(arena, "%s/p.lua", folder);
    command_write_file(plan, "return plan { model = require 'models.mixtral' 'tiny',\n"
                             "  batch = { micro = 1, seq = 64 }, mesh = { dp_shard = 1, ep = 2 },\n"
                             "  parallel = { ep {}, fsdp2 {} } }\n");
    const char *script = arena_print(
        arena,
        "%s run %s --steps 300 -v --db %s/t.db --loads %s/late >%s/out & run=$!\n"
        "until grep -q '^step    2 ' %s/out; do kill -0 $run || break; sleep 0.02; done\n"
        "mkdir %s/late; wait $run",
        TANDEM_COMMAND, plan, folder, folder, folder, folder, folder);
    CommandResult r =
        command_run_program(arena, 300, (const char *const[]){"sh", "-c", script, NULL});
    if (r.exit_code != 1 || strstr(r.err, "error[output]: cannot write") == NULL)
        fail_msg("code %d\n%s%s", r.exit_code, r.out, r.err);
    r = COMMAND(arena, 60, "runs", "--db", arena_print(arena, "%s/t.db", folder));
    assert_null(strstr(r.out, "failed"));
    newest(arena, arena_print(arena, "%s/t.db", folder), "measured", "ok");
    arena_free(arena);
}

static uint32_t times(const char *text, const char *word)
{
    uint32_t n = 0;
    while ((text = strstr(text, word)) != NULL) n++, text++;
    return n;
}

/* Both the command and the first rank load the plan. The first run also starts other ranks to
 * measure collectives. Only one of these may print the warning. */
static void warnings_are_printed_once(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    for (int i = 0; i < 3; i++) {
        CommandResult r = COMMAND(arena, 300, "run", tiny, "--set", "parallel.cp=true", "--steps",
                                  "2", "--db", db, i == 2 ? "--json" : NULL);
        if (r.exit_code != 0 || times(r.err, "warning[not-applied]") != 1)
            fail_msg("run %d: code %d\n%s", i, r.exit_code, r.err);
        if (i == 2) assert_int_equal(times(r.out, "not-applied"), 1);
    }
    arena_free(arena);
}

static void mistakes_exit_with_their_codes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 60, "run", tiny, "-n", "3", "--db", db);
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "error[ranks-mesh]"));
    assert_non_null(strstr(r.err, "use -n 4"));
    r = COMMAND(arena, 60, "run", tiny, "--data", "no-such-file.txt", "--db", db);
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "error[data-file]"));
    /* With this learning rate the training diverges. The run ends with the first number that is not
     * finite. */
    r = COMMAND(arena, 300, "run", tiny, "--steps", "30", "--set", "optimizer.lr=900", "--set",
                "optimizer.warmup_steps=0", "--db", db);
    assert_int_equal(r.exit_code, 6);
    const char *said = strstr(r.err, "error[not-finite]");
    assert_non_null(said);
    /* the error is reported once, not by every rank */
    assert_null(strstr(said + 1, "error[not-finite]"));
    newest(arena, db, "measured", "failed");
    r = COMMAND(arena, 60, "compare", "--db", db);
    assert_int_equal(r.exit_code, 7); /* no run measured anything */
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_exit_with_their_codes),
        cmocka_unit_test(both_backends_give_the_same_losses_with_domains),
        cmocka_unit_test(both_backends_give_the_same_losses),
        cmocka_unit_test(a_run_that_dies_leaves_a_row),
        cmocka_unit_test(counts_that_cannot_be_written_add_no_row),
        cmocka_unit_test(warnings_are_printed_once),
        cmocka_unit_test(a_text_is_learnt_on_four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
