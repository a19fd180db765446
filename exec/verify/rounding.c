/* Compares a plan in low precision with one rank in the same precision. The values of the two
 * differ by rounding. So each is first compared with a run in fp64. Then the two errors are
 * compared with each other. Gradients and moments are judged, but updated weights are not. The
 * reason: Adam's first step moves every weight by the same amount, however small its gradient. If
 * rounding changes the sign of a tiny gradient, the weight differs by two such steps, however small
 * the error is. */
#include <assert.h>
#include <math.h>

#include "exec/verify/private.h"

static const double most_more = 1e-3;

/* Returns the factor for a tensor of n elements. With few elements, the error varies more by
 * chance, so the factor is larger. (With 13 independent elements of one size, one plan in a million
 * exceeds the bound.) */
static double times_of(uint64_t n)
{
    return ROUNDING_TIMES + 10 / sqrt((double)n);
}

/* Returns the root mean square of n numbers. */
static double rms(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

typedef struct RoundingCompare {
    Verify plan, one_rank; /* comparisons of both with the exact run */
    RoundingResult *result;
    RoundingErrors *errors;
    double largest[KINDS]; /* [kind]: largest root mean square of a tensor in the exact run */
    double gradient;       /* sum of squares of the exact gradient, over all tensors */
    double off[2];         /* sums of squares of the errors of all gradients: of the plan, and of
                              one rank */
} RoundingCompare;

static void note_error(const RoundingCompare *r, const char *what, double times, double plan,
                       double one_rank)
{
    RoundingResult *result = r->result;
    const double bound = times * one_rank + most_more;
    const double excess = isfinite(plan) && isfinite(one_rank) ? plan / bound : INFINITY;
    const RoundingError e = {what, plan, one_rank, times, most_more, excess};
    result->largest_error = fmax(result->largest_error, plan);
    if (excess > result->worst_excess || result->worst_tensor == NULL) {
        result->worst_excess = excess;
        result->worst_error = plan;
        result->its_one_rank_error = one_rank;
        result->worst_tensor = what;
    }
    list_push(r->plan.arena, r->errors, e);
}

bool verify_rounding_report(const RoundingError *e, const char *more, Diag *d)
{
    return diag_error(d, FAULT_threshold, "verify-mismatch", (Loc){NULL, 0},
                      "%s differs from fp64 by %.3g, but one rank in the same precision differs by "
                      "only %.3g (allowed: %g times that + %g)%s",
                      e->what, e->plan, e->one_rank, e->times, e->more, more);
}

/* Returns the divisor for the errors of one kind of values of a tensor. */
static double size_of(const RoundingCompare *r, TensorId t, Kind k)
{
    const Whole *w = &r->plan.whole[t];
    return fmax(rms(w->of[k].at, w->n), GRADIENT_FLOOR * r->largest[k]);
}

static void add_gradient(RoundingCompare *r, TensorId t)
{
    const Whole *plan = &r->plan.whole[t];
    const ComparedValues *of[] = {&plan->of[KIND_gradient],
                                  &r->one_rank.whole[t].of[KIND_gradient]};
    for (uint64_t i = 0; of[0]->there && i < plan->n; i++) {
        r->gradient += of[0]->at[i] * of[0]->at[i];
        for (int side = 0; side < 2; side++)
            r->off[side] += of[side]->difference[i] * of[side]->difference[i];
    }
}

static void note_tensor(RoundingCompare *r, TensorId t)
{
    const Whole *plan = &r->plan.whole[t], *one_rank = &r->one_rank.whole[t];
    bool is_state = r->plan.reference.plan->graph.tensors.at[t].role == ROLE_state;
    for (int k = 0; k < KINDS; k++) {
        if ((k == KIND_parameter && !is_state) || !plan->of[k].there) continue;
        double size = size_of(r, t, (Kind)k);
        double error = rms(plan->of[k].difference, plan->n);
        double of_one = rms(one_rank->of[k].difference, plan->n);
        note_error(r, arena_print(r->plan.arena, "%s of %s", verify_kinds[k], plan->name),
                   times_of(plan->n), error == 0 ? 0 : error / size,
                   of_one == 0 ? 0 : of_one / size);
    }
    verify_seen(&r->plan, plan);
}

/* Reports that the comparison proves nothing, because the rounding error is as large as the
 * gradient itself. A correct plan could then not be told from a wrong one. */
static void check_noise(const RoundingCompare *r, double of_one_rank)
{
    Loc none = {NULL, 0};
    diag_error(
        r->plan.d, FAULT_threshold, "verify-nothing", none,
        "the gradient of one rank differs from fp64 by %.3g, so rounding leaves nothing to compare",
        of_one_rank);
    diag_hint(r->plan.d, "use a wider dtype");
}

/* Records the errors of all quantities. Returns false if the runs cannot be compared. */
static bool note_all(RoundingCompare *r)
{
    const Side *exact = &r->plan.reference, *plan = &r->plan.plan, *one = &r->one_rank.plan;
    const Graph *g = &exact->plan->graph;
    uint32_t errors = r->plan.d->n_errors;
    if (!verify_says_something(&r->plan)) return false;
    for (TensorId t = 1; t < g->tensors.n; t++)
        for (int k = 0; k < KINDS && r->plan.whole[t].name; k++)
            r->largest[k] = fmax(r->largest[k], rms(r->plan.whole[t].of[k].at, r->plan.whole[t].n));
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (r->plan.whole[t].name) add_gradient(r, t);
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (r->plan.whole[t].name) note_tensor(r, t);
    /* On one rank, a single number such as the loss may be right by chance. So its error may always
     * be as large as the relative error of the gradient. (This hides no fault, because the same
     * plan is also compared in fp64, to 1e-10.) */
    RoundingResult *result = r->result;
    double size = r->gradient > 0 ? sqrt(r->gradient) : 1, whole = sqrt(r->off[1]) / size;
    result->gradient = sqrt(r->off[0]) / size;
    result->gradient_of_one_rank = whole;
    if (!(whole < 1)) check_noise(r, whole);
    note_error(r, "the gradient", ROUNDING_TIMES, result->gradient, whole);
    note_error(r, "the gradient norm", ROUNDING_TIMES, verify_relative(plan->norm, exact->norm),
               fmax(verify_relative(one->norm, exact->norm), whole));
    note_error(r, "the loss", ROUNDING_TIMES, verify_relative(plan->loss, exact->loss),
               fmax(verify_relative(one->loss, exact->loss), whole));
    return r->plan.d->n_errors == errors;
}

bool exec_verify_rounding(const Plan *plan, const Plan *one_rank, const Plan *exact,
                          const DataSource *data, const BackendOptions *options, Arena *arena,
                          RoundingResult *result, Diag *d)
{
    return exec_verify_rounding_on(NULL, plan, one_rank, exact, data, options, arena, result, d);
}

bool verify_rounding_measure(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             RoundingErrors *errors, Diag *d)
{
    assert(made == NULL || plan->mesh.n_ranks == 1);
    VerifyResult of_plan = {.worst_tensor = ""}, of_one_rank = {.worst_tensor = ""};
    *result = (RoundingResult){.worst_tensor = NULL};
    RoundingCompare r = {.plan = {.plan = {.plan = plan, .made = made}, .result = &of_plan},
                         .one_rank = {.plan = {.plan = one_rank}, .result = &of_one_rank},
                         .result = result,
                         .errors = errors};
    Verify *both[] = {&r.plan, &r.one_rank};
    for (int i = 0; i < 2; i++) {
        both[i]->reference.plan = exact;
        both[i]->arena = arena;
        both[i]->rounding = true;
        both[i]->d = d;
        if (!verify_measure(both[i], data, i == 0 ? options : NULL)) return false;
    }
    result->n_tensors = of_plan.n_tensors;
    result->highest_touched = of_plan.highest_touched;
    result->predicted_bytes = of_plan.predicted_bytes;
    return note_all(&r);
}

bool exec_verify_rounding_on(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             Diag *d)
{
    RoundingErrors errors = {NULL, 0, 0};
    if (!verify_rounding_measure(made, plan, one_rank, exact, data, options, arena, result, &errors,
                                 d))
        return false;
    bool fine = true;
    for (uint32_t i = 0; i < errors.n; i++)
        if (!(errors.at[i].excess <= 1)) fine = verify_rounding_report(&errors.at[i], "", d);
    return fine;
}
