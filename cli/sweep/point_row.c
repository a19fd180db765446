/* The answer of a point of a sweep, as JSON: one process writes it, another one reads it. */
#include "cli/sweep/point.h"

void point_prediction(json_t *row, const Cli *cli, const PlanFile *file, const Prediction *p)
{
    const RunRecord *r = &p->record;
    json_text(row, "plan_id", hash_hex(cli->arena, r->plan));
    json_count(row, "ranks", r->n_ranks);
    json_count(row, "peak_bytes", r->peak_bytes);
    json_count(row, "unit_bytes", unit_bytes(r));
    json_count(row, "gathers", unit_gathers(&file->config));
    json_count(row, "run", (uint64_t)p->id);
    json_count(row, "step_ps", (uint64_t)r->step_ps);
    json_count(row, "exposed_ps", (uint64_t)r->exposed_ps);
    double speed = r->tokens_per_s_per_device * r->n_ranks;
    json_number(row, "tokens_per_s", speed);
    json_number(row, "tokens_per_s_per_device", r->tokens_per_s_per_device);
    json_number(row, "mfu", r->mfu);
    json_text(row, "trust", trust_text(cli->arena, &p->trust));
    double usd_per_s = price_of(cli, &file->config.cluster) * r->n_ranks / 3600;
    json_number(row, "usd_per_token", speed > 0 ? usd_per_s / speed : 0);
    json_number(row, "joules_per_token",
                joules_per_token_of(cli, &file->config.cluster, r->tokens_per_s_per_device));
    json_text(row, "counts", plan_file_counts(file));
    json_text(row, "device", plan_file_device(file));
}

void point_status(json_t *row, SweepStatus status, const Diagnostic *error)
{
    json_count(row, "status", status);
    if (error != NULL) json_put(row, "error", diagnostic_json(error));
}

void point_warnings(json_t *row, const Diag *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Diagnostic *item = &d->items.at[i];
        if (item->severity == SEVERITY_warning) json_array_append_new(list, diagnostic_json(item));
    }
    json_put(row, "warnings", list);
}
