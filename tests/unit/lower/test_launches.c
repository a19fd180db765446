/* Communications with the same launch number start together. So each launch number in a program
 * must belong to several communications. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/corpus/corpus.h"

typedef struct Tally {
    uint32_t plans, launches;
} Tally;

static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    if (t->pp < 2) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (!in->launch || (in->op != OP_send && in->op != OP_recv)) continue;
            uint32_t n = 0;
            for (Pc other = 1; other < p->code.n; other++)
                n += p->code.at[other].launch == in->launch;
            if (n < 2)
                fail_msg("%s: instruction %u has launch %u alone", corpus_name(t, arena), pc,
                         in->launch);
            tally->launches++;
        }
    }
    tally->plans++;
    arena_free(arena);
}

static void no_launch_number_belongs_to_one_message_alone(void **state)
{
    (void)state;
    Tally tally = {0, 0};
    corpus_each(visit, &tally);
    print_message("%u plans, %u messages that start together\n", tally.plans, tally.launches);
    assert_true(tally.plans > 20 && tally.launches > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_launch_number_belongs_to_one_message_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
