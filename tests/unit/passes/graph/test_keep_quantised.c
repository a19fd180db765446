/* float8 { keep_quantised = true } keeps inputs of products for the backward pass in their
 * quantised form. The test counts these inputs, and the inputs that another reader needs
 * unquantised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Tiny with(Float8Recipe recipe)
{
    Tiny t = tiny_default();
    t.layers = 1;
    t.dim = t.hidden = 64, t.groups = 2, t.head_dim = 32, t.seq = 64;
    t.use_float8 = true;
    t.float8.recipe = recipe;
    return t;
}

static bool is_kept(const Program *p, const Buffer *b)
{
    return !b->parent && b->category == CATEGORY_activation &&
           p->code.at[b->first].phase == PHASE_forward &&
           p->code.at[b->last].phase != PHASE_forward;
}

/* Returns the number of activations of this type that are kept for the backward pass. */
static uint32_t n_kept(const Plan *plan, DType dtype)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (BufferId b = 1; b < p->buffers.n; b++)
        n += p->buffers.at[b].dtype == dtype && is_kept(p, &p->buffers.at[b]);
    return n;
}

static uint64_t kept_bytes(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    uint64_t bytes = 0;
    for (BufferId b = 1; b < p->buffers.n; b++)
        if (is_kept(p, &p->buffers.at[b])) bytes += p->buffers.at[b].bytes;
    return bytes;
}

/* With keep_quantised, three of a block's four inputs of products are kept quantised, for the
 * gradients of weights. The gradient of attention reads the fourth unquantised, so that one stays
 * unquantised and is quantised again. If ac recomputes the block, all four are quantised again. */
static void three_of_four_inputs_are_kept_quantised(void **state)
{
    (void)state;
    static const Float8Recipe recipes[] = {FLOAT8_rowwise, FLOAT8_mxfp8, FLOAT8_nvfp4};
    for (uint32_t i = 0; i < 3; i++)
        for (int ac = 0; ac < 2; ac++) {
            Diag d = diag_in(arena);
            Tiny t = with(recipes[i]);
            if (ac) t.ac = AC_full;
            const DType type = recipes[i] == FLOAT8_nvfp4 ? DT_e2m1x2 : DT_e4m3;
            const Plan *again = tiny_plan(&t, false, arena, &d);
            t.float8.keep_quantised = true;
            const Plan *plan = tiny_plan(&t, false, arena, &d);
            assert_non_null(again);
            assert_non_null(plan);
            assert_true(verify_plan(plan, VERIFY_all, false, &d));
            assert_int_equal(n_kept(again, type), 0);
            assert_int_equal(n_kept(plan, type), ac ? 0 : 3);
            /* kept_bytes counts all types, so it shows that the three inputs are not also kept
             * unquantised. */
            if (ac)
                assert_int_equal(kept_bytes(plan), kept_bytes(again));
            else
                assert_true(kept_bytes(plan) < kept_bytes(again));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(three_of_four_inputs_are_kept_quantised, test_arena_setup,
                                        test_arena_teardown),
    };
    return cmocka_run_group_tests_name("keep_quantised", tests, NULL, NULL);
}
