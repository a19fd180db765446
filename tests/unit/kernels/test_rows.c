/* A convolution in parts computes the same as the whole. Inner rows read only the rank's own rows.
 * Border rows also read rows of the neighbours, from strips. If columns are split, too, the centre
 * and the sides together compute the inner rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/strips.h"
#include "tests/support/ops/rows_case.h"

static double *poisoned(Arena *arena, int64_t n)
{
    double *x = arena_array(arena, (size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static void run(const RowsCase *c, OpKind dense, int part, double *a, double *b, double *strips,
                double *out, bool accumulate)
{
    Binding binding;
    const OpKind op = rows_case_op(c, dense);
    void *const border[] = {a, b, strips, out}, *const other[] = {a, b, out};
    KernelArgs args =
        rows_case_args(c, op, part, DT_f64, op_is_border(op) ? border : other, &binding);
    args.attrs.accumulate = accumulate;
    kernel_cpu(op)(&args);
}

/* Compares a part's rows of y with the same rows of the whole. */
static void check_rows(const RowsCase *c, uint32_t part, const double *is, const double *whole)
{
    const Interval out = c->out[part];
    for (int64_t p = 0; p < c->b * c->g * c->n; p++)
        for (int64_t r = out.lo; r < out.hi; r++)
            for (int64_t i = 0; i < c->columns; i++) {
                const double x = is[(p * c->made_rows + r - out.lo) * c->columns + i];
                const double y = whole[(p * c->made + r) * c->columns + i];
                assert_true(fabs(x - y) <= 1e-12 * (1 + fabs(y)));
            }
}

typedef struct Seen {
    uint32_t groups, wraps, uneven, no_inner, both_sides;
} Seen;

static void check_case(const RowsCase *c, Arena *arena, Seen *seen)
{
    const RowsCounts n = rows_case_counts(c);
    double *y = poisoned(arena, c->b * c->g * c->n * c->made * c->columns);
    double *weight = poisoned(arena, n.weight), *sum = poisoned(arena, n.weight);
    run(c, OP_conv2d, -1, c->x, c->weight, NULL, y, false);
    run(c, OP_conv2d_weight, -1, c->x, c->y, NULL, weight, false);
    for (uint32_t p = 0; p < c->n_parts; p++) {
        double *x = poisoned(arena, n.x), *strips = poisoned(arena, n.strips);
        double *dy = poisoned(arena, n.y), *made = poisoned(arena, n.y);
        rows_case_part(c, p, DT_f64, x, strips, dy);
        run(c, OP_conv2d_inner, (int)p, x, c->weight, NULL, made, false);
        run(c, OP_conv2d_border, (int)p, x, c->weight, strips, made, true);
        check_rows(c, p, made, y);
        run(c, OP_conv2d_weight_inner, (int)p, x, dy, NULL, sum, p > 0);
        run(c, OP_conv2d_weight_border, (int)p, x, dy, strips, sum, true);
        Binding b;
        void *const ptr[] = {x, c->weight, strips, made};
        const OpKind border = rows_case_op(c, OP_conv2d_border);
        const KernelArgs args = rows_case_args(c, border, (int)p, DT_f64, ptr, &b);
        const OutputPoints rows = strips_output(border, &args);
        const Interval before = rows.at[0].h, behind = rows.at[1].h;
        seen->no_inner += before.hi == behind.lo;
        seen->both_sides += before.hi > 0 && behind.hi > behind.lo;
        seen->uneven += c->halo[p].own.hi - c->halo[p].own.lo < c->own_rows;
    }
    for (int64_t i = 0; i < n.weight; i++)
        assert_true(fabs(sum[i] - weight[i]) <= 1e-11 * (1 + fabs(weight[i])));
    seen->groups += c->groups;
    seen->wraps += c->halo[0].wraps;
}

static void inner_and_border_rows_make_the_whole(void **state)
{
    (void)state;
    Seen seen = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        Arena *arena = arena_new();
        RowsCase c;
        rows_case_draw(&c, arena, seed);
        check_case(&c, arena, &seen);
        arena_free(arena);
    }
    assert_true(seen.groups > 50 && seen.wraps > 20 && seen.uneven > 50);
    assert_true(seen.no_inner > 10 && seen.both_sides > 50);
}

/* Runs the kernel of inner rows for the output columns `own`. x has these columns, or also those
 * beside them. */
static void run_columns(const RowsCase *c, OpKind dense, uint32_t part, Interval own, int64_t which,
                        double *x, double *other, double *out)
{
    Binding binding;
    const OpKind op = rows_case_op(c, dense);
    void *const ptr[] = {x, other, out};
    KernelArgs args = rows_case_args(c, op, (int)part, DT_f64, ptr, &binding);
    rows_case_columns(c, op, own, which != ROWS_centre, &args);
    args.attrs.parts = which;
    args.attrs.accumulate = which == ROWS_sides;
    kernel_cpu(op)(&args);
}

static double *take(const RowsCase *c, const double *from, int64_t n, Interval at, Arena *arena)
{
    double *to = poisoned(arena, n / c->columns * (at.hi - at.lo));
    rows_case_take(c, DT_f64, from, n, at, to);
    return to;
}

static void check_equal(const double *is, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(is[i] - want[i]) <= 1e-11 * (1 + fabs(want[i])));
}

static void check_columns(const RowsCase *c, uint32_t part, Interval own, Arena *arena,
                          uint32_t *n_centres)
{
    const RowsCounts n = rows_case_counts(c);
    double *rows = poisoned(arena, n.x), *strips = poisoned(arena, n.strips);
    double *all = poisoned(arena, n.y);
    rows_case_part(c, part, DT_f64, rows, strips, all);
    const Interval held = {own.lo - 1, own.hi + 1};
    double *x = take(c, rows, n.x, own, arena), *wide = take(c, rows, n.x, held, arena);
    double *dy = take(c, all, n.y, own, arena);
    const int64_t points = n.y / c->columns * (own.hi - own.lo);
    double *want = poisoned(arena, points), *is = poisoned(arena, points);
    run_columns(c, OP_conv2d_inner, part, own, ROWS_all, wide, c->weight, want);
    run_columns(c, OP_conv2d_inner, part, own, ROWS_centre, x, c->weight, is);
    for (int64_t i = 0; i < points; i++) *n_centres += is[i] != 0;
    run_columns(c, OP_conv2d_inner, part, own, ROWS_sides, wide, c->weight, is);
    check_equal(is, want, points);
    double *weight = poisoned(arena, n.weight), *sum = poisoned(arena, n.weight);
    run_columns(c, OP_conv2d_weight_inner, part, own, ROWS_all, wide, dy, weight);
    run_columns(c, OP_conv2d_weight_inner, part, own, ROWS_centre, x, dy, sum);
    run_columns(c, OP_conv2d_weight_inner, part, own, ROWS_sides, wide, dy, sum);
    check_equal(sum, weight, n.weight);
}

static void centre_and_sides_make_the_inner_rows(void **state)
{
    (void)state;
    uint32_t n_centres = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        Arena *arena = arena_new();
        RowsCase c;
        rows_case_draw(&c, arena, seed);
        const int64_t middle = (c.columns + 1) / 2;
        for (uint32_t p = 0; p < c.n_parts; p++) {
            check_columns(&c, p, (Interval){0, middle}, arena, &n_centres);
            check_columns(&c, p, (Interval){middle, c.columns}, arena, &n_centres);
        }
        arena_free(arena);
    }
    assert_true(n_centres > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inner_and_border_rows_make_the_whole),
                                       cmocka_unit_test(centre_and_sides_make_the_inner_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
