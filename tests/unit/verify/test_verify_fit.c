/* A plan is refused if it needs more memory than a device, or the host of a node, has. The hint
 * must name a change that helps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/spoiled.h"

static bool fits(Spoiled *c, uint64_t device_bytes, uint64_t reserved_bytes)
{
    const Capacity capacity = {device_bytes, reserved_bytes, 0, 0};
    return verify_fit(c->plan, &capacity, &c->d);
}

static void a_plan_too_large_for_a_device_is_refused(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    assert_true(fits(&c, c.p->bytes + 1000, 1000));
    assert_int_equal(c.d.items.n, 0);
    assert_false(fits(&c, c.p->bytes + 1000, 1001));
    assert_int_equal(diag_exit_code(&c.d), 4);
    assert_string_equal(c.d.items.at[0].rule, "does-not-fit");
    assert_non_null(c.d.items.at[0].hint);
    assert_non_null(strstr(c.d.items.at[0].text, "rank 0"));
    assert_false(fits(&c, 10, 1001));
    arena_free(c.arena);
}

/* ep can divide the largest part of a mixture of experts among ranks. For a plan without experts,
 * the hint must not name it. */
static void the_hint_names_ep_only_with_experts(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int experts = 0; experts <= 4; experts += 4) {
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.experts = experts, t.dp_shard = 2;
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Capacity none = {10, 0, 0, 0};
        d.items.n = 0;
        assert_false(verify_fit(plan, &none, &d));
        assert_int_equal(strstr(d.items.at[0].hint, "dp_shard, ep or tp") != NULL, experts > 0);
    }
    arena_free(arena);
}

/* The ranks of a node share its memory. The report names the node that needs most. */
static void a_plan_too_large_for_a_host_is_refused(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    const uint32_t n = c.plan->mesh.n_ranks;
    assert_true(n >= 2);
    c.p->host_bytes = 100;
    for (uint32_t per_node = 0; per_node <= n; per_node += n / 2) {
        const uint64_t need = 100 * (per_node ? per_node : n);
        Capacity fine = {c.p->bytes, 0, need, per_node},
                 short_ = {c.p->bytes, 0, need - 1, per_node};
        c.d.items.n = c.d.n_errors = 0;
        assert_true(verify_fit(c.plan, &fine, &c.d));
        assert_false(verify_fit(c.plan, &short_, &c.d));
        assert_int_equal(c.d.items.n, 1);
        assert_int_equal(diag_exit_code(&c.d), 4);
        assert_string_equal(c.d.items.at[0].rule, "host-does-not-fit");
        assert_non_null(strstr(c.d.items.at[0].text, "node 0"));
        assert_non_null(strstr(c.d.items.at[0].hint, "dp_shard = "));
    }
    Capacity both = {10, 0, 10, 0}; /* both are too small, and both are reported */
    c.d.items.n = c.d.n_errors = 0;
    assert_false(verify_fit(c.plan, &both, &c.d));
    assert_int_equal(c.d.items.n, 2);
    arena_free(c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_too_large_for_a_device_is_refused),
        cmocka_unit_test(the_hint_names_ep_only_with_experts),
        cmocka_unit_test(a_plan_too_large_for_a_host_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
