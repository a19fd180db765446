/* Judges rounding on several draws of data.
 *
 * Each quantity has its own test. On each draw it either exceeds its bound or stays within it; p is
 * the chance that it exceeds the bound.
 *   legal plan                   p is at most MOST_LEGAL. (The errors of the plan and of one rank
 *                                come from roundings of the same kinds in another order, so either
 *                                may be the larger one: p = 1/2 if the bound had no margin. The
 *                                bound allows half more. Measured on 28 legal plans with 40 draws
 *                                each: no excess in 1,120 draws at the tests' sizes; 6 of 40 for
 *                                the worst quantity at the smallest sizes.)
 *   plan that rounds too often   p is about LIKELY_WRONG, or more.
 *
 * Each draw changes the quantity's score S, which begins at 0:
 *   excess                       S += log(LIKELY_WRONG / MOST_LEGAL)
 *   no excess                    S += log((1 - LIKELY_WRONG) / (1 - MOST_LEGAL))
 *
 * The score decides (n: number of quantities):
 *   S >= log(n / ROUNDING_ALARM) the quantity is wrong
 *   S <= CLEARED                 the quantity is cleared, after two draws at the earliest
 *   neither, after ROUNDING_DRAWS draws: the quantity passes
 *
 * A legal plan is refused in at most ROUNDING_ALARM of the verifications. For each of its
 * quantities, exp(S) begins at 1, and the expected value of exp(S) never grows (a supermartingale).
 * By Ville's inequality the chance that exp(S) ever reaches n / ROUNDING_ALARM is at most
 * ROUNDING_ALARM / n for each of the n quantities, wherever the draws stop. The chances add up to
 * at most ROUNDING_ALARM, even if quantities depend on each other. A quantity with p = LIKELY_WRONG
 * is nevertheless cleared in about exp(CLEARED), or 3 %, of the verifications (Wald's
 * approximation).
 *
 * Rounding alone never moves a quantity far beyond its bound. A quantity that is not a number, or
 * beyond GROSS times its bound, is wrong at once. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "exec/verify/private.h"

static const double MOST_LEGAL = 1. / 3, LIKELY_WRONG = .9, CLEARED = -3.5, GROSS = 10;

typedef enum Verdict { VERDICT_open, VERDICT_cleared, VERDICT_wrong } Verdict;

typedef struct Quantity {
    RoundingError first; /* the error on the first draw on which the quantity exceeded its bound */
    double s;
    uint32_t n; /* number of draws on which the quantity exceeded its bound while its verdict was
                   open */
    Verdict verdict;
} Quantity;

static void add_draw(Quantity *q, const RoundingError *e, double refused)
{
    if (q->verdict != VERDICT_open) return;
    if (e->excess <= 1) {
        q->s += log((1 - LIKELY_WRONG) / (1 - MOST_LEGAL));
    } else {
        if (q->n++ == 0) q->first = *e;
        q->s += log(LIKELY_WRONG / MOST_LEGAL);
    }
    if (q->s <= CLEARED) q->verdict = VERDICT_cleared;
    if (q->s >= refused || !(e->excess <= GROSS)) q->verdict = VERDICT_wrong;
}

static double ratio(const RoundingResult *r)
{
    return r->gradient_of_one_rank > 0 ? r->gradient / r->gradient_of_one_rank : 0;
}

static int by_ratio(const void *a, const void *b)
{
    double x = ratio(a), y = ratio(b);
    return (x > y) - (x < y);
}

bool exec_verify_rounding_draws(const Plan *plan, const Plan *one_rank, const Plan *exact,
                                const BackendOptions *options, Arena *arena, RoundingResult *result,
                                Diag *d)
{
    RoundingResult of[ROUNDING_DRAWS];
    Quantity *all = NULL;
    uint32_t n = 0, n_all = 0, n_open = 1;
    for (; n_open > 0 && n < ROUNDING_DRAWS; n++) {
        RoundingErrors errors = {NULL, 0, 0};
        const DataSource *data =
            data_synthetic(plan->step.seed + n, plan->graph.info.vocab, 0.125, arena);
        const bool measured = verify_rounding_measure(NULL, plan, one_rank, exact, data, options,
                                                      arena, &of[n], &errors, d);
        *result = of[n];
        result->draws = n + 1;
        if (!measured) return false;
        if (n == 0) all = arena_array(arena, n_all = errors.n, sizeof *all);
        assert(errors.n == n_all);
        n_open = 0;
        for (uint32_t i = 0; i < n_all; i++) {
            add_draw(&all[i], &errors.at[i], log(n_all / ROUNDING_ALARM));
            n_open += all[i].verdict == VERDICT_open;
        }
    }
    qsort(of, n, sizeof of[0], by_ratio);
    *result = of[n / 2];
    result->draws = n;
    bool fine = true;
    for (uint32_t i = 0; i < n_all; i++)
        if (all[i].verdict == VERDICT_wrong)
            fine = verify_rounding_report(
                &all[i].first,
                arena_print(arena, "; beyond the bound on %u of %u draws of data", all[i].n, n), d);
    return fine;
}
