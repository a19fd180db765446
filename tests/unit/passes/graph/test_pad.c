/* An odd vocabulary is padded, so that the head's rows are aligned. Padding counts nowhere: the
 * graph, initial weights and checkpoints do not see it. Plans with wrong padding are rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/str.h"
#include "planner/ir/layout/padding.h"
#include "planner/ir/state/state.h"
#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "sim/compute/work.h"
#include "tests/support/plans/tiny.h"

enum { VOCAB = 203, PADDED = 256 };

static Tiny sizes(bool gpt2, int64_t vocab)
{
    Tiny t = tiny_default();
    t.gpt2 = gpt2;
    t.vocab = vocab;
    t.dim = 16, t.hidden = 32, t.head_dim = 8;
    t.compute = DT_bf16;
    return t;
}

static Plan *plan_of(const Tiny *t, bool fp64, Arena *arena)
{
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(t, fp64, arena, &d);
    if (plan) verify_plan(plan, VERIFY_all, false, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    assert_string_equal(str_text(&s), "");
    return plan;
}

/* Returns the number of products in the program whose rows are not aligned. */
static uint32_t n_unaligned(const Plan *plan, uint32_t *n_products)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        Binding b;
        int64_t size['z' + 1];
        if (op_info(in->op)->class_ != OP_CLASS_contract) continue;
        assert_true(plan_bind(plan, p, in, 0, &b, size, NULL, NULL));
        (*n_products)++;
        n += !work_is_aligned(p, in, &b, size);
    }
    return n;
}

static void rows_of_the_head_are_aligned(void **state)
{
    (void)state;
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        Arena *arena = arena_new();
        Tiny t = sizes(gpt2, VOCAB);
        uint32_t n_products = 0, n_before = 0;
        const Plan *plan = plan_of(&t, false, arena);
        assert_int_equal(n_unaligned(plan, &n_products), 0);
        t.unpadded = true;
        /* Each micro-batch has three such products: for the logits, and for the gradients of the
         * head's input and weight. */
        assert_int_equal(n_unaligned(plan_of(&t, false, arena), &n_before), 3 * t.microbatches);
        assert_int_equal(n_products, n_before);
        arena_free(arena);
    }
}

/* Checks every buffer that has the vocabulary in its shape. */
static void check_parts(uint32_t tp, int64_t local, int64_t last)
{
    Arena *arena = arena_new();
    Tiny t = sizes(true, VOCAB);
    t.tp = tp;
    t.groups = 4;
    const Plan *plan = plan_of(&t, false, arena);
    const Deals *deals = &plan->graph.deals;
    uint32_t n = 0;
    for (ShapeId i = 1; i < plan->shapes.n; i++) {
        const Shape *s = &plan->shapes.at[i];
        for (int d = 0; d < s->n_dims; d++) {
            if (s->dim[d] != VOCAB) continue;
            assert_int_equal(shape_local_dim(s, &plan->mesh, deals, d), local);
            assert_int_equal(shape_valid(s, &plan->mesh, deals, d, tp - 1), last);
            n++;
        }
    }
    assert_true(n >= 2); /* at least the logits and the weight */
    arena_free(arena);
}

static void padding_goes_to_the_last_part(void **state)
{
    (void)state;
    check_parts(1, PADDED, VOCAB);
    check_parts(2, 128, VOCAB - 128);
    check_parts(4, 64, VOCAB - 3 * 64);
}

static void an_aligned_vocabulary_is_not_padded(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    /* The rows of this vocabulary are a multiple of 16 bytes, which is enough. */
    Tiny t = sizes(true, PADDED - 8), plain = t;
    plain.unpadded = true;
    const Hash128 id = text_plan_id(plan_of(&t, false, arena), arena),
                  other = text_plan_id(plan_of(&plain, false, arena), arena);
    assert_memory_equal(&id, &other, sizeof id);
    arena_free(arena);
}

/* Initial values and checkpoints use slices of tensors, without padding. */
static void a_checkpoint_does_not_see_padding(void **state)
{
    (void)state;
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        Arena *arena = arena_new();
        Tiny t = sizes(gpt2, VOCAB), plain = t;
        plain.unpadded = true;
        StateSlices with = {0}, without = {0};
        state_of_rank(state_of(plan_of(&t, false, arena), arena), 0, arena, &with);
        state_of_rank(state_of(plan_of(&plain, false, arena), arena), 0, arena, &without);
        assert_int_equal(with.n, without.n);
        for (uint32_t i = 0; i < with.n; i++) {
            const StateSlice *a = &with.at[i], *b = &without.at[i];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->at, b->at);
            assert_int_equal(a->bytes, b->bytes);
            assert_memory_equal(a->size, b->size, a->n_dims * sizeof a->size[0]);
            assert_memory_equal(a->offset, b->offset, a->n_dims * sizeof a->offset[0]);
        }
        arena_free(arena);
    }
}

/* Runs the plan in a poisoned arena, and compares it with one rank without padding. */
static void check_run(const Tiny *t)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Tiny one = tiny_one_rank(t);
    const Plan *plan = plan_of(t, true, arena), *reference = plan_of(&one, true, arena);
    const DataSource *data = data_synthetic(7, t->vocab, 0.1, arena);
    BackendOptions options = {.order_seed = 1, .poison = true};
    VerifyResult result = {.n_tensors = 0};
    const bool same = exec_verify(plan, reference, data, &options, 1e-10, arena, &result, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    assert_string_equal(str_text(&s), "");
    assert_true(same && result.n_tensors > 10);
    assert_int_equal(result.highest_touched, result.predicted_bytes);
    arena_free(arena);
}

static void padding_counts_nowhere(void **state)
{
    (void)state;
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        Tiny t = sizes(gpt2, VOCAB);
        check_run(&t);
        t.smoothing = 0.1, t.z_loss = 1e-3, t.clip = 0.01;
        check_run(&t);
        t.biases = true;
        check_run(&t);
        t.tile = 2;
        check_run(&t);
        t.compile = true;
        check_run(&t);
        t.dp_shard = 2;
        check_run(&t);
        t.groups = 2, t.tp = 2;
        check_run(&t);
        t.tp_options.loss_parallel = false;
        t.tile = 0;
        check_run(&t);
    }
}

/* ---- wrong plans ---- */

static Plan *padded_plan(Arena *arena)
{
    const Tiny t = sizes(true, VOCAB);
    return plan_of(&t, false, arena);
}

static void is_rejected(Plan *plan, Arena *arena, const char *says)
{
    Diag d = diag_in(arena);
    verify_plan(plan, VERIFY_all, false, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    if (!strstr(str_text(&s), says)) fail_msg("no \"%s\" in: %s", says, str_text(&s));
}

static void a_deal_too_short_for_its_indices_is_rejected(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = padded_plan(arena);
    DealId id = 1;
    while (!deal_is_padded(&plan->graph.deals, id)) id++;
    plan->graph.deals.deals.at[id].per_part = VOCAB - 1;
    is_rejected(plan, arena, "has fields that contradict each other or are out of range");
    plan->graph.deals.deals.at[id].per_part = PADDED - 1;
    is_rejected(plan, arena, "bytes, but its shape needs");
    arena_free(arena);
}

/* The planted fault: the logits' rows are shorter than the weight's, so the product would write
 * beyond them.
 */
static void arguments_with_different_padding_are_rejected(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = padded_plan(arena);
    Program *p = &plan->programs.at[0];
    Pc pc = 1;
    while (p->code.at[pc].op != OP_xent_max) pc++;
    Buffer *logits = &p->buffers.at[program_arg(p, &p->code.at[pc], 0)];
    Shape s = *plan_shape_at(plan, logits->shape);
    s.deal[2] = 0;
    logits->shape = plan_shape(plan, &s);
    logits->bytes = logits->bytes / PADDED * VOCAB;
    is_rejected(plan, arena, "has another division of index n");
    arena_free(arena);
}

/* A norm reads an index to its end, so it would count padding as data. */
static void padding_of_a_whole_index_is_rejected(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = sizes(true, VOCAB);
    t.dim = 40;
    Plan *plan = plan_of(&t, false, arena);
    const DealId deal = deal_padded(&plan->graph.deals, arena, t.dim, 1, (uint32_t)t.dim);
    for (ShapeId i = 1; i < plan->shapes.n; i++)
        for (int d = 0; d < plan->shapes.at[i].n_dims; d++)
            if (plan->shapes.at[i].dim[d] == t.dim) plan->shapes.at[i].deal[d] = deal;
    for (TensorId i = 1; i < plan->graph.tensors.n; i++)
        for (int d = 0; d < plan->graph.tensors.at[i].n_dims; d++)
            if (plan->graph.tensors.at[i].dim[d] == t.dim) plan->graph.tensors.at[i].deal[d] = deal;
    is_rejected(plan, arena, "padding in index D, which layernorm would read as data");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_head_are_aligned),
        cmocka_unit_test(padding_goes_to_the_last_part),
        cmocka_unit_test(an_aligned_vocabulary_is_not_padded),
        cmocka_unit_test(a_checkpoint_does_not_see_padding),
        cmocka_unit_test(padding_counts_nowhere),
        cmocka_unit_test(a_deal_too_short_for_its_indices_is_rejected),
        cmocka_unit_test(arguments_with_different_padding_are_rejected),
        cmocka_unit_test(padding_of_a_whole_index_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
