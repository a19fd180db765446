/* Plants classic silent bugs of factors, divisors and sums in good plans: in the loss, in gradients
 * and their norm, and in the update. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/plans/plans.h"
#include "tests/support/spoiled.h"

/* ---- the loss and gradients ---- */

static void a_loss_gradient_of_twice_the_scale_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_xent_loss_grad, STREAM_compute, PHASE_backward, 1);
    Attrs a = spoiled_attrs(&c, pc);
    a.scale *= 2;
    spoil_attrs(&c, pc, a);
    spoiled_rejected(&c, "verify-scale", "scales by");
}

static void a_graph_with_a_wrong_loss_scale_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.plan->step.global_tokens *= 2;
    c.plan->step.seq *= 2;
    spoiled_rejected(&c, "verify-scale", "1 / global tokens");
}

static void wrong_counts_of_a_step_are_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    c.plan->step.global_tokens *= 2;
    spoiled_rejected(&c, "verify-structure", "tokens");
    c = spoiled_sharded();
    c.plan->step.n_microbatches--;
    spoiled_rejected(&c, "verify-structure", "micro-batches of");
    c = spoiled_sharded();
    c.plan->graph.info.n_params = 5;
    spoiled_rejected(&c, "verify-structure", "parameters");
}

static void accumulation_that_forgets_a_micro_batch_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_pass, STREAM_compute, PHASE_backward, 1);
    while (!spoiled_attrs(&c, pc).accumulate || !c.p->code.at[pc].unit) pc++;
    spoil(&c, MUTATE_accumulate, pc, 0);
    spoiled_rejected(&c, "verify-scale",
                     "is not its gradient of this step: micro-batch 0 is missing");
}

static void a_contribution_that_overwrites_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_replicated();
    Pc pc = spoiled_find(&c, OP_linear_d1, STREAM_compute, PHASE_backward, 2);
    assert_true(spoiled_attrs(&c, pc).accumulate);
    spoil(&c, MUTATE_accumulate, pc, 0);
    spoiled_rejected(&c, "verify-scale", "is not its gradient of this step");
}

static void a_wrong_number_of_tokens_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    StepInfo *s = &c.plan->step;
    const double was = s->global_tokens;
    /* The graph has twice the sequences, and the loss is scaled for them. */
    s->global_tokens = 2 * was;
    s->global_batch *= 2, s->micro_batch *= 2;
    for (AttrsId i = 1; i < c.plan->graph.attrs.n; i++) {
        Attrs *a = &c.plan->graph.attrs.at[i];
        if (a->scale == 1 / was)
            a->scale /= 2;
        else if (a->scale == was)
            a->scale *= 2;
    }
    spoiled_rejected(&c, "verify-scale", "tokens are not the");
}

/* ---- the gradients' norm ---- */

static void a_norm_that_counts_twice_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_sumsq, STREAM_compute, PHASE_update, 2), next = pc + 1;
    while (c.p->code.at[next].op != OP_sumsq || c.p->code.at[next].unit != c.p->code.at[pc].unit)
        next++;
    Attrs a = spoiled_attrs(&c, next);
    a.lo = spoiled_attrs(&c, pc).lo;
    spoil_attrs(&c, next, a);
    spoiled_rejected(&c, "verify-scale", "must be summed over dp_shard,tp");
}

/* Lets the instruction read elements [from, to) of its buffer through a separate buffer. */
static void read_a_part(Spoiled *c, Pc pc, uint64_t from, uint64_t to)
{
    Instr *in = &c->p->code.at[pc];
    BufferId *arg = &c->p->args.at[in->args.first];
    const Buffer of = c->p->buffers.at[*arg];
    Shape s = *plan_shape_at(c->plan, of.shape);
    assert_int_equal(s.n_dims, 1);
    s.dim[0] = (int64_t)(to - from);
    const BufferId view = plans_view(c->plan, c->p, *arg, &s, from * dtype_bytes(of.dtype));
    Buffer *at = &c->p->buffers.at[view];
    at->unit = of.unit;
    at->first = at->last = pc;
    *arg = view;
    Attrs a = spoiled_attrs(c, pc);
    a.lo -= (int64_t)from, a.hi -= (int64_t)from;
    spoil_attrs(c, pc, a);
}

/* Each term of the norm may read its elements through a separate buffer, but not without the first
 * element. */
static void a_norm_that_misses_an_element_is_rejected(void **state)
{
    (void)state;
    uint32_t n = 0;
    Spoiled all = spoiled_replicated();
    for (Pc pc = 1; pc < all.p->code.n; pc++) {
        if (all.p->code.at[pc].op != OP_sumsq) continue;
        const Attrs a = spoiled_attrs(&all, pc);
        Spoiled c = spoiled_replicated();
        read_a_part(&c, pc, (uint64_t)a.lo, (uint64_t)a.hi);
        spoiled_accepted(&c);
        c = spoiled_replicated();
        read_a_part(&c, pc, (uint64_t)a.lo + 1, (uint64_t)a.hi);
        spoiled_rejected(&c, "verify-layout", "holds another value");
        n++;
    }
    assert_true(n > 2);
    arena_free(all.arena);
}

static void a_norm_over_replicas_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_replicated();
    Pc pc = spoiled_find(&c, OP_all_reduce, STREAM_dp_reduce, PHASE_update, 2);
    while (c.p->code.at[pc].axes != mesh_axes(&c.plan->mesh, AXIS_tp)) pc++;
    c.p->code.at[pc].axes |= mesh_axes(&c.plan->mesh, AXIS_dp_replicate);
    spoiled_rejected(&c, "verify-layout", "reduces a tensor that is no partial sum on its group");
}

static void a_norm_of_one_rank_is_rejected(void **state)
{
    (void)state;
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_all_reduce, STREAM_dp_reduce, PHASE_update, 2);
    spoil(&c, MUTATE_delete, pc + 1, 0);
    spoiled_rejected(&c, "verify-layout", "a partial value on dp_");
}

/* ---- the update ---- */

static Attrs with(Attrs a, double beta1, double beta2, double eps, double weight_decay)
{
    a.beta1 = beta1, a.beta2 = beta2, a.eps = eps, a.weight_decay = weight_decay;
    return a;
}

static void set_all_updates(Spoiled *c, Attrs a)
{
    for (Pc pc = 1; pc < c->p->code.n; pc++)
        if (op_info(c->p->code.at[pc].op)->flags & OP_UPDATES) spoil_attrs(c, pc, a);
}

/* All updates have a rule that no optimizer has, or one unit has another rule. */
static void wrong_attributes_of_optimizers_are_rejected(void **state)
{
    (void)state;
    const double nan = strtod("nan", NULL), inf = strtod("inf", NULL);
    const struct {
        Attrs a;
        const char *text;
    } rows[] = {
        {with((Attrs){0}, 1.8, 0.9, 1e-8, 0), "outside of [0, 1)"},
        {with((Attrs){0}, 0.9, -3, 1e-8, 0), "outside of [0, 1)"},
        {with((Attrs){0}, 0.9, 1, 1e-8, 0), "outside of [0, 1)"},
        {with((Attrs){0}, nan, 0.9, 1e-8, 0), "outside of [0, 1)"},
        {with((Attrs){0}, 0.9, 0.9, -1e-8, 0), "has an eps"},
        {with((Attrs){0}, 0.9, 0.9, inf, 0), "has an eps"},
        {with((Attrs){0}, 0.9, 0.9, 1e-8, -0.1), "has a weight decay"},
        {with((Attrs){0}, 0.9, 0.9, 1e-8, nan), "has a weight decay"},
        {with((Attrs){.theta = 1e4}, 0.9, 0.9, 1e-8, 0), "another op"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Spoiled c = spoiled_sharded();
        set_all_updates(&c, rows[i].a);
        spoiled_rejected(&c, "verify-scale", rows[i].text);
    }
    for (int k = 0; k < 4; k++) {
        Spoiled c = spoiled_sharded();
        Pc pc = spoiled_find(&c, OP_adamw, STREAM_compute, PHASE_update, 2);
        Attrs a = spoiled_attrs(&c, pc);
        *(double *[]){&a.beta1, &a.beta2, &a.eps, &a.weight_decay}[k] += 0.01;
        spoil_attrs(&c, pc, a);
        spoiled_rejected(&c, "verify-scale", "another optimizer than the rest");
    }
    Spoiled c = spoiled_sharded();
    Pc pc = spoiled_find(&c, OP_clip_coef, STREAM_compute, PHASE_update, 2);
    Attrs a = spoiled_attrs(&c, pc);
    a.clip = -1;
    spoil_attrs(&c, pc, a);
    spoiled_rejected(&c, "verify-scale", "but the bound must be finite and not negative");
}

/* Each pipeline rank has a clip_coef and updates. All ranks must have the same attributes. */
static void unequal_updates_of_pipeline_ranks_are_rejected(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        Tiny t = tiny_default();
        t.pp = 2, t.microbatches = 2, t.clip = 0.5;
        Spoiled c = spoiled_of(&t, false);
        assert_int_equal(c.plan->programs.n, 2);
        c.p = &c.plan->programs.at[1];
        for (Pc pc = 1; pc < c.p->code.n; pc++) {
            OpKind op = c.p->code.at[pc].op;
            Attrs a = spoiled_attrs(&c, pc);
            if (op == OP_clip_coef && k == 0) a.clip = 0.25, spoil_attrs(&c, pc, a);
            if (op == OP_adamw && k == 1) a.beta2 = 0.5, spoil_attrs(&c, pc, a);
        }
        spoiled_rejected(&c, "verify-scale",
                         k ? "another optimizer" : "clips at 0.25, but other programs clip at 0.5");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_gradient_of_twice_the_scale_is_rejected),
        cmocka_unit_test(a_graph_with_a_wrong_loss_scale_is_rejected),
        cmocka_unit_test(wrong_counts_of_a_step_are_rejected),
        cmocka_unit_test(accumulation_that_forgets_a_micro_batch_is_rejected),
        cmocka_unit_test(a_contribution_that_overwrites_is_rejected),
        cmocka_unit_test(a_wrong_number_of_tokens_is_rejected),
        cmocka_unit_test(a_norm_that_counts_twice_is_rejected),
        cmocka_unit_test(a_norm_that_misses_an_element_is_rejected),
        cmocka_unit_test(a_norm_over_replicas_is_rejected),
        cmocka_unit_test(a_norm_of_one_rank_is_rejected),
        cmocka_unit_test(wrong_attributes_of_optimizers_are_rejected),
        cmocka_unit_test(unequal_updates_of_pipeline_ranks_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
