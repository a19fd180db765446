/* A program must have the dtypes of its graph. The tests give values of a plan with 8-bit and
 * 16-bit numbers another dtype. Each change must be reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/verify/verify.h"
#include "tests/support/spoiled.h"

static Spoiled low_precision(bool fp64)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    t.microbatches = 2;
    t.compute = DT_bf16;
    t.use_float8 = true;
    t.float8.skip_indivisible = true;
    t.float8.fsdp_gather = true;
    t.dim = t.hidden = 32;
    t.head_dim = 16;
    t.groups = 2;
    t.seq = 16;
    t.vocab = 32;
    return spoiled_of(&t, fp64);
}

static void rejects(Spoiled *s, const char *text)
{
    spoiled_rejected(s, "verify-dtype", text);
}

static uint32_t retype(Spoiled *c, DType from, DType to, Category category)
{
    uint32_t n = 0;
    for (BufferId b = 1; b < c->p->buffers.n; b++) {
        Buffer *at = &c->p->buffers.at[b];
        if (at->dtype != from || (category && at->category != category)) continue;
        at->dtype = to;
        n++;
    }
    return n;
}

static void good_plans_are_accepted(void **state)
{
    (void)state;
    Spoiled a = low_precision(false), b = low_precision(true);
    spoiled_accepted(&a);
    spoiled_accepted(&b);
}

/* All gradients are in e4m3 instead of e5m2. Both have the same size, but the graph scales them for
 * e5m2. */
static void gradients_in_the_other_8_bit_type_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    assert_true(retype(&c, DT_e5m2, DT_e4m3, CATEGORY_none) > 4);
    rejects(&c, "has dtype e4m3 in buffer");
}

static void the_other_16_bit_type_is_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    assert_true(retype(&c, DT_bf16, DT_f16, CATEGORY_none) > 20);
    rejects(&c, "the graph states bf16");
    c = low_precision(false);
    retype(&c, DT_bf16, DT_f16, CATEGORY_none);
    rejects(&c, "converts to f16 from f32, but the graph has no such conversion");
}

static void gradients_as_integers_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    assert_true(retype(&c, DT_f32, DT_i32, CATEGORY_gradient) > 2);
    spoiled_rejected(&c, "verify-structure", "has dtype i32, but must have real numbers");
}

/* The graph requests sums in bf16, but the program sums in f32, which gives another result. */
static void sums_in_another_dtype_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    Graph *g = &c.plan->graph;
    for (UnitId u = 1; u < g->units.n; u++) g->units.at[u].reduce_dtype = DT_bf16;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param) continue;
        at->reduce_dtype = DT_bf16;
        g->tensors.at[at->grad].dtype = DT_bf16;
    }
    rejects(&c, "has dtype f32 in buffer");
}

static void parameters_at_rest_in_another_dtype_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    Graph *g = &c.plan->graph;
    for (UnitId u = 1; u < g->units.n; u++) g->units.at[u].rest_dtype = DT_f64;
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].role == ROLE_param) g->tensors.at[t].rest_dtype = DT_f64;
    rejects(&c, "between steps, unit");
}

static TensorId first_param(const Spoiled *c)
{
    for (TensorId t = 1; t < c->plan->graph.tensors.n; t++)
        if (c->plan->graph.tensors.at[t].role == ROLE_param) return t;
    fail_msg("no parameter");
    return 0;
}

/* A parameter contradicts its unit, or a gradient contradicts its parameter. */
static void a_unit_with_another_dtype_than_its_parameter_is_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    Tensor *p = &c.plan->graph.tensors.at[first_param(&c)];
    p->reduce_dtype = DT_bf16;
    rejects(&c, "its unit");
    c = low_precision(false);
    p = &c.plan->graph.tensors.at[first_param(&c)];
    c.plan->graph.tensors.at[p->grad].dtype = DT_f16;
    rejects(&c, "but its sum has dtype f32");
}

static void moments_in_another_dtype_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(false);
    c.plan->graph.units.at[1].state_dtype = DT_bf16;
    rejects(&c, "the moments of unit");
    c = low_precision(false);
    BufferId b = 1;
    while (c.p->buffers.at[b].category != CATEGORY_optimizer) b++;
    c.p->buffers.at[b].dtype = DT_i32;
    spoiled_rejected(&c, "verify-structure", "has dtype i32, but must have real numbers");
}

/* One value of an fp64 plan stays in f32, so no common map gives all dtypes. */
static void fp64_plans_with_an_f32_value_are_rejected(void **state)
{
    (void)state;
    Spoiled c = low_precision(true);
    Pc pc = 1;
    while (pc < c.p->code.n && c.p->code.at[pc].op != OP_rmsnorm) pc++;
    BufferId b = program_arg(c.p, &c.p->code.at[pc], 3);
    c.p->buffers.at[b].dtype = DT_f32;
    c.p->buffers.at[b].bytes /= 2;
    rejects(&c, "has dtype f64 in buffer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plans_are_accepted),
        cmocka_unit_test(gradients_in_the_other_8_bit_type_are_rejected),
        cmocka_unit_test(the_other_16_bit_type_is_rejected),
        cmocka_unit_test(gradients_as_integers_are_rejected),
        cmocka_unit_test(sums_in_another_dtype_are_rejected),
        cmocka_unit_test(parameters_at_rest_in_another_dtype_are_rejected),
        cmocka_unit_test(a_unit_with_another_dtype_than_its_parameter_is_rejected),
        cmocka_unit_test(moments_in_another_dtype_are_rejected),
        cmocka_unit_test(fp64_plans_with_an_f32_value_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
