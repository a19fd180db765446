/* tandem fit --tokens: prints how long a training takes on different numbers of nodes. Also prints
 * the smallest number of nodes that meets a deadline or a budget. The plan is simulated for each
 * number of nodes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/sweep/fit.h"
#include "planner/base/plural.h"

enum { MOST_NUMBERS = 48 };
static const uint32_t MOST_NODES = 16384;

typedef struct GpuQuestion {
    Cli *cli;
    uint32_t nodes[MOST_NUMBERS]; /* the n numbers of nodes, in increasing order */
    TextList settings[MOST_NUMBERS];
    uint32_t n;
    SweepRows rows;
} GpuQuestion;

/* Lists the numbers of nodes for which the batch divides evenly over the data ranks. Only one axis
 * of the mesh grows with the nodes: dp_replicate if nothing is sharded, otherwise dp_shard. */
static void list_nodes(GpuQuestion *q, const Config *config, const TextList *also)
{
    Arena *arena = q->cli->arena;
    const uint32_t per_node = config->cluster.devices_per_node;
    const int64_t sequences = config->global_batch / config->micro_batch;
    const int64_t data = config_data_ranks(config);
    const bool whole = config_ranks(config, axes_with(AXIS_UNITS)) == 1 && data > 1;
    const char *grows = whole ? "mesh.dp_replicate=" : "mesh.dp_shard=";
    int64_t model = 1; /* product of the axes other than the two data axes */
    for (uint32_t a = 0; a < AXIS_NAMES; a++) model *= config->axis_size[a];
    model /= data;
    for (uint32_t nodes = 1; nodes <= MOST_NODES && q->n < MOST_NUMBERS; nodes++) {
        const int64_t ranks = (int64_t)nodes * per_node;
        if (ranks % model != 0 || sequences % (ranks / model) != 0) continue;
        TextList *list = &q->settings[q->n];
        *list = (TextList){NULL, 0, 0};
        for (uint32_t i = 0; i < also->n; i++)
            if (strncmp(also->at[i], grows, strlen(grows)) != 0)
                list_push(arena, list, also->at[i]);
        list_push(arena, list, arena_print(arena, "cluster.nodes=%" PRIu32, nodes));
        list_push(arena, list, arena_print(arena, "%s-1", grows));
        q->nodes[q->n++] = nodes;
    }
}

static const SweepRow *row_of(const GpuQuestion *q, uint32_t i)
{
    const SweepRow *row = &q->rows.at[i];
    return row->status == SWEEP_fits && row->tokens_per_s > 0 ? row : NULL;
}

/* Prints a row for each number of nodes. The efficiency is the speed of a GPU / its speed on the
 * smallest number of nodes. */
static void report_table(const GpuQuestion *q)
{
    Cli *cli = q->cli;
    static const char *const heads[] = {">  nodes", ">GPUs", ">days",  ">USD",
                                        ">MWh",     ">MFU",  ">a GPU", ">memory"};
    Table t = table_in(cli->arena, 8, heads);
    json_t *list = json_array();
    double first = 0;
    for (uint32_t i = 0; i < q->n; i++) {
        const SweepRow *r = row_of(q, i);
        if (r == NULL) continue;
        if (first <= 0) first = r->tokens_per_s_per_device;
        const double usd = row_usd(cli, r), mwh = row_mwh(cli, r);
        table_cell(&t, "  %" PRIu32, q->nodes[i]);
        table_cell(&t, "%" PRIu64, r->ranks);
        table_cell(&t, "%.1f", row_days(cli, r));
        table_cell(&t, "%s", usd > 0 ? str_count(cli->arena, (uint64_t)(usd + .5)) : "-");
        table_cell(&t, "%s", mwh > 0 ? arena_print(cli->arena, "%.4g", mwh) : "-");
        table_cell(&t, "%.1f %%", 100 * r->mfu);
        table_cell(&t, "%.1f %%", 100 * r->tokens_per_s_per_device / first);
        table_cell(&t, "%s", str_bytes(cli->arena, r->peak_bytes));
        json_t *row = json_object();
        json_count(row, "nodes", q->nodes[i]);
        json_count(row, "ranks", r->ranks);
        json_number(row, "days", row_days(cli, r));
        json_put(row, "usd", usd > 0 ? json_real(usd) : json_null());
        json_put(row, "mwh", mwh > 0 ? json_real(mwh) : json_null());
        json_count(row, "step_ps", (uint64_t)r->step_ps);
        json_array_append_new(list, row);
    }
    str_print(&cli->out, "training    %.4g %s, by the number of nodes\n", cli->options.tokens,
              rows_count(&q->rows));
    table_print(&t, &cli->out);
    for (uint32_t i = 0; i < q->n; i++)
        if (q->rows.at[i].status != SWEEP_fits)
            str_print(&cli->out, "not         %" PRIu32 " node%s: %s\n", q->nodes[i],
                      str_s(q->nodes[i]), q->rows.at[i].error.text);
    energy_note(cli, &q->rows);
    price_note(cli, &q->rows);
    if (cli->json != NULL)
        json_put(cli->json, "nodes", list);
    else
        json_decref(list);
}

/* Prints which numbers of nodes meet the deadline and the budget. If none does, prints the one that
 * misses them by the least. */
static void report_limits(const GpuQuestion *q)
{
    Cli *cli = q->cli;
    const double most_days = cli->options.fit.days, most_usd = cli->options.fit.usd;
    const SweepRow *good = NULL, *near = NULL;
    uint32_t nodes = 0;
    double excess = INFINITY;
    for (uint32_t i = 0; i < q->n && good == NULL; i++) {
        const SweepRow *r = row_of(q, i);
        if (r == NULL) continue;
        const double over = fmax(most_days > 0 ? row_days(cli, r) / most_days : 0,
                                 most_usd > 0 ? row_usd(cli, r) / most_usd : 0);
        if (over <= 1) good = r, nodes = q->nodes[i];
        if (over < excess) excess = over, near = r;
    }
    if (cli->json != NULL)
        json_put(cli->json, "least_nodes", good != NULL ? json_integer(nodes) : json_null());
    if (good != NULL) {
        str_print(&cli->out, "enough      %" PRIu32 " node%s, %" PRIu64 " GPUs: %.1f days", nodes,
                  nodes == 1 ? "" : "s", good->ranks, row_days(cli, good));
        if (good->usd_per_token > 0)
            str_print(&cli->out, ", %s USD",
                      str_count(cli->arena, (uint64_t)(row_usd(cli, good) + .5)));
        str_add(&cli->out, "\n");
        return;
    }
    cli_error(cli, FAULT_infeasible, "nothing-fits", "no number of nodes meets the %s",
              most_days > 0 && most_usd > 0 ? "deadline and the budget"
              : most_days > 0               ? "deadline"
                                            : "budget");
    if (near == NULL)
        diag_hint(&cli->diag, "for each number of nodes, the plan does not fit or data ranks do "
                              "not divide the batch");
    else if (near->usd_per_token > 0)
        diag_hint(&cli->diag, "the nearest miss: %" PRIu64 " GPUs, %.1f days, %s USD", near->ranks,
                  row_days(cli, near), str_count(cli->arena, (uint64_t)(row_usd(cli, near) + .5)));
    else
        diag_hint(&cli->diag, "the nearest miss: %" PRIu64 " GPUs, %.1f days", near->ranks,
                  row_days(cli, near));
}

bool fit_gpus_check(Cli *cli)
{
    const FitOptions *o = &cli->options.fit;
    const char *alone = o->days > 0                       ? "days"
                        : o->usd > 0                      ? "usd"
                        : cli->options.pue_text != NULL   ? "pue"
                        : cli->options.price_text != NULL ? "price"
                                                          : NULL;
    if (cli->options.tokens > 0 || alone == NULL) return true;
    cli_error(cli, FAULT_usage, "option-value", "--%s needs --tokens: how long is the training?",
              alone);
    diag_hint(&cli->diag, "for example --tokens 1T --days 30");
    return false;
}

bool fit_gpus_can(Cli *cli, const Config *config)
{
    if (cli->options.tokens <= 0 || !config->cluster.is_local) return true;
    cli_error(cli, FAULT_usage, "no-cluster", "--tokens: the plan has no cluster to grow");
    diag_hint(&cli->diag, "--cluster dgx_h100 names one; `tandem fit PLAN` needs none");
    return false;
}

bool fit_gpus(Cli *cli, const Config *config, const TextList *also)
{
    if (cli->options.tokens <= 0) return true;
    GpuQuestion *q = arena_alloc(cli->arena, sizeof *q);
    q->cli = cli;
    list_nodes(q, config, also);
    const PointJob job = {
        .cli = cli, .path = cli->args[0], .n = q->n, .settings = q->settings, .bounded = true};
    if (q->n > 0 && !points_decide(&job, &q->rows)) return false;
    report_table(q);
    const bool priced = q->n > 0 && rows_priced(&q->rows);
    if (cli->options.fit.usd > 0 && !priced) {
        cli_error(cli, FAULT_usage, "option-value", "--usd: no price is known for these GPUs");
        diag_hint(&cli->diag, "--price 2.5 says what a GPU costs an hour, in USD");
        return false;
    }
    if (cli->options.fit.days > 0 || cli->options.fit.usd > 0) report_limits(q);
    return true;
}
