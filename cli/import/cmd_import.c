/* tandem import: stores measurements of other tools under the name of the machine on which they
 * were made. The first bytes of a file show its format. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/import/import.h"
#include "planner/base/plural.h"

typedef enum ImportFormat {
    FORMAT_nccl_tests,
    FORMAT_trace,
    FORMAT_nsys,
    FORMAT_packed,
    FORMAT_unread
} ImportFormat;

static const char *const format_names[] = {"nccl-tests text", "Chrome trace", "nsys export", "gzip",
                                           ""};

static ImportFormat detect(Cli *cli, const char *path)
{
    unsigned char head[64] = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        cli_error(cli, FAULT_input, "import-open", "cannot open %s: %s", path, strerror(errno));
        return FORMAT_unread;
    }
    size_t n = fread(head, 1, sizeof head - 1, file);
    const char *why = ferror(file) ? strerror(errno) : NULL;
    fclose(file);
    if (why != NULL) {
        cli_error(cli, FAULT_input, "import-open", "cannot read %s: %s", path, why);
        return FORMAT_unread;
    }
    if (n >= 16 && memcmp(head, "SQLite format 3", 16) == 0) return FORMAT_nsys;
    if (n >= 2 && head[0] == 0x1f && head[1] == 0x8b) return FORMAT_packed;
    size_t at = strspn((const char *)head, " \t\r\n\xef\xbb\xbf");
    return head[at] == '{' || head[at] == '[' ? FORMAT_trace : FORMAT_nccl_tests;
}

static bool kind_named(Cli *cli, NcclTestText *text, const char *path)
{
    const char *name = cli->options.net.collective;
    if (name == NULL && text->known) return true;
    if (name != NULL && collective_find(name, &text->kind)) return true;
    if (name != NULL)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--collective %s: there is no such collective", name);
    cli_error(cli, FAULT_input, "import-format", "%s does not state which collective it measured",
              path);
    diag_hint(&cli->diag, "add for example --collective all_reduce");
    return false;
}

static bool read_nccl_tests(Cli *cli, const char *path, ImportSink *sink)
{
    NcclTestText text;
    if (!nccl_tests_read(path, cli->arena, &text, &cli->diag)) return false;
    if (!kind_named(cli, &text, path)) return false;
    uint32_t ranks = cli->options.n > 0 ? cli->options.n : text.n_ranks;
    if (ranks < 2) {
        cli_error(cli, FAULT_input, "import-format", "%s does not state the number of ranks", path);
        diag_hint(&cli->diag, "add for example --ranks 8");
        return false;
    }
    for (uint32_t i = 0; i < text.rows.n; i++) {
        const NcclTestRow *row = &text.rows.at[i];
        double us = row->us > 0 ? row->us : row->in_place_us;
        sink->events++;
        sink_collective(sink, text.kind, ranks, row->bytes, (Ps)llround(us * 1e6));
    }
    return true;
}

static bool read_any(Cli *cli, const char *path, ImportFormat format, ImportSink *sink)
{
    switch (format) {
    case FORMAT_nccl_tests: return read_nccl_tests(cli, path, sink);
    case FORMAT_trace: return chrome_trace_read(path, sink, &cli->diag);
    case FORMAT_nsys: return nsys_read(path, sink, cli->arena, &cli->diag);
    case FORMAT_packed:
        cli_error(cli, FAULT_input, "import-format", "%s is compressed", path);
        diag_hint(&cli->diag, "unpack the file with gunzip first");
        return false;
    case FORMAT_unread: break;
    }
    return false;
}

typedef struct Stored {
    /* not_ops: number of collectives that correspond to no op of a plan */
    uint32_t kernels, collectives, not_ops;
    uint32_t alone; /* number of collectives that only one rank's trace contains */
} Stored;

static bool keep_one(Cli *cli, Store *store, const char *machine, const Samples *s, Stored *out)
{
    Diag *d = &cli->diag;
    Ps time = samples_time(s);
    if (s->key != NULL) {
        uint32_t n = s->n < UINT32_MAX ? (uint32_t)s->n : UINT32_MAX;
        out->kernels++;
        return store == NULL ||
               store_put_kernel(store, machine, s->key, time, samples_spread(s), n, d);
    }
    OpKind op = s->kind == COLLECTIVE_sendrecv ? OP_send : op_find(collective_name(s->kind));
    if (op == OP_none) {
        out->not_ops++;
        return true;
    }
    out->collectives++;
    out->alone += s->alone;
    return store == NULL ||
           store_put_collective(store, machine, "nccl", op, s->n_ranks, s->bytes, time, d);
}

static bool keep(Cli *cli, Store *store, const char *machine, const ImportSink *sink, Stored *out)
{
    for (uint32_t i = 0; i < sink->all.n; i++) {
        const Samples *s = sink->all.at[i];
        if (s->n > 0 && !keep_one(cli, store, machine, s, out)) return false;
    }
    return true;
}

/* Returns the reason why kernels were left out. */
static const char *kernels_why(ImportFormat format, const ImportSink *sink)
{
    if (format == FORMAT_nsys)
        return "nsys records no shapes of operators; use PyTorch's profiler with "
               "record_shapes=True";
    if (!sink->shapes) return "no operator has its shapes; profile with record_shapes=True";
    return "their operators have no shapes, or no op of a plan does the same work";
}

static void left_out_text(Cli *cli, ImportFormat format, const ImportSink *sink,
                          const Stored *stored)
{
    Arena *arena = cli->arena;
    Str *out = &cli->out;
    if (sink->n_unused > 0)
        str_print(out, "left out    %s kernels, %.0f %% of their time: %s\n",
                  str_count(arena, sink->n_unused),
                  100 * (double)sink->unused_ps / (double)(sink->unused_ps + sink->used_ps),
                  kernels_why(format, sink));
    if (sink->n_sizeless > 0)
        str_print(out,
                  "left out    %s collectives: the file does not state their bytes and ranks\n",
                  str_count(arena, sink->n_sizeless));
    if (stored->not_ops > 0)
        str_print(out, "left out    %" PRIu32 " collective%s that no plan uses\n", stored->not_ops,
                  str_s(stored->not_ops));
    if (sink->dropped > 0)
        str_print(out, "left out    %s measurements beyond the limit of an import\n",
                  str_count(arena, sink->dropped));
}

/* Prints which costs of the file predictions will use. */
static void use_text(Cli *cli, const char *machine, const ImportSink *sink, const Stored *stored)
{
    Arena *arena = cli->arena;
    Str *out = &cli->out;
    if (sink->n_met > 0)
        str_print(out,
                  "waiting     several ranks recorded %s collectives; the time of the last rank is "
                  "used, because it did not wait\n",
                  str_count(arena, sink->n_met));
    if (stored->alone > 0)
        str_print(out,
                  "waiting     only one rank recorded %" PRIu32
                  " of the collectives, so their times may include waiting; import the traces of "
                  "all ranks together for better times\n",
                  stored->alone);
    if (stored->kernels + stored->collectives == 0) {
        str_add(out, "use         this import changes no prediction\n");
        return;
    }
    str_print(out, "use         `tandem sim PLAN --machine %s` uses ", machine);
    if (stored->kernels > 0)
        str_print(out, "the %" PRIu32 " kernel%s for ops of the same shape and type%s",
                  stored->kernels, str_s(stored->kernels), stored->collectives > 0 ? ", and " : "");
    if (stored->collectives > 0)
        str_print(out, "the %" PRIu32 " collective%s for groups of the same size",
                  stored->collectives, str_s(stored->collectives));
    str_add(out, "; all other times come from models\n");
}

static void report(Cli *cli, ImportFormat format, const char *machine, const ImportSink *sink,
                   const Stored *stored)
{
    if (cli->json != NULL) {
        json_text(cli->json, "format", format_names[format]);
        json_text(cli->json, "machine", machine);
        json_count(cli->json, "files", cli->n_args);
        json_count(cli->json, "events", sink->events);
        json_count(cli->json, "kernels", stored->kernels);
        json_count(cli->json, "kernel_events", sink->n_used);
        json_count(cli->json, "kernel_events_left_out", sink->n_unused);
        json_count(cli->json, "collectives", stored->collectives);
        json_count(cli->json, "collectives_of_one_rank", stored->alone);
        json_count(cli->json, "collectives_of_no_plan", stored->not_ops);
        json_count(cli->json, "collective_events_left_out", sink->n_sizeless);
        json_count(cli->json, "dropped", sink->dropped);
        return;
    }
    str_print(&cli->out, "%s    %s, %s measurement%s\n", "read    ", format_names[format],
              str_count(cli->arena, sink->events), str_s(sink->events));
    str_print(&cli->out, "%s%" PRIu32 " kernel%s and %" PRIu32 " collective%s of %s\n",
              cli->options.dry_run ? "would store " : "stored      ", stored->kernels,
              str_s(stored->kernels), stored->collectives, str_s(stored->collectives), machine);
    left_out_text(cli, format, sink, stored);
    use_text(cli, machine, sink, stored);
}

/* Reads files of one format. Together they are the measurements of one run. */
static bool read_all(Cli *cli, ImportFormat *format, ImportSink *sink)
{
    for (uint32_t i = 0; i < cli->n_args; i++) {
        ImportFormat this = detect(cli, cli->args[i]);
        if (this == FORMAT_unread) return false;
        if (i > 0 && this != *format)
            return cli_error(
                cli, FAULT_input, "import-format",
                "files of one import must have one format, but %s and %s differ: %s and %s",
                cli->args[i], cli->args[0], format_names[this], format_names[*format]);
        *format = this;
        if (!read_any(cli, cli->args[i], this, sink)) return false;
    }
    meet_all(sink);
    return true;
}

void cmd_import(Cli *cli)
{
    const char *machine = cli->options.machine != NULL ? cli->options.machine : "imported";
    ImportFormat format = FORMAT_unread;
    ImportSink *sink = arena_alloc(cli->arena, sizeof *sink);
    sink_init(sink, cli->arena);
    sink->ranks_told = cli->options.n;
    if (!read_all(cli, &format, sink)) return;
    Store *store = NULL;
    if (!cli->options.dry_run) {
        store = store_open(cli->options.db, false, &cli->diag);
        if (store == NULL) return;
    }
    Stored stored = {0};
    bool batch = store == NULL || db_begin(store_db(store), &cli->diag);
    if (batch && keep(cli, store, machine, sink, &stored) &&
        (store == NULL || db_commit(store_db(store), &cli->diag)))
        report(cli, format, machine, sink, &stored);
    else if (store != NULL)
        db_rollback(store_db(store));
    store_close(store);
}
