/* A store in a new folder, for tests of the SQLite wrapper. */
#ifndef TANDEM_TESTS_DB_FIXTURE_H
#define TANDEM_TESTS_DB_FIXTURE_H

#include "store/db.h"

typedef struct DbFixture {
    Arena *arena;
    Diag d;
    const char *path; /* the path of a store that does not exist yet */
} DbFixture;

/* Two migrations: the first creates a table `item`, and the second adds a column to it. */
extern const char *const db_fixture_schema[2];

int db_fixture_setup(void **state);
int db_fixture_teardown(void **state);
Db *db_fixture_open(DbFixture *f);
void db_fixture_fine(DbFixture *f); /* asserts that nothing was reported */
/* Asserts that this rule, and no other, was reported. Then clears the diagnostics. */
void db_fixture_rule(DbFixture *f, const char *rule);
int64_t db_fixture_count(DbFixture *f, Db *db, const char *sql);

#endif
