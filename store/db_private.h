/* Declarations that only db.c, db_open.c and db_functions.c share. */
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
    Arena *arena; /* also contains this struct */
    sqlite3 *sqlite;
    const char *path;
    DbStatement *statements;
    /* state while another program's file is read */
    int64_t ops_left; /* steps of SQLite's virtual machine that reading may still take */
    bool limits_heap;
};

/* Releases everything that the connection has, except its arena. */
void db_release(void *self);

/* Adds the SQL functions of db_functions.c to a connection. */
void db_add_functions(sqlite3 *sqlite);

/* Reports SQLite's newest error as a diagnostic: "cannot <doing>: ...". */
void db_fail(Db *db, Diag *d, const char *doing);

#endif
