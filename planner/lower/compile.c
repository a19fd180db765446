/* Makes a plan from a config and a graph. It runs the passes in order and checks the graph after
 * each pass. */
#include "planner/lower/compile.h"

#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

enum { MOST_INSTRUCTIONS = 4 << 20 };

static const Pass lowering[] = {
    {"lower", NULL, false, pass_lower},
    {"fuse", NULL, false, pass_fuse},
    {"memory", NULL, false, pass_memory},
};

/* Returns the i-th pass. The passes on the graph come first, then those that make programs. */
static const Pass *pass_at(uint32_t i)
{
    return i < passes_count ? &passes_list[i] : &lowering[i - passes_count];
}

uint32_t compile_count(void)
{
    return passes_count + sizeof lowering / sizeof lowering[0];
}

const char *compile_name(uint32_t i)
{
    assert(i < compile_count());
    return pass_at(i)->name;
}

LowerOptions lower_options_default(void)
{
    return (LowerOptions){.dtypes = dtype_map_identity()};
}

static bool wanted(const Config *config, const Pass *pass)
{
    if (!pass->spec || pass->spec->always) return true;
    for (uint32_t i = 0; i < config->n_passes; i++)
        if (pass_specs[config->passes[i].name] == pass->spec) return true;
    return false;
}

static void step_info(const Config *config, const Graph *g, StepInfo *step)
{
    int64_t data = config_data_ranks(config);
    step->micro_batch = config->micro_batch * data;
    step->global_batch = config->global_batch;
    step->seq = config->seq;
    step->n_microbatches = (uint32_t)(config->global_batch / step->micro_batch);
    const int64_t labels = graph_labels(g);
    step->global_tokens = (double)config->global_batch * (double)(labels ? labels : config->seq);
    step->denominator = config->denominator;
    step->group = config->group;
    step->seed = config->seed;
}

/* Reports an error if the program would be too large. This runs before the program is written. */
static void check_size(const Job *job, const char *after)
{
    const Graph *g = &job->plan->graph;
    const uint32_t longer = job->options.microbatches, own = job->plan->step.n_microbatches,
                   n_microbatches = longer > own ? longer : own;
    uint64_t n = (uint64_t)g->nodes.n * n_microbatches;
    if (strcmp(after, "backward") != 0 || n <= MOST_INSTRUCTIONS) return;
    diag_error(job->diag, FAULT_input, "too-many-microbatches", job->config->batch_loc,
               "%u micro-batches of %u operations make a program of over %u million instructions",
               n_microbatches, g->nodes.n, MOST_INSTRUCTIONS >> 20);
    diag_hint(job->diag, "batch.global may be up to %lld, or raise batch.micro",
              (long long)(MOST_INSTRUCTIONS / g->nodes.n * (uint64_t)job->plan->step.micro_batch));
}

/* The graph before a pass. If the pass fails, the graph is restored, so that later passes can still
 * report errors. */
typedef struct Snapshot {
    Graph graph;
    Tensor *tensors;
    Node *nodes;
    Unit *units;
} Snapshot;

/* Returns a copy of a list. The memory of the copy is not zeroed first. */
static void *copy_of(const Job *job, const void *at, uint32_t n, size_t size)
{
    uint32_t room = 0;
    void *copy = list_grow(job->scratch, NULL, 0, &room, n + 1, size);
    if (n > 0) memcpy(copy, at, n * size);
    return copy;
}

/* Returns the graph before a pass. The last check has stored it already, unless an error has been
 * found or no check has run yet. */
static Snapshot snapshot_take(const Job *job, const CheckedGraph *checked, bool failed)
{
    const Graph *g = &job->plan->graph;
    if (!failed && checked->tensors.n > 0)
        return (Snapshot){*g, checked->tensors.at, checked->nodes.at, checked->units.at};
    return (Snapshot){.graph = *g,
                      .tensors = copy_of(job, g->tensors.at, g->tensors.n, sizeof *g->tensors.at),
                      .nodes = copy_of(job, g->nodes.at, g->nodes.n, sizeof *g->nodes.at),
                      .units = copy_of(job, g->units.at, g->units.n, sizeof *g->units.at)};
}

#define RESTORE(list, old, copy)                                                                   \
    do {                                                                                           \
        (list)->at = (old)->at, (list)->n = (old)->n, (list)->room = (old)->room;                  \
        if ((list)->n) memcpy((list)->at, copy, (list)->n * sizeof *(list)->at);                   \
    } while (0)

static void snapshot_restore(Job *job, const Snapshot *s)
{
    Graph *g = &job->plan->graph;
    RESTORE(&g->tensors, &s->graph.tensors, s->tensors);
    RESTORE(&g->nodes, &s->graph.nodes, s->nodes);
    RESTORE(&g->units, &s->graph.units, s->units);
}

static bool reports(const Pass *pass)
{
    return pass->spec ? pass->spec->reports : pass->reports;
}

/* Runs one pass. After an error, it deletes the units that the pass made, so that a second data
 * pass can make its own units and report its own errors. Returns false if no further pass can
 * run. */
static bool run_pass(Job *job, CheckedGraph *checked, const Pass *pass, bool failed)
{
    uint32_t before = job->diag->n_errors;
    Snapshot snapshot = {.tensors = NULL};
    if (reports(pass)) snapshot = snapshot_take(job, checked, failed);
    bool ok = pass->spec ? pass->spec->run(job) : pass->run(job), sound = true;
    assert(ok || job->diag->n_errors > before);
    if (ok && !failed) {
        sound = check_graph(job, checked, pass->name);
        if (sound) check_size(job, pass->name);
    }
    bool twice = failed && job->plan->graph.units.n > snapshot.graph.units.n;
    if (reports(pass) && (!ok || twice)) snapshot_restore(job, &snapshot);
    arena_reset(job->scratch);
    return sound;
}

static bool is_shipped(const Config *config, const char *name)
{
    for (uint32_t i = 0; i < config->scripts.n; i++)
        if (strcmp(config->scripts.at[i].name, name) == 0) return config->scripts.at[i].shipped;
    return false;
}

void plan_place_diagnostics(const Config *config, Diag *d, uint32_t first)
{
    const Loc user = config->model_loc;
    if (user.file == NULL || is_shipped(config, user.file)) return;
    for (uint32_t i = first; i < d->items.n; i++)
        if (d->items.at[i].loc.file != NULL && is_shipped(config, d->items.at[i].loc.file))
            diag_in_library(d, i, user);
}

Plan *plan_compile_planned(const Planned *planned, Graph *graph, const LowerOptions *options,
                           const char *stop_after, Arena *arena, Diag *d)
{
    const Config *config = &planned->config;
    const uint32_t before = d->n_errors;
    order_check(config, arena, d);
    passes_check_axes(config, graph, d);
    Plan *plan = arena_alloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->graph = *graph;
    plan->parent = options->parent;
    step_info(config, &plan->graph, &plan->step);
    plan->nccl = config->nccl;
    Job job = {.config = config,
               .plan = plan,
               .arena = arena,
               .scratch = arena_new(),
               .diag = d,
               .options = *options,
               .tp.share_gathers = true};
    CheckedGraph checked = {.arena = arena_new()};
    bool goes_on = true;
    for (uint32_t i = 0; i < compile_count() && goes_on; i++) {
        const Pass *pass = pass_at(i);
        bool failed = d->n_errors > before;
        if (i == passes_count) graph_find_producers(&plan->graph);
        if (wanted(config, pass) && (reports(pass) || !failed))
            goes_on = run_pass(&job, &checked, pass, failed);
        if (stop_after && strcmp(stop_after, pass->name) == 0) break;
    }
    arena_free(checked.arena);
    arena_free(job.scratch);
    return d->n_errors == before ? plan : NULL;
}

Plan *plan_compile(const Config *config, Graph *graph, const LowerOptions *options,
                   const char *stop_after, Arena *arena, Diag *d)
{
    const uint32_t first = d->items.n;
    Planned *planned = arena_alloc(arena, sizeof *planned);
    config_planned(config, planned);
    Plan *plan = plan_compile_planned(planned, graph, options, stop_after, arena, d);
    plan_place_diagnostics(config, d, first);
    return plan;
}
