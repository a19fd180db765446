/* Shared by db.c and db_open.c only. */
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
    Arena *arena; /* the arena also holds this struct */
    sqlite3 *sqlite;
    const char *path;
    DbStatement *statements;
    /* state of reading a foreign file */
    int64_t ops_left; /* steps of SQLite's virtual machine that are still allowed */
    bool limits_heap;
};

/* Releases the resources of the connection other than its arena. */
void db_release(void *self);

/* Adds the SQL functions of db_functions.c to a connection. */
void db_add_functions(sqlite3 *sqlite);

/* Adds SQLite's newest error as a diagnostic: "cannot <doing>: ...". */
void db_fail(Db *db, Diag *d, const char *doing);

#endif
