/* Meshes: each rank is in exactly one group along any axes, member and part numbers are inverse,
 * and refining an axis keeps the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/str.h"
#include "planner/ir/layout/mesh.h"

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

static Mesh make(uint32_t pp, uint32_t shard, uint32_t tp)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_pp] = pp;
    sizes[AXIS_dp_shard] = shard;
    sizes[AXIS_tp] = tp;
    return mesh_make(sizes);
}

static void ranks_are_numbered_in_row_major_order(void **state)
{
    (void)state;
    Mesh m = make(2, 3, 4);
    assert_int_equal(m.n_axes, 3);
    assert_int_equal(m.n_ranks, 24);
    assert_int_equal(m.axis[0].stride, 12);
    assert_int_equal(m.axis[1].stride, 4);
    assert_int_equal(m.axis[2].stride, 1); /* tp is innermost, so its peers are neighbours */
    assert_int_equal(mesh_coordinate(&m, 23, 0), 1);
    assert_int_equal(mesh_coordinate(&m, 17, 1), 1);
    assert_int_equal(mesh_coordinate(&m, 17, 2), 1);
    assert_string_equal(m.axis[1].text, "dp_shard");
    Mesh one = make(1, 0, 1);
    assert_int_equal(one.n_axes, 0);
    assert_int_equal(one.n_ranks, 1);
    assert_int_equal(mesh_axes(&one, AXIS_tp), 0);
}

/* A mesh has fewer than 2^31 ranks, so that two numbers of ranks can be added. */
static void too_many_ranks_are_refused(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 1U << 16; tp *= 2) {
        Mesh m = make(2, 2, 2);
        m.axis[0].size = 1U << 15, m.axis[2].size = tp;
        assert_int_equal(mesh_set_strides(&m), tp < 1U << 15);
    }
}

/* For every set of axes, groups are disjoint, cover all ranks, and are numbered consistently. */
static void groups_partition_the_ranks(void **state)
{
    (void)state;
    Mesh m = make(2, 3, 4);
    for (AxisSet axes = 0; axes < 8; axes++) {
        uint32_t seen[24] = {0}, n = mesh_size(&m, axes);
        for (Rank r = 0; r < m.n_ranks; r++) {
            uint32_t part = mesh_part(&m, r, axes);
            assert_true(part < n);
            assert_int_equal(mesh_member(&m, r, axes, part), r);
            Rank group = mesh_group(&m, r, axes);
            assert_int_equal(mesh_member(&m, r, axes, 0), group);
            assert_int_equal(mesh_part(&m, group, axes), 0);
            for (uint32_t i = 0; i < n; i++) {
                Rank peer = mesh_member(&m, r, axes, i);
                assert_int_equal(mesh_group(&m, peer, axes), group);
                assert_int_equal(mesh_part(&m, peer, axes), i);
                assert_true(group <= peer);
            }
            if (r == group)
                for (uint32_t i = 0; i < n; i++) seen[mesh_member(&m, r, axes, i)]++;
        }
        for (Rank r = 0; r < m.n_ranks; r++) assert_int_equal(seen[r], 1);
    }
}

static void the_outermost_axis_counts_first(void **state)
{
    (void)state;
    Mesh m = make(2, 3, 4);
    AxisSet both = (AxisSet)(mesh_axes(&m, AXIS_pp) | mesh_axes(&m, AXIS_tp));
    assert_int_equal(mesh_part(&m, 12 + 4 + 3, both), 4 + 3);
    assert_int_equal(mesh_member(&m, 4, both, 5), 12 + 4 + 1);
}

static void refining_an_axis_keeps_its_ranks(void **state)
{
    Mesh m = make(1, 8, 2), coarse = m;
    AxisSet shard = mesh_axes(&m, AXIS_dp_shard);
    mesh_refine(&m, *state, 0, 4);
    assert_int_equal(m.n_axes, 3);
    assert_int_equal(m.n_ranks, 16);
    assert_int_equal(m.axis[0].size, 2);
    assert_int_equal(m.axis[1].size, 4);
    assert_string_equal(m.axis[0].text, "dp_shard.0");
    assert_string_equal(m.axis[1].text, "dp_shard.1");
    assert_string_equal(m.axis[2].text, "tp");
    AxisSet refined = mesh_axes(&m, AXIS_dp_shard);
    assert_int_equal(refined, 3);
    for (Rank r = 0; r < 16; r++) {
        assert_int_equal(mesh_part(&m, r, refined), mesh_part(&coarse, r, shard));
        assert_int_equal(mesh_group(&m, r, 4), mesh_group(&coarse, r, 2));
    }
    mesh_refine(&m, *state, 1, 2);
    assert_int_equal(m.n_axes, 4);
    assert_string_equal(m.axis[1].text, "dp_shard.1");
    assert_string_equal(m.axis[2].text, "dp_shard.2");
    for (Rank r = 0; r < 16; r++)
        assert_int_equal(mesh_part(&m, r, 7), mesh_part(&coarse, r, shard));
}

/* A walk over a group visits the members in their order, and starts again after the last one. */
static void a_walk_visits_members_in_order(void **state)
{
    (void)state;
    Mesh m = make(3, 4, 2);
    for (AxisSet axes = 0; axes < 8; axes++)
        for (Rank r = 0; r < m.n_ranks; r++) {
            const uint32_t n = mesh_size(&m, axes);
            Rank at = mesh_group(&m, r, axes);
            for (uint32_t i = 0; i < 2 * n; i++, at = mesh_next(&m, at, axes))
                assert_int_equal(at, mesh_member(&m, r, axes, i % n));
        }
}

/* An axis may be made to nest inside all others. A rank keeps its coordinate along each named axis.
 * Groups along this and other axes are walked in rising order. */
static void an_axis_may_nest_inside_all_others(void **state)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = 2, sizes[AXIS_ep] = 3, sizes[AXIS_cp] = 2, sizes[AXIS_tp] = 4;
    const Mesh before = mesh_make(sizes);
    Mesh m = before;
    mesh_nest_last(&m, 1);
    assert_int_equal(m.n_ranks, before.n_ranks);
    assert_string_equal(mesh_axes_text(*state, &m, 15), "dp_shard,cp,tp,ep");
    assert_int_equal(m.axis[3].stride, 8);
    const AxisSet half = mesh_cut(&m, *state, AXIS_tp, 2);
    assert_string_equal(mesh_axes_text(*state, &m, half), "tp.1");
    for (Rank r = 0; r < m.n_ranks; r++)
        for (uint32_t name = 0; name < AXIS_NAMES; name++)
            assert_int_equal(mesh_part(&m, r, mesh_axes(&m, (AxisName)name)),
                             mesh_part(&before, r, mesh_axes(&before, (AxisName)name)));
    for (AxisSet axes = 0; axes < 32; axes++) {
        const uint32_t n = mesh_size(&m, axes);
        Rank at = mesh_group(&m, 17, axes), last = at;
        for (uint32_t i = 0; i < n; i++, last = at, at = mesh_next(&m, at, axes)) {
            assert_int_equal(at, mesh_rising(&m, 17, axes, i));
            assert_int_equal(mesh_group(&m, at, axes), mesh_group(&m, 17, axes));
            assert_true(i == 0 || at > last);
        }
    }
}

/* An axis of 6 ranks cannot be cut into both 2 and 3 parts, because these cuts do not nest. Whole
 * axes nest, and so does a cut that exists already.
 */
static void cuts_of_an_axis_must_nest(void **state)
{
    Mesh m = make(1, 2, 12);
    assert_int_equal(mesh_cut(&m, *state, AXIS_tp, 12), 2);
    assert_string_equal(mesh_axes_text(*state, &m, mesh_cut(&m, *state, AXIS_tp, 6)), "tp.1");
    assert_string_equal(mesh_axes_text(*state, &m, mesh_cut(&m, *state, AXIS_tp, 3)), "tp.2");
    assert_string_equal(mesh_axes_text(*state, &m, mesh_cut(&m, *state, AXIS_tp, 6)), "tp.1,tp.2");
    assert_int_equal(mesh_cut(&m, *state, AXIS_tp, 2), 0);
    assert_int_equal(mesh_cut(&m, *state, AXIS_tp, 4), 0);
    assert_int_equal(m.n_axes, 4);
}

static void axes_print_their_names(void **state)
{
    Mesh m = make(2, 8, 2);
    assert_string_equal(mesh_axes_text(*state, &m, 6), "dp_shard,tp");
    assert_string_equal(mesh_axes_text(*state, &m, 0), "-");
    assert_string_equal(axis_name_text(AXIS_dp_replicate), "dp_replicate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbered_in_row_major_order),
        cmocka_unit_test(too_many_ranks_are_refused),
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(the_outermost_axis_counts_first),
        cmocka_unit_test(a_walk_visits_members_in_order),
        cmocka_unit_test_setup_teardown(refining_an_axis_keeps_its_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(axes_print_their_names, setup, teardown),
        cmocka_unit_test_setup_teardown(an_axis_may_nest_inside_all_others, setup, teardown),
        cmocka_unit_test_setup_teardown(cuts_of_an_axis_must_nest, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
