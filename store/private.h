/* Declarations that the files of the store share: store.c (opening, measured costs), schema.c
 * (tables and views), write.c and read.c (runs). */
#ifndef TANDEM_STORE_PRIVATE_H
#define TANDEM_STORE_PRIVATE_H

#include "store/store.h"

/* Element i is SQL that brings a store from version i to i + 1. Published elements never change;
 * new ones are appended. */
extern const char *const *const store_migrations;
extern const uint32_t store_n_migrations;

/* A hash is stored as a blob of 16 bytes, with the high word first, big-endian. Users see it as the
 * hex digits of an id. */
enum { STORE_HASH_BYTES = 16 };
void store_hash_bytes(Hash128 h, unsigned char bytes[STORE_HASH_BYTES]);
/* Reads a hash from a blob. Returns 0 if the blob is not a hash. */
Hash128 store_hash_of(DbStatement *st, int column);

/* Statements that make the tables of a new store as all migrations together make them. NULL ends
 * the list. test_schema_now writes and checks this list. */
extern const char *const store_schema_now[];

/* Stores the list of a recipe's scripts, and each script that the store lacks. Sets *list to the
 * list's key. Call it inside a transaction. */
bool store_put_scripts(Db *db, const Recipe *recipe, Hash128 *list, Diag *d);

static inline const char *store_kind(RunKind kind)
{
    return kind == RUN_predicted ? "predicted" : "measured";
}

#endif
