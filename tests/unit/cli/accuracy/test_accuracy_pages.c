/* tandem accuracy: facts that a page states of its rows (scripts/tandem/published/pages.csv). They
 * fill open cells of the rows that they name; a cell that a table states itself counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/kernel_row.h"
#include "tests/support/command.h"

static Csv table_of(Arena *arena, const char *section, const char *text)
{
    Csv csv;
    Diag d = diag_in(arena);
    assert_true(csv_read(command_table(arena, text), arena, &csv, &d));
    assert_true(csv_add_pages(&csv, section, arena, &d));
    return csv;
}

static void a_page_fills_open_cells_of_its_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Csv csv = table_of(arena, "runs",
                       "id,source,platform,n_gpus,gpu\n"
                       "a,Megatron-LM functional tests,dev_dgx_gb200,4,GB200\n"
                       "b,Megatron-LM functional tests,dev_dgx_gb200,40,GB200\n"
                       "c,another page,dev_dgx_gb200,4,GB200\n"
                       "d,NeMo performance summary NEMO2405,,8,H100\n");
    assert_string_equal(csv_cell(&csv, 0, "input_s"), "0.058");
    assert_string_equal(csv_cell(&csv, 1, "input_s"), ""); /* n_gpus=4 is the whole cell */
    assert_string_equal(csv_cell(&csv, 2, "input_s"), "");
    assert_string_equal(csv_cell(&csv, 3, "framework_month"), "2024-05");
    assert_string_equal(csv_cell(&csv, 1, "deferral_limit"), "2");
    assert_string_equal(csv_cell(&csv, 2, "deferral_limit"), "");
    assert_string_equal(csv_cell(&csv, 3, "gpu"), "H100"); /* other cells stay */
    arena_free(arena);
}

static void a_stated_cell_counts(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Csv csv = table_of(arena, "runs",
                       "id,source,framework_month\n"
                       "a,nemo2405,2023-01\n"
                       "b,nemo2405,\n");
    assert_string_equal(csv_cell(&csv, 0, "framework_month"), "2023-01");
    assert_string_equal(csv_cell(&csv, 1, "framework_month"), "2024-05");
    assert_int_equal(csv.columns.n, 3);
    csv = table_of(arena, "kernels", "kernel,source\na,nemo2405\n"); /* another section's */
    assert_int_equal(csv.columns.n, 2);
    arena_free(arena);
}

/* How a kernel was timed, and whether it adds to its result, are cells of its row, whatever the
 * source is called. */
static void columns_of_kernels_are_read(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    KernelDevices devices = {.arena = arena};
    Csv csv = table_of(arena, "kernels",
                       "kernel,gpu,dtype,M,N,K,shape,tflops,GBps,time_us,notes,timing,accumulate\n"
                       "gemm,H100,bf16,4096,4096,4096,,,,200,,,\n"
                       "gemm,H100,bf16,4096,4096,4096,,,,200,,back to back,\n"
                       "gemm,H100,bf16,4096,4096,4096,,,,200,stored efficiency x 989,,\n"
                       "gemm,A100,bf16,4096,4096,4096,,,,600,,,1\n"
                       "gemm,A100,bf16,4096,4096,4096,layout=NT accumulate=True,,,600,,,\n");
    KernelRow row[5];
    for (uint32_t i = 0; i < 5; i++) assert_null(kernel_row(&devices, &csv, i, &row[i]));
    assert_false(row[0].loops);
    assert_true(row[1].loops && row[2].loops);
    assert_true(row[0].out_bytes == 2 && row[3].out_bytes == 8 && row[4].out_bytes == 8);
    /* a product that is repeated without a pause has the clock of a long run */
    assert_true(kernel_row_predicted_s(&row[1], NULL) >
                1.1 * kernel_row_predicted_s(&row[0], NULL));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_fills_open_cells_of_its_rows),
        cmocka_unit_test(a_stated_cell_counts),
        cmocka_unit_test(columns_of_kernels_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
