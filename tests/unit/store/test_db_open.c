/* Files that the SQLite wrapper opens. A foreign file is refused and its bytes stay as they are. A
 * read-only file can be read; writing to it is refused at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/db_fixture.h"

static void reading_never_creates_a_store(void **state)
{
    DbFixture *f = *state;
    assert_null(db_open(f->path, true, db_fixture_schema, 2, &f->d));
    db_fixture_rule(f, "store-open");
    assert_int_equal(access(f->path, F_OK), -1);
    const char *deep = arena_print(f->arena, "%s.d/none/store.db", f->path);
    assert_null(db_open(deep, false, db_fixture_schema, 2, &f->d));
    db_fixture_rule(f, "store-open");
}

static void drafts_of_killed_processes_are_removed(void **state)
{
    DbFixture *f = *state;
    pid_t gone = fork();
    if (gone == 0) _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    const char *stray = arena_print(f->arena, "%s.new-%d", f->path, (int)gone);
    const char *mine = arena_print(f->arena, "%s.new-%d", f->path, (int)getpid());
    const char *other = arena_print(f->arena, "%s.new-notes", f->path);
    const char *const all[] = {stray, mine, other};
    for (size_t i = 0; i < 3; i++) fclose(fopen(all[i], "w"));
    db_close(db_fixture_open(f));
    assert_int_equal(access(stray, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    unlink(other);
    unlink(mine);
}

static void memory_stores_are_private(void **state)
{
    DbFixture *f = *state;
    Db *one = db_open(":memory:", false, db_fixture_schema, 2, &f->d);
    Db *two = db_open(":memory:", false, db_fixture_schema, 2, &f->d);
    assert_true(db_run(one, &f->d, "INSERT INTO item (name) VALUES ('a')", ""));
    assert_int_equal(db_fixture_count(f, one, "SELECT count(*) FROM item"), 1);
    assert_int_equal(db_fixture_count(f, two, "SELECT count(*) FROM item"), 0);
    db_close(one);
    db_close(two);
    db_fixture_fine(f);
}

/* Writes `bytes` to the path and opens the store. Expects the rule and unchanged bytes. */
static void assert_refused(DbFixture *f, const void *bytes, size_t n, const char *rule)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    for (int read_only = 0; read_only < 2; read_only++) {
        assert_null(db_open(f->path, read_only != 0, db_fixture_schema, 2, &f->d));
        db_fixture_rule(f, rule);
        size_t n_after;
        const char *after = command_read_file(f->arena, f->path, &n_after);
        assert_int_equal(n_after, n);
        assert_memory_equal(after, bytes, n);
    }
    unlink(f->path);
    unlink(arena_print(f->arena, "%s-wal", f->path));
    unlink(arena_print(f->arena, "%s-shm", f->path));
}

static void foreign_and_damaged_files_are_refused(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    for (int64_t i = 0; i < 2000; i++)
        db_run(db, &f->d, "INSERT INTO item (name, more) VALUES ('some text', ?)", "i", i);
    db_close(db);
    db_fixture_fine(f);
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
    memset(bad + 100, 0xFF, 8); /* in the page of the schema */
    assert_refused(f, bad, n, "store-damaged");
}

/* A log without its store may have the last stored data, so it is kept until a person decides. */
static void a_log_without_its_store_is_kept(void **state)
{
    DbFixture *f = *state;
    static const char *const ending[] = {"-wal", "-journal"};
    for (size_t i = 0; i < 2; i++) {
        const char *log = arena_print(f->arena, "%s%s", f->path, ending[i]);
        command_write_file(log, "pages");
        assert_null(db_fixture_open(f));
        db_fixture_rule(f, "store-damaged");
        assert_string_equal(command_read_file(f->arena, log, NULL), "pages");
        assert_int_not_equal(access(f->path, F_OK), 0);
        unlink(log);
    }
    db_close(db_fixture_open(f));
    db_fixture_fine(f);
}

static void a_path_that_is_no_file_is_refused(void **state)
{
    DbFixture *f = *state;
    assert_int_equal(mkdir(f->path, 0700), 0);
    assert_null(db_fixture_open(f));
    db_fixture_rule(f, "store-open");
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_null(db_fixture_open(f)); /* does not wait for a writer of the pipe */
    db_fixture_rule(f, "store-open");
}

/* Returns the result of `look` for a user who has only the permissions of others. 0: right; 1:
 * wrong; 2: the folders above are closed to others. */
static int seen_by_another(DbFixture *f, mode_t folder_mode, mode_t file_mode,
                           bool (*look)(DbFixture *))
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

static bool one_row_is_read(DbFixture *f)
{
    Db *mine = db_open(f->path, true, db_fixture_schema, 2, &f->d);
    return mine != NULL && db_fixture_count(f, mine, "SELECT count(*) FROM item") == 1;
}

/* A user may be allowed only to read. Then SQLite cannot create its shared memory on a shared
 * disk. */
static void a_store_is_read_where_writing_is_forbidden(void **state)
{
    DbFixture *f = *state;
    Db *db = db_fixture_open(f);
    assert_true(db_run(db, &f->d, "INSERT INTO item (name) VALUES ('seen')", ""));
    db_close(db);
    const int seen = seen_by_another(f, 0555, 0444, one_row_is_read);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
}

static bool writing_is_refused(DbFixture *f)
{
    if (db_fixture_open(f) != NULL || f->d.n_errors != 1) return false;
    const Diagnostic *why = &f->d.items.at[0];
    return strcmp(why->rule, "store-open") == 0 && strstr(why->text, "Permission denied") &&
           why->loc.file != NULL && strcmp(why->loc.file, f->path) == 0 && why->hint != NULL &&
           strstr(why->hint, "--db FILE");
}

/* Writing must be refused when the store is opened, not at the first row, because kernels are
 * measured in between. SQLite itself would open a read-only file, and would write to a file whose
 * folder allows no log.
 */
static void writing_is_refused_at_once(void **state)
{
    DbFixture *f = *state;
    int seen = seen_by_another(f, 0555, 0, writing_is_refused);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
    assert_int_equal(access(f->path, F_OK), -1);
    db_close(db_fixture_open(f));
    assert_int_equal(seen_by_another(f, 0555, 0666, writing_is_refused), 0);
    assert_int_equal(seen_by_another(f, 0777, 0444, writing_is_refused), 0);
    db_close(db_fixture_open(f));
    db_fixture_fine(f);
}

static bool a_row_is_written(DbFixture *f)
{
    Db *mine = db_fixture_open(f);
    return mine != NULL && db_run(mine, &f->d, "INSERT INTO item (name) VALUES ('mine')", "");
}

/* The log must lie beside the store itself, not beside a link to it. */
static void a_store_is_written_through_a_link(void **state)
{
    DbFixture *f = *state;
    const char *sub = arena_print(f->arena, "%s.d", f->path);
    const char *real = arena_print(f->arena, "%s/real.db", sub);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(chmod(sub, 0777), 0);
    db_close(db_open(real, false, db_fixture_schema, 2, &f->d));
    assert_int_equal(symlink("store.db.d/real.db", f->path), 0);
    int seen = seen_by_another(f, 0555, 0666, a_row_is_written);
    if (seen == 2) skip();
    assert_int_equal(seen, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, db_fixture_setup, db_fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(reading_never_creates_a_store),
        TEST(drafts_of_killed_processes_are_removed),
        TEST(memory_stores_are_private),
        TEST(foreign_and_damaged_files_are_refused),
        TEST(a_log_without_its_store_is_kept),
        TEST(a_path_that_is_no_file_is_refused),
        TEST(a_store_is_read_where_writing_is_forbidden),
        TEST(writing_is_refused_at_once),
        TEST(a_store_is_written_through_a_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
