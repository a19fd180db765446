/* Opens the store, and reads and writes measured costs of kernels and collectives. write.c and
 * read.c handle runs. */
#include "store/store.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "store/private.h"
#include "store/seals.h"

struct Store {
    Db *db;
    Arena *arena;
};

static Store *store_of(Db *db)
{
    Arena *arena = arena_new();
    Store *store = arena_alloc(arena, sizeof *store);
    *store = (Store){db, arena};
    return store;
}

Store *store_open(const char *path, bool read_only, Diag *d)
{
    Db *db =
        db_open_fresh(path, read_only, store_migrations, store_n_migrations, store_schema_now, d);
    if (!db) return NULL;
    if (!tables_are_no_views(db, d) || (!read_only && !seal_rows(db, d))) {
        db_close(db);
        return NULL;
    }
    return store_of(db);
}

Store *store_open_brief(const char *path, Diag *d)
{
    Db *db = db_open_fresh(path, false, store_migrations, store_n_migrations, store_schema_now, d);
    if (db != NULL && tables_are_no_views(db, d)) return store_of(db);
    db_close(db);
    return NULL;
}

bool store_ready(const char *path, Diag *d)
{
    Store *store = store_open_brief(path, d);
    store_close(store);
    return store != NULL;
}

void store_close(Store *store)
{
    if (!store) return;
    db_close(store->db);
    arena_free(store->arena);
}

Db *store_db(Store *store)
{
    return store->db;
}

void store_hash_bytes(Hash128 h, unsigned char bytes[STORE_HASH_BYTES])
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(h.hi >> (56 - 8 * i));
        bytes[8 + i] = (unsigned char)(h.lo >> (56 - 8 * i));
    }
}

bool store_put_kernel(Store *store, const char *machine, const char *key, Ps median_ps,
                      double spread, uint32_t n, Diag *d)
{
    return db_run(store->db, d,
                  "INSERT INTO kernel_cost(machine, key, median_ps, spread, n, made_at) "
                  "VALUES(?,?,?,?,?,unixepoch()) "
                  "ON CONFLICT DO UPDATE SET median_ps = excluded.median_ps, "
                  "spread = excluded.spread, n = excluded.n, made_at = excluded.made_at",
                  "ssidi", machine, key, (int64_t)median_ps, spread, (int64_t)n);
}

Ps store_get_kernel(Store *store, const char *machine, const char *key, Diag *d)
{
    DbStatement *st =
        db_prepare(store->db, d,
                   "SELECT median_ps, " INTACT(
                       SEALED_kernel_cost) " FROM kernel_cost WHERE machine = ? AND key = ?",
                   "ss", machine, key);
    Ps ps = -1;
    if (db_step(st, d) && seal_intact(st, 1, "kernel_cost", key, d)) ps = db_int(st, 0);
    db_reset(st);
    return ps;
}

bool store_put_choice(Store *store, const char *device, const char *call, const void *choice,
                      size_t bytes, Ps median_ps, Diag *d)
{
    return db_run(store->db, d,
                  "INSERT INTO product_choice(device, call, choice, median_ps) VALUES(?,?,?,?) "
                  "ON CONFLICT DO UPDATE SET choice = excluded.choice, "
                  "median_ps = excluded.median_ps",
                  "ssbi", device, call, choice, bytes, (int64_t)median_ps);
}

bool store_get_choice(Store *store, const char *device, const char *call, void *choice,
                      size_t bytes, Diag *d)
{
    DbStatement *st =
        db_prepare(store->db, d,
                   "SELECT choice, " INTACT(
                       SEALED_product_choice) " FROM product_choice WHERE device = ? AND call = ?",
                   "ss", device, call);
    size_t n = 0;
    const void *kept = NULL;
    if (db_step(st, d) && seal_intact(st, 1, "product_choice", call, d)) kept = db_blob(st, 0, &n);
    bool found = kept != NULL && n == bytes;
    if (found) memcpy(choice, kept, bytes);
    db_reset(st);
    return found;
}

bool store_put_collective(Store *store, const char *machine, const char *backend, OpKind op,
                          uint32_t n_ranks, uint64_t bytes, Ps median_ps, Diag *d)
{
    return db_run(
        store->db, d,
        "INSERT INTO collective_cost(machine, backend, op, n_ranks, bytes, median_ps, made_at) "
        "VALUES(?,?,?,?,?,?,unixepoch()) "
        "ON CONFLICT DO UPDATE SET median_ps = excluded.median_ps, "
        "made_at = excluded.made_at",
        "sssiii", machine, backend, op_info(op)->name, (int64_t)n_ranks, (int64_t)bytes,
        (int64_t)median_ps);
}

typedef struct CostPoint {
    double bytes, ps;
} CostPoint;

/* Finds the measured size nearest to `bytes`. below: the largest size that is at most `bytes`;
 * otherwise the smallest size that is at least `bytes`. Returns false if there is none. */
static bool neighbour(Store *store, bool below, const char *machine, const char *backend, OpKind op,
                      uint32_t n_ranks, uint64_t bytes, CostPoint *out, Diag *d)
{
#define KNOWN                                                                                      \
    "SELECT bytes, median_ps, " INTACT(SEALED_collective_cost) " FROM collective_cost WHERE "      \
                                                               "machine = ? AND backend = ? AND "  \
                                                               "op = ? AND n_ranks = ? AND bytes "
    const char *sql =
        below ? KNOWN "<= ? ORDER BY bytes DESC LIMIT 1" : KNOWN ">= ? ORDER BY bytes LIMIT 1";
#undef KNOWN
    DbStatement *st = db_prepare(store->db, d, sql, "sssii", machine, backend, op_info(op)->name,
                                 (int64_t)n_ranks, (int64_t)bytes);
    bool found = db_step(st, d) && seal_intact(st, 2, "collective_cost", op_info(op)->name, d);
    if (found) *out = (CostPoint){(double)db_int(st, 0), (double)db_int(st, 1)};
    db_reset(st);
    return found;
}

/* Between two measured sizes, time = a * bytes^p through both. This is exact where latency
 * dominates (p = 0) and where bandwidth does (p = 1). */
Ps store_get_collective(Store *store, const char *machine, const char *backend, OpKind op,
                        uint32_t n_ranks, uint64_t bytes, Diag *d)
{
    CostPoint low, high;
    bool below = neighbour(store, true, machine, backend, op, n_ranks, bytes, &low, d);
    bool above = neighbour(store, false, machine, backend, op, n_ranks, bytes, &high, d);
    if (!below && !above) return -1;
    if (!below) return (Ps)high.ps;
    if (!above) return low.bytes > 0 ? (Ps)llround(low.ps * (double)bytes / low.bytes) : (Ps)low.ps;
    if (high.bytes <= low.bytes) return (Ps)low.ps;
    if (low.bytes <= 0 || low.ps <= 0 || high.ps <= 0) {
        double part = ((double)bytes - low.bytes) / (high.bytes - low.bytes);
        return (Ps)llround(low.ps + (high.ps - low.ps) * part);
    }
    double part = log((double)bytes / low.bytes) / log(high.bytes / low.bytes);
    return (Ps)llround(low.ps * pow(high.ps / low.ps, part));
}
