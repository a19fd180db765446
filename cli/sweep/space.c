/* Lists the points of a search: every combination of sizes that divide evenly. Other conditions are
 * left to the passes, whose refusal also tells the user something. */
#include "cli/sweep/space.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/pass_spec.h"
#include "planner/ir/experts.h"

enum { MOST_POINTS = 100000, MOST_STAGES = 16, MOST_MICRO = 16, MOST_SPLIT = 8 };
enum { LONG_TOKENS = 32768 };

/* The properties of the model and of the script on which the points depend. */
typedef struct SpaceFacts {
    const Config *config;
    uint32_t n_ranks, per_node, layers, heads, kv_heads;
    int64_t experts;
} SpaceFacts;

/* A mesh: one way to use the ranks. */
typedef struct MeshUse {
    uint32_t size[AXIS_NAMES];
} MeshUse;

static AxisName shards_axis(void)
{
    return axes_first(axes_with(AXIS_UNITS));
}

static AxisNames copies_axes(void)
{
    return axes_cutting(INDEX_samples) & ~axes_with(AXIS_STATES);
}

/* Returns true if a pass divides the model over this axis. The two data axes have no such pass.
 * They get the ranks that the other axes leave. */
static bool is_of_model(AxisName axis)
{
    return axis_info(axis)->pass != NULL;
}

static uint32_t ranks_of(const MeshUse *way, AxisNames names)
{
    uint32_t n = 1;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        if (axes_have(names, (AxisName)a)) n *= way->size[a];
    return n;
}

static SpaceFacts facts_of(const Config *c, const Graph *g)
{
    const ModelInfo *info = &g->info;
    SpaceFacts f = {.config = c,
                    .n_ranks = c->cluster.nodes * c->cluster.devices_per_node,
                    .per_node = c->cluster.devices_per_node,
                    .layers = info->n_layers,
                    .heads = info->n_heads,
                    .kv_heads = info->n_kv_heads,
                    .experts = experts_most(g)};
    if (f.kv_heads == 0) f.kv_heads = f.heads;
    return f;
}

int64_t space_size(const Config *c, int64_t experts, AxisName axis)
{
    const AxisInfo *info = axis_info(axis);
    if (info->trades == INDEX_experts) return experts;
    if (info->cuts == INDEX_tokens) return c->height > 0 ? 0 : c->seq;
    if (info->cuts == INDEX_height) return c->height;
    return info->cuts == INDEX_width ? c->width : INT64_MAX;
}

static bool divides(int64_t part, int64_t whole)
{
    return whole == 0 ? part == 1 : whole % part == 0;
}

static bool is_listed(const SpaceFacts *f, AxisName axis)
{
    const char *pass = axis_info(axis)->pass;
    for (uint32_t i = 0; pass != NULL && i < f->config->n_passes; i++)
        if (strcmp(pass_specs[f->config->passes[i].name]->name, pass) == 0) return true;
    return false;
}

/* Returns true if the axis can have n ranks, as far as the sizes of model and batch decide this. */
static bool may_have(const SpaceFacts *f, AxisName axis, uint32_t n)
{
    const AxisInfo *info = axis_info(axis);
    const int64_t size = space_size(f->config, f->experts, axis);
    if (n == 1) return true;
    if (info->flags & AXIS_STAGES) return divides(n, f->layers) && divides(n, f->n_ranks);
    if (info->flags & AXIS_WEIGHTS) return divides(n, f->kv_heads) && divides(n, f->heads);
    if (info->cuts == INDEX_tokens && size < LONG_TOKENS && !is_listed(f, axis)) return false;
    return size > 0 && (size == INT64_MAX || divides(n, size));
}

/* Returns the largest size of this axis that the search tries. */
static uint32_t most_ranks(const SpaceFacts *f, AxisName axis)
{
    const AxisInfo *info = axis_info(axis);
    if (info->flags & AXIS_STAGES) return f->n_ranks < MOST_STAGES ? f->n_ranks : MOST_STAGES;
    if (info->flags & AXIS_WEIGHTS || info->trades != INDEX_none) return f->per_node;
    return MOST_SPLIT;
}

/* Returns true if the command line fixes this setting. The search then does not vary it. */
static bool is_fixed(const Cli *cli, const char *key)
{
    const size_t n = strlen(key);
    for (uint32_t i = 0; i < cli->options.set.n; i++)
        if (strncmp(cli->options.set.at[i], key, n) == 0 && cli->options.set.at[i][n] == '=')
            return true;
    return false;
}

/* Returns true if the command line fixes the size of an axis at another value. The value -1 stands
 * for all remaining ranks, so it fixes nothing. */
static bool is_other(const Cli *cli, const char *key, uint32_t value)
{
    const size_t n = strlen(key);
    for (uint32_t i = 0; i < cli->options.set.n; i++) {
        const char *set = cli->options.set.at[i];
        if (strncmp(set, key, n) != 0 || set[n] != '=' || set[n + 1] == '-') continue;
        if (strtoul(set + n + 1, NULL, 10) != value) return true;
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

/* Adds the setting that lists the pass of this axis, or removes the pass if each of its axes has
 * only one rank. A pipeline schedule of the script is replaced, because it may need another number
 * of stages. */
static void add_pass(Cli *cli, TextList *list, const SpaceFacts *f, const MeshUse *way,
                     AxisName axis)
{
    const PassSpec *spec = pass_spec_of(axis_info(axis)->pass);
    const AxisNames all = axes_of_pass(spec->name);
    const bool listed = is_listed(f, axis), stages = axis_info(axis)->flags & AXIS_STAGES;
    const char *key = arena_print(cli->arena, "parallel.%s", spec->name);
    /* a pass with several axes is added only once, with its first axis */
    if (axes_first(all) != axis) return;
    if (ranks_of(way, all) == 1) {
        if (listed) add(cli, list, key, "none");
    } else if (spec->proposal != NULL && (!listed || stages)) {
        const char *equals = strchr(spec->proposal, '=');
        add(cli, list, arena_copy(cli->arena, spec->proposal, (size_t)(equals - spec->proposal)),
            equals + 1);
    } else if (!listed) {
        add(cli, list, key, "true");
    }
}

static const char *mesh_key(Cli *cli, AxisName axis)
{
    return arena_print(cli->arena, "mesh.%s", axis_name_text(axis));
}

static void add_mesh(Cli *cli, TextList *list, const SpaceFacts *f, const MeshUse *way)
{
    for (uint32_t a = 0; a < AXIS_NAMES; a++) {
        const AxisName axis = (AxisName)a;
        const bool shards = axis == shards_axis();
        const bool named = f->config->axis_size[a] > 1 || is_listed(f, axis);
        if (shards || named || way->size[a] > 1)
            add_count(cli, list, mesh_key(cli, axis), way->size[a]);
        if (is_of_model(axis)) add_pass(cli, list, f, way, axis);
    }
}

static Hash128 hash_of(const TextList *list, Arena *arena)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < list->n; i++) str_print(&text, "%s\n", list->at[i]);
    return hash_bytes(str_text(&text), text.n);
}

/* Adds the point to the table of points. Returns false if an equal point is in the table. */
static bool is_new(Cli *cli, SearchSpace *space, const TextList *list)
{
    enum { SLOTS = 1 << 18 }; /* the table is never more than half full */
    _Static_assert(SLOTS > 2 * MOST_POINTS, "the table is never full");
    if (space->seen == NULL) space->seen = arena_array(cli->arena, SLOTS, sizeof *space->seen);
    const Hash128 hash = hash_of(list, cli->arena);
    uint32_t s = (uint32_t)hash.lo & (SLOTS - 1);
    for (; space->seen[s].lo || space->seen[s].hi; s = (s + 1) & (SLOTS - 1))
        if (space->seen[s].lo == hash.lo && space->seen[s].hi == hash.hi) return false;
    space->seen[s] = hash;
    return true;
}

static void push(Cli *cli, SearchSpace *space, const TextList *list)
{
    if (space->n == MOST_POINTS) {
        space->n_left_out++;
        return;
    }
    /* without fixed settings, no two points are equal */
    if (cli->options.set.n > 0 && !is_new(cli, space, list)) return;
    if (space->n == space->room) {
        const uint32_t room = space->room * 2 + 64;
        TextList *more = arena_array(cli->arena, room, sizeof *more);
        if (space->n > 0) memcpy(more, space->settings, space->n * sizeof *more);
        space->settings = more;
        space->room = room;
    }
    space->settings[space->n++] = *list;
}

/* Adds the points of one mesh, which differ in micro-batch, recomputation and sharding. */
static void add_points(Cli *cli, SearchSpace *space, const SpaceFacts *f, const MeshUse *way)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    const int64_t data = ranks_of(way, axes_cutting(INDEX_samples));
    const uint32_t stages = ranks_of(way, axes_with(AXIS_STAGES));
    const int64_t batch = f->config->global_batch;
    /* on one rank, all strategies of sharding are the same */
    const uint32_t n_shardings = way->size[shards_axis()] > 1 ? 2 : 1;
    for (int64_t micro = 1; micro <= MOST_MICRO; micro *= 2) {
        if (batch % (micro * data) != 0) break;
        if (stages > 1 && batch / (micro * data) < stages)
            break; /* most of the time, such a pipeline would be idle */
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t shard = 0; shard < n_shardings; shard++) {
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

/* Divides the remaining ranks between dp_shard and dp_replicate. */
static void add_data_ways(Cli *cli, SearchSpace *space, const SpaceFacts *f, MeshUse way)
{
    const AxisName shards = shards_axis(), copies = axes_first(copies_axes());
    const uint32_t model = ranks_of(&way, ~(AxisNames)0);
    if (f->n_ranks % model != 0) return;
    const uint32_t data = f->n_ranks / model;
    way.size[shards] = data;
    if (!is_other(cli, mesh_key(cli, shards), data)) add_points(cli, space, f, &way);
    /* also try shard groups that stay within one node; their copies are then in other nodes */
    const uint32_t local = f->per_node / ranks_of(&way, ~(axes_with(AXIS_STAGES | AXIS_UNITS)));
    if (local < 2 || local >= data || data % local != 0) return;
    way.size[shards] = local;
    way.size[copies] = data / local;
    if (!is_other(cli, mesh_key(cli, shards), local)) add_points(cli, space, f, &way);
}

/* Tries each size of this mesh axis and, for each, all sizes of the axes inside it. */
static void add_ways(Cli *cli, SearchSpace *space, const SpaceFacts *f, uint32_t a, MeshUse *way)
{
    const AxisName axis = (AxisName)a;
    if (a == AXIS_NAMES) {
        add_data_ways(cli, space, f, *way);
        return;
    }
    way->size[a] = 1;
    if (!is_of_model(axis)) {
        add_ways(cli, space, f, a + 1, way);
        return;
    }
    const bool stages = axis_info(axis)->flags & AXIS_STAGES;
    for (uint32_t n = 1; n <= most_ranks(f, axis); n = stages ? n + 1 : n * 2)
        if (may_have(f, axis, n) && !is_other(cli, mesh_key(cli, axis), n)) {
            way->size[a] = n;
            add_ways(cli, space, f, a + 1, way);
        }
    way->size[a] = 1;
}

/* Returns the reason why a --set leaves no mesh. */
static const char *why_empty(Cli *cli, const SpaceFacts *f)
{
    const AxisName stages = axes_first(axes_with(AXIS_STAGES));
    const uint32_t n = f->config->axis_size[stages];
    if (is_fixed(cli, mesh_key(cli, stages)) && !divides(n, f->layers))
        return arena_print(cli->arena, "%s = %" PRIu32 " does not divide the %" PRIu32 " layers",
                           mesh_key(cli, stages), n, f->layers);
    return "no sizes of the mesh divide this model, batch and cluster";
}

void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space)
{
    const SpaceFacts f = facts_of(config, graph);
    MeshUse way;
    *space = (SearchSpace){.n_ranks = f.n_ranks, .own = UINT32_MAX};
    add_ways(cli, space, &f, 0, &way);
    if (space->n == 0) space->empty = why_empty(cli, &f);
}

/* Returns the settings of the plan itself that a condition may name. */
static TextList own_values(Cli *cli, const Config *config)
{
    TextList list = {NULL, 0, 0};
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        add_count(cli, &list, mesh_key(cli, (AxisName)a), config->axis_size[a]);
    add_count(cli, &list, "batch.micro", config->micro_batch);
    return list;
}

void space_add_plan(Cli *cli, const Config *config, bool freed, SearchSpace *space)
{
    const TextList values = own_values(cli, config);
    const Diag before = cli->diag;
    bool holds;
    cli->diag = diag_in(cli->arena);
    const bool known = where_holds(cli, &values, config, &holds);
    cli->diag = before;
    if (!known || !holds) return;
    TextList list = {NULL, 0, 0};
    if (freed) list_push(cli->arena, &list, "mesh.dp_shard=-1");
    const uint32_t n = space->n;
    push(cli, space, &list);
    if (space->n > n) space->own = n;
}

PlanOptions space_options(Cli *cli, bool *freed)
{
    PlanOptions options = plan_file_options(cli, NULL);
    const char **set = arena_array(cli->arena, options.n_set + 2, sizeof *set);
    bool cuts = false, says = false;
    for (uint32_t i = 0; i < options.n_set; i++) {
        set[i] = options.set[i];
        cuts = cuts || strncmp(set[i], "mesh.", 5) == 0;
        says = says || strncmp(set[i], "mesh.dp_shard=", 14) == 0;
    }
    *freed = cuts && !says;
    if (*freed) set[options.n_set++] = "mesh.dp_shard=-1";
    options.set = set;
    return options;
}
