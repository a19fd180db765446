/* Compares how Tandem and another system (KempnerForge, miles-credit or NeMo Automodel) treat a
 * configuration. There is one test for each row of tests/data/seed_cases.csv and
 * seed_cases_more.csv (more facts from their sources), named by its id. Every row has a script. If
 * the verdict of a row is an error, its script must be refused, and a similar legal script must
 * not. If Tandem does not refuse such a script, the row must say why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/plans/cases.h"
#include "tests/support/sample.h"

enum { MOST_SCRIPTS = 600, MOST_ROWS = 400 };

static Arena *arena;
static CaseRow cases[MOST_ROWS];
static uint32_t n_cases;
static const char *scripts[MOST_SCRIPTS]; /* "KF-003.ok.lua", in order */
static uint32_t n_scripts;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void read_scripts(void)
{
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".lua") != 0) continue;
        assert_true(n_scripts < MOST_SCRIPTS);
        scripts[n_scripts++] = arena_dup(arena, e->d_name);
    }
    closedir(dir);
    qsort(scripts, n_scripts, sizeof scripts[0], by_text);
}

static bool belongs(const char *script, const char *id)
{
    size_t n = strlen(id);
    return strncmp(script, id, n) == 0 && script[n] == '.';
}

static bool is_refusal(const CaseScript *script)
{
    for (uint32_t i = 0; i < script->expect.n; i++)
        if (script->expect.at[i].kind == EXPECT_error) return true;
    return false;
}

static void row(void **state)
{
    const CaseRow *c = *state;
    if (!is_sampled((size_t)(c - cases), 2)) skip();
    int failed = 0;
    const char *instead = NULL;
    uint32_t n_refused = 0, n_planned = 0;
    Arena *own = arena_new();
    for (uint32_t i = 0; i < n_scripts; i++) {
        CaseScript script;
        if (!belongs(scripts[i], c->id)) continue;
        if (!cases_script(scripts[i], own, &script)) {
            failed = 1;
            continue;
        }
        if (script.instead != NULL) instead = script.instead;
        n_refused += is_refusal(&script);
        n_planned += !is_refusal(&script);
        failed |= cases_run(&script);
    }
    bool is_error = strstr(c->expected, "ERROR") != NULL;
    if (instead != NULL) print_message("%s: %s\n", c->id, instead);
    bool told = instead != NULL;
    arena_free(own);
    if (failed) fail_msg("%s: %s: %s", c->id, c->config, c->expected);
    if (is_error && !told && n_refused == 0) fail_msg("%s: no script of it is refused", c->id);
    if (n_planned == 0) fail_msg("%s: no script of it plans", c->id);
}

static void every_script_has_a_row_and_every_row_a_script(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_scripts; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < n_cases; k++) n += belongs(scripts[i], cases[k].id);
        if (n != 1) fail_msg("%s belongs to no row", scripts[i]);
    }
    for (uint32_t k = 0; k < n_cases; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_scripts; i++) n += belongs(scripts[i], cases[k].id);
        if (n == 0) fail_msg("%s has no script", cases[k].id);
    }
    print_message("all %u rows are covered\n", n_cases);
}

int main(void)
{
    arena = arena_new();
    CaseRows rows = cases_read(TANDEM_SOURCE_DIR "/tests/data/seed_cases.csv", arena);
    CaseRows more = cases_read(TANDEM_SOURCE_DIR "/tests/data/seed_cases_more.csv", arena);
    for (uint32_t i = 0; i < more.at.n; i++) list_push(arena, &rows.at, more.at.at[i]);
    if (chdir(TANDEM_SOURCE_DIR "/tests/seed_cases") != 0 || rows.at.n > MOST_ROWS) return 1;
    read_scripts();
    static struct CMUnitTest tests[MOST_ROWS + 1];
    for (uint32_t i = 0; i < rows.at.n; i++) {
        CaseRow *c = &cases[n_cases++];
        *c = rows.at.at[i];
        tests[i] = (struct CMUnitTest){c->id, row, NULL, NULL, c};
    }
    tests[n_cases] =
        (struct CMUnitTest)cmocka_unit_test(every_script_has_a_row_and_every_row_a_script);
    int failed = _cmocka_run_group_tests("seed_cases", tests, n_cases + 1, NULL, NULL);
    arena_free(arena);
    return failed;
}
