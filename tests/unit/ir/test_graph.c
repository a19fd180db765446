/* The graph: functions build it, store equal attributes once, bind ops to shapes, and print it. A
 * node that is refused must leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/graph.h"
#include "tests/support/plans/tiny.h"

static int setup(void **state)
{
    *state = arena_new();
    return 0;
}

static int teardown(void **state)
{
    arena_free(*state);
    return 0;
}

static const Loc here = {"model.lua", 3};

static void an_op_adds_a_node_and_its_output(void **state)
{
    Graph g;
    Diag d = diag_in(*state);
    graph_init(&g, *state);
    Module m = {.path = "layers.0.mlp", .class_ = "linear", .layer = 1};
    ModuleId module = (ModuleId)list_add(*state, &g.modules);
    g.modules.at[module] = m;
    TensorId x = graph_tensor(&g, *state, "x", ROLE_input, DT_bf16, 3, (int64_t[]){2, 8, 16}, here);
    TensorId w = graph_tensor(&g, *state, "w", ROLE_param, DT_bf16, 2, (int64_t[]){16, 4}, here);
    assert_int_equal(x, 1);
    TensorId y =
        graph_op(&g, *state, OP_linear, (TensorId[]){x, w}, 2, DT_bf16, NULL, module, here, &d);
    assert_int_not_equal(y, 0);
    const Tensor *t = &g.tensors.at[y];
    assert_string_equal(t->name, "layers.0.mlp.linear.1");
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dim[2], 4);
    assert_int_equal(t->producer, 1);
    assert_int_equal(g.nodes.at[1].layer, 1); /* the layer comes from the module */
    assert_int_equal(g.nodes.at[1].module, module);
    Binding b;
    assert_true(graph_bind(&g, &g.nodes.at[1], &b, &d));
    assert_int_equal(b.size['n'], 4);
    assert_int_equal(d.n_errors, 0);
}

static void an_op_may_have_several_outputs(void **state)
{
    Graph g;
    Diag d = diag_in(*state);
    graph_init(&g, *state);
    TensorId x = graph_tensor(&g, *state, "x", ROLE_input, DT_f32, 3, (int64_t[]){2, 8, 16}, here);
    TensorId w = graph_tensor(&g, *state, "w", ROLE_param, DT_f32, 1, (int64_t[]){16}, here);
    TensorId y = graph_op(&g, *state, OP_rmsnorm, (TensorId[]){x, w}, 2, DT_f32, NULL, 0, here, &d);
    assert_int_equal(g.nodes.at[1].n_out, 2);
    TensorId rms = g.nodes.at[1].out[1];
    assert_int_equal(g.tensors.at[rms].n_dims, 2);
    assert_string_not_equal(g.tensors.at[y].name, g.tensors.at[rms].name);
}

static void a_refused_node_leaves_nothing_behind(void **state)
{
    Graph g;
    Diag d = diag_in(*state);
    graph_init(&g, *state);
    TensorId x = graph_tensor(&g, *state, "x", ROLE_input, DT_f32, 3, (int64_t[]){2, 8, 16}, here);
    TensorId w = graph_tensor(&g, *state, "w", ROLE_param, DT_f32, 2, (int64_t[]){15, 4}, here);
    const uint32_t n_tensors = g.tensors.n, n_nodes = g.nodes.n;
    assert_int_equal(
        graph_op(&g, *state, OP_linear, (TensorId[]){x, w}, 2, DT_f32, NULL, 0, here, &d), 0);
    assert_int_equal(d.n_errors, 1);
    assert_string_equal(d.items.at[0].rule, "shape-mismatch");
    assert_string_equal(d.items.at[0].loc.file, "model.lua");
    assert_int_equal(g.tensors.n, n_tensors); /* no half-made node stays behind */
    assert_int_equal(g.nodes.n, n_nodes);
}

/* A gradient has several producers. Its field `producer` is the first one. */
static void the_producer_of_a_gradient_is_the_first_one(void **state)
{
    Graph g;
    graph_init(&g, *state);
    TensorId a = graph_tensor(&g, *state, "a", ROLE_activation, DT_f32, 0, NULL, here);
    TensorId da = graph_tensor(&g, *state, "da", ROLE_gradient, DT_f32, 0, NULL, here);
    NodeId one = graph_node(&g, *state, OP_pass, &a, 1, &da, 1, NULL, 0, here);
    graph_node(&g, *state, OP_pass, &a, 1, &da, 1, NULL, 0, here);
    assert_int_equal(g.tensors.at[da].producer, one);
}

/* A graph and its copy are independent: an addition to one does not change the other, whatever room
 * their lists had. */
static void a_copy_is_independent_of_its_graph(void **state)
{
    static const Interval of_11[] = {{0, 4}, {4, 8}, {8, 11}},
                          of_14[] = {{0, 5}, {5, 10}, {10, 14}};
    const int64_t eleven = 11, twelve = 12;
    for (int64_t before = 1; before <= 20; before++) {
        Graph g;
        graph_init(&g, *state);
        for (int64_t i = 0; i < before; i++) {
            const int64_t size = 10 + 3 * i;
            graph_tensor(&g, *state, "a", ROLE_activation, DT_f32, 1, &size, here);
            const Interval thirds[] = {{0, 3}, {3, 6}, {6, size}};
            deal_listed(&g.deals, *state, size, 3, 1, thirds);
        }
        Graph copy = graph_copy(&g, *state);
        const TensorId t = graph_tensor(&g, *state, "b", ROLE_activation, DT_f32, 1, &eleven, here);
        const DealId d = deal_listed(&g.deals, *state, 11, 3, 1, of_11);
        assert_int_equal(
            graph_tensor(&copy, *state, "c", ROLE_activation, DT_f32, 1, &twelve, here), t);
        assert_int_equal(deal_listed(&copy.deals, *state, 14, 3, 1, of_14), d);
        assert_int_equal(g.tensors.at[t].dim[0], 11);
        assert_int_equal(copy.tensors.at[t].dim[0], 12);
        Interval at;
        for (uint32_t part = 0; part < 3; part++) {
            assert_true(deal_interval(&g.deals, d, 11, 3, part, 0, &at));
            assert_memory_equal(&at, &of_11[part], sizeof at);
            assert_true(deal_interval(&copy.deals, d, 14, 3, part, 0, &at));
            assert_memory_equal(&at, &of_14[part], sizeof at);
        }
    }
}

static void equal_attributes_are_stored_once(void **state)
{
    Graph g;
    Attrs a;
    graph_init(&g, *state);
    memset(&a, 0, sizeof a);
    assert_int_equal(graph_attrs(&g, *state, NULL), 0);
    assert_int_equal(graph_attrs(&g, *state, &a), 0);
    AttrsId id[2000];
    for (int i = 0; i < 2000; i++) {
        a.scale = 1.0 / (i + 1);
        a.lo = i % 7;
        id[i] = graph_attrs(&g, *state, &a);
        assert_int_equal(id[i], i + 1);
    }
    for (int i = 1999; i >= 0; i--) {
        a.scale = 1.0 / (i + 1);
        a.lo = i % 7;
        assert_int_equal(graph_attrs(&g, *state, &a), id[i]);
        assert_true(graph_attrs_at(&g, id[i])->scale == a.scale);
    }
    assert_int_equal(g.attrs.n, 2001);
    /* The index is optional. A list that was filled without it is searched all the same. */
    Intern none = {NULL, 0, 0};
    g.attrs_index = none;
    assert_int_equal(graph_attrs(&g, *state, &a), id[0]);
    assert_int_equal(g.attrs.n, 2001);
}

static void a_graph_prints_its_tensors_and_layouts(void **state)
{
    Graph g;
    Diag d = diag_in(*state);
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_tp] = 2;
    Mesh mesh = mesh_make(sizes);
    graph_init(&g, *state);
    TensorId x = graph_tensor(&g, *state, "x", ROLE_input, DT_bf16, 3, (int64_t[]){2, 8, 16}, here);
    TensorId w = graph_tensor(&g, *state, "w", ROLE_param, DT_bf16, 2, (int64_t[]){16, 4}, here);
    g.tensors.at[w].use.on[0] = SPLIT(1);
    TensorId y = graph_op(&g, *state, OP_linear, (TensorId[]){x, w}, 2, DT_bf16, NULL, 0, here, &d);
    g.tensors.at[y].use.on[0] = SPLIT(2);
    g.nodes.at[1].split[0] = 'n';
    Str out = str_in(*state);
    graph_print(&g, &mesh, &out);
    assert_string_equal(str_text(&out),
                        "parameters 1\n"
                        "  %2 w [16,4] bf16 use {tp:1}  model.lua:3\n"
                        "forward 1\n"
                        "      1 linear           %1 %2 -> %3[2,8,4] bf16 use {tp:2}"
                        "  split {tp:n}  model.lua:3\n");
}

/* A tensor that is stored by groups lists the sizes of its segments. Together they fill its
 * dimension. */
static void the_order_of_segments_is_printed(void **state)
{
    Diag d = diag_in(*state);
    Tiny t = tiny_default();
    t.fused = true, t.tp = 2, t.groups = 4, t.repeat = 2;
    const Plan *plan = tiny_plan(&t, false, *state, &d);
    assert_non_null(plan);
    Str out = str_in(*state);
    graph_print(&plan->graph, &plan->mesh, &out);
    uint32_t n_ordered = 0;
    for (TensorId p = 1; p < plan->graph.tensors.n; p++) {
        const Tensor *at = &plan->graph.tensors.at[p];
        if (at->role != ROLE_param || !at->order) continue;
        const char *line = strstr(str_text(&out), arena_print(*state, "%%%u %s ", p, at->name));
        assert_non_null(line);
        line = strstr(line, " segments ");
        assert_non_null(line);
        line += strlen(" segments ");
        int64_t sum = 0;
        for (char *end = NULL; *line != ' '; line = *end == ',' ? end + 1 : end) {
            const int64_t size = strtoll(line, &end, 10);
            assert_true(end > line && size > 0);
            sum += size;
        }
        int64_t features = 1; /* the features of one group */
        for (int k = at->order_dim + 1; k < at->n_dims; k++) features *= at->dim[k];
        assert_int_equal(sum, features);
        n_ordered++;
    }
    assert_true(n_ordered == t.layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_op_adds_a_node_and_its_output, setup, teardown),
        cmocka_unit_test_setup_teardown(an_op_may_have_several_outputs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_node_leaves_nothing_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(the_producer_of_a_gradient_is_the_first_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_copy_is_independent_of_its_graph, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_attributes_are_stored_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_graph_prints_its_tensors_and_layouts, setup, teardown),
        cmocka_unit_test_setup_teardown(the_order_of_segments_is_printed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
