/* Prints a prediction, as text for people or as JSON for programs. */
#include <inttypes.h>
#include <string.h>

#include "cli/predict.h"

typedef struct AxisSum {
    const char *axes;
    uint64_t bytes, n;
    Ps total_ps, exposed_ps;
} AxisSum;
typedef LIST(AxisSum) AxisSums;

static AxisSums sum_by_axis(Cli *cli, const RunRecord *record)
{
    AxisSums sums = {NULL, 0, 0};
    for (uint32_t i = 0; i < record->collectives.n; i++) {
        const CollectiveRow *row = &record->collectives.at[i];
        uint32_t k = 0;
        while (k < sums.n && strcmp(sums.at[k].axes, row->axes) != 0) k++;
        if (k == sums.n) list_push(cli->arena, &sums, ((AxisSum){.axes = row->axes}));
        sums.at[k].bytes += row->bytes * row->n;
        sums.at[k].n += row->n;
        sums.at[k].total_ps += row->total_ps;
        sums.at[k].exposed_ps += row->exposed_ps;
    }
    return sums;
}

static void communication_text(Cli *cli, const RunRecord *record)
{
    static const char *const heads[] = {"axis", ">collectives", ">bytes", ">busy", ">exposed"};
    AxisSums sums = sum_by_axis(cli, record);
    if (sums.n == 0) return;
    str_add(&cli->out, "communication of the slowest rank, a step\n");
    Table t = table_in(cli->arena, 5, heads);
    for (uint32_t i = 0; i < sums.n; i++) {
        table_cell(&t, "%s", sums.at[i].axes);
        table_cell(&t, "%s", str_count(cli->arena, sums.at[i].n));
        table_cell(&t, "%s", str_bytes(cli->arena, sums.at[i].bytes));
        table_cell(&t, "%s", format_time(cli->arena, sums.at[i].total_ps));
        table_cell(&t, "%s", format_time(cli->arena, sums.at[i].exposed_ps));
    }
    table_print(&t, &cli->out);
}

static uint64_t category_bytes(const RunRecord *record, uint32_t program, Category category)
{
    for (uint32_t i = 0; i < record->memory.n; i++) {
        const MemoryRow *row = &record->memory.at[i];
        if (row->program == program && row->category == category) return row->bytes;
    }
    return 0;
}

static void memory_text(Cli *cli, const PlanFile *file, const RunRecord *record)
{
    const Plan *plan = file->plan;
    const char **heads = arena_array(cli->arena, plan->programs.n + 1, sizeof *heads);
    heads[0] = "category";
    for (uint32_t i = 0; i < plan->programs.n; i++)
        heads[i + 1] = arena_print(cli->arena, ">role %" PRIu32, i);
    str_add(&cli->out, "memory at the peak of each role\n");
    Table t = table_in(cli->arena, plan->programs.n + 1, heads);
    for (int c = 1; c < CATEGORY_COUNT; c++) {
        uint64_t most = 0;
        for (uint32_t i = 0; i < plan->programs.n; i++)
            most |= category_bytes(record, i, (Category)c);
        if (most == 0) continue;
        table_cell(&t, "%s", category_name((Category)c));
        for (uint32_t i = 0; i < plan->programs.n; i++)
            table_cell(&t, "%s", str_bytes(cli->arena, category_bytes(record, i, (Category)c)));
    }
    table_cell(&t, "unused");
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        uint64_t live = 0;
        for (int c = 1; c < CATEGORY_COUNT; c++) live += category_bytes(record, i, (Category)c);
        uint64_t all = plan->programs.at[i].bytes;
        table_cell(&t, "%s", str_bytes(cli->arena, all > live ? all - live : 0));
    }
    table_cell(&t, "all");
    for (uint32_t i = 0; i < plan->programs.n; i++)
        table_cell(&t, "%s", str_bytes(cli->arena, plan->programs.at[i].bytes));
    if (host_bytes_of(plan) > 0) {
        table_cell(&t, "host memory");
        for (uint32_t i = 0; i < plan->programs.n; i++)
            table_cell(&t, "%s", str_bytes(cli->arena, plan->programs.at[i].host_bytes));
    }
    table_print(&t, &cli->out);
}

/* If the plan names a framework, prints the memory that the framework would hold. */
static void held_text(Cli *cli, const PlanFile *file, Held held)
{
    const Runtime *runtime = &file->config.runtime;
    if (runtime->name == NULL) return;
    str_print(&cli->out, "runtime     %s: %s allocated, %s reserved, %s for the process: %s\n",
              runtime->name, str_bytes(cli->arena, held.allocated_bytes),
              str_bytes(cli->arena, held.reserved_bytes), str_bytes(cli->arena, held.process_bytes),
              held.fits ? paint(cli, PAINT_good, "fits") : paint(cli, PAINT_bad, "DOES NOT FIT"));
}

/* Returns the time in which the data loader of a rank reads the sequences of a whole step. */
static Ps input_of(const PlanFile *file)
{
    StepInfo step = file->plan->step;
    if (file->microbatches > 0) step.global_batch = step.micro_batch * file->microbatches;
    return sim_input_ps(file->plan, &step, &file->config.runtime);
}

static void step_text(Cli *cli, const PlanFile *file, const RunRecord *r)
{
    Arena *arena = cli->arena;
    const Ps idle = r->step_ps - r->compute_ps - r->exposed_ps, input = input_of(file);
    const bool waits = input > 0 && input == r->step_ps;
    const bool host = host_bytes_of(file->plan) > 0 || file->config.runtime.name != NULL;
    str_print(
        &cli->out,
        "step        %s  (compute %s, exposed communication %s, waiting for %sother ranks%s %s)\n",
        paint(cli, PAINT_strong, format_time(arena, r->step_ps)), format_time(arena, r->compute_ps),
        format_time(arena, r->exposed_ps), waits ? "data, " : "", host ? " and the host" : "",
        format_time(arena, idle > 0 ? idle : 0));
    if (input > 0)
        str_print(&cli->out, "loader      %s to read a rank's sequences of a step, %s\n",
                  format_time(arena, input), waits ? "which sets it" : "hidden");
}

void run_report(Cli *cli, int64_t id, bool found, const char *calibration)
{
    cli->run_line = cli->out.n;
    str_print(&cli->out, "run         %" PRId64 " in %s%s  (calibration %s)\n", id, cli->options.db,
              found ? ": found, not simulated again" : "", calibration);
    cli->run_line_end = cli->out.n;
}

/* Returns words that say how --imbalance found the rows of each rank. */
static const char *counts_text(Cli *cli, const PlanFile *file)
{
    const char *text = cli->options.scenario.imbalance_text;
    if (text == NULL) return NULL;
    if (strcmp(text, "drawn") == 0)
        return arena_print(cli->arena, "drawn with seed %" PRIu64, file->config.seed);
    return arena_print(cli->arena, "counted in %s", str_path(cli->arena, text));
}

static void report_text(Cli *cli, const PlanFile *file, const Prediction *p)
{
    const RunRecord *r = &p->record;
    Arena *arena = cli->arena;
    step_text(cli, file, r);
    double per_device = r->tokens_per_s_per_device;
    if (r->scenario != NULL && r->scenario[0] != 0)
        str_print(&cli->out, "scenario    %s\n",
                  scenario_said(arena, r->scenario, counts_text(cli, file)));
    const char *counted = plan_file_counts(file);
    str_print(&cli->out, "throughput  %s %s/s, %s %s/s/%s\n",
              str_count(arena, (uint64_t)(per_device * r->n_ranks + 0.5)), counted,
              str_count(arena, (uint64_t)(per_device + 0.5)), counted, plan_file_device(file));
    str_print(&cli->out, "MFU         %.1f %% = %s\n", r->mfu * 100, r->mfu_formula);
    if (cli->options.sim.mfu != NULL) mfu_report(cli, file, p);
    held_text(cli, file, p->held);
    communication_text(cli, r);
    memory_text(cli, file, r);
    trust_report(cli, &p->trust);
    if (p->id == 0)
        str_print(&cli->out, "calibration %s\n", r->calibration);
    else
        run_report(cli, p->id, p->found, r->calibration);
}

static void report_json(Cli *cli, const PlanFile *file, const Prediction *p)
{
    const RunRecord *r = &p->record;
    json_t *root = cli->json;
    json_count(root, "step_ps", (uint64_t)r->step_ps);
    json_count(root, "compute_ps", (uint64_t)r->compute_ps);
    json_count(root, "exposed_ps", (uint64_t)r->exposed_ps);
    json_number(root, "tokens_per_s_per_device", r->tokens_per_s_per_device);
    json_number(root, "tokens_per_s", r->tokens_per_s_per_device * r->n_ranks);
    json_text(root, "scenario", r->scenario != NULL ? r->scenario : "");
    json_number(root, "mfu", r->mfu);
    json_text(root, "mfu_formula", r->mfu_formula);
    if (cli->options.sim.mfu != NULL) mfu_report(cli, file, p);
    json_t *list = json_array();
    AxisSums sums = sum_by_axis(cli, r);
    for (uint32_t i = 0; i < sums.n; i++) {
        json_t *row = json_object();
        json_text(row, "axis", sums.at[i].axes);
        json_count(row, "collectives", sums.at[i].n);
        json_count(row, "bytes", sums.at[i].bytes);
        json_count(row, "busy_ps", (uint64_t)sums.at[i].total_ps);
        json_count(row, "exposed_ps", (uint64_t)sums.at[i].exposed_ps);
        json_array_append_new(list, row);
    }
    json_put(root, "communication", list);
    list = json_array();
    for (uint32_t i = 0; i < file->plan->programs.n; i++) {
        json_t *row = json_object();
        json_count(row, "role", i);
        json_count(row, "bytes", file->plan->programs.at[i].bytes);
        for (int c = 1; c < CATEGORY_COUNT; c++)
            json_count(row, category_name((Category)c), category_bytes(r, i, (Category)c));
        json_array_append_new(list, row);
    }
    json_put(root, "memory", list);
    if (file->config.runtime.name != NULL) {
        const Held held = p->held;
        json_text(root, "runtime", file->config.runtime.name);
        json_count(root, "input_ps", (uint64_t)input_of(file));
        json_count(root, "allocated_bytes", held.allocated_bytes);
        json_count(root, "held_bytes", held.reserved_bytes);
        json_count(root, "process_bytes", held.process_bytes);
        json_put(root, "held_fits", json_boolean(held.fits));
    }
    json_text(root, "calibration", r->calibration);
    json_put(root, "trust", trust_json(&p->trust));
    const CostCounts *counts = &p->trust.counts;
    json_t *costs = json_object();
    json_count(costs, "kernels_measured", counts->kernels_measured);
    json_count(costs, "kernels_modelled", counts->kernels_modelled);
    json_count(costs, "communications_measured", counts->collectives_measured);
    json_count(costs, "communications_modelled", counts->collectives_modelled);
    json_put(root, "costs", costs);
    json_text(root, "engine", r->engine);
    json_count(root, "seed", r->seed);
    json_put(root, "run", p->id != 0 ? json_integer(p->id) : json_null());
    json_put(root, "found", json_boolean(p->found));
}

void prediction_report(Cli *cli, const PlanFile *file, const Prediction *p)
{
    if (cli->json != NULL)
        report_json(cli, file, p);
    else
        report_text(cli, file, p);
}
