/* A wrapper around SQLite. A write-ahead log is used on local disks, transactions begin with BEGIN
 * IMMEDIATE, statements are prepared, and user_version counts migrations. This wrapper does not
 * know the tables (see store/store.h). A function that fails reports FAULT_store through Diag and
 * returns false or NULL. */
#ifndef TANDEM_STORE_DB_H
#define TANDEM_STORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"

typedef struct Db Db;
typedef struct DbStatement DbStatement;

enum { DB_APPLICATION_ID = 0x544e444d }; /* "TNDM" in ASCII, by which a store is recognised */

/* Opens or creates the file `path`, and runs migrations[user_version..n-1], each in a transaction
 * of its own. A new file gets its name only when it is complete, so an empty file with this name is
 * refused as damaged. Refuses a folder, a damaged file, and a file with another application_id or a
 * newer user_version. Always checks length and header. Runs SQLite's quick_check on files up to 16
 * MiB. The bytes of a refused file do not change. On file systems without shared memory (such as
 * NFS), uses the DELETE journal and reports this. With `read_only`, never creates or migrates a
 * file. ":memory:" is a store that only this process sees. Rules: store-open, store-foreign,
 * store-newer, store-older, store-damaged, store-error. */
Db *db_open(const char *path, bool read_only, const char *const *migrations, uint32_t n, Diag *d);
/* Like db_open, but makes the tables of a new file with the statements `fresh`, a list that ends
 * with NULL. They must give the same tables as all `n` migrations. They are faster, because SQLite
 * reads all tables again after each ALTER TABLE. */
Db *db_open_fresh(const char *path, bool read_only, const char *const *migrations, uint32_t n,
                  const char *const *fresh, Diag *d);
/* Opens a database of another program for reading, whatever its id, version or tables are. Returns
 * NULL after reporting store-open or store-error. */
Db *db_open_foreign(const char *path, Diag *d);
void db_close(Db *db); /* `db` may be NULL */

bool db_exec(Db *db, const char *sql, Diag *d); /* `sql` must be a constant, never a user's input */
bool db_begin(Db *db, Diag *d);                 /* begins a transaction with BEGIN IMMEDIATE */
bool db_commit(Db *db, Diag *d);
void db_rollback(Db *db);

/* Prepares a statement and binds the arguments by `format`, which has one letter for each. i:
 * int64_t. d: double. s: const char * (NULL gives NULL). b: const void * and size_t. A statement is
 * prepared only once for each text, unless the first one is still being read. Returns NULL on
 * failure. */
DbStatement *db_prepare(Db *db, Diag *d, const char *sql, const char *format, ...);
/* Moves to the next row. Returns true if there is one. Returns false after the last row (the
 * statement is then reset), after a failure that was reported to `d`, or if `st` is NULL. */
bool db_step(DbStatement *st, Diag *d);
/* Prepares a statement and runs it to its end. */
bool db_run(Db *db, Diag *d, const char *sql, const char *format, ...);
void db_reset(DbStatement *st);
int64_t db_int(DbStatement *st, int column);
double db_double(DbStatement *st, int column);
/* Returns NULL for NULL; the text is valid until the next step. */
const char *db_text(DbStatement *st, int column);
const void *db_blob(DbStatement *st, int column, size_t *bytes);
bool db_is_null(DbStatement *st, int column);
int64_t db_last_id(Db *db);
const char *db_file(const Db *db); /* returns the path with which the file was opened */

#endif
