/* tandem fit: finds changes with which a plan fits its cluster, and the largest micro-batch and
 * sequence that fit. Each answer was simulated under the runtime of the plan. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/fit.h"
#include "cli/sweep/space.h"
#include "planner/front/pass_spec.h"
#include "planner/ir/experts.h"

enum {
    MOST_CHANGES = 64,
    MOST_POINTS = 4096,
    MOST_TOKENS = 1 << 21,
    MOST_MICRO = 256,
    MOST_LAYERS = 1024,
    LONG_TOKENS = 8192
};

/* A change that a user could make to the plan. It may consist of several settings. */
typedef struct FitChange {
    const char *words;
    TextList settings;
} FitChange;

typedef struct FitSearch {
    Cli *cli;
    Config config;
    FitChange change[MOST_CHANGES];
    uint32_t n_changes;
    SweepRow base;
} FitSearch;

/* The plans that answer one question, and the result of each. */
typedef struct FitPoints {
    TextList settings[MOST_POINTS];
    const char *words[MOST_POINTS];
    uint32_t n;
    SweepRows rows;
} FitPoints;

static FitChange *add(FitSearch *fit, const char *words)
{
    assert(fit->n_changes < MOST_CHANGES); /* list_changes makes fewer changes than this */
    FitChange *change = &fit->change[fit->n_changes++];
    *change = (FitChange){.words = words};
    return change;
}

static void with(FitSearch *fit, FitChange *change, const char *key, int64_t value)
{
    Arena *arena = fit->cli->arena;
    list_push(arena, &change->settings, arena_print(arena, "%s=%" PRId64, key, value));
}

static void with_text(FitSearch *fit, FitChange *change, const char *setting)
{
    list_push(fit->cli->arena, &change->settings, setting);
}

static AxisName shards_axis(void)
{
    return axes_first(axes_with(AXIS_UNITS));
}

static const char *mesh_key(FitSearch *fit, AxisName axis)
{
    return arena_print(fit->cli->arena, "mesh.%s", axis_name_text(axis));
}

/* Adds a change that turns a part of the data ranks into ranks of this axis, and that adds the
 * axis's pass. */
static void add_axis(FitSearch *fit, const Graph *graph, AxisName axis)
{
    const AxisInfo *info = axis_info(axis);
    const uint32_t shards = fit->config.axis_size[shards_axis()], now = fit->config.axis_size[axis];
    const int64_t size = space_size(&fit->config, experts_most(graph), axis);
    const PassSpec *spec = pass_spec_of(info->pass);
    const bool is_short = info->cuts == INDEX_tokens && size < LONG_TOKENS;
    for (uint32_t by = 2; by <= 8 && shards % by == 0 && size > 0 && !is_short; by *= 2) {
        const int64_t ranks = (int64_t)(now > 1 ? now : 1) * by;
        if (size != INT64_MAX && size % ranks != 0) break;
        FitChange *change =
            add(fit, arena_print(fit->cli->arena, "%" PRIu32 " times the ranks of mesh.%s", by,
                                 info->name));
        with(fit, change, mesh_key(fit, axis), ranks);
        with(fit, change, mesh_key(fit, shards_axis()), shards / by);
        if (config_ranks(&fit->config, axes_of_pass(spec->name)) <= 1)
            with_text(fit, change,
                      spec->proposal != NULL
                          ? spec->proposal
                          : arena_print(fit->cli->arena, "parallel.%s=true", spec->name));
    }
}

static void list_changes(FitSearch *fit, const Graph *graph)
{
    const Config *c = &fit->config;
    const PassConfig *ac = config_pass(c, PASS_ac), *fsdp = config_pass(c, PASS_fsdp2);
    if (ac == NULL || ac->ac == AC_none)
        with_text(fit, add(fit, "recompute attention and cheap ops"), "parallel.ac=selective");
    if (ac == NULL || ac->ac != AC_full)
        with_text(fit, add(fit, "recompute whole blocks"), "parallel.ac=full");
    for (int64_t micro = c->micro_batch / 2; micro >= 1; micro /= 2)
        with(fit, add(fit, "a smaller micro-batch"), "batch.micro", micro);
    if (fsdp == NULL)
        with_text(fit, add(fit, "shard weights, gradients and moments"), "parallel.fsdp2=true");
    const AxisName copies = axes_first(axes_cutting(INDEX_samples) & ~axes_with(AXIS_STATES));
    if (fsdp != NULL && c->axis_size[copies] > 1) {
        FitChange *change = add(fit, "shard over the replicas, too");
        with(fit, change, mesh_key(fit, copies), 1);
        with(fit, change, mesh_key(fit, shards_axis()),
             (int64_t)c->axis_size[copies] * c->axis_size[shards_axis()]);
    }
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axis_info((AxisName)a)->pass != NULL) add_axis(fit, graph, (AxisName)a);
    if (config_pass(c, PASS_tile) == NULL)
        with_text(fit, add(fit, "compute head and loss in pieces"), "parallel.tile=true");
    if (c->optimizer.kind == OPTIMIZER_adamw && c->optimizer.state != DT_bf16)
        with_text(fit, add(fit, "moments in bf16"), "optimizer.state=bf16");
    if (fsdp != NULL && !fsdp->fsdp2.offload)
        with_text(fit, add(fit, "weights and moments in host memory"),
                  "parallel.fsdp2.offload=true");
}

static void push(FitSearch *fit, FitPoints *points, const char *words, const TextList *a,
                 const TextList *b)
{
    assert(points->n < MOST_POINTS); /* there are at most MOST_POINTS pairs of changes */
    TextList *to = &points->settings[points->n];
    const TextList *all[] = {a, b};
    *to = (TextList){NULL, 0, 0};
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; all[l] != NULL && i < all[l]->n; i++)
            list_push(fit->cli->arena, to, all[l]->at[i]);
    points->words[points->n++] = words;
}

static bool decide(FitSearch *fit, FitPoints *points)
{
    const PointJob job = {.cli = fit->cli,
                          .path = fit->cli->args[0],
                          .n = points->n,
                          .settings = points->settings,
                          .bounded = true};
    return points->n == 0 || points_decide(&job, &points->rows);
}

/* The rows that qsort sorts now; global, because qsort passes its function nothing else. */
static const SweepRows *sorted;

static int by_speed(const void *a, const void *b)
{
    const SweepRow *x = &sorted->at[*(const uint32_t *)a], *y = &sorted->at[*(const uint32_t *)b];
    if (x->tokens_per_s != y->tokens_per_s) return x->tokens_per_s > y->tokens_per_s ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static uint32_t fitting(const FitPoints *points, Arena *arena, uint32_t **order)
{
    uint32_t n = 0;
    *order = arena_array(arena, points->n + 1, sizeof **order);
    for (uint32_t i = 0; i < points->rows.n; i++)
        if (points->rows.at[i].status == SWEEP_fits) (*order)[n++] = i;
    sorted = &points->rows;
    qsort(*order, n, sizeof **order, by_speed);
    return n;
}

static json_t *row_json(const FitSearch *fit, const FitPoints *points, uint32_t i)
{
    const SweepRow *row = &points->rows.at[i];
    json_t *out = json_object();
    json_text(out, "change", points->words[i]);
    json_text(out, "settings", point_text(fit->cli->arena, &points->settings[i], "--set "));
    json_count(out, "step_ps", (uint64_t)row->step_ps);
    json_number(out, "tokens_per_s", row->tokens_per_s);
    json_count(out, "peak_bytes", row->peak_bytes);
    return out;
}

/* Prints the changes with which the plan fits, the fastest first. Returns the index of the fastest,
 * or UINT32_MAX if none fits. */
static uint32_t report_changes(FitSearch *fit, const FitPoints *points, const char *title)
{
    Cli *cli = fit->cli;
    const char *const speed = arena_print(cli->arena, ">  %s/s", rows_count(&points->rows));
    const char *const heads[] = {speed, ">memory", "change", "settings"};
    uint32_t *order;
    const uint32_t n = fitting(points, cli->arena, &order), limit = n < 10 ? n : 10;
    if (n == 0) return UINT32_MAX;
    str_print(&cli->out, "%s\n", title);
    Table t = table_in(cli->arena, 4, heads);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < limit; i++) {
        const SweepRow *row = &points->rows.at[order[i]];
        table_cell(&t, "  %s", str_count(cli->arena, (uint64_t)(row->tokens_per_s + .5)));
        table_cell(&t, "%s", str_bytes(cli->arena, row->peak_bytes));
        table_cell(&t, "%s", points->words[order[i]]);
        table_cell(&t, "%s", point_text(cli->arena, &points->settings[order[i]], "--set "));
        json_array_append_new(rows, row_json(fit, points, order[i]));
    }
    table_print(&t, &cli->out);
    if (cli->json != NULL)
        json_put(cli->json, "changes", rows);
    else
        json_decref(rows);
    return order[0];
}

/* A setting for which the largest value that fits is searched. */
typedef struct Most {
    const char *title, *key;
    int64_t from, to; /* the values that are tried, from `from` to `to`, both included */
    /* each value is another model, so the speeds of two values cannot be compared */
    bool other_model;
} Most;

/* Tries values of a setting, together with the settings `also`. */
static bool try_values(FitSearch *fit, const Most *ask, const TextList *also, const int64_t *values,
                       uint32_t n, FitPoints *points)
{
    points->n = 0;
    points->rows = (SweepRows){NULL, 0, 0};
    for (uint32_t i = 0; i < n; i++) {
        TextList one = {NULL, 0, 0};
        list_push(fit->cli->arena, &one,
                  arena_print(fit->cli->arena, "%s=%" PRId64, ask->key, values[i]));
        push(fit, points, ask->title, also, &one);
    }
    return decide(fit, points);
}

typedef struct MostFound {
    int64_t most, fastest; /* the largest value that fits, and the fastest; 0: no value fits */
    double speed;
    const char *counts;
} MostFound;

static void enter(MostFound *found, const FitPoints *points, const int64_t *values)
{
    for (uint32_t i = 0; i < points->rows.n; i++) {
        const SweepRow *row = &points->rows.at[i];
        if (row->status != SWEEP_fits) continue;
        if (values[i] > found->most) found->most = values[i];
        if (row->tokens_per_s > found->speed)
            found->speed = row->tokens_per_s, found->fastest = values[i];
        found->counts = row->counts;
    }
}

static const char *fastest_text(Cli *cli, const MostFound *found)
{
    return arena_print(cli->arena, "; fastest: %" PRId64 ", %s %s/s", found->fastest,
                       str_count(cli->arena, (uint64_t)(found->speed + .5)), found->counts);
}

/* Prints the largest value that fits, among those that were tried. First, the value is doubled
 * until it does not fit. Then the eighths between the last two values are tried. A value also does
 * not fit if the plan refuses it, for example because it does not divide. */
static bool report_most(FitSearch *fit, const Most *ask, const TextList *also)
{
    Cli *cli = fit->cli;
    FitPoints *points = arena_alloc(cli->arena, sizeof *points);
    int64_t values[MOST_CHANGES];
    uint32_t n = 0;
    MostFound found = {0, 0, 0, "tokens"};
    for (int64_t v = ask->from; v <= ask->to && n < MOST_CHANGES; v *= 2) values[n++] = v;
    if (!try_values(fit, ask, also, values, n, points)) return false;
    enter(&found, points, values);
    const char *rule = points->rows.at[0].error.rule;
    if (found.most == 0 && rule != NULL && strcmp(rule, "unknown-key") == 0)
        return true; /* the model has no such setting, so there is nothing to report */
    n = 0;
    const int64_t base = found.most;
    for (int64_t k = 9; base > 0 && k < 16; k++)
        if (base * k % 8 == 0 && base * k / 8 <= ask->to) values[n++] = base * k / 8;
    if (n > 0 && !try_values(fit, ask, also, values, n, points)) return false;
    if (n > 0) enter(&found, points, values);
    if (found.most == 0)
        str_print(&cli->out, "%s none from %" PRId64 " to %" PRId64 " fits\n", ask->title,
                  ask->from, ask->to);
    else
        str_print(&cli->out, "%s largest that fits: %" PRId64 "%s\n", ask->title, found.most,
                  ask->other_model ? "" : fastest_text(cli, &found));
    if (cli->json == NULL) return true;
    json_t *out = json_object();
    json_count(out, "most", (uint64_t)found.most);
    json_count(out, "fastest", (uint64_t)found.fastest);
    json_put(cli->json, strchr(ask->key, '.') + 1, out);
    return true;
}

static bool read_base(FitSearch *fit, Graph *graph)
{
    Cli *cli = fit->cli;
    if (session_is_text(cli->args[0]))
        return cli_error(cli, FAULT_usage, "needs-script",
                         "%s is the text of a plan, but `fit` needs the script", cli->args[0]);
    const bool stores = !cli->options.no_store && !cli->options.dry_run;
    if (stores && !store_ready(cli->options.db, &cli->diag)) return false;
    const PlanOptions options = plan_file_options(cli, NULL);
    if (!session_read(cli->args[0], &options, cli->arena, &fit->config, graph, &cli->diag))
        return false;
    if (!fit_gpus_can(cli, &fit->config)) return false;
    if (cli->options.dry_run) return true;
    FitPoints *points = arena_alloc(cli->arena, sizeof *points);
    push(fit, points, "as it is", NULL, NULL);
    if (!decide(fit, points)) return false;
    fit->base = points->rows.at[0];
    if (fit->base.status == SWEEP_refused)
        return cli_error(cli, FAULT_input, fit->base.error.rule, "%s", fit->base.error.text);
    const bool fits = fit->base.status == SWEEP_fits;
    str_print(&cli->out, "fit         %s %s%s%s\n", cli->args[0],
              fits ? "fits: " : "does not fit: ",
              fits ? str_bytes(cli->arena, fit->base.peak_bytes) : fit->base.error.text,
              fits ? arena_print(cli->arena, ", %s %s/s",
                                 str_count(cli->arena, (uint64_t)(fit->base.tokens_per_s + .5)),
                                 rows_count(&points->rows))
                   : "");
    if (cli->json == NULL) return true;
    json_text(cli->json, "file", cli->args[0]);
    json_put(cli->json, "fits", json_boolean(fits));
    return true;
}

/* Tries single changes and, if none of them fits, pairs of changes. Returns the settings of the
 * fastest change, or NULL if nothing fits. */
static const TextList *find_change(FitSearch *fit, bool *fine)
{
    FitPoints *one = arena_alloc(fit->cli->arena, sizeof *one);
    for (uint32_t i = 0; i < fit->n_changes; i++)
        push(fit, one, fit->change[i].words, &fit->change[i].settings, NULL);
    *fine = decide(fit, one);
    if (!*fine) return NULL;
    uint32_t best = report_changes(fit, one, "one change that fits, the fastest first");
    if (best != UINT32_MAX) return &one->settings[best];
    FitPoints *two = arena_alloc(fit->cli->arena, sizeof *two);
    for (uint32_t i = 0; i < fit->n_changes; i++)
        for (uint32_t k = i + 1; k < fit->n_changes; k++)
            push(fit, two,
                 arena_print(fit->cli->arena, "%s; %s", fit->change[i].words, fit->change[k].words),
                 &fit->change[i].settings, &fit->change[k].settings);
    *fine = decide(fit, two);
    if (!*fine) return NULL;
    best = report_changes(fit, two, "no single change fits; two that do, the fastest first");
    return best != UINT32_MAX ? &two->settings[best] : NULL;
}

/* Lists the sizes for which the largest value is searched: only the micro-batch for a plan of
 * fields, otherwise also the sequence. Returns their number. */
static uint32_t list_sizes(const FitSearch *fit, const Graph *graph, Most asked[3])
{
    const Config *c = &fit->config;
    const int64_t micro = c->global_batch / config_data_ranks(c);
    asked[0] =
        (Most){"micro-batch", "batch.micro", 1, micro < MOST_MICRO ? micro : MOST_MICRO, false};
    asked[1] = (Most){"sequence   ", "batch.seq", c->seq, MOST_TOKENS, false};
    asked[2] = (Most){"layers     ", "model.layers", graph->info.n_layers, MOST_LAYERS, true};
    return c->height > 0 ? 1 : 3;
}

/* Adds a plan, unless there is one with the same settings already. */
static void push_new(FitSearch *fit, FitPoints *points, const TextList *settings)
{
    Arena *arena = fit->cli->arena;
    for (uint32_t i = 0; i < points->n; i++)
        if (strcmp(point_text(arena, &points->settings[i], ""), point_text(arena, settings, "")) ==
            0)
            return;
    push(fit, points, "", settings, NULL);
}

/* --dry-run: lists the plan, the single changes, and the first values of each size. Other plans
 * depend on the results of these. */
static void list_points(FitSearch *fit, const Graph *graph)
{
    FitPoints *points = arena_alloc(fit->cli->arena, sizeof *points);
    Most asked[3];
    push(fit, points, "as it is", NULL, NULL);
    for (uint32_t i = 0; i < fit->n_changes; i++) push_new(fit, points, &fit->change[i].settings);
    const uint32_t n = list_sizes(fit, graph, asked);
    for (uint32_t i = 0; i < n; i++)
        for (int64_t v = asked[i].from; v <= asked[i].to; v *= 2) {
            TextList one = {NULL, 0, 0};
            list_push(fit->cli->arena, &one,
                      arena_print(fit->cli->arena, "%s=%" PRId64, asked[i].key, v));
            push_new(fit, points, &one);
        }
    points_list(fit->cli, "settings", points->settings, points->n);
}

static bool report_sizes(FitSearch *fit, const Graph *graph, const TextList *also)
{
    Most asked[3];
    const uint32_t n = list_sizes(fit, graph, asked);
    for (uint32_t i = 0; i < n; i++)
        if (!report_most(fit, &asked[i], also)) return false;
    return true;
}

void cmd_fit(Cli *cli)
{
    FitSearch *fit = arena_alloc(cli->arena, sizeof *fit);
    fit->cli = cli;
    Graph graph;
    if (!fit_gpus_check(cli) || !read_base(fit, &graph)) return;
    const TextList none = {NULL, 0, 0}, *also = &none;
    bool fine = true;
    list_changes(fit, &graph);
    if (cli->options.dry_run) {
        list_points(fit, &graph);
        return;
    }
    if (fit->base.status != SWEEP_fits) also = find_change(fit, &fine);
    if (!fine) return;
    if (also == NULL) {
        cli_error(cli, FAULT_infeasible, "nothing-fits",
                  "no change and no two changes make it fit");
        diag_hint(&cli->diag, "more nodes: `tandem fit PLAN --cluster NAME --nodes N`");
        return;
    }
    if (also->n > 0)
        str_print(&cli->out, "with        %s\n", point_text(cli->arena, also, "--set "));
    if (report_sizes(fit, &graph, also)) fit_gpus(cli, &fit->config, also);
}
