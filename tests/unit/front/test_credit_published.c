/* miles-credit's own published configurations through its dialect. Each script has the sizes and
 * keys of one file of its repository, whose path it names. Its comments state whether
 * miles-credit's code accepts the configuration. Tandem must plan it, or refuse it for the same
 * reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/plans/cases.h"

enum { MOST = 64, LEAST_PLANNED = 15 };

static const char *scripts[MOST];
static uint32_t n_scripts, n_planned;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void read_scripts(Arena *arena)
{
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (!strstr(e->d_name, ".lua")) continue;
        assert_true(n_scripts < MOST);
        scripts[n_scripts++] = arena_dup(arena, e->d_name);
    }
    closedir(dir);
    qsort(scripts, n_scripts, sizeof scripts[0], by_text);
}

static void verdict(void **state)
{
    Arena *arena = arena_new();
    CaseScript script;
    assert_true(cases_script(*state, arena, &script));
    for (uint32_t i = 0; i < script.expect.n; i++)
        n_planned += script.expect.at[i].kind == EXPECT_ok;
    const int failed = cases_run(&script);
    arena_free(arena);
    if (failed) fail_msg("%s has another verdict", (const char *)*state);
}

static void at_least_15_configurations_are_planned(void **state)
{
    (void)state;
    print_message("%u of %u configurations are planned\n", n_planned, n_scripts);
    assert_true(n_planned >= LEAST_PLANNED);
}

int main(void)
{
    Arena *arena = arena_new();
    if (chdir(TANDEM_SOURCE_DIR "/tests/credit_published") != 0) return 1;
    read_scripts(arena);
    static struct CMUnitTest tests[MOST + 1];
    for (uint32_t i = 0; i < n_scripts; i++)
        tests[i] =
            (struct CMUnitTest){scripts[i], verdict, NULL, NULL, (void *)(uintptr_t)scripts[i]};
    tests[n_scripts] = (struct CMUnitTest)cmocka_unit_test(at_least_15_configurations_are_planned);
    int failed = _cmocka_run_group_tests("credit_published", tests, n_scripts + 1, NULL, NULL);
    arena_free(arena);
    return failed;
}
