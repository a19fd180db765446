/* Reads SQLite exports of Nsight Systems (`nsys export --type sqlite`). A kernel there has a name
 * and a grid but no operator shapes, so it cannot be matched with a plan's op. Kernels are
 * therefore only counted. NCCL's calls are NVTX ranges. New versions of NCCL also store the bytes
 * and the communicator of a call in its range. The kernels of such calls become collectives with a
 * size. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/import/import.h"
#include "store/db.h"

static const char kernels_query[] =
    "SELECT s.value, k.\"end\" - k.start"
    " FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName";

static bool has_tables(Db *db, Diag *d)
{
    DbStatement *st =
        db_prepare(db, d,
                   "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN "
                   "('CUPTI_ACTIVITY_KIND_KERNEL', 'StringIds')",
                   "");
    bool both = db_step(st, d) && db_int(st, 0) == 2;
    db_reset(st);
    return both;
}

/* Returns the name of a view that stands where nsys writes a table, or NULL. In a hostile file, a
 * view may be a query that never ends. */
static const char *view_in_place_of_table(Db *db, Arena *arena, Diag *d)
{
    DbStatement *st =
        db_prepare(db, d,
                   "SELECT name FROM sqlite_master WHERE type = 'view' AND name IN "
                   "('CUPTI_ACTIVITY_KIND_KERNEL', 'CUPTI_ACTIVITY_KIND_RUNTIME', 'StringIds', "
                   "'NVTX_EVENTS', 'NVTX_PAYLOAD_SCHEMA_ENTRIES') LIMIT 1",
                   "");
    const char *name = db_step(st, d) ? arena_dup(arena, db_text(st, 0)) : NULL;
    db_reset(st);
    return name;
}

static void read_kernels(Db *db, ImportSink *sink, Diag *d)
{
    DbStatement *st = db_prepare(db, d, kernels_query, "");
    while (db_step(st, d)) {
        const char *name = db_text(st, 0);
        int64_t ns = db_int(st, 1);
        sink->events++;
        if (name == NULL || ns <= 0 || ns > INT64_C(1000000000000)) continue;
        if (strncmp(name, "nccl", 4) == 0) {
            sink->n_sizeless++;
            continue;
        }
        sink->n_unused++;
        sink->unused_ps += ns * 1000;
    }
}

/* ---- NCCL ---- */

typedef enum NcclFact { SAID_communicator, SAID_bytes, SAID_ranks, SAID_COUNT } NcclFact;

/* The offset of one field in the payload of a range. */
typedef struct PayloadField {
    int64_t domain, schema;
    size_t offset;
    NcclFact what;
} PayloadField;

typedef struct Communicator {
    uint64_t id, n_ranks;
} Communicator;

typedef struct Ranges {
    Arena *arena;
    ImportSink *sink;
    LIST(PayloadField) fields;
    LIST(Communicator) communicators;
    int64_t thread; /* the thread to which the following values belong */
    /* number of collectives that were called since the last kernel was launched */
    uint32_t n_waiting;
    Collective kind;
    /* said: values that the last range gave; call: values of the last collective */
    uint64_t said[SAID_COUNT], call[SAID_COUNT];
} Ranges;

/* Returns false for exports that lack tables or columns: those of old versions, and of runs without
 * NVTX. */
static bool has_payloads(Db *db, Diag *d)
{
    DbStatement *st = db_prepare(
        db, d,
        "SELECT (SELECT count(*) FROM pragma_table_info('NVTX_EVENTS') WHERE name IN "
        "('start', 'text', 'textId', 'globalTid', 'binaryData')) + "
        "(SELECT count(*) FROM pragma_table_info('NVTX_PAYLOAD_SCHEMA_ENTRIES') WHERE name IN "
        "('domainId', 'schemaId', 'name', 'offset')) + "
        "(SELECT count(*) FROM pragma_table_info('CUPTI_ACTIVITY_KIND_RUNTIME') WHERE name IN "
        "('start', 'globalTid', 'correlationId')) + "
        "(SELECT count(*) FROM pragma_table_info('CUPTI_ACTIVITY_KIND_KERNEL') WHERE name IN "
        "('globalPid', 'correlationId'))",
        "");
    bool all = db_step(st, d) && db_int(st, 0) == 5 + 4 + 3 + 2;
    db_reset(st);
    return all;
}

static void read_fields(Db *db, Ranges *r, Diag *d)
{
    static const char *const names[SAID_COUNT] = {"NCCL communicator ID", "Message size [bytes]",
                                                  "No. of ranks"};
    DbStatement *st = db_prepare(
        db, d, "SELECT DISTINCT domainId, schemaId, name, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "");
    while (db_step(st, d)) {
        const char *name = db_text(st, 2);
        int64_t offset = db_int(st, 3); /* the first field has no offset, which reads as 0 */
        for (NcclFact i = 0; name != NULL && i < SAID_COUNT; i++)
            if (strcmp(name, names[i]) == 0 && offset >= 0 && offset < 4096)
                list_push(r->arena, &r->fields,
                          ((PayloadField){db_int(st, 0), db_int(st, 1), (size_t)offset, i}));
    }
}

static uint64_t little_endian(const unsigned char *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i-- > 0;) value = value << 8 | at[i];
    return value;
}

/* Reads a payload. It has a header of 32 bytes (domain at 0, schema at 8), and then the fields. All
 * fields have 8 bytes except ranks. */
static bool read_payload(Ranges *r, const unsigned char *at, size_t n)
{
    enum { HEADER = 32 };
    memset(r->said, 0, sizeof r->said);
    if (at == NULL || n < HEADER) return false;
    int64_t domain = (int64_t)little_endian(at, 4), schema = (int64_t)little_endian(at + 8, 4);
    for (uint32_t i = 0; i < r->fields.n; i++) {
        const PayloadField *f = &r->fields.at[i];
        size_t bytes = f->what == SAID_ranks ? 4 : 8;
        if (f->domain == domain && f->schema == schema && HEADER + f->offset + bytes <= n)
            r->said[f->what] = little_endian(at + HEADER + f->offset, bytes);
    }
    return r->said[SAID_communicator] != 0;
}

/* Finds the name of a collective in the name of a range, such as "ncclAllGather", or of a kernel,
 * such as "ncclDevKernel_AllGather_RING_LL". Sets `each` if the bytes that a range gives are one
 * rank's part. */
static bool collective_in(const char *name, Collective *kind, bool *each)
{
    static const struct {
        const char *name;
        Collective kind;
        bool each;
    } names[] = {{"AllReduce", COLLECTIVE_all_reduce, false},
                 {"AllGather", COLLECTIVE_all_gather, true},
                 {"ReduceScatter", COLLECTIVE_reduce_scatter, true},
                 {"Broadcast", COLLECTIVE_broadcast, false},
                 {"Reduce", COLLECTIVE_reduce, false}};
    const char *at = strchr(name, '_');
    at = at != NULL ? at + 1 : strncmp(name, "nccl", 4) == 0 ? name + 4 : name;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].name);
        if (strncmp(at, names[i].name, n) != 0 || (at[n] != 0 && at[n] != '_')) continue;
        *kind = names[i].kind;
        *each = names[i].each;
        return true;
    }
    return false;
}

static void on_range(Ranges *r, const char *name)
{
    Communicator c = {r->said[SAID_communicator], r->said[SAID_ranks]};
    if (c.n_ranks >= 2 && c.n_ranks < 1u << 24) list_push(r->arena, &r->communicators, c);
    bool each;
    if (r->said[SAID_bytes] == 0) return;
    memcpy(r->call, r->said, sizeof r->call);
    r->n_waiting++;
    /* several messages may share one kernel; counting such a call twice marks its kernel as
     * unknown */
    if (!collective_in(name, &r->kind, &each)) r->n_waiting++;
}

static uint64_t ranks_of(const Ranges *r)
{
    for (uint32_t i = r->communicators.n; i-- > 0;)
        if (r->communicators.at[i].id == r->call[SAID_communicator])
            return r->communicators.at[i].n_ranks;
    return r->sink->ranks_told;
}

static void on_kernel(Ranges *r, const char *name, int64_t at_ns, int64_t ns)
{
    uint32_t n_calls = r->n_waiting;
    r->n_waiting = 0;
    Collective kind;
    bool each;
    uint64_t ranks = ranks_of(r), bytes = r->call[SAID_bytes];
    bool known = n_calls == 1 && collective_in(name, &kind, &each) && kind == r->kind;
    if (!known || ranks < 2 || bytes >= UINT64_C(1) << 40 || ns <= 0 || ns > INT64_C(1000000000000))
        return;
    const char *group = arena_print(r->arena, "%" PRIx64, r->call[SAID_communicator]);
    meet_add(r->sink, kind, (uint32_t)ranks, each ? bytes * ranks : bytes, group, (double)at_ns,
             ns * 1000);
    r->sink->n_sizeless--;
}

/* Reads the calls and the kernel launches of each thread in order. If there was exactly one call
 * since the last kernel, the kernel belongs to it. If there were several, nobody knows to which of
 * them the kernel belongs. */
static void read_ranges(Db *db, ImportSink *sink, Arena *arena, Diag *d)
{
    Ranges *r = arena_alloc(arena, sizeof *r);
    *r = (Ranges){.arena = arena, .sink = sink};
    read_fields(db, r, d);
    DbStatement *st =
        db_prepare(db, d,
                   "SELECT n.globalTid, n.start, coalesce(n.text, s.value), n.binaryData, 0, 0 "
                   "FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
                   "WHERE n.binaryData IS NOT NULL UNION ALL "
                   "SELECT r.globalTid, r.start, s.value, NULL, k.start, k.\"end\" - k.start "
                   "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName "
                   "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
                   "AND r.globalTid / 16777216 = k.globalPid / 16777216 "
                   "WHERE s.value LIKE 'nccl%' ORDER BY 1, 2",
                   "");
    int64_t process = -1;
    while (db_step(st, d)) {
        int64_t thread = db_int(st, 0);
        const char *name = db_text(st, 2);
        /* the upper bits of a thread's id are its process, and each process is a rank */
        if (thread / 16777216 != process) {
            process = thread / 16777216;
            meet_trace(sink, process);
        }
        if (thread != r->thread) r->n_waiting = 0;
        r->thread = thread;
        size_t n = 0;
        const void *payload = db_is_null(st, 3) ? NULL : db_blob(st, 3, &n);
        if (name == NULL) continue;
        if (db_is_null(st, 3))
            on_kernel(r, name, db_int(st, 4), db_int(st, 5));
        else if (read_payload(r, payload, n))
            on_range(r, name);
    }
}

bool nsys_read(const char *path, ImportSink *sink, Arena *arena, Diag *d)
{
    /* messages of SQLite are about the input file here, not about Tandem's store */
    Diag own = diag_in(arena);
    Db *db = db_open_foreign(path, &own);
    const char *view = db != NULL ? view_in_place_of_table(db, arena, &own) : NULL;
    if (view != NULL) {
        db_close(db);
        return diag_error(d, FAULT_input, "import-syntax", (Loc){path, 0},
                          "%s is a view, but nsys writes a table", view);
    }
    bool tables = db != NULL && has_tables(db, &own);
    if (tables) read_kernels(db, sink, &own);
    if (tables && has_payloads(db, &own)) read_ranges(db, sink, arena, &own);
    db_close(db);
    if (own.n_errors > 0)
        return diag_error(d, FAULT_input, "import-syntax", (Loc){path, 0}, "%s",
                          own.items.at[0].text);
    if (!tables || sink->events == 0)
        return diag_error(d, FAULT_input, "import-format", (Loc){path, 0},
                          "the file is a database, but not an export of nsys with kernels");
    return true;
}
