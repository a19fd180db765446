/* A run saves into a folder that may already hold checkpoints of other trainings or of other runs,
 * the user's files, links, or a damaged `latest`. Nothing that another run or the user wrote may be
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"
#include "tests/support/command.h"
#include "tests/support/plans/tiny.h"

static Arena *arena;
static const Plan *plan; /* 2 ranks, one layer */
static const char *folder;

static Diag run(const CheckpointOptions *checkpoint, uint32_t steps)
{
    Diag d = diag_in(arena);
    ExecResult result;
    const ExecOptions options = {.backend = "loopback",
                                 .steps = steps,
                                 .lr = 1e-2,
                                 .data = data_synthetic(5, 29, 0.1, arena),
                                 .trace_step = EXEC_TRACE_MIDDLE,
                                 .checkpoint = *checkpoint,
                                 .backend_options = {.timeout_s = 20}};
    const bool fine = exec_run(plan, &options, arena, &result, &d);
    assert_int_equal(fine, d.n_errors == 0);
    return d;
}

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    Tiny t = tiny_default();
    t.layers = 1, t.dp_shard = 2;
    Diag d = diag_in(arena);
    plan = tiny_plan(&t, false, arena, &d);
    folder = command_new_folder(arena);
    return plan != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static const char *in(const char *name)
{
    return arena_print(arena, "%s/%s", folder, name);
}

static bool is_there(const char *name)
{
    struct stat is;
    return lstat(in(name), &is) == 0;
}

static void works(const CheckpointOptions *checkpoint, uint32_t steps)
{
    const Diag d = run(checkpoint, steps);
    if (d.items.n > 0) fail_msg("%s: %s", d.items.at[0].rule, d.items.at[0].text);
}

/* Expects one error of this rule, with the text and the hint. */
static void refused(const CheckpointOptions *checkpoint, uint32_t steps, const char *rule,
                    const char *text, const char *hint)
{
    const Diag d = run(checkpoint, steps);
    const Diagnostic *at = d.items.n > 0 ? &d.items.at[0] : NULL;
    if (d.n_errors != 1 || strcmp(at->rule, rule) != 0 || strstr(at->text, text) == NULL)
        fail_msg("%s: ...%s... was expected; found %s: %s", rule, text, at ? at->rule : "nothing",
                 at ? at->text : "");
    if (hint == NULL) assert_null(at->hint);
    if (hint != NULL && (at->hint == NULL || strstr(at->hint, hint) == NULL))
        fail_msg("hint ...%s... was expected; found %s", hint, at->hint ? at->hint : "none");
}

static CommandResult shell(const char *script)
{
    return command_run_program(arena, 60, (const char *[]){"sh", "-c", script, folder, NULL});
}

/* ---- a folder that is in use */

static void a_new_training_does_not_overwrite_checkpoints(void **state)
{
    (void)state;
    works(&(CheckpointOptions){.save = folder, .every = 2}, 4);
    const CheckpointOptions again = {.save = folder, .keep = 1};
    refused(&again, 2, "checkpoint-used", in("step-00000004"), "--load");
    assert_true(is_there("step-00000002") && is_there("step-00000004"));
    /* A run that loads from elsewhere does not continue this folder, either. */
    const char *other = command_new_folder(arena);
    works(&(CheckpointOptions){.save = other}, 1);
    refused(&(CheckpointOptions){.save = folder, .load = other}, 5, "checkpoint-used",
            in("step-00000004"), "--load");
    /* A run that starts at an earlier step would replace a later step's checkpoint, or leave that
     * stale checkpoint in the folder. */
    refused(&(CheckpointOptions){.save = folder, .load = in("step-00000002")}, 3, "checkpoint-used",
            in("step-00000004 belongs to a later step"), "another folder");
    assert_string_equal(checkpoint_newest(folder, arena), in("step-00000004"));
    /* a save of the same step is allowed */
    works(&(CheckpointOptions){.save = folder, .load = folder}, 4);
    works(&(CheckpointOptions){.save = folder, .load = in("step-00000004/"), .keep = 1}, 5);
    assert_true(is_there("step-00000005") && !is_there("step-00000004"));
    assert_false(is_there("step-00000002"));
}

/* --keep counts and removes only the checkpoints of the run's own training. */
static void another_trainings_checkpoints_are_kept(void **state)
{
    (void)state;
    const char *other = command_new_folder(arena);
    works(&(CheckpointOptions){.save = other, .every = 1}, 2);
    works(&(CheckpointOptions){.save = folder, .every = 1}, 3);
    CommandResult r = shell(
        arena_print(arena, "rm -r \"$0/step-00000001\" && cp -r '%s/step-00000001' \"$0\"", other));
    assert_int_equal(r.exit_code, 0);
    works(&(CheckpointOptions){.save = folder, .load = folder, .every = 1, .keep = 2}, 5);
    assert_true(is_there("step-00000001"));
    assert_true(is_there("step-00000004") && is_there("step-00000005"));
    assert_false(is_there("step-00000002") || is_there("step-00000003"));
}

/* A lock file does not count if its process has ended. */
static void two_runs_cannot_save_at_once(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    CheckpointRun held;
    Backend *backend = backend_named("loopback", arena, NULL, &d);
    const BackendOptions options = {.timeout_s = 20};
    const CheckpointOptions own = {.save = folder};
    const CheckpointInfo none = {.path = NULL};
    assert_true(backend->open(backend, plan, &options, &d));
    assert_true(checkpoint_begin(&own, plan, backend, &none, arena, &held, &d));
    refused(&own, 1, "checkpoint-busy", arena_print(arena, "process %ld on ", (long)getpid()),
            "another folder");
    assert_false(is_there("step-00000001") || is_there("step-00000001.saving"));
    checkpoint_end(&held);
    backend->close(backend);
    works(&own, 1);
}

/* ---- files of the user */

static void the_users_files_stay(void **state)
{
    (void)state;
    assert_int_equal(
        shell("mkdir \"$0/step-00000002\"; echo >\"$0/step-00000002/notes.txt\"").exit_code, 0);
    const CheckpointOptions each = {.save = folder, .every = 1};
    refused(&each, 2, "checkpoint-used", in("step-00000002 has the name"), "move it away");
    assert_int_equal(shell("mv \"$0/step-00000002\" \"$0/step-00000002.saving\"").exit_code, 0);
    refused(&each, 2, "checkpoint-write",
            "it contains notes.txt, which does not belong to a checkpoint", NULL);
    assert_true(is_there("step-00000002.saving/notes.txt"));
    assert_int_equal(shell("rm -r \"$0/step-00000002.saving\"").exit_code, 0);
    works(&each, 2);
    /* A checkpoint that contains the user's notes stays: --keep ignores it, and a save of the same
     * step fails. */
    assert_int_equal(shell("echo >\"$0/step-00000001/notes.txt\"").exit_code, 0);
    assert_int_equal(shell("echo >\"$0/step-00000002/notes.txt\"").exit_code, 0);
    refused(&(CheckpointOptions){.save = folder, .load = folder}, 2, "checkpoint-write",
            "it contains notes.txt", in("step-00000002"));
    works(&(CheckpointOptions){.save = folder, .load = folder, .every = 1, .keep = 1}, 4);
    assert_true(is_there("step-00000001/manifest.json") && is_there("step-00000001/notes.txt"));
    assert_true(is_there("step-00000002/notes.txt") && is_there("step-00000004"));
    assert_false(is_there("step-00000003"));
}

/* The user has moved a checkpoint to another disk and left a link in its place. */
static void links_are_not_followed(void **state)
{
    (void)state;
    works(&(CheckpointOptions){.save = folder, .every = 1}, 2);
    CommandResult r = shell("mkdir \"$0/far\" && for n in 1 2; do mv \"$0/step-0000000$n\" "
                            "\"$0/far\" && ln -s far/step-0000000$n \"$0\"; done");
    assert_int_equal(r.exit_code, 0);
    refused(&(CheckpointOptions){.save = folder, .load = folder}, 2, "checkpoint-write",
            "it is a symbolic link", in("step-00000002"));
    works(&(CheckpointOptions){.save = folder, .load = folder, .every = 1, .keep = 1}, 4);
    r = shell("ls \"$0/far/step-00000001\" \"$0/step-00000002/\" | grep -c safetensors");
    assert_string_equal(r.out, "4\n");
    assert_false(is_there("step-00000003") || is_there("step-00000002.replaced"));
    assert_int_equal(symlink("nowhere", in("dangling")), 0);
    refused(&(CheckpointOptions){.save = in("dangling")}, 1, "checkpoint-write",
            "it is a symbolic link", NULL);
}

/* ---- latest */

static void write_latest(const char *text)
{
    command_write_file(in("latest"), text);
}

static void a_damaged_latest_is_refused(void **state)
{
    (void)state;
    const CheckpointOptions load = {.load = folder};
    works(&(CheckpointOptions){.save = folder, .every = 1}, 3);
    const char *newest =
        arena_print(arena, "the newest whole checkpoint is %s", in("step-00000003"));
    write_latest("step-00000003\r\n");
    works(&load, 4);
    refused(&(CheckpointOptions){.load = in("step-00000009")}, 4, "checkpoint-missing",
            "step-00000009: No such file", in("step-00000003; another run may have removed"));
    write_latest("garbage\n");
    refused(&load, 4, "checkpoint-missing", "latest: it contains 'garbage'", newest);
    write_latest("");
    refused(&load, 4, "checkpoint-missing", "latest: it is empty", newest);
    write_latest("step-00000009\n");
    refused(&load, 4, "checkpoint-missing", "latest: it names step-00000009, which does not exist",
            newest);
    /* as after a kill between the save of step 3 and the update of `latest` */
    write_latest("step-00000002\n");
    refused(&load, 2, "checkpoint-steps", in("step-00000003"), "use --steps 4 or more");
    assert_int_equal(unlink(in("latest")), 0);
    refused(&load, 2, "checkpoint-steps", in("step-00000003"), "use --steps 4 or more");
    refused(&(CheckpointOptions){.load = in("step-00000003/manifest.json")}, 4,
            "checkpoint-missing", "is a file, not a folder", "name the folder");
    const char *other = command_new_folder(arena);
    works(&(CheckpointOptions){.save = other}, 4);
    assert_int_equal(shell(arena_print(arena, "cp -r '%s/step-00000004' \"$0\"", other)).exit_code,
                     0);
    refused(&load, 5, "checkpoint-missing", "checkpoints of several trainings", "step-00000004");
    write_latest("step-00000002\n"); /* step 4 belongs to the other training */
    refused(&load, 2, "checkpoint-steps", in("step-00000003"), "use --steps 4 or more");
    assert_int_equal(unlink(in("latest")), 0);
    assert_int_equal(mkdir(in("latest"), 0777), 0);
    refused(&load, 5, "checkpoint-missing", "latest: ", "step-00000004");
    refused(&(CheckpointOptions){.save = folder}, 1, "checkpoint-used", "latest is a folder", NULL);
}

/* A damaged checkpoint is refused, and the hint names the checkpoint before it. */
static void a_damaged_checkpoint_hints_at_an_older_one(void **state)
{
    (void)state;
    const CheckpointOptions load = {.load = folder};
    works(&(CheckpointOptions){.save = folder, .every = 1}, 3);
    command_write_file(in("step-00000003/rank-00001.safetensors"), "other\n");
    refused(&load, 4, "checkpoint-damaged", "step-00000003/rank-00001.safetensors has 6 bytes",
            in("step-00000002"));
    command_write_file(in("step-00000003/manifest.json"), "{}\n");
    refused(&load, 4, "checkpoint-damaged", "its format is not", in("step-00000002"));
    refused(&(CheckpointOptions){.load = in("step-00000003")}, 4, "checkpoint-damaged",
            "its format is not", in("step-00000002"));
    command_write_file(in("step-00000001/manifest.json"), "{}\n");
    refused(&(CheckpointOptions){.load = in("step-00000001")}, 4, "checkpoint-damaged",
            "its format is not", "there is no older checkpoint");
}

/* ---- removals that were interrupted or that fail */

static void interrupted_removals_are_completed(void **state)
{
    (void)state;
    works(&(CheckpointOptions){.save = folder, .every = 1}, 3);
    CommandResult r = shell("cd \"$0\" && mv step-00000001 step-00000001.saving && "
                            "rm step-00000001.saving/manifest.json && "
                            "cp -r step-00000002 step-00000002.replaced && "
                            "mv step-00000003 step-00000003.replaced");
    assert_int_equal(r.exit_code, 0);
    works(&(CheckpointOptions){.save = folder, .load = folder}, 4);
    assert_true(is_there("step-00000002") && is_there("step-00000003/manifest.json"));
    assert_false(is_there("step-00000001.saving") || is_there("step-00000002.replaced") ||
                 is_there("step-00000003.replaced"));
}

static void a_failed_removal_is_only_a_warning(void **state)
{
    (void)state;
    works(&(CheckpointOptions){.save = folder, .every = 1}, 2);
    /* A folder in the place of a file cannot be unlinked. */
    CommandResult r = shell("rm \"$0/step-00000001/rank-00001.safetensors\" && "
                            "mkdir \"$0/step-00000001/rank-00001.safetensors\"");
    assert_int_equal(r.exit_code, 0);
    const Diag d =
        run(&(CheckpointOptions){.save = folder, .load = folder, .every = 1, .keep = 1}, 5);
    assert_int_equal(d.items.n, 1); /* one warning for the run, not one for each save */
    assert_int_equal(d.n_errors, 0);
    assert_string_equal(d.items.at[0].rule, "checkpoint-left");
    assert_non_null(strstr(d.items.at[0].text, "cannot remove "));
    assert_string_equal(checkpoint_newest(folder, arena), in("step-00000005"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_training_does_not_overwrite_checkpoints),
        TEST(another_trainings_checkpoints_are_kept),
        TEST(two_runs_cannot_save_at_once),
        TEST(the_users_files_stay),
        TEST(links_are_not_followed),
        TEST(a_damaged_latest_is_refused),
        TEST(a_damaged_checkpoint_hints_at_an_older_one),
        TEST(interrupted_removals_are_completed),
        TEST(a_failed_removal_is_only_a_warning),
    };
    return cmocka_run_group_tests_name("checkpoint folder", tests, NULL, NULL);
}
