/* Experts that drop no token, predicted for another framework. A framework holds and computes only
 * the rows that arrive. Tandem's executor reserves memory for more rows and computes on all of it.
 * The prediction must not contain these extra rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/compute/even_rows.h"
#include "sim/compute/imbalance.h"
#include "sim/runtime/runtime.h"
#include "sim/sim.h"
#include "tests/sim/eight.h"
#include "tests/support/plans/tiny.h"

/* bound: a rank has memory for `bound` times the mean number of rows. If there are many tokens and
 * few choices, a real run could not work with a bound of 1; the simulator does not run the plan. */
static Plan *plan_of(double bound, uint32_t tp_lent, Arena *arena)
{
    Tiny t = tiny_default();
    Diag d = diag_in(arena);
    t.experts = 8, t.top_k = 2, t.dropless = true, t.bound = bound;
    t.ep = 2, t.tp = tp_lent, t.tp_lent = tp_lent, t.groups = 2;
    t.dim = 128, t.hidden = 256, t.seq = 1024;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    if (plan == NULL) fail_msg("%s", d.items.at[0].text);
    return plan;
}

static Ps step_ps(const Plan *plan, const Runtime *runtime, Arena *arena)
{
    const Cluster c = eight_h100();
    const SimOptions options = {.steps = 1, .runtime = runtime};
    SimReport report;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report.step_ps;
}

static void a_framework_holds_only_the_rows_that_arrive(void **state)
{
    (void)state;
    const Runtime other = {.name = "test"};
    const Cluster c = eight_h100();
    for (uint32_t tp = 1; tp <= 2; tp++) {
        Arena *arena = arena_new();
        const Plan *even = plan_of(1, tp, arena), *more = plan_of(3, tp, arena);
        const Held a = sim_held(even, &c, &other), b = sim_held(more, &c, &other);
        assert_true(a.allocated_bytes == b.allocated_bytes);
        assert_true(step_ps(even, &other, arena) == step_ps(more, &other, arena));
        /* Tandem's executor has more memory for rows, and computes on all of it */
        assert_true(even->programs.at[0].bytes < more->programs.at[0].bytes);
        assert_true(step_ps(even, NULL, arena) < step_ps(more, NULL, arena));
        arena_free(arena);
    }
}

static uint64_t held_bytes(const Plan *plan, double imbalance, const RowLoads *loads, Arena *arena)
{
    const Runtime other = {.name = "test"};
    const Cluster c = eight_h100();
    const SimOptions options = {
        .steps = 1, .runtime = &other, .imbalance = imbalance, .loads = loads};
    SimReport report;
    Diag d = diag_in(arena);
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report.held.allocated_bytes;
}

/* The busiest of 2 ranks holds the rows that it gets, at most all rows. */
static void uneven_choices_take_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *plan = plan_of(1, 1, arena);
    const uint64_t even = held_bytes(plan, 1, NULL, arena);
    const uint64_t half = held_bytes(plan, 1.5, NULL, arena);
    const uint64_t all = held_bytes(plan, 2, NULL, arena);
    assert_true(even < half && half < all);
    assert_true(all == held_bytes(plan, 4, NULL, arena));
    const double more = (double)(half - even),
                 most = (double)(all - even); /* except for the allocator's rounding */
    assert_true(more > most * 0.45 && more < most * 0.55);
    /* A rank that is busy in one layer and idle in the next holds as much as with mean rows. */
    const double turns[] = {1.5, 0.5, 0.5, 1.5}, same[] = {1.5, 0.5, 1.5, 0.5};
    const RowLoads by_turns = {2, 2, turns}, always = {2, 2, same};
    assert_true(held_bytes(plan, 1, &by_turns, arena) == even);
    assert_true(held_bytes(plan, 1, &always, arena) == half);
    arena_free(arena);
}

/* The framework is simulated on a copy of the plan. Other plans are not copied. */
static void only_plans_for_frameworks_are_copied(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *more = plan_of(3, 1, arena);
    const Program *p = &more->programs.at[0];
    uint64_t before = 0, after = 0, copy = 0;
    for (BufferId id = 1; id < p->buffers.n; id++) before += p->buffers.at[id].bytes;
    const Plan *even = even_rows_plan(more, arena);
    for (BufferId id = 1; id < p->buffers.n; id++) {
        after += p->buffers.at[id].bytes;
        copy += even->programs.at[0].buffers.at[id].bytes;
    }
    assert_true(even != more && after == before && copy < before);
    assert_true(even_rows_plan(even, arena) == even);
    const Plan *one = plan_of(1, 1, arena);
    assert_true(even_rows_plan(one, arena) == one);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_framework_holds_only_the_rows_that_arrive),
        cmocka_unit_test(uneven_choices_take_memory),
        cmocka_unit_test(only_plans_for_frameworks_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
