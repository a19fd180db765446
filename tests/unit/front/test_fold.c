/* Experts folded into the ranks of a stage: which ranks share them, how the mesh is printed, and
 * what remains of the fold in the small plan of --verify. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/fold.h"
#include "tests/support/loaded.h"

typedef struct Case {
    const char *mesh;          /* the mesh of the script, with ep */
    const char *told, *folded; /* NULL: every rank has all experts */
    /* the size of axis ep; the ranks that share a layer's experts */
    uint32_t ep, experts;
    const char *small_told, *small_folded; /* the same for the small plan */
} Case;

static const Case cases[] = {
    {"dp_shard = 4, tp = 2, ep = 2", "dp_shard 4 x tp 2", "tp 2", 1, 2, "dp_shard 2 x tp 2",
     "tp 2"},
    {"dp_shard = 2, tp = 4, ep = 2", "dp_shard 2 x tp 4", "2 of tp 4", 1, 2, "dp_shard 2 x tp 4",
     "2 of tp 4"},
    {"dp_shard = 4, cp = 2, tp = 2, ep = 8", "dp_shard 4 x cp 2 x tp 2",
     "tp 2, cp 2, 2 of dp_shard 4", 2, 8, "dp_shard 4 x cp 2 x tp 2",
     "tp 2, cp 2, 2 of dp_shard 4"},
    {"dp_shard = 8, ep = 4", "dp_shard 8", "4 of dp_shard 8", 4, 4, "dp_shard 4",
     "2 of dp_shard 4"},
    {"dp_shard = 4, tp = 2, ep = 1", "dp_shard 4 x tp 2", NULL, 1, 1, "dp_shard 2 x tp 2", NULL},
    {"dp_replicate = 2, dp_shard = 2, ep = 4", "dp_replicate 2 x dp_shard 2",
     "dp_shard 2, dp_replicate 2", 4, 4, "dp_shard 2", "dp_shard 2"},
    {"dp_replicate = 6, dp_shard = 2, ep = 4", "dp_replicate 6 x dp_shard 2",
     "dp_shard 2, 2 of dp_replicate 6", 4, 4, "dp_replicate 3 x dp_shard 2", "dp_shard 2"},
    /* Two of the six ranks share experts. In the small plan, both of its ranks do. */
    {"cp = 6, ep = 2", "cp 6", "2 of cp 6", 1, 2, "cp 2", "cp 2"},
    /* Three of the six ranks share experts. No number of the small plan's two ranks is the same
     * share. */
    {"cp = 6, ep = 3", "cp 6", "3 of cp 6", 1, 3, "cp 2", NULL},
};

static Loaded load(const char *mesh, bool shrink)
{
    Arena *arena = arena_new();
    const FrontOptions options = {.shrink = shrink};
    const Loaded l = load_text(
        arena_print(
            arena,
            "return plan { model = require 'models.mixtral' { size = 'tiny', experts = 24 },\n"
            "  batch = { global = 24, seq = 48 }, mesh = { %s, ep_mode = 'folded' },\n"
            "  parallel = { tp {}, ep {}, cp {}, fsdp2 {} } }\n",
            mesh),
        &options);
    if (!l.fine) fail_msg("%s: %s", mesh, l.errors);
    arena_free(arena);
    return l;
}

static void compare(const Config *c, const char *mesh, const char *told, const char *folded)
{
    Arena *arena = arena_new();
    uint32_t lent[AXIS_NAMES], ranks = 1;
    const char *is = config_folded_text(arena, c);
    if (strcmp(config_mesh_text(arena, c), told) != 0)
        fail_msg("%s is told as %s, not %s", mesh, config_mesh_text(arena, c), told);
    if ((is == NULL) != (folded == NULL) || (is != NULL && strcmp(is, folded) != 0))
        fail_msg("%s is folded over %s, not %s", mesh, is, folded);
    /* A script must be able to request the printed mesh. */
    assert_true(fold_lends(c, config_expert_ranks(c), lent));
    for (uint32_t a = 0; a < AXIS_NAMES; a++) {
        assert_int_equal(lent[a], c->ep_lent[a] > 1 ? c->ep_lent[a] : 1);
        ranks *= c->axis_before[a];
    }
    assert_int_equal(ranks, config_ranks(c, ~(AxisNames)0));
    arena_free(arena);
}

/* The small model's experts divide evenly over all ranks that share them. Some of these ranks
 * belong to other axes than ep. */
static void experts_divide_evenly(const Loaded *small, const char *mesh)
{
    const Graph *g = &small->graph;
    const int64_t experts =
        g->tensors.at[loaded_tensor(g, "layers.0.feed_forward.w1.weight")].dim[0];
    if (experts % config_expert_ranks(&small->config) != 0)
        fail_msg("%s: the small model has %d experts", mesh, (int)experts);
}

static void a_folded_mesh_is_printed_as_in_its_script(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Loaded whole = load(c->mesh, false), small = load(c->mesh, true);
        compare(&whole.config, c->mesh, c->told, c->folded);
        assert_int_equal(whole.config.axis_size[AXIS_ep], c->ep);
        assert_int_equal(config_expert_ranks(&whole.config), c->experts);
        compare(&small.config, c->mesh, c->small_told, c->small_folded);
        experts_divide_evenly(&small, c->mesh);
        arena_free(whole.arena);
        arena_free(small.arena);
    }
}

/* The mesh has two data axes. Three ranks do not use up dp_shard = 2. Six ranks use up all of it
 * and a part of the other axis. */
static void the_mesh_before_the_fold_decides_which_sizes_of_ep_fit(void **state)
{
    (void)state;
    static const uint32_t fit[] = {1, 2, 4, 6, 12}, do_not[] = {3, 5, 8, 24};
    Loaded l = load("dp_replicate = 6, dp_shard = 2, ep = 4", false);
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++)
        assert_true(fold_could_be(&l.config, fit[i]));
    for (size_t i = 0; i < sizeof do_not / sizeof *do_not; i++)
        assert_false(fold_could_be(&l.config, do_not[i]));
    arena_free(l.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folded_mesh_is_printed_as_in_its_script),
        cmocka_unit_test(the_mesh_before_the_fold_decides_which_sizes_of_ep_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
