/* Every plan that the passes make must pass every proof, both in its own dtypes and with all
 * numbers in fp64. A proof that is too strict would refuse legal plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/verify/verify.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

typedef struct Count {
    uint32_t seen, n, failed;
} Count;

/* Returns true if `threads` threads report what one thread reported: the items of `d` from `said`
 * on. */
static bool same_reports(const Plan *plan, uint32_t proofs, uint32_t threads, uint32_t said,
                         const Diag *d)
{
    Arena *arena = arena_new();
    Diag again = diag_in(arena);
    parallel_allow(threads);
    bool same = verify_plan(plan, proofs, false, &again) && again.items.n == d->items.n - said;
    parallel_allow(1);
    for (uint32_t i = 0; same && i < again.items.n; i++)
        same = strcmp(again.items.at[i].text, d->items.at[said + i].text) == 0;
    arena_free(arena);
    return same;
}

static void visit(void *self, const Tiny *t)
{
    Count *count = self;
    if (!is_sampled(count->seen++, 4)) return;
    for (int fp64 = 0; fp64 < 2; fp64++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const Plan *plan = tiny_plan(t, fp64, arena, &d);
        uint32_t said = d.items.n; /* the passes may have reported unused options */
        bool ok = plan && verify_plan(plan, VERIFY_all, false, &d) &&
                  same_reports(plan, VERIFY_all, 3, said, &d) &&
                  same_reports(plan, VERIFY_all | VERIFY_in_full, 1, said, &d);
        count->n++;
        /* A warning may only be about a gather that was requested. */
        bool warns = d.items.n > said + d.n_errors;
        if (!ok || d.n_errors || (warns && t->tp_options.share_gathers)) {
            Str s = str_in(arena);
            diag_print(&d, &s);
            print_error("%s%s\n%.4000s\n", corpus_name(t, arena), fp64 ? " (fp64)" : "",
                        str_text(&s));
            count->failed++;
        }
        arena_free(arena);
        if (count->failed > 5) fail_msg("too many plans fail");
    }
}

static void plans_of_the_corpus_pass_every_proof(void **state)
{
    (void)state;
    Count count = {0, 0, 0};
    corpus_each(visit, &count);
    print_message("%u plans\n", count.n);
    assert_true(count.n > SAMPLE(500, 125));
    assert_int_equal(count.failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_of_the_corpus_pass_every_proof)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
