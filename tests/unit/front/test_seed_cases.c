/* The behaviour of KempnerForge, miles-credit and NeMo Automodel for a configuration, and Tandem's.
 * There is one test for each row of tests/data/seed_cases.csv and seed_cases_more.csv (more facts
 * from their sources), named by its id. A row whose verdict is an error has a script that is
 * refused and a similar one that is not, or says why it is not refused. Rows without a script are
 * listed with the reason in tests/seed_cases/not_covered.txt and printed: no row is skipped
 * silently. */
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

enum { MOST_SCRIPTS = 600, MOST_ROWS = 400 };

typedef struct Case {
    CaseRow row;
    const char *reason; /* why it is not covered; NULL: it is covered */
} Case;

static Arena *arena;
static Case cases[MOST_ROWS];
static uint32_t n_cases;
static const char *scripts[MOST_SCRIPTS]; /* "KF-003.ok.lua", in order */
static uint32_t n_scripts;
static struct {
    const char *id, *reason;
} uncovered[MOST_ROWS];
static uint32_t n_uncovered;

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

/* Each line is "ID reason". */
static void read_uncovered(void)
{
    const char *at = command_read_file(arena, "not_covered.txt", NULL);
    for (assert_non_null(at); *at != 0;) {
        size_t n = strcspn(at, "\n"), id = strcspn(at, " ");
        assert_true(id < n && n_uncovered < MOST_ROWS);
        uncovered[n_uncovered].id = arena_copy(arena, at, id);
        uncovered[n_uncovered++].reason = arena_copy(arena, at + id + 1, n - id - 1);
        at += n + (at[n] == '\n');
    }
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
    const Case *c = *state;
    if (c->reason != NULL) {
        print_message("not covered: %s %s: %s\n", c->row.id, c->row.system, c->reason);
        skip();
    }
    int failed = 0;
    const char *instead = NULL;
    uint32_t n_refused = 0, n_planned = 0;
    Arena *own = arena_new();
    for (uint32_t i = 0; i < n_scripts; i++) {
        CaseScript script;
        if (!belongs(scripts[i], c->row.id)) continue;
        if (!cases_script(scripts[i], own, &script)) {
            failed = 1;
            continue;
        }
        if (script.instead != NULL) instead = script.instead;
        n_refused += is_refusal(&script);
        n_planned += !is_refusal(&script);
        failed |= cases_run(&script);
    }
    bool is_error = strstr(c->row.expected, "ERROR") != NULL;
    if (instead != NULL) print_message("%s: %s\n", c->row.id, instead);
    bool told = instead != NULL;
    arena_free(own);
    if (failed) fail_msg("%s: %s: %s", c->row.id, c->row.config, c->row.expected);
    if (is_error && !told && n_refused == 0) fail_msg("%s: no script of it is refused", c->row.id);
    if (n_planned == 0) fail_msg("%s: no script of it plans", c->row.id);
}

static void every_script_has_a_row_and_every_gap_a_reason(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_scripts; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < n_cases; k++) n += belongs(scripts[i], cases[k].row.id);
        if (n != 1) fail_msg("%s belongs to no row", scripts[i]);
    }
    for (uint32_t i = 0; i < n_uncovered; i++) {
        bool found = false;
        for (uint32_t k = 0; k < n_cases; k++)
            found = found || strcmp(uncovered[i].id, cases[k].row.id) == 0;
        if (!found) fail_msg("not_covered.txt: %s is no row", uncovered[i].id);
    }
    uint32_t gaps = 0;
    for (uint32_t k = 0; k < n_cases; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_scripts; i++) n += belongs(scripts[i], cases[k].row.id);
        gaps += cases[k].reason != NULL;
        if (n == 0 && cases[k].reason == NULL)
            fail_msg("%s has no script, and no reason in not_covered.txt", cases[k].row.id);
        if (n > 0 && cases[k].reason != NULL)
            fail_msg("%s has a script: take it out of not_covered.txt", cases[k].row.id);
    }
    assert_int_equal(gaps, n_uncovered); /* no row is named twice */
    print_message("%u of %u rows are covered\n", n_cases - gaps, n_cases);
}

int main(void)
{
    arena = arena_new();
    CaseRows rows = cases_read(TANDEM_SOURCE_DIR "/tests/data/seed_cases.csv", arena);
    CaseRows more = cases_read(TANDEM_SOURCE_DIR "/tests/data/seed_cases_more.csv", arena);
    for (uint32_t i = 0; i < more.at.n; i++) list_push(arena, &rows.at, more.at.at[i]);
    if (chdir(TANDEM_SOURCE_DIR "/tests/seed_cases") != 0 || rows.at.n > MOST_ROWS) return 1;
    read_scripts();
    read_uncovered();
    static struct CMUnitTest tests[MOST_ROWS + 1];
    for (uint32_t i = 0; i < rows.at.n; i++) {
        Case *c = &cases[n_cases++];
        c->row = rows.at.at[i];
        for (uint32_t k = 0; k < n_uncovered; k++)
            if (strcmp(uncovered[k].id, c->row.id) == 0) c->reason = uncovered[k].reason;
        tests[i] = (struct CMUnitTest){c->row.id, row, NULL, NULL, c};
    }
    tests[n_cases] =
        (struct CMUnitTest)cmocka_unit_test(every_script_has_a_row_and_every_gap_a_reason);
    int failed = _cmocka_run_group_tests("seed_cases", tests, n_cases + 1, NULL, NULL);
    arena_free(arena);
    return failed;
}
