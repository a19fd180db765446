/* The tests' helper that runs a child process: its outputs, exit codes, signals and time limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>

#include "tests/support/command.h"

static CommandResult shell(Arena *arena, double timeout_s, const char *script)
{
    return command_run_program(arena, timeout_s, (const char *const[]){"sh", "-c", script, NULL});
}

static void both_outputs_and_the_exit_code_are_returned(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = shell(arena, 10, "echo out; echo err >&2; read line && echo input; exit 3");
    assert_int_equal(r.exit_code, 3);
    assert_int_equal(r.signal, 0);
    assert_false(r.timed_out);
    assert_string_equal(r.out, "out\n");
    assert_string_equal(r.err, "err\n");
    /* Both outputs have more bytes at once than a pipe has room for. */
    r = shell(arena, 30, "yes | head -c 300000; yes | head -c 200000 >&2");
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.n_out, 300000);
    assert_int_equal(r.n_err, 200000);
    arena_free(arena);
}

static void signals_and_missing_programs_are_reported(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = shell(arena, 10, "echo before; kill -SEGV $$");
    assert_int_equal(r.exit_code, -1);
    assert_int_equal(r.signal, SIGSEGV);
    assert_string_equal(r.out, "before\n");
    r = command_run_program(arena, 10, (const char *const[]){"no-such-program", NULL});
    assert_int_equal(r.exit_code, -1);
    assert_non_null(strstr(r.err, "no-such-program"));
    arena_free(arena);
}

static void a_child_that_hangs_is_killed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = shell(arena, 2, "echo started; sleep 300 & sleep 300");
    assert_true(r.timed_out);
    assert_int_equal(r.signal, SIGKILL);
    assert_string_equal(r.out, "started\n");
    assert_true(r.seconds < 100);
    /* A grandchild that keeps the pipes open does not delay the result. */
    r = shell(arena, 200, "sleep 300 & echo gone");
    assert_false(r.timed_out);
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.out, "gone\n");
    assert_true(r.seconds < 100);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_outputs_and_the_exit_code_are_returned),
        cmocka_unit_test(signals_and_missing_programs_are_reported),
        cmocka_unit_test(a_child_that_hangs_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
