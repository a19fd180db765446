/* Parts whose rows lie at equal distances in the whole dimension. The tests compare with the whole
 * dimension: the kernels that pack and unpack pieces, and the exchange there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/ready.h"
#include "planner/base/rng.h"

enum { MOST_PARTS = 5, MOST_PIECES = 6, MOST_ROWS = 3, OUTER = 2, INNER = 3 };
enum { N = OUTER * MOST_PARTS * MOST_PIECES * MOST_ROWS * INNER };

typedef struct Case {
    int64_t size, rows; /* rows: the rows of a part */
    uint32_t n_parts, pieces;
    Deals deals;
    DealId id;
    double whole[N], own[MOST_PARTS][N], held[MOST_PARTS][N], back[MOST_PARTS][N];
    double sent[MOST_PARTS][MOST_PARTS * N], got[MOST_PARTS][MOST_PARTS * N];
} Case;

static Strides strides_of(const Case *c, uint32_t part, bool to_rows)
{
    Strides s;
    assert_true(strides_find(&c->deals, c->id, part, &s));
    s.to_rows = to_rows;
    return s;
}

static int64_t sent_elements(const Strides *s)
{
    return s->n_parts * OUTER * INNER * s->most * s->rows;
}

static void run(const Case *c, OpKind op, uint32_t part, bool to_rows, double *from, double *to)
{
    KernelArgs a = {.n_in = 1,
                    .n_args = 2,
                    .ptr = {from, to},
                    .dtype = {DT_f64, DT_f64},
                    .outer = OUTER,
                    .inner = INNER,
                    .middle = c->rows,
                    .strides = strides_of(c, part, to_rows)};
    a.elements[op == OP_stride_pack] = sent_elements(&a.strides);
    a.elements[op != OP_stride_pack] = OUTER * INNER * c->rows;
    kernel_cpu(op)(&a);
}

static void exchange(Case *c)
{
    Comm at[MOST_PARTS];
    const Comm *member[MOST_PARTS];
    for (uint32_t p = 0; p < c->n_parts; p++) {
        const Strides s = strides_of(c, p, false);
        const uint64_t bytes = (uint64_t)sent_elements(&s) * sizeof(double);
        at[p] = (Comm){.op = OP_all_to_all,
                       .dtype = DT_f64,
                       .n_members = c->n_parts,
                       .part = p,
                       .in = (char *)c->sent[p],
                       .out = (char *)c->got[p],
                       .in_bytes = bytes,
                       .out_bytes = bytes};
        member[p] = &at[p];
        memset(c->got[p], 0x7f, sizeof c->got[p]); /* a huge number, which must not remain */
    }
    collective_move(member, c->n_parts);
}

static double *element(double *rows, int64_t n_rows, int64_t o, int64_t row, int64_t i)
{
    return &rows[(o * n_rows + row) * INNER + i];
}

static void take_own_rows(Case *c)
{
    for (uint32_t p = 0; p < c->n_parts; p++)
        for (int64_t o = 0; o < OUTER; o++)
            for (int64_t r = 0; r < c->rows; r++)
                for (int64_t i = 0; i < INNER; i++)
                    *element(c->own[p], c->rows, o, r, i) =
                        *element(c->whole, c->size, o, p * c->rows + r, i);
}

/* Each row that a part has must equal the row of the whole that the deal names. In a part with
 * strides, row r of run x is row x * u + r of the whole. */
static void compare_held(Case *c)
{
    const int64_t u = c->size / c->pieces, each = u / c->n_parts;
    for (uint32_t p = 0; p < c->n_parts; p++)
        for (int64_t o = 0; o < OUTER; o++)
            for (int64_t r = 0; r < c->rows; r++)
                for (int64_t i = 0; i < INNER; i++) {
                    const int64_t row = deal_index(&c->deals, c->id, c->size, c->n_parts, p, r);
                    assert_int_equal(row, r / each * u + p * each + r % each);
                    assert_true(*element(c->held[p], c->rows, o, r, i) ==
                                *element(c->whole, c->size, o, row, i));
                }
}

static void exchanged_pieces_return_unchanged(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Case *c = arena_alloc(arena, sizeof *c);
    uint32_t n_uneven = 0;
    for (uint32_t parts = 2; parts <= MOST_PARTS; parts++)
        for (uint32_t pieces = 2; pieces <= MOST_PIECES; pieces++)
            for (int64_t rows = 1; rows <= MOST_ROWS; rows++) {
                memset(c, 0, sizeof *c);
                c->n_parts = parts, c->pieces = pieces, c->rows = pieces * rows;
                c->size = parts * c->rows;
                c->id = deal_strided(&c->deals, arena, c->size, parts, pieces);
                for (int64_t i = 0; i < N; i++) c->whole[i] = rng_normal(7, pieces, (uint64_t)i);
                n_uneven += pieces % parts != 0;
                take_own_rows(c);
                for (uint32_t p = 0; p < parts; p++)
                    run(c, OP_stride_pack, p, false, c->own[p], c->sent[p]);
                exchange(c);
                for (uint32_t p = 0; p < parts; p++)
                    run(c, OP_stride_unpack, p, false, c->got[p], c->held[p]);
                compare_held(c);
                for (uint32_t p = 0; p < parts; p++)
                    run(c, OP_stride_pack, p, true, c->held[p], c->sent[p]);
                exchange(c);
                for (uint32_t p = 0; p < parts; p++)
                    run(c, OP_stride_unpack, p, true, c->got[p], c->back[p]);
                assert_memory_equal(c->back, c->own, sizeof c->back);
            }
    assert_true(n_uneven > 20); /* parts must sometimes exchange different numbers of pieces */
    arena_free(arena);
}

/* A deal with one piece for each part is the usual deal of equal parts, in which a part's rows are
 * contiguous. */
static void a_deal_with_one_piece_for_each_part_is_contiguous(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Deals deals = {0};
    Strides s;
    const DealId id = deal_strided(&deals, arena, 12, 3, 2);
    assert_int_equal(deal_strided(&deals, arena, 12, 3, 1), 0);
    assert_int_equal(deal_strided(&deals, arena, 12, 3, 2), id);
    assert_false(strides_find(&deals, 0, 0, &s));
    assert_true(strides_find(&deals, id, 2, &s));
    assert_int_equal(s.pieces, 2);
    assert_int_equal(s.rows, 2);
    assert_int_equal(s.most, 1);
    assert_int_equal(deal_local(&deals, id, 12, 3), 4);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanged_pieces_return_unchanged),
        cmocka_unit_test(a_deal_with_one_piece_for_each_part_is_contiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
