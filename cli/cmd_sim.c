/* tandem sim: predicts the time and memory of a plan's step. The prediction is stored even if the
 * plan does not fit. */
#include <string.h>
#include <unistd.h>

#include "cli/predict.h"
#include "cli/repeat.h"

/* Returns true if the plan can be simulated: it has no error, except perhaps that it does not
 * fit. */
static bool is_sound(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault != FAULT_infeasible)
            return false;
    return true;
}

/* Refuses a machine without any measurements. Its costs would all come from models, without the
 * user knowing. */
static bool is_measured(Cli *cli, Store *store, const char *machine)
{
    static const char query[] = "SELECT machine FROM collective_cost WHERE backend = 'nccl' UNION "
                                "SELECT machine FROM kernel_cost WHERE key LIKE 'work %' "
                                "ORDER BY machine";
    LIST(const char *) names = {NULL, 0, 0};
    DbStatement *st = store != NULL ? db_prepare(store_db(store), &cli->diag, query, "") : NULL;
    bool there = false;
    while (db_step(st, &cli->diag)) {
        list_push(cli->arena, &names, arena_dup(cli->arena, db_text(st, 0)));
        there = there || strcmp(names.at[names.n - 1], machine) == 0;
    }
    if (there) return true;
    cli_error(cli, FAULT_usage, "no-machine", "the store has no measurements of the machine '%s'",
              machine);
    const char *near = str_nearest(machine, names.at, names.n);
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean '%s'?", near);
    else if (names.n > 0)
        diag_hint(&cli->diag, "the store has measurements of '%s'", names.at[0]);
    else
        diag_hint(&cli->diag, "`tandem import FILE --machine %s` stores measurements", machine);
    return false;
}

bool predict_options(Cli *cli, const PlanFile *file, Store *store, const Scenario *scenario,
                     PredictOptions *options)
{
    const Cluster *cluster = &file->config.cluster;
    const uint32_t n_before = cli->diag.n_errors;
    for (uint32_t i = 0; i < scenario->told.items.n; i++)
        diag_add(&cli->diag, scenario->told.items.at[i]);
    if (!cluster->is_local && cli->options.machine != NULL)
        is_measured(cli, store, cli->options.machine);
    const CostsOf costs = session_costs(cluster, cluster->is_local ? machine_key(cli->arena) : NULL,
                                        cli->options.machine, NULL);
    *options = (PredictOptions){.cluster = cluster,
                                .backend = costs.backend,
                                .machine = costs.machine,
                                .trace = cli->options.sim.trace,
                                .exact = cli->options.exact,
                                .unfolded = cli->options.sim.unfolded || scenario->is_uneven,
                                .uneven = scenario->is_uneven ? &scenario->uneven : NULL,
                                .imbalance = scenario->imbalance,
                                .loads = scenario->loads,
                                .keep = store != NULL && !cli->options.dry_run};
    if (!loads_fit(options->loads, file->plan)) options->loads = NULL;
    return cli->diag.n_errors == n_before;
}

static void report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *options,
                   const Prediction *prediction)
{
    prediction_report(cli, file, prediction);
    predict_fits(cli, file, prediction);
    double goodput = 1;
    if (cli->options.scenario.mtbf_text != NULL) goodput = faults_report(cli, file, prediction);
    if (cli->options.tokens > 0 && goodput > 0) training_report(cli, file, prediction, goodput);
    if ((cli->options.tokens > 0 || cli->options.pue_text != NULL) && goodput > 0)
        energy_report(cli, file, prediction, goodput);
    if (cli->options.sim.explain) explain_report(cli, file, store, options);
    if (cli->options.sim.what_if.n > 0) what_if_report(cli, file, store, options);
}

/* Begins the predictions of frameworks. Opens the store only if it exists, because `sim` creates a
 * store only after the proofs. */
static Frameworks *ask(Cli *cli, const PlanFile *file, const Scenario *scenario)
{
    Diag ignored = diag_in(cli->arena);
    const bool looks = !cli->options.dry_run && access(cli->options.db, F_OK) == 0;
    Store *store = looks ? store_open_brief(cli->options.db, &ignored) : NULL;
    Frameworks *frameworks = frameworks_ask(cli, file, true, scenario, store);
    store_close(store);
    return frameworks;
}

/* Refuses wrong options before the report, so that the error does not stand below lines that look
 * like success. */
static bool options_fit(Cli *cli, const PlanFile *file, Scenario *scenario)
{
    if (!file->has_cluster) {
        cli_error(cli, FAULT_usage, "no-cluster",
                  "%s is the text of a plan, which names no hardware", file->path);
        diag_hint(&cli->diag, "add for example --cluster dgx_h100");
        return false;
    }
    return !is_sound(&cli->diag) ||
           (scenario_read(cli, file, scenario) && what_if_check(cli, file) && mfu_check(cli));
}

void cmd_sim(Cli *cli)
{
    if (repeat_answer(cli)) return;
    PlanFile *file = plan_file_open(cli, cli->args[0], true);
    if (file == NULL) return;
    Scenario scenario = {.imbalance = 1};
    if (!options_fit(cli, file, &scenario)) {
        Diag ignored = diag_in(cli->arena);
        session_settle(file, &ignored); /* wait for the thread that reads the plan */
        return;
    }
    plan_file_report(cli, file);
    plan_file_memory(cli, file);
    const bool dry = cli->options.dry_run;
    Frameworks *frameworks = ask(cli, file, &scenario);
    session_settle(file, &cli->diag);
    if (!is_sound(&cli->diag)) return;
    Store *store = dry ? NULL : store_open(cli->options.db, false, &cli->diag);
    if (store == NULL && !dry) return;
    Repeat repeat = {.also = {.head = ""}};
    frameworks_print(cli, frameworks, "", store, &repeat.also);
    PredictOptions options;
    Prediction prediction;
    repeat.fresh_from = cli->diag.items.n;
    if (predict_options(cli, file, store, &scenario, &options) &&
        predict(cli, file, store, &options, true, &prediction)) {
        repeat.fresh_end = cli->diag.items.n;
        report(cli, file, store, &options, &prediction);
        if (!file->is_text && !file->config.cluster.is_local)
            repeat_keep(cli, &repeat, store, &file->recipe, &prediction);
    }
    plan_file_close(cli);
    store_close(store);
}
