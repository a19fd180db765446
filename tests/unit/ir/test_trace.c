/* A trace as JSON for Chrome's viewer: valid JSON with one event for each row, only the requested
 * ranks, and escaped names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/trace.h"
#include "tests/support/plans/plans.h"

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

static json_t *chrome(const Plan *plan, const Trace *trace, const Rank *ranks, uint32_t n,
                      Arena *arena)
{
    Str out = str_in(arena);
    json_error_t error;
    trace_chrome(plan, trace, ranks, n, &out);
    json_t *root = json_loads(str_text(&out), 0, &error);
    if (!root) fail_msg("%s at line %d", error.text, error.line);
    return root;
}

static size_t count(const json_t *root, const char *phase, int rank)
{
    size_t i, n = 0;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) != 0) continue;
        n += rank < 0 || json_integer_value(json_object_get(event, "pid")) == rank;
    }
    return n;
}

static Trace rows_of(Plan *plan)
{
    Trace trace;
    memset(&trace, 0, sizeof trace);
    trace.step = 3;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++)
        for (Pc pc = 1; pc < 5; pc++) {
            TraceRow row = {.rank = r,
                            .step = 3,
                            .pc = pc,
                            .start_ps = pc * 1000000 + 7,
                            .end_ps = pc * 1000000 + 2500009,
                            .bytes = 64 * pc};
            list_push(plan->arena, &trace.rows, row);
        }
    return trace;
}

static void each_row_gives_one_event(void **state)
{
    Plan *plan = plans_linear(*state);
    Trace trace = rows_of(plan);
    json_t *root = chrome(plan, &trace, NULL, 0, *state);
    assert_int_equal(count(root, "X", -1), 8);
    assert_int_equal(count(root, "X", 1), 4);
    const json_t *list = json_object_get(root, "traceEvents");
    size_t i;
    json_t *event;
    bool found = false;
    json_array_foreach(list, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        if (strcmp(name, "all_reduce") != 0) continue;
        found = true;
        assert_int_equal(json_integer_value(json_object_get(event, "tid")), STREAM_tp);
        assert_true(json_real_value(json_object_get(event, "ts")) == 3.000007);
        assert_true(json_real_value(json_object_get(event, "dur")) == 2.500002);
        const json_t *args = json_object_get(event, "args");
        assert_string_equal(json_string_value(json_object_get(args, "axes")), "tp");
        assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 192);
    }
    assert_true(found);
    json_decref(root);
}

static void only_the_chosen_ranks_are_printed(void **state)
{
    Plan *plan = plans_linear(*state);
    Trace trace = rows_of(plan);
    const Rank only[] = {1};
    json_t *root = chrome(plan, &trace, only, 1, *state);
    assert_int_equal(count(root, "X", -1), 4);
    assert_int_equal(count(root, "X", 0), 0);
    assert_int_equal(count(root, "M", 1), 3); /* the names of the rank and its two streams */
    json_decref(root);
}

static void names_are_escaped(void **state)
{
    Plan *plan = plans_everything(*state);
    Trace trace;
    memset(&trace, 0, sizeof trace);
    TraceRow row = {.rank = 7, .pc = 2, .start_ps = -5, .end_ps = 10};
    list_push(*state, &trace.rows, row);
    json_t *root = chrome(plan, &trace, NULL, 0, *state);
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        const json_t *module = json_object_get(json_object_get(event, "args"), "module");
        assert_string_equal(json_string_value(module), "layers.0\n\\end");
        assert_true(json_real_value(json_object_get(event, "ts")) == -0.000005);
    }
    assert_int_equal(count(root, "X", 7), 1);
    json_decref(root);
}

/* A store may contain rows that do not fit the plan. */
static void foreign_rows_are_left_out(void **state)
{
    Plan *plan = plans_linear(*state);
    Trace trace;
    memset(&trace, 0, sizeof trace);
    const TraceRow bad[] = {{.rank = 2, .pc = 1}, {.rank = 0, .pc = 5}, {.rank = 0, .pc = 0}};
    for (int i = 0; i < 3; i++) list_push(*state, &trace.rows, bad[i]);
    json_t *root = chrome(plan, &trace, NULL, 0, *state);
    assert_int_equal(count(root, "X", -1), 0);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_row_gives_one_event, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_chosen_ranks_are_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(names_are_escaped, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_rows_are_left_out, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
