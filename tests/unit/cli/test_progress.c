/* The progress of a verb: which pieces of work get a line, and the line that is overwritten on a
 * terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/report/progress.h"
#include "planner/base/clock.h"

/* Returns everything that was written; closes the file. */
static const char *written(FILE *file, char text[static 512])
{
    rewind(file);
    text[fread(text, 1, 511, file)] = 0;
    fclose(file);
    return text;
}

static void some_pieces_have_lines(void **state)
{
    (void)state;
    static const char *const line[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    char text[512];
    Progress p = {.to = tmpfile(), .n = 8, .every = 3};
    FILE *file = p.to;
    for (int i = 0; i < 8; i++) progress_add(&p, 1, progress_shows(&p) ? line[i] : NULL);
    progress_end(&p);
    assert_int_equal(p.done, 8);
    /* the last piece, whatever its number */
    assert_string_equal(written(file, text), "a\nd\ng\nh\n");
}

static void one_line_is_written_over(void **state)
{
    (void)state;
    char text[512];
    Progress p = {.to = tmpfile(), .verb = "sweep", .n = 4, .every = 1, .start_s = clock_s()};
    FILE *file = p.to;
    assert_false(progress_shows(&p));
    progress_add(&p, 3, NULL);
    progress_add(&p, 1, NULL);
    progress_add(&p, 1, NULL); /* a surplus byte in the pipe is not counted */
    progress_end(&p);
    assert_string_equal(written(file, text), "\rsweep: 3 of 4 done, some 0 s left \033[K"
                                             "\rsweep: 4 of 4 done, some 0 s left \033[K"
                                             "\r\033[K");
}

static void nobody_is_told(void **state)
{
    (void)state;
    Progress p = {.n = 4, .every = 1};
    assert_false(progress_shows(&p));
    progress_add(&p, 1, NULL);
    progress_end(&p);
    assert_int_equal(p.done, 1);
}

/* With --json, standard output is one document; the standard error of a test is not a terminal. */
static void options_say_where(void **state)
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
        cmocka_unit_test(some_pieces_have_lines),
        cmocka_unit_test(one_line_is_written_over),
        cmocka_unit_test(nobody_is_told),
        cmocka_unit_test(options_say_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
