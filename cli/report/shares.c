/* Shares of experts: the number of choices that each expert gets, drawn by seed or measured. They
 * give the number of rows of each rank in each layer. All ranks of a group wait for the busiest
 * one. So one factor nearly describes a step: the mean over layers of the busiest rank's rows,
 * relative to the mean of all ranks. Where ranks share cores, the other ranks' rows count, too
 * (sim/sim.c). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/predict.h"
#include "planner/base/plural.h"
#include "planner/base/rng.h"
#include "planner/ir/experts.h"

enum { MOST_DRAWS = 50 * 1000 * 1000 };

/* The ops that send tokens to experts, one for each layer, in the order of the model. */
typedef struct Senders {
    LIST(NodeId) ids;
} Senders;

static Senders senders_of(const Graph *g, Arena *arena)
{
    Senders s = {0};
    const NodeId end = g->n_forward > 0 ? g->n_forward + 1 : g->nodes.n;
    for (NodeId id = 1; id < end; id++)
        if (op_sends_tokens(g->nodes.at[id].op)) list_push(arena, &s.ids, id);
    return s;
}

typedef struct Shares {
    LIST(double) at; /* the number of rows of each rank in each layer: [layer][rank] */
    uint32_t ranks, n_layers;
    double sum; /* sum over layers of the busiest rank's load */
} Shares;

/* Adds a layer, and returns the load of its busiest rank. The experts of one rank have consecutive
 * indices. */
static double add_layer(Shares *s, const double *chosen, int64_t experts, Arena *arena)
{
    const uint32_t first = s->at.n, ranks = s->ranks;
    double sum = 0, most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        double own = 0;
        for (int64_t e = r * experts / ranks; e < (r + 1) * experts / ranks; e++) own += chosen[e];
        sum += own;
        if (own > most) most = own;
        list_push(arena, &s->at, own);
    }
    for (uint32_t r = 0; r < ranks; r++)
        s->at.at[first + r] = sum > 0 ? s->at.at[first + r] * ranks / sum : 1;
    most = sum > 0 ? most * ranks / sum : 1;
    s->sum += most;
    s->n_layers++;
    return most;
}

static double mean_of(const Shares *s, RowLoads *loads)
{
    *loads = (RowLoads){.n_layers = s->n_layers, .n_ranks = s->ranks, .share = s->at.at};
    return s->sum / s->n_layers;
}

/* Returns the number of tokens in one exchange: those of all ranks over which the experts are
 * divided. */
static double tokens_of(const Plan *plan, const Node *n)
{
    const Tensor *x = &plan->graph.tensors.at[n->in[0]];
    const Mesh *mesh = &plan->mesh;
    const AxisSet apart =
        (AxisSet)(mesh_axes_of(mesh, axes_cutting(INDEX_samples)) & ~experts_axes(&plan->graph));
    double tokens = 1;
    for (int d = 0; d < x->n_dims; d++)
        if (d != op_dim(n->op, 0, INDEX_features)) tokens *= (double)x->dim[d];
    return tokens / mesh_size(mesh, apart);
}

/* Draws the experts of every token of a layer. All experts have the same chance, and a token never
 * gets an expert twice. If the layer needs more than `left` draws, returns false without drawing:
 * drawing only for some of the tokens would make the layer look more uneven than it is. The first
 * layer is an exception: it is always drawn, if necessary for some of its tokens only. */
static bool draw_layer(const Plan *plan, const Node *n, uint64_t stream, uint64_t seed,
                       double *chosen, uint64_t *last, uint64_t *left)
{
    const Attrs *a = graph_attrs_at(&plan->graph, n->attrs);
    const uint64_t experts = (uint64_t)a->experts, top = (uint64_t)a->top_k;
    const uint64_t tokens = (uint64_t)tokens_of(plan, n);
    const bool is_first = *left == MOST_DRAWS;
    uint64_t index = 0;
    memset(chosen, 0, experts * sizeof *chosen);
    memset(last, 0, experts * sizeof *last);
    if (tokens * top > *left && !is_first) return false;
    for (uint64_t t = 1; t <= tokens && *left > 0; t++)
        for (uint64_t k = 0; k < top;) {
            const uint64_t e = rng_below(seed, stream, index++, experts);
            if (last[e] == t) continue;
            last[e] = t;
            chosen[e]++;
            k++;
            *left -= *left > 0;
        }
    return true;
}

double shares_drawn(const PlanFile *file, uint32_t ranks, Arena *arena, RowLoads *loads)
{
    const Plan *plan = file->plan;
    const Senders s = senders_of(&plan->graph, arena);
    const size_t most = (size_t)experts_most(&plan->graph) + 1;
    double *chosen = arena_array(arena, most, sizeof *chosen);
    /* for each expert, the last token that chose it */
    uint64_t *last = arena_array(arena, most, sizeof *last);
    Shares shares = {.ranks = ranks};
    uint64_t left = MOST_DRAWS;
    for (uint32_t n = 0; n < s.ids.n; n++) {
        const Node *node = &plan->graph.nodes.at[s.ids.at[n]];
        if (!draw_layer(plan, node, n + 1, file->config.seed, chosen, last, &left)) break;
        add_layer(&shares, chosen, graph_attrs_at(&plan->graph, node->attrs)->experts, arena);
    }
    return shares.n_layers ? mean_of(&shares, loads) : 1;
}

/* Reads a line of counts or shares, one number for each expert. Returns how many there are, or
 * UINT32_MAX if the line contains anything but numbers of at least 0. */
static uint32_t read_line(const char *line, double *numbers, uint32_t room)
{
    uint32_t n = 0;
    for (const char *at = line + strspn(line, " \t,");
         *at != 0 && *at != '\n' && *at != '\r' && *at != '#'; at += strspn(at, " \t,")) {
        char *end = NULL;
        const double value = strtod(at, &end);
        if (end == at || !(value >= 0 && value < 1e18)) return UINT32_MAX;
        if (n < room) numbers[n] = value;
        n++;
        at = end;
    }
    return n;
}

bool shares_write(Cli *cli, const Plan *plan, const LoadCounts *counts, const char *path)
{
    const Graph *g = &plan->graph;
    Str text = str_in(cli->arena);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const uint32_t layer = counts->layer_of[id];
        if (layer == 0) continue;
        const int64_t experts = graph_attrs_at(g, g->nodes.at[id].attrs)->experts;
        const uint64_t *chosen = counts->chosen + (size_t)(layer - 1) * counts->n_experts;
        for (int64_t e = 0; e < experts; e++)
            str_print(&text, "%s%" PRIu64, e ? " " : "", chosen[e]);
        str_print(&text, "  # %s\n", g->modules.at[g->nodes.at[id].module].path);
    }
    return cli_write_file(cli, path, str_text(&text), text.n);
}

/* Returns the number of the first line that contains anything but counts and comments, or 0 if
 * there is none. */
static uint32_t line_without_counts(const char *path)
{
    FILE *from = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    uint32_t line = 0, bad = 0;
    double number = 0;
    while (from != NULL && bad == 0 && getline(&text, &size, from) > 0) {
        line++;
        if (read_line(text, &number, 1) == UINT32_MAX) bad = line;
    }
    free(text);
    if (from != NULL) fclose(from);
    return bad;
}

bool shares_writable(Cli *cli, const char *data)
{
    const char *path = cli->options.run.loads;
    const char *const used[] = {cli->args[0], cli->options.db, data};
    struct stat there, other;
    const char *why = NULL;
    if (path == NULL) return true;
    if (*path == 0) {
        why = "a path is expected";
    } else if (stat(path, &there) == 0) {
        for (size_t k = 0; k < sizeof used / sizeof used[0]; k++)
            if (used[k] != NULL && stat(used[k], &other) == 0 && other.st_ino == there.st_ino &&
                other.st_dev == there.st_dev)
                why = "the run reads or writes this file itself";
        if (why == NULL && !S_ISREG(there.st_mode)) why = "it is not a regular file";
        const uint32_t line = why == NULL ? line_without_counts(path) : 0;
        if (line > 0)
            why = arena_print(cli->arena,
                              "line %" PRIu32 " holds no counts of experts, so the run does not "
                              "replace the file",
                              line);
    }
    if (why == NULL) why = cli_write_fault(cli, path);
    if (why == NULL) return true;
    cli_error(cli, FAULT_usage, "option-value", "--loads '%s': %s", path, why);
    diag_hint(&cli->diag, "name a new file, in a folder that exists and may be written");
    return false;
}

static bool refuse(Cli *cli, const char *path, uint32_t line, const char *why)
{
    diag_error(&cli->diag, FAULT_usage, "option-value", (Loc){path, line}, "--imbalance: %s", why);
    diag_hint(&cli->diag, "one line a layer, or one for all, with a count for each expert, as in "
                          "120 98 131 99");
    return false;
}

double shares_read(Cli *cli, const PlanFile *file, const char *path, uint32_t ranks,
                   RowLoads *loads)
{
    const Graph *g = &file->plan->graph;
    const Senders s = senders_of(g, cli->arena);
    const uint32_t room = (uint32_t)experts_most(g);
    double *numbers = arena_array(cli->arena, room + 1, sizeof *numbers);
    Shares shares = {.ranks = ranks};
    char *text = NULL;
    size_t size = 0;
    uint32_t n_line = 0, n = 0;
    bool fine = true;
    FILE *from = fopen(path, "r");
    if (from == NULL)
        return cli_error(cli, FAULT_usage, "option-value",
                         "--imbalance %s: a factor, `drawn` or a file of counts is expected (%s)",
                         path, strerror(errno));
    while (fine && getline(&text, &size, from) > 0) {
        const uint32_t found = read_line(text, numbers, room);
        n_line++;
        if (found == 0) continue;
        const NodeId id = s.ids.at[n < s.ids.n ? n : s.ids.n - 1];
        const int64_t experts = graph_attrs_at(g, g->nodes.at[id].attrs)->experts;
        double all = 0;
        for (uint32_t e = 0; e < found && e < room; e++) all += numbers[e];
        if (found == UINT32_MAX)
            fine = refuse(cli, path, n_line, "the line has a word that is not a count");
        else if (found != experts)
            fine =
                refuse(cli, path, n_line,
                       arena_print(cli->arena, "the line has %" PRIu32 " count%s for %lld experts",
                                   found, str_s(found), (long long)experts));
        else if (all == 0)
            fine = refuse(cli, path, n_line, "all counts of the line are 0");
        else
            add_layer(&shares, numbers, experts, cli->arena), n++;
    }
    free(text);
    if (ferror(from)) fine = refuse(cli, path, 0, strerror(errno));
    fclose(from);
    if (fine && n == 0) fine = refuse(cli, path, 0, "the file has no counts");
    if (fine && n != 1 && n != s.ids.n)
        fine = refuse(cli, path, n_line,
                      arena_print(cli->arena,
                                  "the file has counts of %" PRIu32
                                  " layer%s; the model has %" PRIu32 " with experts",
                                  n, str_s(n), s.ids.n));
    return fine ? mean_of(&shares, loads) : 0;
}
