/* tandem compare: compares one measured run with the prediction of the same plan. A row is one
 * instruction of one rank. Only instructions that were both measured and predicted are compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/compare.h"
#include "cli/run/run.h"
#include "planner/base/plural.h"

typedef struct ComparedRun {
    RunRecord record;
    Trace trace;
    int64_t id;
} ComparedRun;

typedef struct Line {
    OpKind op;
    AxisSet axes;
    uint64_t n; /* number of compared instructions */
    Ps predicted_ps, measured_ps;
    double flops;   /* FLOPs of these instructions */
    uint64_t bytes; /* bytes that they move, so that readers can compute bandwidths */
} Line;

typedef struct Comparison {
    LIST(Line) lines;
    Line compute, communication;
    uint64_t joined, only_measured;
    uint32_t n_ranks; /* number of ranks with at least one compared instruction */
} Comparison;

static int by_place(const void *a, const void *b)
{
    const TraceRow *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->pc > y->pc) - (x->pc < y->pc);
}

static int by_time(const void *a, const void *b)
{
    const Line *x = a, *y = b;
    if (x->measured_ps != y->measured_ps) return x->measured_ps > y->measured_ps ? -1 : 1;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    return (x->axes > y->axes) - (x->axes < y->axes);
}

static void add_row(Arena *arena, const Plan *plan, const TraceRow *row, Ps predicted,
                    Comparison *c)
{
    const Program *p = plan_program(plan, row->rank);
    const Instr *in = program_instr(p, row->pc);
    bool is_comm = op_info(in->op)->class_ == OP_CLASS_comm;
    AxisSet axes = is_comm ? in->axes : 0;
    uint32_t k = 0;
    while (k < c->lines.n && (c->lines.at[k].op != in->op || c->lines.at[k].axes != axes)) k++;
    if (k == c->lines.n) list_push(arena, &c->lines, ((Line){.op = in->op, .axes = axes}));
    Line *add[] = {&c->lines.at[k], is_comm ? &c->communication : &c->compute};
    for (int i = 0; i < 2; i++) {
        add[i]->n++;
        add[i]->predicted_ps += predicted;
        add[i]->measured_ps += row->end_ps - row->start_ps;
        add[i]->flops += is_comm ? 0 : plan_flops(plan, p, in);
        add[i]->bytes += row->bytes;
    }
    c->joined++;
}

static void join(Arena *arena, const Plan *plan, Trace *predicted, Trace *measured, Comparison *c)
{
    uint32_t p = 0, n_p = predicted->rows.n, n_m = measured->rows.n;
    if (n_p > 0) qsort(predicted->rows.at, n_p, sizeof *predicted->rows.at, by_place);
    if (n_m > 0) qsort(measured->rows.at, n_m, sizeof *measured->rows.at, by_place);
    Rank last = UINT32_MAX;
    for (uint32_t m = 0; m < n_m; m++) {
        const TraceRow *row = &measured->rows.at[m];
        while (p < n_p && by_place(&predicted->rows.at[p], row) < 0) p++;
        bool same = p < n_p && by_place(&predicted->rows.at[p], row) == 0;
        if (!same || row->rank >= plan->mesh.n_ranks ||
            row->pc >= plan_program(plan, row->rank)->code.n) {
            c->only_measured++;
            continue;
        }
        const TraceRow *other = &predicted->rows.at[p];
        add_row(arena, plan, row, other->end_ps - other->start_ps, c);
        c->n_ranks += row->rank != last;
        last = row->rank;
    }
    if (c->lines.n > 0) qsort(c->lines.at, c->lines.n, sizeof *c->lines.at, by_time);
}

static double ratio(Ps predicted, Ps measured)
{
    return measured > 0 ? (double)predicted / (double)measured : 0;
}

/* Adds a cell with an error. Its width suits errors below 10,000 %, so that nearly all tables get
 * the same column width. */
static void error_cell(Cli *cli, Table *t, Ps predicted, Ps measured)
{
    table_cell(t, "%9s", measured > 0 ? format_ratio(cli->arena, ratio(predicted, measured)) : "-");
}

static void line_text(Cli *cli, Table *t, const char *name, const Line *line, uint32_t n_ranks)
{
    uint32_t n = n_ranks > 0 ? n_ranks : 1;
    table_cell(t, "%s", name);
    table_cell(t, "%s", str_count(cli->arena, line->n / n));
    table_cell(t, "%s", format_time(cli->arena, line->predicted_ps / n));
    table_cell(t, "%s", format_time(cli->arena, line->measured_ps / n));
    error_cell(cli, t, line->predicted_ps, line->measured_ps);
}

static const char *line_name(Arena *arena, const Plan *plan, const Line *line)
{
    if (line->axes == 0) return op_info(line->op)->name;
    return arena_print(arena, "%s %s", op_info(line->op)->name,
                       mesh_axes_text(arena, &plan->mesh, line->axes));
}

static void report_text(Cli *cli, const Plan *plan, const ComparedRun *predicted,
                        const ComparedRun *measured, const Comparison *c, const CoreUse *cores)
{
    static const char *const heads[] = {"a step, mean of the ranks", ">n", ">predicted",
                                        ">measured", ">error"};
    const RunRecord *m = &measured->record, *p = &predicted->record;
    Str *out = &cli->out;
    str_print(out,
              "run %" PRId64 " (measured, %s, %" PRIu32 " rank%s) against prediction %" PRId64
              " (%s)\nplan %s  %s\n",
              measured->id, m->backend, m->n_ranks, str_s(m->n_ranks), predicted->id, p->cluster,
              hash_short(cli->arena, m->plan), str_path(cli->arena, m->plan_name));
    Table t = table_in(cli->arena, 5, heads);
    for (uint32_t i = 0; i < c->lines.n; i++)
        line_text(cli, &t, line_name(cli->arena, plan, &c->lines.at[i]), &c->lines.at[i],
                  c->n_ranks);
    if (c->joined > 0) {
        line_text(cli, &t, "all compute", &c->compute, c->n_ranks);
        line_text(cli, &t, "all communication", &c->communication, c->n_ranks);
    }
    table_cell(&t, "step time");
    table_cell(&t, "%" PRIu32, m->steps_done);
    table_cell(&t, "%s", format_time(cli->arena, p->step_ps));
    table_cell(&t, "%s", format_time(cli->arena, m->step_ps));
    error_cell(cli, &t, p->step_ps, m->step_ps);
    table_cell(&t, "memory of the worst rank");
    table_cell(&t, "1");
    table_cell(&t, "%s", str_bytes(cli->arena, p->peak_bytes));
    table_cell(&t, "%s", str_bytes(cli->arena, m->peak_bytes));
    error_cell(cli, &t, (Ps)p->peak_bytes, (Ps)m->peak_bytes);
    table_print(&t, out);
    str_print(out, "joined      %s of %s measured instructions have a prediction\n",
              str_count(cli->arena, c->joined),
              str_count(cli->arena, c->joined + c->only_measured));
    str_add(out,
            "error       predicted / measured - 1; the time of a communication includes waiting\n");
    cores_text(cores, m->n_ranks, out);
}

static json_t *line_json(const char *name, const Line *line, uint32_t n_ranks)
{
    int64_t n = n_ranks > 0 ? n_ranks : 1;
    json_t *row = json_object();
    json_text(row, "op", name);
    json_count(row, "n", line->n / (uint64_t)n);
    json_count(row, "predicted_ps", (uint64_t)(line->predicted_ps / n));
    json_count(row, "measured_ps", (uint64_t)(line->measured_ps / n));
    json_number(row, "ratio", ratio(line->predicted_ps, line->measured_ps));
    json_number(row, "flops", line->flops / (double)n);
    json_count(row, "bytes", line->bytes / (uint64_t)n);
    return row;
}

static void report_json(Cli *cli, const Plan *plan, const ComparedRun *predicted,
                        const ComparedRun *measured, const Comparison *c)
{
    const RunRecord *m = &measured->record, *p = &predicted->record;
    json_put(cli->json, "measured_run", json_integer(measured->id));
    json_put(cli->json, "predicted_run", json_integer(predicted->id));
    json_text(cli->json, "plan_id", hash_hex(cli->arena, m->plan));
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->lines.n; i++)
        json_array_append_new(list, line_json(line_name(cli->arena, plan, &c->lines.at[i]),
                                              &c->lines.at[i], c->n_ranks));
    json_put(cli->json, "ops", list);
    json_put(cli->json, "compute", line_json("all compute", &c->compute, c->n_ranks));
    json_put(cli->json, "communication",
             line_json("all communication", &c->communication, c->n_ranks));
    json_count(cli->json, "predicted_step_ps", (uint64_t)p->step_ps);
    json_count(cli->json, "measured_step_ps", (uint64_t)m->step_ps);
    json_number(cli->json, "step_ratio", ratio(p->step_ps, m->step_ps));
    json_count(cli->json, "predicted_peak_bytes", p->peak_bytes);
    json_count(cli->json, "measured_peak_bytes", m->peak_bytes);
    json_count(cli->json, "joined_rows", c->joined);
    json_count(cli->json, "unjoined_rows", c->only_measured);
}

static bool load_side(Cli *cli, Store *store, int64_t id, ComparedRun *side)
{
    memset(side, 0, sizeof *side);
    side->id = id;
    return store_load_run(store, id, cli->arena, &side->record, &side->trace, &cli->diag);
}

static int64_t number_of(Cli *cli, const char *text)
{
    char *end = NULL;
    long long id = strtoll(text, &end, 10);
    if (*end == 0 && id > 0) return id;
    cli_error(cli, FAULT_usage, "arguments", "'%s' is not a run's number", text);
    diag_hint(&cli->diag, "`tandem runs` lists all runs");
    return 0;
}

static int64_t wanted_run(Cli *cli, Store *store)
{
    if (cli->n_args == 0) {
        int64_t id = store_latest_run(store, RUN_measured, &cli->diag);
        if (id != 0 || cli->diag.n_errors > 0) return id;
        cli_error(cli, FAULT_store, "no-run", "%s holds no measured run", cli->options.db);
        diag_hint(&cli->diag, "`tandem run PLAN` measures a plan");
        return 0;
    }
    return number_of(cli, cli->args[0]);
}

/* Returns the number of the newest prediction of the plan for the run's backend and calibration. If
 * there is none, returns the newest prediction for any backend and calibration. Both assume that
 * all ranks are equal and that all experts get equally many tokens. */
static int64_t find_prediction(Cli *cli, Store *store, const RunRecord *measured)
{
    unsigned char plan[16];
    hash_to_bytes(measured->plan, plan);
    DbStatement *st = db_prepare(
        store_db(store), &cli->diag,
        "SELECT id FROM run WHERE kind = 'predicted' AND " STORE_IS_PLAIN " AND plan = ? AND "
        "backend = ? AND calibration = ? ORDER BY id DESC LIMIT 1",
        "bss", plan, sizeof plan, measured->backend, measured->calibration);
    int64_t id = db_step(st, &cli->diag) ? db_int(st, 0) : 0;
    db_reset(st);
    return id != 0 ? id : store_find_run(store, RUN_predicted, measured->plan, &cli->diag);
}

static void compare_runs(Cli *cli, Store *store, int64_t id)
{
    ComparedRun measured, predicted;
    if (!load_side(cli, store, id, &measured)) return;
    if (measured.record.kind != RUN_measured) {
        cli_error(cli, FAULT_usage, "not-measured", "run %" PRId64 " is a prediction", id);
        diag_hint(&cli->diag, "`tandem run PLAN` measures a plan; `tandem runs` lists all runs");
        return;
    }
    if (strcmp(measured.record.status, "failed") == 0) {
        cli_error(cli, FAULT_usage, "not-measured",
                  "run %" PRId64 " failed, so it measured nothing", id);
        diag_hint(&cli->diag, "`tandem runs` lists all runs");
        return;
    }
    /* The plan is read before its prediction is looked for. If it cannot be read, advice to predict
     * it again would not help: the new prediction would have another plan id. */
    Plan *plan = plan_stored(cli, store, id, &measured.record);
    if (plan == NULL) return;
    int64_t other = find_prediction(cli, store, &measured.record);
    if (other == 0) {
        if (cli->diag.n_errors > 0) return;
        cli_error(cli, FAULT_store, "no-prediction", "the store has no prediction of plan %s",
                  hash_short(cli->arena, measured.record.plan));
        diag_hint(&cli->diag, "`tandem sim %s --trace` makes a prediction",
                  measured.record.plan_name);
        return;
    }
    if (!load_side(cli, store, other, &predicted)) return;
    Comparison c;
    memset(&c, 0, sizeof c);
    join(cli->arena, plan, &predicted.trace, &measured.trace, &c);
    CoreUse cores;
    if (!cores_read(store, id, &cores, &cli->diag)) return;
    if (cli->json != NULL) {
        report_json(cli, plan, &predicted, &measured, &c);
        json_put(cli->json, "cores", cores_json(&cores));
    } else {
        report_text(cli, plan, &predicted, &measured, &c, &cores);
    }
}

void cmd_compare(Cli *cli)
{
    Store *store = store_open(cli->options.db, true, &cli->diag);
    if (store == NULL) return;
    int64_t id = wanted_run(cli, store);
    int64_t other = cli->n_args == 2 && id != 0 ? number_of(cli, cli->args[1]) : 0;
    if (other != 0)
        compare_two(cli, store, (const int64_t[]){id, other});
    else if (id != 0 && cli->n_args < 2)
        compare_runs(cli, store, id);
    store_close(store);
}
