/* A plan in low precision against one rank in the same precision: not by their values, which
 * differ, but by how far each is from fp64. A wrong scale or a missing sum stands out from
 * rounding by orders of magnitude. */
#include <math.h>

#include "exec/verify_private.h"

static const double most_times = 1.5, most_more = 1e-3;
/* Of a gradient that is zero but for rounding: what is left is noise, and of few elements. */
static const double most_times_of_noise = 3;

/* Root of the mean square. */
static double rms(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

typedef struct Rounding {
    Verify plan, one_rank; /* each against the exact run */
    RoundingResult *result;
    double largest[KINDS]; /* root mean square of the largest tensor */
    double times;          /* bound of a single tensor */
    double gradient;       /* sum of squares of the exact gradient, */
    double off[2];         /* and of the errors in it: of the plan, of one rank */
} Rounding;

static void judge_error(const Rounding *r, const char *what, double times, double more, double plan,
                        double one_rank)
{
    Loc none = {NULL, 0};
    RoundingResult *result = r->result;
    double bound = times * one_rank + more;
    double excess = isfinite(plan) && isfinite(one_rank) ? plan / bound : INFINITY;
    result->largest_error = fmax(result->largest_error, plan);
    if (excess > result->worst_excess || result->worst_tensor == NULL) {
        result->worst_excess = excess;
        result->worst_error = plan;
        result->its_one_rank_error = one_rank;
        result->worst_tensor = what;
    }
    if (excess <= 1) return;
    diag_error(r->plan.d, FAULT_threshold, "verify-mismatch", none,
               "%s is off by %.3g, relative to fp64; one rank in the same precision by %.3g (at "
               "most %g times that + %g)",
               what, plan, one_rank, times, more);
}

static void judge_tensor(Rounding *r, TensorId t)
{
    const Whole *plan = &r->plan.whole[t], *one_rank = &r->one_rank.whole[t];
    double gradient_error = 0;
    for (int k = 0; k < KINDS; k++) {
        const Values *a = &plan->of[k], *b = &one_rank->of[k];
        if (!a->there) continue;
        double least = k == KIND_parameter ? 0 : GRADIENT_FLOOR;
        double size = fmax(rms(a->at, plan->n), least * r->largest[k]);
        double error[2] = {rms(a->apart, plan->n), rms(b->apart, plan->n)};
        if (k == KIND_gradient) {
            r->gradient += pow(rms(a->at, plan->n), 2) * (double)plan->n;
            for (int i = 0; i < 2; i++) r->off[i] += pow(error[i], 2) * (double)plan->n;
        }
        for (int i = 0; i < 2; i++) error[i] = error[i] == 0 ? 0 : error[i] / size;
        double more = most_more;
        if (k == KIND_gradient) gradient_error = fmin(error[0], 1);
        /* The first step of Adam has one size: where rounding turned a sign, it is off by two. Of
         * how many elements, the gradient's error tells. */
        if (k == KIND_parameter && plan->of[KIND_first_moment].there && size > 0)
            more += 2 * VERIFY_LR * sqrt(gradient_error) / size;
        bool is_noise = rms(a->at, plan->n) < least * r->largest[k];
        judge_error(r, arena_print(r->plan.arena, "%s of %s", verify_kinds[k], plan->name),
                    is_noise ? fmax(r->times, most_times_of_noise) : r->times, more, error[0],
                    error[1]);
    }
    verify_seen(&r->plan, plan);
}

static bool judge(Rounding *r)
{
    const Side *exact = &r->plan.reference, *plan = &r->plan.plan, *one = &r->one_rank.plan;
    const Graph *g = &exact->plan->graph;
    uint32_t errors = r->plan.d->n_errors;
    for (TensorId t = 1; t < g->tensors.n; t++)
        for (int k = 0; k < KINDS && r->plan.whole[t].name; k++)
            r->largest[k] = fmax(r->largest[k], rms(r->plan.whole[t].of[k].at, r->plan.whole[t].n));
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (r->plan.whole[t].name) judge_tensor(r, t);
    /* One number may be right by chance: it may be as far off as the gradient is. (In fp64, where
     * the same plan is compared to 1e-10, nothing hides behind this.) */
    RoundingResult *result = r->result;
    double size = r->gradient > 0 ? sqrt(r->gradient) : 1, whole = sqrt(r->off[1]) / size;
    result->gradient = sqrt(r->off[0]) / size;
    result->gradient_of_one_rank = whole;
    judge_error(r, "the gradient", most_times, most_more, result->gradient, whole);
    judge_error(r, "the gradient norm", most_times, most_more,
                verify_relative(plan->norm, exact->norm),
                fmax(verify_relative(one->norm, exact->norm), whole));
    judge_error(r, "the loss", most_times, most_more, verify_relative(plan->loss, exact->loss),
                fmax(verify_relative(one->loss, exact->loss), whole));
    return r->plan.d->n_errors == errors;
}

bool exec_verify_rounding(const Plan *plan, const Plan *one_rank, const Plan *exact, double times,
                          const DataSource *data, const BackendOptions *options, Arena *arena,
                          RoundingResult *result, Diag *d)
{
    VerifyResult of_plan = {.worst_tensor = ""}, of_one_rank = {.worst_tensor = ""};
    *result = (RoundingResult){.worst_tensor = NULL};
    Rounding r = {.plan = {.plan = {.plan = plan}, .result = &of_plan},
                  .one_rank = {.plan = {.plan = one_rank}, .result = &of_one_rank},
                  .result = result,
                  .times = times};
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
    return judge(&r);
}
