/* Simulates a plan once and keeps the prediction. */
#include "cli/predict.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/runtime/runtime.h"

const char *cluster_text(Arena *arena, const Cluster *cluster)
{
    return arena_print(arena, "%s, %" PRIu32 " x %" PRIu32, cluster->name, cluster->nodes,
                       cluster->devices_per_node);
}

static void fill_record(RunRecord *record, const SimReport *report, Arena *arena)
{
    record->status = report->fits ? "ok" : "infeasible";
    record->step_ps = report->step_ps;
    record->compute_ps = report->compute_ps;
    record->exposed_ps = report->exposed_ps;
    record->peak_bytes = report->peak_bytes;
    record->peak_rank = report->peak_rank;
    record->tokens_per_s_per_device = report->tokens_per_s_per_device;
    record->mfu = report->mfu;
    record->mfu_formula = arena_print(arena, "%s, over %s", report->mfu_formula, report->peak_name);
    for (uint32_t i = 0; i < report->collectives.n; i++)
        list_push(arena, &record->collectives, report->collectives.at[i]);
    for (uint32_t i = 0; i < report->memory_rows.n; i++)
        list_push(arena, &record->memory, report->memory_rows.at[i]);
}

static const char key_query[] =
    "SELECT id, EXISTS(SELECT 1 FROM trace WHERE run = id) FROM run WHERE kind = 'predicted' AND "
    "plan = ? AND cluster = ? AND scenario = ? AND backend = ? AND engine = ? AND calibration = ? "
    "AND seed = ?";

/* The stored prediction of the very key; with its rows, if they are wanted. */
static bool find_stored(Cli *cli, Store *store, bool trace, Prediction *prediction)
{
    const RunRecord *r = &prediction->record;
    unsigned char plan[16];
    hash_to_bytes(r->plan, plan);
    DbStatement *st =
        db_prepare(store_db(store), &cli->diag, key_query, "bsssssi", plan, sizeof plan, r->cluster,
                   r->scenario, r->backend, r->engine, r->calibration, (int64_t)r->seed);
    bool there = db_step(st, &cli->diag);
    int64_t id = there ? db_int(st, 0) : 0;
    bool has_trace = there && db_int(st, 1) != 0;
    db_reset(st);
    if (id == 0 || (trace && !has_trace)) return false;
    RunRecord old;
    memset(&old, 0, sizeof old);
    if (!store_load_run(store, id, cli->arena, &old, NULL, &cli->diag)) return false;
    prediction->record = old;
    prediction->id = id;
    prediction->found = true;
    trust_load_counts(store, id, &prediction->trust, &cli->diag);
    return true;
}

static bool simulate(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
                     Prediction *prediction)
{
    const Cluster *cluster = options->cluster;
    SimOptions sim = {.unfolded = options->unfolded,
                      .trace = options->trace,
                      .uneven = options->uneven,
                      .imbalance = options->imbalance,
                      .runtime = &file->config.runtime,
                      .seed = prediction->record.seed,
                      .steps = 1,
                      .store = options->machine ? store : NULL,
                      .machine = options->machine,
                      .backend = options->backend};
    SimReport report;
    memset(&report, 0, sizeof report);
    if (!sim_run(file->plan, cluster, &sim, cli->arena, &report, &cli->diag)) return false;
    fill_record(&prediction->record, &report, cli->arena);
    if (report.host_bound) {
        diag_warning(&cli->diag, "host-bound", (Loc){NULL, 0},
                     "issuing the instructions one by one takes the host longer than the step that "
                     "is predicted");
        diag_hint(&cli->diag, "the prediction holds where steps are captured as graphs");
    }
    prediction->trust.counts = report.counts;
    const CostCounts *counts = &report.counts;
    if (cluster->is_local && counts->kernels_modelled > 0) {
        diag_warning(&cli->diag, "not-calibrated", (Loc){NULL, 0},
                     "%" PRIu32 " of %" PRIu32 " kernels are not measured on this machine: their "
                     "cost is a generic model's",
                     counts->kernels_modelled, counts->kernels_modelled + counts->kernels_measured);
        diag_hint(&cli->diag, "`tandem calibrate %s` measures them", file->path);
    }
    if (options->trace) {
        Trace *trace = arena_alloc(cli->arena, sizeof *trace);
        *trace = report.trace;
        prediction->record.trace = trace;
    }
    prediction->n_events = report.n_events;
    prediction->n_classes = report.n_classes;
    return true;
}

static const char *scenario_text(Arena *arena, const PredictOptions *options)
{
    const Unevenness *u = options->uneven;
    Str s = str_in(arena);
    if (options->unfolded || u != NULL) str_add(&s, "unfolded");
    if (u != NULL)
        str_print(&s, ", jitter %g, rank %" PRIu32 " x %g", u->jitter, u->straggler,
                  u->straggler_factor > 1 ? u->straggler_factor : 1.);
    if (options->imbalance > 1)
        str_print(&s, "%sexperts x %g", s.n > 0 ? ", " : "", options->imbalance);
    return str_text(&s);
}

static bool is_infeasible(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault == FAULT_infeasible)
            return true;
    return false;
}

Held predict_held(Cli *cli, const PlanFile *file)
{
    const Runtime *runtime = &file->config.runtime;
    const Device *device = &file->config.cluster.device;
    if (runtime->name == NULL) return (Held){0};
    Held held = sim_held(file->plan, &file->config.cluster, runtime);
    if (held.fits || is_infeasible(&cli->diag)) return held;
    cli_error(cli, FAULT_infeasible, "does-not-fit",
              "%s would need %s, with what lies outside its allocator; the device has %s",
              runtime->name, str_bytes(cli->arena, held.process_bytes),
              str_bytes(cli->arena, device->memory_bytes));
    return held;
}

bool predict(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
             Prediction *prediction)
{
    assert(options->cluster != NULL && (store == NULL || !options->keep || file->text != NULL));
    memset(prediction, 0, sizeof *prediction);
    RunRecord *record = &prediction->record;
    Needs needs;
    memset(&needs, 0, sizeof needs);
    if (options->machine != NULL)
        needs_find(file->plan, store, options->machine, options->backend, cli->arena, &needs,
                   &cli->diag);
    record->kind = RUN_predicted;
    record->plan = file->id;
    record->plan_name = file->path;
    record->cluster = cluster_text(cli->arena, options->cluster);
    record->scenario = scenario_text(cli->arena, options);
    record->backend = options->backend;
    record->engine = SIM_ENGINE_VERSION;
    record->calibration =
        calibration_id(options->cluster, &file->config.runtime, &needs, cli->arena);
    record->seed = file->config.seed;
    record->n_ranks = file->plan->mesh.n_ranks;
    prediction->trust =
        trust_of(cli, options->cluster, &file->config.runtime, store, options->machine);
    if (store != NULL && find_stored(cli, store, options->trace, prediction)) return true;
    if (!simulate(cli, file, store, options, prediction)) return false;
    if (store == NULL || !options->keep) return true;
    record->plan_text = file->text;
    prediction->id = store_run(store, record, &cli->diag);
    if (prediction->id != 0)
        return trust_store(store, prediction->id, &prediction->trust, &cli->diag);
    /* A prediction is worth seeing also where the store takes nothing; the error stays. */
    return options->keep_unstored;
}
