/* CUDA kernels that compute a convolution in parts, compared with the CPU's kernels on the same
 * numbers. The parts are the inner rows, the border that reads halo strips, and the centre and
 * sides of the inner rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "tests/cuda/compare.h"
#include "tests/support/ops/rows_case.h"

enum { MOST = 4 };

static void copy_in(DType t, void *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) number_write(t, to, (uint64_t)i, from[i]);
}

/* The columns of a part of the inner rows, and which part it is. */
typedef struct Columns {
    Interval own;
    int64_t which;
} Columns;

/* Runs both kernels on equal arguments, and compares the outputs. The CPU then continues with the
 * device's output, so that the next part begins with equal numbers. */
static void both(const RowsCase *c, OpKind dense, int part, DType t, void *cpu[MOST],
                 void *device[MOST], bool accumulate, const Columns *columns)
{
    Binding b;
    const OpKind op = rows_case_op(c, dense);
    KernelArgs args = rows_case_args(c, op, part, t, cpu, &b);
    const uint32_t last = args.n_args - 1;
    args.attrs.accumulate = accumulate;
    if (columns) rows_case_columns(c, op, columns->own, columns->which != ROWS_centre, &args);
    if (columns) args.attrs.parts = columns->which;
    for (uint32_t i = 0; i <= last; i++)
        memcpy(device[i], cpu[i], (size_t)args.elements[i] * dtype_bytes(t));
    KernelArgs on_cpu = args;
    const uint64_t scratch = kernel_cpu_workspace(op, args.dtype, args.elements, args.n_args);
    on_cpu.dtype[args.n_args] = DT_u8;
    on_cpu.elements[args.n_args] = (int64_t)scratch;
    on_cpu.ptr[on_cpu.n_args++] = compare_alloc(scratch + 1, 0);
    kernel_cpu(op)(&on_cpu);
    memcpy(args.ptr, device, sizeof args.ptr[0] * args.n_args);
    CudaError error;
    assert_true(kernel_cuda_accepts(op, args.dtype, args.n_args));
    assert_true(TARGET_RUN(0, kernel_cuda(op)(&args, target_context(), &error), &error));
    for (int64_t i = 0; i < args.elements[last]; i++) {
        const double x = number_read(t, device[last], (uint64_t)i);
        const double y = number_read(t, cpu[last], (uint64_t)i);
        if (!(fabs(x - y) <= (t == DT_f32 ? 1e-4 : 4e-2) * (1 + fabs(y))))
            fail_msg("%s of part %d of %u: element %lld is %g, not %g", op_info(op)->name, part,
                     c->n_parts, (long long)i, x, y);
        assert_true(fabs(x - y) <= (t == DT_f32 ? 1e-4 : 4e-2) * (1 + fabs(y)));
    }
    memcpy(cpu[last], device[last], (size_t)args.elements[last] * dtype_bytes(t));
}

static void check_part(const RowsCase *c, uint32_t part, DType t)
{
    const RowsCounts n = rows_case_counts(c);
    const int64_t counts[] = {n.x, n.strips, n.y, n.weight};
    void *at[4], *there[4];
    for (int i = 0; i < 4; i++) {
        const uint64_t bytes = (uint64_t)counts[i] * dtype_bytes(t);
        at[i] = compare_alloc(bytes, 0), there[i] = compare_alloc(bytes, 0);
    }
    void *x = at[0], *strips = at[1], *y = at[2], *weight = at[3];
    rows_case_part(c, part, t, x, strips, y);
    copy_in(t, weight, c->weight, n.weight);
    both(c, OP_conv2d_inner, (int)part, t, (void *[MOST]){x, weight, y},
         (void *[MOST]){there[0], there[3], there[2]}, false, NULL);
    both(c, OP_conv2d_border, (int)part, t, (void *[MOST]){x, weight, strips, y},
         (void *[MOST]){there[0], there[3], there[1], there[2]}, true, NULL);
    both(c, OP_conv2d_weight_inner, (int)part, t, (void *[MOST]){x, y, weight},
         (void *[MOST]){there[0], there[2], there[3]}, false, NULL);
    both(c, OP_conv2d_weight_border, (int)part, t, (void *[MOST]){x, y, strips, weight},
         (void *[MOST]){there[0], there[2], there[1], there[3]}, true, NULL);
    compare_check();
    compare_free();
}

static void check_columns(const RowsCase *c, uint32_t part, Interval own, DType t)
{
    const RowsCounts n = rows_case_counts(c);
    const int64_t counts[] = {n.x, n.strips, n.y, n.weight, 2 * n.x, n.y};
    void *at[6], *there[6];
    for (int i = 0; i < 6; i++) {
        const uint64_t bytes = (uint64_t)counts[i] * dtype_bytes(t);
        at[i] = compare_alloc(bytes, 0), there[i] = compare_alloc(bytes, 0);
    }
    void *rows = at[0], *y = at[2], *weight = at[3], *x = at[4], *made = at[5];
    rows_case_part(c, part, t, rows, at[1], y);
    copy_in(t, weight, c->weight, n.weight);
    for (int64_t which = ROWS_centre; which <= ROWS_sides; which++) {
        const Columns columns = {own, which};
        const int64_t halo = which == ROWS_sides;
        rows_case_take(c, t, rows, n.x, (Interval){own.lo - halo, own.hi + halo}, x);
        both(c, OP_conv2d_inner, (int)part, t, (void *[MOST]){x, weight, made},
             (void *[MOST]){there[4], there[3], there[5]}, halo, &columns);
    }
    rows_case_take(c, t, y, n.y, own, made);
    for (int64_t which = ROWS_centre; which <= ROWS_sides; which++) {
        const Columns columns = {own, which};
        const int64_t halo = which == ROWS_sides;
        rows_case_take(c, t, rows, n.x, (Interval){own.lo - halo, own.hi + halo}, x);
        both(c, OP_conv2d_weight_inner, (int)part, t, (void *[MOST]){x, made, weight},
             (void *[MOST]){there[4], there[5], there[3]}, halo, &columns);
    }
    compare_check();
    compare_free();
}

static void parts_of_columns_match_the_cpu(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        Arena *arena = arena_new();
        RowsCase c;
        rows_case_draw(&c, arena, seed);
        const int64_t middle = (c.columns + 1) / 2;
        for (uint32_t p = 0; p < c.n_parts; p++) {
            check_columns(&c, p, (Interval){0, middle}, seed & 1 ? DT_f32 : DT_bf16);
            check_columns(&c, p, (Interval){middle, c.columns}, seed & 1 ? DT_f32 : DT_bf16);
        }
        arena_free(arena);
    }
}

static void parts_of_a_convolution_match_the_cpu(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        Arena *arena = arena_new();
        RowsCase c;
        rows_case_draw(&c, arena, seed);
        for (uint32_t p = 0; p < c.n_parts; p++) check_part(&c, p, seed & 1 ? DT_f32 : DT_bf16);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_a_convolution_match_the_cpu),
                                       cmocka_unit_test(parts_of_columns_match_the_cpu)};
    return cmocka_run_group_tests_name("CUDA kernels on parts of rows", tests, NULL, NULL);
}
