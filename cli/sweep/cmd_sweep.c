/* tandem sweep: every combination of settings, each loaded, compiled, proven and simulated as `sim`
 * would. Every process stores its predictions as it makes them, so one that is ended loses nothing
 * and finds them again. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/predict.h"
#include "cli/sweep/jobs.h"
#include "cli/sweep/sweep.h"
#include "planner/base/log.h"

enum { MOST_PLANS = 10000 };

typedef struct Sweep {
    const Cli *cli;
    SweepKeys keys;
    uint32_t n_plans;
} Sweep;

static bool read_keys(Cli *cli, Sweep *sweep)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < cli->options.try_.n; i++) {
        const char *text = cli->options.try_.at[i], *at = strchr(text, '=');
        if (at == NULL || at == text || at[1] == 0 || strstr(at, ",,") != NULL || at[1] == ',' ||
            at[strlen(at) - 1] == ',')
            return cli_error(cli, FAULT_usage, "option-value",
                             "--try %s: KEY=V1,V2,... is expected", text);
        SweepKey key = {.key = arena_copy(cli->arena, text, (size_t)(at - text))};
        for (uint32_t k = 0; k < sweep->keys.n; k++)
            if (strcmp(sweep->keys.at[k].key, key.key) == 0)
                return cli_error(cli, FAULT_usage, "option-value", "--try %s is given twice",
                                 key.key);
        while (*at != 0) {
            size_t length = strcspn(at + 1, ",");
            list_push(cli->arena, &key.values, arena_copy(cli->arena, at + 1, length));
            at += 1 + length;
        }
        list_push(cli->arena, &sweep->keys, key);
        n *= key.values.n;
        if (n > MOST_PLANS)
            return cli_error(cli, FAULT_usage, "option-value",
                             "--try: more than %d combinations; try some first", MOST_PLANS);
    }
    sweep->n_plans = (uint32_t)n;
    return true;
}

static const char **values_of(const SweepKeys *keys, uint32_t index, Arena *arena)
{
    const char **values = arena_array(arena, keys->n + 1, sizeof *values);
    for (uint32_t k = keys->n; k-- > 0;) {
        values[k] = keys->at[k].values.at[index % keys->at[k].values.n];
        index /= keys->at[k].values.n;
    }
    return values;
}

/* The first error that says why there are no numbers; else the first that it does not fit. */
static const Diagnostic *first_error(const Diag *d, bool infeasible)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error &&
            (d->items.at[i].fault == FAULT_infeasible) == infeasible)
            return &d->items.at[i];
    return NULL;
}

static void put_prediction(json_t *row, const Cli *cli, const PlanFile *file, const Prediction *p)
{
    const RunRecord *r = &p->record;
    json_text(row, "plan_id", hash_hex(cli->arena, r->plan));
    json_count(row, "ranks", r->n_ranks);
    json_count(row, "peak_bytes", r->peak_bytes);
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
}

/* One combination, with memory of its own; what it finds is one line of JSON. */
static void predict_one(const Sweep *sweep, uint32_t index, Store *store, FILE *out)
{
    Arena *arena = arena_new();
    Cli one = *sweep->cli;
    one.arena = arena;
    one.diag = diag_in(arena);
    one.out = str_in(arena);
    one.json = NULL;
    one.options.set = (TextList){NULL, 0, 0};
    for (uint32_t i = 0; i < sweep->cli->options.set.n; i++)
        list_push(arena, &one.options.set, sweep->cli->options.set.at[i]);
    const char **values = values_of(&sweep->keys, index, arena);
    for (uint32_t k = 0; k < sweep->keys.n; k++)
        list_push(arena, &one.options.set,
                  arena_print(arena, "%s=%s", sweep->keys.at[k].key, values[k]));
    const PlanOptions load = {.keep_text = store != NULL};
    PlanFile *file = plan_file_load(&one, one.args[0], &load);
    const Diagnostic *error = first_error(&one.diag, false);
    json_t *row = json_object();
    json_count(row, "index", index);
    PredictOptions options;
    Prediction prediction;
    bool refused = file == NULL || error != NULL;
    if (!refused && predict_options(&one, file, store, &options) &&
        predict(&one, file, store, &options, true, &prediction)) {
        const Diagnostic *unstored = first_error(&one.diag, false);
        const Held held = predict_held(&one, file);
        if (held.process_bytes > 0) prediction.record.peak_bytes = held.process_bytes;
        put_prediction(row, &one, file, &prediction);
        if (unstored != NULL) json_text(row, "unstored", unstored->text);
    } else if (!refused) {
        refused = true;
        error = first_error(&one.diag, false);
    }
    if (!refused) error = first_error(&one.diag, true);
    json_count(row, "status",
               refused         ? SWEEP_refused
               : error != NULL ? SWEEP_too_large
                               : SWEEP_fits);
    json_text(row, "rule", error != NULL ? error->rule : NULL);
    json_text(row, "reason", error != NULL ? error->text : NULL);
    json_dumpf(row, out, JSON_COMPACT);
    fputc('\n', out);
    log_debug("%" PRIu32 " of %" PRIu32 ": %s", index + 1, sweep->n_plans,
              error != NULL ? error->text : "fits");
    json_decref(row);
    arena_free(arena);
}

static void work(void *self, const Worker *job)
{
    const Sweep *sweep = self;
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Store *store = NULL;
    if (!sweep->cli->options.dry_run) store = store_open(sweep->cli->options.db, false, &diag);
    for (uint32_t i = job->index; i < sweep->n_plans; i += job->n_jobs) {
        predict_one(sweep, i, store, job->file);
        job_piece_done(job);
    }
    if (diag.n_errors > 0) /* the parent has opened it before, so this is rare */
        fprintf(stderr, "error[%s]: %s\n", diag.items.at[0].rule, diag.items.at[0].text);
    store_close(store);
    arena_free(arena);
}

static double real_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static uint64_t count_of(const json_t *row, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

static const char *text_of(const json_t *row, const char *key, Arena *arena)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? arena_dup(arena, text) : NULL;
}

static void hear(const Sweep *sweep, FILE *file, Arena *arena, SweepRows *rows)
{
    json_t *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        uint32_t index = (uint32_t)count_of(line, "index");
        assert(index < rows->n); /* our own process wrote it */
        rows->at[index] =
            (SweepRow){.index = index,
                       .values = values_of(&sweep->keys, index, arena),
                       .status = (SweepStatus)count_of(line, "status"),
                       .rule = text_of(line, "rule", arena),
                       .reason = text_of(line, "reason", arena),
                       .plan_id = text_of(line, "plan_id", arena),
                       .trust = text_of(line, "trust", arena),
                       .ranks = count_of(line, "ranks"),
                       .peak_bytes = count_of(line, "peak_bytes"),
                       .run = count_of(line, "run"),
                       .step_ps = (Ps)count_of(line, "step_ps"),
                       .exposed_ps = (Ps)count_of(line, "exposed_ps"),
                       .tokens_per_s = real_of(line, "tokens_per_s"),
                       .tokens_per_s_per_device = real_of(line, "tokens_per_s_per_device"),
                       .mfu = real_of(line, "mfu"),
                       .usd_per_token = real_of(line, "usd_per_token"),
                       .unstored = text_of(line, "unstored", arena)};
        json_decref(line);
    }
}

static bool can_start(Cli *cli)
{
    if (session_is_text(cli->args[0]))
        return cli_error(cli, FAULT_usage, "needs-script",
                         "%s is a plan's text: this needs the script", cli->args[0]);
    if (cli->options.try_.n == 0) {
        cli_error(cli, FAULT_usage, "arguments", "tandem sweep needs something to --try");
        diag_hint(&cli->diag, "for example: %s", cli->verb->example);
        return false;
    }
    if (!sweep_order(cli)) return false;
    return cli->options.dry_run || store_ready(cli->options.db, &cli->diag);
}

void cmd_sweep(Cli *cli)
{
    Sweep sweep = {.cli = cli};
    if (!can_start(cli) || !read_keys(cli, &sweep)) return;
    FILE *file[MOST_JOBS] = {NULL};
    uint32_t n_jobs = jobs_number(cli->options.jobs, sweep.n_plans);
    SweepRows rows = {NULL, 0, 0};
    for (uint32_t i = 0; i < sweep.n_plans; i++)
        list_push(cli->arena, &rows, ((SweepRow){.index = UINT32_MAX}));
    bool fine = jobs_fork(cli, n_jobs, sweep.n_plans, work, &sweep, file);
    for (uint32_t i = 0; i < n_jobs && file[i] != NULL; i++) {
        hear(&sweep, file[i], cli->arena, &rows);
        fclose(file[i]);
    }
    if (!fine) return;
    for (uint32_t i = 0; i < rows.n; i++) {
        if (rows.at[i].index == i && rows.at[i].unstored == NULL) continue;
        cli_error(
            cli, FAULT_store, "store-error", "%s was not stored: %s",
            sweep_settings(cli->arena, &sweep.keys, values_of(&sweep.keys, i, cli->arena), ""),
            rows.at[i].index == i ? rows.at[i].unstored : "its process wrote nothing");
        break; /* the others fail alike */
    }
    for (uint32_t i = 0; i < rows.n; i++)
        if (rows.at[i].index != i) return;
    sweep_report(cli, &sweep.keys, &rows);
}
