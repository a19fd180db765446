/* The search for equal blocks, which comes before any proof. It must not follow an index that is
 * out of range. It must find the blocks of a plan with equal layers, because otherwise the plan is
 * proven in full, which takes longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/copies/copies.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/tiny.h"

static Plan *prefetching(uint32_t layers, uint32_t prefetch, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.layers = layers;
    t.dp_shard = 2;
    t.fsdp2.prefetch = prefetch;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return plan;
}

static Plan *plan_of(uint32_t layers, Arena *arena)
{
    return prefetching(layers, tiny_default().fsdp2.prefetch, arena);
}

/* Sets the index to n, which is out of range, and to 0, which is allowed for some indices. */
static void refuse(const Plan *plan, uint32_t *index, uint32_t n, bool may_be_0)
{
    const uint32_t was = *index;
    *index = n;
    assert_false(copies_in_range(plan));
    *index = 0;
    if (!may_be_0) assert_false(copies_in_range(plan));
    *index = was;
    assert_true(copies_in_range(plan));
}

static void indices_out_of_range_are_noticed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = plan_of(2, arena);
    Graph *g = &plan->graph;
    Program *p = &plan->programs.at[0];
    assert_true(copies_in_range(plan));
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        refuse(plan, &n->forward, g->nodes.n, true);
        for (uint32_t i = 0; i < n->n_in; i++) refuse(plan, &n->in[i], g->tensors.n, false);
        for (uint32_t j = 0; j < n->n_out; j++) refuse(plan, &n->out[j], g->tensors.n, false);
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->args.n; i++)
            refuse(plan, &p->args.at[in->args.first + i], p->buffers.n, false);
    }
    arena_free(arena);
}

/* The counterpart of an item in the next block has this item as its counterpart in the block
 * before. */
static void the_blocks_of_equal_layers_are_found(void **state)
{
    (void)state;
    enum { LAYERS = 14 };
    Arena *arena = arena_new();
    BlockCopies b;
    assert_true(copies_of(&b, plan_of(LAYERS, arena), arena));
    assert_true(b.n + 1 >= LAYERS);
    for (int kind = 0; kind < ITEM_KINDS; kind++) {
        const Items *of = &b.of[kind];
        uint32_t n_pairs = 0;
        for (uint32_t x = 1; x < of->n; x++) {
            if (of->up[x]) assert_int_equal(of->down[of->up[x]], x);
            if (of->down[x]) assert_int_equal(of->up[of->down[x]], x);
            n_pairs += of->up[x] && of->block[x] && of->block[of->up[x]] == of->block[x] + 1;
        }
        assert_true(n_pairs + 3 >= LAYERS);
    }
    arena_free(arena);
}

/* The proofs accept the shorter plan. Its size does not depend on the number of layers. */
static void shorter_plans_have_one_size(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Plan *few[2];
    for (uint32_t i = 0; i < 2; i++) {
        Diag d = diag_in(arena);
        const uint32_t whole = VERIFY_races | VERIFY_deadlock; /* proven only on the whole plan */
        few[i] = copies_shorten(plan_of(14 + 3 * i, arena), arena);
        assert_non_null(few[i]);
        assert_true(verify_plan(few[i], (VERIFY_all & ~whole) | VERIFY_in_full, false, &d));
    }
    assert_int_equal(few[0]->graph.nodes.n, few[1]->graph.nodes.n);
    assert_int_equal(few[0]->programs.at[0].code.n, few[1]->programs.at[0].code.n);
    arena_free(arena);
}

/* With prefetch 6, a layer gathers the weights of the layer six blocks later. If fewer blocks than
 * that were left out, such a reference would cross all of them and become shorter. */
static void far_references_keep_their_distance(void **state)
{
    (void)state;
    uint32_t n_short = 0;
    for (uint32_t prefetch = 1; prefetch <= 6; prefetch++) {
        for (uint32_t layers = 8; layers <= 26; layers++) {
            Arena *arena = arena_new();
            Diag d = diag_in(arena);
            const uint32_t whole = VERIFY_races | VERIFY_deadlock;
            const Plan *few = copies_shorten(prefetching(layers, prefetch, arena), arena);
            const uint32_t proofs = (VERIFY_all & ~whole) | VERIFY_in_full;
            if (few != NULL && !verify_plan(few, proofs, false, &d)) {
                Str text = str_in(arena);
                diag_print(&d, &text);
                fail_msg("%u layers, prefetch %u: %.900s", layers, prefetch, str_text(&text));
            }
            n_short += few != NULL;
            arena_free(arena);
        }
    }
    print_message("%u plans could be made shorter\n", n_short);
    assert_true(n_short > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(indices_out_of_range_are_noticed),
                                       cmocka_unit_test(the_blocks_of_equal_layers_are_found),
                                       cmocka_unit_test(shorter_plans_have_one_size),
                                       cmocka_unit_test(far_references_keep_their_distance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
