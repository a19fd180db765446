/* The check after each pass skips parts of the graph that have not changed since the last check. It
 * must still find every fault that a check of the whole graph finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
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

/* Checks the graph from scratch, and again after a check that found no fault. Both must find the
 * fault. */
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

static void a_check_stores_the_whole_graph(void **state)
{
    (void)state;
    CheckedGraph last;
    const Plan *plan = sound_plan(&last);
    const Graph *g = &plan->graph;
    assert_int_equal(last.tensors.n, g->tensors.n);
    assert_int_equal(last.nodes.n, g->nodes.n);
    assert_int_equal(last.units.n, g->units.n);
    for (TensorId t = 0; t < g->tensors.n; t++) {
        const Tensor *is = &last.tensors.at[t], *was = &g->tensors.at[t];
        assert_ptr_equal(is->name, was->name);
        assert_memory_equal(is->dim, was->dim, sizeof is->dim);
        assert_memory_equal(&is->use, &was->use, sizeof is->use);
        assert_int_equal(is->init.kind, was->init.kind);
        assert_int_equal(is->loc.line, was->loc.line);
        assert_int_equal(is->unit, was->unit);
        assert_int_equal(is->frozen, was->frozen);
    }
    for (NodeId id = 0; id < g->nodes.n; id++) {
        const Node *is = &last.nodes.at[id], *was = &g->nodes.at[id];
        assert_int_equal(is->op, was->op);
        assert_memory_equal(is->in, was->in, sizeof is->in);
        assert_memory_equal(is->split, was->split, sizeof is->split);
        assert_int_equal(is->loc.line, was->loc.line);
    }
    assert_memory_equal(last.units.at, g->units.at, g->units.n * sizeof *g->units.at);
}

static void a_changed_tensor_is_checked(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Tensor *t = &plan->graph.tensors.at[plan->graph.nodes.at[first_product(&plan->graph)].in[0]];
    t->use.on[MAX_AXES - 1] = SPLIT(0); /* no such axis exists */
    assert_fault(plan, &last);
    t->use.on[MAX_AXES - 1] = WHOLE;
    assert_true(check(plan, &last));
    t->unit = plan->graph.units.n;
    assert_fault(plan, &last);
    t->unit = 0;
    assert_true(check(plan, &last));
}

/* The node itself does not change, and neither does any other node. */
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

/* A node's signature is bound again only if some of the node's fields have changed. So a change of
 * any one field of any node must get the same verdict as in a check of the whole graph. */
static void each_change_gets_the_verdict_of_a_full_check(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    Graph *g = &plan->graph;
    uint32_t n_faults = 0, n_sound = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        for (int field = 0; field < 9; field++) {
            const Node was = *n;
            switch (field) {
            case 0: n->op = n->op == OP_add ? OP_silu : OP_add; break;
            case 1: n->n_in = n->n_in > 1 ? n->n_in - 1 : 2; break;
            case 2: n->n_out = n->n_out > 1 ? 1 : 2; break;
            case 3: n->in[0] = 1 + id % (g->tensors.n - 1); break;
            case 4: n->out[0] = g->tensors.n; break;
            case 5: n->split[0] = n->split[0] != 0 ? 0 : (char)('a' + id % 26); break;
            case 6: n->module = id % 2 ? g->modules.n : 0; break;
            case 7: n->attrs = id % 2 ? g->attrs.n : 0; break;
            case 8: n->forward = id % 2 ? g->nodes.n : 1; break;
            default: break;
            }
            CheckedGraph none = {.arena = plan->arena};
            const bool whole = check(plan, &none);
            assert_int_equal(check(plan, &last), whole);
            n_faults += !whole, n_sound += whole;
            *n = was;
            assert_true(check(plan, &last));
        }
    }
    assert_true(n_faults > g->nodes.n && n_sound > g->nodes.n);
}

/* Gives the values of `memory` to the bytes between the fields of a tensor's Init and Loc, and to
 * those after a node's Loc. The fields keep their values. */
static void fill_gaps(Graph *g, void *memory)
{
    Tensor *t = &g->tensors.at[1];
    Node *n = &g->nodes.at[1];
    Init *init = memory;
    init->kind = t->init.kind, init->a = t->init.a, init->b = t->init.b;
    memcpy(&t->init, init, sizeof *init);
    Loc *loc = memory;
    loc->file = t->loc.file, loc->line = t->loc.line;
    memcpy(&t->loc, loc, sizeof *loc);
    loc->file = n->loc.file, loc->line = n->loc.line;
    memcpy(&n->loc, loc, sizeof *loc);
}

/* A check stores all bytes of a record that has changed. So if the old bytes are still stored, the
 * record did not count as changed. Under Valgrind, the second comparison must not depend on bytes
 * that were never set. */
static void bytes_between_fields_do_not_count_as_changes(void **state)
{
    (void)state;
    CheckedGraph last;
    Plan *plan = sound_plan(&last);
    const Tensor tensor = last.tensors.at[1];
    const Node node = last.nodes.at[1];
    void *memory = malloc(sizeof(Init));
    assert_non_null(memory);
    for (int i = 0; i < 2; i++) {
        if (i == 0) memset(memory, 0xa5, sizeof(Init));
        fill_gaps(&plan->graph, memory);
        assert_true(check(plan, &last));
        if (i == 0) assert_memory_equal(&last.tensors.at[1], &tensor, sizeof tensor);
        if (i == 0) assert_memory_equal(&last.nodes.at[1], &node, sizeof node);
        free(memory);
        memory = malloc(sizeof(Init));
        assert_non_null(memory);
    }
    free(memory);
}

/* Neither tensors nor nodes change here, but the entries to which they refer are gone. */
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
        TEST(a_check_stores_the_whole_graph),
        TEST(a_changed_tensor_is_checked),
        TEST(a_node_with_a_resized_tensor_is_checked),
        TEST(a_changed_node_is_checked),
        TEST(each_change_gets_the_verdict_of_a_full_check),
        TEST(bytes_between_fields_do_not_count_as_changes),
        TEST(shorter_lists_are_noticed),
    };
    return cmocka_run_group_tests_name("check_graph", tests, NULL, NULL);
}
