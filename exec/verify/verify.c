/* Compares one step of a plan with one step of the same model on one rank. Gradients are read from
 * the accumulators; weights and moments are read from the buffers in which they stay between steps.
 * Every rank is compared, including those with equal copies. (After one step of Adam, weights
 * hardly show a wrong scale of the gradient, but moments show it fully.) */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "exec/flat.h"
#include "exec/verify/private.h"
#include "kernels/number.h"

typedef struct Compare {
    const Side *side;
    Whole *whole; /* [tensor of the reference's graph] */
    /* [tensor of the plan's graph]: the same tensor in the reference's graph */
    const TensorId *twin;
    const void *at; /* memory of the buffer that is being compared */
    DType dtype;
    Rank rank;
    Kind kind;
    bool is_reference, by_roots;
} Compare;

static double value_at(const Compare *c, uint64_t i)
{
    return number_read(c->dtype, c->at, i);
}

static void store_value(ComparedValues *v, uint64_t global, double x)
{
    v->at[global] = x;
    v->there = true;
    if (!(fabs(x) <= v->max)) v->max = fabs(x);
}

static void compare(const Compare *c, ComparedValues *v, uint64_t global, double x)
{
    double difference = fabs(x - v->at[global]);
    if (isnan(difference)) difference = INFINITY;
    v->seen[global] = true;
    if (v->difference != NULL) v->difference[global] = fmax(v->difference[global], difference);
    if (difference <= v->error) return;
    v->error = difference;
    v->rank = c->rank;
}

static void visit(void *self, const FlatRun *run)
{
    Compare *c = self;
    Whole *w = &c->whole[c->is_reference ? run->tensor : c->twin[run->tensor]];
    assert(run->global + run->n <= w->n);
    for (uint64_t i = 0; i < run->n; i++) {
        double x = value_at(c, run->at + i);
        if (c->by_roots && c->kind == KIND_second_moment) x = sqrt(x);
        if (c->is_reference)
            store_value(&w->of[c->kind], run->global + i, x);
        else
            compare(c, &w->of[c->kind], run->global + i, x);
    }
}

/* Returns the kind of values in a buffer; KINDS: it holds values of another kind. Of a unit's two
 * moments, the buffer of the first one comes first. */
static Kind kind_of(const Plan *plan, const Buffer *buffer, UnitId *moment_of)
{
    if (plan_is_state(plan, buffer)) return KIND_parameter;
    if (!flat_is_home(buffer)) return KINDS;
    if (buffer->category == CATEGORY_gradient) return KIND_gradient;
    if (buffer->category == CATEGORY_parameter) return KIND_parameter;
    if (buffer->category != CATEGORY_optimizer) return KINDS;
    bool second = *moment_of == buffer->unit;
    *moment_of = buffer->unit;
    return second ? KIND_second_moment : KIND_first_moment;
}

/* Returns the buffer's memory if the host can read it, and otherwise a copy. Returns NULL after a
 * diagnostic. */
static const void *memory_of(const Compare *c, BufferId b, Arena *scratch, Diag *d)
{
    Backend *backend = c->side->backend;
    if (backend->memory != NULL) return backend->memory(backend, c->rank, b);
    const Plan *plan = c->side->plan;
    void *copy = arena_alloc(scratch, plan_program(plan, c->rank)->buffers.at[b].bytes);
    return backend_read(backend, plan, c->rank, b, copy, d) ? copy : NULL;
}

static bool visit_all(Compare *c, Arena *scratch, Diag *d)
{
    const Plan *plan = c->side->plan;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        UnitId moment_of = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *buffer = &p->buffers.at[b];
            c->kind = kind_of(plan, buffer, &moment_of);
            if (c->kind == KINDS) continue;
            c->rank = r;
            c->dtype = buffer->dtype;
            c->at = memory_of(c, b, scratch, d);
            if (c->at == NULL) return false;
            FlatRun all = {buffer->tensor, 0, 0, buffer->bytes / dtype_bytes(buffer->dtype)};
            if (plan_is_state(plan, buffer))
                visit(c, &all);
            else
                flat_each(plan, p, b, r, scratch, visit, c);
            arena_reset(scratch);
        }
    }
    return true;
}

/* ---- running both plans ---- */

static void find_memory(const Verify *v, Backend *backend, Space space, uint64_t *highest,
                        uint64_t *planned)
{
    uint64_t worst = 0;
    for (Rank r = 0; r < v->plan.plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(v->plan.plan, r);
        uint64_t predicted = space == SPACE_host ? p->host_bytes : p->bytes;
        uint64_t touched = backend->highest_touched(backend, r, space);
        uint64_t apart = touched > predicted ? touched - predicted : predicted - touched;
        if (r > 0 && (apart < worst || (apart == worst && predicted <= *planned))) continue;
        worst = apart;
        *highest = touched;
        *planned = predicted;
    }
}

static bool after_plan(void *self, Backend *backend, Diag *d)
{
    Verify *v = self;
    Compare c = {.side = &v->plan, .whole = v->whole, .twin = v->twin, .by_roots = v->rounding};
    v->plan.backend = backend;
    if (!visit_all(&c, v->scratch, d)) return false;
    VerifyResult *result = v->result;
    find_memory(v, backend, SPACE_device, &result->highest_touched, &result->predicted_bytes);
    find_memory(v, backend, SPACE_host, &result->host_touched, &result->host_predicted);
    ExpertLoads loads;
    if (!loads_gather(backend, v->plan.plan, v->scratch, &loads, d)) return false;
    result->n_experts = loads.n_experts, result->n_empty = loads.n_empty;
    result->busiest = loads.busiest;
    return true;
}

static bool after_reference(void *self, Backend *backend, Diag *d)
{
    Verify *v = self;
    Compare c = {
        .side = &v->reference, .whole = v->whole, .is_reference = true, .by_roots = v->rounding};
    v->reference.backend = backend;
    return visit_all(&c, v->scratch, d);
}

static bool run_side(Verify *v, Side *side, const DataSource *data, BackendOptions backend,
                     bool (*at_end)(void *, Backend *, Diag *))
{
    ExecResult result;
    ExecOptions options = {.backend = "loopback",
                           .made = side->made,
                           .steps = 1,
                           .lr = VERIFY_LR,
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

/* ---- before the runs ---- */

static bool lives_between_steps(const Tensor *t)
{
    return t->role == ROLE_param || t->role == ROLE_state;
}

static bool find_twins(Verify *v)
{
    const Graph *a = &v->plan.plan->graph, *b = &v->reference.plan->graph;
    v->whole = arena_array(v->arena, b->tensors.n, sizeof *v->whole);
    v->twin = arena_array(v->arena, a->tensors.n, sizeof *v->twin);
    for (TensorId t = 1; t < b->tensors.n; t++) {
        const Tensor *tensor = &b->tensors.at[t];
        if (!lives_between_steps(tensor)) continue;
        Whole *w = &v->whole[t];
        w->name = tensor->name;
        w->n = 1;
        for (int d = 0; d < tensor->n_dims; d++) w->n *= (uint64_t)tensor->dim[d];
        for (int k = 0; k < KINDS; k++) {
            w->of[k].at = arena_array(v->arena, w->n, sizeof(double));
            w->of[k].seen = arena_array(v->arena, w->n, sizeof(bool));
            if (v->rounding) w->of[k].difference = arena_array(v->arena, w->n, sizeof(double));
        }
        v->result->n_tensors += tensor_trains(tensor);
    }
    Loc none = {NULL, 0};
    for (TensorId t = 1; t < a->tensors.n; t++) {
        const Tensor *tensor = &a->tensors.at[t];
        if (!lives_between_steps(tensor)) continue;
        for (TensorId k = 1; k < b->tensors.n && !v->twin[t]; k++)
            if (v->whole[k].name && strcmp(v->whole[k].name, tensor->name) == 0) v->twin[t] = k;
        uint64_t n = 1;
        for (int d = 0; d < tensor->n_dims; d++) n *= (uint64_t)tensor->dim[d];
        if (v->twin[t] == 0 || v->whole[v->twin[t]].n != n)
            return diag_error(v->d, FAULT_internal, "verify-mismatch", none,
                              "the one-rank run has no parameter %s of this size", tensor->name);
    }
    return true;
}

/* ---- after the runs ---- */

const char *const verify_kinds[KINDS] = {"gradient", "value", "first moment", "second moment"};

bool verify_seen(const Verify *v, const Whole *w)
{
    Loc none = {NULL, 0};
    for (int k = 0; k < KINDS; k++)
        for (uint64_t i = 0; w->of[k].there && i < w->n; i++)
            if (!w->of[k].seen[i])
                return diag_error(v->d, FAULT_threshold, "verify-mismatch", none,
                                  "%s: the %s of element %llu is on no rank", w->name,
                                  verify_kinds[k], (unsigned long long)i);
    return true;
}

/* Without this check, a comparison of nothing would succeed. */
bool verify_says_something(const Verify *v)
{
    const Graph *g = &v->reference.plan->graph;
    Loc none = {NULL, 0};
    double largest = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Whole *w = &v->whole[t];
        bool is_param = w->name && tensor_trains(&g->tensors.at[t]);
        if (w->name && !w->of[KIND_parameter].there)
            return diag_error(v->d, FAULT_internal, "verify-nothing", none,
                              "the one-rank run has no value of %s, so it cannot be compared",
                              w->name);
        if (is_param && !w->of[KIND_gradient].there)
            return diag_error(v->d, FAULT_internal, "verify-nothing", none,
                              "the one-rank run has no gradient of %s, so it cannot be compared",
                              w->name);
        if (!is_param) continue;
        if (!(w->of[KIND_gradient].max <= largest)) largest = w->of[KIND_gradient].max;
        if (w->of[KIND_gradient].max == 0 && v->result->n_unmoved++ == 0)
            v->result->unmoved = arena_dup(v->arena, w->name);
    }
    if (largest > 0) return true;
    diag_error(
        v->d, FAULT_threshold, "verify-nothing", none,
        "all gradients of the one-rank run are zero (loss %g), so a comparison would prove nothing",
        v->reference.loss);
    diag_hint(v->d, "use a batch with labels, and a loss that depends on the parameters");
    return false;
}

/* Returns difference / divisor. Returns 0 if the difference is 0, even if the divisor is 0, too. */
static double ratio(double difference, double divisor)
{
    return difference == 0 ? 0 : difference / divisor;
}

double verify_relative(double a, double b)
{
    double difference = fabs(a - b);
    return isnan(difference) ? INFINITY : ratio(difference, fabs(b));
}

static void check_value(const Verify *v, const char *what, double error, Rank rank)
{
    Loc none = {NULL, 0};
    if (error <= v->tolerance) return;
    diag_error(
        v->d, FAULT_threshold, "verify-mismatch", none,
        "%s on rank %u differs from the one-rank run by %.3g (relative; at most %.3g is allowed)",
        what, rank, error, v->tolerance);
}

/* Returns the factor by which the optimizer multiplies the accumulated gradients, apart from
 * clipping. */
static double step_factor(const Verify *v)
{
    const Graph *g = &v->reference.plan->graph;
    double sum = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const ComparedValues *at = &v->whole[t].of[KIND_gradient];
        for (uint64_t i = 0; at->there && i < v->whole[t].n; i++) sum += at->at[i] * at->at[i];
    }
    return sum > 0 ? v->reference.norm / sqrt(sum) : 1;
}

/* Returns how much a weight may differ because of rounding in Adam. Adam's first step is lr g /
 * (|g| + eps). If a gradient g consists only of a rounding error, the step is lr / eps times this
 * error. Weights may differ by this much whatever the tolerance is. */
static double adam_noise(const Verify *v, const Whole *w, const double largest[KINDS])
{
    const ComparedValues *g = &w->of[KIND_gradient];
    const Program *p = &v->reference.plan->programs.at[0];
    if (g->max > v->tolerance * largest[KIND_gradient]) return 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Attrs *attrs = graph_attrs_at(&v->reference.plan->graph, p->code.at[pc].attrs);
        if (p->code.at[pc].op == OP_adamw && attrs->eps > 0)
            return VERIFY_LR * step_factor(v) * (2 * g->max + g->error) / attrs->eps;
    }
    return 0;
}

/* Judges one tensor. Each difference is divided by the largest magnitude of the tensor's values.
 * For gradients and moments, the divisor is at least GRADIENT_FLOOR times the largest magnitude of
 * all tensors, or the square of this factor for second moments. */
static void judge_tensor(Verify *v, const Whole *w, const double largest[KINDS], double *worst)
{
    VerifyResult *result = v->result;
    double *of_result[KINDS] = {&result->worst_gradient, &result->worst_parameter,
                                &result->worst_state, &result->worst_state};
    for (int k = 0; k < KINDS; k++) {
        const ComparedValues *at = &w->of[k];
        double least = k == KIND_parameter
                           ? 0
                           : largest[k] * (k == KIND_second_moment ? GRADIENT_FLOOR * GRADIENT_FLOOR
                                                                   : GRADIENT_FLOOR);
        double noise = k == KIND_parameter ? adam_noise(v, w, largest) : 0;
        double error = ratio(fmax(at->error - noise, 0), fmax(at->max, least));
        if (error > *of_result[k]) *of_result[k] = error;
        if (error > *worst) {
            *worst = error;
            result->worst_tensor = arena_dup(v->arena, w->name);
        }
        check_value(v, arena_print(v->arena, "%s of %s", verify_kinds[k], w->name), error,
                    at->rank);
    }
    verify_seen(v, w);
}

static bool judge(Verify *v)
{
    const Graph *g = &v->reference.plan->graph;
    VerifyResult *result = v->result;
    uint32_t errors = v->d->n_errors;
    double largest[KINDS] = {0}, worst = -1;
    if (!verify_says_something(v)) return false;
    for (TensorId t = 1; t < g->tensors.n; t++)
        for (int k = 0; k < KINDS; k++) largest[k] = fmax(largest[k], v->whole[t].of[k].max);
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (v->whole[t].name) judge_tensor(v, &v->whole[t], largest, &worst);
    result->norm_error = verify_relative(v->plan.norm, v->reference.norm);
    result->loss_error = verify_relative(v->plan.loss, v->reference.loss);
    check_value(v, "the gradient norm", result->norm_error, 0);
    check_value(v, "the loss", result->loss_error, 0);
    return v->d->n_errors == errors;
}

bool verify_measure(Verify *v, const DataSource *data, const BackendOptions *options)
{
    assert(v->reference.plan->mesh.n_ranks == 1);
    BackendOptions poisoned = options ? *options : (BackendOptions){.order_seed = 0};
    poisoned.poison = true;
    BackendOptions plain = {.poison = true};
    v->scratch = arena_new();
    bool fine = find_twins(v) && run_side(v, &v->reference, data, plain, after_reference) &&
                run_side(v, &v->plan, data, poisoned, after_plan);
    arena_free(v->scratch);
    return fine;
}

bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d)
{
    *result = (VerifyResult){.worst_tensor = ""};
    Verify v = {.plan = {.plan = plan},
                .reference = {.plan = reference},
                .arena = arena,
                .result = result,
                .tolerance = tolerance,
                .d = d};
    return verify_measure(&v, data, options) && judge(&v);
}
