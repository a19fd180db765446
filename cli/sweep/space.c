/* Makes a point of every combination of sizes that divide evenly. All other conditions are left to
 * the passes: a refusal is an answer, too. */
#include "cli/sweep/space.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 100000, MOST_STAGES = 16, MOST_MICRO = 16, LONG_TOKENS = 32768 };

/* The facts about the model and the script that shape the space. */
typedef struct SpaceFacts {
    uint32_t n_ranks, per_node, layers, heads, kv_heads, experts;
    int64_t batch, seq;
    bool has_pp, has_tp, has_cp, has_ep, replicates;
} SpaceFacts;

/* One way to use the ranks. */
typedef struct MeshWay {
    uint32_t pp, tp, cp, ep, replicas, shards;
} MeshWay;

static bool has_pass(const Config *c, PassName name)
{
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == name) return true;
    return false;
}

static uint32_t experts_of(const Graph *g)
{
    uint32_t most = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (n->op != OP_linear_experts || n->n_in < 2) continue;
        const int64_t experts = g->tensors.at[n->in[1]].dim[0];
        if (experts > most) most = (uint32_t)experts;
    }
    return most;
}

static SpaceFacts facts_of(const Config *c, const Graph *g)
{
    const ModelInfo *info = &g->info;
    uint64_t replicas = 1;
    const AxisNames copies = axes_cutting(INDEX_samples) & ~axes_with(AXIS_STATES);
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(copies, (AxisName)a) && c->axis_size[a] > 1) replicas *= c->axis_size[a];
    SpaceFacts f = {.n_ranks = c->cluster.nodes * c->cluster.devices_per_node,
                    .per_node = c->cluster.devices_per_node,
                    .layers = info->n_layers,
                    .heads = info->n_heads,
                    .kv_heads = info->n_kv_heads,
                    .experts = experts_of(g),
                    .batch = c->global_batch,
                    .seq = c->seq,
                    .has_pp = has_pass(c, PASS_pp),
                    .has_tp = has_pass(c, PASS_tp),
                    .has_cp = has_pass(c, PASS_cp),
                    .has_ep = has_pass(c, PASS_ep),
                    .replicates = replicas > 1};
    if (f.kv_heads == 0) f.kv_heads = f.heads;
    return f;
}

/* A setting that the command line fixes is no dimension of the space. */
static bool is_fixed(const Cli *cli, const char *key)
{
    const size_t n = strlen(key);
    for (uint32_t i = 0; i < cli->options.set.n; i++)
        if (strncmp(cli->options.set.at[i], key, n) == 0 && cli->options.set.at[i][n] == '=')
            return true;
    return false;
}

/* True if the command line fixes another value of this size. */
static bool is_other(const Cli *cli, const char *key, uint32_t value)
{
    const size_t n = strlen(key);
    for (uint32_t i = 0; i < cli->options.set.n; i++) {
        const char *set = cli->options.set.at[i];
        if (strncmp(set, key, n) == 0 && set[n] == '=' && strtoul(set + n + 1, NULL, 10) != value)
            return true;
    }
    return false;
}

static void add(Cli *cli, TextList *list, const char *key, const char *value)
{
    if (!is_fixed(cli, key))
        list_push(cli->arena, list, arena_print(cli->arena, "%s=%s", key, value));
}

static void add_count(Cli *cli, TextList *list, const char *key, int64_t value)
{
    add(cli, list, key, arena_print(cli->arena, "%" PRId64, value));
}

static void add_mesh(Cli *cli, TextList *list, const SpaceFacts *f, const MeshWay *way)
{
    add_count(cli, list, "mesh.pp", way->pp);
    if (f->has_pp || way->pp > 1) add(cli, list, "parallel.pp", way->pp > 1 ? "1f1b" : "none");
    add_count(cli, list, "mesh.tp", way->tp);
    if (way->tp == 1 && f->has_tp) add(cli, list, "parallel.tp", "none");
    if (way->tp > 1 && !f->has_tp) add(cli, list, "parallel.tp.sequence", "true");
    if (f->has_cp || way->cp > 1) add_count(cli, list, "mesh.cp", way->cp);
    if (way->cp == 1 && f->has_cp) add(cli, list, "parallel.cp", "none");
    if (way->cp > 1 && !f->has_cp) add(cli, list, "parallel.cp", "true");
    if (f->has_ep) add_count(cli, list, "mesh.ep", way->ep);
    if (way->ep == 1 && f->has_ep) add(cli, list, "parallel.ep", "none");
    add_count(cli, list, "mesh.dp_shard", way->shards);
    if (f->replicates || way->replicas > 1)
        add_count(cli, list, "mesh.dp_replicate", way->replicas);
}

static void push(Cli *cli, SearchSpace *space, const TextList *list)
{
    if (space->n == MOST_POINTS) return;
    if (space->n == space->room) {
        const uint32_t room = space->room * 2 + 64;
        TextList *more = arena_array(cli->arena, room, sizeof *more);
        if (space->n > 0) memcpy(more, space->settings, space->n * sizeof *more);
        space->settings = more;
        space->room = room;
    }
    for (uint32_t i = 0; i < space->n; i++) { /* fixed settings can make two points equal */
        const TextList *other = &space->settings[i];
        bool same = other->n == list->n;
        for (uint32_t k = 0; same && k < list->n; k++)
            same = strcmp(other->at[k], list->at[k]) == 0;
        if (same) return;
    }
    space->settings[space->n++] = *list;
}

/* Adds the points of one mesh: micro-batches, recomputation and sharding. */
static void add_points(Cli *cli, SearchSpace *space, const SpaceFacts *f, const MeshWay *way)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    const int64_t data = (int64_t)way->replicas * way->shards * way->ep;
    for (int64_t micro = 1; micro <= MOST_MICRO; micro *= 2) {
        if (f->batch % (micro * data) != 0) break;
        if (way->pp > 1 && f->batch / (micro * data) < way->pp)
            break; /* the pipeline would be mostly bubble */
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t shard = 0; shard < 2; shard++) {
                TextList list = {NULL, 0, 0};
                add_mesh(cli, &list, f, way);
                add_count(cli, &list, "batch.micro", micro);
                add(cli, &list, "parallel.ac", recompute[r]);
                if (shard == 0)
                    add(cli, &list, "parallel.fsdp2", "true");
                else
                    add(cli, &list, "parallel.zero.strategy", "optim");
                push(cli, space, &list);
            }
    }
}

static void add_data_ways(Cli *cli, SearchSpace *space, const SpaceFacts *f, MeshWay way)
{
    const uint32_t model = way.pp * way.tp * way.cp * way.ep;
    if (f->n_ranks % model != 0) return;
    const uint32_t data = f->n_ranks / model;
    way.shards = data;
    way.replicas = 1;
    if (!is_other(cli, "mesh.dp_shard", data)) add_points(cli, space, f, &way);
    /* Weights are sharded within a node and copied between nodes. */
    const uint32_t local = f->per_node / (way.tp * way.cp * way.ep);
    if (local < 2 || local >= data || data % local != 0) return;
    way.shards = local;
    way.replicas = data / local;
    if (!is_other(cli, "mesh.dp_shard", local)) add_points(cli, space, f, &way);
}

static bool divides(uint32_t part, uint32_t whole)
{
    return whole == 0 ? part == 1 : whole % part == 0;
}

void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space)
{
    const SpaceFacts f = facts_of(config, graph);
    *space = (SearchSpace){.n_ranks = f.n_ranks};
    for (uint32_t pp = 1; pp <= MOST_STAGES && pp <= f.n_ranks; pp++) {
        if (!divides(pp, f.layers) || f.n_ranks % pp != 0) continue;
        if (is_other(cli, "mesh.pp", pp)) continue;
        for (uint32_t tp = 1; tp <= f.per_node; tp *= 2) {
            if (!divides(tp, f.kv_heads) || !divides(tp, f.heads)) continue;
            if (is_other(cli, "mesh.tp", tp)) continue;
            for (uint32_t cp = 1; cp <= 8; cp *= 2) {
                if (cp > 1 && !f.has_cp && f.seq < LONG_TOKENS) break;
                if (is_other(cli, "mesh.cp", cp)) continue;
                for (uint32_t ep = 1; ep <= f.per_node; ep *= 2) {
                    if (ep > 1 && (!f.has_ep || !divides(ep, f.experts))) break;
                    if (is_other(cli, "mesh.ep", ep)) continue;
                    add_data_ways(cli, space, &f, (MeshWay){pp, tp, cp, ep, 1, 1});
                }
            }
        }
    }
}
