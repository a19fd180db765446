/* A plan with a redundant communication is correct but slow. So it is accepted with warnings: one
 * for each of the first redundant communications, and one with the number of the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

enum { MOST = 12, LISTED = 8 };

/* Makes instructions that waited for `pc` wait for the next instruction instead. */
static void wait_for_next(Program *p, Pc pc)
{
    for (uint32_t i = 0; i < p->after.n; i++)
        if (p->after.at[i] == pc) p->after.at[i] = pc + 1;
}

/* Returns the plan with its first all_gather repeated. Other instructions use the second result.
 */
static Plan *gathered_again(const Plan *plan, Arena *arena)
{
    const Mutations all = mutate_all(plan, arena);
    for (uint32_t i = 0; i < all.at.n; i++) {
        const Mutation m = all.at.at[i];
        const Program *p = &plan->programs.at[m.program];
        if (m.kind != MUTATE_duplicate || p->code.at[m.pc].op != OP_all_gather) continue;
        Plan *again = mutate_copy(mutate(plan, m, arena), arena);
        wait_for_next(&again->programs.at[m.program], m.pc);
        return again;
    }
    fail_msg("the plan has no all_gather");
    return NULL;
}

/* Repeats the first gather of a plan up to MOST times. Each repeated gather must give a warning. */
static void check(const Tiny *t)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    for (uint32_t n = 0; n <= MOST; n++) {
        if (n > 0) plan = gathered_again(plan, arena);
        d = diag_in(arena);
        assert_true(verify_plan(plan, VERIFY_all, false, &d));
        /* The second gather makes nothing new, and no instruction uses the result of the first. */
        const uint32_t wrong = 2 * n;
        assert_int_equal(d.items.n, wrong <= LISTED ? wrong : LISTED + 1);
        uint32_t n_present = 0, n_unused = 0;
        for (uint32_t i = 0; i < d.items.n; i++) {
            const Diagnostic *item = &d.items.at[i];
            assert_string_equal(item->rule, "verify-redundant");
            assert_int_equal(item->severity, SEVERITY_warning);
            n_present += strstr(item->text, "makes a result that is already in buffer") != NULL;
            n_unused += strstr(item->text, "no instruction uses its result") != NULL;
            if (i == LISTED) assert_int_equal(strtol(item->text, NULL, 10), wrong - LISTED);
        }
        if (wrong <= LISTED) assert_int_equal(n_present, n);
        assert_int_equal(n_present + n_unused, wrong <= LISTED ? wrong : LISTED);
        /* Without a request, nothing is reported. */
        d = diag_in(arena);
        assert_true(verify_plan(plan, VERIFY_all & ~VERIFY_redundant, false, &d));
        assert_int_equal(d.items.n, 0);
    }
    arena_free(arena);
}

/* A gathered unit lies in a buffer with views for its weights. */
static void each_redundant_gather_of_weights_is_warned_of(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.layers = 2, t.dp_shard = 2;
    check(&t);
}

/* A gathered activation has a separate buffer, which the proofs track as a whole. */
static void each_redundant_gather_of_activations_is_warned_of(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.layers = 2, t.tp = 2, t.tp_options.sequence = true;
    check(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_redundant_gather_of_weights_is_warned_of),
        cmocka_unit_test(each_redundant_gather_of_activations_is_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
