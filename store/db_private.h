/* The structs of the wrapper, which only db.c, db_open.c and db_functions.c may use. */
#ifndef TANDEM_STORE_DB_PRIVATE_H
#define TANDEM_STORE_DB_PRIVATE_H

#include <sqlite3.h>

#include "store/db.h"

struct DbStatement {
    Db *db;
    sqlite3_stmt *sqlite;
    const char *sql;
    DbStatement *next;
};

struct Db {
    Arena *arena; /* owns this struct and the statements */
    sqlite3 *sqlite;
    const char *path;
    DbStatement *statements;
    /* db_open_foreign: instructions of SQLite's virtual machine that reading may still execute */
    int64_t ops_left;
    bool limits_heap;
};

/* Finalizes all statements and closes the connection of `self`, a Db. Called when db->arena is
 * freed. */
void db_release(void *self);

/* Registers the SQL functions tandem_pack, tandem_digest and tandem_total. */
void db_add_functions(sqlite3 *sqlite);

/* Reports SQLite's last error on this connection as the diagnostic "cannot <doing>: ...". */
void db_fail(Db *db, Diag *d, const char *doing);

#endif
