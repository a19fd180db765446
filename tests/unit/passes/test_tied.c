/* The first and the last pipeline stage share a table. Tests where it is stored, and how its
 * gradient is summed. The verifier must report the known mistakes: a sum that is left out, taken
 * over slices that do not match, or counted twice. */
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

static Tiny tied(ScheduleKind schedule, uint32_t dp_shard)
{
    Tiny t = tiny_default();
    t.gpt2 = true;
    t.pp = 2;
    t.pp_options.schedule = schedule;
    t.pp_options.chunks = schedule_traits(schedule).least_chunks;
    t.layers = t.pp * t.pp_options.chunks;
    t.microbatches = t.layers;
    t.dp_shard = dp_shard;
    return t;
}

static Plan *compile(const Tiny *t)
{
    Diag d = diag_in(arena);
    Plan *plan = tiny_plan(t, true, arena, &d);
    assert_non_null(plan);
    assert_true(verify_plan(plan, VERIFY_all, false, &d));
    assert_int_equal(d.items.n, 0);
    return plan;
}

static TensorId table_of(const Plan *plan)
{
    for (TensorId t = 1; t < plan->graph.tensors.n; t++)
        if (strcmp(plan->graph.tensors.at[t].name, "embedding.weight") == 0) return t;
    fail();
    return 0;
}

/* Returns a program's first instruction with this op for the table's unit, at the end of the
 * step. */
static Pc find(const Plan *plan, uint32_t program, OpKind op)
{
    UnitId unit = plan->graph.tensors.at[table_of(plan)].unit;
    const Program *p = &plan->programs.at[program];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == op && p->code.at[pc].unit == unit &&
            p->code.at[pc].phase == PHASE_update)
            return pc;
    return 0;
}

static void names(const Plan *plan, const char *rule, const char *text)
{
    Diag d = diag_in(arena);
    assert_false(verify_plan(plan, VERIFY_all, false, &d));
    for (uint32_t i = 0; i < d.items.n; i++)
        if (strcmp(d.items.at[i].rule, rule) == 0 && strstr(d.items.at[i].text, text)) return;
    Str all = str_in(arena);
    diag_print(&d, &all);
    fail_msg("not %s \"%s\" but\n%s", rule, text, str_text(&all));
}

/* Both ranks have the table, in a separate unit, with one send and one receive each. One of them
 * counts its squares for the norm, and both update it. */
static void two_stages_sum_and_update_their_shared_table(void **state)
{
    (void)state;
    for (uint32_t dp = 1; dp <= 2; dp++) {
        Tiny t = tied(SCHEDULE_1f1b, dp);
        const Plan *plan = compile(&t);
        UnitId unit = plan->graph.tensors.at[table_of(plan)].unit;
        assert_int_equal(plan->graph.units.at[unit].params.n, 1);
        for (uint32_t i = 0; i < 2; i++) {
            assert_true(find(plan, i, OP_send) && find(plan, i, OP_recv));
            assert_true(find(plan, i, OP_adamw));
        }
        assert_true(find(plan, 0, OP_sumsq));
        assert_false(find(plan, 1, OP_sumsq));
    }
}

/* In a V schedule, one rank has both the first and the last stage, so there is nothing to sum. */
static void one_rank_with_both_stages_sums_nothing(void **state)
{
    (void)state;
    Tiny t = tied(SCHEDULE_zb_v, 2);
    const Plan *plan = compile(&t);
    assert_false(find(plan, 0, OP_send) || find(plan, 1, OP_send));
    assert_false(find(plan, 1, OP_adamw));
}

static void a_table_on_two_ranks_may_be_refused(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Tiny t = tied(SCHEDULE_1f1b, 1);
    t.pp_options.tied = 1;
    assert_null(tiny_plan(&t, true, arena, &d));
    assert_string_equal(d.items.at[0].rule, "tied-across-stages");
    t = tied(SCHEDULE_zb_v, 1);
    t.pp_options.tied = 1;
    assert_non_null(tiny_plan(&t, true, arena, &d));
}

/* The peer's part is set instead of added, so each rank trains on the other's gradient. */
static void a_dropped_sum_is_reported(void **state)
{
    (void)state;
    Tiny t = tied(SCHEDULE_1f1b, 2);
    Plan *plan = mutate_copy(compile(&t), arena);
    plan->programs.at[1].code.at[find(plan, 1, OP_pass)].attrs = 0;
    names(plan, "verify-scale", "updates embedding.weight with a value that is not its gradient");
}

/* One rank sends its slice over the data ranks. The other rank adds it to a slice that was cut in
 * another way. */
static void slices_that_do_not_match_are_reported(void **state)
{
    (void)state;
    Tiny t = tied(SCHEDULE_1f1b, 2);
    Plan *plan = mutate_copy(compile(&t), arena);
    Program *p = &plan->programs.at[1];
    BufferId got = program_arg(p, &p->code.at[find(plan, 1, OP_recv)], 0);
    Shape shape = *plan_shape_at(plan, p->buffers.at[got].shape);
    for (uint32_t a = 0; a < plan->mesh.n_axes; a++)
        shape.layout.on[a] = plan->mesh.axis[a].name == AXIS_pp ? SPLIT(0) : WHOLE;
    p->buffers.at[got].shape = plan_shape(plan, &shape);
    names(plan, "verify-layout", "receives f64 [384] {dp_shard:0} as f64 [384] {pp:0}");
}

/* Inserts an instruction at `pc`, and corrects all references. */
static void insert(Program *p, Pc pc, Instr in)
{
    list_push(arena, &p->code, in);
    memmove(p->code.at + pc + 1, p->code.at + pc, (p->code.n - 1 - pc) * sizeof in);
    p->code.at[pc] = in;
    for (uint32_t i = 0; i < p->after.n; i++) p->after.at[i] += p->after.at[i] >= pc;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        p->buffers.at[b].first += p->buffers.at[b].first >= pc;
        p->buffers.at[b].last += p->buffers.at[b].last >= pc;
    }
}

/* Both ranks count the table's squares, so the norm of its gradient is too large by the square root
 * of 2. */
static void a_table_counted_twice_is_reported(void **state)
{
    (void)state;
    Tiny t = tied(SCHEDULE_1f1b, 1);
    Plan *plan = mutate_copy(compile(&t), arena);
    Program *p = &plan->programs.at[1];
    const Instr first = plan->programs.at[0].code.at[find(plan, 0, OP_sumsq)];
    Pc last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_sumsq) last = pc;
    Instr more = p->code.at[last];
    Attrs attrs = *graph_attrs_at(&plan->graph, first.attrs);
    attrs.accumulate = 1;
    more.attrs = graph_attrs(&plan->graph, arena, &attrs);
    more.unit = first.unit;
    const Instr *pass = &p->code.at[find(plan, 1, OP_pass)];
    BufferId table = program_arg(p, &p->code.at[last], 1), grad = program_arg(p, pass, 1);
    more.args.first = p->args.n;
    list_push(arena, &p->args, grad);
    list_push(arena, &p->args, table);
    insert(p, last + 1, more);
    names(plan, "verify-scale", "counts embedding.weight twice");
}

/* The buffers of the table are marked as something other than parameters. */
static void a_table_without_a_parameter_buffer_is_reported(void **state)
{
    (void)state;
    Tiny t = tied(SCHEDULE_1f1b, 1);
    Plan *plan = mutate_copy(compile(&t), arena);
    UnitId unit = plan->graph.tensors.at[table_of(plan)].unit;
    for (uint32_t i = 0; i < 2; i++) {
        Program *p = &plan->programs.at[i];
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (p->buffers.at[b].category == CATEGORY_parameter && p->buffers.at[b].unit == unit)
                p->buffers.at[b].category = CATEGORY_state;
    }
    names(plan, "verify-coverage", "no buffer holds parameter embedding.weight between steps");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_arena_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {TEST(two_stages_sum_and_update_their_shared_table),
                                       TEST(one_rank_with_both_stages_sums_nothing),
                                       TEST(a_table_on_two_ranks_may_be_refused),
                                       TEST(a_dropped_sum_is_reported),
                                       TEST(slices_that_do_not_match_are_reported),
                                       TEST(a_table_counted_twice_is_reported),
                                       TEST(a_table_without_a_parameter_buffer_is_reported)};
    return cmocka_run_group_tests_name("tied", tests, NULL, NULL);
}
