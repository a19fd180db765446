/* The verifier decides whether the parts of one deal are pieces of the parts of another. The test
 * compares its quick answer with a comparison of every index. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "planner/verify/value/value.h"
#include "tests/support/plans/plans.h"
#include "tests/support/test_arena.h"

enum { MOST = 54 };

/* Returns a deal that gives n_parts the indices in this order, in runs of `each`. */
static DealId dealt(Plan *plan, const int64_t *order, int64_t size, uint32_t n_parts, int64_t each)
{
    Interval intervals[MOST];
    for (int64_t i = 0; i < size; i += each)
        intervals[i / each] = (Interval){order[i], order[i] + each};
    return deal_listed(&plan->graph.deals, arena, size, n_parts, (uint32_t)(size / each / n_parts),
                       intervals);
}

static bool nests(const Deals *deals, DealId whole, DealId cut, int64_t size, uint32_t n_whole,
                  uint32_t k)
{
    const uint32_t n_parts = n_whole * k;
    const int64_t n = size / n_parts;
    for (uint32_t part = 0; part < n_parts; part++)
        for (int64_t i = 0; i < n; i++)
            if (deal_index(deals, cut, size, n_parts, part, i) !=
                deal_index(deals, whole, size, n_whole, part / k, part % k * n + i))
                return false;
    return true;
}

/* Both deals give out the same indices, except that one of them exchanges two indices. The verifier
 * may refuse correct deals of many intervals, but it must never accept a wrong deal. */
static void an_accepted_deal_nests(void **state)
{
    (void)state;
    uint32_t n_accepted = 0, n_true = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        uint64_t draw = 0;
#define DRAW(n) ((int64_t)rng_below(seed, 3, draw++, (uint64_t)(n)))
        uint32_t sizes[AXIS_NAMES] = {0};
        const uint32_t n_whole = 1 + (uint32_t)DRAW(2), k = 2 + (uint32_t)DRAW(2);
        sizes[AXIS_dp_shard] = n_whole, sizes[AXIS_tp] = k;
        Plan *plan = plans_new(arena, sizes);
        const int64_t each = 1 + DRAW(3), size = (int64_t)(n_whole * k) * each * (1 + DRAW(3));
        int64_t order[2][MOST];
        assert_true(size <= MOST);
        for (int64_t i = 0; i < size; i++) order[0][i] = order[1][i] = i;
        const int64_t of = DRAW(2), a = DRAW(size), b = DRAW(size), last = order[of][b];
        order[of][b] = order[of][a], order[of][a] = last;
        /* If two indices are exchanged, each run of this deal has only one index. */
        const bool changed = a != b;
        const DealId whole = dealt(plan, order[0], size, n_whole, changed && !of ? 1 : each);
        const DealId cut = dealt(plan, order[1], size, n_whole * k, changed && of ? 1 : each);
        Shape s[2] = {{.n_dims = 1, .dim = {size}, .deal = {whole}},
                      {.n_dims = 1, .dim = {size}, .deal = {cut}}};
        const AxisSet tp = mesh_axes(&plan->mesh, AXIS_tp);
        for (uint32_t x = 0; x < plan->mesh.n_axes; x++) {
            s[1].layout.on[x] = SPLIT(0);
            if (!(tp >> x & 1)) s[0].layout.on[x] = SPLIT(0);
        }
        const Verifier v = {.plan = plan, .g = &plan->graph};
        const bool accepted = verify_nests(&v, &s[0], &s[1], 0, tp);
        const bool is_true = nests(&plan->graph.deals, whole, cut, size, n_whole, k);
        if (accepted && !is_true) fail_msg("seed %llu: accepted", (unsigned long long)seed);
        n_accepted += accepted, n_true += is_true;
        arena_reset(arena);
    }
    assert_true(n_accepted > 300 && n_true > n_accepted && n_true < 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_accepted_deal_nests, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("nest", tests, NULL, NULL);
}
