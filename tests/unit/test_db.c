/* The SQLite wrapper: values go in and come out, failures are told, transactions hold, what is not
 * ours is refused with its bytes untouched, and several processes may create and write at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/db.h"
#include "tests/support/command.h"

static const char *const schema[] = {
    "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, x REAL, data BLOB) STRICT",
    "ALTER TABLE item ADD COLUMN more INTEGER",
};

typedef struct Fixture {
    Arena *arena;
    Diag d;
    const char *path;
} Fixture;

static int setup(void **state)
{
    Arena *arena = arena_new();
    Fixture *f = arena_alloc(arena, sizeof *f);
    f->arena = arena;
    f->d = diag_in(arena);
    f->path = arena_print(arena, "%s/store.db", command_new_folder(arena));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    arena_free(f->arena);
    return 0;
}

static Db *open_store(Fixture *f)
{
    return db_open(f->path, false, schema, 2, &f->d);
}

static void assert_fine(Fixture *f)
{
    Str text = str_in(f->arena);
    diag_print(&f->d, &text);
    assert_string_equal(str_text(&text), "");
}

static void assert_rule(Fixture *f, const char *rule)
{
    assert_int_equal(f->d.items.n, 1);
    assert_string_equal(f->d.items.at[0].rule, rule);
    assert_int_equal(diag_exit_code(&f->d), 7);
    f->d = diag_in(f->arena);
}

static int64_t count(Fixture *f, Db *db, const char *sql)
{
    DbStatement *st = db_prepare(db, &f->d, sql, "");
    assert_true(db_step(st, &f->d));
    int64_t n = db_int(st, 0);
    db_reset(st);
    return n;
}

static void values_come_back(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    assert_fine(f);
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
    /* At its end it has been reset: it can be stepped from the start. */
    assert_true(db_step(st, &f->d));
    db_reset(st);
    db_close(db);
    assert_fine(f);
}

static void null_text_is_null(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    /* NOT NULL: so SQLite must see NULL and refuse it. */
    assert_false(db_run(db, &f->d, "INSERT INTO item (name) VALUES (?)", "s", (const char *)NULL));
    assert_rule(f, "store-error");
    db_close(db);
}

static void failures_are_told(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    assert_null(db_prepare(db, &f->d, "SELECT nothing FROM nowhere", ""));
    assert_non_null(strstr(f->d.items.at[0].text, "nowhere"));
    assert_string_equal(f->d.items.at[0].loc.file, f->path);
    assert_rule(f, "store-error");
    assert_false(db_step(NULL, &f->d));
    assert_fine(f);
    assert_false(db_exec(db, "CREATE TABLE item (id)", &f->d));
    assert_rule(f, "store-error");
    /* STRICT: a number column takes no text. */
    assert_false(db_run(db, &f->d, "INSERT INTO item (name, x) VALUES ('a', ?)", "s", "many"));
    assert_rule(f, "store-error");
    assert_int_equal(count(f, db, "SELECT count(*) FROM item"), 0);
    db_close(db);
}

static void a_statement_in_use_is_left_alone(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
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
    assert_int_equal(pairs, 6); /* (1,1) (1,2) (1,3) (2,2) (2,3) (3,3) */
    /* When nobody reads it, the same one is used again. */
    assert_ptr_equal(db_prepare(db, &f->d, sql, "i", (int64_t)1),
                     db_prepare(db, &f->d, sql, "i", (int64_t)2));
    db_close(db);
    assert_fine(f);
}

static void transactions_hold(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    assert_true(db_begin(db, &f->d));
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('lost')", ""));
    db_rollback(db);
    db_rollback(db); /* nothing to undo: nothing happens */
    assert_true(db_begin(db, &f->d));
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('kept')", ""));
    assert_true(db_commit(db, &f->d));
    db_close(db);
    db = db_open(f->path, true, schema, 2, &f->d);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item WHERE name = 'kept'"), 1);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item"), 1);
    assert_false(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('x')", ""));
    assert_rule(f, "store-error"); /* opened for reading only */
    db_close(db);
}

static void migrates_step_by_step(void **state)
{
    Fixture *f = *state;
    Db *db = db_open(f->path, false, schema, 1, &f->d);
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('old')", ""));
    db_close(db);
    assert_fine(f);
    assert_null(db_open(f->path, true, schema, 2, &f->d));
    assert_rule(f, "store-older");
    db = open_store(f);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item WHERE more IS NULL"), 1);
    assert_int_equal(count(f, db, "PRAGMA user_version"), 2);
    assert_int_equal(count(f, db, "PRAGMA application_id"), DB_APPLICATION_ID);
    db_close(db);
    assert_fine(f);
}

static void a_failed_migration_changes_nothing(void **state)
{
    Fixture *f = *state;
    db_close(open_store(f));
    const char *const broken[] = {schema[0], schema[1],
                                  "CREATE TABLE extra (a INTEGER) STRICT; SELECT * FROM nowhere"};
    assert_null(db_open(f->path, false, broken, 3, &f->d));
    assert_rule(f, "store-error");
    Db *db = open_store(f);
    assert_int_equal(count(f, db, "PRAGMA user_version"), 2);
    assert_int_equal(count(f, db, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'"), 0);
    db_close(db);
    /* A store that cannot be set up does not appear at all. */
    const char *fresh = arena_print(f->arena, "%s.fresh", f->path);
    assert_null(db_open(fresh, false, broken, 3, &f->d));
    assert_rule(f, "store-error");
    assert_int_equal(access(fresh, F_OK), -1);
}

static void reading_never_creates(void **state)
{
    Fixture *f = *state;
    assert_null(db_open(f->path, true, schema, 2, &f->d));
    assert_rule(f, "store-open");
    assert_int_equal(access(f->path, F_OK), -1);
    const char *deep = arena_print(f->arena, "%s.d/none/store.db", f->path);
    assert_null(db_open(deep, false, schema, 2, &f->d));
    assert_rule(f, "store-open");
}

static void memory_stores_are_private(void **state)
{
    Fixture *f = *state;
    Db *one = db_open(":memory:", false, schema, 2, &f->d);
    Db *two = db_open(":memory:", false, schema, 2, &f->d);
    assert_true(db_run(one, &f->d, "INSERT INTO item (name) VALUES ('a')", ""));
    assert_int_equal(count(f, one, "SELECT count(*) FROM item"), 1);
    assert_int_equal(count(f, two, "SELECT count(*) FROM item"), 0);
    db_close(one);
    db_close(two);
    assert_fine(f);
}

/* Writes `bytes` to the path, asks for the store, and expects the rule and the same bytes. */
static void assert_refused(Fixture *f, const void *bytes, size_t n, const char *rule)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    for (int read_only = 0; read_only < 2; read_only++) {
        assert_null(db_open(f->path, read_only != 0, schema, 2, &f->d));
        assert_rule(f, rule);
        size_t n_after;
        const char *after = command_read_file(f->arena, f->path, &n_after);
        assert_int_equal(n_after, n);
        assert_memory_equal(after, bytes, n);
    }
    unlink(f->path);
    unlink(arena_print(f->arena, "%s-wal", f->path));
    unlink(arena_print(f->arena, "%s-shm", f->path));
}

static void refuses_what_is_not_ours(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    for (int64_t i = 0; i < 2000; i++)
        db_run(db, &f->d, "INSERT INTO item (name, more) VALUES ('some text', ?)", "i", i);
    db_close(db);
    assert_fine(f);
    size_t n;
    const char *good = command_read_file(f->arena, f->path, &n);
    assert_true(n > 16384);
    char *bad = arena_alloc(f->arena, n);
    memcpy(bad, good, n);

    assert_refused(f, "", 0, "store-damaged");
    assert_refused(f, "step,loss\n1,4.2\n", 16, "store-foreign");
    for (size_t part = 1; part <= 5; part++)
        assert_refused(f, good, n * part / 6 + 7, "store-damaged");
    memcpy(bad + 68, "\0\0\0\1", 4); /* application_id */
    assert_refused(f, bad, n, "store-foreign");
    memcpy(bad + 68, good + 68, 4);
    memcpy(bad + 60, "\0\0\0\3", 4); /* user_version */
    assert_refused(f, bad, n, "store-newer");
    memcpy(bad + 60, good + 60, 4);
    memset(bad + 4096 * 2 + 100, 0x5A, 300); /* inside a page of the table */
    assert_refused(f, bad, n, "store-damaged");
    memcpy(bad, good, n);
    memset(bad + 100, 0xFF, 8); /* the schema's page */
    assert_refused(f, bad, n, "store-damaged");
}

/* A log without its store may hold what was stored last: it is kept until somebody decides. */
static void keeps_a_log_without_its_store(void **state)
{
    Fixture *f = *state;
    static const char *const ending[] = {"-wal", "-journal"};
    for (size_t i = 0; i < 2; i++) {
        const char *log = arena_print(f->arena, "%s%s", f->path, ending[i]);
        command_write_file(log, "pages");
        assert_null(open_store(f));
        assert_rule(f, "store-damaged");
        assert_string_equal(command_read_file(f->arena, log, NULL), "pages");
        assert_int_not_equal(access(f->path, F_OK), 0);
        unlink(log);
    }
    db_close(open_store(f));
    assert_fine(f);
}

static void refuses_what_is_no_file(void **state)
{
    Fixture *f = *state;
    assert_int_equal(mkdir(f->path, 0700), 0);
    assert_null(open_store(f));
    assert_rule(f, "store-open");
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_null(open_store(f)); /* and does not wait for a writer */
    assert_rule(f, "store-open");
}

enum { WRITERS = 4, ROWS = 50 };

static _Noreturn void write_rows(const char *path)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Db *db = db_open(path, false, schema, 2, &d);
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

/* What a user sees to whom folder and file are as they are to nobody in particular: 0 fine, 1 not
 * so, 2 the folders above are closed to others. */
static int seen_by_another(Fixture *f, mode_t folder_mode, mode_t file_mode,
                           bool (*look)(Fixture *))
{
    const char *folder = arena_copy(f->arena, f->path, strcspn(f->path, "/"));
    const bool is_there = access(f->path, F_OK) == 0;
    if (is_there) assert_int_equal(chmod(f->path, file_mode), 0);
    assert_int_equal(chmod(folder, folder_mode), 0);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
        if (is_there && access(f->path, R_OK) != 0) _exit(2);
        if (access(folder, R_OK | X_OK) != 0) _exit(2);
        const bool fine = look(f);
        Str text = str_in(f->arena);
        diag_print(&f->d, &text);
        if (!fine) fputs(str_text(&text), stderr), fflush(stderr);
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool one_row_is_read(Fixture *f)
{
    Db *mine = db_open(f->path, true, schema, 2, &f->d);
    return mine != NULL && count(f, mine, "SELECT count(*) FROM item") == 1;
}

/* On a shared disk, of a user who may read it only: there is no place for SQLite's shared memory.
 */
static void reads_where_nothing_may_be_written(void **state)
{
    Fixture *f = *state;
    Db *db = open_store(f);
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('seen')", ""));
    db_close(db);
    const int seen = seen_by_another(f, 0555, 0444, one_row_is_read);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
}

static bool writing_is_refused(Fixture *f)
{
    if (open_store(f) != NULL || f->d.n_errors != 1) return false;
    const Diagnostic *why = &f->d.items.at[0];
    return strcmp(why->rule, "store-open") == 0 && strstr(why->text, "Permission denied") &&
           why->loc.file != NULL && strcmp(why->loc.file, f->path) == 0 && why->hint != NULL &&
           strstr(why->hint, "--db FILE");
}

/* Known when it is opened, not by the first row: between the two, kernels are measured. SQLite
 * itself opens a file that may not be written, and writes one whose folder takes no log. */
static void writing_is_refused_at_once(void **state)
{
    Fixture *f = *state;
    int seen = seen_by_another(f, 0555, 0, writing_is_refused);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
    assert_int_equal(access(f->path, F_OK), -1);
    db_close(open_store(f));
    assert_int_equal(seen_by_another(f, 0555, 0666, writing_is_refused), 0);
    assert_int_equal(seen_by_another(f, 0777, 0444, writing_is_refused), 0);
    db_close(open_store(f));
    assert_fine(f);
}

static bool a_row_is_written(Fixture *f)
{
    Db *mine = open_store(f);
    return mine != NULL && db_run(mine, &f->d, "INSERT INTO item (name) VALUES ('mine')", "");
}

/* The log lies beside the store, wherever its link is. */
static void a_link_is_followed(void **state)
{
    Fixture *f = *state;
    const char *sub = arena_print(f->arena, "%s.d", f->path);
    const char *real = arena_print(f->arena, "%s/real.db", sub);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(chmod(sub, 0777), 0);
    db_close(db_open(real, false, schema, 2, &f->d));
    assert_int_equal(symlink("store.db.d/real.db", f->path), 0);
    int seen = seen_by_another(f, 0555, 0666, a_row_is_written);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
}

static void many_create_and_write_at_once(void **state)
{
    Fixture *f = *state;
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
    Db *db = open_store(f);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item"), WRITERS * ROWS);
    /* Each transaction saw all before it: no number twice. */
    assert_int_equal(count(f, db, "SELECT count(DISTINCT more) FROM item"), WRITERS * ROWS);
    db_close(db);
    assert_fine(f);
}

static void a_killed_writer_leaves_a_sound_store(void **state)
{
    Fixture *f = *state;
    db_close(open_store(f));
    for (int round = 0; round < 5; round++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            Db *db = open_store(f);
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
    Db *db = open_store(f);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item WHERE name = 'acknowledged'"), 5);
    assert_int_equal(count(f, db, "SELECT count(*) FROM item WHERE name = 'torn'"), 0);
    db_close(db);
    assert_fine(f);
}

static void write_part(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* The log goes back into the file from its first page on, which says how long the file is to be.
 * Who is killed in between leaves a file that is too short, and the log that has the rest. */
static void a_log_half_put_back_is_read(void **state)
{
    Fixture *f = *state;
    const char *wal = arena_print(f->arena, "%s-wal", f->path);
    db_close(open_store(f));
    Db *db = open_store(f);
    db_begin(db, &f->d); /* so that all of it is in the log */
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
            db = db_open(f->path, read_only != 0, schema, 2, &f->d);
            assert_fine(f);
            assert_int_equal(count(f, db, "SELECT count(*) FROM item"), 2000);
            db_close(db);
            unlink(wal);
            unlink(arena_print(f->arena, "%s-shm", f->path));
        }
    write_part(f->path, whole, 4096 * 3); /* and no log: lost */
    write_part(wal, "", 0);
    assert_null(open_store(f));
    assert_rule(f, "store-damaged");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(null_text_is_null, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_statement_in_use_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(transactions_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(migrates_step_by_step, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_migration_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(reading_never_creates, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_stores_are_private, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_a_log_without_its_store, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_where_nothing_may_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(writing_is_refused_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_is_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(many_create_and_write_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_a_sound_store, setup, teardown),
        cmocka_unit_test_setup_teardown(a_log_half_put_back_is_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
