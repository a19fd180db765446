/* The wrapper around SQLite, except opening files (db_open.c). The result of every SQLite call is
 * checked, and every failure becomes a diagnostic. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/db_private.h"

void db_fail(Db *db, Diag *d, const char *doing)
{
    int code = sqlite3_extended_errcode(db->sqlite);
    bool is_damage = (code & 0xFF) == SQLITE_CORRUPT || (code & 0xFF) == SQLITE_NOTADB;
    const char *message = sqlite3_errmsg(db->sqlite), *kind = sqlite3_errstr(code);
    const bool tells_more = strcmp(message, kind) != 0;
    diag_error(d, FAULT_store, is_damage ? "store-damaged" : "store-error",
               (Loc){.file = arena_dup(d->arena, db->path)}, "cannot %s: %s%s%s%s", doing, message,
               tells_more ? " (" : "", tells_more ? kind : "", tells_more ? ")" : "");
    if ((code & 0xFF) == SQLITE_BUSY)
        diag_hint(d, "another process has used the store for 10 s; try again later");
    if ((code & 0xFF) == SQLITE_FULL) diag_hint(d, "the disk is full, but no stored data was lost");
}

/* Returns the beginning of the SQL statement up to the first "(", ";" or line end, to name the
 * statement in messages without its values: "INSERT INTO run". */
static const char *first_words(const char *sql, char *to, size_t room)
{
    size_t n = strcspn(sql, "(;\n");
    if (n >= room) n = room - 1;
    memcpy(to, sql, n);
    to[n] = 0;
    return to;
}

bool db_exec(Db *db, const char *sql, Diag *d)
{
    char words[48];
    if (sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) == SQLITE_OK) return true;
    db_fail(db, d, first_words(sql, words, sizeof words));
    return false;
}

bool db_begin(Db *db, Diag *d)
{
    return db_exec(db, "BEGIN IMMEDIATE", d);
}

bool db_commit(Db *db, Diag *d)
{
    return db_exec(db, "COMMIT", d);
}

void db_rollback(Db *db)
{
    /* some failures, such as a full disk, make SQLite roll back by itself; then no transaction is
     * open */
    if (sqlite3_get_autocommit(db->sqlite)) return;
    /* a failed ROLLBACK leaves the transaction open. Then no new one can begin, and closing the
     * store rolls back */
    (void)sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
}

void db_release(void *self)
{
    Db *db = self;
    for (DbStatement *st = db->statements; st != NULL; st = st->next) sqlite3_finalize(st->sqlite);
    int code = sqlite3_close(db->sqlite);
    assert(code == SQLITE_OK);
    if (db->limits_heap) sqlite3_hard_heap_limit64(0);
}

void db_close(Db *db)
{
    if (db != NULL) arena_free(db->arena);
}

static DbStatement *statement_of(Db *db, Diag *d, const char *sql)
{
    for (DbStatement *st = db->statements; st != NULL; st = st->next) {
        if (strcmp(st->sql, sql) != 0 || sqlite3_stmt_busy(st->sqlite)) continue;
        sqlite3_clear_bindings(st->sqlite);
        sqlite3_reset(st->sqlite);
        return st;
    }
    /* allocate first: arena_alloc does not return if memory runs out, and a statement prepared
     * before it would never be finalized */
    DbStatement *to = arena_alloc(db->arena, sizeof *to);
    *to = (DbStatement){.db = db, .sql = arena_dup(db->arena, sql)};
    sqlite3_stmt *st = NULL;
    const char *rest = NULL;
    int code = sqlite3_prepare_v3(db->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, &rest);
    if (code != SQLITE_OK) {
        char words[48];
        db_fail(db, d, first_words(sql, words, sizeof words));
        return NULL;
    }
    /* `sql` must contain exactly one statement */
    assert(st != NULL && rest[strspn(rest, " \n\t;")] == 0);
    to->sqlite = st;
    to->next = db->statements;
    db->statements = to;
    return to;
}

static int bind_all(sqlite3_stmt *st, const char *format, va_list *args)
{
    assert(sqlite3_bind_parameter_count(st) == (int)strlen(format));
    int code = SQLITE_OK;
    for (int i = 1; format[i - 1] != 0 && code == SQLITE_OK; i++) {
        const char letter = format[i - 1];
        assert(letter == 'i' || letter == 'd' || letter == 's' || letter == 'b');
        if (letter == 'i') code = sqlite3_bind_int64(st, i, va_arg(*args, int64_t));
        if (letter == 'd') code = sqlite3_bind_double(st, i, va_arg(*args, double));
        if (letter == 's')
            code = sqlite3_bind_text(st, i, va_arg(*args, const char *), -1, SQLITE_TRANSIENT);
        if (letter == 'b') {
            const void *bytes = va_arg(*args, const void *);
            size_t n = va_arg(*args, size_t);
            code = sqlite3_bind_blob64(st, i, bytes, n, SQLITE_TRANSIENT);
        }
    }
    return code;
}

static DbStatement *prepare(Db *db, Diag *d, const char *sql, const char *format, va_list *args)
{
    DbStatement *st = statement_of(db, d, sql);
    if (st == NULL) return NULL;
    if (bind_all(st->sqlite, format, args) == SQLITE_OK) return st;
    db_fail(db, d, "bind a value");
    return NULL;
}

DbStatement *db_prepare(Db *db, Diag *d, const char *sql, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DbStatement *st = prepare(db, d, sql, format, &args);
    va_end(args);
    return st;
}

bool db_step(DbStatement *st, Diag *d)
{
    if (st == NULL) return false;
    int code = sqlite3_step(st->sqlite);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) {
        char words[48];
        db_fail(st->db, d, first_words(st->sql, words, sizeof words));
    }
    sqlite3_reset(st->sqlite);
    return false;
}

bool db_run(Db *db, Diag *d, const char *sql, const char *format, ...)
{
    uint32_t n_before = d->n_errors;
    va_list args;
    va_start(args, format);
    DbStatement *st = prepare(db, d, sql, format, &args);
    va_end(args);
    while (db_step(st, d)) continue;
    return d->n_errors == n_before;
}

void db_reset(DbStatement *st)
{
    if (st != NULL) sqlite3_reset(st->sqlite);
}

static bool has_column(DbStatement *st, int column)
{
    return column >= 0 && column < sqlite3_data_count(st->sqlite);
}

int64_t db_int(DbStatement *st, int column)
{
    assert(has_column(st, column));
    return sqlite3_column_int64(st->sqlite, column);
}

double db_double(DbStatement *st, int column)
{
    assert(has_column(st, column));
    return sqlite3_column_double(st->sqlite, column);
}

const char *db_text(DbStatement *st, int column)
{
    assert(has_column(st, column));
    /* sqlite3_column_text returns NULL for the SQL value NULL, but also if memory runs out */
    const bool is_null = db_is_null(st, column);
    const char *text = (const char *)sqlite3_column_text(st->sqlite, column);
    if (text == NULL && !is_null) arena_full();
    return text;
}

const void *db_blob(DbStatement *st, int column, size_t *bytes)
{
    assert(has_column(st, column));
    /* read the size first: with a size above 0, a NULL blob means that memory ran out */
    *bytes = (size_t)sqlite3_column_bytes(st->sqlite, column);
    const void *blob = sqlite3_column_blob(st->sqlite, column);
    if (blob == NULL && *bytes > 0) arena_full();
    return blob;
}

bool db_is_null(DbStatement *st, int column)
{
    assert(has_column(st, column));
    return sqlite3_column_type(st->sqlite, column) == SQLITE_NULL;
}

int64_t db_last_id(Db *db)
{
    return sqlite3_last_insert_rowid(db->sqlite);
}

const char *db_file(const Db *db)
{
    return db->path;
}
