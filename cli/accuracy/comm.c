/* Compares published collectives with the network model: tandem accuracy --comm FILE. */
#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/comm_row.h"

/* Returns the name of the group to which a row's error belongs. Rows that give only a bandwidth
 * form one group, and collectives of up to 1 MiB another. Larger all-reduces of the eight devices
 * of a node form a group. All other collectives form two: between nodes, and within a node. */
static const char *group_of(const CommRow *row)
{
    const NcclQuestion *q = &row->question;
    if (row->measured_us <= 0) return "peak bus bandwidth";
    if (q->bytes <= 1 << 20) return "collectives to 1 MiB";
    if (q->kind == COLLECTIVE_all_reduce && q->n_nodes == 1 && q->ranks_per_node == 8)
        return "all-reduce of 8, above 1 MiB";
    return q->n_nodes > 1 ? "others between nodes, above 1 MiB" : "others in a node, above 1 MiB";
}

static void score_row(const Csv *csv, RowOut *out)
{
    /* kept while the process runs, because thousands of rows name only a few clusters */
    static CommClusters clusters;
    if (clusters.arena == NULL) clusters.arena = arena_new();
    CommRow row;
    const char *why = comm_row(&clusters, csv, out->row, &row);
    if (why != NULL) {
        row_reason(out, why);
    } else {
        double measured = comm_row_measured(&row), predicted = comm_row_predicted(&row, NULL);
        row_score(out, "collectives, all", measured, predicted);
        row_score(out, group_of(&row), measured, predicted);
    }
}

bool score_comm(Cli *cli, const Csv *csv, Scores *scores)
{
    return jobs_run(csv, cli->options.jobs, "collective", score_row, cli, scores);
}
