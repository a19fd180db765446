/* Facts that are found by running the scaled-down plan in fp64: see cases_fact.c. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/flat.h"
#include "exec/ready.h"
#include "kernels/cpu/cpu.h"
#include "kernels/number.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/lower/compile.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/cases.h"

static Plan *small_plan(const CaseResult *r, const Plan *parent, Diag *d)
{
    FrontOptions front = {.set = r->script->set.at, .n_set = r->script->set.n, .shrink = true};
    Config *config = arena_alloc(r->arena, sizeof *config);
    Graph graph;
    memset(&graph, 0, sizeof graph);
    if (!front_load(r->script->path, &front, r->arena, config, &graph, d)) return NULL;
    if (parent != NULL) { /* This plan is for one rank: the same micro-steps, without passes. */
        config->micro_batch = parent->step.micro_batch;
        passes_for_one_rank(config);
    }
    const LowerOptions lower = {.dtypes = dtype_map_all(DT_f64), .workspace = kernel_cpu_workspace};
    return plan_compile(config, &graph, &lower, NULL, r->arena, d);
}

static const DataSource *data_of(const Plan *plan, Arena *arena)
{
    return data_synthetic(plan->step.seed, plan->graph.info.vocab, 0.125, arena);
}

/* Compares with one rank, as `tandem run --verify` does. */
bool cases_equal(const CaseResult *r, const char *rest, Str *seen)
{
    (void)rest;
    Diag d = diag_in(r->arena);
    const Plan *plan = small_plan(r, NULL, &d);
    const Plan *one = plan != NULL ? small_plan(r, plan, &d) : NULL;
    VerifyResult result;
    memset(&result, 0, sizeof result);
    bool equal = false;
    if (one != NULL && verify_plan(plan, VERIFY_all, false, &d)) {
        BackendOptions options = {.timeout_s = 60, .poison = true};
        equal =
            exec_verify(plan, one, data_of(plan, r->arena), &options, 1e-10, r->arena, &result, &d);
    }
    diag_print(&d, seen);
    return equal && plan->mesh.n_ranks > 1;
}

/* Runs one step at a learning rate of zero, so that the memory still holds the initial values at
 * its end. */
static bool run_once(const CaseResult *r, const Plan *plan,
                     bool (*at_end)(void *, Backend *, Diag *), void *self, double *norm, Diag *d)
{
    ExecOptions options = {.backend = "loopback",
                           .steps = 1,
                           .data = data_of(plan, r->arena),
                           .trace_step = 2,
                           .backend_options = {.timeout_s = 60, .poison = true},
                           .at_end = at_end,
                           .self = self};
    ExecResult result;
    if (!exec_run(plan, &options, r->arena, &result, d)) return false;
    *norm = result.trace.steps.at[0].grad_norm;
    return true;
}

bool cases_norm(const CaseResult *r, const char *rest, Str *seen)
{
    double most = strtod(rest, NULL), norm = 0, of_one = 0;
    Diag d = diag_in(r->arena);
    const Plan *plan = small_plan(r, NULL, &d);
    const Plan *one = plan != NULL ? small_plan(r, plan, &d) : NULL;
    bool fine = one != NULL && run_once(r, plan, NULL, NULL, &norm, &d) &&
                run_once(r, one, NULL, NULL, &of_one, &d);
    diag_print(&d, seen);
    double apart = fabs(norm - of_one) / (of_one * DBL_EPSILON),
           clip = r->config->optimizer.clip_norm;
    str_print(seen, "norm %.17g, of one rank %.17g: %.1f eps apart, clipped to %g", norm, of_one,
              apart, clip);
    return fine && plan->mesh.n_ranks > 1 && clip > 0 && of_one > clip && apart <= most;
}

/* ---- the initial values of a run ---- */

typedef struct Start {
    const Graph *graph; /* the graph of the one-rank plan */
    double **value;     /* [tensor of the one-rank plan][element] */
    const Plan *plan;
    const void *at;
    DType dtype;
    bool is_one;
    uint64_t n_values, n_other; /* how many values were compared, and how many of them differ */
    const char *other;
} Start;

static void visit(void *self, const FlatRun *run)
{
    Start *s = self;
    const Tensor *tensor = &s->plan->graph.tensors.at[run->tensor];
    TensorId twin = 1;
    while (twin < s->graph->tensors.n &&
           (s->graph->tensors.at[twin].role != ROLE_param ||
            strcmp(s->graph->tensors.at[twin].name, tensor->name) != 0))
        twin++;
    if (twin == s->graph->tensors.n) abort();
    for (uint64_t i = 0; i < run->n; i++) {
        double x = number_read(s->dtype, s->at, run->at + i);
        if (s->is_one) {
            s->value[twin][run->global + i] = x;
            continue;
        }
        s->n_values++;
        if (x == s->value[twin][run->global + i]) continue;
        s->n_other++;
        s->other = tensor->name;
    }
}

static bool read_start(void *self, Backend *backend, Diag *d)
{
    (void)d;
    Start *s = self;
    Arena *scratch = arena_new();
    for (Rank rank = 0; rank < s->plan->mesh.n_ranks; rank++) {
        const Program *p = plan_program(s->plan, rank);
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *buffer = &p->buffers.at[b];
            if (!flat_is_home(buffer) || buffer->category != CATEGORY_parameter) continue;
            s->at = backend->memory(backend, rank, b);
            s->dtype = buffer->dtype;
            flat_each(s->plan, p, b, rank, scratch, visit, s);
            arena_reset(scratch);
        }
    }
    arena_free(scratch);
    return true;
}

/* Every weight on every rank must equal that of the one-rank plan bit by bit, and every rank must
 * have all of its part. */
bool cases_start(const CaseResult *r, const char *rest, Str *seen)
{
    (void)rest;
    Diag d = diag_in(r->arena);
    const Plan *plan = small_plan(r, NULL, &d);
    const Plan *one = plan != NULL ? small_plan(r, plan, &d) : NULL;
    diag_print(&d, seen);
    if (one == NULL) return false;
    Start s = {.graph = &one->graph, .plan = one, .is_one = true};
    s.value = arena_array(r->arena, one->graph.tensors.n, sizeof *s.value);
    for (TensorId t = 1; t < one->graph.tensors.n; t++) {
        const Tensor *tensor = &one->graph.tensors.at[t];
        if (tensor->role != ROLE_param) continue;
        uint64_t n = 1;
        for (int k = 0; k < tensor->n_dims; k++) n *= (uint64_t)tensor->dim[k];
        s.value[t] = arena_array(r->arena, n, sizeof(double));
    }
    double norm;
    bool fine = run_once(r, one, read_start, &s, &norm, &d);
    s.plan = plan;
    s.is_one = false;
    fine = fine && run_once(r, plan, read_start, &s, &norm, &d);
    diag_print(&d, seen);
    uint32_t replicas = 1;
    for (uint32_t a = 0; a < plan->mesh.n_axes; a++)
        if (plan->mesh.axis[a].name == AXIS_dp_replicate) replicas *= plan->mesh.axis[a].size;
    str_print(seen, "%llu values, %llu of them otherwise, of %s", (unsigned long long)s.n_values,
              (unsigned long long)s.n_other, s.n_other > 0 ? s.other : "none");
    return fine && s.n_other == 0 && plan->mesh.n_ranks > 1 &&
           s.n_values >= replicas * plan->graph.info.n_params;
}

/* ---- the state of replicas ---- */

typedef struct Replicas {
    const Plan *plan;
    Str *seen;
    /* how many buffers were compared, and how many of the moments were not zero */
    uint32_t n_buffers, n_moments;
    bool apart;
} Replicas;

static bool is_zero(const unsigned char *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (at[i] != 0) return false;
    return true;
}

/* Ranks that differ only along dp_replicate run the same program, and must hold the same bytes
 * between steps. */
static bool compare_replicas(void *self, Backend *backend, Diag *d)
{
    (void)d;
    Replicas *c = self;
    const Mesh *mesh = &c->plan->mesh;
    const AxisSet rest = (AxisSet)~mesh_axes(mesh, AXIS_dp_replicate);
    for (Rank b = 0; b < mesh->n_ranks; b++)
        for (Rank a = 0; a < b; a++) {
            if (mesh_part(mesh, a, rest) != mesh_part(mesh, b, rest)) continue;
            const Program *p = plan_program(c->plan, a);
            if (plan_program(c->plan, b) != p) abort();
            for (BufferId id = 1; id < p->buffers.n; id++) {
                const Buffer *buffer = &p->buffers.at[id];
                const bool moment = buffer->category == CATEGORY_optimizer;
                if (!flat_is_home(buffer) || !(moment || buffer->category == CATEGORY_parameter))
                    continue;
                const void *own = backend->memory(backend, a, id);
                c->n_buffers++;
                c->n_moments += moment && !is_zero(own, buffer->bytes);
                if (memcmp(own, backend->memory(backend, b, id), buffer->bytes) == 0) continue;
                str_print(c->seen, "buffer %u differs on ranks %u and %u", id, a, b);
                c->apart = true;
                return true;
            }
        }
    return true;
}

bool cases_replicas(const CaseResult *r, const char *rest, Str *seen)
{
    (void)rest;
    Diag d = diag_in(r->arena);
    const Plan *plan = small_plan(r, NULL, &d);
    Replicas c = {.plan = plan, .seen = seen};
    double norm = 0;
    bool fine = plan != NULL && run_once(r, plan, compare_replicas, &c, &norm, &d);
    diag_print(&d, seen);
    str_print(seen, "%u buffers were compared, %u of them moments", c.n_buffers, c.n_moments);
    return fine && c.n_moments > 0 && !c.apart;
}

/* ---- the dropouts of a run ---- */

/* Returns which elements the dropouts of a rank's first step keep. Each dropout, as the runtime
 * prepared it, runs alone on an input of ones. */
static const char *draws_of(const Plan *plan, Rank rank, Arena *arena, Diag *d)
{
    const Program *p = plan_program(plan, rank);
    Control control = {.seed = plan->step.seed, .data = data_of(plan, arena)};
    BackendOptions options = {.timeout_s = 60};
    RankState state;
    if (!rank_open(&state, plan, program_info(plan, p, arena), rank, &control, &options, arena, d))
        return NULL;
    Str kept = str_in(arena);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        if (in->op != OP_dropout || in->phase != PHASE_forward) continue;
        const KernelArgs *a = state.at[pc].args;
        double *x = a->ptr[0], *y = a->ptr[1];
        for (int64_t i = 0; i < a->elements[1]; i++) y[i] = 0;
        for (int64_t i = 0; i < a->elements[0]; i++) x[i] = 1;
        rank_compute(&state, pc);
        for (int64_t i = 0; i < a->elements[1]; i++) str_add(&kept, y[i] != 0 ? "1" : "0");
        str_add(&kept, "|");
    }
    rank_close(&state);
    return str_text(&kept);
}

/* Ranks that read different data must drop different elements, and all ranks must drop some. */
bool cases_draws(const CaseResult *r, const char *rest, Str *seen)
{
    Diag d = diag_in(r->arena);
    const Plan *plan = small_plan(r, NULL, &d);
    diag_print(&d, seen);
    if (plan == NULL || strcmp(rest, "apart") != 0) return false;
    const Mesh *mesh = &plan->mesh;
    AxisSet data = mesh_data_axes(mesh);
    const char **kept = arena_array(r->arena, mesh->n_ranks, sizeof *kept);
    for (Rank a = 0; a < mesh->n_ranks; a++) {
        kept[a] = draws_of(plan, a, r->arena, &d);
        if (kept[a] == NULL || strchr(kept[a], '0') == NULL || strchr(kept[a], '1') == NULL) {
            diag_print(&d, seen);
            str_print(seen, "rank %u drops nothing, or all", a);
            return false;
        }
        for (Rank b = 0; b < a; b++) {
            bool same_data = mesh_part(mesh, a, data) == mesh_part(mesh, b, data);
            if (same_data || strcmp(kept[a], kept[b]) != 0) continue;
            str_print(seen, "ranks %u and %u drop the same elements", b, a);
            return false;
        }
    }
    return mesh_size(mesh, data) > 1;
}
