/* A wrapper around SQLite: it prepares statements, begins transactions with BEGIN IMMEDIATE, uses a
 * write-ahead log on local disks, and migrates old files (user_version counts the migrations). It
 * does not know the tables (see store/store.h). A function that fails reports an error with
 * FAULT_store to `d` and returns false or NULL. */
#ifndef TANDEM_STORE_DB_H
#define TANDEM_STORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/diag.h"

typedef struct Db Db;
typedef struct DbStatement DbStatement;

/* "TNDM" in ASCII, in the file's header: the file is a store of Tandem */
enum { DB_APPLICATION_ID = 0x544e444d };

/* Opens the file `path`, or creates it, and runs migrations[user_version] to migrations[n - 1],
 * each in a transaction of its own.
 *
 * - A new file is built under another name and renamed when it is complete. An empty file of this
 *   name is therefore refused as damaged.
 * - Refuses a folder, a damaged file, and a file with another application_id or a newer
 *   user_version. A refused file is not changed. The file's length and header are always checked;
 *   SQLite's quick_check runs on files up to 16 MiB.
 * - On file systems where processes cannot share memory (such as NFS), uses a rollback journal
 *   instead of a write-ahead log, and says so.
 * - read_only: never creates or migrates a file. ":memory:" is a store that only this process sees.
 *
 * Rules: store-open, store-foreign, store-newer, store-older, store-damaged, store-error. */
Db *db_open(const char *path, bool read_only, const char *const *migrations, uint32_t n, Diag *d);
/* Like db_open, but creates the tables of a new file with the SQL statements fresh[0], fresh[1],
 * ..., NULL. They must create the same tables as all `n` migrations. They are faster, because
 * SQLite parses the whole schema again after each ALTER TABLE. */
Db *db_open_fresh(const char *path, bool read_only, const char *const *migrations, uint32_t n,
                  const char *const *fresh, Diag *d);
/* Opens another program's SQLite file for reading, such as a profiler's, whatever its
 * application_id, version or tables are. Returns NULL after reporting store-open or store-error. */
Db *db_open_foreign(const char *path, Diag *d);
void db_close(Db *db); /* `db` may be NULL */

bool db_exec(Db *db, const char *sql, Diag *d); /* `sql` must be a constant, never user input */
/* begins a write transaction, which waits up to 10 s for other writers */
bool db_begin(Db *db, Diag *d);
bool db_commit(Db *db, Diag *d);
void db_rollback(Db *db);

/* Prepares a statement and binds its parameters. `format` has one letter for each parameter, which
 * says the type of the argument. i: int64_t. d: double. s: const char * (NULL binds NULL). b: const
 * void *, size_t. Statements are cached by their text, so a repeated call does not compile the SQL
 * again. Returns NULL on failure. */
DbStatement *db_prepare(Db *db, Diag *d, const char *sql, const char *format, ...);
/* Moves to the next row of the result. Returns true if there is one. Returns false after the last
 * row (the statement is then reset), after a failure that was reported to `d`, or if `st` is NULL.
 */
bool db_step(DbStatement *st, Diag *d);
/* Prepares a statement as db_prepare does, and executes it, ignoring rows. */
bool db_run(Db *db, Diag *d, const char *sql, const char *format, ...);
void db_reset(DbStatement *st);
int64_t db_int(DbStatement *st, int column);
double db_double(DbStatement *st, int column);
/* Returns NULL for the SQL value NULL; the text is valid until the next db_step. */
const char *db_text(DbStatement *st, int column);
const void *db_blob(DbStatement *st, int column, size_t *bytes);
bool db_is_null(DbStatement *st, int column);
int64_t db_last_id(Db *db);
const char *db_file(const Db *db); /* returns the path with which the file was opened */

#endif
