/* The SQLite wrapper: values are stored and read back, failures are reported, and transactions are
 * atomic. Several processes may create a store and write to it at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/db_fixture.h"

static void values_read_back_as_they_were_written(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    db_fixture_fine(f);
    const char *insert = "INSERT INTO item (name, x, data, more) VALUES (?, ?, ?, ?)";
    const unsigned char blob[] = {0, 1, 255, 0};
    assert_true(db_run(db, &f->d, insert, "sdbi", "gr\xC3\xBC", 0.1, (const void *)blob,
                       sizeof blob, INT64_MIN));
    assert_int_equal(db_last_id(db), 1);
    assert_true(
        db_run(db, &f->d, insert, "sdbi", "", -1e300, (const void *)NULL, (size_t)0, (int64_t)0));
    DbStatement *st = db_prepare(db, &f->d, "SELECT name, x, data, more FROM item ORDER BY id", "");
    assert_true(db_step(st, &f->d));
    assert_string_equal(db_text(st, 0), "gr\xC3\xBC");
    assert_true(db_double(st, 1) == 0.1);
    size_t n;
    const void *data = db_blob(st, 2, &n);
    assert_int_equal(n, sizeof blob);
    assert_memory_equal(data, blob, n);
    assert_true(db_int(st, 3) == INT64_MIN);
    assert_true(db_step(st, &f->d));
    assert_string_equal(db_text(st, 0), "");
    assert_true(db_is_null(st, 2));
    assert_false(db_is_null(st, 3));
    assert_false(db_step(st, &f->d));
    /* At the end of its rows a statement is reset, so it can be stepped from the start. */
    assert_true(db_step(st, &f->d));
    db_reset(st);
    db_close(db);
    db_fixture_fine(f);
}

static void a_null_text_is_stored_as_null(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    /* The column is NOT NULL, so SQLite must see a NULL and refuse it. */
    assert_false(db_run(db, &f->d, "INSERT INTO item (name) VALUES (?)", "s", (const char *)NULL));
    db_fixture_rule(f, "store-error");
    db_close(db);
}

static void failures_of_statements_are_reported(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    assert_null(db_prepare(db, &f->d, "SELECT nothing FROM nowhere", ""));
    assert_non_null(strstr(f->d.items.at[0].text, "nowhere"));
    assert_string_equal(f->d.items.at[0].loc.file, f->path);
    db_fixture_rule(f, "store-error");
    assert_false(db_step(NULL, &f->d));
    db_fixture_fine(f);
    assert_false(db_exec(db, "CREATE TABLE item (id)", &f->d));
    db_fixture_rule(f, "store-error");
    /* The table is STRICT, so a column of numbers takes no text. */
    assert_false(db_run(db, &f->d, "INSERT INTO item (name, x) VALUES ('a', ?)", "s", "many"));
    db_fixture_rule(f, "store-error");
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item"), 0);
    db_close(db);
}

static void a_statement_in_use_is_not_used_again(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    for (int64_t i = 1; i <= 3; i++)
        db_run(db, &f->d, "INSERT INTO item (name, more) VALUES ('a', ?)", "i", i);
    const char *sql = "SELECT more FROM item WHERE more >= ? ORDER BY more";
    DbStatement *outer = db_prepare(db, &f->d, sql, "i", (int64_t)1);
    int64_t pairs = 0;
    while (db_step(outer, &f->d)) {
        DbStatement *inner = db_prepare(db, &f->d, sql, "i", db_int(outer, 0));
        assert_ptr_not_equal(inner, outer);
        while (db_step(inner, &f->d)) pairs++;
    }
    assert_int_equal(pairs, 6); /* the pairs (1,1) (1,2) (1,3) (2,2) (2,3) (3,3) */
    /* When no caller reads from a statement any more, it is used for the next caller. */
    assert_ptr_equal(db_prepare(db, &f->d, sql, "i", (int64_t)1),
                     db_prepare(db, &f->d, sql, "i", (int64_t)2));
    db_close(db);
    db_fixture_fine(f);
}

static void transactions_keep_all_or_nothing(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    assert_true(db_begin(db, &f->d));
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('lost')", ""));
    db_rollback(db);
    db_rollback(db); /* without a transaction, nothing happens */
    assert_true(db_begin(db, &f->d));
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('kept')", ""));
    assert_true(db_commit(db, &f->d));
    db_close(db);
    db = db_open(f->path, true, db_fixture_schema, 2, &f->d);
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item WHERE name = 'kept'"), 1);
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item"), 1);
    assert_false(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('x')", ""));
    db_fixture_rule(f, "store-error"); /* the store was opened read-only */
    db_close(db);
}

static void an_older_store_is_migrated(void **state)
{
    DbFixture *f = *state;
    Db *db = db_open(f->path, false, db_fixture_schema, 1, &f->d);
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('old')", ""));
    db_close(db);
    db_fixture_fine(f);
    assert_null(db_open(f->path, true, db_fixture_schema, 2, &f->d));
    db_fixture_rule(f, "store-older");
    db = db_fixture_open(f);
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item WHERE more IS NULL"), 1);
    assert_int_equal(db_fixture_count(f, db, "PRAGMA user_version"), 2);
    assert_int_equal(db_fixture_count(f, db, "PRAGMA application_id"), DB_APPLICATION_ID);
    db_close(db);
    db_fixture_fine(f);
}

static void a_failed_migration_changes_nothing(void **state)
{
    DbFixture *f = *state;
    db_close(db_fixture_open(f));
    const char *const broken[] = {db_fixture_schema[0], db_fixture_schema[1],
                                  "CREATE TABLE extra (a INTEGER) STRICT; SELECT * FROM nowhere"};
    assert_null(db_open(f->path, false, broken, 3, &f->d));
    db_fixture_rule(f, "store-error");
    Db *db = db_fixture_open(f);
    assert_int_equal(db_fixture_count(f, db, "PRAGMA user_version"), 2);
    assert_int_equal(
        db_fixture_count(f, db, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'"), 0);
    db_close(db);
    /* A store that cannot be set up must not appear at all. */
    const char *fresh = arena_print(f->arena, "%s.fresh", f->path);
    assert_null(db_open(fresh, false, broken, 3, &f->d));
    db_fixture_rule(f, "store-error");
    assert_int_equal(access(fresh, F_OK), -1);
}

enum { WRITERS = 4, ROWS = 50 };

static _Noreturn void write_rows(const char *path)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Db *db = db_open(path, false, db_fixture_schema, 2, &d);
    bool is_fine = db != NULL;
    for (int64_t i = 0; is_fine && i < ROWS; i++)
        is_fine =
            db_begin(db, &d) &&
            db_run(db, &d, "INSERT INTO item (name, more) SELECT 'row', count(*) FROM item", "") &&
            db_commit(db, &d);
    db_close(db);
    Str text = str_in(arena);
    diag_print(&d, &text);
    fputs(str_text(&text), stderr);
    fflush(stderr);
    arena_free(arena);
    _exit(is_fine ? 0 : 1);
}

static void many_processes_create_and_write_at_once(void **state)
{
    DbFixture *f = *state;
    pid_t child[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        if (child[i] == 0) write_rows(f->path);
        assert_true(child[i] > 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    Db *db = db_fixture_open(f);
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item"), WRITERS * ROWS);
    /* No number occurs twice, so each transaction saw all earlier ones. */
    assert_int_equal(db_fixture_count(f, db, "SELECT count(DISTINCT more) FROM item"),
                     WRITERS * ROWS);
    db_close(db);
    db_fixture_fine(f);
}

static void a_killed_writer_leaves_a_sound_store(void **state)
{
    DbFixture *f = *state;
    db_close(db_fixture_open(f));
    for (int round = 0; round < 5; round++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            Db *db = db_fixture_open(f);
            db_run(db, &f->d, "INSERT INTO item (name) VALUES ('acknowledged')", "");
            db_begin(db, &f->d);
            db_run(db, &f->d, "INSERT INTO item (name) VALUES ('torn')", "");
            if (write(ready[1], "x", 1) != 1) _exit(1);
            for (;;) pause();
        }
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(ready[0]);
        close(ready[1]);
    }
    Db *db = db_fixture_open(f);
    assert_int_equal(
        db_fixture_count(f, db, "SELECT count(*) FROM item WHERE name = 'acknowledged'"), 5);
    assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item WHERE name = 'torn'"), 0);
    db_close(db);
    db_fixture_fine(f);
}

static void write_part(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* SQLite copies its log into the file page by page. Page 1 is copied first and states the final
 * length. A process that is killed during the copy leaves a file that is too short. The log still
 * has the rest. */
static void a_log_that_is_half_copied_back_is_read(void **state)
{
    DbFixture *f = *state;
    const char *wal = arena_print(f->arena, "%s-wal", f->path);
    db_close(db_fixture_open(f));
    Db *db = db_fixture_open(f);
    db_begin(db, &f->d); /* one transaction, so that all of it is in the log */
    for (int64_t i = 0; i < 2000; i++)
        db_run(db, &f->d, "INSERT INTO item (name, more) VALUES ('some text', ?)", "i", i);
    db_commit(db, &f->d);
    size_t n_log, n;
    const char *log = command_read_file(f->arena, wal, &n_log);
    assert_true(n_log > 0);
    db_close(db);
    const char *whole = command_read_file(f->arena, f->path, &n);
    for (int read_only = 0; read_only < 2; read_only++)
        for (size_t pages = 1; pages * 4096 < n; pages += 3) {
            write_part(f->path, whole, pages * 4096);
            write_part(wal, log, n_log);
            db = db_open(f->path, read_only != 0, db_fixture_schema, 2, &f->d);
            db_fixture_fine(f);
            assert_int_equal(db_fixture_count(f, db, "SELECT count(*) FROM item"), 2000);
            db_close(db);
            unlink(wal);
            unlink(arena_print(f->arena, "%s-shm", f->path));
        }
    write_part(f->path, whole, 4096 * 3); /* without its log, the rest is lost */
    write_part(wal, "", 0);
    assert_null(db_fixture_open(f));
    db_fixture_rule(f, "store-damaged");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, db_fixture_setup, db_fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(values_read_back_as_they_were_written), TEST(a_null_text_is_stored_as_null),
        TEST(failures_of_statements_are_reported),   TEST(a_statement_in_use_is_not_used_again),
        TEST(transactions_keep_all_or_nothing),      TEST(an_older_store_is_migrated),
        TEST(a_failed_migration_changes_nothing),    TEST(many_processes_create_and_write_at_once),
        TEST(a_killed_writer_leaves_a_sound_store),  TEST(a_log_that_is_half_copied_back_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
