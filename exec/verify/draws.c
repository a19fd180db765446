/* Judges rounding on several draws of data. */
#include <stdlib.h>
#include <string.h>

#include "exec/verify/private.h"

/* A quantity that exceeded its bound, such as "gradient of wq.weight". */
typedef struct Excess {
    const char *what, *text; /* text: the message of the first such draw */
    uint32_t n;              /* number of draws on which it did */
} Excess;
typedef LIST(Excess) Excesses;

/* Counts the quantities that exceeded their bound on one draw. Copies any other error to `d` and
 * returns false. */
static bool count_excesses(const Diag *found, Arena *arena, Excesses *all, Diag *d)
{
    for (uint32_t i = 0; i < found->items.n; i++) {
        const Diagnostic *item = &found->items.at[i];
        const char *end = strstr(item->text, " is off by ");
        if (item->severity != SEVERITY_error) continue;
        if (end == NULL || strcmp(item->rule, "verify-mismatch") != 0)
            return diag_error(d, item->fault, item->rule, item->loc, "%s", item->text);
        const char *what = arena_copy(arena, item->text, (size_t)(end - item->text));
        uint32_t k = 0;
        while (k < all->n && strcmp(all->at[k].what, what) != 0) k++;
        if (k == all->n) list_push(arena, all, ((Excess){what, item->text, 0}));
        all->at[k].n++;
    }
    return true;
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
    Excesses all = {NULL, 0, 0};
    uint32_t n = 0;
    do {
        Diag found = diag_in(arena);
        const DataSource *data =
            data_synthetic(plan->step.seed + n, plan->graph.info.vocab, 0.125, arena);
        exec_verify_rounding(plan, one_rank, exact, data, options, arena, &of[n++], &found);
        *result = of[n - 1];
        result->draws = n;
        if (!count_excesses(&found, arena, &all, d)) return false;
    } while (all.n > 0 && n < ROUNDING_DRAWS);
    qsort(of, n, sizeof of[0], by_ratio);
    *result = of[n / 2];
    result->draws = n;
    bool fine = true;
    for (uint32_t i = 0; i < all.n; i++)
        if (2 * all.at[i].n > n)
            fine =
                diag_error(d, FAULT_threshold, "verify-mismatch", (Loc){NULL, 0},
                           "%s; too far on %u of %u draws of data", all.at[i].text, all.at[i].n, n);
    return fine;
}
