/* A wrapper of SQLite: WAL on local disks, BEGIN IMMEDIATE, prepared statements, application_id,
 * migrations by user_version. It knows nothing of the schema (store/store.h does). Every function
 * that can fail reports through Diag with FAULT_store and returns false/NULL. */
#ifndef TANDEM_STORE_DB_H
#define TANDEM_STORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"

typedef struct Db Db;
typedef struct DbStatement DbStatement;

enum { DB_APPLICATION_ID = 0x544e444d }; /* "TNDM" */

/* Opens or creates `path`; runs migrations[user_version..n-1], each in one transaction. A new file
 * appears under its name only when it is complete, so an existing empty file is refused as damaged.
 * Refuses another application_id, a newer user_version, a damaged file (length and header always,
 * quick_check up to 16 MiB) and a directory. The bytes of a refused file stay untouched. On file
 * systems without shared memory (such as NFS) it uses the DELETE journal and reports that.
 * `read_only` never creates and never migrates. ":memory:" is a store that only this process sees.
 * Rules: store-open, store-foreign, store-newer, store-older, store-damaged, store-error. */
Db *db_open(const char *path, bool read_only, const char *const *migrations, uint32_t n, Diag *d);
/* Does the same, but makes the tables of a new file with the statements `fresh`, up to NULL.
 * They must have the result of all `n` migrations. SQLite reads all tables again after each ALTER
 * TABLE, so migrations take longer. */
Db *db_open_fresh(const char *path, bool read_only, const char *const *migrations, uint32_t n,
                  const char *const *fresh, Diag *d);
/* Opens another program's database for reading, whatever its id, version or schema. Returns NULL
 * after reporting store-open or store-error. */
Db *db_open_foreign(const char *path, Diag *d);
void db_close(Db *db); /* NULL is fine */

bool db_exec(Db *db, const char *sql, Diag *d); /* fixed SQL text only, never user input */
bool db_begin(Db *db, Diag *d);                 /* BEGIN IMMEDIATE */
bool db_commit(Db *db, Diag *d);
void db_rollback(Db *db);

/* Binds arguments by format, one letter each: i int64_t, d double, s const char * (NULL is
 * NULL), b const void * + size_t. Prepared statements are kept by their text. If the kept statement
 * is still being read, prepares the text a second time. Returns NULL on failure. */
DbStatement *db_prepare(Db *db, Diag *d, const char *sql, const char *format, ...);
/* Steps the statement; true if there is a row. Returns false at the end (the statement then resets
 * itself), after a failure reported to `d`, or if `st` is NULL. */
bool db_step(DbStatement *st, Diag *d);
/* prepares a statement and steps it to its end */
bool db_run(Db *db, Diag *d, const char *sql, const char *format, ...);
void db_reset(DbStatement *st);
int64_t db_int(DbStatement *st, int column);
double db_double(DbStatement *st, int column);
const char *db_text(DbStatement *st, int column); /* valid until the next step; NULL for NULL */
const void *db_blob(DbStatement *st, int column, size_t *bytes);
bool db_is_null(DbStatement *st, int column);
int64_t db_last_id(Db *db);
const char *db_file(const Db *db); /* the path, as it was opened */

#endif
