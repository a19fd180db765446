/* CUDA kernels on the last part of a field whose rows and columns do not divide evenly over the
 * ranks. Local rows and columns beyond the field are padding. No sum may include them, and no
 * gradient may reach them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda/compare.h"
#include "tests/support/ops/fields.h"

/* This part has rows 8 to 10 of 11, and columns 14 to 19 of 20. The other parts have 4 rows and 7
 * columns. */
static const Part last = {.start = {['h'] = 8, ['w'] = 14, ['H'] = 8, ['W'] = 14},
                          .valid = {['h'] = 3, ['w'] = 6, ['H'] = 3, ['W'] = 6}};

static Sizes field(int64_t rows, int64_t columns)
{
    return (Sizes){{['b'] = 2,
                    ['C'] = 6,
                    ['G'] = 3,
                    ['c'] = 3,
                    ['h'] = rows,
                    ['w'] = columns,
                    ['H'] = rows,
                    ['W'] = columns},
                   {0, 0}};
}

static void sums_leave_out_padding(void **state)
{
    (void)state;
    const Attrs groups = {.group = 3, .eps = 1e-3}, latitude = {.latitude = 1, .scale = 0.6};
    const CudaCase cases[] = {
        {OP_group_sum, cuda_group_sum, "fF", groups, 0, NULL, 0},
        {OP_group_sum_grad, cuda_group_sum_grad, "Ff", groups, 1, NULL, 0},
        {OP_group_spread, cuda_group_spread, "fFF", groups, 0, NULL, 0},
        {OP_group_spread_grad, cuda_group_spread_grad, "FfFf", groups, 1, NULL, 0},
        {OP_mse_loss, cuda_mse_loss, "ffFF", latitude, 3, NULL, 0},
        {OP_mse_loss_grad, cuda_mse_loss_grad, "fff", latitude, 0, NULL, 0},
    };
    const Sizes local = field(4, 7), whole = field(11, 20);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        compare_part(cases[i], &local, &whole, last);
}

static void windows_leave_padding_zero(void **state)
{
    (void)state;
    const Attrs point = {.h_kernel = 1,
                         .h_stride = 1,
                         .h_dilation = 1,
                         .w_kernel = 1,
                         .w_stride = 1,
                         .w_dilation = 1};
    const Attrs resize = {.rows = 11, .columns = 20};
    const CudaCase cases[] = {
        {OP_avg_pool2d, cuda_avg_pool2d, "ff", point, 0, NULL, 0},
        {OP_avg_pool2d_grad, cuda_avg_pool2d_grad, "ff", point, 1, NULL, 0},
        {OP_resize, cuda_resize, "ff", resize, 0, NULL, 0},
        {OP_resize_grad, cuda_resize_grad, "ff", resize, 1, NULL, 0},
    };
    const Sizes local = field(4, 7), whole = field(11, 20);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        compare_part(cases[i], &local, &whole, last);
}

/* The last of two parts of 8 rows. Its last 3 rows lie beyond the south pole. */
static void poles_turn_by_global_rows(void **state)
{
    (void)state;
    const Attrs poles = {.h_before = 2, .h_after = 3};
    const CudaCase turn = {OP_turn_poles, cuda_turn_poles, "ff", poles, 0, NULL, 0};
    const CudaCase back = {OP_turn_poles_grad, cuda_turn_poles_grad, "ff", poles, 1, NULL, 0};
    for (int64_t columns = 6; columns <= 7; columns++) {
        const Sizes local = field(4, columns), whole = field(8, columns);
        compare_part(turn, &local, &whole, (Part){.start = {['h'] = 4}});
        compare_part(back, &local, &whole, (Part){.start = {['h'] = 4}});
        compare_part(turn, &local, &whole, (Part){.start = {['h'] = 0}});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_leave_out_padding),
        cmocka_unit_test(windows_leave_padding_zero),
        cmocka_unit_test(poles_turn_by_global_rows),
    };
    return cmocka_run_group_tests_name("field_parts", tests, NULL, NULL);
}
