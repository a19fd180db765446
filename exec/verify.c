/* The parallel oracle: one step of a plan against one step of the same model on one rank. Every
 * gradient is read from the accumulators and every weight from where it rests, on every rank that
 * holds a piece of it, replicas included. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/flat.h"

/* Divisor of a gradient's error, as a part of the largest gradient of all: some gradients (a bias
 * of attention keys) are zero but for rounding. */
static const double gradient_floor = 1e-4;

/* What one run left behind, by tensor of its graph. */
typedef struct Side {
    const Plan *plan;
    Backend *backend;
    double loss, norm;
} Side;

/* Values of the reference, whole; what the plan's ranks hold is compared with it piece by piece. */
typedef struct Whole {
    const char *name;
    uint64_t n;
    double *gradient, *parameter;
    bool *seen_gradient, *seen_parameter;
    double max_gradient, max_parameter;     /* of the reference */
    double error_gradient, error_parameter; /* largest difference */
    Rank rank_gradient, rank_parameter;     /* on which rank */
} Whole;

typedef struct Compare {
    const Side *side;
    Whole *whole;         /* [tensor of the reference's graph] */
    const TensorId *twin; /* [tensor of the plan's graph]: the same in the reference's */
    const void *at;       /* memory of the buffer that is walked */
    DType dtype;
    Rank rank;
    bool is_gradient, is_reference;
} Compare;

static double value_at(const Compare *c, uint64_t i)
{
    return c->dtype == DT_f64 ? ((const double *)c->at)[i] : (double)((const float *)c->at)[i];
}

static void keep(Compare *c, Whole *w, uint64_t global, double x)
{
    double *to = c->is_gradient ? w->gradient : w->parameter;
    double *largest = c->is_gradient ? &w->max_gradient : &w->max_parameter;
    to[global] = x;
    if (!(fabs(x) <= *largest)) *largest = fabs(x);
}

static void compare(Compare *c, Whole *w, uint64_t global, double x)
{
    const double *reference = c->is_gradient ? w->gradient : w->parameter;
    double *error = c->is_gradient ? &w->error_gradient : &w->error_parameter;
    double difference = fabs(x - reference[global]);
    if (isnan(difference)) difference = INFINITY;
    (c->is_gradient ? w->seen_gradient : w->seen_parameter)[global] = true;
    if (difference <= *error) return;
    *error = difference;
    *(c->is_gradient ? &w->rank_gradient : &w->rank_parameter) = c->rank;
}

static void visit(void *self, const FlatRun *run)
{
    Compare *c = self;
    Whole *w = &c->whole[c->is_reference ? run->tensor : c->twin[run->tensor]];
    assert(run->global + run->n <= w->n);
    for (uint64_t i = 0; i < run->n; i++) {
        double x = value_at(c, run->at + i);
        if (c->is_reference)
            keep(c, w, run->global + i, x);
        else
            compare(c, w, run->global + i, x);
    }
}

static void visit_all(Compare *c, Arena *scratch)
{
    const Plan *plan = c->side->plan;
    Backend *backend = c->side->backend;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *buffer = &p->buffers.at[b];
            bool is_gradient = buffer->category == CATEGORY_gradient;
            if (!flat_is_home(buffer)) continue;
            if (!is_gradient && buffer->category != CATEGORY_parameter) continue;
            c->is_gradient = is_gradient;
            c->rank = r;
            c->dtype = buffer->dtype;
            c->at = backend->memory(backend, r, b);
            flat_each(plan, p, b, r, scratch, visit, c);
            arena_reset(scratch);
        }
    }
}

/* ---- running ---- */

typedef struct Verify {
    Side plan, reference;
    Arena *arena, *scratch;
    VerifyResult *result;
    double tolerance;
    Diag *d;
    Whole *whole;
    TensorId *twin;
} Verify;

static bool after_plan(void *self, Backend *backend, Diag *d)
{
    Verify *v = self;
    (void)d;
    Compare c = {.side = &v->plan, .whole = v->whole, .twin = v->twin};
    v->plan.backend = backend;
    visit_all(&c, v->scratch);
    VerifyResult *result = v->result;
    uint64_t worst = 0;
    for (Rank r = 0; r < v->plan.plan->mesh.n_ranks; r++) {
        uint64_t predicted = plan_program(v->plan.plan, r)->bytes;
        uint64_t touched = backend->highest_touched(backend, r);
        uint64_t apart = touched > predicted ? touched - predicted : predicted - touched;
        if (r > 0 && (apart < worst || (apart == worst && predicted <= result->predicted_bytes)))
            continue;
        worst = apart;
        result->highest_touched = touched;
        result->predicted_bytes = predicted;
    }
    return true;
}

static bool after_reference(void *self, Backend *backend, Diag *d)
{
    Verify *v = self;
    (void)d;
    Compare c = {.side = &v->reference, .whole = v->whole, .is_reference = true};
    v->reference.backend = backend;
    visit_all(&c, v->scratch);
    return true;
}

static bool run_side(Verify *v, Side *side, const DataSource *data, BackendOptions backend,
                     bool (*at_end)(void *, Backend *, Diag *))
{
    ExecResult result;
    ExecOptions options = {.backend = "loopback",
                           .steps = 1,
                           .lr = 1e-3,
                           .data = data,
                           .trace_step = 2,
                           .backend_options = backend,
                           .at_end = at_end,
                           .self = v};
    Arena *arena = arena_new();
    bool fine = exec_run(side->plan, &options, arena, &result, v->d);
    if (fine) {
        side->loss = result.trace.steps.at[0].loss;
        side->norm = result.trace.steps.at[0].grad_norm;
    }
    arena_free(arena);
    return fine;
}

/* ---- before ---- */

static bool find_twins(Verify *v)
{
    const Graph *a = &v->plan.plan->graph, *b = &v->reference.plan->graph;
    v->whole = arena_array(v->arena, b->tensors.n, sizeof *v->whole);
    v->twin = arena_array(v->arena, a->tensors.n, sizeof *v->twin);
    for (TensorId t = 1; t < b->tensors.n; t++) {
        const Tensor *tensor = &b->tensors.at[t];
        if (tensor->role != ROLE_param) continue;
        Whole *w = &v->whole[t];
        w->name = tensor->name;
        w->n = 1;
        for (int d = 0; d < tensor->n_dims; d++) w->n *= (uint64_t)tensor->dim[d];
        w->gradient = arena_array(v->arena, w->n, sizeof(double));
        w->parameter = arena_array(v->arena, w->n, sizeof(double));
        w->seen_gradient = arena_array(v->arena, w->n, sizeof(bool));
        w->seen_parameter = arena_array(v->arena, w->n, sizeof(bool));
        v->result->n_tensors++;
    }
    Loc none = {NULL, 0};
    for (TensorId t = 1; t < a->tensors.n; t++) {
        const Tensor *tensor = &a->tensors.at[t];
        if (tensor->role != ROLE_param) continue;
        for (TensorId k = 1; k < b->tensors.n && !v->twin[t]; k++)
            if (v->whole[k].name && strcmp(v->whole[k].name, tensor->name) == 0) v->twin[t] = k;
        uint64_t n = 1;
        for (int d = 0; d < tensor->n_dims; d++) n *= (uint64_t)tensor->dim[d];
        if (v->twin[t] == 0 || v->whole[v->twin[t]].n != n)
            return diag_error(v->d, FAULT_internal, "verify-mismatch", none,
                              "the reference has no parameter %s of that size", tensor->name);
    }
    return true;
}

/* ---- after ---- */

static bool check_seen(const Verify *v, const Whole *w)
{
    Loc none = {NULL, 0};
    for (uint64_t i = 0; i < w->n; i++)
        if (!w->seen_gradient[i] || !w->seen_parameter[i])
            return diag_error(v->d, FAULT_threshold, "verify-mismatch", none,
                              "%s: no rank holds the %s of element %llu", w->name,
                              w->seen_gradient[i] ? "value" : "gradient", (unsigned long long)i);
    return true;
}

/* 0 for equal, also for two zeros. */
static double ratio(double difference, double divisor)
{
    return difference == 0 ? 0 : difference / divisor;
}

static double relative(double a, double b)
{
    double difference = fabs(a - b);
    return isnan(difference) ? INFINITY : ratio(difference, fabs(b));
}

static void check_value(const Verify *v, const char *what, double error, Rank rank)
{
    Loc none = {NULL, 0};
    if (error <= v->tolerance) return;
    diag_error(v->d, FAULT_threshold, "verify-mismatch", none,
               "%s on rank %u differs from the one-rank run by %.3g, relative (at most %.3g)", what,
               rank, error, v->tolerance);
}

static bool judge(Verify *v)
{
    const Graph *g = &v->reference.plan->graph;
    VerifyResult *result = v->result;
    uint32_t errors = v->d->n_errors;
    double largest = 0, worst = -1;
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (v->whole[t].max_gradient > largest) largest = v->whole[t].max_gradient;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Whole *w = &v->whole[t];
        if (w->name == NULL) continue;
        double gradient = ratio(w->error_gradient, fmax(w->max_gradient, gradient_floor * largest));
        double parameter = ratio(w->error_parameter, w->max_parameter);
        if (gradient > result->worst_gradient) result->worst_gradient = gradient;
        if (parameter > result->worst_parameter) result->worst_parameter = parameter;
        if (fmax(gradient, parameter) > worst) {
            worst = fmax(gradient, parameter);
            result->worst_tensor = arena_dup(v->arena, w->name);
        }
        check_seen(v, w);
        check_value(v, arena_print(v->arena, "gradient of %s", w->name), gradient,
                    w->rank_gradient);
        check_value(v, arena_print(v->arena, "%s after the step", w->name), parameter,
                    w->rank_parameter);
    }
    result->norm_error = relative(v->plan.norm, v->reference.norm);
    result->loss_error = relative(v->plan.loss, v->reference.loss);
    check_value(v, "the gradient norm", result->norm_error, 0);
    check_value(v, "the loss", result->loss_error, 0);
    return v->d->n_errors == errors;
}

bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d)
{
    *result = (VerifyResult){.worst_tensor = ""};
    assert(reference->mesh.n_ranks == 1);
    Verify v = {.plan = {.plan = plan},
                .reference = {.plan = reference},
                .arena = arena,
                .scratch = arena_new(),
                .result = result,
                .tolerance = tolerance,
                .d = d};
    BackendOptions poisoned = options ? *options : (BackendOptions){.order_seed = 0};
    poisoned.poison = true;
    BackendOptions plain = {.poison = true};
    bool fine = find_twins(&v) && run_side(&v, &v.reference, data, plain, after_reference) &&
                run_side(&v, &v.plan, data, poisoned, after_plan) && judge(&v);
    arena_free(v.scratch);
    return fine;
}
