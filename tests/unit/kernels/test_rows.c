/* A convolution in two parts computes what the whole does: the inner rows from the rank's own rows,
 * and the border with the neighbours' rows in strips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/strips.h"
#include "tests/support/rows_case.h"

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

/* Compares a part's rows of y with those of the whole. */
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
        const OutputRows rows = strips_output_rows(border, &args);
        seen->no_inner += rows.at[0].hi == rows.at[1].lo;
        seen->both_sides += rows.at[0].hi > 0 && rows.at[1].hi > rows.at[1].lo;
        seen->uneven += c->halo[p].own.hi - c->halo[p].own.lo < c->own_rows;
    }
    for (int64_t i = 0; i < n.weight; i++)
        assert_true(fabs(sum[i] - weight[i]) <= 1e-11 * (1 + fabs(weight[i])));
    seen->groups += c->groups;
    seen->wraps += c->halo[0].wraps;
}

static void two_parts_make_the_whole(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_parts_make_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
