/* The check after each pass sees every fault of a graph, also where it skips what has not changed
 * since the last check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/passes/pass.h"
#include "tests/support/compiled.h"
#include "tests/support/plans/tiny.h"

static bool check(Plan *plan, CheckedGraph *last)
{
    Diag d = diag_in(plan->arena);
    const Job job = {.plan = plan, .diag = &d};
    const bool ok = check_graph(&job, last, "test");
    assert_int_equal(d.n_errors == 0, ok);
    return ok;
}

/* Checks the graph anew, and after a check that found no fault. Both must find the fault. */
static void assert_fault(Plan *plan, CheckedGraph *before)
{
    CheckedGraph none = {.arena = plan->arena};
    assert_false(check(plan, &none));
    assert_false(check(plan, before));
}

static NodeId first_product(const Graph *g)
{
    NodeId id = 1;
    while (op_info(g->nodes.at[id].op)->class_ != OP_CLASS_contract) id++;
    return id;
}

static Plan *sound_plan(CheckedGraph *last)
{
    Tiny t = tiny_default();
    t.dp_shard = 2;
    Plan *plan = compile(&t);
    *last = (CheckedGraph){.arena = plan->arena};
    assert_true(check(plan, last));
    assert_true(check(plan, last));
    return plan;
}

static void the_whole_graph_is_kept(void **state)
{
    (void)state;
    CheckedGraph last;
    const Plan *plan = sound_plan(&last);
    const Graph *g = &plan->graph;
    assert_int_equal(last.tensors.n, g->tensors.n);
    assert_int_equal(last.nodes.n, g->nodes.n);
    assert_int_equal(last.units.n, g->units.n);
    assert_memory_equal(last.tensors.at, g->tensors.at, g->tensors.n * sizeof *g->tensors.at);
    assert_memory_equal(last.nodes.at, g->nodes.at, g->nodes.n * sizeof *g->nodes.at);
    assert_memory_equal(last.units.at, g->units.at, g->units.n * sizeof *g->units.at);
}

static void a_changed_tensor_is_checked(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Tensor *t = &plan->graph.tensors.at[plan->graph.nodes.at[first_product(&plan->graph)].in[0]];
    t->use.on[MAX_AXES - 1] = SPLIT(0); /* there is no such axis */
    assert_fault(plan, &last);
    t->use.on[MAX_AXES - 1] = WHOLE;
    assert_true(check(plan, &last));
    t->unit = plan->graph.units.n;
    assert_fault(plan, &last);
    t->unit = 0;
    assert_true(check(plan, &last));
}

/* The node stays as it was, and so do all others. */
static void a_node_with_a_resized_tensor_is_checked(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Tensor *t = &plan->graph.tensors.at[plan->graph.nodes.at[first_product(&plan->graph)].in[0]];
    t->dim[t->n_dims - 1]++;
    assert_fault(plan, &last);
    t->dim[t->n_dims - 1]--;
    assert_true(check(plan, &last));
}

static void a_changed_node_is_checked(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Node *n = &plan->graph.nodes.at[first_product(&plan->graph)];
    const char split = n->split[0];
    n->split[0] = 'z'; /* the op has no such index */
    assert_fault(plan, &last);
    n->split[0] = split;
    assert_true(check(plan, &last));
}

/* Neither tensors nor nodes change here, but what they refer to is gone. */
static void shorter_lists_are_noticed(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Graph *g = &plan->graph;
    uint32_t *const lengths[] = {&g->units.n, &g->attrs.n, &g->modules.n};
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const uint32_t n = *lengths[i];
        assert_true(n > 1);
        *lengths[i] = 1;
        assert_fault(plan, &last);
        *lengths[i] = n;
        assert_true(check(plan, &last));
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, compile_setup, compile_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_whole_graph_is_kept),
        TEST(a_changed_tensor_is_checked),
        TEST(a_node_with_a_resized_tensor_is_checked),
        TEST(a_changed_node_is_checked),
        TEST(shorter_lists_are_noticed),
    };
    return cmocka_run_group_tests_name("check_graph", tests, NULL, NULL);
}
