/* SQL functions that Tandem registers with SQLite, for migrations and for seals (seals.h). */
#include "planner/base/str.h"
#include "store/db_private.h"
#include "store/pack.h"

/* tandem_pack(TEXT): returns the text compressed as in pack.h. A migration uses it to convert a
 * column of texts. */
static void pack_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    /* returns NULL for NULL */
    if (n != 1 || sqlite3_value_type(values[0]) == SQLITE_NULL) return;
    const void *text = sqlite3_value_text(values[0]);
    if (text == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    Arena *arena = arena_new();
    size_t packed = 0;
    const void *bytes = pack_bytes(arena, text, (size_t)sqlite3_value_bytes(values[0]), &packed);
    sqlite3_result_blob64(context, bytes, packed, SQLITE_TRANSIENT);
    arena_free(arena);
}

/* Adds a value to *digest, the hash of all values before it: the new digest is the hash of (old
 * digest, type, length, content). Type and length are included so that ("ab", "c") and ("a", "bc")
 * differ. Returns false if SQLite has no memory for the value's bytes. */
static bool add_value(uint64_t *digest, sqlite3_value *value)
{
    struct {
        uint64_t before, content;
        int64_t type, bytes, integer;
        double real;
    } link = {.before = *digest, .type = sqlite3_value_type(value)};
    const void *bytes = NULL;
    if (link.type == SQLITE_INTEGER) link.integer = sqlite3_value_int64(value);
    if (link.type == SQLITE_FLOAT) link.real = sqlite3_value_double(value);
    if (link.type == SQLITE_TEXT) bytes = sqlite3_value_text(value);
    if (link.type == SQLITE_BLOB) bytes = sqlite3_value_blob(value);
    if (link.type == SQLITE_TEXT || link.type == SQLITE_BLOB) {
        link.bytes = sqlite3_value_bytes(value);
        if (bytes == NULL && (link.bytes > 0 || link.type == SQLITE_TEXT)) return false;
    }
    if (bytes != NULL) {
        link.content = hash_bytes(bytes, (size_t)link.bytes).lo;
    }
    *digest = hash_bytes(&link, sizeof link).lo;
    return true;
}

/* tandem_digest(VALUE, ...): returns a 64-bit hash of the values, which depends on their order. */
static void digest_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    uint64_t digest = 0;
    for (int i = 0; i < n; i++)
        if (!add_value(&digest, values[i])) {
            sqlite3_result_error_nomem(context);
            return;
        }
    sqlite3_result_int64(context, (sqlite3_int64)digest);
}

/* tandem_total(INTEGER): an aggregate function, the sum modulo 2^64. SQLite's own sum() reports an
 * error when it overflows. */
static void total_step(sqlite3_context *context, int n, sqlite3_value **values)
{
    uint64_t *sum = sqlite3_aggregate_context(context, sizeof *sum);
    if (sum == NULL) sqlite3_result_error_nomem(context);
    if (sum != NULL && n == 1) *sum += (uint64_t)sqlite3_value_int64(values[0]);
}

static void total_end(sqlite3_context *context)
{
    const uint64_t *sum = sqlite3_aggregate_context(context, 0);
    sqlite3_result_int64(context, sum != NULL ? (sqlite3_int64)*sum : 0);
}

void db_add_functions(sqlite3 *sqlite)
{
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    sqlite3_create_function_v2(sqlite, "tandem_pack", 1, flags, NULL, pack_function, NULL, NULL,
                               NULL);
    sqlite3_create_function_v2(sqlite, "tandem_digest", -1, flags, NULL, digest_function, NULL,
                               NULL, NULL);
    sqlite3_create_function_v2(sqlite, "tandem_total", 1, flags, NULL, NULL, total_step, total_end,
                               NULL);
}
