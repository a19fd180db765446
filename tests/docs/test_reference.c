/* The pages that `make docs` writes must equal those of the source tree, and their tables must be
 * complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/keys/fields.h"
#include "store/store.h"
#include "tests/docs/pages.h"
#include "tests/support/command.h"

static void pages_equal_the_tables(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (uint32_t i = 0; i < n_pages; i++) {
        const char *path = arena_print(arena, TANDEM_SOURCE_DIR "/%s", pages[i].path);
        const char *now = command_read_file(arena, path, NULL);
        if (now == NULL || strcmp(now, pages[i].make(arena)) != 0)
            fail_msg("%s differs from the tables: run `make docs`", pages[i].path);
    }
    arena_free(arena);
}

enum { MOST_ROWS = 4096 };

static bool is_used(const FieldDoc *doc)
{
    for (int of_pass = 0; of_pass < 2; of_pass++)
        for (uint32_t i = 0; field_at(of_pass, i) != NULL; i++)
            if (field_doc(field_at(of_pass, i)->path) == doc) return true;
    return false;
}

static void every_key_of_a_plan_is_described(void **state)
{
    (void)state;
    for (int of_pass = 0; of_pass < 2; of_pass++)
        for (uint32_t i = 0; field_at(of_pass, i) != NULL; i++)
            if (field_doc(field_at(of_pass, i)->path) == NULL)
                fail_msg("fields_doc.def does not tell of %s", field_at(of_pass, i)->path);
#define PASS(name)                                                                                 \
    if (field_doc(#name) == NULL) fail_msg("nothing tells of the pass " #name);
#include "planner/front/passes.def"
    for (uint32_t i = 0; field_doc_at(i) != NULL; i++)
        if (!is_used(field_doc_at(i)))
            fail_msg("fields_doc.def: there is no key %s", field_doc_at(i)->key);
}

static bool take_same_values(const Field *a, const Field *b)
{
    return a->kind == b->kind && !(a->least < b->least) && !(a->least > b->least) &&
           !(a->most < b->most) && !(a->most > b->most) && a->words == b->words;
}

/* Keys that one row describes must take the same values. */
static void keys_of_one_row_take_the_same_values(void **state)
{
    (void)state;
    uint32_t n_alike = 0;
    for (int of_pass = 0; of_pass < 2; of_pass++) {
        struct {
            const FieldDoc *doc;
            const Field *first; /* the first key that this row describes */
        } seen[MOST_ROWS];
        uint32_t n = 0;
        for (uint32_t i = 0; field_at(of_pass, i) != NULL; i++) {
            const Field *field = field_at(of_pass, i);
            const FieldDoc *doc = field_doc(field->path);
            uint32_t row = 0;
            while (row < n && seen[row].doc != doc) row++;
            if (row < n) {
                if (!take_same_values(field, seen[row].first))
                    fail_msg("%s and %s take other values", field->path, seen[row].first->path);
                n_alike++;
                continue;
            }
            assert_true(n < MOST_ROWS);
            seen[n].doc = doc;
            seen[n++].first = field;
        }
    }
    assert_true(n_alike > 20);
}

static bool is_column_described(const char *table, const char *column)
{
    for (uint32_t i = 0; i < n_column_rows; i++)
        if (strcmp(column_rows[i].table, table) == 0 && column_rows[i].columns != NULL &&
            page_has_word(column_rows[i].columns, column))
            return true;
    return false;
}

static void every_column_of_the_store_is_described(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Store *store = store_open(":memory:", false, &diag);
    assert_non_null(store);
    DbStatement *all = db_prepare(store_db(store), &diag,
                                  "SELECT m.name, c.name FROM sqlite_master m,"
                                  " pragma_table_info(m.name) c WHERE m.type IN ('table', 'view')"
                                  " AND m.name NOT LIKE 'sqlite_%'",
                                  "");
    uint32_t n = 0, told = 0;
    for (; db_step(all, &diag); n++)
        if (!is_column_described(db_text(all, 0), db_text(all, 1)))
            fail_msg("store/columns.def does not tell of %s.%s", db_text(all, 0), db_text(all, 1));
    for (uint32_t i = 0; i < n_column_rows; i++) {
        const char *at = column_rows[i].columns;
        while (at != NULL && *at != 0) {
            size_t length = strcspn(at, " ");
            told++;
            at += length + strspn(at + length, " ");
        }
    }
    assert_true(n > 100);
    assert_int_equal(n, told); /* the page has no columns that the store lacks */
    store_close(store);
    arena_free(arena);
}

/* nn.lua reads the names of options from the table, and refuses to load if the table lacks one of
 * its functions. This test checks the reverse: the table names no function that nn lacks. */
static void every_function_of_nn_is_described(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *plan = arena_print(arena, "%s/names.lua", folder);
    command_write_file(plan, "local nn, reference = require 'tandem.nn', require "
                             "'tandem.nn_reference'\n"
                             "local told = {}\n"
                             "for _, entry in ipairs(reference.list) do\n"
                             "  told[entry.name] = true\n"
                             "  assert(nn[entry.name:match '%.(.*)'], entry.name)\n"
                             "end\n"
                             "return require 'plans.tiny_text'\n");
    CommandResult r = COMMAND(arena, 60, "check", plan);
    if (r.exit_code != 0) fail_msg("%s", r.err);
    arena_free(arena);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The README must state the errors of step times in tests/data/predicted_runs.csv, whose last two
 * columns are the measured and the predicted value. */
static void the_readme_states_todays_errors(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *at =
        command_read_file(arena, TANDEM_SOURCE_DIR "/tests/data/predicted_runs.csv", NULL);
    const char *readme = command_read_file(arena, TANDEM_SOURCE_DIR "/README.md", NULL);
    double error[4096];
    uint32_t n = 0;
    assert_non_null(at);
    assert_non_null(readme);
    for (; *at != 0; at += strcspn(at, "\n"), at += *at == '\n') {
        char *line = arena_copy(arena, at, strcspn(at, "\n"));
        if (strstr(line, ",step,") == NULL) continue;
        char *predicted = strrchr(line, ',');
        *predicted++ = 0;
        assert_true(n < sizeof error / sizeof *error);
        error[n++] = fabs(strtod(predicted, NULL) / strtod(strrchr(line, ',') + 1, NULL) - 1);
    }
    qsort(error, n, sizeof *error, by_size);
    const char *said =
        arena_print(arena,
                    "On %u published runs in tests/data,\n  half of the predictions are within "
                    "%.0f %%, and one in ten is off by more than %.0f %%.",
                    n, 100 * error[n / 2], 100 * error[n - 1 - n / 10]);
    if (strstr(readme, said) == NULL) fail_msg("README.md should say: %s", said);
    arena_free(arena);
}

/* Returns cell `column` (from 0) of the page's first table row that begins with `row`. */
static const char *cell_of(Arena *arena, const char *page, const char *row, int column)
{
    const char *at = strstr(page, arena_print(arena, "\n%s", row));
    if (at == NULL) fail_msg("the page has no row %s", row);
    for (at += 2; column > 0 && at != NULL; column--) at = strchr(at, '|') + 1;
    return arena_print(arena, "%.*s", (int)strcspn(at, "|") - 2, at + 1);
}

/* In docs/explanation/accuracy.md, the values reached for each aim must be those of the tables on
 * that page. */
static void the_aims_state_the_tables_values(void **state)
{
    (void)state;
    static const struct {
        const char *aim, *row, *before; /* `before` precedes the row's value in the text */
        int column;                     /* the value: 2: n, 3: median, 4: p90 */
    } aims[] = {
        {"step time: median", "| step time | all below |", "", 3},
        {"step time: median", "| step time | all below |", "and ", 4},
        {"step time: median", "| step time | all below |", "(", 2},
        {"memory allocated: median", "| | KempnerForge, mixtures of experts |", "experts ", 3},
        {"memory reserved: median", "| memory reserved | all below |", "", 3},
        {"memory reserved: median", "| memory reserved | all below |", "(", 2},
        {"products: median", "| products, 16 bits | dev-val |", "", 3},
        {"products: median", "| products, 16 bits | dev-val |", "(", 2},
        {"products: median", "| products, 8 bits | dev-val |", "bits (6 rows), ", 3},
        {"products: median", "| products, 8 bits | dev-val |", "in 8 bits (", 2},
        {"attention: median", "| attention forward | dev-cal |", "used, ", 3},
        {"attention: median", "| attention backward | dev-cal |", "and ", 3},
    };
    Arena *arena = arena_new();
    const char *page =
        command_read_file(arena, TANDEM_SOURCE_DIR "/docs/explanation/accuracy.md", NULL);
    assert_non_null(page);
    for (size_t i = 0; i < sizeof aims / sizeof aims[0]; i++) {
        const char *line = strstr(page, arena_print(arena, "\n| %s", aims[i].aim));
        if (line == NULL) fail_msg("the page has no aim %s", aims[i].aim);
        const char *aim = arena_print(arena, "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
        const char *reached = strchr(aim + 2, '|');
        const char *said = arena_print(arena, "%s%s", aims[i].before,
                                       cell_of(arena, page, aims[i].row, aims[i].column));
        if (strstr(reached, said) == NULL) fail_msg("the aim should say \"%s\": %s", said, aim);
    }
    /* both verdicts "fits", as percentages of their rows */
    const char *fits[] = {"| fits | all, with", "| fits, not all stated | all |"};
    for (int i = 0; i < 2; i++) {
        const double n = strtod(cell_of(arena, page, fits[i], 2), NULL),
                     right = strtod(cell_of(arena, page, fits[i], 3), NULL);
        const char *said = arena_print(arena, "%.1f %%", 100 * right / n);
        const char *aim = strstr(page, "\n| \"fits\" right");
        assert_non_null(aim);
        const char *found = strstr(aim + 1, said);
        if (found == NULL || found > strchr(aim + 1, '\n')) fail_msg("the aim lacks %s", said);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_equal_the_tables),
        cmocka_unit_test(every_key_of_a_plan_is_described),
        cmocka_unit_test(keys_of_one_row_take_the_same_values),
        cmocka_unit_test(every_column_of_the_store_is_described),
        cmocka_unit_test(every_function_of_nn_is_described),
        cmocka_unit_test(the_readme_states_todays_errors),
        cmocka_unit_test(the_aims_state_the_tables_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
