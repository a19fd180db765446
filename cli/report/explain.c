/* tandem sim --explain: shows how a step's time is spent, and which changes would shorten it. No
 * gain is estimated. Each gain comes from another simulation, in which one communication takes no
 * time or one setting of the plan is changed. */
#include <inttypes.h>
#include <string.h>

#include "cli/predict.h"
#include "planner/base/plural.h"
#include "planner/front/pass_spec.h"

/* Settings of NCCL that --explain tries if NCCL does the communication. Each pass lists settings of
 * its own in its PassSpec. For each setting, the plan is loaded, compiled, tested for fit and
 * simulated. */
static const char *const nccl_trials[] = {"nccl.register=window", "nccl.max_ctas=4", NULL};

enum { MOST_FREED = 4 };

static const double LEAST_GAIN = .0005; /* a smaller gain would be printed as 0.0 % */

typedef struct Tried {
    const char *set;
    Ps step_ps;
    /* memory as --what-if counts it: Tandem's arena, or the whole process of a framework */
    uint64_t bytes;
} Tried;

typedef struct Explained {
    SimReport report;
    /* without_ps[i]: the step's time if the i-th communication of the critical path takes no
     * time */
    Ps without_ps[MOST_FREED];
    LIST(Tried) tried;
} Explained;

/* Returns the options of the prediction that is being explained. With other costs, the times on the
 * critical path would not add up to its step. */
static SimOptions options_of(const PlanFile *file, Store *store, const PredictOptions *how)
{
    return (SimOptions){.seed = file->config.seed,
                        .store = how->machine != NULL ? store : NULL,
                        .machine = how->machine,
                        .backend = how->backend,
                        .uneven = how->uneven,
                        .imbalance = how->imbalance,
                        .loads = how->loads,
                        .unfolded = how->unfolded};
}

static bool simulate(Cli *cli, const PlanFile *file, const SimOptions *options, SimReport *report)
{
    return session_simulate(file, &file->config.cluster, options, cli->arena, report, &cli->diag);
}

/* Simulates the same script with one more setting. Its diagnostics are not shown. */
static void try_setting(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how,
                        const char *set, Explained *out)
{
    Diag kept = cli->diag;
    cli->diag = diag_in(cli->arena);
    list_push(cli->arena, &cli->options.set, set);
    PlanOptions load = {.unproven = true};
    PlanFile *other = plan_file_load(cli, file->path, &load);
    SimReport report;
    SimOptions options = options_of(file, store, how);
    if (other != NULL && cli->diag.n_errors == 0 && simulate(cli, other, &options, &report) &&
        report.fits && (double)report.step_ps < (1 - LEAST_GAIN) * (double)out->report.step_ps) {
        const uint64_t process = report.held.process_bytes;
        Tried tried = {set, report.step_ps, process > 0 ? process : report.peak_bytes};
        list_push(cli->arena, &out->tried, tried);
    }
    cli->options.set.n--;
    cli->diag = kept;
}

static void try_settings(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how,
                         Explained *out)
{
    const Config *c = &file->config;
    for (uint32_t name = 0; name < PASS_NAME_COUNT; name++) {
        const char *const *set = pass_specs[name]->trials;
        for (; set != NULL && *set != NULL && config_pass(c, (PassName)name) != NULL; set++)
            try_setting(cli, file, store, how, *set, out);
    }
    const bool on_nccl = !c->cluster.is_local && c->runtime.name == NULL;
    for (const char *const *set = nccl_trials; on_nccl && *set != NULL; set++)
        try_setting(cli, file, store, how, *set, out);
}

static bool gather(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how,
                   Explained *out)
{
    SimOptions options = options_of(file, store, how);
    options.explain = true;
    if (!simulate(cli, file, &options, &out->report)) return false;
    options.explain = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->report.path_sums.n && n < MOST_FREED; i++) {
        const PathSum *row = &out->report.path_sums.at[i];
        if (!row->comm) continue;
        SimReport without;
        options.free_op = row->op;
        options.free_axes = row->axes;
        options.frees = true;
        if (!simulate(cli, file, &options, &without)) return false;
        out->without_ps[n++] = without.step_ps;
    }
    if (!file->is_text) try_settings(cli, file, store, how, out);
    const char *larger =
        arena_print(cli->arena, "batch.micro=%" PRId64, 2 * file->config.micro_batch);
    if (!file->is_text) try_setting(cli, file, store, how, larger, out);
    return true;
}

static const char *path_name(Cli *cli, const PlanFile *file, const PathSum *row)
{
    if (row->host) return "the host issues";
    if (row->data) return "waits for data";
    const char *op = op_info(row->op)->name;
    if (!row->comm) return op;
    return arena_print(cli->arena, "%s %s", op,
                       mesh_axes_text(cli->arena, &file->plan->mesh, row->axes));
}

static const char *share_text(Cli *cli, Ps part, Ps all)
{
    return arena_print(cli->arena, "%.1f %%", 100 * (double)part / (double)(all > 0 ? all : 1));
}

static void path_text(Cli *cli, const PlanFile *file, const Explained *e)
{
    static const char *const heads[] = {"  what", ">n", ">time", ">share", ">if it took no time"};
    const SimReport *r = &e->report;
    str_print(&cli->out,
              "critical path: %s part%s, whose times add up to the step; it ends on rank "
              "%" PRIu32 "\n",
              str_count(cli->arena, r->path.n), str_s(r->path.n), r->slowest);
    Table t = table_in(cli->arena, 5, heads);
    for (uint32_t i = 0, n = 0; i < r->path_sums.n && i < 16; i++) {
        const PathSum *row = &r->path_sums.at[i];
        table_cell(&t, "  %s", path_name(cli, file, row));
        table_cell(&t, "%" PRIu32, row->n);
        table_cell(&t, "%s", format_time(cli->arena, row->time_ps));
        table_cell(&t, "%s", share_text(cli, row->time_ps, r->step_ps));
        if (row->comm && n < MOST_FREED)
            table_cell(&t, "step %s", format_time(cli->arena, e->without_ps[n++]));
        else
            table_cell(&t, "%s", "");
    }
    table_print(&t, &cli->out);
}

static void stages_text(Cli *cli, const PlanFile *file, const Explained *e)
{
    static const char *const heads[] = {"  role",   ">rank",  ">compute", ">exposed",
                                        ">waiting", ">share", ">memory"};
    const SimReport *r = &e->report;
    if (r->stages.n < 2) return;
    str_print(&cli->out, "stages (waiting: for other ranks, a pipeline's bubble%s%s)\n",
              file->config.runtime.name != NULL ? ", and for the host" : "",
              r->input_ps > 0 ? ", and for data" : "");
    Table t = table_in(cli->arena, 7, heads);
    for (uint32_t i = 0; i < r->stages.n; i++) {
        const StageRow *row = &r->stages.at[i];
        table_cell(&t, "  %" PRIu32, row->program);
        table_cell(&t, "%" PRIu32, row->rank);
        table_cell(&t, "%s", format_time(cli->arena, row->compute_ps));
        table_cell(&t, "%s", format_time(cli->arena, row->exposed_ps));
        table_cell(&t, "%s", format_time(cli->arena, row->bubble_ps));
        table_cell(&t, "%s", share_text(cli, row->bubble_ps, r->step_ps));
        table_cell(&t, "%s", str_bytes(cli->arena, row->bytes));
    }
    table_print(&t, &cli->out);
}

/* Returns the limit of a kind of kernels: "compute" if they come closer to the peak rate, "memory"
 * if they come closer to the memory bandwidth. Kernels that reach less than 30 % of both are
 * limited by latency. */
static const char *bound_of(const KindRow *row)
{
    if (row->of_peak < .3 && row->of_memory < .3) return "latency";
    return row->of_peak > row->of_memory ? "compute" : "memory";
}

static void kinds_text(Cli *cli, const Explained *e)
{
    static const char *const heads[] = {"  kind",   ">n",      ">time",     ">flop/byte",
                                        ">of peak", ">of HBM", "  bound by"};
    const SimReport *r = &e->report;
    str_add(&cli->out, "kernels of the slowest rank against the device's peaks\n");
    Table t = table_in(cli->arena, 7, heads);
    for (uint32_t i = 0; i < r->kinds.n; i++) {
        const KindRow *row = &r->kinds.at[i];
        /* skip kinds of kernels that take less than half a percent of the step */
        if (row->time_ps * 200 < r->step_ps) continue;
        table_cell(&t, "  %s", op_info(row->op)->name);
        table_cell(&t, "%" PRIu32, row->n);
        table_cell(&t, "%s", format_time(cli->arena, row->time_ps));
        table_cell(&t, "%.1f", row->bytes > 0 ? row->flops / row->bytes : 0.);
        table_cell(&t, "%.0f %%", 100 * row->of_peak);
        table_cell(&t, "%.0f %%", 100 * row->of_memory);
        table_cell(&t, "  %s", bound_of(row));
    }
    table_print(&t, &cli->out);
}

static void tried_text(Cli *cli, const Explained *e)
{
    const SimReport *r = &e->report;
    if (e->tried.n == 0) {
        str_add(&cli->out, "no single setting that was tried shortens the step\n");
        return;
    }
    static const char *const heads[] = {"  setting", ">step", ">change", ">memory"};
    str_add(&cli->out, "settings that shorten the step, each simulated on its own\n");
    Table t = table_in(cli->arena, 4, heads);
    for (uint32_t i = 0; i < e->tried.n; i++) {
        const Tried *row = &e->tried.at[i];
        table_cell(&t, "  --set %s", row->set);
        table_cell(&t, "%s", format_time(cli->arena, row->step_ps));
        table_cell(&t, "%s", format_ratio(cli->arena, (double)row->step_ps / (double)r->step_ps));
        table_cell(&t, "%s", str_bytes(cli->arena, row->bytes));
    }
    table_print(&t, &cli->out);
}

static json_t *parts_json(const Explained *e)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < e->report.path.n; i++) {
        const PathPart *part = &e->report.path.at[i];
        json_t *row = json_object();
        json_count(row, "rank", part->rank);
        json_count(row, "pc", part->pc);
        json_put(row, "host", json_boolean(part->host));
        json_put(row, "data", json_boolean(part->data));
        json_count(row, "from_ps", (uint64_t)part->from_ps);
        json_count(row, "to_ps", (uint64_t)part->to_ps);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *sums_json(Cli *cli, const PlanFile *file, const Explained *e)
{
    json_t *list = json_array();
    for (uint32_t i = 0, n = 0; i < e->report.path_sums.n; i++) {
        const PathSum *sum = &e->report.path_sums.at[i];
        json_t *row = json_object();
        json_text(row, "what", path_name(cli, file, sum));
        json_count(row, "n", sum->n);
        json_count(row, "time_ps", (uint64_t)sum->time_ps);
        if (sum->comm && n < MOST_FREED)
            json_count(row, "step_without_ps", (uint64_t)e->without_ps[n++]);
        json_array_append_new(list, row);
    }
    return list;
}

static void explain_json(Cli *cli, const PlanFile *file, const Explained *e)
{
    json_t *root = json_object();
    json_put(root, "path", parts_json(e));
    json_put(root, "by_kind", sums_json(cli, file, e));
    json_t *stages = json_array(), *kinds = json_array(), *tried = json_array();
    for (uint32_t i = 0; i < e->report.stages.n; i++) {
        const StageRow *stage = &e->report.stages.at[i];
        json_t *row = json_object();
        json_count(row, "role", stage->program);
        json_count(row, "rank", stage->rank);
        json_count(row, "compute_ps", (uint64_t)stage->compute_ps);
        json_count(row, "exposed_ps", (uint64_t)stage->exposed_ps);
        json_count(row, "waiting_ps", (uint64_t)stage->bubble_ps);
        json_count(row, "bytes", stage->bytes);
        json_array_append_new(stages, row);
    }
    for (uint32_t i = 0; i < e->report.kinds.n; i++) {
        const KindRow *kind = &e->report.kinds.at[i];
        json_t *row = json_object();
        json_text(row, "op", op_info(kind->op)->name);
        json_count(row, "n", kind->n);
        json_count(row, "time_ps", (uint64_t)kind->time_ps);
        json_number(row, "flops", kind->flops);
        json_number(row, "bytes", kind->bytes);
        json_number(row, "of_peak", kind->of_peak);
        json_number(row, "of_memory", kind->of_memory);
        json_text(row, "bound", bound_of(kind));
        json_array_append_new(kinds, row);
    }
    for (uint32_t i = 0; i < e->tried.n; i++) {
        json_t *row = json_object();
        json_text(row, "set", e->tried.at[i].set);
        json_count(row, "step_ps", (uint64_t)e->tried.at[i].step_ps);
        json_count(row, "bytes", e->tried.at[i].bytes);
        json_array_append_new(tried, row);
    }
    json_put(root, "stages", stages);
    json_put(root, "kinds", kinds);
    json_put(root, "settings", tried);
    json_put(cli->json, "explain", root);
}

void explain_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how)
{
    Explained e;
    memset(&e, 0, sizeof e);
    if (!gather(cli, file, store, how, &e)) return;
    if (cli->json != NULL) {
        explain_json(cli, file, &e);
        return;
    }
    path_text(cli, file, &e);
    stages_text(cli, file, &e);
    kinds_text(cli, &e);
    tried_text(cli, &e);
}
