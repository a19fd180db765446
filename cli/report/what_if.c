/* tandem sim --what-if: simulates the plan with other settings or hardware. Each change has a row,
 * and the last row has all changes together. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/predict.h"
#include "planner/front/keys/fields.h"

enum { N_HALVINGS = 7 };
static const double FACTOR_MOST = 64, NEAR = 1.01;

/* Short names for keys. `rate`: the value is a speed, so a larger one cannot lengthen the step. */
typedef struct ShortKey {
    const char *word, *key;
    bool rate;
} ShortKey;
static const ShortKey short_keys[] = {
    {"nic", "cluster.nic_bytes_per_s", true},
    {"nvlink", "cluster.intra_bytes_per_s", true},
    {"hbm", "cluster.device.hbm_bytes_per_s", true},
    {"memory", "cluster.device.memory_bytes", false},
    {"nics", "cluster.nics_per_node", false},
    {"nodes", "cluster.nodes", false},
    {"seq", "batch.seq", false},
    {"batch", "batch.global", false},
    {"micro", "batch.micro", false},
};

typedef struct Other {
    const char *text;    /* the change as the user gave it: "nic=2x" */
    const char *setting; /* the setting that it means: "cluster.nic_bytes_per_s=1e11" */
    const char *key;
    double value; /* for a change by a factor: the plan's own value; 0: the change gives a value */
    bool rate;
    bool ranks; /* the change affects the number of ranks or the sizes of the mesh */
} Other;

/* A row of the table. */
typedef struct Row {
    const char *text;
    bool made, fits;
    const char *reason; /* why the row has no numbers; NULL: it has numbers */
    Prediction p;
    uint64_t memory;
    /* the library's name of the row's GPU; NULL: the plan could not be loaded */
    const char *device;
} Row;

typedef struct WhatIf {
    Cli *cli;
    const PlanFile *file;
    Store *store;
    const PredictOptions *how; /* the options with which the unchanged plan was predicted */
    LIST(Other) changes;
} WhatIf;

static const char *scaled(Arena *arena, const char *key, double value, bool whole)
{
    if (whole) return arena_print(arena, "%s=%lld", key, (long long)(value + .5));
    return arena_print(arena, "%s=%.17g", key, value);
}

/* Adds a hint that lists the short names, after the words `hint`, which may be NULL. If the key of
 * a change looks like one of the short names, the hint lists only this one. */
static void hint_short_keys(Cli *cli, const char *key, const char *hint)
{
    enum { N = sizeof short_keys / sizeof *short_keys };
    const char *words[N];
    Str all = str_in(cli->arena);
    for (size_t i = 0; i < N; i++) {
        words[i] = short_keys[i].word;
        str_print(&all, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    const char *near = str_nearest(key, words, N);
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean '%s'?", near);
    else
        diag_hint(&cli->diag, "%s%sshort keys: %s", hint != NULL ? hint : "",
                  hint != NULL ? "; " : "", str_text(&all));
}

/* Reads a change such as "nic=2x" or "parallel.ac=full". */
static bool read_change(WhatIf *w, const char *text)
{
    Cli *cli = w->cli;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == 0)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--what-if %s: KEY=VALUE is expected, as in nic=2x or gpu=B200", text);
    Other c = {.text = str_path(cli->arena, text), .setting = text};
    c.key = arena_copy(cli->arena, text, (size_t)(equals - text));
    for (size_t i = 0; i < sizeof short_keys / sizeof *short_keys; i++)
        if (strcmp(short_keys[i].word, c.key) == 0) {
            c.key = short_keys[i].key;
            c.rate = short_keys[i].rate;
            break;
        }
    c.setting = arena_print(cli->arena, "%s=%s", c.key, equals + 1);
    c.ranks = (strncmp(c.key, "mesh.", 5) == 0 && strcmp(c.key, "mesh.dp_shard") != 0) ||
              strcmp(c.key, "cluster.nodes") == 0 || strcmp(c.key, "cluster.devices_per_node") == 0;
    char *end;
    const double factor = strtod(equals + 1, &end);
    if (end != equals + 1 && strcmp(end, "x") == 0) {
        bool whole = false;
        const bool known = field_number(&w->file->config, c.key, &c.value, &whole);
        if (!known || !(c.value > 0 && factor > 0)) {
            cli_error(cli, FAULT_usage, "option-value",
                      "--what-if %s: the plan has no number %s to multiply", text, c.key);
            hint_short_keys(cli, c.key, "give the value itself, as in mesh.tp=4");
            return false;
        }
        c.setting = scaled(cli->arena, c.key, c.value * factor, whole);
    }
    list_push(cli->arena, &w->changes, c);
    return true;
}

static const Diagnostic *first_error(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault != FAULT_infeasible)
            return &d->items.at[i];
    return NULL;
}

/* Returns a copy of the command with additional settings. */
static Cli with_settings(const WhatIf *w, const TextList *settings)
{
    Cli one = *w->cli;
    one.diag = diag_in(one.arena);
    one.json = NULL;
    one.options.set = (TextList){NULL, 0, 0};
    const TextList *all[] = {&w->cli->options.set, settings};
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < all[l]->n; i++)
            list_push(one.arena, &one.options.set, all[l]->at[i]);
    return one;
}

/* Loads and simulates the plan with additional settings. Stores nothing. */
static Row simulate(WhatIf *w, const char *text, const TextList *settings)
{
    Cli one = with_settings(w, settings);
    Arena *arena = one.arena;
    const PlanOptions quick = {.unproven = true, .script = w->cli->script};
    const PlanOptions options = plan_file_options(&one, &quick);
    Row row = {.text = text};
    PlanFile *file = session_load(w->file->path, &options, arena, &one.diag);
    if (file != NULL) {
        session_identify(file);
        session_fit(file, arena, &one.diag);
        row.device = file->config.cluster.device.name;
        PredictOptions how = *w->how;
        how.cluster = &file->config.cluster;
        how.keep = false;
        row.made = predict(&one, file, w->store, &how, true, &row.p);
        if (row.made) predict_fits(&one, file, &row.p);
        const uint64_t held = row.p.held.process_bytes;
        row.memory = held > 0 ? held : row.p.record.peak_bytes;
        row.fits = one.diag.n_errors == 0;
    }
    const Diagnostic *error = first_error(&one.diag);
    row.made = row.made && error == NULL;
    row.reason = error != NULL ? error->text : NULL;
    return row;
}

/* Simulates one change, or all of them together. If the mesh then does not use all ranks, dp_shard
 * gets the ranks that remain. */
static Row simulate_change(WhatIf *w, const char *text, const TextList *settings, bool ranks)
{
    const Row row = simulate(w, text, settings);
    bool says = false;
    for (uint32_t i = 0; i < settings->n; i++)
        says = says || strncmp(settings->at[i], "mesh.dp_shard=", 14) == 0;
    if (row.made || !ranks || says) return row;
    TextList more = {NULL, 0, 0};
    for (uint32_t i = 0; i < settings->n; i++) list_push(w->cli->arena, &more, settings->at[i]);
    list_push(w->cli->arena, &more, "mesh.dp_shard=-1");
    return simulate(w, text, &more);
}

static Row with_factor(WhatIf *w, const Other *c, double factor)
{
    TextList list = {NULL, 0, 0};
    list_push(w->cli->arena, &list, scaled(w->cli->arena, c->key, c->value * factor, false));
    return simulate(w, c->text, &list);
}

/* Returns the smallest factor whose step is at most 1 % longer than the step with FACTOR_MOST. 0:
 * unknown. */
static double enough(WhatIf *w, const Other *c)
{
    if (!c->rate || c->value <= 0) return 0;
    const Row limit = with_factor(w, c, FACTOR_MOST);
    if (!limit.made) return 0;
    double low = 1 / FACTOR_MOST, high = FACTOR_MOST;
    for (int i = 0; i < N_HALVINGS; i++) {
        const double middle = sqrt(low * high);
        const Row row = with_factor(w, c, middle);
        if (!row.made) return 0;
        if ((double)row.p.record.step_ps <= NEAR * (double)limit.p.record.step_ps)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static double speed_of(const Row *row)
{
    return row->p.record.tokens_per_s_per_device;
}

static json_t *row_json(const Row *row, double price, double factor, const Row *base)
{
    json_t *out = json_object();
    json_text(out, "what_if", row->text);
    json_text(out, "reason", row->reason);
    if (!row->made) return out;
    json_count(out, "ranks", row->p.record.n_ranks);
    json_count(out, "step_ps", (uint64_t)row->p.record.step_ps);
    json_number(out, "tokens_per_s", speed_of(row) * row->p.record.n_ranks);
    json_number(out, "tokens_per_s_per_device", speed_of(row));
    json_number(out, "mfu", row->p.record.mfu);
    json_count(out, "peak_bytes", row->memory);
    json_put(out, "fits", json_boolean(row->fits));
    json_put(out, "break_even_usd",
             price > 0 ? json_real(price * speed_of(row) / speed_of(base)) : json_null());
    json_put(out, "enough", factor > 0 ? json_real(factor) : json_null());
    return out;
}

static void row_text(Cli *cli, Table *t, const Row *row, double price, double factor,
                     const Row *base)
{
    Arena *arena = cli->arena;
    if (strncmp(row->text, "gpu=", 4) == 0 && row->device != NULL)
        /* a name such as "H100" may stand for several products, so the row names one */
        table_cell(t, "  gpu=%s", row->device);
    else
        table_cell(t, "  %s", row->text);
    if (!row->made) {
        for (int i = 0; i < 7; i++) table_cell(t, "-");
        return;
    }
    const double ratio = speed_of(row) / speed_of(base);
    table_cell(t, "%s", format_time(arena, row->p.record.step_ps));
    table_cell(t, "%s", str_count(arena, (uint64_t)(speed_of(row) + .5)));
    table_cell(t, "%s", row == base ? "" : format_ratio(arena, ratio));
    table_cell(t, "%.1f %%", 100 * row->p.record.mfu);
    table_cell(t, "%s%s", str_bytes(arena, row->memory), row->fits ? "" : ", DOES NOT FIT");
    table_cell(t, "%s", price > 0 ? arena_print(arena, "%.2f", price * ratio) : "-");
    table_cell(t, "%s", factor > 0 ? arena_print(arena, "%.2gx", factor) : "");
}

static void report(WhatIf *w, const Row *rows, const double *factors, uint32_t n)
{
    Cli *cli = w->cli;
    const char *const each = arena_print(cli->arena, ">per %s", plan_file_device(w->file));
    const char *const heads[] = {"  what if", ">step",   each,          ">change",
                                 ">MFU",      ">memory", ">pays up to", ">useful up to"};
    const double price = price_of(cli, &w->file->config.cluster);
    Table t = table_in(cli->arena, 8, heads);
    json_t *list = cli->json != NULL ? json_array() : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (list != NULL)
            json_array_append_new(list, row_json(&rows[i], price, factors[i], &rows[0]));
        else
            row_text(cli, &t, &rows[i], price, factors[i], &rows[0]);
    }
    if (list != NULL) {
        json_put(cli->json, "what_if", list);
        return;
    }
    if (price > 0)
        str_print(
            &cli->out,
            "pays up to    the price of a GPU hour, in USD, at which the same %s cost as much as "
            "before\n",
            plan_file_counts(w->file));
    else
        str_add(&cli->out,
                "pays up to    unknown: no price of a GPU hour is known; --price USD gives one\n");
    str_add(&cli->out,
            "useful up to  the least factor that gives 99 % of the speed of any larger factor\n");
    table_print(&t, &cli->out);
    for (uint32_t i = 0; i < n; i++)
        if (!rows[i].made)
            str_print(&cli->out, "  %s: %s\n", rows[i].text,
                      rows[i].reason != NULL ? rows[i].reason : "no prediction");
}

/* Returns true if the error means that no plan can have the setting. In that case the key does not
 * exist, or its value is an unknown word or of a wrong type. */
static bool is_mistake(const Diagnostic *error)
{
    return strncmp(error->rule, "unknown-", 8) == 0 || strcmp(error->rule, "wrong-type") == 0;
}

/* Loads the plan with the changed setting. Returns false after an error if no plan can have this
 * setting. If only this plan refuses it, for example because a size does not divide, returns true,
 * and the row of the setting shows the reason. */
static bool check_change(const WhatIf *w, const Other *change)
{
    TextList own = {NULL, 0, 0};
    list_push(w->cli->arena, &own, change->setting);
    Cli one = with_settings(w, &own);
    const PlanOptions quick = {.unproven = true, .script = w->cli->script};
    const PlanOptions options = plan_file_options(&one, &quick);
    Config *config = arena_alloc(one.arena, sizeof *config);
    Graph graph;
    if (session_read(w->file->path, &options, one.arena, config, &graph, &one.diag)) return true;
    const Diagnostic *error = first_error(&one.diag);
    if (error == NULL || !is_mistake(error)) return true;
    cli_error(w->cli, FAULT_usage, error->rule, "--what-if %s: %s", change->text, error->text);
    if (strcmp(error->rule, "unknown-key") == 0 && strchr(change->key, '.') == NULL)
        hint_short_keys(w->cli, change->key, error->hint);
    else if (error->hint != NULL)
        diag_hint(&w->cli->diag, "%s", error->hint);
    return false;
}

bool what_if_check(Cli *cli, const PlanFile *file)
{
    WhatIf w = {.cli = cli, .file = file};
    const TextList *wanted = &cli->options.sim.what_if;
    bool fine = true;
    for (uint32_t i = 0; i < wanted->n; i++) fine = read_change(&w, wanted->at[i]) && fine;
    for (uint32_t i = 0; i < w.changes.n; i++) fine = check_change(&w, &w.changes.at[i]) && fine;
    return fine;
}

void what_if_report(Cli *cli, const PlanFile *file, Store *store, const PredictOptions *how)
{
    WhatIf w = {.cli = cli, .file = file, .store = store, .how = how};
    const TextList *wanted = &cli->options.sim.what_if;
    for (uint32_t i = 0; i < wanted->n; i++)
        if (!read_change(&w, wanted->at[i])) return;
    const uint32_t most = w.changes.n + 2;
    Row *rows = arena_array(cli->arena, most, sizeof *rows);
    double *factors = arena_array(cli->arena, most, sizeof *factors);
    TextList all = {NULL, 0, 0};
    uint32_t n = 0;
    bool ranks = false;
    rows[n++] = simulate(&w, "as it is", &all);
    if (!rows[0].made) return; /* the errors of the unchanged plan were already reported */
    for (uint32_t i = 0; i < w.changes.n; i++) {
        const Other *c = &w.changes.at[i];
        TextList own = {NULL, 0, 0};
        list_push(cli->arena, &own, c->setting);
        list_push(cli->arena, &all, c->setting);
        factors[n] = enough(&w, c);
        rows[n++] = simulate_change(&w, c->text, &own, c->ranks);
        ranks = ranks || c->ranks;
    }
    if (w.changes.n > 1) rows[n++] = simulate_change(&w, "all together", &all, ranks);
    report(&w, rows, factors, n);
}
