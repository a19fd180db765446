/* Log notes on stderr: the level decides which are printed, the prefix names the rank, and each
 * note is one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/log.h"

typedef struct Heard {
    char text[4096];
} Heard;

/* Logs in a forked child, because the level is set once a process. */
static Heard listen_to(const char *environment, bool configures, LogLevel level, int rank,
                       const char *word)
{
    Heard heard = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (environment != NULL)
            setenv("TANDEM_LOG", environment, 1);
        else
            unsetenv("TANDEM_LOG");
        if (configures) log_configure(level, rank);
        log_info("info %s", word);
        log_debug("debug %s", word);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], heard.text + used, sizeof heard.text - 1 - used)) > 0;)
        used += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return heard;
}

static void the_level_decides_which_notes_are_printed(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        bool configures;
        LogLevel level;
        int rank;
        const char *heard;
    } expected[] = {
        {NULL, false, LOG_info, -1, "info x\n"},
        {"debug", false, LOG_info, -1, "info x\ndebug x\n"},
        {"quiet", false, LOG_info, -1, ""},
        {NULL, true, LOG_quiet, -1, ""},
        {NULL, true, LOG_debug, 3, "[3] info x\n[3] debug x\n"},
        {"debug", true, LOG_info, 0, "[0] info x\n[0] debug x\n"},
        {"debug", true, LOG_quiet, 0, ""}, /* --quiet wins over the variable */
        {"loud", true, LOG_info, -1, "info x\n"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        Heard heard = listen_to(expected[i].environment, expected[i].configures, expected[i].level,
                                expected[i].rank, "x");
        assert_string_equal(heard.text, expected[i].heard);
    }
}

static void a_long_note_is_cut_to_one_line(void **state)
{
    (void)state;
    char word[2000];
    memset(word, 'y', sizeof word - 1);
    word[sizeof word - 1] = 0;
    Heard heard = listen_to(NULL, true, LOG_info, 12, word);
    size_t n = strlen(heard.text);
    assert_int_equal(n, 1023);
    assert_memory_equal(heard.text, "[12] info yyy", 13);
    assert_ptr_equal(strchr(heard.text, '\n'), heard.text + n - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_decides_which_notes_are_printed),
        cmocka_unit_test(a_long_note_is_cut_to_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
