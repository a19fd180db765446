/* A recomputed region may keep the outputs of some of its ops. The tests count how often each op
 * runs, compare the memory, and check which plans are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

enum { ATTENTION = 1, LINEAR = 2, ALL = (1 << TINY_AC_OPS) - 1 };

static Tiny sizes(uint32_t layers, uint32_t microbatches, AcMode ac, uint32_t ops)
{
    Tiny t = tiny_default();
    t.layers = layers, t.microbatches = microbatches;
    t.dp_shard = t.tp = 2;
    t.tp_options.sequence = true;
    t.ac = ac, t.ac_ops = ops;
    return t;
}

static Plan *compile(const Tiny *t, Arena *arena)
{
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(t, false, arena, &d);
    if (!plan || !verify_plan(plan, VERIFY_all, false, &d)) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        fail_msg("%s", str_text(&s));
    }
    return plan;
}

/* Returns how often forward ops of a family run, both in the forward pass and in recomputation. */
static uint32_t count(const Plan *plan, const char *family)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const char *name = op_info(in->op)->name;
        if (in->phase == PHASE_forward || in->phase == PHASE_recompute)
            n += strncmp(name, family, strlen(family)) == 0;
    }
    return n;
}

static uint32_t count_again(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) n += p->code.at[pc].phase == PHASE_recompute;
    return n;
}

/* A block has seven linears. The backward pass does not need the output of w2, so w2 does not run
 * again. The head is outside all blocks. */
static void ops_with_kept_outputs_run_once(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (uint32_t L = 1; L <= 3; L++)
        for (uint32_t m = 1; m <= 3; m += 2) {
            Tiny t = sizes(L, m, AC_full, 0);
            const Plan *plan = compile(&t, arena);
            assert_int_equal(count(plan, "attention"), 2 * L * m);
            assert_int_equal(count(plan, "linear"), (7 + 6) * L * m + m);
            t.ac_ops = ATTENTION;
            plan = compile(&t, arena);
            assert_int_equal(count(plan, "attention"), L * m);
            assert_int_equal(count(plan, "linear"), (7 + 6) * L * m + m);
            t.ac_ops = LINEAR;
            plan = compile(&t, arena);
            assert_int_equal(count(plan, "attention"), 2 * L * m);
            assert_int_equal(count(plan, "linear"), 7 * L * m + m);
            /* Of q, k, v, o, w1, w3 and w2, the second, fourth and sixth run again. */
            t.ac_alternate = true;
            plan = compile(&t, arena);
            assert_int_equal(count(plan, "linear"), (7 + 3) * L * m + m);
            t.ac_alternate = false;
            t.ac_ops = ATTENTION | LINEAR;
            plan = compile(&t, arena);
            assert_int_equal(count(plan, "attention"), L * m);
            assert_int_equal(count(plan, "linear"), 7 * L * m + m);
            assert_int_equal(count(plan, "rmsnorm"), (2 + 2) * L * m + m);
        }
    arena_free(arena);
}

/* `alternate` keeps the first, third, ... product of each region. The second, fourth, ... run again
 * if the backward pass reads their outputs. In these blocks it reads all of them. */
static void every_second_product_runs_again(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = sizes(2, 1, AC_full, LINEAR);
    t.ac_alternate = true;
    const Plan *plan = compile(&t, arena);
    const Program *p = &plan->programs.at[0];
    ModuleId region = 0;
    uint32_t place = 0, n_products = 0;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++) {
        const Node *n = &plan->graph.nodes.at[id];
        const char *name = op_info(n->op)->name;
        if (!n->region || op_is_gradient(n->op) || strncmp(name, "linear", 6) != 0) continue;
        place = n->region == region ? place + 1 : 0;
        region = n->region;
        uint32_t n_runs = 0;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            const bool forward = in->phase == PHASE_forward || in->phase == PHASE_recompute;
            n_runs += in->origin == id && in->op == n->op && forward;
        }
        if (n_runs != 1 + place % 2)
            fail_msg("product %u of %s runs %u times", place, plan->graph.modules.at[region].path,
                     n_runs);
        n_products++;
    }
    assert_int_equal(n_products, 2 * 7);
    arena_free(arena);
}

/* Keeping more outputs takes more memory and less work. (There are many samples, so that the kept
 * tensors decide the peak.) */
static void memory_lies_between_full_and_none(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    uint64_t last = 0;
    const uint32_t ops[] = {0, ATTENTION | LINEAR, ALL};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        Tiny t = sizes(3, 2, AC_full, ops[i]);
        t.micro = 16;
        const Plan *plan = compile(&t, arena);
        assert_true(plan->programs.at[0].bytes > last);
        last = plan->programs.at[0].bytes;
    }
    arena_free(arena);
}

/* A region that keeps all outputs gives the same plan as no region: instruction for instruction,
 * byte for byte. */
static void keeping_all_outputs_equals_no_recomputation(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        Tiny t = sizes(2, 3, AC_full, ALL), none = sizes(2, 3, AC_none, 0);
        t.gpt2 = none.gpt2 = gpt2;
        const Plan *kept = compile(&t, arena), *plain = compile(&none, arena);
        const Program *a = &kept->programs.at[0], *b = &plain->programs.at[0];
        assert_int_equal(count_again(kept), 0);
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->code.n, b->code.n);
        assert_int_equal(a->buffers.n, b->buffers.n);
        for (Pc pc = 1; pc < a->code.n; pc++) {
            assert_int_equal(a->code.at[pc].op, b->code.at[pc].op);
            assert_int_equal(a->code.at[pc].phase, b->code.at[pc].phase);
        }
        for (BufferId k = 1; k < a->buffers.n; k++)
            assert_int_equal(a->buffers.at[k].offset, b->buffers.at[k].offset);
    }
    arena_free(arena);
}

/* The scaled forms of a product belong to its family, too. Quantised weights are recomputed like
 * gathered weights. */
static void outputs_of_8_bit_products_are_kept(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int recipe = 0; recipe < FLOAT8_RECIPE_COUNT; recipe++) {
        Tiny t = sizes(2, 2, AC_full, LINEAR);
        t.use_float8 = true, t.float8.recipe = (Float8Recipe)recipe;
        assert_int_equal(count(compile(&t, arena), "linear"), 7 * 2 * 2 + 2);
        t.ac_ops = 0;
        assert_int_equal(count(compile(&t, arena), "linear"), (7 + 6) * 2 * 2 + 2);
    }
    arena_free(arena);
}

/* The plan claims to keep attention's output, but recomputes it. */
static void a_recomputed_kept_output_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = sizes(2, 1, AC_full, 0);
    Plan *plan = compile(&t, arena);
    for (NodeId n = 1; n < plan->graph.nodes.n; n++)
        if (plan->graph.nodes.at[n].op == OP_attention) plan->graph.nodes.at[n].keep = true;
    assert_false(verify_plan(plan, VERIFY_all, false, &d));
    Str s = str_in(arena);
    diag_print(&d, &s);
    assert_non_null(strstr(str_text(&s),
                           "recomputation must not repeat attention, because its result is kept"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_with_kept_outputs_run_once),
        cmocka_unit_test(every_second_product_runs_again),
        cmocka_unit_test(memory_lies_between_full_and_none),
        cmocka_unit_test(keeping_all_outputs_equals_no_recomputation),
        cmocka_unit_test(outputs_of_8_bit_products_are_kept),
        cmocka_unit_test(a_recomputed_kept_output_is_refused)};
    return cmocka_run_group_tests_name("ac", tests, NULL, NULL);
}
