/* A store in a folder of its own, for tests of the SQLite wrapper. */
#ifndef TANDEM_TESTS_DB_FIXTURE_H
#define TANDEM_TESTS_DB_FIXTURE_H

#include "store/db.h"

typedef struct DbFixture {
    Arena *arena;
    Diag d;
    const char *path; /* of a store that is not there yet */
} DbFixture;

extern const char *const db_fixture_schema[2]; /* migrations: a table `item`, one more column */

int db_fixture_setup(void **state);
int db_fixture_teardown(void **state);
Db *db_fixture_open(DbFixture *f);
void db_fixture_fine(DbFixture *f);                   /* nothing was said */
void db_fixture_rule(DbFixture *f, const char *rule); /* this was, alone; then it is forgotten */
int64_t db_fixture_count(DbFixture *f, Db *db, const char *sql);

#endif
