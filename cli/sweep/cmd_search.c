/* tandem search: lists the possible layouts of a plan and finds the fastest by bounds and
 * simulations. The list is the search's space, and each layout is a point of it. Proves the winners
 * in full, and prints why the other points lost. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/space.h"
#include "planner/base/plural.h"

enum { N_WINNERS = N_BEST, MOST_REASONS = 32 };

typedef struct Search {
    Cli *cli;
    SearchSpace space;
    SweepRows rows;   /* all points in the order in which space_of lists them */
    uint32_t *ranked; /* indices of the points that fit and have numbers, the fastest first */
    uint32_t n_ranked;
} Search;

/* The rows that qsort sorts now; global, because qsort passes its function nothing else. */
static const SweepRows *sorted;

static int by_speed(const void *a, const void *b)
{
    const SweepRow *x = &sorted->at[*(const uint32_t *)a], *y = &sorted->at[*(const uint32_t *)b];
    if (x->step_ps != y->step_ps) return x->step_ps < y->step_ps ? -1 : 1;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Returns true if `index` is the point of the script's own plan and the search has listed another
 * point with an equal plan. Only that other point is then ranked. */
static bool is_proposed(const Search *s, uint32_t index)
{
    if (index != s->space.own) return false;
    const char *id = s->rows.at[index].plan_id;
    for (uint32_t i = 0; i < s->rows.n; i++)
        if (i != index && s->rows.at[i].status == SWEEP_fits &&
            strcmp(s->rows.at[i].plan_id, id) == 0)
            return true;
    return false;
}

static void rank(Search *s)
{
    s->ranked = arena_array(s->cli->arena, s->rows.n + 1, sizeof *s->ranked);
    for (uint32_t i = 0; i < s->rows.n; i++)
        if (s->rows.at[i].status == SWEEP_fits && !is_proposed(s, i)) s->ranked[s->n_ranked++] = i;
    sorted = &s->rows;
    qsort(s->ranked, s->n_ranked, sizeof *s->ranked, by_speed);
}

/* Proves the first N_WINNERS points that are not proven yet, and simulates them as `sim` does. A
 * point whose proof fails loses, and the next point takes its place. Returns how many points were
 * tried. A number below 0 means an error. */
static int64_t prove_first(Search *s)
{
    const uint32_t n = s->n_ranked < N_WINNERS ? s->n_ranked : N_WINNERS;
    PointJob job = {.cli = s->cli, .path = s->cli->args[0]};
    job.settings = arena_array(s->cli->arena, n + 1, sizeof *job.settings);
    for (uint32_t i = 0; i < n; i++)
        if (!s->rows.at[s->ranked[i]].proven)
            job.settings[job.n++] = s->space.settings[s->ranked[i]];
    SweepRows proven = {NULL, 0, 0};
    if (job.n > 0 && !points_decide(&job, &proven)) return -1;
    uint32_t kept = 0, next = 0;
    for (uint32_t i = 0; i < s->n_ranked; i++) {
        SweepRow *row = &s->rows.at[s->ranked[i]];
        if (i < n && !row->proven) {
            *row = proven.at[next++];
            row->index = s->ranked[i];
            row->proven = row->status == SWEEP_fits;
            if (!row->proven) continue;
        }
        s->ranked[kept++] = s->ranked[i];
    }
    s->n_ranked = kept;
    return job.n;
}

static bool prove(Search *s)
{
    int64_t n;
    do n = prove_first(s);
    while (n > 0);
    return n == 0;
}

/* ---- the report ---- */

typedef struct LossReason {
    const char *rule, *example;
    SweepStatus status;
    uint32_t n;
} LossReason;

static int by_number(const void *a, const void *b)
{
    const LossReason *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return strcmp(x->rule, y->rule);
}

static uint32_t reasons_of(const Search *s, LossReason reasons[MOST_REASONS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->rows.n; i++) {
        const SweepRow *row = &s->rows.at[i];
        if (row->status == SWEEP_fits || row->error.rule == NULL) continue;
        uint32_t k = 0;
        while (k < n && strcmp(reasons[k].rule, row->error.rule) != 0) k++;
        if (k == MOST_REASONS) continue;
        if (k == n) reasons[n++] = (LossReason){row->error.rule, row->error.text, row->status, 0};
        reasons[k].n++;
    }
    qsort(reasons, n, sizeof *reasons, by_number);
    return n;
}

static uint32_t count(const Search *s, SweepStatus status, const char *rule)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->rows.n; i++)
        n += s->rows.at[i].status == status &&
             (rule == NULL || strcmp(s->rows.at[i].error.rule, rule) == 0);
    return n;
}

/* Returns true if no faster point needs as little memory as this one. *least is the least memory of
 * all faster points; if this point needs less, its memory becomes *least. */
static bool is_on_front(const SweepRow *row, uint64_t *least)
{
    if (row->peak_bytes >= *least) return false;
    *least = row->peak_bytes;
    return true;
}

static void row_text(Cli *cli, Table *t, const SweepRow *row, const TextList *settings)
{
    table_cell(t, "  %s", format_time(cli->arena, row->step_ps));
    table_cell(t, "%s", str_count(cli->arena, (uint64_t)(row->tokens_per_s + .5)));
    table_cell(t, "%.1f %%", 100 * row->mfu);
    table_cell(t, "%s", str_bytes(cli->arena, row->peak_bytes));
    table_cell(t, "%s", settings->n > 0 ? point_text(cli->arena, settings, "") : "the plan itself");
}

static void report_price(const Search *s, const SweepRow *best)
{
    const double usd = 1e6 * best->usd_per_token;
    if (usd > 0)
        str_print(&s->cli->out, "price       %.3g USD a million %s\n", usd, best->counts);
    else
        price_note(s->cli, &s->rows);
}

static void report_text(const Search *s)
{
    Cli *cli = s->cli;
    const char *const speed = arena_print(cli->arena, ">%s/s", rows_count(&s->rows));
    const char *const heads[] = {">  step", speed, ">MFU", ">memory", "settings"};
    LossReason reasons[MOST_REASONS];
    const uint32_t n = s->n_ranked < N_WINNERS ? s->n_ranked : N_WINNERS;
    str_print(&cli->out,
              "search      %" PRIu32 " plan%s of %s on %" PRIu32 " rank%s: %" PRIu32
              " rejected by memory bound, %" PRIu32 " by time bound, %" PRIu32
              " simulated (%" PRIu32 " %s), %" PRIu32 " refused\n",
              s->rows.n, str_s(s->rows.n), cli->args[0], s->space.n_ranks, str_s(s->space.n_ranks),
              count(s, SWEEP_bounded, "bound-memory"), count(s, SWEEP_bounded, "bound-time"),
              count(s, SWEEP_fits, NULL) + count(s, SWEEP_too_large, NULL),
              count(s, SWEEP_fits, NULL), str_verb(count(s, SWEEP_fits, NULL), "fits", "fit"),
              count(s, SWEEP_refused, NULL));
    if (s->space.n_left_out > 0)
        str_print(&cli->out,
                  "left out    %" PRIu32
                  " plan%s, not tried; --set fixes a setting and makes the space "
                  "smaller\n",
                  s->space.n_left_out, str_s(s->space.n_left_out));
    if (n > 0) str_print(&cli->out, "best, proven in full\n");
    Table t = table_in(cli->arena, 5, heads), front = t;
    for (uint32_t i = 0; i < n; i++)
        row_text(cli, &t, &s->rows.at[s->ranked[i]], &s->space.settings[s->ranked[i]]);
    if (n > 0) table_print(&t, &cli->out);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_ranked; i++)
        if (is_on_front(&s->rows.at[s->ranked[i]], &least))
            row_text(cli, &front, &s->rows.at[s->ranked[i]], &s->space.settings[s->ranked[i]]);
    if (n > 0) {
        str_print(&cli->out, "front of time against memory, of the plans that were simulated\n");
        table_print(&front, &cli->out);
    }
    const uint32_t n_reasons = reasons_of(s, reasons);
    if (n_reasons > 0) str_print(&cli->out, "why others lost\n");
    for (uint32_t i = 0; i < n_reasons; i++)
        str_print(&cli->out, "  %" PRIu32 " [%s], for example: %s\n", reasons[i].n, reasons[i].rule,
                  reasons[i].example);
    if (n == 0) return;
    const TextList *best = &s->space.settings[s->ranked[0]];
    str_print(&cli->out, "best        %s\n",
              best->n > 0 ? point_text(cli->arena, best, "--set ") : "the plan itself");
    report_price(s, &s->rows.at[s->ranked[0]]);
    str_print(&cli->out, "trust       %s\n", s->rows.at[s->ranked[0]].trust);
}

/* Returns the reason why a point is not among the ten best. A point that has numbers was
 * too slow. */
static const char *why_lost(const Search *s, const SweepRow *row, uint32_t place)
{
    if (row->status != SWEEP_fits) return row->error.text;
    if (place == UINT32_MAX) return "a proposed point makes the same plan";
    if (place < N_WINNERS) return "";
    const double best = (double)s->rows.at[s->ranked[0]].step_ps;
    return arena_print(s->cli->arena,
                       "%" PRIu32 " point%s faster; the best step is %.1f %% shorter", place,
                       str_verb(place, " is", "s are"), 100 * (1 - best / (double)row->step_ps));
}

static void csv_row(const Search *s, uint32_t index, uint32_t place)
{
    const SweepRow *row = &s->rows.at[index];
    const bool known = row->status == SWEEP_fits || row->status == SWEEP_too_large;
    const char *settings = point_text(s->cli->arena, &s->space.settings[index], "");
    Str *out = &s->cli->out;
    if (place != UINT32_MAX) str_print(out, "%" PRIu32, place + 1);
    str_print(out, ",%s,", sweep_status_name(row->status));
    if (known)
        str_print(out, "%.9g,%.9g,%.6g,%" PRIu64, (double)row->step_ps / PS_PER_S,
                  row->tokens_per_s, row->mfu, row->peak_bytes);
    else
        str_add(out, ",,,");
    str_print(out, ",%s,", row->error.rule != NULL ? row->error.rule : "");
    csv_field(out, why_lost(s, row, place));
    str_add(out, ",");
    csv_field(out, settings[0] != 0 ? settings : "the plan itself");
    str_add(out, "\n");
}

/* Prints every point: first those that fit, the fastest first, and then the others. */
static void report_csv(const Search *s)
{
    bool *is_ranked = arena_array(s->cli->arena, s->rows.n + 1, sizeof *is_ranked);
    str_add(&s->cli->out, "place,status,step_s,tokens_per_s,mfu,peak_bytes,rule,reason,settings\n");
    for (uint32_t i = 0; i < s->n_ranked; i++) {
        is_ranked[s->ranked[i]] = true;
        csv_row(s, s->ranked[i], i);
    }
    for (uint32_t i = 0; i < s->rows.n; i++)
        if (!is_ranked[i]) csv_row(s, i, UINT32_MAX);
}

static json_t *row_json(const Search *s, uint32_t index)
{
    const SweepRow *row = &s->rows.at[index];
    json_t *out = json_object();
    json_text(out, "settings", point_text(s->cli->arena, &s->space.settings[index], "--set "));
    json_text(out, "plan_id", row->plan_id);
    json_count(out, "step_ps", (uint64_t)row->step_ps);
    json_number(out, "tokens_per_s", row->tokens_per_s);
    json_number(out, "mfu", row->mfu);
    json_count(out, "peak_bytes", row->peak_bytes);
    json_count(out, "run", row->run);
    return out;
}

static void report_json(const Search *s)
{
    json_t *best = json_array(), *front = json_array(), *lost = json_array();
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_ranked; i++) {
        if (i < N_WINNERS) json_array_append_new(best, row_json(s, s->ranked[i]));
        if (is_on_front(&s->rows.at[s->ranked[i]], &least))
            json_array_append_new(front, row_json(s, s->ranked[i]));
    }
    LossReason reasons[MOST_REASONS];
    const uint32_t n = reasons_of(s, reasons);
    for (uint32_t i = 0; i < n; i++) {
        json_t *row = json_object();
        json_text(row, "rule", reasons[i].rule);
        json_count(row, "points", reasons[i].n);
        json_text(row, "example", reasons[i].example);
        json_array_append_new(lost, row);
    }
    json_t *out = s->cli->json;
    json_text(out, "file", s->cli->args[0]);
    json_count(out, "points", s->rows.n);
    json_count(out, "left_out", s->space.n_left_out);
    json_count(out, "bound_memory", count(s, SWEEP_bounded, "bound-memory"));
    json_count(out, "bound_time", count(s, SWEEP_bounded, "bound-time"));
    json_count(out, "simulated", count(s, SWEEP_fits, NULL) + count(s, SWEEP_too_large, NULL));
    json_count(out, "refused", count(s, SWEEP_refused, NULL));
    json_put(out, "best", best);
    json_put(out, "front", front);
    json_put(out, "lost", lost);
}

static bool make_space(Search *s)
{
    Cli *cli = s->cli;
    if (session_is_text(cli->args[0]))
        return cli_error(cli, FAULT_usage, "needs-script",
                         "%s is the text of a plan, but `search` needs the script", cli->args[0]);
    bool freed;
    const PlanOptions options = space_options(cli, &freed);
    Config config;
    Graph graph;
    if (!session_read(cli->args[0], &options, cli->arena, &config, &graph, &cli->diag))
        return false;
    space_of(cli, &config, &graph, &s->space);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->space.n; i++) {
        bool holds;
        if (!where_holds(cli, &s->space.settings[i], &config, &holds)) return false;
        if (holds) s->space.settings[n++] = s->space.settings[i];
    }
    const uint32_t n_proposed = s->space.n;
    s->space.n = n;
    space_add_plan(cli, &config, freed, &s->space);
    if (s->space.empty != NULL && s->space.n > 0)
        diag_warning(&cli->diag, "option-value", (Loc){NULL, 0},
                     "%s: only the plan itself is tried", s->space.empty);
    if (s->space.n > 0) return true;
    if (s->space.empty != NULL)
        return cli_error(cli, FAULT_input, "nothing-fits", "%s", s->space.empty);
    return cli_error(cli, FAULT_usage, "option-value", "--where leaves none of %" PRIu32 " plan%s",
                     n_proposed, str_s(n_proposed));
}

void cmd_search(Cli *cli)
{
    Search s = {.cli = cli};
    if (!make_space(&s)) return;
    if (cli->options.dry_run) {
        points_list(cli, "settings", s.space.settings, s.space.n);
        return;
    }
    if (!cli->options.no_store && !store_ready(cli->options.db, &cli->diag)) return;
    const bool all = cli->options.sweep.exhaustive;
    const PointJob job = {.cli = cli,
                          .path = cli->args[0],
                          .n = s.space.n,
                          .settings = s.space.settings,
                          .unproven = true,
                          .bounded = !all,
                          .ranked = !all};
    if (!points_decide(&job, &s.rows)) return;
    rank(&s);
    if (!prove(&s)) return;
    if (cli->json != NULL)
        report_json(&s);
    else if (cli->options.sweep.csv)
        report_csv(&s);
    else
        report_text(&s);
    if (s.n_ranked == 0)
        cli_error(cli, FAULT_infeasible, "nothing-fits", "of %" PRIu32 " plan%s none fits",
                  s.rows.n, str_s(s.rows.n));
}
