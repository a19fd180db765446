/* Tests the message for a script whose process ended without a last record. The message depends on
 * the exit status and on the process's last words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/front/child/child.h"
#include "planner/front/parent.h"

/* The last words of a child, or else its exit status, explain its end. */
static void ends_are_explained(void **state)
{
    (void)state;
    const struct {
        int status;
        StreamState stream;
        const char *rule, *text;
    } cases[] = {
        {SIGKILL, STREAM_end, "no-progress", "the script was stopped after 3 s"},
        {SIGXCPU, STREAM_end, "no-progress", "the script was stopped after 3 s"},
        {0, STREAM_late, "no-progress", "sent nothing for"},
        {SIGABRT, STREAM_end, "memory-limit", "the script needs too much memory"},
        {SIGSEGV, STREAM_end, "script-crash", "ended unexpectedly (signal 11)"},
        {SIGTERM, STREAM_end, "script-crash", "ended unexpectedly (signal 15)"},
        {5 << 8, STREAM_end, "script-crash", "ended unexpectedly (exit code 5)"},
        {CHILD_NO_MEMORY << 8, STREAM_end, "out-of-memory", "there is no memory left"},
        {CHILD_NO_PROCESS << 8, STREAM_end, "front-process", "cannot start another"},
    };
    static Draft draft;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        int words[2];
        assert_int_equal(pipe(words), 0);
        close(words[1]); /* the child left no last words */
        Script s = {.words = words[0], .cpu_s = 3};
        draft = (Draft){.d = &d, .arena = arena};
        script_explain_end(&s, &draft, cases[i].status, cases[i].stream);
        assert_int_equal(d.n_errors, 1);
        assert_string_equal(d.items.at[0].rule, cases[i].rule);
        if (!strstr(d.items.at[0].text, cases[i].text)) fail_msg("%s", d.items.at[0].text);
        close(words[0]);
        arena_free(arena);
    }
    for (int named = 0; named < 2; named++) {
        struct {
            ScriptLoc loc;
            char function[56];
        } last = {.loc = {.source = 1, .line = 7}};
        if (named) last.function[0] = 'f';
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        int words[2];
        assert_int_equal(pipe(words), 0);
        assert_int_equal(write(words[1], &last, sizeof last), sizeof last);
        Script s = {.words = words[0], .cpu_s = 3};
        draft = (Draft){.d = &d, .arena = arena};
        script_explain_end(&s, &draft, SIGALRM, STREAM_end);
        assert_int_equal(d.items.at[0].loc.line, 7);
        assert_int_equal(strstr(d.items.at[0].text, ", inside 'f'") != NULL, named);
        assert_int_equal(d.items.at[0].hint != NULL, !named);
        close(words[0]), close(words[1]);
        arena_free(arena);
    }
}

/* Lua's limit does not count all memory, so the process has a limit, too. A build with
 * AddressSanitizer has none, because its shadow memory is larger than any limit. */
static void the_process_has_a_limit_of_memory(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__)
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static Child child = {.cpu_s = 3};
        struct rlimit limit = {0};
        child_limit(&child);
        if (getrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
        _exit(limit.rlim_cur > UINT64_C(2) << 30 && limit.rlim_cur < UINT64_C(6) << 30 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_are_explained),
                                       cmocka_unit_test(the_process_has_a_limit_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
