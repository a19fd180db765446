/* tandem run --save and --load: printed lines, exit codes, and messages that name the rank and the
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tests/support/checkpoint_case.h"
#include "tests/support/document.h"

static double last_loss(const CommandResult *r)
{
    json_t *root = document_of(*r, 0);
    const double loss = document_number(root, "last_loss");
    json_decref(root);
    return loss;
}

static void a_run_continues_from_its_checkpoint(void **state)
{
    const CheckpointCase *c = *state;
    CommandResult r =
        CHECKPOINT_RUN(c, "--steps", "4", "--save", c->folder, "--save-every", "2", "--keep", "1");
    checkpoint_case_expect(
        &r, 0, arena_print(c->arena, "saved       %s/step-00000004: 2 saves, ", c->folder), "");
    assert_int_not_equal(access(arena_print(c->arena, "%s/step-00000002", c->folder), F_OK), 0);
    r = CHECKPOINT_RUN(c, "--steps", "6", "--load", c->folder);
    checkpoint_case_expect(
        &r, 0, arena_print(c->arena, "loaded      %s/step-00000004: after 4 steps", c->folder), "");
    checkpoint_case_expect(&r, 0, "\nstep    4  loss", "");
    checkpoint_case_expect(&r, 0, "\ndone        2 steps in", "");
    assert_null(strstr(r.out, "\nstep    0"));
    /* Both backends compute the same numbers. Another mesh differs by rounding. */
    r = CHECKPOINT_RUN(c, "--steps", "5", "--json", "--load", c->folder);
    const double resumed = last_loss(&r);
    r = COMMAND(c->arena, 300, "run", c->plan, "--db", c->db, "--steps", "5", "--json", "--load",
                c->folder);
    assert_true(last_loss(&r) == resumed); /* the MPI backend gives the same bits */
    r = CHECKPOINT_RUN(c, "--steps", "5", "--json", "--load", c->folder, "--set",
                       "mesh.tp=1"); /* 2 ranks */
    const double ratio = last_loss(&r) / resumed;
    if (!(ratio > 1 - 1e-5 && ratio < 1 + 1e-5))
        fail_msg("on another mesh the loss is %.9g times as large", ratio);
}

static void a_checkpoint_can_be_saved_for_another_mesh(void **state)
{
    const CheckpointCase *c = *state;
    const char *other = command_new_folder(c->arena);
    CommandResult r = CHECKPOINT_RUN(c, "--steps", "1", "--save", c->folder);
    checkpoint_case_expect(&r, 0, "saved", "");
    r = CHECKPOINT_RUN(c, "--steps", "1", "--load", c->folder, "--save", other, "--set",
                       "mesh.tp=1", "--set", "mesh.dp_shard=1");
    checkpoint_case_expect(
        &r, 0, arena_print(c->arena, "saved       %s/step-00000001: 1 save, ", other), "");
    assert_null(strstr(r.out, "done "));
    assert_int_not_equal(
        access(arena_print(c->arena, "%s/step-00000001/rank-00001.safetensors", other), F_OK), 0);
    r = CHECKPOINT_RUN(c, "--steps", "2", "--load", other);
    checkpoint_case_expect(&r, 0, "after 1 step", "");
}

static void mistakes_in_checkpoint_options_are_refused(void **state)
{
    const CheckpointCase *c = *state;
    CommandResult r = CHECKPOINT_RUN(c, "--save-every", "2");
    checkpoint_case_expect(&r, 2, "", "error[option-value]: --save-every needs --save DIR");
    r = CHECKPOINT_RUN(c, "--keep", "2");
    checkpoint_case_expect(&r, 2, "", "error[option-value]: --keep needs --save DIR");
    r = CHECKPOINT_RUN(c, "--save", c->folder, "--save-every", "0");
    checkpoint_case_expect(&r, 2, "", "--save-every 0: at least 1 is expected");
    r = CHECKPOINT_RUN(c, "--save", "", "--steps", "1");
    checkpoint_case_expect(&r, 2, "", "--save: a folder is expected");
    r = CHECKPOINT_RUN(c, "--save", c->folder, "--load", "");
    checkpoint_case_expect(&r, 2, "", "--load: a folder is expected");
    r = CHECKPOINT_RUN(c, "--verify", "--load", c->folder);
    checkpoint_case_expect(&r, 2, "", "--load: --verify runs a smaller plan for one step");
    r = CHECKPOINT_RUN(c, "--load", "nowhere");
    checkpoint_case_expect(&r, 3, "", "error[checkpoint-missing]: nowhere: No such file");
    r = CHECKPOINT_RUN(c, "--steps", "2", "--save", c->folder);
    checkpoint_case_expect(&r, 0, "saved", "");
    r = CHECKPOINT_RUN(c, "--steps", "2", "--load", c->folder, "--dry-run");
    checkpoint_case_expect(&r, 2, "",
                           "step-00000002 was saved after 2 steps, but the training has only 2");
    checkpoint_case_expect(
        &r, 2, "", "use --steps 3 or more, counted from the first step; or --save with --steps 2");
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--dry-run", "--seed", "9");
    checkpoint_case_expect(&r, 3, "", "error[checkpoint-seed]");
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--dry-run", "--set",
                       "model.dim=128");
    checkpoint_case_expect(&r, 3, "", "error[checkpoint-model]");
}

/* Other numbers and other data are allowed, but not silently. The warning comes with the first
 * step, and lists all differences. A file is identified by its bytes, not by its name or size. */
static void other_settings_and_data_are_warned_of_once(void **state)
{
    const CheckpointCase *c = *state;
    const char *data = arena_print(c->arena, "%s/data", command_new_folder(c->arena));
    const char *text = arena_print(c->arena, "%0*d\n", 3000, 7);
    command_write_file(data, text);
    CommandResult r = CHECKPOINT_RUN(c, "--steps", "2", "--save", c->folder, "--data", data);
    checkpoint_case_expect(&r, 0, "saved", "");
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--data", data, "--set",
                       "mesh.tp=1");
    if (strstr(r.err, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--data", data, "--set",
                       "optimizer.lr=1.0", "--set", "optimizer.warmup_steps=0");
    checkpoint_case_expect(&r, 0, "loaded", "warning[checkpoint-settings]: ");
    checkpoint_case_expect(
        &r, 0, "",
        "was trained with lr 0.003, warmup_steps 10, but this run has lr 1, warmup_steps 0");
    r = COMMAND(c->arena, 300, "run", c->plan, "--db", c->db, "--steps", "3", "--load", c->folder,
                /* under MPI, one process warns for all */
                "--data", data, "--set", "optimizer.lr=1.0");
    checkpoint_case_expect(&r, 0, "loaded", "warning[checkpoint-settings]: ");
    const char *warning = strstr(r.err, "warning[checkpoint-");
    if (strstr(warning + 1, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    const char *other = arena_print(c->arena, "%s/data", command_new_folder(c->arena));
    command_write_file(other, text);
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--data", other);
    if (strstr(r.err, "warning[checkpoint-") != NULL) fail_msg("%s", r.err);
    command_write_file(other, arena_print(c->arena, "%0*d\n", 3000, 8));
    r = CHECKPOINT_RUN(c, "--steps", "3", "--load", c->folder, "--data", other, "--json");
    checkpoint_case_expect(&r, 0, "\"checkpoint-data\"", "warning[checkpoint-data]: ");
    checkpoint_case_expect(&r, 0, "", " was trained on 3001 bytes with XXH3 hash ");
}

/* The limit on the size of files is below that of a rank's file. A full disk gives the same kind of
 * error. */
static void a_rank_that_cannot_write_is_named(void **state)
{
    const CheckpointCase *c = *state;
    static const char wide[] = "model.dim=256"; /* a rank's file is larger than the store */
    CommandResult r = CHECKPOINT_RUN(c, "--steps", "1", "--set", wide, "--save", c->folder);
    checkpoint_case_expect(&r, 0, "saved", "");
    const char *script = arena_print(c->arena,
                                     "trap '' XFSZ; ulimit -f 4096; '%s' run '%s' --set %s --db "
                                     "'%s' --backend loopback --steps 3 "
                                     "--load '%s' --save '%s'",
                                     TANDEM_COMMAND, c->plan, wide, c->db, c->folder, c->folder);
    r = command_run_program(c->arena, 300, (const char *[]){"sh", "-c", script, NULL});
    checkpoint_case_expect(
        &r, 1, "",
        arena_print(c->arena, "cannot write %s/step-00000003.saving/rank-00000.safetensors",
                    c->folder));
    checkpoint_case_expect(&r, 1, "", "error[checkpoint-write]: rank 0 ");
    checkpoint_case_expect(&r, 1, "", "File too large; it needs ");
    const char *first = strstr(r.err, "error[");
    assert_null(strstr(first + 1, "error[")); /* the error is reported once, not by every rank */
    assert_int_not_equal(access(arena_print(c->arena, "%s/step-00000003.saving", c->folder), F_OK),
                         0);
    r = CHECKPOINT_RUN(c, "--steps", "2", "--load", c->folder, "--set", wide);
    checkpoint_case_expect(&r, 0, "step-00000001: after 1 step", "");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, checkpoint_case_setup, checkpoint_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_continues_from_its_checkpoint),
        TEST(a_checkpoint_can_be_saved_for_another_mesh),
        TEST(mistakes_in_checkpoint_options_are_refused),
        TEST(other_settings_and_data_are_warned_of_once),
        TEST(a_rank_that_cannot_write_is_named),
    };
    return cmocka_run_group_tests_name("cli_checkpoint", tests, NULL, NULL);
}
