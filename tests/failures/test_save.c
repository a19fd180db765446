/* A save that fails or is killed must not damage earlier checkpoints. Every call for a file fails
 * in turn: once, and then also for good. Another test kills a training process with SIGKILL, at a
 * moment drawn by seed, and continues it, again and again. In all cases the newest checkpoint must
 * load. The steps after it must equal those of the uninterrupted training, to the last bit.
 *
 * TANDEM_KILLS=N kills N times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"
#include "planner/base/rng.h"
#include "tests/failures/fail_at.h"
#include "tests/support/command.h"
#include "tests/support/plans/tiny.h"

#if defined(__SANITIZE_ADDRESS__)
enum { KILLS = 20 };
#else
enum { KILLS = 60 };
#endif
enum { BEGUN = 2, STEPS = 5, MOST_STEPS = 4000, SEED = 7 };

static Arena *arena; /* lives as long as the program */
static const Plan *plan;
static const char *base;

/* Chooses a folder in a file system in memory if there is one, because each save flushes its
 * files. */
static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.layers = 1, t.dp_shard = 2;
    plan = tiny_plan(&t, false, arena, &d);
    char *path = arena_dup(arena, "/dev/shm/tandem-save-XXXXXX");
    base = mkdtemp(path) != NULL ? path : command_new_folder(arena);
    return plan != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    CommandResult r = command_run_program(arena, 30, (const char *[]){"rm", "-rf", base, NULL});
    arena_free(arena);
    return r.exit_code;
}

/* Trains up to `steps`. Writes the loss of each step to `loss` [MOST_STEPS]. */
static bool train(Arena *in, const CheckpointOptions *checkpoint, uint32_t steps, double *loss,
                  ExecResult *result, Diag *d)
{
    const ExecOptions options = {.backend = "loopback",
                                 .steps = steps,
                                 .lr = 1e-3,
                                 .data = data_synthetic(5, 29, 0.1, in),
                                 .trace_step = MOST_STEPS,
                                 .checkpoint = *checkpoint,
                                 .backend_options = {.timeout_s = 20}};
    const bool fine = exec_run(plan, &options, in, result, d);
    for (uint32_t i = 0; i < result->trace.steps.n; i++)
        loss[result->trace.steps.at[i].step] = result->trace.steps.at[i].loss;
    return fine;
}

static void must(bool fine, const Diag *d, const char *what)
{
    if (!fine) fail_msg("%s: %s", what, d->n_errors > 0 ? d->items.at[0].text : "it failed");
}

/* Returns the step of the newest checkpoint. First checks that the step after it gives the right
 * loss. */
static uint64_t newest_is_right(Arena *in, const char *folder, const double *right,
                                const char *what)
{
    Diag d = diag_in(in);
    double *loss = arena_array(in, MOST_STEPS, sizeof *loss);
    ExecResult result;
    CheckpointInfo info;
    must(checkpoint_find(folder, plan, in, &info, &d), &d, what);
    const CheckpointOptions load = {.load = folder};
    must(train(in, &load, (uint32_t)info.step + 1, loss, &result, &d), &d, what);
    if (loss[info.step] != right[info.step])
        fail_msg("%s: after %d steps the loss is %.17g instead of %.17g", what, (int)info.step,
                 loss[info.step], right[info.step]);
    return info.step;
}

/* ---- calls that fail */

static FailState fail;

static bool is_told(const Diag *d)
{
    static const char *const rules[] = {"checkpoint-write", "checkpoint-file", "checkpoint-damaged",
                                        "checkpoint-missing", "checkpoint-unfinished"};
    for (size_t i = 0; d->n_errors == 1 && i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(d->items.at[d->items.n - 1].rule, rules[i]) == 0) return true;
    return false;
}

/* Trains while call number `at` for a file fails, and checks the newest checkpoint. Returns the
 * number of calls that the training made. */
static uint64_t one_failure(uint64_t at, bool forever, const double *right)
{
    Arena *in = arena_new();
    Diag d = diag_in(in);
    double *loss = arena_array(in, MOST_STEPS, sizeof *loss);
    ExecResult result;
    const char *what = arena_print(in, "call %d fails %s", (int)at, forever ? "for good" : "once");
    const char *folder = arena_print(in, "%s/%d-%d", base, (int)at, forever);
    const CheckpointOptions begin = {.save = folder};
    must(train(in, &begin, BEGUN, loss, &result, &d), &d, "the first steps");
    const CheckpointOptions more = {.save = folder, .load = folder, .every = 1, .keep = 2};
    fail = (FailState){.kind = FAIL_file, .forever = forever, .at = at};
    fail_at_use(&fail);
    const bool fine = train(in, &more, STEPS, loss, &result, &d);
    fail_at_use(NULL);
    if (!fine && !is_told(&d))
        fail_msg("%s: %d errors, first %s", what, (int)d.n_errors,
                 d.n_errors > 0 ? d.items.at[0].rule : "none");
    const uint64_t step = newest_is_right(in, folder, right, what);
    if (fine && step != STEPS) fail_msg("%s: the run ended well after step %d", what, (int)step);
    const uint64_t n = atomic_load(&fail.counted);
    arena_free(in);
    return n;
}

static void failed_calls_keep_earlier_checkpoints(void **state)
{
    (void)state;
    double *right = arena_array(arena, MOST_STEPS, sizeof *right);
    Diag d = diag_in(arena);
    ExecResult result;
    const CheckpointOptions none = {.save = NULL};
    must(train(arena, &none, STEPS + 1, right, &result, &d), &d, "the whole training");
    const uint64_t n = one_failure(0, false, right);
    assert_true(n > 60);
    for (uint64_t at = 1; at <= n; at++)
        for (int forever = 0; forever < 2; forever++) one_failure(at, forever, right);
    print_message("each of %d calls failed, once and for good\n", (int)n);
}

/* ---- kills */

static pid_t start(const char *folder, bool loads)
{
    const pid_t pid = fork();
    if (pid != 0) return pid;
    Arena *in = arena_new();
    Diag d = diag_in(in);
    ExecResult result;
    double *loss = arena_array(in, MOST_STEPS, sizeof *loss);
    const CheckpointOptions each = {
        .save = folder, .load = loads ? folder : NULL, .every = 1, .keep = 3};
    _exit(train(in, &each, MOST_STEPS - 1, loss, &result, &d) ? 0 : 1);
}

static void kills_keep_earlier_checkpoints(void **state)
{
    (void)state;
    const char *wish = getenv("TANDEM_KILLS");
    const int kills = wish != NULL ? (int)strtol(wish, NULL, 10) : KILLS;
    double *right = arena_array(arena, MOST_STEPS, sizeof *right);
    const char *folder = arena_print(arena, "%s/killed", base);
    Diag d = diag_in(arena);
    ExecResult result;
    const CheckpointOptions none = {.save = NULL};
    must(train(arena, &none, MOST_STEPS, right, &result, &d), &d, "the whole training");
    uint64_t step = 0;
    int n_broken = 0;
    for (int i = 0; i < kills; i++) {
        const pid_t pid = start(folder, step > 0);
        const uint64_t us = 2000 + rng_below(SEED, 1, (uint64_t)i, 60000);
        nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
        kill(pid, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status)) fail_msg("it ended with code %d", WEXITSTATUS(status));
        Arena *in = arena_new();
        CommandResult broken = command_run_program(
            in, 10, (const char *[]){"sh", "-c", "ls -d \"$0\"/*.saving", folder, NULL});
        n_broken += broken.exit_code == 0;
        Diag found = diag_in(in);
        CheckpointInfo info;
        /* the first save may not have ended yet */
        if (step > 0 || checkpoint_find(folder, plan, in, &info, &found)) {
            const uint64_t now = newest_is_right(in, folder, right, "after a kill");
            assert_true(now >= step); /* nothing that was saved is lost */
            step = now;
        }
        arena_free(in);
    }
    assert_true(n_broken > kills / 10);
    assert_true(step > (uint64_t)kills / 4);
    print_message("killed %d times, %d of them during a save; %d steps done\n", kills, n_broken,
                  (int)step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_calls_keep_earlier_checkpoints),
        cmocka_unit_test(kills_keep_earlier_checkpoints),
    };
    return cmocka_run_group_tests_name("save", tests, setup, teardown);
}
