/* tandem net: prints the times of a cluster's collectives by size, in the columns of nccl-tests. If
 * the user gives a table of measurements, its times are printed beside the predicted ones. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"
#include "cli/predict.h"
#include "planner/base/plural.h"
#include "planner/front/front.h"

enum { MOST_NET_ROWS = 256 };

typedef struct NetRow {
    uint64_t bytes;
    double measured_us; /* time from the measured table; 0: none */
    NcclChoice choice;
} NetRow;

typedef struct NetTable {
    Cluster cluster;
    NcclQuestion question;
    LIST(NetRow) rows;
    bool compares;
} NetTable;

/* Reads a size as nccl-tests does: "8", "64K", "1M", "8G", where letters are powers of 1024. */
static bool read_size(Cli *cli, const char *option, const char *text, uint64_t *bytes)
{
    if (text == NULL) return true;
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    uint32_t shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case 'T': shift = 40; break;
    case 0: break;
    default: shift = 64; break;
    }
    if (shift > 0 && shift < 64) end++;
    if (!isdigit((unsigned char)text[0]) || errno != 0 || *end != 0 || shift == 64 || n == 0 ||
        n > (UINT64_C(1) << 50) >> shift)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--%s %s: write a size, as in 8, 64K, 1M or 8G", option, text);
    *bytes = (uint64_t)n << shift;
    return true;
}

/* Reads the cluster of a plan, or a cluster of the library by its name. */
static bool find_cluster(Cli *cli, NetTable *t)
{
    const char *name = cli->args[0], *dot = strrchr(name, '.');
    if (dot == NULL || strcmp(dot, ".lua") != 0) {
        uint32_t nodes = cli->options.n_nodes > 0 ? cli->options.n_nodes : 1;
        return front_cluster(name, nodes, cli->arena, &t->cluster, &cli->diag);
    }
    Config config;
    Mesh mesh;
    if (!plan_file_mesh(cli, name, &config, &mesh)) return false;
    t->cluster = config.cluster;
    return true;
}

/* Forms a group of --per-node ranks in each node of the cluster. */
static bool choose_per_node(Cli *cli, NetTable *t)
{
    const Cluster *c = &t->cluster;
    uint32_t members = cli->options.net.per_node;
    if (cli->options.n > 0)
        return cli_error(
            cli, FAULT_usage, "option-value",
            "--per-node and --gpus exclude each other, because both set the size of the group");
    if (members > c->devices_per_node)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--per-node %" PRIu32 ": a node has %" PRIu32 " device%s", members,
                         c->devices_per_node, str_s(c->devices_per_node));
    if (members * c->nodes < 2)
        return cli_error(
            cli, FAULT_usage, "option-value",
            "--per-node %" PRIu32 ": the group has 1 member, but at least 2 are needed", members);
    t->question.n_nodes = c->nodes;
    t->question.ranks_per_node = members;
    return true;
}

static bool choose_ranks(Cli *cli, NetTable *t)
{
    const Cluster *c = &t->cluster;
    uint32_t per_node = c->devices_per_node, n = cli->options.n;
    if (c->is_local || per_node == 0)
        return cli_error(
            cli, FAULT_input, "net-cluster",
            "%s is not a cluster of GPUs; measure its collectives with `tandem calibrate`",
            c->name);
    if (cli->options.net.per_node > 0) return choose_per_node(cli, t);
    if (n == 0) n = c->nodes * per_node;
    uint32_t nodes = n <= per_node ? 1 : (n + per_node - 1) / per_node;
    if (n < 2 || n % nodes != 0) {
        cli_error(cli, FAULT_usage, "option-value",
                  "--gpus %" PRIu32
                  ": the group needs at least 2 GPUs, and the same number on each node; a node has "
                  "%" PRIu32,
                  n, per_node);
        diag_hint(&cli->diag, "use %" PRIu32 ", which are %" PRIu32 " whole node%s",
                  nodes * per_node, nodes, str_s(nodes));
        return false;
    }
    t->cluster.nodes = nodes;
    t->question.n_nodes = nodes;
    t->question.ranks_per_node = n / nodes;
    return true;
}

static bool choose_kind(Cli *cli, NetTable *t)
{
    static const char *const names[] = {
#define X(name, factor) #name,
        COLLECTIVES(X)
#undef X
    };
    const char *name = cli->options.net.collective;
    if (name == NULL || collective_find(name, &t->question.kind)) return true;
    cli_error(cli, FAULT_usage, "option-value", "--collective %s: no such collective", name);
    const char *near = str_nearest(name, names, COLLECTIVE_COUNT);
    diag_hint(&cli->diag, "%s",
              near != NULL ? near : "all_reduce, all_gather, reduce_scatter, ...");
    return false;
}

static bool choose_manner(Cli *cli, NetTable *t)
{
    static const char *const issues[] = {"pipelined", "blocking", "one_process"};
    static const char *const buffers[] = {"plain", "symmetric", "copy_engine"};
    const char *issue = cli->options.net.issue, *buffer = cli->options.net.buffers;
    t->question.issue = NCCL_blocking;
    bool fine = issue == NULL, placed = buffer == NULL;
    for (uint32_t i = 0; i < 3; i++) {
        if (issue != NULL && strcmp(issue, issues[i]) == 0) {
            t->question.issue = (NcclIssue)i;
            fine = true;
        }
        if (buffer != NULL && strcmp(buffer, buffers[i]) == 0) {
            t->question.buffers = (NcclBuffers)i;
            placed = true;
        }
    }
    if (!fine)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--issue %s: use pipelined, blocking or one_process", issue);
    if (!placed)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--buffers %s: use plain, symmetric or copy_engine", buffer);
    if (nccl_buffers_possible(&t->cluster, &t->question)) return true;
    return cli_error(cli, FAULT_input, "net-buffers",
                     "%s on %" PRIu32
                     " node%s of %s cannot use %s buffers; see `tandem explain net-buffers`",
                     collective_name(t->question.kind), t->question.n_nodes,
                     str_s(t->question.n_nodes), t->cluster.name, buffer);
}

static void add_row(Cli *cli, NetTable *t, uint64_t bytes, double measured_us)
{
    NcclQuestion q = t->question;
    q.bytes = bytes;
    NetRow row = {bytes, measured_us, nccl_answer_alone(&t->cluster, &q)};
    list_push(cli->arena, &t->rows, row);
}

static bool fill(Cli *cli, NetTable *t)
{
    uint64_t least = 8, most = UINT64_C(8) << 30;
    if (!read_size(cli, "min", cli->options.net.min_text, &least) ||
        !read_size(cli, "max", cli->options.net.max_text, &most))
        return false;
    if (least > most)
        return cli_error(cli, FAULT_usage, "option-value", "--min is larger than --max");
    if (cli->options.net.compare == NULL) {
        for (uint64_t bytes = least; bytes <= most && t->rows.n < MOST_NET_ROWS; bytes *= 2)
            add_row(cli, t, bytes, 0);
        return true;
    }
    NcclTestText text;
    if (!nccl_tests_read(cli->options.net.compare, cli->arena, &text, &cli->diag)) return false;
    if (text.known && cli->options.net.collective == NULL) t->question.kind = text.kind;
    t->compares = true;
    for (uint32_t i = 0; i < text.rows.n; i++) {
        const NcclTestRow *row = &text.rows.at[i];
        double us = row->us > 0 ? row->us : row->in_place_us;
        if (us > 0 && row->bytes >= least && row->bytes <= most) add_row(cli, t, row->bytes, us);
    }
    return true;
}

/* Returns the value of nccl-tests' column `count`: the elements of one rank, even if the size is
 * that of all ranks. */
static uint64_t count_of(const NetTable *t, uint64_t bytes)
{
    const NcclQuestion *q = &t->question;
    bool of_all = q->kind != COLLECTIVE_all_reduce && q->kind != COLLECTIVE_broadcast &&
                  q->kind != COLLECTIVE_reduce && q->kind != COLLECTIVE_sendrecv;
    uint64_t ranks = (uint64_t)q->n_nodes * q->ranks_per_node;
    return bytes / sizeof(float) / (of_all ? ranks : 1);
}

static double us_of(const NetRow *row)
{
    return (double)row->choice.time_ps / 1e6;
}

static double algorithm_bytes_per_s(const NetRow *row)
{
    return (double)row->bytes / us_of(row) * 1e6;
}

/* Computes the mean and the maximum of |predicted / measured - 1|. */
static void errors_of(const NetTable *t, double *mean, double *worst)
{
    *mean = *worst = 0;
    for (uint32_t i = 0; i < t->rows.n; i++) {
        double error = fabs(us_of(&t->rows.at[i]) / t->rows.at[i].measured_us - 1);
        *mean += error / t->rows.n;
        *worst = fmax(*worst, error);
    }
}

static void net_text(Cli *cli, const NetTable *t)
{
    static const char *const heads[] = {">size", ">count", ">type",  "  algo",    "proto", ">nc",
                                        ">time", ">algbw", ">busbw", ">measured", ">error"};
    static const char *const units[] = {"(B)",  "(elements)", "",       "  ",   "",   "",
                                        "(us)", "(GB/s)",     "(GB/s)", "(us)", "(%)"};
    const NcclQuestion *q = &t->question;
    str_print(&cli->out, "# %s of %" PRIu32 " x %" PRIu32 " %s on %s\n", collective_name(q->kind),
              q->n_nodes, q->ranks_per_node, t->cluster.device.name, t->cluster.name);
    uint32_t n = t->compares ? 11 : 9;
    Table table = table_in(cli->arena, n, heads);
    for (uint32_t k = 0; k < n; k++) table_cell(&table, "%s", units[k]);
    for (uint32_t i = 0; i < t->rows.n; i++) {
        const NetRow *row = &t->rows.at[i];
        table_cell(&table, "%" PRIu64, row->bytes);
        table_cell(&table, "%" PRIu64, count_of(t, row->bytes));
        table_cell(&table, "float");
        table_cell(&table, "  %s", row->choice.algorithm);
        table_cell(&table, "%s", row->choice.protocol);
        table_cell(&table, "%" PRIu32, row->choice.channels);
        table_cell(&table, "%.2f", us_of(row));
        table_cell(&table, "%.2f", algorithm_bytes_per_s(row) / 1e9);
        table_cell(&table, "%.2f", row->choice.bus_bytes_per_s / 1e9);
        if (!t->compares) continue;
        table_cell(&table, "%.2f", row->measured_us);
        table_cell(&table, "%+.1f", 100 * (us_of(row) / row->measured_us - 1));
    }
    table_print(&table, &cli->out);
    Trust trust = trust_of_net(&t->cluster, q);
    str_print(&cli->out, "# trust: %s\n", trust_text(cli->arena, &trust));
    if (!t->compares || t->rows.n == 0) return;
    double mean, worst;
    errors_of(t, &mean, &worst);
    str_print(&cli->out, "# error: mean %.1f %%, largest %.1f %%\n", 100 * mean, 100 * worst);
}

static void net_json(Cli *cli, const NetTable *t)
{
    json_text(cli->json, "cluster", t->cluster.name);
    json_text(cli->json, "collective", collective_name(t->question.kind));
    json_count(cli->json, "nodes", t->question.n_nodes);
    json_count(cli->json, "ranks_per_node", t->question.ranks_per_node);
    json_t *list = json_array();
    for (uint32_t i = 0; i < t->rows.n; i++) {
        const NetRow *row = &t->rows.at[i];
        json_t *item = json_object();
        json_count(item, "bytes", row->bytes);
        json_text(item, "algorithm", row->choice.algorithm);
        json_text(item, "protocol", row->choice.protocol);
        json_count(item, "channels", row->choice.channels);
        json_count(item, "time_ps", (uint64_t)row->choice.time_ps);
        json_count(item, "latency_ps", (uint64_t)row->choice.latency_ps);
        json_number(item, "algbw_bytes_per_s", algorithm_bytes_per_s(row));
        json_number(item, "busbw_bytes_per_s", row->choice.bus_bytes_per_s);
        if (t->compares) json_number(item, "measured_us", row->measured_us);
        json_array_append_new(list, item);
    }
    json_put(cli->json, "rows", list);
    Trust trust = trust_of_net(&t->cluster, &t->question);
    json_put(cli->json, "trust", trust_json(&trust));
}

void cmd_net(Cli *cli)
{
    NetTable *t = arena_alloc(cli->arena, sizeof *t);
    if (!find_cluster(cli, t) || !choose_ranks(cli, t) || !choose_kind(cli, t) ||
        !choose_manner(cli, t) || !fill(cli, t))
        return;
    if (cli->json != NULL)
        net_json(cli, t);
    else
        net_text(cli, t);
}
