/* Shared by the store's files: store.c (opening, measured costs), schema.c (tables and views),
 * write.c and read.c (runs). */
#ifndef TANDEM_STORE_PRIVATE_H
#define TANDEM_STORE_PRIVATE_H

#include "store/store.h"

/* SQL that brings a store from version i to i + 1. Published migrations never change; new
 * migrations are appended. */
extern const char *const *const store_migrations;
extern const uint32_t store_n_migrations;

/* Hashes are blobs of 16 bytes, high word first, big-endian. Users see them as hex digits: the
 * ids. */
enum { STORE_HASH_BYTES = 16 };
void store_hash_bytes(Hash128 h, unsigned char bytes[STORE_HASH_BYTES]);

Hash128 store_hash_of(DbStatement *st,
                      int column); /* reads a hash from a blob; 0 if the blob is not a hash */

/* The statements, up to NULL, that make the tables of a new store as all migrations make them.
 * test_schema_now writes and checks them. */
extern const char *const store_schema_now[];

/* Stores the list of a recipe's scripts, and the scripts that the store lacks; call it inside a
 * transaction. */
bool store_put_scripts(Db *db, const Recipe *recipe, Hash128 *list, Diag *d);

static inline const char *store_kind(RunKind kind)
{
    return kind == RUN_predicted ? "predicted" : "measured";
}

#endif
