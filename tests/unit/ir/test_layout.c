/* Layouts, deals and shapes: every element of a tensor has exactly one owner, however a deal
 * divides it over ranks. Otherwise sums would miss elements or count them twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/layout/layout.h"

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

static void names_and_maps_of_dtypes_agree(void **state)
{
    (void)state;
    assert_int_equal(dtype_bytes(DT_bf16), 2);
    assert_int_equal(dtype_bytes(DT_none), 0);
    assert_int_equal(dtype_find("fp32"), DT_f32);
    assert_int_equal(dtype_find("bfloat16"), DT_bf16);
    assert_int_equal(dtype_find("f33"), DT_none);
    for (int t = 1; t < DT_COUNT; t++) assert_int_equal(dtype_find(dtype_name((DType)t)), t);
    DTypeMap all = dtype_map_all(DT_f64), same = dtype_map_identity();
    for (int real = DT_none + 1; real < DT_COUNT; real++)
        for (int t = DT_none + 1; dtype_is_real((DType)real) && t < DT_COUNT; t++) {
            const DType to = dtype_map_all((DType)real).to[t];
            if (!dtype_is_real((DType)t))
                assert_int_equal(to, t);
            else if (real != DT_f64)
                assert_int_equal(to, real);
            else /* a pair of numbers stays a pair */
                assert_int_equal(to, dtype_numbers((DType)t) == 2 ? DT_f64x2 : DT_f64);
        }
    assert_int_equal(all.to[DT_bf16], DT_f64);
    assert_int_equal(all.to[DT_e5m2], DT_f64);
    assert_int_equal(all.to[DT_i32], DT_i32); /* token ids keep their dtype */
    assert_int_equal(same.to[DT_e4m3], DT_e4m3);
}

/* layout_change returns the change from one layout to another: a collective, a slice, nothing, or
 * that none is possible. */
static void two_layouts_decide_the_change_between_them(void **state)
{
    (void)state;
    assert_int_equal(layout_change(WHOLE, WHOLE), CHANGE_nothing);
    assert_int_equal(layout_change(WHOLE, SPLIT(1)), CHANGE_slice);
    assert_int_equal(layout_change(SPLIT(0), WHOLE), CHANGE_all_gather);
    assert_int_equal(layout_change(SPLIT(0), SPLIT(1)), CHANGE_all_to_all);
    assert_int_equal(layout_change(SPLIT(1), SPLIT(1)), CHANGE_nothing);
    assert_int_equal(layout_change(PARTIAL_SUM, WHOLE), CHANGE_all_reduce);
    assert_int_equal(layout_change(PARTIAL_MAX, WHOLE), CHANGE_all_reduce);
    assert_int_equal(layout_change(PARTIAL_SUM, SPLIT(0)), CHANGE_reduce_scatter);
    assert_int_equal(layout_change(WHOLE, PARTIAL_SUM), CHANGE_impossible);
    assert_int_equal(layout_change(SPLIT(0), PARTIAL_SUM), CHANGE_impossible);
    assert_int_equal(layout_change(PARTIAL_MAX, PARTIAL_SUM), CHANGE_impossible);
}

static void a_layout_lists_its_split_and_partial_axes(void **state)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = sizes[AXIS_cp] = sizes[AXIS_tp] = 2;
    Mesh m = mesh_make(sizes);
    Layout l = {.on = {SPLIT(0), PARTIAL_SUM, SPLIT(0)}}, zero = {.on = {0}};
    assert_int_equal(layout_axes_split(&l, 0), 5);
    assert_int_equal(layout_axes_split(&l, 1), 0);
    assert_int_equal(layout_axes_split(&l, -1), 5);
    assert_int_equal(layout_axes_partial(&l), 2);
    assert_false(layout_equal(&l, &zero));
    assert_string_equal(layout_text(*state, &m, &l), "dp_shard:0 cp:sum tp:0");
    assert_string_equal(layout_text(*state, &m, &zero), "whole");
}

/* Checks that exactly one part holds each global index. */
static void owns_each_once(const Deals *deals, DealId id, int64_t size, uint32_t n_parts)
{
    uint8_t seen[64] = {0};
    int64_t sum = 0;
    assert_true(size <= 64);
    for (uint32_t p = 0; p < n_parts; p++) {
        Interval part;
        int64_t held = 0;
        for (uint32_t k = 0; deal_interval(deals, id, size, n_parts, p, k, &part); k++) {
            for (int64_t i = part.lo; i < part.hi; i++) seen[i]++;
            held += part.hi - part.lo;
        }
        assert_int_equal(held, deal_valid(deals, id, size, n_parts, p));
        assert_true(held <= deal_local(deals, id, size, n_parts));
        sum += held;
    }
    assert_int_equal(sum, size);
    for (int64_t i = 0; i < size; i++) assert_int_equal(seen[i], 1);
}

static void every_element_is_in_one_part_of_a_deal(void **state)
{
    Deals deals;
    memset(&deals, 0, sizeof deals);
    for (uint32_t parts = 1; parts <= 8; parts++)
        for (int64_t size = 1; size <= 40; size++) {
            DealId id = deal_ceil(&deals, *state, size, parts);
            assert_int_equal(id == 0, size % parts == 0);
            /* equal deals are stored once */
            assert_int_equal(deal_ceil(&deals, *state, size, parts), id);
            assert_int_equal(deal_local(&deals, id, size, parts), (size + parts - 1) / parts);
            owns_each_once(&deals, id, size, parts);
        }
    const Interval zigzag[] = {{0, 4},  {28, 32}, {4, 8},   {24, 28},
                               {8, 12}, {20, 24}, {12, 16}, {16, 20}};
    DealId z = deal_listed(&deals, *state, 32, 4, 2, zigzag);
    assert_int_equal(deal_listed(&deals, *state, 32, 4, 2, zigzag), z);
    assert_int_equal(deal_local(&deals, z, 32, 4), 8);
    owns_each_once(&deals, z, 32, 4);
    assert_int_equal(deal_zigzag(&deals, *state, 32, 4), z);
    assert_true(deal_is_zigzag(&deals, z));
    const DealId turned = deal_turn(&deals, *state, z, 32, 4);
    for (uint32_t p = 0; p < 4; p++)
        for (int64_t i = 0; i < 8; i++)
            assert_int_equal(deal_index(&deals, turned, 32, 4, (p + 1) % 4, i),
                             deal_index(&deals, z, 32, 4, p, i));
    DealId again = turned, equal = 0;
    for (int k = 1; k < 4; k++) again = deal_turn(&deals, *state, again, 32, 4);
    assert_int_equal(again, z);
    for (int k = 0; k < 4; k++) {
        equal = deal_turn(&deals, *state, equal, 32, 4);
        assert_int_equal(equal == 0, k == 3);
    }
    /* each part is split over four more ranks */
    const DealId inner = deal_cut(&deals, *state, z, 4);
    owns_each_once(&deals, inner, 32, 16);
    for (uint32_t part = 0; part < 16; part++)
        for (int64_t i = 0; i < 2; i++)
            assert_int_equal(deal_index(&deals, inner, 32, 16, part, i),
                             deal_index(&deals, z, 32, 4, part / 4, part % 4 * 2 + i));
    const DealId odd = deal_cut(&deals, *state, deal_zigzag(&deals, *state, 36, 2), 3);
    owns_each_once(&deals, odd, 36, 6);
    /* This is the last index of the first chunk. */
    assert_int_equal(deal_index(&deals, odd, 36, 6, 1, 2), 8);
    /* This is the first index of the second chunk. */
    assert_int_equal(deal_index(&deals, odd, 36, 6, 1, 3), 27);
    assert_false(deal_is_zigzag(&deals, inner));
    const Interval crop[] = {{0, 5}, {0, 0}, {5, 7}, {0, 0}};
    DealId c = deal_listed(&deals, *state, 7, 2, 2, crop);
    assert_int_not_equal(c, z);
    assert_false(deal_is_zigzag(&deals, c));
    assert_int_equal(deal_local(&deals, c, 7, 2), 5);
    assert_int_equal(deal_valid(&deals, c, 7, 2, 1), 2);
    owns_each_once(&deals, c, 7, 2);
}

/* Nine elements over four ranks in parts of the rounded-up size: 3, 3, 3, 0. */
static void a_part_of_a_deal_may_be_empty(void **state)
{
    Deals deals;
    Interval part;
    memset(&deals, 0, sizeof deals);
    DealId id = deal_ceil(&deals, *state, 9, 4);
    assert_true(deal_interval(&deals, id, 9, 4, 2, 0, &part));
    assert_int_equal(part.hi, 9);
    assert_false(deal_interval(&deals, id, 9, 4, 3, 0, &part));
    assert_int_equal(deal_valid(&deals, id, 9, 4, 3), 0);
}

/* Over all ranks, the local boxes of a shape cover the global box exactly once for each replica. */
static void local_boxes_tile_the_global_shape(void **state)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = 3;
    sizes[AXIS_cp] = 2;
    sizes[AXIS_tp] = 2;
    Mesh m = mesh_make(sizes);
    Deals deals;
    memset(&deals, 0, sizeof deals);
    Shape s = {.n_dims = 2, .dim = {10, 5}, .layout.on = {SPLIT(0), PARTIAL_SUM, SPLIT(1)}};
    s.deal[0] = deal_ceil(&deals, *state, 10, 3);
    s.deal[1] = deal_ceil(&deals, *state, 5, 2);
    assert_int_equal(shape_local_dim(&s, &m, &deals, 0), 4);
    assert_int_equal(shape_local_dim(&s, &m, &deals, 1), 3);
    assert_int_equal(shape_local_elements(&s, &m, &deals), 12);
    uint8_t seen[10][5] = {{0}};
    for (Rank r = 0; r < m.n_ranks; r++) {
        int64_t i0 = shape_start(&s, &m, &deals, 0, r), n0 = shape_valid(&s, &m, &deals, 0, r);
        int64_t i1 = shape_start(&s, &m, &deals, 1, r), n1 = shape_valid(&s, &m, &deals, 1, r);
        for (int64_t i = i0; i < i0 + n0; i++)
            for (int64_t k = i1; k < i1 + n1; k++) seen[i][k]++;
    }
    for (int i = 0; i < 10; i++) /* each of the two cp ranks has a partial sum */
        for (int k = 0; k < 5; k++) assert_int_equal(seen[i][k], 2);
    Shape both = {.n_dims = 1, .dim = {12}, .layout.on = {SPLIT(0), WHOLE, SPLIT(0)}};
    assert_int_equal(shape_parts(&both, &m, 0), 6);
    assert_int_equal(shape_part(&both, &m, 0, 5), 3); /* rank 5: dp_shard 1, cp 0, tp 1 */
    assert_int_equal(shape_start(&both, &m, &deals, 0, 5), 6);
    /* A dimension that no axis splits is whole on each rank, also if it has a deal. */
    const Shape whole = {.n_dims = 1, .dim = {32}, .deal = {deal_zigzag(&deals, *state, 32, 4)}};
    for (Rank r = 0; r < m.n_ranks; r++) {
        assert_int_equal(shape_start(&whole, &m, &deals, 0, r), 0);
        assert_int_equal(shape_valid(&whole, &m, &deals, 0, r), 32);
        assert_int_equal(shape_local_dim(&whole, &m, &deals, 0), 32);
    }
    assert_false(shape_equal(&s, &both));
    assert_true(shape_equal(&s, &s));
    Shape scalar = {.n_dims = 0};
    assert_int_equal(shape_local_elements(&scalar, &m, &deals), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_maps_of_dtypes_agree),
        cmocka_unit_test(two_layouts_decide_the_change_between_them),
        cmocka_unit_test_setup_teardown(a_layout_lists_its_split_and_partial_axes, setup, teardown),
        cmocka_unit_test_setup_teardown(every_element_is_in_one_part_of_a_deal, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_of_a_deal_may_be_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(local_boxes_tile_the_global_shape, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
