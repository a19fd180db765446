/* A sweep is killed at a moment drawn by seed and started again, until 40 sweeps were killed. Every
 * row that another process has seen in the store must stay there. Each plan has one prediction and
 * one answer, and the store is sound after every kill. Half of the kills end only the command
 * itself; its child processes must then end, too. TANDEM_KILLS=N kills N times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/base/rng.h"
#include "store/store.h"
#include "tests/failures/sound.h"
#include "tests/support/command.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

#if defined(__SANITIZE_ADDRESS__)
enum { KILLS = 30 }; /* under the sanitizers, everything takes several times longer */
#else
enum { KILLS = 40 };
#endif
enum { POINTS = 6, SEED = 3, MOST_MS = 400 };

/* What another process sees in the store: the number of predictions, and how many plans have
 * two. */
typedef struct Seen {
    int64_t runs, last, twice, answers;
} Seen;

static int64_t number(Arena *arena, const char *path, const char *sql)
{
    Diag d = diag_in(arena);
    Store *store = store_open(path, true, &d);
    DbStatement *st = store != NULL ? db_prepare(store_db(store), &d, sql, "") : NULL;
    if (!db_step(st, &d)) fail_msg("%s: %s", sql, d.n_errors > 0 ? d.items.at[0].text : "no row");
    const int64_t n = db_int(st, 0);
    store_close(store);
    return n;
}

static Seen look(Arena *arena, const char *path)
{
    if (access(path, F_OK) != 0) return (Seen){0};
    const char *fault = sound_fault(arena, path);
    if (fault != NULL) fail_msg("the store is not sound: %s", fault);
    return (Seen){
        number(arena, path, "SELECT count(*) FROM run"),
        number(arena, path, "SELECT ifnull(max(id), 0) FROM run"),
        number(arena, path,
               "SELECT count(*) FROM (SELECT 1 FROM run GROUP BY plan, seed HAVING count(*) > 1)"),
        number(arena, path, "SELECT count(*) FROM found WHERE run IS NOT NULL"),
    };
}

static pid_t start_sweep(const char *db, int first)
{
    char seeds[256] = "seed=";
    for (int i = 0; i < POINTS; i++)
        snprintf(seeds + strlen(seeds), sizeof seeds - strlen(seeds), "%s%d", i > 0 ? "," : "",
                 first + i);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setpgid(0, 0);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) dup2(nowhere, fd);
    execl(TANDEM_COMMAND, "tandem", "sweep", tiny, "--try", seeds, "--jobs", "2", "--db", db,
          (char *)NULL);
    _exit(127);
}

/* Waits until the process group is empty. All its processes were killed, or end because their
 * parent has ended. This process has adopted the orphans and reaps them. (In some containers, init
 * takes a second to do so.) */
static void wait_for_group(pid_t group)
{
    for (int i = 0; i < 10000 && (kill(-group, 0) == 0 || errno != ESRCH); i++) {
        while (waitpid(-group, NULL, WNOHANG) > 0) continue;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (kill(-group, 0) == 0) fail_msg("a process of the sweep lives on");
}

/* Kills the sweep after a time. Returns true if it had already ended. */
static bool kill_after(pid_t pid, uint64_t ms, bool all)
{
    nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
    kill(all ? -pid : pid, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    wait_for_group(pid);
    if (WIFSIGNALED(status)) return false;
    if (WEXITSTATUS(status) != 0) fail_msg("the sweep ended with code %d", WEXITSTATUS(status));
    return true;
}

/* Returns how long an undisturbed sweep takes on this machine. */
static uint64_t sweep_ms(const char *db)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const pid_t pid = start_sweep(db, 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (uint64_t)((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
}

static void kills_neither_lose_nor_double_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    const char *wish = getenv("TANDEM_KILLS");
    const int kills = wish != NULL ? (int)strtol(wish, NULL, 10) : KILLS;
    /* a little longer than a whole sweep, so that some sweeps end before the kill */
    const uint64_t whole_ms = sweep_ms(arena_print(arena, "%s.first", db)) * 5 / 4;
    const uint64_t longest_ms = whole_ms < MOST_MS ? whole_ms + 1 : MOST_MS;
    Seen before = {0};
    int first = 1, killed = 0, ended = 0;
    for (uint64_t round = 0; killed < kills; round++) {
        const pid_t pid = start_sweep(db, first);
        setpgid(pid, pid);
        const uint64_t ms = rng_below(SEED, 0, round, longest_ms);
        if (kill_after(pid, ms, rng_below(SEED, 1, round, 2) == 0)) {
            ended++;
            first += POINTS; /* new plans, so that there is work to interrupt */
        } else {
            killed++;
        }
        Arena *scratch = arena_new();
        const Seen now = look(scratch, db);
        arena_free(scratch);
        assert_true(now.runs >= before.runs && now.last >= before.last);
        assert_true(now.answers >= before.answers);
        assert_int_equal(now.twice, 0);
        before = now;
    }
    /* The last sweep is not killed. All of its points must exist, each of them once. */
    const pid_t pid = start_sweep(db, first);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    const Seen now = look(arena, db);
    assert_int_equal(now.runs, first - 1 + POINTS);
    assert_int_equal(now.answers, first - 1 + POINTS);
    assert_int_equal(now.twice, 0);
    print_message("%d kills, %d sweeps ended, %d predictions\n", killed, ended, (int)now.runs);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_neither_lose_nor_double_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
