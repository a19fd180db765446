/* Other processes that use the cores make a run slower. Their share must equal a computation by
 * hand. A run beside processes that keep every core busy must report them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/cores.h"
#include "planner/base/cores.h"
#include "tests/support/command.h"

static void ranks_are_summed_and_each_machine_counted_once(void **state)
{
    (void)state;
    const CoreShare all[] = {{{1000, 500, 400, 1800}, 7, 2},
                             {{1000, 250, 650, 1800}, 7, 2},
                             {{1000, 750, 0, 900}, 8, 4}};
    CoreUse use = cores_use(all, 3);
    assert_int_equal(use.cores, 6);
    assert_true(use.running == 1.5 && use.ready == 2.55);
    assert_true(use.others > 1.1999 && use.others < 1.2001); /* 2.7 cores are busy */
    use = cores_use(all, 1);
    assert_true(use.others > 1.2999 && use.others < 1.3001);
    const CoreShare unknown[] = {all[0], {{0, 0, 0, 0}, 0, 0}};
    assert_int_equal(cores_use(unknown, 2).cores, 0);
}

/* A period too short for the machine's counters gives no result. */
static void a_too_short_period_gives_no_result(void **state)
{
    (void)state;
    const CoreTime before = {0, 0, 0, 0}, after = {100000000, 1000, 1000, 1000};
    assert_int_equal(cores_share(&before, &after).cores, 0);
}

enum { MOST_BUSY = 64 };

static int keep_busy(pid_t child[MOST_BUSY])
{
    long n = 3 * (long)cores_online();
    if (n > MOST_BUSY) n = MOST_BUSY;
    for (int i = 0; i < n; i++) {
        child[i] = fork();
        for (volatile int spin = 0; child[i] == 0;) spin = !spin;
        assert_true(child[i] > 0);
    }
    return (int)n;
}

static double number(const json_t *root, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, "cores"), key));
}

static void a_busy_machine_is_reported(void **state)
{
    (void)state;
    static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    CoreTime now;
    if (!cores_now(&now)) skip();
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    pid_t child[MOST_BUSY];
    int n = keep_busy(child);
    CommandResult r = COMMAND(arena, 300, "run", tiny, "--backend", "loopback", "--steps", "30",
                              "--db", db, "--json");
    CommandResult text = COMMAND(arena, 60, "compare", "--db", db);
    CommandResult again = COMMAND(arena, 60, "compare", "--db", db, "--json");
    for (int i = 0; i < n; i++) kill(child[i], SIGKILL);
    for (int i = 0; i < n; i++) waitpid(child[i], NULL, 0);
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL), *kept = json_loads(again.out, 0, NULL);
    assert_true(number(root, "cores") >= 1);
    assert_true(number(root, "running") > 0 && number(root, "running") < 0.8);
    assert_true(number(root, "ready") > number(root, "running") + 0.2);
    assert_true(number(root, "others") > 0.5);
    static const char *const keys[] = {"cores", "running", "ready", "others"};
    for (int i = 0; i < 4; i++) assert_true(number(root, keys[i]) == number(kept, keys[i]));
    assert_non_null(strstr(text.out, "are not those of a free machine"));
    json_decref(root);
    json_decref(kept);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_summed_and_each_machine_counted_once),
        cmocka_unit_test(a_too_short_period_gives_no_result),
        cmocka_unit_test(a_busy_machine_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
