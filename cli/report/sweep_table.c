/* Prints the points of a sweep, the best first. Points that did not fit follow, sorted by how much
 * they exceed the memory. If no point fits, this second list is the answer. */
#include "cli/sweep/sweep.h"
#include "planner/base/plural.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum RankBy { BY_tokens, BY_gpu, BY_memory, BY_usd, BY_energy, BY_score, BY_COUNT } RankBy;
static const char *by_names[BY_COUNT] = {"tokens", "gpu", "memory", "usd", "energy", NULL};

/* global, because qsort gives its function no argument, and a process has only one sweep */
static RankBy sort_by;

bool sweep_order(Cli *cli, const char *score)
{
    const char *name = cli->options.sweep.by;
    by_names[BY_score] = score;
    sort_by = score != NULL ? BY_score : BY_tokens;
    if (name == NULL) return true;
    for (uint32_t i = 0; i < BY_score; i++)
        if (strcmp(by_names[i], name) == 0) {
            sort_by = (RankBy)i;
            return true;
        }
    cli_error(cli, FAULT_usage, "option-value",
              "--by %s: tokens, gpu, memory, usd or energy is expected", name);
    return false;
}

bool sweep_ranks_by_tokens(void)
{
    return sort_by == BY_tokens;
}

/* Returns the number by which rows are ranked. A larger one is better. */
static double merit(const SweepRow *row, RankBy by)
{
    if (by == BY_gpu) return row->tokens_per_s_per_device;
    if (by == BY_memory) return -(double)row->peak_bytes;
    if (by == BY_score) return -row->score;
    if (by == BY_usd) return row->usd_per_token > 0 ? 1 / row->usd_per_token : 0;
    if (by == BY_energy) return row->joules_per_token > 0 ? 1 / row->joules_per_token : 0;
    return row->tokens_per_s;
}

static int by_merit(const void *a, const void *b)
{
    const SweepRow *x = a, *y = b;
    if (x->status != y->status) return x->status < y->status ? -1 : 1;
    if (x->unmet != y->unmet) return x->unmet ? 1 : -1;
    if (x->status == SWEEP_too_large && x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    double left = merit(x, sort_by), right = merit(y, sort_by);
    if (left == right) /* true for example if no row has a price */
        left = x->tokens_per_s, right = y->tokens_per_s;
    if (x->status == SWEEP_fits && left != right) return left > right ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Returns the order in which rows can be ranked. It is that of --by, or tokens per second if no row
 * has the number that --by needs. */
static RankBy possible_order(const SweepRows *rows)
{
    const bool lacks =
        (sort_by == BY_usd && !rows_priced(rows)) || (sort_by == BY_energy && !rows_powered(rows));
    return lacks ? BY_tokens : sort_by;
}

SweepRow *sweep_best(const SweepRows *rows)
{
    const RankBy asked = sort_by;
    SweepRow *best = NULL;
    sort_by = possible_order(rows);
    for (uint32_t i = 0; i < rows->n; i++)
        if (best == NULL || by_merit(&rows->at[i], best) < 0) best = &rows->at[i];
    sort_by = asked;
    return best != NULL && best->status == SWEEP_fits && !best->unmet ? best : NULL;
}

static uint32_t count(const SweepRows *rows, SweepStatus status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++) n += rows->at[i].status == status;
    return n;
}

static uint32_t count_unmet(const SweepRows *rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++) n += rows->at[i].unmet;
    return n;
}

const char *sweep_settings(Arena *arena, const SweepKeys *keys, const char *const *values,
                           const char *before)
{
    Str text = str_in(arena);
    for (uint32_t k = 0; k < keys->n; k++)
        str_print(&text, "%s%s%s=%s", k > 0 ? " " : "", before, keys->at[k].key, values[k]);
    return str_text(&text);
}

void points_list(Cli *cli, const char *key, const TextList *settings, uint32_t n)
{
    json_t *rows = cli->json != NULL ? json_array() : NULL;
    for (uint32_t i = 0; i < n; i++) {
        const char *text = point_text(cli->arena, &settings[i], "--set ");
        if (rows != NULL)
            json_array_append_new(rows, json_string(text));
        else
            str_print(&cli->out, "%s\n", text[0] != 0 ? text : "the plan itself");
    }
    if (rows != NULL) json_put(cli->json, key, rows);
}

const char *point_text(Arena *arena, const TextList *settings, const char *before)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < settings->n; i++)
        str_print(&text, "%s%s%s", i > 0 ? " " : "", before, settings->at[i]);
    return str_text(&text);
}

void energy_note(Cli *cli, const SweepRows *rows)
{
    if (rows_powered(rows))
        str_print(&cli->out,
                  "energy      if each board takes its power limit all the time; PUE %.4g\n",
                  cli->options.pue);
}

void price_note(Cli *cli, const SweepRows *rows)
{
    if (rows_powered(rows) && !rows_priced(rows))
        str_add(&cli->out,
                "price       unknown: no price of a GPU hour is known; --price USD gives one\n");
}

/* The columns of this table in addition to the columns of every sweep. */
typedef struct Columns {
    bool price, days, usd, joules, mwh, score;
} Columns;

static Columns columns_of(const Cli *cli, const SweepRows *rows)
{
    const bool priced = rows_priced(rows), powered = rows_powered(rows),
               days = cli->options.tokens > 0;
    return (Columns){.price = priced,
                     .days = days,
                     .usd = days && priced,
                     .joules = powered && (sort_by == BY_energy || cli->options.pue_text != NULL),
                     .mwh = days && powered,
                     .score = by_names[BY_score] != NULL};
}

static uint32_t add_heads(Cli *cli, const SweepRows *rows, const Columns *columns,
                          const char **heads)
{
    Arena *arena = cli->arena;
    const char *counts = rows_count(rows);
    const char *const rate = arena_print(arena, ">%s/s", counts),
                      *each = arena_print(arena, ">per %s", rows_device(rows));
    const char *const always[] = {">ranks", ">step",    rate,      each,
                                  ">MFU",   ">exposed", ">memory", ">run"};
    /* length of the unit's name without its plural: "token" */
    const int one = (int)strlen(counts) - 1;
    uint32_t n = 0;
    while (n < sizeof always / sizeof *always) heads[n] = always[n], n++;
    if (columns->price) heads[n++] = arena_print(arena, ">USD/M%.*s", one, counts);
    if (columns->days) heads[n++] = ">days";
    if (columns->usd) heads[n++] = ">USD";
    if (columns->joules) heads[n++] = arena_print(arena, ">J/%.*s", one, counts);
    if (columns->mwh) heads[n++] = ">MWh";
    if (columns->score) heads[n++] = arena_print(arena, ">%s", by_names[BY_score]);
    return n;
}

/* Adds a cell with a number, or "-" if the number is not known. */
static void number_cell(Table *t, double value)
{
    if (value > 0)
        table_cell(t, value < .01 ? "%.2g" : "%.3f", value);
    else
        table_cell(t, "-");
}

static void ranking_row(Cli *cli, Table *t, const Columns *columns, const SweepRow *r)
{
    Arena *arena = cli->arena;
    table_cell(t, "%" PRIu64, r->ranks);
    table_cell(t, "%s", format_time(arena, r->step_ps));
    table_cell(t, "%s", str_count(arena, (uint64_t)(r->tokens_per_s + .5)));
    table_cell(t, "%s", str_count(arena, (uint64_t)(r->tokens_per_s_per_device + .5)));
    table_cell(t, "%.1f %%", 100 * r->mfu);
    table_cell(t, "%s", format_time(arena, r->exposed_ps));
    table_cell(t, "%s", str_bytes(arena, r->peak_bytes));
    table_cell(t, "%s", r->run > 0 ? arena_print(arena, "%" PRIu64, r->run) : "-");
    const double usd = row_usd(cli, r);
    if (columns->price) number_cell(t, 1e6 * r->usd_per_token);
    if (columns->days) table_cell(t, "%.1f", row_days(cli, r));
    if (columns->usd) table_cell(t, "%s", usd > 0 ? str_count(arena, (uint64_t)(usd + .5)) : "-");
    if (columns->joules) number_cell(t, r->joules_per_token);
    if (columns->mwh) number_cell(t, row_mwh(cli, r));
    if (columns->score) table_cell(t, "%.5g", r->score);
}

static void ranking_text(Cli *cli, const SweepKeys *keys, const SweepRows *rows, uint32_t n_fit)
{
    const Columns columns = columns_of(cli, rows);
    const uint32_t limit = cli->options.limit ? cli->options.limit : 20;
    const char **heads = arena_array(cli->arena, keys->n + 14, sizeof *heads);
    for (uint32_t k = 0; k < keys->n; k++)
        heads[k] = arena_print(cli->arena, ">%s%s", k == 0 ? "  " : "", keys->at[k].key);
    const uint32_t n_numbers = add_heads(cli, rows, &columns, heads + keys->n);
    Table t = table_in(cli->arena, keys->n + n_numbers, heads);
    for (uint32_t i = 0; i < n_fit && i < limit; i++) {
        for (uint32_t k = 0; k < keys->n; k++) table_cell(&t, "%s", rows->at[i].values[k]);
        ranking_row(cli, &t, &columns, &rows->at[i]);
    }
    table_print(&t, &cli->out);
    if (n_fit > limit)
        str_print(&cli->out, "  and %" PRIu32 " more (--limit, --csv)\n", n_fit - limit);
    if (columns.joules || columns.mwh) energy_note(cli, rows);
    price_note(cli, rows);
}

/* Lists the points that have one status. `unmet`: lists only points that `require` rejects. */
static void losers_text(Cli *cli, const SweepKeys *keys, const SweepRows *rows, SweepStatus status,
                        bool unmet, const char *title)
{
    const uint32_t limit = cli->options.limit ? cli->options.limit : 20;
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *r = &rows->at[i];
        if (r->status != status || r->unmet != unmet || ++n > limit) continue;
        if (n == 1) str_print(&cli->out, "%s\n", title);
        str_print(&cli->out, "  %s: %s", sweep_settings(cli->arena, keys, r->values, ""),
                  r->error.text);
        if (r->error.rule != NULL) str_print(&cli->out, " [%s]", r->error.rule);
        str_add(&cli->out, "\n");
    }
    if (n > limit) str_print(&cli->out, "  and %" PRIu32 " more (--limit, --csv)\n", n - limit);
}

/* If all points were refused for the same reason, returns one of them; the reason is then reported
 * once, as an error. Otherwise returns NULL. */
static const SweepRow *refused_alike(const SweepRows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *r = &rows->at[i], *first = &rows->at[0];
        if (r->status != SWEEP_refused || r->failed != FAULT_none || r->error.rule == NULL ||
            strcmp(r->error.rule, first->error.rule) != 0 ||
            strcmp(r->error.text, first->error.text) != 0)
            return NULL;
    }
    return rows->n > 0 ? &rows->at[0] : NULL;
}

/* Returns the location for a message about a point. If the message is about the point's own
 * setting, this is the --try or the line of `vary` that gave the setting. */
static Loc place_of(const SweepKeys *keys, Loc loc)
{
    static const char set[] = "--set ";
    const char *file = loc.file;
    if (file == NULL || strncmp(file, set, sizeof set - 1) != 0) return loc;
    file += sizeof set - 1;
    for (uint32_t k = 0; k < keys->n; k++) {
        const size_t n = strlen(keys->at[k].key);
        if (strncmp(file, keys->at[k].key, n) == 0 && file[n] == '=') return keys->at[k].loc;
    }
    return loc;
}

/* Prints once each warning that all compiled points have in common. */
static void print_warnings(Cli *cli, const SweepKeys *keys, const SweepRows *rows)
{
    uint32_t first = 0;
    while (first < rows->n && !row_is_predicted(&rows->at[first])) first++;
    if (first == rows->n) return;
    for (uint32_t w = 0; w < rows->at[first].warnings.n; w++) {
        const Diagnostic *warning = &rows->at[first].warnings.at[w];
        bool shared = true;
        for (uint32_t i = first + 1; i < rows->n && shared; i++)
            shared = !row_is_predicted(&rows->at[i]) || row_has_warning(&rows->at[i], warning);
        if (!shared) continue;
        Diagnostic told = *warning;
        told.loc = place_of(keys, warning->loc);
        diag_add(&cli->diag, told);
    }
}

/* Reports once the error that all n points have in common. */
static void print_refusal(Cli *cli, const SweepKeys *keys, const SweepRow *row, uint32_t n)
{
    Diagnostic told = row->error;
    told.fault = FAULT_input;
    told.loc = place_of(keys, row->error.loc);
    if (n > 1)
        told.text =
            arena_print(cli->arena, "%s (in each of %" PRIu32 " combinations)", told.text, n);
    diag_add(&cli->diag, told);
}

static void report_text(Cli *cli, const SweepKeys *keys, const SweepRows *rows, RankBy by)
{
    const uint32_t n_fit = count(rows, SWEEP_fits), n_large = count(rows, SWEEP_too_large);
    const uint32_t n_unmet = count_unmet(rows), n_good = n_fit - n_unmet;
    str_print(&cli->out, "sweep       %" PRIu32 " plan%s of %s: %" PRIu32 " %s", rows->n,
              str_s(rows->n), str_path(cli->arena, cli->args[0]), n_fit,
              str_verb(n_fit, "fits", "fit"));
    if (n_unmet > 0) str_print(&cli->out, " (%" PRIu32 " short of `require`)", n_unmet);
    const uint32_t n_refused = rows->n - n_fit - n_large;
    str_print(&cli->out, ", %" PRIu32 " %s not, %" PRIu32 " %s refused", n_large,
              str_verb(n_large, "does", "do"), n_refused, str_verb(n_refused, "is", "are"));
    if (n_good > 0)
        str_print(&cli->out, "; best by %s first",
                  by == BY_tokens ? rows_count(rows) : by_names[by]);
    str_add(&cli->out, "\n");
    if (n_good > 0) ranking_text(cli, keys, rows, n_good);
    losers_text(cli, keys, rows, SWEEP_fits, true, "fit, but fall short of `require`");
    losers_text(cli, keys, rows, SWEEP_too_large, false, "do not fit, the nearest miss first");
    if (refused_alike(rows) == NULL) losers_text(cli, keys, rows, SWEEP_refused, false, "refused");
    if (n_good == 0) return;
    str_print(&cli->out, "best        %s\n",
              sweep_settings(cli->arena, keys, rows->at[0].values, "--set "));
    str_print(&cli->out, "trust       %s\n", rows->at[0].trust);
    sweep_print_proven(cli, rows);
    traffic_note(cli, keys, rows);
}

void csv_field(Str *out, const char *text)
{
    if (strpbrk(text, ",\"\n\r") == NULL) {
        str_add(out, text);
        return;
    }
    str_add(out, "\"");
    for (; *text != 0; text++) str_print(out, *text == '"' ? "\"\"" : "%c", *text);
    str_add(out, "\"");
}

const char *sweep_status_name(SweepStatus status)
{
    static const char *const names[] = {[SWEEP_fits] = "fits",
                                        [SWEEP_too_large] = "does-not-fit",
                                        [SWEEP_refused] = "refused",
                                        [SWEEP_bounded] = "bounded"};
    assert(status < sizeof names / sizeof names[0]);
    return names[status];
}

static void report_csv(const Cli *cli, Str *out, const SweepKeys *keys, const SweepRows *rows)
{
    const bool days = cli->options.tokens > 0;
    for (uint32_t k = 0; k < keys->n; k++) {
        csv_field(out, keys->at[k].key);
        str_add(out, ",");
    }
    str_add(out, "status,ranks,step_s,tokens_per_s,tokens_per_s_per_device,mfu,exposed_s,"
                 "peak_bytes,usd_per_token,joules_per_token,run,plan_id,proven,rule,reason");
    if (days) str_add(out, ",days,usd,mwh");
    str_add(out, by_names[BY_score] != NULL ? ",score\n" : "\n");
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *r = &rows->at[i];
        for (uint32_t k = 0; k < keys->n; k++) {
            csv_field(out, r->values[k]);
            str_add(out, ",");
        }
        str_add(out, r->unmet ? "unmet" : sweep_status_name(r->status));
        if (r->status == SWEEP_refused)
            str_add(out, ",,,,,,,,,,,,,");
        else
            str_print(
                out,
                ",%" PRIu64 ",%.9g,%.9g,%.9g,%.6g,%.9g,%" PRIu64 ",%.9g,%.9g,%" PRIu64 ",%s,%d,",
                r->ranks, (double)r->step_ps / 1e12, r->tokens_per_s, r->tokens_per_s_per_device,
                r->mfu, (double)r->exposed_ps / 1e12, r->peak_bytes, r->usd_per_token,
                r->joules_per_token, r->run, r->plan_id, r->proven);
        csv_field(out, r->error.rule != NULL ? r->error.rule : "");
        str_add(out, ",");
        csv_field(out, r->error.text != NULL ? r->error.text : "");
        if (days && r->status == SWEEP_refused) str_add(out, ",,,");
        if (days && r->status != SWEEP_refused)
            str_print(out, ",%.6g,%.9g,%.9g", row_days(cli, r), row_usd(cli, r), row_mwh(cli, r));
        if (by_names[BY_score] != NULL && r->status != SWEEP_fits) str_add(out, ",");
        if (by_names[BY_score] != NULL && r->status == SWEEP_fits)
            str_print(out, ",%.9g", r->score);
        str_add(out, "\n");
    }
}

static json_t *row_json(const Cli *cli, const SweepKeys *keys, const SweepRow *r)
{
    json_t *row = json_object(), *settings = json_object();
    for (uint32_t k = 0; k < keys->n; k++) json_text(settings, keys->at[k].key, r->values[k]);
    json_put(row, "settings", settings);
    json_text(row, "status", r->unmet ? "unmet" : sweep_status_name(r->status));
    if (by_names[BY_score] != NULL)
        json_put(row, "score", r->status == SWEEP_fits ? json_real(r->score) : json_null());
    json_text(row, "rule", r->error.rule);
    json_text(row, "reason", r->error.text);
    if (r->status == SWEEP_refused) return row;
    json_text(row, "plan_id", r->plan_id);
    json_count(row, "ranks", r->ranks);
    json_count(row, "step_ps", (uint64_t)r->step_ps);
    json_count(row, "exposed_ps", (uint64_t)r->exposed_ps);
    json_number(row, "tokens_per_s", r->tokens_per_s);
    json_number(row, "tokens_per_s_per_device", r->tokens_per_s_per_device);
    json_number(row, "mfu", r->mfu);
    json_count(row, "peak_bytes", r->peak_bytes);
    json_put(row, "usd_per_token",
             r->usd_per_token > 0 ? json_real(r->usd_per_token) : json_null());
    json_put(row, "joules_per_token",
             r->joules_per_token > 0 ? json_real(r->joules_per_token) : json_null());
    if (cli->options.tokens > 0) {
        json_put(row, "mwh", r->joules_per_token > 0 ? json_real(row_mwh(cli, r)) : json_null());
        json_number(row, "days", row_days(cli, r));
        json_put(row, "usd", r->usd_per_token > 0 ? json_real(row_usd(cli, r)) : json_null());
    }
    json_put(row, "run", r->run > 0 ? json_integer((json_int_t)r->run) : json_null());
    json_put(row, "proven", json_boolean(r->proven));
    return row;
}

void sweep_report(Cli *cli, const SweepKeys *keys, SweepRows *rows)
{
    /* even without a price the rows are printed, because it took long to compute them */
    const uint32_t n_fit = count(rows, SWEEP_fits);
    const bool unpriced = sort_by == BY_usd && n_fit > 0 && !rows_priced(rows);
    const bool unpowered = sort_by == BY_energy && n_fit > 0 && !rows_powered(rows);
    const RankBy by = sort_by = possible_order(rows);
    qsort(rows->at, rows->n, sizeof *rows->at, by_merit);
    print_warnings(cli, keys, rows);
    if (cli->json != NULL) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < rows->n; i++)
            json_array_append_new(list, row_json(cli, keys, &rows->at[i]));
        json_text(cli->json, "file", cli->args[0]);
        json_text(cli->json, "by", by_names[by]);
        json_count(cli->json, "fit", count(rows, SWEEP_fits));
        json_put(cli->json, "rows", list);
    } else if (cli->options.sweep.csv) {
        report_csv(cli, &cli->out, keys, rows);
    } else {
        report_text(cli, keys, rows, by);
    }
    if (unpriced) {
        cli_error(cli, FAULT_usage, "option-value", "--by usd: no price is known for these GPUs");
        diag_hint(&cli->diag, "--price 2.5 says what a GPU costs an hour, in USD");
    }
    if (unpowered) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--by energy: no power is known for these GPUs");
        diag_hint(&cli->diag, "add for example --set cluster.device.watts=700");
    }
    if (n_fit > count_unmet(rows)) return;
    for (uint32_t i = 0; i < rows->n; i++) /* an error of the system was reported already */
        if (rows->at[i].failed != FAULT_none) return;
    if (n_fit > 0) {
        cli_error(cli, FAULT_infeasible, "nothing-fits",
                  "of %" PRIu32 " combination%s that fit%s, none fulfils `require`", n_fit,
                  str_s(n_fit), str_verb(n_fit, "s", ""));
        return;
    }
    const SweepRow *alike = refused_alike(rows);
    if (alike != NULL) {
        print_refusal(cli, keys, alike, rows->n);
        return;
    }
    cli_error(cli, count(rows, SWEEP_too_large) > 0 ? FAULT_infeasible : FAULT_input,
              "nothing-fits", "of %" PRIu32 " combination%s none fits", rows->n, str_s(rows->n));
}
