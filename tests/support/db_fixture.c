/* See db_fixture.h. */
#include "tests/support/db_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/command.h"

const char *const db_fixture_schema[2] = {
    "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, x REAL, data BLOB) STRICT",
    "ALTER TABLE item ADD COLUMN more INTEGER",
};

int db_fixture_setup(void **state)
{
    Arena *arena = arena_new();
    DbFixture *f = arena_alloc(arena, sizeof *f);
    f->arena = arena;
    f->d = diag_in(arena);
    f->path = arena_print(arena, "%s/store.db", command_new_folder(arena));
    *state = f;
    return 0;
}

int db_fixture_teardown(void **state)
{
    DbFixture *f = *state;
    arena_free(f->arena);
    return 0;
}

Db *db_fixture_open(DbFixture *f)
{
    return db_open(f->path, false, db_fixture_schema, 2, &f->d);
}

void db_fixture_fine(DbFixture *f)
{
    Str text = str_in(f->arena);
    diag_print(&f->d, &text);
    assert_string_equal(str_text(&text), "");
}

void db_fixture_rule(DbFixture *f, const char *rule)
{
    assert_int_equal(f->d.items.n, 1);
    assert_string_equal(f->d.items.at[0].rule, rule);
    assert_int_equal(diag_exit_code(&f->d), 7);
    f->d = diag_in(f->arena);
}

int64_t db_fixture_count(DbFixture *f, Db *db, const char *sql)
{
    DbStatement *st = db_prepare(db, &f->d, sql, "");
    assert_true(db_step(st, &f->d));
    int64_t n = db_int(st, 0);
    db_reset(st);
    return n;
}
