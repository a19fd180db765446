/* Parts that also have rows of their neighbours (halos). The tests compare with the whole
 * dimension: the rows that a part receives and sends, the kernels that fill and read strips, and
 * the exchange. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/ready.h"
#include "planner/base/rng.h"

enum { MOST_PARTS = 5, MOST_ROWS = 40, OUTER = 2, INNER = 3, N = OUTER * MOST_ROWS * INNER };

typedef struct Case {
    int64_t size;
    uint32_t n_parts;
    bool wraps;
    Deals deals;
    DealId id;
    /* how many rows the buffers `own` and `held` have */
    int64_t own_rows, held_rows;
    double whole[N], own[MOST_PARTS][N], held[MOST_PARTS][2 * N], strips[2][MOST_PARTS][2 * N];
} Case;

static int64_t draw(uint64_t seed, uint64_t stream, int64_t below)
{
    return (int64_t)rng_below(seed, stream, 0, (uint64_t)below);
}

/* Draws random halos, none wider than a neighbour. */
static void make_case(Case *c, Arena *arena, uint64_t seed, DealKind kind)
{
    memset(c, 0, sizeof *c);
    c->n_parts = 2 + (uint32_t)draw(seed, 1, MOST_PARTS - 1);
    c->size = c->n_parts + draw(seed, 2, MOST_ROWS - MOST_PARTS);
    c->wraps = draw(seed, 3, 2);
    Interval held[MOST_PARTS], own[MOST_PARTS];
    for (uint32_t p = 0; p < c->n_parts; p++)
        if (!deal_interval(&c->deals, 0, c->size, c->n_parts, p, 0, &own[p]))
            own[p] = (Interval){c->size, c->size};
    for (uint32_t p = 0; p < c->n_parts; p++) {
        const Interval *previous = &own[(p + c->n_parts - 1) % c->n_parts];
        const Interval *next = &own[(p + 1) % c->n_parts];
        const bool first = p == 0 && !c->wraps, last = p + 1 == c->n_parts && !c->wraps;
        int64_t before = first ? 0 : draw(seed, 10 + p, previous->hi - previous->lo + 1);
        int64_t after = last ? 0 : draw(seed, 20 + p, next->hi - next->lo + 1);
        held[p] = (Interval){own[p].lo - before, own[p].hi + after};
    }
    c->id = deal_around(&c->deals, arena, kind, c->size, c->n_parts, held);
    c->own_rows = deal_local(&c->deals, 0, c->size, c->n_parts);
    c->held_rows = deal_local(&c->deals, c->id, c->size, c->n_parts);
    for (int64_t i = 0; i < N; i++) c->whole[i] = rng_normal(seed, 5, (uint64_t)i);
}

static Halo halo_of(const Case *c, uint32_t part)
{
    Halo h;
    assert_true(halo_find(&c->deals, c->size, c->n_parts, part, c->id, &h));
    return h;
}

static void run(const Case *c, OpKind op, uint32_t part, double *a, double *b, double *out)
{
    const bool joins = out != NULL;
    KernelArgs args = {.n_in = joins ? 2 : 1,
                       .n_args = joins ? 3 : 2,
                       .outer = OUTER,
                       .inner = INNER,
                       .middle = c->own_rows,
                       .part_size = c->held_rows};
    args.halo = halo_of(c, part);
    const int64_t own = OUTER * INNER * c->own_rows, held = OUTER * INNER * c->held_rows;
    const bool of_held = op == OP_halo_cut || op == OP_halo_fold;
    args.ptr[0] = a, args.ptr[1] = b, args.ptr[2] = out;
    for (int i = 0; i < 3; i++) args.dtype[i] = DT_f64;
    args.elements[0] = of_held ? held : own;
    args.elements[1] = 2 * OUTER * INNER * args.halo.strip;
    args.elements[2] = of_held ? own : held;
    kernel_cpu(op)(&args);
}

static void exchange(Case *c)
{
    Comm at[MOST_PARTS];
    const Comm *member[MOST_PARTS];
    for (uint32_t p = 0; p < c->n_parts; p++) {
        const Halo h = halo_of(c, p);
        const uint64_t bytes = 2 * OUTER * INNER * (uint64_t)h.strip * sizeof(double);
        at[p] = (Comm){.op = OP_halo_exchange,
                       .dtype = DT_f64,
                       .n_members = c->n_parts,
                       .part = p,
                       .in = (char *)c->strips[0][p],
                       .out = (char *)c->strips[1][p],
                       .in_bytes = bytes,
                       .out_bytes = bytes,
                       .wraps = h.wraps};
        member[p] = &at[p];
        /* These bytes are a huge number, which no kernel may read. */
        memset(c->strips[1][p], 0x7f, sizeof c->strips[1][p]);
    }
    collective_move(member, c->n_parts);
}

static double *element(double *rows, int64_t n_rows, int64_t o, int64_t row, int64_t i)
{
    return &rows[(o * n_rows + row) * INNER + i];
}

/* A part has its own rows and rows of its neighbours. Each equals the row of the whole that the
 * deal names. */
static void halos_come_from_neighbours(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Case *c = arena_alloc(arena, sizeof *c);
    uint32_t n_wrap = 0, n_rows = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        make_case(c, arena, seed, DEAL_halo);
        for (uint32_t p = 0; p < c->n_parts; p++) {
            const Halo h = halo_of(c, p);
            n_wrap += h.wraps;
            for (int64_t o = 0; o < OUTER; o++)
                for (int64_t r = h.own.lo; r < h.own.hi; r++)
                    for (int64_t i = 0; i < INNER; i++)
                        *element(c->own[p], c->own_rows, o, r - h.own.lo, i) =
                            *element(c->whole, c->size, o, r, i);
            run(c, OP_halo_pack, p, c->own[p], c->strips[0][p], NULL);
        }
        exchange(c);
        for (uint32_t p = 0; p < c->n_parts; p++) {
            const Halo h = halo_of(c, p);
            run(c, OP_halo_join, p, c->own[p], c->strips[1][p], c->held[p]);
            for (int64_t o = 0; o < OUTER; o++)
                for (int64_t k = 0; k < c->held_rows; k++)
                    for (int64_t i = 0; i < INNER; i++) {
                        const double is = *element(c->held[p], c->held_rows, o, k, i);
                        if (k >= h.held.hi - h.held.lo) {
                            /* A part that is smaller than the largest part has padding. */
                            assert_true(is == 0);
                            continue;
                        }
                        int64_t row = deal_index(&c->deals, c->id, c->size, c->n_parts, p, k);
                        assert_int_equal(row, (h.held.lo + k + c->size) % c->size);
                        assert_true(is == *element(c->whole, c->size, o, row, i));
                        n_rows++;
                    }
        }
    }
    assert_true(n_wrap > 50 && n_rows > 1000);
    arena_free(arena);
}

/* Several parts have shares of one row. The sum of these shares arrives at the row's owner. */
static void shares_go_back_to_owners(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Case *c = arena_alloc(arena, sizeof *c);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        make_case(c, arena, seed, DEAL_overlap);
        double sum[N] = {0};
        for (uint32_t p = 0; p < c->n_parts; p++) {
            const Halo h = halo_of(c, p);
            for (int64_t o = 0; o < OUTER; o++)
                for (int64_t k = 0; k < h.held.hi - h.held.lo; k++)
                    for (int64_t i = 0; i < INNER; i++) {
                        int64_t row = deal_index(&c->deals, c->id, c->size, c->n_parts, p, k);
                        double *share = element(c->held[p], c->held_rows, o, k, i);
                        /* Shares are whole numbers, so sums are exact in any order. */
                        *share = (double)draw(seed, (uint64_t)(share - c->held[0]) + 100, 1000);
                        *element(sum, c->size, o, row, i) += *share;
                    }
            run(c, OP_halo_cut, p, c->held[p], c->strips[0][p], NULL);
        }
        exchange(c);
        for (uint32_t p = 0; p < c->n_parts; p++) {
            const Halo h = halo_of(c, p);
            run(c, OP_halo_fold, p, c->held[p], c->strips[1][p], c->own[p]);
            for (int64_t o = 0; o < OUTER; o++)
                for (int64_t r = h.own.lo; r < h.own.hi; r++)
                    for (int64_t i = 0; i < INNER; i++)
                        assert_true(*element(c->own[p], c->own_rows, o, r - h.own.lo, i) ==
                                    *element(sum, c->size, o, r, i));
        }
    }
    arena_free(arena);
}

/* A deal that needs rows from beyond the neighbours is refused. */
static void halos_beyond_the_neighbours_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Deals deals = {0};
    Halo h;
    const Interval fine[] = {{0, 4}, {0, 6}, {2, 6}}, far[] = {{0, 5}, {1, 6}, {4, 6}};
    DealId id = deal_around(&deals, arena, DEAL_halo, 6, 3, fine);
    assert_true(halo_find(&deals, 6, 3, 1, id, &h));
    assert_int_equal(h.before, 2);
    assert_int_equal(h.after, 2);
    assert_int_equal(h.to_next, 2);
    assert_int_equal(h.to_previous, 2);
    assert_int_equal(h.strip, 2);
    assert_false(h.wraps);
    id = deal_around(&deals, arena, DEAL_halo, 6, 3, far); /* part 0 reads a row of part 2 */
    assert_false(halo_find(&deals, 6, 3, 1, id, &h));
    const Interval ring[] = {{-1, 3}, {2, 6}, {4, 6}};
    id = deal_around(&deals, arena, DEAL_halo, 6, 3, ring);
    assert_true(halo_find(&deals, 6, 3, 2, id, &h));
    assert_true(h.wraps);
    assert_int_equal(h.to_next, 1);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halos_come_from_neighbours),
        cmocka_unit_test(shares_go_back_to_owners),
        cmocka_unit_test(halos_beyond_the_neighbours_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
