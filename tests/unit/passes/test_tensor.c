/* Tensor parallelism: biases, KV heads on several ranks, and synchronised replicas. Each mistake
 * that the proofs must report is planted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/str.h"
#include "planner/verify/verify.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/suspect.h"

static Tiny tensor_parallel(uint32_t tp, bool sequence)
{
    Tiny t = tiny_default();
    t.tp = tp;
    t.tp_options.sequence = sequence;
    return t;
}

static const Attrs *attrs_of(const Suspect *c, Pc pc)
{
    return graph_attrs_at(&c->plan->graph, c->p->code.at[pc].attrs);
}

/* Returns the first all_reduce by `reduce` over tp of a unit's gradient, or 0 if there is none. */
static Pc gradient_reduction(const Suspect *c, Reduce reduce)
{
    AxisSet tp = mesh_axes(&c->plan->mesh, AXIS_tp);
    for (Pc pc = 1; pc < c->p->code.n; pc++) {
        const Instr *in = &c->p->code.at[pc];
        if (in->op == OP_all_reduce && in->unit && in->axes == tp &&
            attrs_of(c, pc)->reduce == reduce)
            return pc;
    }
    return 0;
}

/* ---- biases ---- */

static Pc bias_of_row(const Suspect *c)
{
    for (Pc pc = 1; pc < c->p->code.n; pc++) {
        const Instr *in = &c->p->code.at[pc];
        if (in->op != OP_bias) continue;
        const Node *n = &c->plan->graph.nodes.at[in->origin];
        const Tensor *x = &c->plan->graph.tensors.at[n->in[0]];
        if (c->plan->graph.nodes.at[x->producer].op == OP_linear_o) return pc;
    }
    fail_msg("no bias of a row linear");
    return 0;
}

static void biases_are_split_with_columns_and_whole_with_rows(void **state)
{
    (void)state;
    Tiny t = tensor_parallel(2, false);
    t.biases = true;
    Suspect c = suspect_of(&t);
    AxisSet tp = mesh_axes(&c.plan->mesh, AXIS_tp);
    uint32_t n_cut = 0, n_whole = 0;
    for (TensorId id = 1; id < c.plan->graph.tensors.n; id++) {
        const Tensor *at = &c.plan->graph.tensors.at[id];
        if (at->role != ROLE_param || !strstr(at->name, ".bias")) continue;
        bool row = strstr(at->name, "wo.bias") || strstr(at->name, "w2.bias");
        assert_int_equal(layout_axes_split(&at->use, row ? -1 : 0), row ? 0 : tp);
        n_cut += !row;
        n_whole += row;
    }
    assert_int_equal(n_cut, t.layers * 5);
    assert_int_equal(n_whole, t.layers * 2);
    assert_string_equal(suspect_verdict(&c), "");
    arena_free(c.arena);
}

/* If each rank adds the bias to its part of the sum, the bias is added tp times. */
static void a_row_bias_inside_the_partial_sum_is_reported(void **state)
{
    (void)state;
    Tiny t = tensor_parallel(2, false);
    t.biases = true;
    Suspect c = suspect_of(&t);
    Instr *bias = &c.p->code.at[bias_of_row(&c)];
    BufferId *x = &c.p->args.at[bias->args.first];
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        if (in->op != OP_all_reduce || program_arg(c.p, in, 1) != *x) continue;
        *x = program_arg(c.p, in, 0);
        break;
    }
    suspect_is_refused(&c, "is a partial sum, but is read as the whole sum, on axis: tp");
    arena_free(c.arena);
}

/* ---- KV heads on several ranks ---- */

static void shared_kv_heads_refine_tp(void **state)
{
    (void)state;
    static const struct {
        uint32_t tp;
        int64_t groups, repeat;
        uint32_t outer, inner; /* the sizes of tp's parts; inner 0: tp stays one axis */
    } cases[] = {{4, 2, 2, 2, 2}, {8, 2, 4, 2, 4}, {8, 4, 2, 4, 2}, {4, 1, 4, 4, 0},
                 {2, 4, 1, 2, 0}, {4, 6, 2, 2, 2}, {3, 6, 1, 3, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tiny t = tensor_parallel(cases[i].tp, cases[i].tp != 3);
        t.groups = cases[i].groups, t.repeat = cases[i].repeat;
        t.hidden = 24, t.seq = 8;
        Suspect c = suspect_of(&t);
        const Mesh *mesh = &c.plan->mesh;
        assert_int_equal(mesh->axis[0].size, cases[i].outer);
        assert_int_equal(mesh->n_axes, cases[i].inner ? 2 : 1);
        if (cases[i].inner) assert_int_equal(mesh->axis[1].size, cases[i].inner);
        assert_string_equal(suspect_verdict(&c), "");
        arena_free(c.arena);
    }
}

/* The gradient of K is a partial sum over the ranks with the same K, so its sum cannot be left
 * out. */
static void the_sum_of_shared_kv_gradients_cannot_be_left_out(void **state)
{
    (void)state;
    Tiny t = tensor_parallel(4, true);
    t.groups = 2, t.repeat = 2;
    Suspect c = suspect_of(&t);
    AxisSet inner = 2;
    uint32_t n = 0;
    for (Pc pc = 1; pc < c.p->code.n; pc++) {
        const Instr *in = &c.p->code.at[pc];
        if (in->op != OP_all_reduce || in->axes != inner) continue;
        if (n++) continue;
        Suspect broken = c;
        broken.plan = mutate(c.plan, (Mutation){MUTATE_delete, 0, pc, 0}, c.arena);
        broken.p = &broken.plan->programs.at[0];
        assert_string_not_equal(suspect_verdict(&broken), "");
    }
    assert_int_equal(n, 2 * t.layers); /* each layer has one for K and one for V */
    arena_free(c.arena);
}

/* ---- replicas whose gradients are synchronised ---- */

static Suspect pinned(void)
{
    Tiny t = tensor_parallel(2, true);
    t.tp_options.sync_replicated_gradients = true;
    return suspect_of(&t);
}

static void synchronised_replicas_are_accepted_only_on_request(void **state)
{
    (void)state;
    Suspect c = pinned();
    assert_true(gradient_reduction(&c, REDUCE_mean) > gradient_reduction(&c, REDUCE_sum));
    assert_string_equal(suspect_verdict(&c), "");
    Tiny t = tensor_parallel(2, true);
    Suspect without = suspect_of(&t);
    assert_int_equal(gradient_reduction(&without, REDUCE_mean), 0);
    arena_free(without.arena);
    arena_free(c.arena);
}

static void a_mean_of_replicas_does_not_replace_the_sum(void **state)
{
    (void)state;
    Suspect c = pinned();
    Pc sum = gradient_reduction(&c, REDUCE_sum);
    assert_true(sum > 0);
    Suspect dropped = c;
    dropped.plan = mutate(c.plan, (Mutation){MUTATE_delete, 0, sum, 0}, c.arena);
    dropped.p = &dropped.plan->programs.at[0];
    suspect_is_refused(&dropped, "a partial value on tp");
    /* The plan is also rejected if the sum becomes a mean. */
    Attrs a = *attrs_of(&c, sum);
    a.reduce = REDUCE_mean;
    c.p->code.at[sum].attrs = (AttrsId)list_push(c.arena, &c.plan->graph.attrs, a);
    suspect_is_refused(&c, "averages partial sums, but their sum is needed");
    arena_free(c.arena);
}

/* A mean over parts of a parameter that tp splits would mix different elements. */
static void a_mean_of_split_parameters_is_reported(void **state)
{
    (void)state;
    Suspect c = pinned();
    Pc mean = gradient_reduction(&c, REDUCE_mean);
    const Unit *unit = &c.plan->graph.units.at[c.p->code.at[mean].unit];
    const Tensor *cut = &c.plan->graph.tensors.at[unit->params.at[0]];
    assert_true(layout_axes_split(&cut->use, -1) != 0);
    for (uint32_t i = 0; i < 2; i++) {
        Buffer *b = &c.p->buffers.at[program_arg(c.p, &c.p->code.at[mean], i)];
        Shape s = *plan_shape_at(c.plan, b->shape);
        s.dim[0] = (int64_t)unit->elements;
        c.plan->arena = c.arena;
        c.plan->shapes_index = (Intern){0};
        b->shape = (ShapeId)list_push(c.arena, &c.plan->shapes, s);
        b->offset = 0;
        b->bytes = unit->elements * dtype_bytes(b->dtype);
    }
    suspect_is_refused(&c, "averages parameters, but the ranks hold different parts of them");
    arena_free(c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(biases_are_split_with_columns_and_whole_with_rows),
        cmocka_unit_test(a_row_bias_inside_the_partial_sum_is_reported),
        cmocka_unit_test(shared_kv_heads_refine_tp),
        cmocka_unit_test(the_sum_of_shared_kv_gradients_cannot_be_left_out),
        cmocka_unit_test(synchronised_replicas_are_accepted_only_on_request),
        cmocka_unit_test(a_mean_of_replicas_does_not_replace_the_sum),
        cmocka_unit_test(a_mean_of_split_parameters_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
