/* tandem run --save and --load, as a user gives them: what is printed, exit codes, and messages
 * that name the rank and the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tests/support/document.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

static Arena *arena;
static const char *db, *folder;

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    folder = command_new_folder(arena);
    db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

#define RUN(...) COMMAND(arena, 300, "run", tiny, "--db", db, "--backend", "loopback", __VA_ARGS__)

static void expect(const CommandResult *r, int code, const char *out, const char *err)
{
    if (r->exit_code != code || strstr(r->out, out) == NULL || strstr(r->err, err) == NULL)
        fail_msg("code %d instead of %d; ...%s... and ...%s... expected\n%s\n%s", r->exit_code,
                 code, out, err, r->out, r->err);
}

static double last_loss(const CommandResult *r)
{
    json_error_t error;
    json_t *root = json_loads(r->out, 0, &error);
    if (root == NULL) fail_msg("no JSON: %s\n%s\n%s", error.text, r->out, r->err);
    const double loss = document_number(root, "last_loss");
    json_decref(root);
    return loss;
}

static void a_run_goes_on(void **state)
{
    (void)state;
    CommandResult r = RUN("--steps", "4", "--save", folder, "--save-every", "2", "--keep", "1");
    expect(&r, 0, arena_print(arena, "saved       %s/step-00000004: 2 saves, ", folder), "");
    assert_int_not_equal(access(arena_print(arena, "%s/step-00000002", folder), F_OK), 0);
    r = RUN("--steps", "6", "--load", folder);
    expect(&r, 0, arena_print(arena, "loaded      %s/step-00000004: after 4 steps", folder), "");
    expect(&r, 0, "\nstep    4  loss", "");
    expect(&r, 0, "\ndone        2 steps in", "");
    assert_null(strstr(r.out, "\nstep    0"));
    /* Backends compute the same numbers, and another mesh differs by rounding. */
    r = RUN("--steps", "5", "--json", "--load", folder);
    const double resumed = last_loss(&r);
    r = COMMAND(arena, 300, "run", tiny, "--db", db, "--steps", "5", "--json", "--load", folder);
    assert_true(last_loss(&r) == resumed);                                     /* mpi */
    r = RUN("--steps", "5", "--json", "--load", folder, "--set", "mesh.tp=1"); /* 2 ranks */
    const double ratio = last_loss(&r) / resumed;
    if (!(ratio > 1 - 1e-5 && ratio < 1 + 1e-5)) fail_msg("x %.9g", ratio);
}

static void a_checkpoint_in_other_parts(void **state)
{
    (void)state;
    const char *other = command_new_folder(arena);
    CommandResult r = RUN("--steps", "1", "--save", folder);
    expect(&r, 0, "saved", "");
    r = RUN("--steps", "1", "--load", folder, "--save", other, "--set", "mesh.tp=1", "--set",
            "mesh.dp_shard=1");
    expect(&r, 0, arena_print(arena, "saved       %s/step-00000001: 1 save, ", other), "");
    assert_null(strstr(r.out, "done "));
    assert_int_not_equal(
        access(arena_print(arena, "%s/step-00000001/rank-00001.safetensors", other), F_OK), 0);
    r = RUN("--steps", "2", "--load", other);
    expect(&r, 0, "after 1 step", "");
}

static void mistakes(void **state)
{
    (void)state;
    CommandResult r = RUN("--save-every", "2");
    expect(&r, 2, "", "error[option-value]: --save-every needs --save DIR");
    r = RUN("--keep", "2");
    expect(&r, 2, "", "error[option-value]: --keep needs --save DIR");
    r = RUN("--save", folder, "--save-every", "0");
    expect(&r, 2, "", "--save-every 0: at least 1 is expected");
    r = RUN("--save", "", "--steps", "1");
    expect(&r, 2, "", "--save: a folder is expected");
    r = RUN("--save", folder, "--load", "");
    expect(&r, 2, "", "--load: a folder is expected");
    r = RUN("--verify", "--load", folder);
    expect(&r, 2, "", "--load: --verify runs a smaller plan for one step");
    r = RUN("--load", "nowhere");
    expect(&r, 3, "", "error[checkpoint-missing]: nowhere: No such file");
    r = RUN("--steps", "2", "--save", folder);
    expect(&r, 0, "saved", "");
    r = RUN("--steps", "2", "--load", folder, "--dry-run");
    expect(&r, 2, "", "step-00000002 was saved after 2 steps, and the training has 2");
    expect(&r, 2, "", "give --steps 3 or more, or --save and --steps 2");
    r = RUN("--steps", "3", "--load", folder, "--dry-run", "--seed", "9");
    expect(&r, 3, "", "error[checkpoint-seed]");
    r = RUN("--steps", "3", "--load", folder, "--dry-run", "--set", "model.dim=128");
    expect(&r, 3, "", "error[checkpoint-model]");
}

/* Other numbers and other data are allowed, but not silently. The warning comes with the first
 * step, and tells all that differs. A file is known by its bytes, not by its name or size. */
static void other_settings_and_data(void **state)
{
    (void)state;
    const char *data = arena_print(arena, "%s/data", command_new_folder(arena));
    const char *text = arena_print(arena, "%0*d\n", 3000, 7);
    command_write_file(data, text);
    CommandResult r = RUN("--steps", "2", "--save", folder, "--data", data);
    expect(&r, 0, "saved", "");
    r = RUN("--steps", "3", "--load", folder, "--data", data, "--set", "mesh.tp=1");
    if (strstr(r.err, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    r = RUN("--steps", "3", "--load", folder, "--data", data, "--set", "optimizer.lr=1.0", "--set",
            "optimizer.warmup_steps=0");
    expect(&r, 0, "loaded", "warning[checkpoint-settings]: ");
    expect(&r, 0, "",
           "was trained with lr 0.003, warmup_steps 10, and this run has lr 1, warmup_steps 0");
    r = COMMAND(arena, 300, "run", tiny, "--db", db, "--steps", "3", "--load", folder, "--data",
                data, "--set", "optimizer.lr=1.0"); /* mpi: one process warns for all */
    expect(&r, 0, "loaded", "warning[checkpoint-settings]: ");
    const char *warning = strstr(r.err, "warning[checkpoint-");
    if (strstr(warning + 1, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    const char *other = arena_print(arena, "%s/data", command_new_folder(arena));
    command_write_file(other, text);
    r = RUN("--steps", "3", "--load", folder, "--data", other);
    if (strstr(r.err, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    command_write_file(other, arena_print(arena, "%0*d\n", 3000, 8));
    r = RUN("--steps", "3", "--load", folder, "--data", other, "--json");
    expect(&r, 0, "\"checkpoint-data\"", "warning[checkpoint-data]: ");
    expect(&r, 0, "", " was trained on 3001 bytes with XXH3 hash ");
}

/* The files of ranks are larger than a file may be; a full disk gives the same kind of error. */
static void a_rank_that_cannot_write(void **state)
{
    (void)state;
    static const char wide[] = "model.dim=256"; /* a rank's file is larger than the store */
    CommandResult r = RUN("--steps", "1", "--set", wide, "--save", folder);
    expect(&r, 0, "saved", "");
    const char *script = arena_print(arena,
                                     "trap '' XFSZ; ulimit -f 4096; '%s' run '%s' --set %s --db "
                                     "'%s' --backend loopback --steps 3 "
                                     "--load '%s' --save '%s'",
                                     TANDEM_COMMAND, tiny, wide, db, folder, folder);
    r = command_run_program(arena, 300, (const char *[]){"sh", "-c", script, NULL});
    expect(
        &r, 1, "",
        arena_print(arena, "cannot write %s/step-00000003.saving/rank-00000.safetensors", folder));
    expect(&r, 1, "", "error[checkpoint-write]: rank 0 ");
    expect(&r, 1, "", "File too large; it needs ");
    const char *first = strstr(r.err, "error[");
    assert_null(strstr(first + 1, "error[")); /* once, not by every rank */
    assert_int_not_equal(access(arena_print(arena, "%s/step-00000003.saving", folder), F_OK), 0);
    r = RUN("--steps", "2", "--load", folder, "--set", wide);
    expect(&r, 0, "step-00000001: after 1 step", "");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_goes_on),           TEST(a_checkpoint_in_other_parts), TEST(mistakes),
        TEST(other_settings_and_data), TEST(a_rank_that_cannot_write),
    };
    return cmocka_run_group_tests_name("cli_checkpoint", tests, NULL, NULL);
}
