/* Folding puts ranks with equal behaviour into one class, and simulates only one rank of each
 * class. The classes must equal those of a slow and obvious method. It divides classes until any
 * two ranks of a class agree in the classes of all ranks with which they communicate. All ranks are
 * on one node, so the network adds no differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/fold_private.h"
#include "tests/sim/synthetic.h"

enum { MOST_RANKS = 48 };

/* Adds messages around a ring of ranks and collectives to some programs. */
static Plan *draw(Arena *arena, Random *r, uint32_t pp, uint32_t dp, uint32_t tp)
{
    static const AxisName axes[] = {AXIS_pp, AXIS_dp_shard, AXIS_tp};
    Plan *plan = synthetic_plan(arena, pp, dp, tp, random_below(r, 2) ? pp : 1);
    uint32_t match = 1;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (uint32_t k = 0; k < 3; k++) {
            const AxisSet along = synthetic_axis(plan, axes[k]);
            const uint32_t kind = random_below(r, 4);
            if (mesh_size(&plan->mesh, along) < 2) continue;
            if (kind == 0) synthetic_comm(plan, i, STREAM_tp, OP_all_reduce, along, 0, match++, 8);
            if (kind < 2) continue;
            synthetic_comm(plan, i, STREAM_cp, OP_send, along, 1, match, 8);
            if (kind == 2) synthetic_comm(plan, i, STREAM_cp, OP_recv, along, -1, match, 8);
            match++;
        }
    return plan;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Writes everything that distinguishes a rank: its class, and for each communication of its program
 * the classes of the ranks that take part, in ascending order. Returns the number of words
 * written. */
static uint32_t describe(const Plan *plan, const uint32_t *class_of, Rank rank, uint32_t *out)
{
    const Mesh *mesh = &plan->mesh;
    const Program *p = plan_program(plan, rank);
    uint32_t n = 0;
    out[n++] = class_of[rank];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const uint32_t size = mesh_size(mesh, in->axes), part = mesh_part(mesh, rank, in->axes);
        if (in->hop != 0) {
            const uint32_t to = (part + size + (uint32_t)in->hop) % size;
            out[n++] = class_of[mesh_member(mesh, rank, in->axes, to)];
            continue;
        }
        for (uint32_t k = 0; k < size; k++)
            out[n + k] = class_of[mesh_member(mesh, rank, in->axes, k)];
        qsort(out + n, size, sizeof *out, by_number);
        n += size;
    }
    return n;
}

/* Divides the classes once, by comparing all pairs of ranks. Returns the new number of classes. */
static uint32_t divide(const Plan *plan, uint32_t *class_of)
{
    static uint32_t words[MOST_RANKS][1024];
    uint32_t n[MOST_RANKS], fresh[MOST_RANKS], n_classes = 0;
    const uint32_t n_ranks = plan->mesh.n_ranks;
    for (Rank r = 0; r < n_ranks; r++) {
        n[r] = describe(plan, class_of, r, words[r]);
        Rank like = 0;
        while (like < r && (plan->program_of[like] != plan->program_of[r] || n[like] != n[r] ||
                            memcmp(words[like], words[r], n[r] * sizeof **words) != 0))
            like++;
        fresh[r] = like < r ? fresh[like] : n_classes++;
    }
    memcpy(class_of, fresh, n_ranks * sizeof *fresh);
    return n_classes;
}

static void classes_are_those_of_a_slow_method(void **state)
{
    (void)state;
    uint32_t n_folded = 0, n_divided_twice = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        Arena *arena = arena_new();
        Random r = {seed, 0};
        const uint32_t pp = 1 + random_below(&r, 3), tp = 1 + random_below(&r, 2),
                       dp = 1 + random_below(&r, 8), every = 1 + random_below(&r, 6);
        const Plan *plan = draw(arena, &r, pp, dp, tp);
        const uint32_t n_ranks = plan->mesh.n_ranks;
        assert_true(n_ranks <= MOST_RANKS);
        uint32_t apart[MOST_RANKS], class_of[MOST_RANKS];
        for (Rank k = 0; k < n_ranks; k++) class_of[k] = apart[k] = k % every == 0;
        uint32_t before = 0, n = 0, rounds = 0;
        for (; n != before || rounds == 0; rounds++) {
            before = n;
            n = divide(plan, class_of);
        }
        const Fold *fold =
            fold_ranks_on(plan, (FoldNodes){.apart = every > 1 ? apart : NULL}, false, arena);
        if (fold->n_classes != n)
            fail_msg("seed %u: %u classes, expected %u", (unsigned)seed, fold->n_classes, n);
        assert_memory_equal(fold->class_of, class_of, n_ranks * sizeof *class_of);
        n_folded += n > 1 && n < n_ranks;
        n_divided_twice += rounds > 3 && n < n_ranks;
        arena_free(arena);
    }
    assert_true(n_folded > 100);
    assert_true(n_divided_twice > 20);
}

/* Links of one colour form one class, and classes are numbered in the order of their first use.
 * Links that no message uses have no class. The colours of this test agree in their
 * last bits, as hashes may by chance. */
static void links_of_one_colour_are_one_class(void **state)
{
    (void)state;
    enum { LINKS = 300 };
    Arena *arena = arena_new();
    Random r = {3, 0};
    for (uint32_t most = 1; most <= LINKS; most *= 3) {
        Colour colour[LINKS];
        uint32_t wanted[LINKS], n = 0;
        FoldEdges edges = {.kind = EDGE_ring};
        for (uint32_t i = 0; i < LINKS; i++) {
            const uint64_t number = random_below(&r, most);
            colour[i] = (Colour){5 | number << 40, number};
            if (i % 7 == 3) continue;
            list_push(arena, &edges.edges, ((FoldEdge){.link = i, .count = 1}));
            bool is_new = true;
            for (uint32_t k = 0; k < n; k++)
                is_new = is_new && !colour_same(colour[wanted[k]], colour[i]);
            if (is_new) wanted[n++] = i;
        }
        const Routes routes = {.n_links = LINKS};
        Fold fold = {.routes = &routes};
        list_push(arena, &fold.edges, edges);
        fold_number_links(&fold, colour, arena);
        assert_int_equal(fold.n_link_classes, n);
        assert_memory_equal(fold.link_of, wanted, n * sizeof *wanted);
    }
    arena_free(arena);
}

/* Draws programs that communicate along one axis or two, with or without stages. */
static Plan *draw_two_axes(Arena *arena, Random *r)
{
    const uint32_t pp = 1 + random_below(r, 3), dp = 1 + random_below(r, 8),
                   tp = 1 + random_below(r, 4);
    Plan *plan = synthetic_plan(arena, pp, dp, tp, random_below(r, 2) ? pp : 1);
    for (uint32_t match = 1; match <= 3 * plan->programs.n; match++) {
        const AxisSet along = (AxisSet)(1 + random_below(r, 7));
        const AxisSet all = (AxisSet)((1u << plan->mesh.n_axes) - 1);
        const bool message = random_below(r, 4) == 0;
        if (mesh_size(&plan->mesh, along & all) < 2) continue;
        synthetic_comm(plan, random_below(r, plan->programs.n), STREAM_tp,
                       message ? OP_send : OP_all_reduce, along & all, message ? 1 : 0, match, 8);
    }
    return plan;
}

static void same_numbers(const uint32_t *x, const uint32_t *y, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != y[i]) fail_msg("seed %u: %u or %u at %u", (unsigned)seed, x[i], y[i], i);
}

/* Only the first of the ranks that repeat each other is coloured. The classes must be those that
 * the colours of all ranks give. */
static void colours_of_repeated_ranks_change_nothing(void **state)
{
    (void)state;
    uint32_t n_networked = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        Arena *arena = arena_new();
        Random r = {seed, 1};
        Plan *plan = draw_two_axes(arena, &r);
        const uint32_t n_ranks = plan->mesh.n_ranks, odd = random_below(&r, 2 * n_ranks);
        if (odd < n_ranks && random_below(&r, 3) == 0) plan->program_of[odd] = plan->programs.n - 1;
        FoldNodes nodes = {.devices_per_node = random_below(&r, 9),
                           .nics_per_node = random_below(&r, 4),
                           .nodes_per_pod = random_below(&r, 4)};
        const Fold *x = fold_ranks_on(plan, nodes, false, arena);
        nodes.every_rank = true;
        const Fold *y = fold_ranks_on(plan, nodes, false, arena);
        assert_int_equal(x->n_classes, y->n_classes);
        same_numbers(x->class_of, y->class_of, n_ranks, seed);
        same_numbers(x->node_of, y->node_of, x->n_classes, seed);
        same_numbers(x->nic_of, y->nic_of, x->n_classes, seed);
        same_numbers(x->pod_of, y->pod_of, x->n_classes, seed);
        same_numbers(x->on_node, y->on_node, x->n_classes, seed);
        same_numbers(x->on_nic, y->on_nic, x->n_classes, seed);
        same_numbers(x->on_pod, y->on_pod, x->n_classes, seed);
        assert_int_equal(x->n_pod_classes, y->n_pod_classes);
        n_networked += x->n_node_classes > 1 || x->n_classes < n_ranks;
        arena_free(arena);
    }
    assert_true(n_networked > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes_are_those_of_a_slow_method),
                                       cmocka_unit_test(links_of_one_colour_are_one_class),
                                       cmocka_unit_test(colours_of_repeated_ranks_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
