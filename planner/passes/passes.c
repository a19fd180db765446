/* The passes in the order in which they run, and the driver. Each pass is one idea in one file. */
#include "planner/passes/passes.h"

#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

enum { MOST_INSTRUCTIONS = 4 << 20 };

static const Pass all_passes[] = {
    {"mesh", false, true, pass_mesh},
    {"pp", false, true, pass_pp},
    {"meta", true, true, pass_meta},
    {"tp", true, true, pass_tp},
    {"ep", true, true, pass_ep},
    {"cp", true, true, pass_cp},
    {"float8", true, true, pass_float8},
    {"ac", true, true, pass_ac},
    {"fsdp2", true, true, pass_fsdp2},
    {"ddp", true, true, pass_ddp},
    {"zero", true, true, pass_zero},
    {"compile", true, true, pass_compile},
    {"materialize", true, true, pass_materialize},
    {"initialise", false, true, pass_initialise},
    {"units", false, false, pass_units},
    {"propagate", false, false, pass_propagate},
    {"tile", true, false, pass_tile},
    {"backward", false, false, pass_backward},
    {"turn", false, false, pass_turn},
    {"flatten", false, false, pass_flatten},
    {"lower", false, false, pass_lower},
    {"fuse", false, false, pass_fuse},
    {"memory", false, false, pass_memory},
};
const Pass *const passes_list = all_passes;
const uint32_t passes_count = sizeof all_passes / sizeof all_passes[0];

LowerOptions lower_options_default(void)
{
    return (LowerOptions){dtype_map_identity(), NULL, {0, 0}};
}

const PassConfig *pass_config(const Job *job, PassName name)
{
    for (uint32_t i = 0; i < job->config->n_passes; i++)
        if (job->config->passes[i].name == name) return &job->config->passes[i];
    return NULL;
}

/* Experts over ranks that tp or cp cut, or that replicas are of: no axis of the mesh. */
static void check_folded(const Config *config, Diag *d)
{
    if (config->ep_folded <= 1) return;
    diag_error(
        d, FAULT_input, "axis-unsupported", config->axis_loc[AXIS_ep],
        "mesh.ep = %u (folded): this version carves ep out of dp_shard alone, where neither tp "
        "nor cp lies inside of it",
        config->ep_folded);
    diag_hint(d, "make ep a factor of the world (ep_mode = \"extra\"), or a divisor of dp_shard "
                 "without tp and cp");
}

/* Ranks that share experts have other samples: who sums the gradients of the rest? */
static void check_experts(const Config *config, const bool *has, Diag *d)
{
    const uint32_t *n = config->axis_size;
    if (n[AXIS_ep] > 1 && !has[PASS_ep]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_ep],
                   "mesh.ep = %u but parallel has no ep{}: every rank would hold all experts",
                   n[AXIS_ep]);
        diag_hint(d, "add ep{} to parallel, or make ep a part of dp_shard");
    }
    const bool sums = has[PASS_ddp] || has[PASS_fsdp2] || has[PASS_zero];
    if (n[AXIS_ep] > 1 && !sums) {
        diag_error(d, FAULT_input, "data-none", config->axis_loc[AXIS_ep],
                   "mesh.ep = %u but parallel has neither ddp{} nor fsdp2{} nor zero{}: ranks that "
                   "share experts have other samples, and would train the rest of the model apart",
                   n[AXIS_ep]);
        diag_hint(d, "add fsdp2{} or ddp{}");
    }
}

/* A parallel axis that no pass uses would silently do nothing; a pass without its axis is reported.
 */
static bool check_axes(const Config *config, Diag *d)
{
    uint32_t before = d->n_errors;
    bool has[PASS_NAME_COUNT] = {false};
    for (uint32_t i = 0; i < config->n_passes; i++) has[config->passes[i].name] = true;
    const uint32_t *n = config->axis_size;
    if (n[AXIS_pp] > 1 && !has[PASS_pp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_pp],
                   "mesh.pp = %u but parallel has no pp{}: the model would not be cut into stages",
                   n[AXIS_pp]);
        diag_hint(d, "add pp{ schedule = \"1f1b\" } first in parallel, or remove pp from the mesh");
    }
    if (n[AXIS_tp] > 1 && !has[PASS_tp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_tp],
                   "mesh.tp = %u but parallel has no tp{}: %u ranks would repeat the same work",
                   n[AXIS_tp], n[AXIS_tp]);
        diag_hint(d, "add tp{} to parallel, or remove tp from the mesh");
    }
    if (n[AXIS_cp] > 1 && !has[PASS_cp]) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_cp],
                   "mesh.cp = %u but parallel has no cp{}: %u ranks would repeat the same work",
                   n[AXIS_cp], n[AXIS_cp]);
        diag_hint(d, "add cp{} to parallel, or make cp a part of dp_shard");
    }
    bool zero_shards = false;
    for (uint32_t i = 0; i < config->n_passes; i++)
        zero_shards = zero_shards || (config->passes[i].name == PASS_zero &&
                                      config->passes[i].zero.strategy != ZERO_no_shard);
    if (n[AXIS_dp_shard] > 1 && !has[PASS_fsdp2] && !zero_shards) {
        diag_error(d, FAULT_input, "axis-unused", config->axis_loc[AXIS_dp_shard],
                   "mesh.dp_shard = %u but parallel has neither fsdp2{} nor a zero{} that shards: "
                   "gradients "
                   "would never be summed",
                   n[AXIS_dp_shard]);
        diag_hint(d, "add fsdp2{}, or use dp_replicate with ddp{}");
    }
    check_experts(config, has, d);
    if (n[AXIS_dp_replicate] > 1 && !has[PASS_ddp] && !has[PASS_fsdp2] && !has[PASS_zero]) {
        diag_error(d, FAULT_input, "data-none", config->axis_loc[AXIS_dp_replicate],
                   "mesh.dp_replicate = %u but parallel has neither ddp{} nor fsdp2{}: every "
                   "replica would train "
                   "a model of its own",
                   n[AXIS_dp_replicate]);
        diag_hint(d, "add ddp{}");
    }
    if (has[PASS_ddp] + has[PASS_fsdp2] + has[PASS_zero] > 1) {
        diag_error(
            d, FAULT_input, "data-twice", config->mesh_loc,
            "ddp{}, fsdp2{} and zero{} each own the data axes: gradients would be reduced twice");
        diag_hint(d, "keep one; fsdp2{} on a mesh with dp_replicate > 1 is already HSDP");
    }
    check_folded(config, d);
    if (n[AXIS_domain] > 1) {
        diag_error(d, FAULT_input, "axis-unsupported", config->axis_loc[AXIS_domain],
                   "mesh.domain = %u: this version has no pass that uses the domain axis",
                   n[AXIS_domain]);
        diag_hint(d, "set domain = 1; pp, dp_replicate, dp_shard, cp, ep and tp are available");
    }
    warn_not_applied(config, d);
    zero_check_options(config, d);
    return d->n_errors == before;
}

static bool wanted(const Config *config, const Pass *pass)
{
    if (!pass->optional) return true;
    for (uint32_t i = 0; i < config->n_passes; i++)
        if (strcmp(pass_word(config->passes[i].name), pass->name) == 0) return true;
    return false;
}

static void step_info(const Config *config, StepInfo *step)
{
    int64_t data = config_data_ranks(config);
    step->micro_batch = config->micro_batch * data;
    step->global_batch = config->global_batch;
    step->seq = config->seq;
    step->n_microbatches = (uint32_t)(config->global_batch / step->micro_batch);
    step->global_tokens = (double)config->global_batch * (double)config->seq;
    step->denominator = config->denominator;
    step->group = config->group;
    step->seed = config->seed;
}

/* Micro-batches are unrolled: what would not fit into memory is refused before it is written. */
static void check_size(const Job *job, const char *after)
{
    const Graph *g = &job->plan->graph;
    uint64_t n = (uint64_t)g->nodes.n * job->plan->step.n_microbatches;
    if (strcmp(after, "backward") != 0 || n <= MOST_INSTRUCTIONS) return;
    diag_error(job->diag, FAULT_input, "too-many-microbatches", job->config->batch_loc,
               "%u micro-batches of %u operations make a program of over %u million instructions",
               job->plan->step.n_microbatches, g->nodes.n, MOST_INSTRUCTIONS >> 20);
    diag_hint(job->diag, "batch.global may be up to %lld, or raise batch.micro",
              (long long)(MOST_INSTRUCTIONS / g->nodes.n * (uint64_t)job->plan->step.micro_batch));
}

/* The graph before a pass, so that one that fails leaves nothing half done to those that still
 * report. */
typedef struct Snapshot {
    Graph graph;
    Tensor *tensors;
    Node *nodes;
    Unit *units;
} Snapshot;

static Snapshot snapshot_take(const Job *job)
{
    const Graph *g = &job->plan->graph;
    Snapshot s = {.graph = *g,
                  .tensors = arena_array(job->scratch, g->tensors.n + 1, sizeof *s.tensors),
                  .nodes = arena_array(job->scratch, g->nodes.n + 1, sizeof *s.nodes),
                  .units = arena_array(job->scratch, g->units.n + 1, sizeof *s.units)};
    if (g->tensors.n) memcpy(s.tensors, g->tensors.at, g->tensors.n * sizeof *s.tensors);
    if (g->nodes.n) memcpy(s.nodes, g->nodes.at, g->nodes.n * sizeof *s.nodes);
    if (g->units.n) memcpy(s.units, g->units.at, g->units.n * sizeof *s.units);
    return s;
}

/* Lists rely on zeroes behind their end. */
#define RESTORE(list, old, copy)                                                                   \
    do {                                                                                           \
        (list)->at = (old)->at, (list)->n = (old)->n, (list)->room = (old)->room;                  \
        if ((list)->room) memset((list)->at, 0, (list)->room * sizeof *(list)->at);                \
        if ((list)->n) memcpy((list)->at, copy, (list)->n * sizeof *(list)->at);                   \
    } while (0)

static void snapshot_restore(Job *job, const Snapshot *s)
{
    Graph *g = &job->plan->graph;
    RESTORE(&g->tensors, &s->graph.tensors, s->tensors);
    RESTORE(&g->nodes, &s->graph.nodes, s->nodes);
    RESTORE(&g->units, &s->graph.units, s->units);
}

/* One pass. After another has `failed` units are not kept: a second data pass makes its own. False:
 * nothing can run any more. */
static bool run_pass(Job *job, const Pass *pass, bool failed)
{
    uint32_t before = job->diag->n_errors;
    Snapshot snapshot = {.tensors = NULL};
    if (pass->reports) snapshot = snapshot_take(job);
    bool ok = pass->run(job), sound = true;
    assert(ok || job->diag->n_errors > before);
    if (ok && !failed) {
        sound = check_graph(job, pass->name);
        if (sound) check_size(job, pass->name);
    }
    bool twice = failed && job->plan->graph.units.n > snapshot.graph.units.n;
    if (pass->reports && (!ok || twice)) snapshot_restore(job, &snapshot);
    arena_reset(job->scratch);
    return sound;
}

Plan *passes_compile(const Config *config, Graph *graph, const LowerOptions *options,
                     const char *stop_after, Arena *arena, Diag *d)
{
    uint32_t before = d->n_errors;
    order_check(config, arena, d);
    check_axes(config, d);
    Plan *plan = arena_alloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->graph = *graph;
    plan->parent = options->parent;
    step_info(config, &plan->step);
    plan->nccl = config->nccl;
    Job job = {.config = config,
               .plan = plan,
               .arena = arena,
               .scratch = arena_new(),
               .diag = d,
               .options = *options,
               .share_gathers = true};
    bool goes_on = true;
    for (uint32_t i = 0; i < passes_count && goes_on; i++) {
        const Pass *pass = &all_passes[i];
        bool failed = d->n_errors > before;
        if (wanted(config, pass) && (pass->reports || !failed))
            goes_on = run_pass(&job, pass, failed);
        if (stop_after && strcmp(stop_after, pass->name) == 0) break;
    }
    arena_free(job.scratch);
    return d->n_errors == before ? plan : NULL;
}
