/* tandem compare RUN RUN: prints two runs of the store side by side. Each may be predicted or
 * measured, and they may be of one plan or of two. The table shows what changed since an earlier
 * run, or how two layouts differ. */
#include <inttypes.h>
#include <string.h>

#include "cli/report/compare.h"
#include "cli/sweep/sweep.h"

typedef enum Measure { UNIT_ps, UNIT_bytes, UNIT_count, UNIT_share } Measure;

typedef struct Pair {
    const char *what;
    Measure unit;
    double value[2];
} Pair;
typedef LIST(Pair) Pairs;

static Pair *pair_of(Arena *arena, Pairs *pairs, Measure unit, const char *what)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->at[i].what, what) == 0) return &pairs->at[i];
    list_push(arena, pairs, ((Pair){.what = what, .unit = unit}));
    return &pairs->at[pairs->n - 1];
}

/* Returns the unit that the runs count: "tokens" or "points". The store has it only as a word in
 * the formula of the MFU. A run without a formula gets the unit of the other run. */
static const char *counts_of(const RunRecord *a, const RunRecord *b)
{
    static const char point[] = " per point ";
    const bool points = (a->mfu_formula != NULL && strstr(a->mfu_formula, point) != NULL) ||
                        (b->mfu_formula != NULL && strstr(b->mfu_formula, point) != NULL);
    return points ? "points" : "tokens";
}

static void add_side(Arena *arena, const RunRecord *r, int side, const char *counts, Pairs *pairs)
{
    const struct {
        const char *what;
        Measure unit;
        double value;
    } plain[] = {
        {"step", UNIT_ps, (double)r->step_ps},
        {"compute", UNIT_ps, (double)r->compute_ps},
        {"exposed communication", UNIT_ps, (double)r->exposed_ps},
        {arena_print(arena, "%s/s", counts), UNIT_count, r->tokens_per_s_per_device * r->n_ranks},
        {arena_print(arena, "%s/s a rank", counts), UNIT_count, r->tokens_per_s_per_device},
        {"MFU", UNIT_share, r->mfu},
        {"memory of the worst rank", UNIT_bytes, (double)r->peak_bytes},
        {"weights and gradients moved", UNIT_bytes, (double)unit_bytes(r)},
        {"ranks", UNIT_count, r->n_ranks}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        pair_of(arena, pairs, plain[i].unit, plain[i].what)->value[side] = plain[i].value;
    for (uint32_t i = 0; i < r->collectives.n; i++) {
        const CollectiveRow *row = &r->collectives.at[i];
        const char *name = op_info(row->op)->name;
        pair_of(arena, pairs, UNIT_ps, arena_print(arena, "%s %s, busy", name, row->axes))
            ->value[side] += (double)row->total_ps;
        pair_of(arena, pairs, UNIT_ps, arena_print(arena, "%s %s, exposed", name, row->axes))
            ->value[side] += (double)row->exposed_ps;
    }
}

static const char *value_text(Arena *arena, const Pair *p, int side)
{
    const double value = p->value[side];
    switch (p->unit) {
    case UNIT_ps: return format_time(arena, (Ps)value);
    case UNIT_bytes: return str_bytes(arena, (uint64_t)value);
    case UNIT_count: return str_count(arena, (uint64_t)(value + .5));
    case UNIT_share: return arena_print(arena, "%.1f %%", 100 * value);
    }
    return "";
}

static void report_json(Cli *cli, const int64_t id[2], const Pairs *pairs)
{
    static const char *const units[] = {"ps", "bytes", "count", "share"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < pairs->n; i++) {
        const Pair *p = &pairs->at[i];
        json_t *row = json_object();
        json_text(row, "what", p->what);
        json_text(row, "unit", units[p->unit]);
        json_number(row, "first", p->value[0]);
        json_number(row, "second", p->value[1]);
        json_array_append_new(list, row);
    }
    json_put(cli->json, "first_run", json_integer(id[0]));
    json_put(cli->json, "second_run", json_integer(id[1]));
    json_put(cli->json, "lines", list);
}

void compare_two(Cli *cli, Store *store, const int64_t id[2])
{
    RunRecord run[2];
    Pairs pairs = {NULL, 0, 0};
    memset(run, 0, sizeof run);
    for (int i = 0; i < 2; i++) {
        if (!store_load_run(store, id[i], cli->arena, &run[i], NULL, &cli->diag)) return;
    }
    const char *counts = counts_of(&run[0], &run[1]);
    for (int i = 0; i < 2; i++) add_side(cli->arena, &run[i], i, counts, &pairs);
    if (cli->json != NULL) {
        report_json(cli, id, &pairs);
        return;
    }
    for (int i = 0; i < 2; i++)
        str_print(&cli->out, "run %" PRId64 "  %s, plan %s, %s, %s\n", id[i],
                  run[i].kind == RUN_predicted ? "predicted" : "measured",
                  hash_short(cli->arena, run[i].plan), run[i].cluster,
                  str_path(cli->arena, run[i].plan_name));
    const char *heads[] = {"  a step", arena_print(cli->arena, ">run %" PRId64, id[0]),
                           arena_print(cli->arena, ">run %" PRId64, id[1]), ">change"};
    Table t = table_in(cli->arena, 4, heads);
    for (uint32_t i = 0; i < pairs.n; i++) {
        const Pair *p = &pairs.at[i];
        if (p->value[0] <= 0 && p->value[1] <= 0) continue;
        table_cell(&t, "  %s", p->what);
        table_cell(&t, "%s", value_text(cli->arena, p, 0));
        table_cell(&t, "%s", value_text(cli->arena, p, 1));
        table_cell(&t, "%s",
                   p->value[0] > 0 ? format_ratio(cli->arena, p->value[1] / p->value[0]) : "new");
    }
    table_print(&t, &cli->out);
}
