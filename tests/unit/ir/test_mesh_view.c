/* Questions about a mesh: where ranks are, which ranks read the same samples, over which ranks
 * parameters are sharded, and which ranks share folded experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/ir/layout/mesh_view.h"
#include "tests/support/test_diag.h"

static Mesh draw(uint64_t i)
{
    uint32_t sizes[AXIS_NAMES];
    for (uint32_t a = 0; a < AXIS_NAMES; a++) sizes[a] = 1 + (uint32_t)rng_below(7, i, a, 3);
    sizes[AXIS_dp_shard] *= 2;
    Mesh mesh = mesh_make(sizes);
    if (i % 2 && sizes[AXIS_dp_shard] > 2) /* the axis is refined, but callers still see one axis */
        for (uint32_t a = 0; a < mesh.n_axes; a++)
            if (mesh.axis[a].name == AXIS_dp_shard) {
                mesh_refine(&mesh, arena, a, 2);
                break;
            }
    return mesh;
}

static void a_rank_and_its_place_are_inverse(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        Mesh mesh = draw(i);
        for (Rank r = 0; r < mesh.n_ranks; r++) {
            uint32_t at[AXIS_NAMES];
            mesh_place(&mesh, r, at);
            assert_int_equal(mesh_rank_at(&mesh, at), r);
        }
    }
}

/* dp_rank = replica * shards + shard, where ranks with different experts count as shards. dp_size
 * is the number of ranks divided by the sizes of all other axes. Two ranks read the same samples
 * exactly if they have equal coordinates on all data axes. */
static void ranks_of_one_data_rank_read_the_same_samples(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        Mesh mesh = draw(i);
        uint32_t ep = mesh_size(&mesh, mesh_axes(&mesh, AXIS_ep)), others = 1,
                 shards = mesh_size(&mesh, mesh_axes(&mesh, AXIS_dp_shard));
        for (uint32_t a = 0; a < AXIS_NAMES; a++)
            if (a != AXIS_dp_shard && a != AXIS_dp_replicate && a != AXIS_ep)
                others *= mesh_size(&mesh, mesh_axes(&mesh, (AxisName)a));
        assert_int_equal(mesh_dp_size(&mesh), mesh.n_ranks / others);
        for (Rank r = 0; r < mesh.n_ranks; r++) {
            uint32_t at[AXIS_NAMES];
            mesh_place(&mesh, r, at);
            assert_int_equal(mesh_dp_rank(&mesh, r),
                             (at[AXIS_dp_replicate] * shards + at[AXIS_dp_shard]) * ep +
                                 at[AXIS_ep]);
            Rank other = (Rank)rng_below(3, i, r, mesh.n_ranks);
            uint32_t its[AXIS_NAMES];
            mesh_place(&mesh, other, its);
            bool same = at[AXIS_dp_replicate] == its[AXIS_dp_replicate] &&
                        at[AXIS_dp_shard] == its[AXIS_dp_shard] && at[AXIS_ep] == its[AXIS_ep];
            assert_true(same == (mesh_dp_rank(&mesh, r) == mesh_dp_rank(&mesh, other)));
            assert_true(same == (mesh_group(&mesh, r, (AxisSet)~mesh_data_axes(&mesh)) ==
                                 mesh_group(&mesh, other, (AxisSet)~mesh_data_axes(&mesh))));
        }
    }
}

static Mesh of(uint32_t replicate, uint32_t shard, uint32_t cp, uint32_t tp)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_replicate] = replicate, sizes[AXIS_dp_shard] = shard, sizes[AXIS_cp] = cp;
    sizes[AXIS_tp] = tp;
    return mesh_make(sizes);
}

static void the_data_mesh_has_replicate_and_shard_dimensions(void **state)
{
    (void)state;
    DpMesh dp;
    Loc none = {NULL, 0};
    Mesh both = of(2, 4, 1, 2), shard = of(1, 4, 1, 2), replicate = of(2, 1, 1, 2),
         neither = of(1, 1, 1, 2);
    assert_true(mesh_dp(&both, arena, none, &diag, &dp));
    assert_int_equal(dp.n_dims, 2);
    assert_string_equal(dp.name[0], "replicate");
    assert_string_equal(dp.name[1], "shard");
    assert_int_equal(mesh_size(&both, dp.axes[1]), 4);
    assert_true(mesh_dp(&shard, arena, none, &diag, &dp));
    assert_int_equal(dp.n_dims, 1);
    assert_string_equal(dp.name[0], "shard");
    assert_true(mesh_dp(&replicate, arena, none, &diag, &dp));
    assert_string_equal(dp.name[0], "replicate"); /* replicas: no parameter is sharded over them */
    Mesh experts = mesh_make((uint32_t[AXIS_NAMES]){[AXIS_ep] = 2, [AXIS_tp] = 2});
    /* All parameters except the experts are sharded there. */
    assert_true(mesh_dp(&experts, arena, none, &diag, &dp));
    assert_string_equal(dp.name[0], "shard");
    assert_int_equal(dp.axes[0], mesh_axes(&experts, AXIS_ep));
    assert_true(mesh_has_dp(&replicate));
    assert_false(mesh_has_dp(&neither));
    assert_false(mesh_dp(&neither, arena, none, &diag, &dp));
    assert_string_equal(diag.items.at[0].rule, "no-dp-mesh");
    assert_non_null(strstr(diag.items.at[0].text, "tp 2"));
}

static void flattened_names_select_their_axes(void **state)
{
    (void)state;
    Mesh mesh = of(2, 4, 3, 2);
    AxisSet axes;
    static const struct {
        const char *name;
        uint32_t size;
    } rows[] = {{"dp", 8}, {"dp_shard_cp", 12}, {"dp_cp", 24}, {"tp", 2}, {"pp", 1}, {"cp", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(mesh_named(&mesh, rows[i].name, &axes));
        assert_int_equal(mesh_size(&mesh, axes), rows[i].size);
    }
    assert_false(mesh_named(&mesh, "data", &axes));
}

static void groups_count_the_nodes_that_they_span(void **state)
{
    (void)state;
    Mesh mesh = of(2, 4, 1, 2); /* 16 ranks, on nodes of 8 ranks and then of 3 */
    assert_int_equal(mesh_nodes_of_groups(&mesh, mesh_axes(&mesh, AXIS_tp), 8), 1);
    assert_int_equal(mesh_nodes_of_groups(&mesh, mesh_axes(&mesh, AXIS_dp_shard), 8), 1);
    assert_int_equal(mesh_nodes_of_groups(&mesh, mesh_axes(&mesh, AXIS_dp_replicate), 8), 2);
    assert_int_equal(mesh_nodes_of_groups(&mesh, mesh_axes(&mesh, AXIS_tp), 3), 2);
}

/* In a stage of dp x cp x tp, ep is the innermost axis, so consecutive ranks share a layer's
 * experts.
 */
static void folded_experts_lie_on_consecutive_ranks(void **state)
{
    (void)state;
    uint32_t sizes[AXIS_NAMES] = {0}, ep, shard;
    sizes[AXIS_pp] = 2, sizes[AXIS_dp_shard] = 4, sizes[AXIS_cp] = 3, sizes[AXIS_tp] = 2;
    Mesh mesh = mesh_make(sizes);
    const EpFold fold = mesh_fold_ep(&mesh, 8);
    assert_int_equal(fold.ep_shard, 4 * 3 * 2 / 8);
    uint32_t seen[2][8][3] = {{{0}}};
    for (Rank r = 0; r < mesh.n_ranks; r++) {
        mesh_ep_place(&mesh, &fold, r, &ep, &shard);
        assert_int_equal(ep, r % 24 % 8);
        seen[r / 24][ep][shard]++;
    }
    for (int s = 0; s < 2; s++)
        for (int e = 0; e < 8; e++)
            for (int k = 0; k < 3; k++) assert_int_equal(seen[s][e][k], 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_and_its_place_are_inverse),
        TEST(ranks_of_one_data_rank_read_the_same_samples),
        TEST(the_data_mesh_has_replicate_and_shard_dimensions),
        TEST(flattened_names_select_their_axes),
        TEST(groups_count_the_nodes_that_they_span),
        TEST(folded_experts_lie_on_consecutive_ranks),
    };
    return cmocka_run_group_tests_name("mesh_view", tests, NULL, NULL);
}
