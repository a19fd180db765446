/* A new store gets its tables at once, from store/schema_now.c. They must be the tables that all
 * migrations together make. With SNAP_UPDATE=1 the test writes that file instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "store/db.h"
#include "store/private.h"

/* Returns the statements that would make all tables, indices and views of the store. */
static const char *statements(Db *db, Arena *arena, Diag *d)
{
    Str all = str_in(arena);
    DbStatement *st = db_prepare(
        db, d,
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY rowid",
        "");
    while (db_step(st, d)) str_print(&all, "%s;\n", db_text(st, 0));
    return str_text(&all);
}

static const char *made_by(Arena *arena, const char *const *fresh)
{
    Diag d = diag_in(arena);
    Db *db = db_open_fresh(":memory:", false, store_migrations, store_n_migrations, fresh, &d);
    assert_non_null(db);
    const char *all = statements(db, arena, &d);
    DbStatement *st = db_prepare(db, &d, "PRAGMA user_version", "");
    assert_true(db_step(st, &d));
    assert_int_equal(db_int(st, 0), store_n_migrations);
    db_reset(st);
    db_close(db);
    assert_int_equal(d.n_errors, 0);
    return all;
}

/* Writes each line of the text as an element of an array of C strings. A long line becomes several
 * literals. */
static void write_strings(FILE *to, const char *text)
{
    enum { WIDTH = 80 };
    int column = 0;
    for (const char *c = text; *c != 0; c++) {
        if (column == 0) column = fprintf(to, "    \"");
        if (*c == '\n') {
            (void)fprintf(to, "\",\n");
            column = 0;
            continue;
        }
        column += fprintf(to, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        if (*c != ' ' || column < WIDTH) continue;
        (void)fprintf(to, "\"\n");
        column = 0;
    }
}

static void write_snapshot(const char *text)
{
    FILE *to = fopen(TANDEM_SOURCE_DIR "/store/schema_now.c", "w");
    assert_non_null(to);
    (void)fprintf(to, "/* Written by tests/unit/store/test_schema_now.c with SNAP_UPDATE=1. */\n"
                      "#include \"store/private.h\"\n\n/* clang-format off */\n"
                      "const char *const store_schema_now[] = {\n");
    write_strings(to, text);
    (void)fprintf(to, "    NULL};\n/* clang-format on */\n");
    assert_int_equal(fclose(to), 0);
}

static void the_fresh_schema_equals_all_migrations(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *migrated = made_by(arena, NULL);
    assert_true(strlen(migrated) > 1000);
    if (getenv("SNAP_UPDATE") != NULL)
        write_snapshot(migrated);
    else
        assert_string_equal(made_by(arena, store_schema_now), migrated);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_fresh_schema_equals_all_migrations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
