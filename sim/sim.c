/* The entry to the simulator: chooses models for a cluster, runs the engine, and makes the
 * report. */
#include "sim/sim.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/ir/experts.h"
#include "sim/compute/even_rows.h"
#include "sim/compute/imbalance.h"
#include "sim/period.h"
#include "sim/report.h"
#include "sim/runtime/runtime.h"

static bool check_ranks(const Plan *plan, const Cluster *cluster, Diag *d)
{
    uint64_t devices = (uint64_t)cluster->nodes * cluster->devices_per_node;
    if (cluster->devices_per_node > 0 && plan->mesh.n_ranks <= devices) return true;
    diag_error(d, FAULT_input, "sim-cluster", (Loc){0},
               "the plan has %u ranks, but the cluster %s has only %u nodes of %u devices",
               plan->mesh.n_ranks, cluster->name == NULL ? "" : cluster->name, cluster->nodes,
               cluster->devices_per_node);
    diag_hint(d, "use more nodes, or a mesh with fewer ranks");
    return false;
}

static bool has_cores(const Cluster *cluster)
{
    return cluster->is_local || cluster->intra == FABRIC_host;
}

/* Describes in *out how a step with options->microbatches micro-batches repeats the simulated one.
 * Returns false if no period was found. */
static bool find_repeats(const Plan *plan, const Fold *fold, const CostModel *cost,
                         const EngineResult *result, const SimOptions *options, Arena *scratch,
                         Repeats *out)
{
    Period period;
    assert(!options->trace && !options->explain && options->uneven == NULL);
    if (options->microbatches < plan->step.n_microbatches ||
        !period_find(plan, fold, cost, result, scratch, &period))
        return false;
    const uint32_t more = options->microbatches - plan->step.n_microbatches;
    if (more % period.microbatches != 0) return false;
    const uint32_t times = more / period.microbatches;
    if (period.length > 0 && (PS_MOST - result->step_ps) / period.length < times) return false;
    *out = (Repeats){period.from, period.from + period.length, period.length * times, times + 1,
                     options->microbatches};
    return true;
}

/* Fills the report. `whole` is the plan with all its memory; `plan` may be a copy of it with fewer
 * rows of experts. */
static void fill_report(const Plan *whole, const Plan *plan, const Fold *fold,
                        const EngineResult *result, const Repeats *repeats, const Cluster *cluster,
                        const CostModel *cost, const SimOptions *options, Arena *arena,
                        SimReport *report)
{
    report_time(plan, fold, result, repeats, cluster, options->runtime, arena, report);
    if (!runtime_is_own(options->runtime))
        report->host_bound = false; /* the simulated times already contain the host's time */
    if (!options->no_memory) report_memory(whole, cluster, options, arena, report);
    if (options->explain) report_explain(plan, fold, result, cluster, cost, arena, report);
    if (options->trace) report_trace(plan, fold, result, arena, &report->trace);
}

/* Changes both models if experts have uneven rows, or if exchanges send only some of their slots (a
 * slot is room for one row).
 * Returns the Imbalance that changes them; NULL: both stay as they are. */
static const Imbalance *add_imbalance(const Plan *plan, const SimOptions *options,
                                      const RowLoads *loads, const Fold *fold, CostModel *model,
                                      NetModel *net, Arena *scratch)
{
    const double uneven = options->imbalance > 1 ? options->imbalance : 1;
    const double exchanged = imbalance_exchanged(plan, options->runtime);
    if ((uneven == 1 && exchanged == 1 && loads == NULL) || !experts_rows(&plan->graph, scratch))
        return NULL;
    Imbalance *b = imbalance_new(plan, uneven, exchanged, loads, fold, *model, *net, scratch);
    *model = imbalance_cost(b);
    *net = imbalance_net(b);
    return b;
}

/* If ranks share the cores of a processor, returns loads that stand for the factor
 * options->imbalance. The first rank of each group is then the busiest one, and the others have
 * equal rows. Making all ranks as slow as the busiest one would be wrong here, because ranks that
 * wait leave their cores to busy ranks. Returns NULL if devices are not shared, or if experts are
 * even. */
static const RowLoads *shared_loads(const Plan *plan, const SimOptions *options, bool shared,
                                    Arena *arena)
{
    if (!shared || !(options->imbalance > 1)) return NULL;
    const uint32_t n = mesh_size(&plan->mesh, experts_axes(&plan->graph));
    if (n < 2) return NULL;
    double *share = arena_array(arena, n, sizeof *share);
    RowLoads *loads = arena_alloc(arena, sizeof *loads);
    for (uint32_t r = 0; r < n; r++) share[r] = (n - fmin(options->imbalance, n)) / (n - 1);
    share[0] = fmin(options->imbalance, n);
    *loads = (RowLoads){.n_layers = 1, .n_ranks = n, .share = share};
    return loads;
}

static FoldNodes nodes_of(const Cluster *cluster, const Routes *routes, const uint32_t *apart)
{
    return (FoldNodes){.devices_per_node = cluster->devices_per_node,
                       .nics_per_node = cluster->nics_per_node,
                       .nodes_per_pod = cluster->nodes_per_group,
                       .routes = routes,
                       .apart = apart};
}

bool sim_run(const Plan *whole, const Cluster *cluster, const SimOptions *options, Arena *arena,
             SimReport *report, Diag *d)
{
    assert(whole->programs.n > 0);
    *report = (SimReport){0};
    if (!check_ranks(whole, cluster, d)) return false;
    Arena *scratch = arena_new();
    const Plan *plan = runtime_is_own(options->runtime) ? whole : even_rows_plan(whole, scratch);
    bool shared = has_cores(cluster);
    Routes routes = routes_of(cluster);
    const RowLoads *loads = options->loads;
    if (loads == NULL) loads = shared_loads(plan, options, shared, scratch);
    if (!loads_fit(loads, plan)) loads = NULL;
    const uint32_t *apart = loads != NULL ? loads_members(plan, scratch) : NULL;
    Fold *fold = fold_ranks_on(plan, nodes_of(cluster, &routes, apart), options->unfolded || shared,
                               scratch);
    Cost *cost = cost_new(cluster, options->runtime, options->store, options->machine, scratch, d);
    CostModel model = cost_model(cost);
    model.waits_messages = runtime_waits_messages(options->runtime, plan);
    NetModel net;
    DeviceModel device;
    Cores *cores = NULL;
    MaxMin *maxmin = NULL;
    if (shared) {
        cores = cores_new(cluster, fold, options->store, options->machine, options->backend,
                          scratch, d);
        net = cores_net(cores);
        device = cores_device(cores);
    } else {
        maxmin = maxmin_new(cluster, fold, scratch);
        *maxmin_settings(maxmin) = plan->nccl;
        if (options->store != NULL) maxmin_measured(maxmin, options->store, options->machine, d);
        Sms *sms = sms_new(cluster, fold, maxmin, scratch);
        net = options->alone ? net_alone(maxmin, scratch) : sms_net(sms);
        device = sms_device(sms);
    }
    if (options->uneven != NULL) {
        assert(options->unfolded);
        device = slow_device_model(slow_device_new(device, fold, options->uneven, scratch));
    }
    if (options->frees)
        net = net_free_model(net_free(net, options->free_op, options->free_axes, scratch));
    const Imbalance *b = add_imbalance(plan, options, loads, fold, &model, &net, scratch);
    EngineOptions engine = {.cost = &model,
                            .net = &net,
                            .device = options->alone ? NULL : &device,
                            .fold = fold,
                            .uneven = b,
                            .steps = options->steps,
                            .leaps =
                                !options->exact && !shared && b == NULL && options->uneven == NULL};
    EngineResult result;
    Repeats repeats;
    bool ok = engine_run(plan, &engine, scratch, &result, d);
    const bool longer = options->microbatches != 0;
    if (ok && longer)
        report->aperiodic =
            shared || !find_repeats(plan, fold, &model, &result, options, scratch, &repeats);
    report->n_left_out = result.n_left_out;
    cost_counts(cost, &report->counts);
    if (shared)
        cores_counts(cores, &report->counts);
    else
        maxmin_counts(maxmin, &report->counts);
    if (ok && !report->aperiodic) {
        fill_report(whole, plan, fold, &result, longer ? &repeats : NULL, cluster, &model, options,
                    arena, report);
    }
    arena_free(scratch);
    return ok;
}
