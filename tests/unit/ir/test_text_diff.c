/* The form in which golden files store the changes of a pass (tests/support/text/text_diff.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/test_arena.h"
#include "tests/support/text/text_diff.h"

static void expect(const char *before, const char *after, const char *want)
{
    Str out = str_in(arena);
    text_diff(before, after, &out);
    const char *got = out.n > 0 ? str_text(&out) : "";
    if (strcmp(got, want) != 0) fail_msg("expected\n%sgot\n%s", want, got);
}

static void only_lines_that_differ_are_printed(void **state)
{
    (void)state;
    (void)state;
    expect("", "", "");
    expect("a\nb\n", "a\nb\n", "");
    expect("", "a\nb\n", "+ a\n+ b\n");
    expect("a\nb\n", "", "- a\n- b\n");
    expect("a\nb\nc\n", "a\nc\n", "- b\n");
    expect("a\nb\nc\nd\n", "x\nb\nc\ny\n", "- a\n+ x\n@\n- d\n+ y\n");
}

static void changed_words_of_a_line_are_printed(void **state)
{
    (void)state;
    (void)state;
    expect("%3 w [2,4] bf16\n", "%3 w [2,4] bf16 use {tp:0}\n", "~ %3: +use +{tp:0}\n");
    expect("  4 add %1 -> %2\nend\n", "  4 add %1 -> %9\nend\n", "~ 4: -%2 +%9\n");
    expect("1 a\n2 b\n", "0 n\n1 c\n2 b\n", "+ 0 n\n~ 1: -a +c\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_lines_that_differ_are_printed, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(changed_words_of_a_line_are_printed, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
