/* Plans: equal shapes are stored once, and views find their root buffer. The bytes, FLOPs and
 * bindings of an instruction on a rank equal those worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
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

static void streams_phases_and_categories_have_names(void **state)
{
    (void)state;
    assert_string_equal(stream_name(STREAM_dp_gather), "dp_gather");
    assert_string_equal(stream_name(STREAM_host), "host");
    assert_string_equal(phase_name(PHASE_recompute), "recompute");
    assert_string_equal(category_name(CATEGORY_state), "state");
}

static void equal_shapes_are_stored_once(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Shape scalar = {.n_dims = 0};
    assert_int_equal(plan_shape(plan, &scalar), 0);
    ShapeId id[500];
    for (int i = 0; i < 500; i++) {
        Shape s;
        memset(&s, i, sizeof s); /* the bytes of unused fields and of padding must not matter */
        memset(&s.layout, 0, sizeof s.layout);
        s.n_dims = 2;
        s.dim[0] = i;
        s.dim[1] = 7;
        s.deal[0] = s.deal[1] = 0;
        id[i] = plan_shape(plan, &s);
        memset(&s.dim[2], 99, sizeof s.dim[2]);
        assert_int_equal(plan_shape(plan, &s), id[i]);
        assert_int_equal(id[i], i + 1);
    }
    Shape other = {.n_dims = 2, .dim = {3, 7}, .layout.on = {SPLIT(0)}};
    assert_int_equal(plan_shape(plan, &other), 501);
    assert_true(shape_equal(plan_shape_at(plan, 501), &other));
}

static void a_view_finds_its_root_buffer(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    Shape part = {.n_dims = 1, .dim = {4}};
    BufferId root = plans_flat(plan, p, 64, DT_f32, CATEGORY_state);
    BufferId view = plans_view(plan, p, root, &part, 48);
    p->buffers.at[root].offset = 1000;
    uint64_t offset;
    assert_int_equal(program_root(p, view, &offset), root);
    assert_int_equal(offset, 1048);
    assert_int_equal(program_root(p, root, &offset), root);
    assert_int_equal(offset, 1000);
    assert_int_equal(program_root(p, view, NULL), root);
}

static void an_instruction_is_bound_for_each_rank(void **state)
{
    Plan *plan = plans_linear(*state);
    const Program *p = &plan->programs.at[0];
    Binding b;
    int64_t size['z' + 1], start['z' + 1], valid['z' + 1];
    assert_true(plan_bind(plan, p, &p->code.at[1], 1, &b, size, start, valid));
    assert_int_equal(b.size['n'], 32);
    assert_int_equal(size['n'], 16);
    assert_int_equal(start['n'], 16);
    assert_int_equal(valid['n'], 16);
    assert_int_equal(size['k'], 16);
    assert_int_equal(start['k'], 0);
    assert_true(plan_bind(plan, p, &p->code.at[2], 1, NULL, size, start, NULL));
    assert_int_equal(size['k'], 16); /* the split index is the one that is summed over */
    assert_int_equal(start['k'], 16);
    /* a collective has no binding */
    assert_false(plan_bind(plan, p, &p->code.at[3], 1, &b, size, start, valid));
}

/* Without chunks, the second half of a part directly follows the first. */
static void chunks_of_a_part_have_their_own_starts(void **state)
{
    static const Interval zigzag[] = {{0, 8}, {24, 32}, {8, 16}, {16, 24}};
    static const int64_t starts[] = {0, 8}, seconds[] = {24, 16};
    Plan *plan = plans_linear(*state);
    const Program *p = &plan->programs.at[0];
    const Instr *in = &p->code.at[1];
    Binding b;
    int64_t size['z' + 1], start['z' + 1], second['z' + 1];
    assert_true(plan_bind(plan, p, in, 1, &b, size, start, NULL));
    plan_second(plan, p, in, 1, &b, size, start, second);
    assert_int_equal(second['n'], 24); /* the second half, of 16 to 31, begins here */
    assert_int_equal(second['k'], 8);
    const DealId deal = deal_listed(&plan->graph.deals, *state, 32, 2, 2, zigzag);
    for (ShapeId i = 0; i < plan->shapes.n; i++)
        for (int d = 0; d < plan->shapes.at[i].n_dims; d++)
            if (plan->shapes.at[i].dim[d] == 32) plan->shapes.at[i].deal[d] = deal;
    for (Rank r = 0; r < 2; r++) {
        assert_true(plan_bind(plan, p, in, r, &b, size, start, NULL));
        plan_second(plan, p, in, r, &b, size, start, second);
        assert_int_equal(size['n'], 16);
        assert_int_equal(start['n'], starts[r]);
        assert_int_equal(second['n'], seconds[r]);
        assert_int_equal(second['k'], 8);
    }
}

static void flops_and_bytes_equal_those_by_hand(void **state)
{
    Plan *plan = plans_linear(*state);
    const Program *p = &plan->programs.at[0];
    assert_true(plan_flops(plan, p, &p->code.at[1]) == 2.0 * 4 * 8 * 16 * 16);
    assert_true(plan_flops(plan, p, &p->code.at[3]) == 0);
    const uint64_t x = 4 * 8 * 16 * 4, w = 16 * 16 * 4, h = 4 * 8 * 16 * 4;
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[1]), x + w + h);
    /* The instruction adds to its output, so it reads the output, too. */
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[4]), x + h + 2 * w);
    assert_int_equal(plan_comm_bytes(plan, p, &p->code.at[3]), 4 * 8 * 16 * 4);
    assert_int_equal(plan_comm_bytes(plan, p, &p->code.at[1]), 0);
}

/* NCCL counts the whole buffer of every collective. A rank has 1/n of it. */
static void collectives_count_the_whole_buffer(void **state)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = 4;
    Plan *plan = plans_new(*state, sizes);
    Program *p = plans_program(plan);
    BufferId part = plans_flat(plan, p, 100, DT_bf16, CATEGORY_parameter);
    BufferId whole = plans_flat(plan, p, 400, DT_bf16, CATEGORY_gathered);
    const struct {
        OpKind op;
        BufferId in, out;
        uint64_t bytes;
    } expected[] = {
        {OP_all_gather, part, whole, 800},
        {OP_reduce_scatter, whole, part, 800},
        {OP_all_reduce, whole, whole, 800},
        {OP_all_to_all, whole, whole, 800},
        {OP_send, part, 0, 200},
        {OP_recv, 0, part, 200},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        Pc pc = plans_instr(plan, p,
                            &(PlansInstr){.op = expected[i].op,
                                          .stream = STREAM_dp_gather,
                                          .axes = 1,
                                          .match = 1,
                                          .in = {expected[i].in},
                                          .out = {expected[i].out}});
        assert_int_equal(plan_comm_bytes(plan, p, &p->code.at[pc]), expected[i].bytes);
    }
}

/* A lookup reads only the rows that it names. */
static void lookups_count_only_the_rows_that_they_read(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    Shape ids = {.n_dims = 2, .dim = {2, 8}}, table = {.n_dims = 2, .dim = {1000, 16}};
    Shape rows = {.n_dims = 3, .dim = {2, 8, 16}}, logits = {.n_dims = 3, .dim = {2, 8, 1000}};
    BufferId i = plans_buffer(plan, p, &ids, DT_i32, CATEGORY_input);
    BufferId t = plans_buffer(plan, p, &table, DT_f32, CATEGORY_parameter);
    BufferId r = plans_buffer(plan, p, &rows, DT_f32, CATEGORY_activation);
    BufferId l = plans_buffer(plan, p, &logits, DT_f32, CATEGORY_activation);
    BufferId s = plans_buffer(plan, p, &ids, DT_f32, CATEGORY_activation);
    const uint64_t bi = 2 * 8 * 4, br = 2 * 8 * 16 * 4, bs = 2 * 8 * 4;
    PlansInstr embed = {.op = OP_embed, .stream = STREAM_compute, .in = {i, t}, .out = {r}};
    Pc pc = plans_instr(plan, p, &embed);
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[pc]), bi + br + br);
    PlansInstr fresh = {.op = OP_embed_grad, .stream = STREAM_compute, .in = {r, i}, .out = {t}};
    pc = plans_instr(plan, p, &fresh);
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[pc]), br + bi + 1000 * 16 * 4);
    PlansInstr added = fresh;
    added.attrs.accumulate = 1;
    pc = plans_instr(plan, p, &added);
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[pc]), br + bi + 2 * br);
    PlansInstr pick = {.op = OP_xent_pick, .stream = STREAM_compute, .in = {l, i}, .out = {s}};
    pc = plans_instr(plan, p, &pick);
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[pc]), bs + bi + bs);
    PlansInstr scatter = {
        .op = OP_xent_pick_grad, .stream = STREAM_compute, .in = {s, i}, .out = {l}};
    scatter.attrs.accumulate = 1;
    pc = plans_instr(plan, p, &scatter);
    assert_int_equal(plan_hbm_bytes(plan, p, &p->code.at[pc]), bs + bi + 2 * bs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_phases_and_categories_have_names),
        cmocka_unit_test_setup_teardown(equal_shapes_are_stored_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_view_finds_its_root_buffer, setup, teardown),
        cmocka_unit_test_setup_teardown(an_instruction_is_bound_for_each_rank, setup, teardown),
        cmocka_unit_test_setup_teardown(chunks_of_a_part_have_their_own_starts, setup, teardown),
        cmocka_unit_test_setup_teardown(flops_and_bytes_equal_those_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(collectives_count_the_whole_buffer, setup, teardown),
        cmocka_unit_test_setup_teardown(lookups_count_only_the_rows_that_they_read, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
