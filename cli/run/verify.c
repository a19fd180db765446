/* tandem run --verify: compares the scaled-down plan on many ranks with one rank, in fp64, tensor
 * by tensor. A plan with the pass float8 is compared a second time, with only its products
 * quantised. Both runs then round equal values, so their results still agree closely. A plan in low
 * precision is also run in its own precision. The errors of many ranks, relative to fp64, may then
 * be only about as large as the errors of one rank. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/run/run.h"
#include "planner/base/plural.h"
#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "planner/verify/verify.h"

enum { ORDER_SEEDS = 3 };
static const double tolerance = 1e-10;

/* Returns the name that plans use for a dtype: "fp32" for "f32". */
static const char *precision_name(Arena *arena, DType t)
{
    return t == DT_bf16 ? "bf16" : arena_print(arena, "fp%s", dtype_name(t) + 1);
}

/* Loads the plan for one rank, with the same model and micro-steps. The rank's micro-batch holds
 * the samples of all data ranks. Passes that need an axis are dropped, and nothing is recomputed.
 * float8 stays if the comparison measures the rounding of its products. With `policy`, the dtypes
 * of FSDP2's policy replace those of `precision`. With fsdp2 { copy = true }, gradients have the
 * dtype of computation. */
static bool load_one(Cli *cli, const PlanFile *file, bool policy, Config *config, Graph *graph)
{
    uint32_t n = cli->options.set.n;
    const char **set = arena_array(cli->arena, n + 2, sizeof *set);
    for (uint32_t i = 0; i < n; i++) set[i] = cli->options.set.at[i];
    for (uint32_t i = 0; policy && i < file->config.n_passes; i++) {
        const Fsdp2Options *o = &file->config.passes[i].fsdp2;
        if (file->config.passes[i].name != PASS_fsdp2) continue;
        DType compute = o->mp.param ? o->mp.param : file->config.compute;
        DType reduce = o->copy ? compute : o->mp.reduce ? o->mp.reduce : file->config.reduce;
        set[n++] =
            arena_print(cli->arena, "precision.compute=%s", precision_name(cli->arena, compute));
        set[n++] =
            arena_print(cli->arena, "precision.reduce=%s", precision_name(cli->arena, reduce));
    }
    PlanOptions read = {.set = set, .n_set = n, .shrink = true};
    if (cli->options.seed_text != NULL) read.seed = &cli->options.seed;
    return session_read(file->path, &read, cli->arena, config, graph, &cli->diag);
}

/* If `dtypes` is NULL, all tensors are fp64. */
static Plan *one_rank_plan(Cli *cli, const PlanFile *file, const DTypeMap *dtypes)
{
    Config *config = arena_alloc(cli->arena, sizeof *config);
    Graph graph;
    if (!load_one(cli, file, dtypes != NULL, config, &graph)) return NULL;
    config->micro_batch = file->plan->step.micro_batch;
    const PassConfig *named = dtypes != NULL ? config_pass(config, PASS_float8) : NULL;
    PassConfig float8 = {.name = PASS_float8};
    if (named != NULL) float8 = *named;
    passes_for_one_rank(config);
    if (named != NULL) config->passes[config->n_passes++] = float8;
    const PlanOptions how = {.shrink = true,
                             .unpadded = true,
                             .dtypes = dtypes,
                             .workspace = kernel_cpu_workspace,
                             .parent = file->id};
    const PlanFile *one = session_compile(config, &graph, &how, cli->arena, &cli->diag);
    return one != NULL ? one->plan : NULL;
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
    worst->n_unmoved = one->n_unmoved;
    worst->unmoved = one->unmoved;
    if (one->highest_touched > worst->highest_touched)
        worst->highest_touched = one->highest_touched;
    worst->predicted_bytes = one->predicted_bytes;
    if (one->host_touched > worst->host_touched) worst->host_touched = one->host_touched;
    worst->host_predicted = one->host_predicted;
    worst->n_experts = one->n_experts, worst->n_empty = one->n_empty;
    worst->busiest = one->busiest;
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

/* Names the tensors that stay the same during the comparison. The comparison proves nothing about
 * them. */
static void warn_of_unmoved(Cli *cli, const VerifyResult *r)
{
    Loc none = {NULL, 0};
    if (r->n_unmoved > 0)
        diag_warning(
            &cli->diag, "verify-nothing", none,
            "the gradient of %s%s is zero in this batch: nothing of it was compared", r->unmoved,
            r->n_unmoved > 1 ? arena_print(cli->arena, " and of %" PRIu32 " more", r->n_unmoved - 1)
                             : "");
}

/* ---- the parts of the plan that the scaled-down plan lacks ---- */

/* The kinds of work in a program: which ops it computes, whether it computes any of them again, and
 * along which axes it communicates. */
typedef struct WorkKinds {
    bool op[OP_COUNT], again;
    /* by the axes of the communication; all parts of a refined axis count as that axis */
    bool comm[OP_COUNT][1 << AXIS_NAMES];
} WorkKinds;

static uint32_t names_of(const Mesh *mesh, AxisSet axes)
{
    uint32_t names = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1) names |= 1u << mesh->axis[a].name;
    return names;
}

static WorkKinds *kinds_of(Cli *cli, const Plan *plan)
{
    WorkKinds *kinds = arena_alloc(cli->arena, sizeof *kinds);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            OpClass class_ = op_info(in->op)->class_;
            if (class_ == OP_CLASS_comm)
                kinds->comm[in->op][names_of(&plan->mesh, in->axes)] = true;
            else if (class_ != OP_CLASS_reshape &&
                     in->op != OP_cast) /* casts do not count, because in the comparison every
                                           tensor is fp64 */
                kinds->op[in->op] = true;
            kinds->again = kinds->again || (in->phase == PHASE_recompute && !in->unit);
        }
    }
    return kinds;
}

/* Warns about work of the whole plan that the scaled-down plan does not do, and that the comparison
 * therefore does not test. */
static void warn_of_lost(Cli *cli, const Plan *whole, const Plan *scaled)
{
    const WorkKinds *was = kinds_of(cli, whole), *is = kinds_of(cli, scaled);
    Str lost = str_in(cli->arena);
    if (was->again && !is->again) str_add(&lost, "recomputation");
    for (int op = 1; op < OP_COUNT; op++) {
        if (was->op[op] && !is->op[op])
            str_print(&lost, "%s%s", lost.n > 0 ? ", " : "", op_info((OpKind)op)->name);
        for (uint32_t names = 1; names < 1u << AXIS_NAMES; names++) {
            if (!was->comm[op][names] || is->comm[op][names]) continue;
            str_print(&lost, "%s%s over", lost.n > 0 ? ", " : "", op_info((OpKind)op)->name);
            for (uint32_t a = 0; a < AXIS_NAMES; a++)
                if (names >> a & 1) str_print(&lost, " %s", axis_name_text((AxisName)a));
        }
    }
    Loc none = {NULL, 0};
    if (lost.n > 0)
        diag_warning(&cli->diag, "verify-scaled", none,
                     "not in the scaled-down plan, and so not compared: %s", str_text(&lost));
}

/* ---- in the plan's own precision ---- */

/* Returns true if a buffer of the plan has elements of 16 bits or fewer. */
static bool is_low(const Plan *plan)
{
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (BufferId b = 1; b < p->buffers.n; b++) {
            DType t = p->buffers.at[b].dtype;
            if (t == DT_bf16 || t == DT_f16 || dtype_is_eight_bits(t)) return true;
        }
    }
    return false;
}

/* Makes two plans in the given dtypes instead of fp64: the scaled-down plan, and the plan for one
 * rank. */
static bool plans_in(Cli *cli, const DTypeMap *dtypes, const Plan **plan, const Plan **one)
{
    PlanOptions options = {
        .shrink = true, .dtypes = dtypes, .workspace = kernel_cpu_workspace, .unfitted = true};
    uint32_t n_said = cli->diag.items.n;
    const PlanFile *file = plan_file_load(cli, cli->args[0], &options);
    if (file == NULL || cli->diag.n_errors > 0) return false;
    *plan = file->plan;
    *one = one_rank_plan(cli, file, dtypes);
    if (*one != NULL) cli->diag.items.n = n_said; /* the notes of the script were printed before */
    return *one != NULL && verify_plan(*one, VERIFY_all, false, &cli->diag);
}

static bool compare_float8(Cli *cli, VerifyResult *result)
{
    const Plan *plan = NULL, *one = NULL;
    DTypeMap dtypes = dtype_map_but_eight_bits(DT_f64);
    if (!plans_in(cli, &dtypes, &plan, &one)) return false;
    const DataSource *data = data_ragged(plan->step.seed, plan->graph.info.vocab, cli->arena);
    BackendOptions backend = {.timeout_s = 60, .poison = true};
    return exec_verify(plan, one, data, &backend, tolerance, cli->arena, result, &cli->diag);
}

static bool compare_rounding(Cli *cli, const Plan *exact, RoundingResult *result)
{
    const Plan *plan = NULL, *one = NULL;
    DTypeMap dtypes = dtype_map_identity();
    if (!plans_in(cli, &dtypes, &plan, &one)) return false;
    BackendOptions backend = {.timeout_s = 60, .poison = true};
    return exec_verify_rounding_draws(plan, one, exact, &backend, cli->arena, result, &cli->diag);
}

static void report_float8(Cli *cli, const Config *config, const VerifyResult *r)
{
    static const char *const recipes[] = {
#define NAME(recipe) #recipe,
        FLOAT8_RECIPES(NAME)
#undef NAME
    };
    double worst = fmax(r->worst_gradient, fmax(r->worst_parameter, r->worst_state));
    if (cli->json != NULL)
        json_number(cli->json, "worst_with_float8", worst);
    else
        str_print(
            &cli->out,
            "float8      worst relative difference %.2e with products in the recipe %s and all "
            "else in fp64 (at most %g)\n",
            worst, recipes[config_pass(config, PASS_float8)->float8.recipe], tolerance);
}

static void report_rounding(Cli *cli, const RoundingResult *r)
{
    if (cli->json != NULL) {
        json_count(cli->json, "rounding_draws", r->draws);
        json_number(cli->json, "rounding_error", r->gradient);
        json_number(cli->json, "rounding_error_of_one_rank", r->gradient_of_one_rank);
        json_number(cli->json, "rounding_worst_error", r->worst_error);
        json_number(cli->json, "rounding_worst_error_of_one_rank", r->its_one_rank_error);
        json_text(cli->json, "rounding_tensor", r->worst_tensor);
        return;
    }
    double one = r->gradient_of_one_rank;
    str_print(&cli->out,
              "rounding    error of the gradient %.2e, of one rank in the same precision %.2e; "
              "ratio %.2f, at most %g\n"
              "            a tensor of n elements: at most %g + 10 / sqrt(n); weights: compared in "
              "fp64 only%s\n",
              r->gradient, one, one > 0 ? r->gradient / one : 0, ROUNDING_TIMES, ROUNDING_TIMES,
              r->draws == 1
                  ? ""
                  : arena_print(cli->arena, "; median of %" PRIu32 " draws of data", r->draws));
}

/* Returns the sizes of the scaled-down model in words: those of its fields, or its sequence length
 * and vocabulary. */
static const char *sizes_text(Cli *cli, const PlanFile *file)
{
    const Config *c = &file->config;
    const ModelInfo *info = &file->plan->graph.info;
    if (c->height > 0)
        return arena_print(cli->arena, "fields of %" PRId64 " x %" PRId64 " points", c->height,
                           c->width);
    return arena_print(cli->arena, "d_model %" PRIu32 ", vocabulary %" PRIu32, info->d_model,
                       info->vocab);
}

static void report(Cli *cli, const PlanFile *file, const VerifyResult *r,
                   const VerifyResult *float8, const RoundingResult *rounding, bool passed)
{
    const Plan *plan = file->plan;
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
        json_count(cli->json, "host_byte_touched", r->host_touched);
        json_count(cli->json, "host_predicted_bytes", r->host_predicted);
        json_text(cli->json, "plan_id", hash_hex(cli->arena, file->id));
        if (r->n_experts > 0) {
            json_count(cli->json, "experts", r->n_experts);
            json_count(cli->json, "experts_without_token", r->n_empty);
            json_number(cli->json, "most_tokens", r->busiest);
        }
        if (float8->n_tensors > 0) report_float8(cli, &file->config, float8);
        if (rounding != NULL) report_rounding(cli, rounding);
        return;
    }
    Str *out = &cli->out;
    str_print(out, "scaled      %" PRIu32 " layer%s, %s, %" PRIu32 " micro-batch%s, fp64\n",
              plan->graph.info.n_layers, str_s(plan->graph.info.n_layers), sizes_text(cli, file),
              plan->step.n_microbatches, plan->step.n_microbatches == 1 ? "" : "es");
    str_print(
        out, "mesh        %s = %" PRIu32 " rank%s, against 1 rank; %s; %d orders of execution\n",
        plan_mesh_text(cli->arena, file), plan->mesh.n_ranks, plan->mesh.n_ranks == 1 ? "" : "s",
        passes_text(cli->arena, &file->config), ORDER_SEEDS);
    str_print(out, "gradients   worst relative difference %.2e over %" PRIu32 " tensor%s (%s)\n",
              r->worst_gradient, r->n_tensors, str_s(r->n_tensors),
              r->worst_tensor != NULL ? r->worst_tensor : "none");
    str_print(out, "updates     worst relative difference %.2e of weights, %.2e of moments\n",
              r->worst_parameter, r->worst_state);
    str_print(out, "scalars     gradient norm %.2e, loss %.2e\n", r->norm_error, r->loss_error);
    str_print(out, "memory      highest byte touched %s of %s predicted\n",
              str_count(cli->arena, r->highest_touched), str_count(cli->arena, r->predicted_bytes));
    if (r->host_predicted > 0)
        str_print(out, "host        highest byte touched %s of %s predicted\n",
                  str_count(cli->arena, r->host_touched), str_count(cli->arena, r->host_predicted));
    if (r->n_experts > 0)
        str_print(out,
                  "experts     %" PRIu32 " in all layers: %" PRIu32
                  " got no token, the busiest got "
                  "%.2f x the mean of its layer\n",
                  r->n_experts, r->n_empty, r->busiest);
    if (float8->n_tensors > 0) report_float8(cli, &file->config, float8);
    if (rounding != NULL) report_rounding(cli, rounding);
    str_print(out, "verdict     %s (tolerance %g)\n",
              passed ? paint(cli, PAINT_good, "PASS") : paint(cli, PAINT_bad, "FAIL"), tolerance);
}

/* Loads the plan at full size. The scaled-down plan may pass although the plan at full size cannot
 * even be compiled, so this is tested, too. Whether the plan fits is not tested. */
static const PlanFile *whole_plan(Cli *cli, const char *path)
{
    PlanOptions options = {.unfitted = true, .shrink = session_is_text(path)};
    const PlanFile *file = plan_file_load(cli, path, &options);
    return file != NULL && cli->diag.n_errors == 0 && plan_may_run(cli, file) ? file : NULL;
}

void run_verify(Cli *cli)
{
    const char *path = cli->args[0];
    const PlanFile *whole = whole_plan(cli, path);
    if (whole == NULL) return;
    uint32_t n_said = cli->diag.items.n;
    PlanOptions options = {.shrink = true, .workspace = kernel_cpu_workspace, .unfitted = true};
    PlanFile *file = plan_file_load(cli, path, &options);
    if (file == NULL || cli->diag.n_errors > 0) return;
    Plan *reference = one_rank_plan(cli, file, NULL);
    if (reference == NULL || !verify_plan(reference, VERIFY_all, false, &cli->diag)) return;
    cli->diag.items.n = n_said; /* the notes of the script were printed before */
    VerifyResult worst;
    memset(&worst, 0, sizeof worst);
    warn_of_lost(cli, whole->plan, file->plan);
    bool passed = compare_orders(cli, file->plan, reference, &worst);
    warn_of_unmoved(cli, &worst);
    VerifyResult float8 = {.n_tensors = 0};
    if (passed && config_pass(&file->config, PASS_float8) != NULL)
        passed = compare_float8(cli, &float8);
    RoundingResult rounding = {.worst_tensor = NULL};
    bool low = is_low(whole->plan);
    if (low && passed) passed = compare_rounding(cli, reference, &rounding);
    report(cli, file, &worst, &float8, low && rounding.worst_tensor != NULL ? &rounding : NULL,
           passed);
}
