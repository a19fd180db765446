/* tandem run --verify: the scaled-down plan on many ranks against one rank, in fp64, tensor by
 * tensor. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/run.h"
#include "planner/front/front.h"
#include "planner/ir/verify.h"
#include "planner/passes/passes.h"

enum { ORDER_SEEDS = 3 };
static const double tolerance = 1e-10;

/* The same model and the same micro-steps on one rank: the micro-batch takes over what the data
 * ranks held, every pass that needs an axis goes, and nothing is recomputed. */
static Plan *one_rank_plan(Cli *cli, const char *path, const Plan *parent, Hash128 id)
{
    FrontOptions front = {.set = cli->options.set.at, .n_set = cli->options.set.n, .shrink = true};
    Config *config = arena_alloc(cli->arena, sizeof *config);
    Graph graph;
    memset(&graph, 0, sizeof graph);
    if (!front_load(path, &front, cli->arena, config, &graph, &cli->diag)) return NULL;
    if (cli->options.seed_text != NULL) config->seed = cli->options.seed;
    config->micro_batch = parent->step.micro_batch;
    for (uint32_t i = 0; i < AXIS_NAMES; i++) config->axis_size[i] = 1;
    config->n_passes = 0;
    LowerOptions lower = {dtype_map_all(DT_f64), kernel_cpu_workspace, id};
    return passes_compile(config, &graph, &lower, NULL, cli->arena, &cli->diag);
}

static void keep_worst(VerifyResult *worst, const VerifyResult *one)
{
    if (worst->worst_tensor == NULL || fmax(one->worst_gradient, one->worst_parameter) >
                                           fmax(worst->worst_gradient, worst->worst_parameter))
        worst->worst_tensor = one->worst_tensor;
    worst->worst_gradient = fmax(worst->worst_gradient, one->worst_gradient);
    worst->worst_parameter = fmax(worst->worst_parameter, one->worst_parameter);
    worst->worst_state = fmax(worst->worst_state, one->worst_state);
    worst->norm_error = fmax(worst->norm_error, one->norm_error);
    worst->loss_error = fmax(worst->loss_error, one->loss_error);
    worst->n_tensors = one->n_tensors;
    if (one->highest_touched > worst->highest_touched)
        worst->highest_touched = one->highest_touched;
    worst->predicted_bytes = one->predicted_bytes;
}

static bool compare_orders(Cli *cli, const Plan *plan, const Plan *reference, VerifyResult *worst)
{
    const DataSource *data = data_ragged(plan->step.seed, plan->graph.info.vocab, cli->arena);
    for (uint64_t seed = 0; seed < ORDER_SEEDS; seed++) {
        BackendOptions options = {.timeout_s = 60, .poison = true, .order_seed = seed};
        VerifyResult one;
        memset(&one, 0, sizeof one);
        bool agrees =
            exec_verify(plan, reference, data, &options, tolerance, cli->arena, &one, &cli->diag);
        if (one.n_tensors > 0) keep_worst(worst, &one);
        if (!agrees) return false;
    }
    return true;
}

static void report(Cli *cli, const PlanFile *file, const VerifyResult *r, bool passed)
{
    const Plan *plan = file->plan;
    const ModelInfo *info = &plan->graph.info;
    if (cli->json != NULL) {
        json_put(cli->json, "verified", json_boolean(passed));
        json_number(cli->json, "tolerance", tolerance);
        json_number(cli->json, "worst_gradient", r->worst_gradient);
        json_number(cli->json, "worst_parameter", r->worst_parameter);
        json_number(cli->json, "worst_state", r->worst_state);
        json_number(cli->json, "norm_error", r->norm_error);
        json_number(cli->json, "loss_error", r->loss_error);
        json_text(cli->json, "worst_tensor", r->worst_tensor);
        json_count(cli->json, "tensors", r->n_tensors);
        json_count(cli->json, "orders", ORDER_SEEDS);
        json_count(cli->json, "highest_byte_touched", r->highest_touched);
        json_count(cli->json, "predicted_bytes", r->predicted_bytes);
        json_text(cli->json, "plan_id", hash_hex(cli->arena, file->id));
        return;
    }
    Str *out = &cli->out;
    str_print(out,
              "scaled      %" PRIu32 " layers, d_model %" PRIu32 ", vocabulary %" PRIu32
              ", %" PRIu32 " micro-batches, fp64\n",
              info->n_layers, info->d_model, info->vocab, plan->step.n_microbatches);
    str_print(out,
              "mesh        %s = %" PRIu32 " ranks, against 1 rank; %s; %d orders of execution\n",
              mesh_text(cli->arena, &plan->mesh), plan->mesh.n_ranks,
              passes_text(cli->arena, &file->config), ORDER_SEEDS);
    str_print(out, "gradients   worst relative difference %.2e over %" PRIu32 " tensors (%s)\n",
              r->worst_gradient, r->n_tensors, r->worst_tensor != NULL ? r->worst_tensor : "none");
    str_print(out, "updates     worst relative difference %.2e of weights, %.2e of moments\n",
              r->worst_parameter, r->worst_state);
    str_print(out, "scalars     gradient norm %.2e, loss %.2e\n", r->norm_error, r->loss_error);
    str_print(out, "memory      highest byte touched %s of %s predicted\n",
              str_count(cli->arena, r->highest_touched), str_count(cli->arena, r->predicted_bytes));
    str_print(out, "verdict     %s (tolerance %g)\n",
              passed ? paint(cli, PAINT_good, "PASS") : paint(cli, PAINT_bad, "FAIL"), tolerance);
}

void run_verify(Cli *cli)
{
    const char *path = cli->args[0];
    PlanOptions options = {.shrink = true, .cpu = true, .unfitted = true};
    PlanFile *file = plan_file_load(cli, path, &options);
    if (file == NULL || cli->diag.n_errors > 0 || !plan_may_run(cli, file)) return;
    Plan *reference = one_rank_plan(cli, path, file->plan, file->id);
    if (reference == NULL || !verify_plan(reference, VERIFY_all, false, &cli->diag)) return;
    VerifyResult worst;
    memset(&worst, 0, sizeof worst);
    bool passed = compare_orders(cli, file->plan, reference, &worst);
    report(cli, file, &worst, passed);
}
