/* Declarations that the files of the store share. store.c opens a store and handles measured costs,
 * schema.c has the tables and views, write.c and read.c handle runs. */
#ifndef TANDEM_STORE_PRIVATE_H
#define TANDEM_STORE_PRIVATE_H

#include "store/store.h"

/* The SQL of element i changes the tables of a store from version i to version i + 1. An element
 * never changes once a release contains it; a new version appends an element. */
extern const char *const *const store_migrations;
extern const uint32_t store_n_migrations;

/* A hash is stored as a blob of 16 bytes: the high word, then the low word, each big-endian. In hex
 * these bytes are the plan id that users see. */
enum { STORE_HASH_BYTES = 16 };
void store_hash_bytes(Hash128 h, unsigned char bytes[STORE_HASH_BYTES]);
/* Returns the hash in blob column `column` of the current row, or 0 if the blob is not 16 bytes
 * long. */
Hash128 store_hash_of(DbStatement *st, int column);

/* The statements that create the tables and views of a new store at once, ended by NULL. They give
 * the same schema as all migrations; test_schema_now generates and checks them. */
extern const char *const store_schema_now[];

/* Stores the list of the recipe's scripts, and each script that the store lacks. Sets *list to the
 * hash of the list, its key. Call it inside a transaction. */
bool store_put_scripts(Db *db, const Recipe *recipe, Hash128 *list, Diag *d);

static inline const char *store_kind(RunKind kind)
{
    return kind == RUN_predicted ? "predicted" : "measured";
}

#endif
