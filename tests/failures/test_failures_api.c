/* Each allocation that libtandem makes fails in turn. The call must return with an error, and
 * tandem_free must then release all memory, files and processes. The test repeats each failure, so
 * that leaks add up and show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "include/tandem.h"
#include "planner/base/rng.h"
#include "store/store.h"
#include "tests/failures/fail_at.h"
#include "tests/support/command.h"
#include "tests/support/slowest.h"

static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

enum { FIRST = 50, DRAWN = 70, TIMES = 4, SEED = 1 };

static FailState fail; /* a forked process counts on its own copy */

static int open_files(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL) n++;
    closedir(all);
    return n;
}

/* Loads, proves and simulates a plan. Returns false if memory ran out; the diagnostics must then
 * say so. */
static bool use(const char *store)
{
    TandemPlan *plan = tandem_load(tiny, NULL, 0);
    if (plan == NULL) return false;
    const TandemSimOptions options = {.store = store, .machine = "a machine"};
    double step_s = 0;
    const bool fine = tandem_check(plan) && tandem_simulate(plan, &options) &&
                      tandem_plan_id(plan) != NULL && tandem_plan_text(plan) != NULL &&
                      tandem_report_json(plan) != NULL && tandem_number(plan, "step_s", &step_s);
    const char *text = tandem_diagnostics(plan);
    assert_non_null(text);
    if (fine) {
        assert_true(step_s > 0);
        if (tandem_status(plan) != 0) fail_msg("allocation %d failed: %s", (int)fail.at, text);
    } else if (strstr(text, "memory") == NULL) {
        fail_msg("allocation %d failed: %s", (int)fail.at, text);
    } else {
        const int status = tandem_status(plan); /* 7: SQLite had no memory */
        assert_true(status == 1 || status == 7);
    }
    tandem_free(plan);
    return fine;
}

static Slowest slowest;

/* Does the same while allocation number `at` fails. Returns the number of allocations. */
static uint64_t use_failing(const char *store, uint64_t at)
{
    fail.kind = FAIL_memory;
    fail.at = at;
    atomic_store(&fail.counted, 0);
    fail_at_use(&fail);
    const double before_s = slowest_own_s() + slowest_children_s();
    const bool fine = use(store);
    if (!slowest_note(&slowest, "load, prove, simulate",
                      slowest_own_s() + slowest_children_s() - before_s))
        fail_msg("allocation %d fails: it takes too much processor time", (int)at);
    fail.kind = FAIL_nothing;
    assert_true(fine || at > 0);
    return atomic_load(&fail.counted);
}

static void gives_everything_back(const char *store, uint64_t at)
{
    int64_t live[TIMES];
    int files[TIMES];
    for (int i = 0; i < TIMES; i++) {
        use_failing(store, at);
        live[i] = atomic_load(&fail.live);
        files[i] = open_files();
        if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD)
            fail_msg("allocation %d fails: a process is left", (int)at);
    }
    /* The first calls fill memory that is kept for later: the pool of arenas, and tables of the C
     * library. */
    if (live[TIMES - 1] > live[TIMES - 2])
        fail_msg("allocation %d fails: %d blocks are lost", (int)at,
                 (int)(live[TIMES - 1] - live[TIMES - 2]));
    if (files[TIMES - 1] > files[0])
        fail_msg("allocation %d fails: %d files stay open", (int)at, files[TIMES - 1] - files[0]);
}

static void libtandem_survives_failed_allocations(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *store = arena_print(arena, "%s/t.db", command_new_folder(arena));
    Diag d = diag_in(arena);
    assert_true(store_ready(store, &d));
    use_failing(store, 0);
    const uint64_t n = use_failing(store, 0);
    assert_true(n > FIRST + DRAWN);
    for (uint64_t i = 0; i < FIRST; i++) gives_everything_back(store, i + 1);
    for (uint64_t i = 0; i < DRAWN; i++)
        gives_everything_back(store, FIRST + 1 + rng_below(SEED, 0, i, n - FIRST));
    use_failing(store, 0);
    slowest_print(&slowest, "failures of libtandem");
    print_message("%d of %d allocations failed, %d times each\n", FIRST + DRAWN, (int)n, TIMES);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libtandem_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
