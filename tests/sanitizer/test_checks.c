/* In the sanitizers' build, a process that overflows a number, accesses memory outside of an object
 * or leaks memory fails, and the message names the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/arena.h"

static volatile int one = 1; /* volatile, so that the compiler does not know its value */

static void overflows(void)
{
    one += INT_MAX; /* this line is named */
}

static void leaves_its_memory(void)
{
    Arena *arena = arena_new();
    char *bytes = arena_alloc(arena, 10);
    bytes[9 + one] = 1; /* this line is named */
    arena_free(arena);
}

static Arena *volatile newest;

/* Before the search for leaks, the pool of free blocks is emptied. Here it has one. */
static void leaks_an_arena(void)
{
    for (int i = 0; i < 2; i++) {
        newest = arena_new(); /* this line is named */
        memset(arena_alloc(newest, 10), 1, 10);
        if (i == 0) arena_free(newest);
    }
    newest = NULL;
    exit(0);
}

/* Runs a function in a child process, which must fail. Returns the child's messages. */
static void fails(void (*function)(void), char *text, size_t room)
{
    int ends[2];
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        function();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; n + 1 < room && (got = read(ends[0], text + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Returns the number of the nth line of this file that ends with the remark used above. */
static int named_line(int nth)
{
    FILE *f = fopen(TANDEM_SOURCE_DIR "/tests/sanitizer/test_checks.c", "r");
    char line[256];
    int number = 0;
    assert_non_null(f);
    while (nth > 0 && fgets(line, sizeof line, f) != NULL) {
        number++;
        if (strstr(line, "/* this line is named */\n") != NULL) nth--;
    }
    fclose(f);
    assert_int_equal(nth, 0);
    return number;
}

static void is_named_with_its_line(void (*function)(void), const char *fault, int line)
{
    char text[1 << 14], where[64];
    fails(function, text, sizeof text);
    snprintf(where, sizeof where, "test_checks.c:%d", line);
    if (strstr(text, fault) == NULL || strstr(text, where) == NULL)
        fail_msg("no %s at %s in: %s", fault, where, text);
}

static void an_overflow_is_named(void **state)
{
    (void)state;
    is_named_with_its_line(overflows, "AddressSanitizer: ILL", named_line(1));
}

static void an_access_outside_is_named(void **state)
{
    (void)state;
    is_named_with_its_line(leaves_its_memory, "AddressSanitizer: use-after-poison", named_line(2));
}

static void a_leak_is_named(void **state)
{
    (void)state;
    is_named_with_its_line(leaks_an_arena, "LeakSanitizer: detected memory leaks", named_line(3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_is_named),
        cmocka_unit_test(an_access_outside_is_named),
        cmocka_unit_test(a_leak_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
