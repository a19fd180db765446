/* Plants bugs in the random or non-linear parts of a good plan's loss. States the proof that must
 * report each bug, and its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/support/spoiled.h"

/* Returns a plan for 2 data ranks x 2 tp ranks with two micro-batches, full recomputation, and
 * dropout in four kinds of places. */
static Spoiled plan_with(Denominator denominator)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    t.microbatches = 2;
    t.micro = 2;
    t.ac = AC_full;
    t.dropout = 0.25;
    t.smoothing = 0.1;
    t.denominator = denominator;
    return spoiled_of(&t, false);
}

static Spoiled dropped(void)
{
    return plan_with(DENOMINATOR_kept);
}

static Pc find(const Spoiled *c, OpKind op, Phase phase, uint32_t mb)
{
    for (Pc pc = 1; pc < c->p->code.n; pc++) {
        const Instr *in = &c->p->code.at[pc];
        if (in->op == op && in->phase == phase && in->microbatch == mb) return pc;
    }
    fail_msg("the plan has no such instruction");
    return 0;
}

static NodeId find_node(const Spoiled *c, OpKind op, bool backward)
{
    const Graph *g = &c->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].op == op && (g->nodes.at[id].forward != 0) == backward) return id;
    fail_msg("the graph has no such node");
    return 0;
}

static AttrsId edited(Spoiled *c, AttrsId from, int64_t site, double scale)
{
    Attrs a = *graph_attrs_at(&c->plan->graph, from);
    if (site) a.site = site;
    if (scale > 0) a.scale = scale;
    return (AttrsId)list_push(c->arena, &c->plan->graph.attrs, a);
}

/* ---- random numbers ---- */

static void good_plans_are_accepted(void **state)
{
    (void)state;
    for (Denominator k = DENOMINATOR_kept; k < DENOMINATOR_COUNT; k++) {
        Spoiled c = plan_with(k);
        assert_true(verify_plan(c.plan, VERIFY_all, false, &c.d));
        arena_free(c.arena);
    }
}

/* The random generator continues from draw to draw, so recomputation gets another mask. */
static void recomputation_with_a_new_mask_is_rejected(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_dropout, OP_attention};
    for (size_t i = 0; i < 2; i++) {
        Spoiled c = dropped();
        Instr *in = &c.p->code.at[find(&c, ops[i], PHASE_recompute, 1)];
        in->attrs = edited(&c, in->attrs, 999, 0);
        spoiled_rejected(&c, "verify-purity", "at site 999");
    }
}

static void a_gradient_with_a_new_mask_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    Instr *in = &c.p->code.at[find(&c, OP_attention_grad, PHASE_backward, 0)];
    in->attrs = edited(&c, in->attrs, 999, 0);
    spoiled_rejected(&c, "verify-purity", "at site 999");
    c = dropped();
    Node *n = &c.plan->graph.nodes.at[find_node(&c, OP_dropout, true)];
    n->attrs = edited(&c, n->attrs, 999, 0);
    spoiled_rejected(&c, "verify-purity", "but its forward node draws with p");
}

/* The node of the gradient draws another mask, because it names no forward node, or a wrong one. */
static void a_gradient_without_its_forward_node_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    Node *n = &c.plan->graph.nodes.at[find_node(&c, OP_dropout, true)];
    n->attrs = edited(&c, n->attrs, (int64_t)c.plan->graph.nodes.n - 1, 0);
    n->forward = 0;
    spoiled_rejected(&c, "verify-purity", "repeats the random numbers of node 0");
    c = dropped();
    n = &c.plan->graph.nodes.at[find_node(&c, OP_attention_grad, true)];
    n->forward = 0;
    spoiled_rejected(&c, "verify-purity", "repeats the random numbers of node 0");
    c = dropped();
    NodeId other = find_node(&c, OP_dropout, false);
    n = &c.plan->graph.nodes.at[find_node(&c, OP_dropout, true)];
    assert_int_not_equal(other, n->forward);
    n->forward = other;
    n->attrs = c.plan->graph.nodes.at[other].attrs;
    spoiled_rejected(&c, "verify-purity", "repeats the random numbers of node");
}

static void a_parameter_without_initialiser_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    TensorId t = 1;
    while (c.plan->graph.tensors.at[t].role != ROLE_param) t++;
    c.plan->graph.tensors.at[t].init.kind = INIT_none;
    spoiled_rejected(&c, "verify-coverage", "has no initialiser");
}

/* The keys of random numbers come from a counter that does not depend on the micro-batch. */
static void a_random_key_of_another_micro_batch_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    c.p->code.at[find(&c, OP_dropout, PHASE_forward, 1)].microbatch = 0;
    spoiled_rejected(&c, "verify-purity",
                     "random numbers of micro-batch 0, but its values belong to micro-batch 1");
}

static void a_random_key_without_its_site_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    Node *n = &c.plan->graph.nodes.at[find_node(&c, OP_attention, false)];
    n->attrs = edited(&c, n->attrs, 1, 0);
    spoiled_rejected(&c, "verify-purity", "draw the same random numbers");
    c = dropped();
    n = &c.plan->graph.nodes.at[find_node(&c, OP_dropout, false)];
    Attrs a = *graph_attrs_at(&c.plan->graph, n->attrs);
    a.site = 0;
    n->attrs = (AttrsId)list_push(c.arena, &c.plan->graph.attrs, a);
    spoiled_rejected(&c, "verify-purity", "needs a site of its own");
}

static void dropout_in_an_evaluation_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    c.p->purpose = PURPOSE_eval;
    spoiled_rejected(&c, "verify-purity", "an evaluation must not use dropout");
}

/* ---- the divisor of the loss ---- */

static Pc sum_of(const Spoiled *c, BufferId root)
{
    uint64_t offset;
    for (Pc pc = 1; pc < c->p->code.n; pc++) {
        const Instr *in = &c->p->code.at[pc];
        if (in->op == OP_all_reduce &&
            program_root(c->p, program_arg(c->p, in, 1), &offset) == root)
            return pc;
    }
    fail_msg("no instruction sums the value");
    return 0;
}

static void a_count_of_one_rank_is_rejected(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        Spoiled c = dropped();
        const Instr *in = &c.p->code.at[find(&c, OP_step_mean, PHASE_update, 1)];
        spoil(&c, MUTATE_delete, sum_of(&c, program_arg(c.p, in, k)), 0);
        spoiled_rejected(&c, "verify-layout", "a partial value on");
    }
}

static void a_count_of_one_micro_batch_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    spoil(&c, MUTATE_accumulate, find(&c, OP_xent_loss, PHASE_forward, 1), 1);
    spoiled_rejected(&c, "verify-scale", "is not the number of counted tokens of the step");
}

static void a_factor_with_another_scale_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    spoil(&c, MUTATE_rescale, find(&c, OP_step_mean, PHASE_update, 1), 0);
    spoiled_rejected(&c, "verify-scale", "but the product must be 1");
}

static void a_missing_factor_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    const Instr *mean = &c.p->code.at[find(&c, OP_step_mean, PHASE_update, 1)];
    const Instr *clip = &c.p->code.at[find(&c, OP_clip_coef, PHASE_update, 1)];
    /* the loss instead of the factor */
    c.p->args.at[clip->args.first + 1] = program_arg(c.p, mean, 2);
    spoiled_rejected(&c, "verify-scale", "must be the factor");
}

static void another_denominator_is_rejected(void **state)
{
    (void)state;
    Spoiled c = dropped();
    c.plan->step.denominator = DENOMINATOR_all;
    spoiled_rejected(&c, "verify-scale", "is not divided by the count that `step` states");
    c = plan_with(DENOMINATOR_microbatch_mean);
    c.plan->step.group = 1;
    spoiled_rejected(&c, "verify-scale",
                     "averaged over groups of 2 sequences, but `step` states 1");
    c = plan_with(DENOMINATOR_microbatch_mean); /* a rank's 2 sequences are half a group */
    c.plan->step.group = 4;
    for (AttrsId i = 1; i < c.plan->graph.attrs.n; i++) {
        Attrs *a = &c.plan->graph.attrs.at[i];
        if (a->group) a->group = 4, a->scale *= 2;
    }
    spoiled_rejected(&c, "verify-scale", "averages over groups of 4 sequences, but a rank has 2");
}

/* Every rank has whole logits, but the loss still sums over tp, so it grows by log tp. */
static void gathered_logits_in_a_split_loss_are_rejected(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2;
    t.tp_options.loss_parallel = false;
    Spoiled c = {.arena = arena_new()};
    c.d = diag_in(c.arena);
    const Plan *plan = tiny_plan(&t, false, c.arena, &c.d);
    assert_non_null(plan);
    c.plan = mutate_copy(plan, c.arena);
    c.p = &c.plan->programs.at[0];
    const Instr *in = &c.p->code.at[find(&c, OP_xent_sumexp, PHASE_forward, 0)];
    Buffer *total = &c.p->buffers.at[program_arg(c.p, in, 2)];
    Shape s = *plan_shape_at(c.plan, total->shape);
    s.layout.on[0] = PARTIAL_SUM;
    total->shape = plan_shape(c.plan, &s);
    spoiled_rejected(&c, "verify-layout", "must be whole on axis: tp");
}

/* Every stage reports the loss, so each must have it. */
static void a_stage_without_the_loss_is_rejected(void **state)
{
    (void)state;
    for (uint32_t stage = 0; stage < 2; stage++) {
        Tiny t = tiny_default();
        t.pp = t.microbatches = 2;
        Spoiled c = spoiled_of(&t, false);
        assert_true(c.plan->programs.n >= 2);
        Program *p = &c.plan->programs.at[stage];
        uint32_t n = 0;
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (p->buffers.at[b].tensor == c.plan->graph.loss && ++n)
                p->buffers.at[b].tensor = c.plan->graph.loss - 1;
        assert_true(n > 0);
        spoiled_rejected(&c, "verify-coverage", "no buffer holds the loss of the step");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plans_are_accepted),
        cmocka_unit_test(recomputation_with_a_new_mask_is_rejected),
        cmocka_unit_test(a_gradient_with_a_new_mask_is_rejected),
        cmocka_unit_test(a_gradient_without_its_forward_node_is_rejected),
        cmocka_unit_test(a_parameter_without_initialiser_is_rejected),
        cmocka_unit_test(a_random_key_of_another_micro_batch_is_rejected),
        cmocka_unit_test(a_random_key_without_its_site_is_rejected),
        cmocka_unit_test(dropout_in_an_evaluation_is_rejected),
        cmocka_unit_test(a_count_of_one_rank_is_rejected),
        cmocka_unit_test(a_count_of_one_micro_batch_is_rejected),
        cmocka_unit_test(a_factor_with_another_scale_is_rejected),
        cmocka_unit_test(a_missing_factor_is_rejected),
        cmocka_unit_test(another_denominator_is_rejected),
        cmocka_unit_test(a_stage_without_the_loss_is_rejected),
        cmocka_unit_test(gathered_logits_in_a_split_loss_are_rejected),
    };
    return cmocka_run_group_tests_name("verify_loss", tests, NULL, NULL);
}
