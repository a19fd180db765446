/* tandem import reads files of nccl-tests, PyTorch's profiler and nsys. Damaged files must give an
 * error or fewer rows, and a long trace must not need much memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "cli/import/import.h"
#include "planner/base/rng.h"
#include "store/db.h"
#include "tests/support/command.h"
#include "tests/support/slowest.h"

static Slowest slowest; /* the slowest import among damaged and foreign files */

static void in_time(const char *name, double cpu_s)
{
    if (!slowest_note(&slowest, name, cpu_s))
        fail_msg("%s takes %g s of processor time", name, cpu_s);
}

typedef struct Draws {
    uint64_t seed, n;
} Draws;

static size_t draw(Draws *draws, size_t below)
{
    return (size_t)rng_below(draws->seed, 0, draws->n++, below);
}

static const char all_reduce[] =
    "# nThread 1 nGpus 4 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  77 on host device  0 [0x07] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid  77 on host device  1 [0x0f] NVIDIA H100 80GB HBM3\n"
    "#  Rank  2 Group  0 Pid  77 on host device  2 [0x47] NVIDIA H100 80GB HBM3\n"
    "#  Rank  3 Group  0 Pid  77 on host device  3 [0x4e] NVIDIA H100 80GB HBM3\n"
    "#\n"
    "#                                                   out-of-place           in-place\n"
    "#   size    count   type   redop  root   time   algbw   busbw #wrong   time  algbw  busbw "
    "#wrong\n"
    "#    (B) (elements)                       (us)  (GB/s)  (GB/s)          (us) (GB/s) (GB/s)\n"
    "host:77:90 [0] NCCL INFO comm 0x55 rank 0\n"
    "       8        2  float     sum    -1  10.50    0.00    0.00      0   9.75   0.00   0.00     "
    " "
    "0\n"
    " 1048576   262144  float     sum    -1  25.00   41.94   62.91      0    N/A   0.00   0.00    "
    "N/A\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 31.4\n";

static void text_of_nccl_tests_is_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/ar.txt", command_new_folder(arena));
    command_write_file(path, all_reduce);
    Diag d = diag_in(arena);
    NcclTestText text;
    assert_true(nccl_tests_read(path, arena, &text, &d));
    assert_int_equal(text.n_ranks, 4);
    assert_false(text.known);
    assert_int_equal(text.rows.n, 2);
    assert_int_equal(text.rows.at[1].bytes, 1048576);
    assert_string_equal(text.rows.at[0].type, "float");
    assert_true(text.rows.at[0].us == 10.5 && text.rows.at[0].in_place_us == 9.75);
    assert_true(text.rows.at[1].us == 25 && text.rows.at[1].in_place_us == 0);
    /* A command line, if there is one, names the collective. */
    command_write_file(path, arena_print(arena, "$ ./build/all_reduce_perf -b 8\n%s", all_reduce));
    assert_true(nccl_tests_read(path, arena, &text, &d));
    assert_true(text.known);
    assert_int_equal(text.kind, COLLECTIVE_all_reduce);
    command_write_file(
        path, arena_print(arena, "# Collective test starting: reduce_perf\n%s", all_reduce));
    assert_true(nccl_tests_read(path, arena, &text, &d));
    assert_int_equal(text.kind, COLLECTIVE_reduce);
    arena_free(arena);
}

static void damaged_text_is_refused_or_gives_fewer_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/ar.txt", command_new_folder(arena));
    Draws rng = {7, 0};
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 600; i++) {
        char bytes[sizeof all_reduce];
        memcpy(bytes, all_reduce, sizeof all_reduce);
        if (i % 2 == 0)
            bytes[draw(&rng, sizeof all_reduce - 1)] = 0; /* a zero byte ends the text here */
        else
            bytes[draw(&rng, sizeof all_reduce - 1)] = (char)(1 + draw(&rng, 255));
        command_write_file(path, bytes);
        Arena *own = arena_new();
        Diag d = diag_in(own);
        NcclTestText text;
        const double before_s = slowest_own_s();
        bool fine = nccl_tests_read(path, own, &text, &d);
        in_time("damaged text of nccl-tests", slowest_own_s() - before_s);
        assert_int_equal(d.n_errors, fine ? 0 : 1);
        refused += !fine;
        for (uint32_t k = 0; fine && k < text.rows.n; k++)
            assert_true(text.rows.at[k].us >= 0 && text.rows.at[k].bytes < UINT64_C(1) << 60);
        arena_free(own);
    }
    assert_true(refused > 100);
    assert_true(refused < 600);
    Diag d = diag_in(arena);
    NcclTestText text;
    command_write_file(path, arena_print(arena, "%s 1 2 3\n", all_reduce));
    assert_false(nccl_tests_read(path, arena, &text, &d));
    assert_string_equal(d.items.at[0].rule, "import-syntax");
    assert_int_equal(d.items.at[0].loc.line, 16);
    arena_free(arena);
}

static const char trace[] =
    "{\"schemaVersion\": 1, \"distributedInfo\": {\"rank\": 0}, \"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"ts\": 1, \"dur\": 40,"
    " \"args\": {\"External id\": 5, \"Input Dims\": [[4, 8], [8, 2]],"
    " \"Input type\": [\"float\", \"float\"]}},\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"ts\": 5, \"dur\": 40,"
    " \"args\": {\"External id\": 6, \"Input Dims\": [[4, 8], [8, 2]],"
    " \"Input type\": [\"float\", \"float\"]}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"ts\": 2, \"dur\": 12.5,"
    " \"args\": {\"External id\": 5, \"grid\": [4, 2, 1], \"block\": [128, 1, 1], \"device\": "
    "0}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"ts\": 9, \"dur\": 13.5,"
    " \"args\": {\"External id\": 6, \"grid\": [4, 2, 1], \"block\": [128, 1, 1], \"device\": "
    "0}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllGather_RING_LL\", \"ts\": 9,"
    " \"dur\": 30, \"args\": {\"Collective name\": \"_allgather_base\", \"dtype\": \"BFloat16\","
    " \"In msg nelems\": 1024, \"Out msg nelems\": 8192, \"Group size\": 8}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclKernel_no_arguments\", \"dur\": 9},\n"
    "{\"ph\": \"i\", \"cat\": \"kernel\", \"name\": \"instant\", \"dur\": 9}\n"
    "], \"traceName\": \"x\"}\n";

static ImportSink *sink_new(Arena *arena)
{
    ImportSink *sink = arena_alloc(arena, sizeof *sink);
    sink_init(sink, arena);
    return sink;
}

static void a_trace_of_pytorch_is_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/t.json", command_new_folder(arena));
    command_write_file(path, trace);
    Diag d = diag_in(arena);
    ImportSink *sink = sink_new(arena);
    assert_true(chrome_trace_read(path, sink, &d));
    meet_all(sink);
    assert_int_equal(sink->events, 4);
    assert_int_equal(sink->n_used, 2);
    assert_int_equal(sink->n_unused, 0);
    assert_int_equal(sink->n_sizeless, 1);
    assert_int_equal(sink->all.n, 2);
    const Samples *gemm = sink->all.at[0], *gather = sink->all.at[1];
    assert_string_equal(gemm->key, "work product f32 batch=1 sides=4x2 k=8");
    assert_int_equal(gemm->n, 2);
    assert_int_equal(samples_median(gemm), 13000000);
    assert_null(gather->key);
    assert_int_equal(gather->kind, COLLECTIVE_all_gather);
    assert_int_equal(gather->n_ranks, 8);
    assert_int_equal(gather->bytes, 16384);
    assert_true(gather->alone);
    assert_int_equal(samples_time(gather), 30000000);
    /* A file that breaks off is read up to its end. A file that is no trace is refused. */
    command_write_file(path,
                       arena_copy(arena, trace, (size_t)(strstr(trace, "{\"ph\": \"i\"") - trace)));
    sink = sink_new(arena);
    assert_true(chrome_trace_read(path, sink, &d));
    assert_int_equal(sink->events, 4);
    assert_string_equal(d.items.at[0].rule, "import-cut-off");
    command_write_file(path, "{\"a\": []}");
    assert_false(chrome_trace_read(path, sink_new(arena), &d));
    assert_string_equal(d.items.at[1].rule, "import-format");
    arena_free(arena);
}

static void damaged_traces_do_no_harm(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/t.json", command_new_folder(arena));
    Draws rng = {11, 0};
    for (uint32_t i = 0; i < 300; i++) {
        char bytes[sizeof trace];
        memcpy(bytes, trace, sizeof trace);
        for (uint32_t k = 0; k < 3; k++)
            bytes[draw(&rng, sizeof trace - 1)] = (char)(1 + draw(&rng, 255));
        command_write_file(path, bytes);
        Arena *own = arena_new();
        Diag d = diag_in(own);
        ImportSink *sink = sink_new(own);
        const double before_s = slowest_own_s();
        bool fine = chrome_trace_read(path, sink, &d);
        in_time("a damaged trace", slowest_own_s() - before_s);
        assert_int_equal(d.n_errors, fine ? 0 : 1);
        meet_all(sink);
        for (uint32_t k = 0; k < sink->all.n; k++)
            assert_true(sink->all.at[k]->n == 0 || samples_time(sink->all.at[k]) > 0);
        arena_free(own);
    }
    arena_free(arena);
}

/* The tables of an export that the importer reads. */
static const char nsys_tables[] =
    "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, \"end\" INTEGER, gridX INTEGER,"
    " gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,"
    " demangledName INTEGER, shortName INTEGER);"
    "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce');"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 12600, 4, 2, 1, 128, 1, 1, 1, 1),"
    " (20000, 33500, 4, 2, 1, 128, 1, 1, 1, 1), (5, 9, 1, 1, 1, 1, 1, 1, 2, 2),"
    " (50, 40, 1, 1, 1, 1, 1, 1, 1, 1);";

static void an_export_of_nsys_is_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/n.sqlite", command_new_folder(arena));
    const char *const migrations[] = {nsys_tables};
    Diag made = diag_in(arena);
    Db *db = db_open(path, false, migrations, 1, &made);
    assert_non_null(db);
    db_close(db);
    Diag d = diag_in(arena);
    ImportSink *sink = sink_new(arena);
    assert_true(nsys_read(path, sink, arena, &d));
    assert_int_equal(sink->events, 4);
    assert_int_equal(sink->all.n, 0);
    assert_int_equal(sink->n_unused, 2);
    assert_int_equal(sink->n_sizeless, 1);
    CommandResult r = COMMAND(arena, 60, "import", path, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "left out    2 kernels, 100 % of their time: nsys records no"));
    assert_non_null(strstr(r.out, "use         this import changes no prediction"));
    /* A file that is cut in the middle, or has changed bytes, gives an error or fewer rows. */
    size_t n = 0;
    const char *bytes = command_read_file(arena, path, &n);
    Draws rng = {3, 0};
    for (uint32_t i = 0; i < 60; i++) {
        char *copy = arena_copy(arena, bytes, n);
        for (uint32_t k = 0; k < 20; k++) copy[100 + draw(&rng, n - 100)] ^= 0x55;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        size_t length = i % 3 == 0 ? draw(&rng, n) : n;
        assert_int_equal(fwrite(copy, 1, length, file), length);
        fclose(file);
        Diag own = diag_in(arena);
        bool fine = nsys_read(path, sink_new(arena), arena, &own);
        assert_int_equal(own.n_errors, fine ? 0 : 1);
    }
    arena_free(arena);
}

/* Returns a payload of NCCL's domain, 3, as an export stores it. The ranks' number follows the
 * communicator. */
static const char *payload(Arena *arena, uint32_t schema, uint64_t communicator, uint64_t second)
{
    unsigned char bytes[48] = {3};
    bytes[8] = (unsigned char)schema;
    for (int i = 0; i < 8; i++) bytes[32 + i] = (unsigned char)(communicator >> 8 * i);
    for (int i = 0; i < 8; i++) bytes[40 + i] = (unsigned char)(second >> 8 * i);
    Str s = str_in(arena);
    for (int i = 0; i < 48; i++) str_print(&s, "%02x", bytes[i]);
    return str_text(&s);
}

/* Process 7 calls an all-gather, two collectives in a group, a message and an all-reduce. Process 8
 * calls the first all-gather, and waits less for it. */
static const char *calls_of_nccl(Arena *arena)
{
    const char *init = payload(arena, 1, 77, 4), *gather = payload(arena, 2, 77, 1 << 20);
    const char *reduce = payload(arena, 2, 77, 4096), *group = payload(arena, 4, 77, 0);
    const int64_t first = INT64_C(7) * 16777216, second = INT64_C(8) * 16777216;
    Str s = str_in(arena);
    str_add(
        &s,
        "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, \"end\" INTEGER, demangledName "
        "INTEGER, globalPid INTEGER, correlationId INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, globalTid INTEGER, "
        "correlationId INTEGER);"
        "CREATE TABLE NVTX_EVENTS(start INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, "
        "binaryData BLOB);"
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES(domainId INTEGER, schemaId INTEGER, idx "
        "INTEGER, name TEXT, offset INTEGER);"
        "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (3,1,0,'NCCL communicator ID',NULL),"
        "(3,1,1,'No. of ranks',8),(3,2,0,'NCCL communicator ID',NULL),"
        "(3,2,1,'Message size [bytes]',8),(3,4,0,'NCCL communicator ID',NULL);"
        "INSERT INTO StringIds VALUES (1,'ncclDevKernel_AllGather_RING_LL'),"
        "(2,'ncclDevKernel_AllReduce_Sum_f32_RING_LL'),(3,'ncclAllGather'),(4,'ncclAllReduce'),"
        "(5,'ncclSend'),(6,'ncclDevKernel_SendRecv'),(7,'ncclCommInitRank'),(8,'ncclGroupEnd');");
    const struct {
        int64_t at, process;
        int kind; /* 'r': a range with this name and payload; 'k': a kernel of that many us */
        int name, us;
        const char *payload;
    } events[] = {{1, first, 'r', 7, 0, init},     {10, first, 'r', 3, 0, gather},
                  {11, first, 'r', 8, 0, group},   {12, first, 'k', 1, 90, NULL},
                  {20, first, 'r', 3, 0, gather},  {21, first, 'r', 3, 0, gather},
                  {22, first, 'k', 1, 500, NULL},  {30, first, 'r', 5, 0, gather},
                  {31, first, 'k', 6, 500, NULL},  {40, first, 'r', 4, 0, reduce},
                  {41, first, 'k', 2, 30, NULL},   {50, first, 'k', 2, 30, NULL},
                  {10, second, 'r', 3, 0, gather}, {13, second, 'k', 1, 60, NULL}};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        long long at = events[i].at, process = events[i].process;
        if (events[i].kind == 'r')
            str_print(&s, "INSERT INTO NVTX_EVENTS VALUES (%lld,NULL,%d,%lld,X'%s');", at,
                      events[i].name, process + 5, events[i].payload);
        else
            str_print(&s,
                      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%lld,%lld,%zu);"
                      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%lld,%lld,%d,%lld,%zu);",
                      at, process + 5, i, 1000 * at, 1000 * (at + events[i].us), events[i].name,
                      process, i);
    }
    return str_text(&s);
}

/* A file may hold any schema. A view in place of a table could be a query without end, so it is
 * refused before it is read. */
static void a_schema_that_never_ends_is_refused(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, \"end\" INTEGER, demangledName "
        "INTEGER, globalPid INTEGER, correlationId INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, globalTid INTEGER, "
        "correlationId INTEGER);"
        "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES(domainId INTEGER, schemaId INTEGER, idx "
        "INTEGER, name TEXT, offset INTEGER);"
        "CREATE VIEW NVTX_EVENTS(start, text, textId, globalTid, binaryData) AS WITH RECURSIVE "
        "n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'x', 1, i, x'00' FROM n;",
    };
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/v.sqlite", command_new_folder(arena));
    Diag d = diag_in(arena);
    Db *db = db_open(path, false, endless, 1, &d);
    assert_non_null(db);
    db_close(db);
    CommandResult r = COMMAND(arena, 60, "import", path, "--dry-run");
    in_time("a view without end", r.cpu_s);
    assert_int_equal(r.exit_code, 3);
    if (!strstr(r.err, "import-syntax") || !strstr(r.err, "NVTX_EVENTS is a view"))
        fail_msg("%s", r.err);
    arena_free(arena);
}

static void payloads_of_nccl_give_collectives(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/n.sqlite", command_new_folder(arena));
    const char *const migrations[] = {calls_of_nccl(arena)};
    Diag d = diag_in(arena);
    Db *db = db_open(path, false, migrations, 1, &d);
    assert_non_null(db);
    db_close(db);
    ImportSink *sink = sink_new(arena);
    assert_true(nsys_read(path, sink, arena, &d));
    meet_all(sink);
    assert_int_equal(sink->events, 6);
    /* These are the kernels of the group and of the message, and a kernel without a call. */
    assert_int_equal(sink->n_sizeless, 3);
    assert_int_equal(sink->all.n, 2);
    const Samples *gather = sink->all.at[0], *reduce = sink->all.at[1];
    assert_int_equal(gather->kind, COLLECTIVE_all_gather);
    assert_int_equal(gather->n_ranks, 4);
    assert_int_equal(gather->bytes, 4 << 20); /* bytes of all ranks */
    assert_false(gather->alone);
    assert_int_equal(samples_time(gather), 60000000);
    assert_int_equal(reduce->kind, COLLECTIVE_all_reduce);
    assert_int_equal(reduce->bytes, 4096);
    assert_true(reduce->alone);
    assert_int_equal(samples_time(reduce), 30000000);
    CommandResult r = COMMAND(arena, 60, "import", path, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "would store 0 kernels and 2 collectives"));
    assert_non_null(strstr(r.out, "left out    3 collectives"));
    arena_free(arena);
}

/* A reservoir keeps a sample of many values. Its median must stay in the middle. */
static void a_sample_of_many_values_keeps_their_median(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    ImportSink *sink = sink_new(arena);
    for (uint32_t i = 0; i < 100000; i++) sink_kernel(sink, "k", 1000 + (i * 7919) % 1001);
    const Samples *s = sink->all.at[0];
    assert_int_equal(s->n, 100000);
    assert_int_equal(s->least, 1000);
    assert_int_equal(s->most, 2000);
    assert_true(samples_median(s) > 1350 && samples_median(s) < 1650);
    for (uint32_t i = 0; i < MOST_IMPORT_KEYS + 100; i++)
        sink_kernel(sink, arena_print(arena, "kernel %u", i), 5);
    assert_int_equal(sink->all.n, MOST_IMPORT_KEYS);
    assert_int_equal(sink->dropped, 101);
    arena_free(arena);
}

/* The command imports some 50 MB of events; it may need hardly more memory than a small import. */
static void a_long_trace_needs_little_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *small = arena_print(arena, "%s/small.json", folder);
    const char *large = arena_print(arena, "%s/large.json", folder);
    command_write_file(small, trace);
    FILE *file = fopen(large, "wb");
    assert_non_null(file);
    fputs("{\"traceEvents\": [\n", file);
    for (uint32_t i = 0; i < 240000; i++)
        fprintf(
            file,
            "%s{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void kernel_%u<float, 128, true>("
            "float const*, float*, int)\", \"pid\": 0, \"tid\": 7, \"ts\": %u, \"dur\": %u, "
            "\"args\": {\"External id\": %u, \"grid\": [%u, 1, 1], \"block\": [256, 1, 1]}}\n",
            i > 0 ? "," : "", i % 40, i * 10, 5 + i % 9, 1 + i % 4000, 1 + i % 40);
    /* Every other kernel gets an operator. The operators have forty shapes. */
    for (uint32_t i = 1; i <= 2000; i++)
        fprintf(
            file,
            ",{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::silu\", \"ts\": 1, \"dur\": "
            "4, \"args\": {\"External id\": %u, \"Input Dims\": [[%u, 8]], \"Input type\": "
            "[\"c10::Half\"]}}\n",
            i * 2, 1 + i % 40);
    fputs("]}\n", file);
    assert_true(ftell(file) > 45 << 20);
    fclose(file);
    struct rusage before, after;
    CommandResult r = COMMAND(arena, 60, "import", small, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    getrusage(RUSAGE_CHILDREN, &before);
    r = COMMAND(arena, 120, "import", large, "--dry-run", "--json");
    assert_int_equal(r.exit_code, 0);
    getrusage(RUSAGE_CHILDREN, &after);
    assert_non_null(strstr(r.out, "\"events\": 240000"));
    assert_non_null(strstr(r.out, "\"kernels\": 40"));
    assert_true(after.ru_maxrss - before.ru_maxrss < 8192); /* in KiB */
    remove(large);
    arena_free(arena);
}

/* Imported collectives change a prediction that requests them, and no other. */
static void imported_collectives_are_used(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *text = arena_print(arena, "%s/rs.txt", folder);
    const char *db = arena_print(arena, "%s/x.db", folder);
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    Str rows = str_in(arena);
    str_add(&rows, "# reduce_scatter_perf\n# size count type redop root time algbw busbw #wrong\n");
    for (uint64_t bytes = 1 << 20; bytes <= UINT64_C(1) << 33; bytes *= 2)
        str_print(&rows, "%llu 1 float sum -1 %llu 0 0 0\n", (unsigned long long)bytes,
                  (unsigned long long)(bytes >> 10)); /* 1 GB/s */
    command_write_file(text, str_text(&rows));
    CommandResult r = COMMAND(arena, 60, "import", text, "--machine", "slow", "--db", db);
    assert_int_equal(r.exit_code, 3); /* the text lacks the number of ranks */
    assert_non_null(strstr(r.err, "import-format"));
    r = COMMAND(arena, 60, "import", text, "--ranks", "2", "--machine", "slow", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "14 collectives of slow"));
    CommandResult plain = COMMAND(arena, 60, "sim", plan, "--db", db);
    CommandResult other = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "unknown");
    CommandResult slow = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "slow");
    assert_int_equal(plain.exit_code + slow.exit_code, 0);
    assert_int_equal(other.exit_code, 2); /* an error, because the request could not be fulfilled */
    assert_non_null(strstr(other.err, "the store has measurements of 'slow'"));
    const char *a = strstr(plain.out, "step  "), *c = strstr(slow.out, "step  ");
    assert_true(a != NULL && c != NULL);
    assert_true(strncmp(a, c, strcspn(a, "\n")) != 0);
    /* The explanation is of the same prediction: its path ends with the step. */
    r = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "slow", "--explain", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *path = json_object_get(json_object_get(root, "explain"), "path");
    const json_t *last = json_array_get(path, json_array_size(path) - 1);
    assert_true(json_integer_value(json_object_get(root, "step_ps")) > 0);
    assert_int_equal(json_integer_value(json_object_get(last, "to_ps")),
                     json_integer_value(json_object_get(root, "step_ps")));
    json_decref(root);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_nccl_tests_is_read),
        cmocka_unit_test(damaged_text_is_refused_or_gives_fewer_rows),
        cmocka_unit_test(a_trace_of_pytorch_is_read),
        cmocka_unit_test(damaged_traces_do_no_harm),
        cmocka_unit_test(an_export_of_nsys_is_read),
        cmocka_unit_test(a_schema_that_never_ends_is_refused),
        cmocka_unit_test(payloads_of_nccl_give_collectives),
        cmocka_unit_test(a_sample_of_many_values_keeps_their_median),
        cmocka_unit_test(a_long_trace_needs_little_memory),
        cmocka_unit_test(imported_collectives_are_used),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    slowest_print(&slowest, "foreign files");
    return failed;
}
