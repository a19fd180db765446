/* Groups the errors of predictions by quantity, by split and by source. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "planner/base/plural.h"

typedef struct Group {
    /* group: quantity, split and source; source NULL: all sources of the split */
    const char *what, *split, *source;
    uint32_t n;
    bool verdict;
    double median, p90, mean;   /* quantiles of |predicted / measured - 1| */
    double least, middle, most; /* quantiles of predicted / measured */
    /* For verdicts such as "fits". n_yes counts the rows that were measured as "yes", and
     * n_yes_right those of them that were predicted as "yes". n_no, n_no_right: for "no" */
    uint32_t n_yes, n_yes_right, n_no, n_no_right;
} Group;

static bool is_in(const Group *g, const Score *s)
{
    return strcmp(g->what, s->what) == 0 && strcmp(g->split, s->split) == 0 &&
           (g->source == NULL || strcmp(g->source, s->source) == 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the quantile `part` (0 to 1) of n sorted values, interpolated between neighbours. */
static double quantile(const double *sorted, uint32_t n, double part)
{
    double at = part * (n - 1);
    uint32_t low = (uint32_t)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

static void count_verdict(Group *g, const Score *s)
{
    bool yes = s->measured > .5, right = yes == (s->predicted > .5);
    g->n_yes += yes;
    g->n_yes_right += yes && right;
    g->n_no += !yes;
    g->n_no_right += !yes && right;
}

static void work_out(Group *g, const Scores *scores, Arena *arena)
{
    double *error = arena_array(arena, scores->rows.n + 1, sizeof *error);
    double *ratio = arena_array(arena, scores->rows.n + 1, sizeof *ratio);
    for (uint32_t i = 0; i < scores->rows.n; i++) {
        const Score *s = &scores->rows.at[i];
        if (!is_in(g, s)) continue;
        g->verdict = s->verdict;
        if (s->verdict) count_verdict(g, s);
        ratio[g->n] = s->predicted / s->measured;
        error[g->n] = fabs(ratio[g->n] - 1);
        g->mean += error[g->n];
        g->n++;
    }
    if (g->n == 0) return;
    qsort(error, g->n, sizeof *error, by_value);
    qsort(ratio, g->n, sizeof *ratio, by_value);
    g->mean /= g->n;
    g->median = quantile(error, g->n, .5);
    g->p90 = quantile(error, g->n, .9);
    g->least = ratio[0];
    g->middle = quantile(ratio, g->n, .5);
    g->most = ratio[g->n - 1];
}

typedef LIST(Group) TableGroups;

static void add_group(TableGroups *groups, Arena *arena, const Score *s, const char *source)
{
    for (uint32_t i = 0; i < groups->n; i++) {
        const Group *g = &groups->at[i];
        bool same = (g->source == NULL) == (source == NULL) &&
                    (source == NULL || strcmp(g->source, source) == 0);
        if (same && strcmp(g->what, s->what) == 0 && strcmp(g->split, s->split) == 0) return;
    }
    Group g;
    memset(&g, 0, sizeof g);
    g.what = s->what;
    g.split = s->split;
    g.source = source;
    list_push(arena, groups, g);
}

/* Forms the groups of scores: by quantity, then by split, in order of appearance. In each split, a
 * group of all sources comes before the groups of single sources. */
static void gather(const Scores *scores, Arena *arena, TableGroups *groups)
{
    TableGroups heads = {0};
    for (uint32_t i = 0; i < scores->rows.n; i++)
        add_group(&heads, arena, &scores->rows.at[i], NULL);
    for (uint32_t h = 0; h < heads.n; h++) {
        list_push(arena, groups, heads.at[h]);
        for (uint32_t i = 0; i < scores->rows.n; i++)
            if (is_in(&heads.at[h], &scores->rows.at[i]))
                add_group(groups, arena, &scores->rows.at[i], scores->rows.at[i].source);
    }
    for (uint32_t i = 0; i < groups->n; i++) work_out(&groups->at[i], scores, arena);
}

/* Returns the end of a long address, which is enough to recognise a source. */
static const char *short_source(Arena *arena, const char *source)
{
    enum { MOST = 46 };
    size_t n = strlen(source);
    return n <= MOST ? source : arena_print(arena, "...%s", source + n - (MOST - 3));
}

static void table_row(Table *t, const Group *g)
{
    table_cell(t, "%s", g->what);
    table_cell(t, "%s", g->split);
    table_cell(t, "%s", g->source == NULL ? "all" : short_source(t->arena, g->source));
    table_cell(t, "%u", g->n);
    if (g->verdict) {
        table_cell(t, "fits %u of %u", g->n_yes_right, g->n_yes);
        table_cell(t, "not %u of %u", g->n_no_right, g->n_no);
        for (int i = 0; i < 4; i++) table_cell(t, "%s", "");
        return;
    }
    table_cell(t, "%.1f %%", 100 * g->median);
    table_cell(t, "%.1f %%", 100 * g->p90);
    table_cell(t, "%.1f %%", 100 * g->mean);
    table_cell(t, "%.2f", g->least);
    table_cell(t, "%.2f", g->middle);
    table_cell(t, "%.2f", g->most);
}

static json_t *group_json(const Group *g)
{
    json_t *object = json_object();
    json_text(object, "what", g->what);
    json_text(object, "split", g->split);
    json_text(object, "source", g->source == NULL ? "all" : g->source);
    json_count(object, "n", g->n);
    if (g->verdict) {
        json_count(object, "fits", g->n_yes);
        json_count(object, "fits_right", g->n_yes_right);
        json_count(object, "not", g->n_no);
        json_count(object, "not_right", g->n_no_right);
        return object;
    }
    json_number(object, "median_error", g->median);
    json_number(object, "p90_error", g->p90);
    json_number(object, "mean_error", g->mean);
    json_number(object, "least_ratio", g->least);
    json_number(object, "median_ratio", g->middle);
    json_number(object, "most_ratio", g->most);
    return object;
}

static void json_report(Cli *cli, const char *name, const Scores *scores, const TableGroups *groups)
{
    json_t *section = json_object(), *list = json_array();
    json_count(section, "rows", scores->n_rows);
    json_count(section, "scored", scores->n_scored);
    for (uint32_t i = 0; i < groups->n; i++)
        json_array_append_new(list, group_json(&groups->at[i]));
    json_put(section, "groups", list);
    list = json_array();
    for (uint32_t i = 0; i < scores->reasons.n; i++) {
        const Unscored *u = &scores->reasons.at[i];
        json_t *object = json_object();
        json_text(object, "source", u->source);
        json_text(object, "split", u->split);
        json_text(object, "reason", u->reason);
        json_count(object, "n", u->n);
        json_array_append_new(list, object);
    }
    json_put(section, "not_scored", list);
    list = json_array();
    for (uint32_t i = 0; i < scores->rows.n; i++) {
        const Score *s = &scores->rows.at[i];
        json_t *object = json_object();
        json_text(object, "row", s->label);
        json_text(object, "split", s->split);
        json_text(object, "source", s->source);
        json_text(object, "what", s->what);
        json_text(object, "profile", s->profile);
        json_text(object, "gpu", s->gpu);
        json_number(object, "measured", s->measured);
        json_number(object, "predicted", s->predicted);
        json_array_append_new(list, object);
    }
    json_put(section, "scores", list);
    list = json_array();
    for (uint32_t i = 0; i < scores->notes.n; i++) {
        json_t *object = json_object();
        json_text(object, "row", scores->notes.at[i].label);
        json_text(object, "text", scores->notes.at[i].text);
        json_array_append_new(list, object);
    }
    json_put(section, "assumed", list);
    json_put(cli->json, name, section);
}

static const char legend[] =
    "median, p90 and mean: of the error |predicted / measured - 1|\n"
    "least, ratio and most: the least, median and largest predicted / measured\n"
    "fits 4 of 5: 5 runs did fit, and 4 of them were predicted to fit; not: runs that did not fit\n"
    "dev-cal: rows to which constants may be fitted; dev-val: rows to which no constant is "
    "fitted\n";

/* Prints, for each row, the values that Tandem assumed because the row does not state them. */
static void print_notes(Cli *cli, const Scores *scores)
{
    static const char *const heads[] = {"row", "assumed"};
    Table t = table_in(cli->arena, sizeof heads / sizeof *heads, heads);
    for (uint32_t i = 0; i < scores->notes.n; i++) {
        table_cell(&t, "%s", scores->notes.at[i].label);
        table_cell(&t, "%s", scores->notes.at[i].text);
    }
    if (scores->notes.n > 0) table_print(&t, &cli->out);
}

void scores_report(Cli *cli, const char *name, const char *path, const Scores *scores)
{
    static const char *const heads[] = {"what", "split", "source", ">n",     ">median",
                                        ">p90", ">mean", ">least", ">ratio", ">most"};
    static const char *const reason_heads[] = {">rows", "split", "source", "not scored because"};
    TableGroups groups = {0};
    gather(scores, cli->arena, &groups);
    if (cli->options.json) {
        json_report(cli, name, scores, &groups);
        return;
    }
    str_print(&cli->out, "%s: %u of %u row%s of %s predicted\n", name, scores->n_scored,
              scores->n_rows, str_s(scores->n_rows), path);
    Table t = table_in(cli->arena, sizeof heads / sizeof *heads, heads);
    for (uint32_t i = 0; i < groups.n; i++) table_row(&t, &groups.at[i]);
    if (groups.n > 0) {
        table_print(&t, &cli->out);
        str_add(&cli->out, legend);
    }
    Table r = table_in(cli->arena, sizeof reason_heads / sizeof *reason_heads, reason_heads);
    for (uint32_t i = 0; i < scores->reasons.n; i++) {
        const Unscored *u = &scores->reasons.at[i];
        table_cell(&r, "%u", u->n);
        table_cell(&r, "%s", u->split);
        table_cell(&r, "%s", short_source(cli->arena, u->source));
        table_cell(&r, "%s", u->reason);
    }
    if (scores->reasons.n > 0) table_print(&r, &cli->out);
    print_notes(cli, scores);
}
