/* The recipe nvfp4 of float8{}: the ops that it adds to the graph, and planted faults that the
 * proofs must report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/passes/graph/float8.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

static Tiny in_pairs(void)
{
    Tiny t = tiny_default();
    t.dim = t.hidden = 64, t.groups = 2, t.head_dim = 32, t.seq = 64, t.microbatches = 2;
    t.layers = 1;
    t.use_float8 = true;
    t.float8.recipe = FLOAT8_nvfp4;
    t.float8.any_size = false;
    t.dp_shard = t.tp = 2;
    t.tp_options.sequence = true;
    return t;
}

static uint32_t count(const Plan *plan, OpKind op)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < plan->graph.nodes.n; id++) n += plan->graph.nodes.at[id].op == op;
    return n;
}

/* Returns the number of reductions of a maximum over ranks, for the loss and for scales. */
static uint32_t count_maxima(const Plan *plan)
{
    const Program *p = &plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        n += p->code.at[pc].op == OP_all_reduce &&
             graph_attrs_at(&plan->graph, p->code.at[pc].attrs)->reduce == REDUCE_max;
    return n;
}

/* Operands are 4-bit numbers in blocks of 16. Weights have square blocks. A tensor's largest
 * magnitude is found once, and reduced over all ranks that have a part of the tensor. */
static void operands_are_4_bit_numbers_in_blocks(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = in_pairs();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    const Graph *g = &plan->graph;
    assert_int_equal(count(plan, OP_quantise_pairs_tokens), 4 + 7);
    assert_int_equal(count(plan, OP_quantise_pairs_last), 4 + 7);
    assert_int_equal(count(plan, OP_quantise_squares_first), 6);
    assert_int_equal(count(plan, OP_quantise_squares_last), 6);
    assert_int_equal(count(plan, OP_quantise_squares_inner), 1); /* wo: [heads, features, dim] */
    assert_int_equal(count(plan, OP_quantise_squares_outer), 1);
    assert_int_equal(count(plan, OP_amax), 4 + 7 + 7); /* inputs, weights and gradients */
    uint32_t n = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *at = &g->nodes.at[id];
        if (!(op_info(at->op)->flags & OP_BLOCKS)) continue;
        assert_int_equal(graph_attrs_at(g, at->attrs)->group, 16);
        n += op_info(at->op)->scaling == SCALING_pairs;
        if (op_info(at->op)->scaling == SCALING_pairs) continue;
        const Tensor *x = &g->tensors.at[at->in[0]], *y = &g->tensors.at[at->out[0]],
                     *scales = &g->tensors.at[at->out[1]];
        int64_t numbers = 1, bytes = 1, blocks = 1;
        for (uint32_t k = 0; k < x->n_dims; k++) numbers *= x->dim[k], blocks *= scales->dim[k];
        for (uint32_t k = 0; k < y->n_dims; k++) bytes *= y->dim[k];
        assert_int_equal(y->dtype, DT_e2m1x2);
        assert_int_equal(scales->dtype, DT_e4m3);
        assert_true(2 * bytes == numbers && 16 * blocks == numbers);
    }
    assert_int_equal(n, 7 * 3);
    t.use_float8 = false;
    const Plan *plain = tiny_plan(&t, false, arena, &d);
    assert_non_null(plain);
    assert_true(count_maxima(plan) > count_maxima(plain));
}

/* ---- bugs ---- */

typedef struct Case {
    Plan *plan;
    Diag d;
} Case;

static Case planted(void)
{
    Diag d = diag_in(arena);
    Tiny t = in_pairs();
    const Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    return (Case){mutate_copy(plan, arena), diag_in(arena)};
}

static Node *first(Case *c, OpKind op)
{
    for (NodeId id = 1; id < c->plan->graph.nodes.n; id++)
        if (c->plan->graph.nodes.at[id].op == op) return &c->plan->graph.nodes.at[id];
    fail_msg("no %s", op_info(op)->name);
    return NULL;
}

static void rejected(Case *c, const char *rule, const char *text)
{
    assert_false(verify_plan(c->plan, VERIFY_all, false, &c->d));
    Str s = str_in(arena);
    diag_print(&c->d, &s);
    if (!strstr(str_text(&s), rule) || !strstr(str_text(&s), text))
        fail_msg("no [%s] ... %s in:\n%s", rule, text, str_text(&s));
}

static void set_attrs(Case *c, Node *n, double scale, int64_t group)
{
    Attrs attrs = *graph_attrs_at(&c->plan->graph, n->attrs);
    attrs.scale = scale, attrs.group = group;
    n->attrs = graph_attrs(&c->plan->graph, arena, &attrs);
}

static void scales_of_other_operands_are_rejected(void **state)
{
    (void)state;
    Case c = planted(); /* the scales come from the largest magnitude of another tensor */
    Node *n = first(&c, OP_quantise_pairs_last), *other = first(&c, OP_quantise_squares_first);
    n->in[1] = other->in[1];
    rejected(&c, "verify-scale", "is scaled by the largest magnitude of another tensor");
    c = planted();
    n = first(&c, OP_linear_pairs);
    const TensorId whole = n->in[4];
    n->in[4] = n->in[5], n->in[5] = whole;
    rejected(&c, "verify-scale", "multiplies with the largest magnitude of another operand");
    c = planted();
    set_attrs(&c, first(&c, OP_quantise_pairs_tokens), 6, 16);
    rejected(&c, "verify-scale", "does not use the whole range of its numbers and scales");
    c = planted();
    set_attrs(&c, first(&c, OP_linear_pairs), 1. / 2688 / 448, 16);
    rejected(&c, "verify-scale", "does not undo the scales of its operands");
    c = planted();
    n = first(&c, OP_quantise_pairs_last);
    c.plan->graph.tensors.at[n->out[1]].dtype = DT_e8m0;
    rejected(&c, "verify-scale", "must have scales of dtype e4m3");
    /* A weight has scales for rows instead of squares, so its two products would read different
     * numbers.
     */
    c = planted();
    first(&c, OP_quantise_squares_first)->op = OP_quantise_pairs_first;
    rejected(&c, "verify-scale", "must have square blocks for a weight");
}

/* Each rank scales with the largest magnitude of its own part. */
static void a_maximum_of_one_rank_is_rejected(void **state)
{
    (void)state;
    Case c = planted();
    Program *p = &c.plan->programs.at[0];
    uint32_t n = 0;
    for (Pc pc = 1; pc < p->code.n && n == 0; pc++) {
        Instr *in = &p->code.at[pc];
        if (in->op != OP_quantise_pairs_last) continue;
        for (Pc k = 1; k < pc; k++) {
            const Instr *of = &p->code.at[k];
            if (of->op != OP_all_reduce || program_arg(p, of, 1) != program_arg(p, in, 1)) continue;
            p->args.at[in->args.first + 1] = program_arg(p, of, 0);
            n++;
            break;
        }
    }
    assert_int_equal(n, 1);
    rejected(&c, "verify-layout", "the maximum of only one rank's part");
}

/* Sizes that would cut a block are refused, and so are sequences in chunks. */
static void sizes_that_cut_a_block_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t tp, cp;
        int64_t hidden, seq;
        const char *rule;
    } cases[] = {{2, 1, 32, 64, "float8-divides"},
                 {2, 1, 64, 32, "float8-tokens"},
                 {1, 2, 64, 256, "float8-blocks-chunks"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Diag d = diag_in(arena);
        Tiny t = in_pairs();
        t.tp = cases[i].tp, t.cp = cases[i].cp, t.hidden = cases[i].hidden, t.seq = cases[i].seq;
        assert_null(tiny_plan(&t, false, arena, &d));
        Str s = str_in(arena);
        diag_print(&d, &s);
        assert_non_null(strstr(str_text(&s), cases[i].rule));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(operands_are_4_bit_numbers_in_blocks), TEST(scales_of_other_operands_are_rejected),
        TEST(a_maximum_of_one_rank_is_rejected), TEST(sizes_that_cut_a_block_are_refused)};
    return cmocka_run_group_tests_name("float8 pairs", tests, NULL, NULL);
}
