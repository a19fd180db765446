/* tandem runs: lists the runs in the store, newest first. */
#include <inttypes.h>

#include "cli/predict.h"
#include "store/seals.h"

static const char query[] =
    "SELECT id, kind, lower(hex(plan)), name, cluster, backend, n_ranks, status, step_ps, "
    "peak_bytes, mfu, scenario, " INTACT(
        SEALED_run) ", EXISTS(SELECT 1 FROM proof p WHERE "
                    "p.plan = run.plan AND p.digest = tandem_digest(p.plan, p.build, p.made_at)) "
                    "FROM run ORDER BY id DESC LIMIT ?";

typedef struct RunRow {
    int64_t id, step_ps;
    uint64_t n_ranks, peak_bytes;
    const char *kind, *plan, *name, *cluster, *backend, *status, *scenario;
    double mfu;
    bool has_mfu, proven;
} RunRow;
typedef LIST(RunRow) RunRows;

static RunRow read_row(Cli *cli, DbStatement *st)
{
    RunRow r = {.id = db_int(st, 0), .n_ranks = (uint64_t)db_int(st, 6), .step_ps = db_int(st, 8)};
    r.kind = arena_dup(cli->arena, db_text(st, 1));
    r.plan = arena_dup(cli->arena, db_text(st, 2));
    r.name = arena_dup(cli->arena, db_text(st, 3));
    r.cluster = arena_dup(cli->arena, db_text(st, 4));
    r.backend = arena_dup(cli->arena, db_text(st, 5));
    r.status = arena_dup(cli->arena, db_text(st, 7));
    r.peak_bytes = (uint64_t)db_int(st, 9);
    r.has_mfu = !db_is_null(st, 10) && db_double(st, 10) > 0;
    r.mfu = r.has_mfu ? db_double(st, 10) : 0;
    r.scenario = arena_dup(cli->arena, db_text(st, 11));
    r.proven = db_int(st, 13) != 0;
    return r;
}

static void row_text(Cli *cli, Table *t, const RunRow *r, bool scenarios)
{
    table_cell(t, "%" PRId64, r->id);
    table_cell(t, "%s%s%s", r->kind, r->backend[0] != 0 ? " " : "", r->backend);
    table_cell(t, "%.12s", r->plan);
    table_cell(t, "%" PRIu64, r->n_ranks);
    table_cell(t, "%s", r->status);
    table_cell(t, "%s", format_time(cli->arena, r->step_ps));
    table_cell(t, "%s", str_bytes(cli->arena, r->peak_bytes));
    table_cell(t, "%s", r->has_mfu ? arena_print(cli->arena, "%.1f %%", r->mfu * 100) : "-");
    table_cell(t, "%s", r->proven ? "yes" : "-");
    table_cell(t, "%s", str_path(cli->arena, r->name));
    const char *scenario = r->scenario[0] != 0 ? scenario_said(cli->arena, r->scenario, NULL) : "-";
    if (scenarios) table_cell(t, "%s", scenario);
}

/* The column of scenarios appears only if a run has a scenario. */
static void report_text(Cli *cli, const RunRows *rows)
{
    static const char *const heads[] = {">run",  "kind", "plan id", ">ranks", "status",  ">step",
                                        ">peak", ">MFU", "proven",  "script", "scenario"};
    bool scenarios = false;
    for (uint32_t i = 0; i < rows->n; i++) scenarios = scenarios || rows->at[i].scenario[0] != 0;
    Table t = table_in(cli->arena, scenarios ? 11 : 10, heads);
    for (uint32_t i = 0; i < rows->n; i++) row_text(cli, &t, &rows->at[i], scenarios);
    table_print(&t, &cli->out);
}

static json_t *row_json(const RunRow *r)
{
    json_t *row = json_object();
    json_put(row, "run", json_integer(r->id));
    json_text(row, "kind", r->kind);
    json_text(row, "plan_id", r->plan);
    json_text(row, "name", r->name);
    json_text(row, "cluster", r->cluster);
    json_text(row, "scenario", r->scenario);
    json_text(row, "backend", r->backend);
    json_count(row, "ranks", r->n_ranks);
    json_text(row, "status", r->status);
    json_put(row, "proven", json_boolean(r->proven));
    json_count(row, "step_ps", (uint64_t)r->step_ps);
    json_count(row, "peak_bytes", r->peak_bytes);
    json_put(row, "mfu", r->has_mfu ? json_real(r->mfu) : json_null());
    return row;
}

void cmd_runs(Cli *cli)
{
    Store *store = store_open(cli->options.db, true, &cli->diag);
    if (store == NULL) return;
    int64_t limit = cli->options.limit > 0 ? cli->options.limit : 20;
    DbStatement *st = db_prepare(store_db(store), &cli->diag, query, "i", limit);
    RunRows rows = {NULL, 0, 0};
    json_t *list = cli->json != NULL ? json_array() : NULL;
    while (db_step(st, &cli->diag)) {
        RunRow row = read_row(cli, st);
        const char *name = arena_print(cli->arena, "id = %" PRId64, row.id);
        /* a damaged row is reported, and the other runs are still listed */
        if (!seal_intact(st, 12, "run", name, &cli->diag)) continue;
        list_push(cli->arena, &rows, row);
        if (list != NULL) json_array_append_new(list, row_json(&row));
    }
    store_close(store);
    report_text(cli, &rows);
    if (list != NULL) json_put(cli->json, "runs", list);
}
