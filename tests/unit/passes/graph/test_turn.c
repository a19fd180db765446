/* Transposed copies of 8-bit operands. Every product reads operands that are contiguous along the
 * summed index. One copy serves all readers, and the backward pass reads the kept copies. Invalid
 * pairs of ops in a kernel are planted in good plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Tiny with(Float8Recipe recipe)
{
    Tiny t = tiny_default();
    t.layers = 1;
    t.use_float8 = true;
    t.float8.recipe = recipe;
    return t;
}

static Plan *made(const Tiny *t)
{
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    return plan;
}

static bool turns(OpKind op)
{
    return (op_info(op)->flags & OP_TURNS) != 0;
}

static bool quantises(OpKind op)
{
    return (op_info(op)->flags & OP_QUANTISES) != 0;
}

static uint32_t count_turns(const Graph *g)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) n += turns(g->nodes.at[id].op);
    return n;
}

static void operands_are_contiguous_along_the_summed_index(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        Tiny t = with(k & 1 ? FLOAT8_rowwise : FLOAT8_tensorwise);
        t.gpt2 = k & 2;
        if (k & 4) t.tp = t.dp_shard = 2, t.tp_options.sequence = true;
        const Plan *plan = made(&t);
        const Graph *g = &plan->graph;
        uint32_t n = 0;
        for (NodeId id = 1; id < g->nodes.n; id++) {
            const Node *node = &g->nodes.at[id];
            if (op_info(node->op)->scaling == SCALING_none) continue;
            assert_int_equal(op_info(node->op)->along, node->op);
            n++;
        }
        assert_true(n > 0 && count_turns(g) > 0);
    }
}

/* The forward pass of a block makes 7 copies of weights and 4 of inputs (one for q, k and v, and
 * one for w1 and w3). The gradients of 7 outputs have copies, too. */
static void one_copy_for_all_readers(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    assert_int_equal(count_turns(&made(&t)->graph), 7 + 4 + 7);
    t = with(FLOAT8_rowwise); /* the backward pass uses other forms of the inputs */
    assert_int_equal(count_turns(&made(&t)->graph), 7 + 4 + 7);
    t.tp = t.dp_shard = 2;
    assert_int_equal(count_turns(&made(&t)->graph), 7 + 4 + 7);
}

/* A transposed copy of a tensor that the forward pass quantises is made in the same kernel, and
 * kept instead of the tensor. The untransposed form ends with the forward products. */
static void transposed_copies_are_made_and_kept_with_their_tensor(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    const Plan *plan = made(&t);
    const Program *p = &plan->programs.at[0];
    uint32_t n_pairs = 0, n_kept = 0, n_copies = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!turns(in->op)) continue;
        const Buffer *from = &p->buffers.at[program_arg(p, in, 0)];
        const Buffer *to = &p->buffers.at[program_arg(p, in, 1)];
        n_pairs += in->fuse && p->code.at[pc - 1].fuse == in->fuse && quantises(in[-1].op);
        n_copies++;
        if (in->phase != PHASE_forward) continue;
        assert_int_equal(p->code.at[from->last].phase, PHASE_forward);
        n_kept += p->code.at[to->last].phase == PHASE_backward;
    }
    assert_int_equal(n_copies, 7 + 4 + 7);
    assert_int_equal(n_pairs, n_copies);
    assert_int_equal(n_kept, 4);
}

/* A recomputed tensor is transposed only when it is recomputed. */
static void recomputed_tensors_are_transposed_again(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    t.ac = AC_full;
    const Program *p = &made(&t)->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!turns(in->op)) continue;
        const Buffer *to = &p->buffers.at[program_arg(p, in, 1)];
        assert_true(to->last > pc);
        assert_int_equal(p->code.at[to->last].phase == PHASE_forward, in->phase == PHASE_forward);
        n += in->phase != PHASE_forward;
    }
    /* Weights that the forward pass reads again, inputs and gradients are transposed. The outputs
     * of wo and w2 are not needed. */
    assert_true(n >= 4 + 7 && n <= 7 + 4 + 7);
}

/* If sequence parallelism gathers a tensor for the backward pass, a rank keeps its part, as it does
 * without copies. The tensor is transposed after the gather. */
static void gathered_tensors_are_transposed_after_the_gather(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    t.tp = 2, t.tp_options.sequence = true;
    const Plan *plan = made(&t);
    const Graph *g = &plan->graph;
    uint32_t n_late = 0, n_apart = 0;
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (!turns(n->op)) continue;
        n_late += g->tensors.at[n->in[0]].producer <= g->n_forward;
        n_apart += g->tensors.at[n->in[0]].producer + 1 != id;
    }
    /* The backward pass transposes two tensors of the forward pass: the input of wq, wk and wv, and
     * the input of w1 and w3. */
    assert_int_equal(n_late, 2);
    /* These two, and the gradients of the outputs of wo and w2, are not transposed where they are
     * made. */
    assert_int_equal(n_apart, 2 + 2);
}

typedef struct Case {
    Plan *plan;
    Program *p;
    Diag d;
    Pc pair; /* the op that quantises; the copy is the next op */
} Case;

static Case pair_of(const Tiny *t)
{
    Case c = {mutate_copy(made(t), arena), NULL, diag_in(arena), 0};
    c.p = &c.plan->programs.at[0];
    while (++c.pair + 1 < c.p->code.n)
        if (c.p->code.at[c.pair].fuse && turns(c.p->code.at[c.pair + 1].op)) return c;
    fail_msg("the plan has no pair of ops in one kernel");
    return c;
}

static void rejected(Case *c, const char *text)
{
    assert_false(verify_plan(c->plan, VERIFY_all, false, &c->d));
    for (uint32_t i = 0; i < c->d.items.n; i++)
        if (strstr(c->d.items.at[i].text, text)) return;
    Str s = str_in(arena);
    diag_print(&c->d, &s);
    fail_msg("no '%s' in:\n%s", text, str_text(&s));
}

static void invalid_pairs_in_a_kernel_are_rejected(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    Case c = pair_of(&t); /* the kernel lacks the op that quantises */
    c.p->code.at[c.pair].fuse = 0;
    rejected(&c, "no earlier instruction of the kernel quantises");
    c = pair_of(&t); /* the kernel also contains the next instruction */
    c.p->code.at[c.pair + 2].fuse = c.p->code.at[c.pair].fuse;
    rejected(&c, "follows a transposed copy");
    /* The copy is of another tensor with the same shape, which was quantised earlier. */
    c = pair_of(&t);
    c.p->args.at[c.p->code.at[c.pair + 1].args.first] = program_arg(c.p, &c.p->code.at[c.pair], 0);
    rejected(&c, "must transpose the tensor that kernel");
    /* The kernel also contains the instruction before, so the copy is the third part. */
    c = pair_of(&t);
    for (;; c.pair++) {
        assert_true(c.pair + 1 < c.p->code.n);
        const Instr *first = &c.p->code.at[c.pair - 1], *pair = first + 1;
        const bool plain = first->stream == STREAM_compute && !first->fuse && !pair->after.n &&
                           op_info(first->op)->class_ != OP_CLASS_contract;
        if (plain && pair->fuse && turns(c.p->code.at[c.pair + 1].op)) break;
    }
    c.p->code.at[c.pair - 1].fuse = c.p->code.at[c.pair].fuse;
    rejected(&c, "no earlier instruction of the kernel quantises");
}

/* The product reads the operand itself although its form needs the transposed copy, or it reads the
 * copy of another operand. */
static void operands_that_are_not_their_copies_are_rejected(void **state)
{
    (void)state;
    Tiny t = with(FLOAT8_tensorwise);
    t.hidden = t.dim; /* so that a weight and its transpose have the same shape */
    Case c = {mutate_copy(made(&t), arena), NULL, diag_in(arena), 0};
    c.p = &c.plan->programs.at[0];
    for (Pc pc = c.p->code.n; pc-- > 1 && !c.pair;) {
        const Instr *in = &c.p->code.at[pc];
        if (!turns(in->op)) continue;
        for (Pc k = pc + 1; k < c.p->code.n && !c.pair; k++)
            if (c.p->code.at[k].op == OP_linear_tensorwise_along &&
                program_arg(c.p, &c.p->code.at[k], 1) == program_arg(c.p, in, 1)) {
                c.p->args.at[c.p->code.at[k].args.first + 1] = program_arg(c.p, in, 0);
                c.pair = k;
            }
    }
    assert_true(c.pair);
    rejected(&c, "input 1 should be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(operands_are_contiguous_along_the_summed_index,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(one_copy_for_all_readers, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(transposed_copies_are_made_and_kept_with_their_tensor,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(recomputed_tensors_are_transposed_again, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(gathered_tensors_are_transposed_after_the_gather,
                                        test_arena_setup, test_arena_teardown),
        cmocka_unit_test_setup_teardown(invalid_pairs_in_a_kernel_are_rejected, test_arena_setup,
                                        test_arena_teardown),
        cmocka_unit_test_setup_teardown(operands_that_are_not_their_copies_are_rejected,
                                        test_arena_setup, test_arena_teardown),
    };
    return cmocka_run_group_tests_name("turn", tests, NULL, NULL);
}
