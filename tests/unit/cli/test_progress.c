/* The progress of a command: which pieces of work print a line, and the line that is overwritten on
 * a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/report/progress.h"
#include "planner/base/clock.h"

/* Closes the file and returns everything that was written to it. */
static const char *written(FILE *file, char text[static 512])
{
    rewind(file);
    text[fread(text, 1, 511, file)] = 0;
    fclose(file);
    return text;
}

static void every_third_piece_and_the_last_have_lines(void **state)
{
    (void)state;
    static const char *const line[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    char text[512];
    Progress p = {.to = tmpfile(), .n = 8, .every = 3};
    FILE *file = p.to;
    for (int i = 0; i < 8; i++) progress_add(&p, 1, progress_shows(&p) ? line[i] : NULL);
    progress_end(&p);
    assert_int_equal(p.done, 8);
    /* The last piece has a line, whatever its number. */
    assert_string_equal(written(file, text), "a\nd\ng\nh\n");
}

static void on_a_terminal_one_line_is_overwritten(void **state)
{
    (void)state;
    char text[512];
    Progress p = {.to = tmpfile(), .verb = "sweep", .n = 4, .every = 1, .start_s = clock_s()};
    FILE *file = p.to;
    assert_false(progress_shows(&p));
    progress_add(&p, 3, NULL);
    progress_add(&p, 1, NULL);
    progress_add(&p, 1, NULL); /* a surplus byte from the pipe does not count */
    progress_end(&p);
    assert_string_equal(written(file, text), "\rsweep: 3 of 4 done, some 0 s left \033[K"
                                             "\rsweep: 4 of 4 done, some 0 s left \033[K"
                                             "\r\033[K");
}

static void without_a_file_no_progress_is_written(void **state)
{
    (void)state;
    Progress p = {.n = 4, .every = 1};
    assert_false(progress_shows(&p));
    progress_add(&p, 1, NULL);
    progress_end(&p);
    assert_int_equal(p.done, 1);
}

/* With --json, standard output is one document, so progress goes to standard error. Under a test
 * that is not a terminal. */
static void options_decide_where_progress_goes(void **state)
{
    (void)state;
    static const Verb verb = {.name = "run"};
    Cli cli = {.verb = &verb, .options.run.every = 7};
    Progress p = progress_by_lines(&cli, 20);
    assert_ptr_equal(p.to, stdout);
    assert_int_equal(p.every, 7);
    cli.json = json_object();
    assert_ptr_equal(progress_by_lines(&cli, 20).to, stderr);
    cli.options.quiet = true;
    assert_null(progress_by_lines(&cli, 20).to);
    assert_null(progress_by_count(&cli, 20).to);
    json_decref(cli.json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_third_piece_and_the_last_have_lines),
        cmocka_unit_test(on_a_terminal_one_line_is_overwritten),
        cmocka_unit_test(without_a_file_no_progress_is_written),
        cmocka_unit_test(options_decide_where_progress_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
