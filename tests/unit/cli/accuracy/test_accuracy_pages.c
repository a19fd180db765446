/* tandem accuracy: facts that a page states about its rows (scripts/tandem/published/pages.csv).
 * They fill open cells of the rows that they name. A cell that the table itself states wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/kernel_row.h"
#include "planner/base/str.h"
#include "tests/support/command.h"
#include "tests/support/published_row.h"

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
    assert_string_equal(csv_cell(&csv, 1, "input_s"), ""); /* n_gpus=4 must be the whole cell */
    assert_string_equal(csv_cell(&csv, 2, "input_s"), "");
    assert_string_equal(csv_cell(&csv, 3, "framework_month"), "2024-05");
    assert_string_equal(csv_cell(&csv, 1, "deferral_limit"), "2");
    assert_string_equal(csv_cell(&csv, 2, "deferral_limit"), "");
    assert_string_equal(csv_cell(&csv, 3, "gpu"), "H100"); /* other cells stay */
    arena_free(arena);
}

static void a_stated_cell_wins_over_a_page(void **state)
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
    /* The page states the month only for rows of another section. */
    csv = table_of(arena, "kernels", "kernel,source\na,nemo2405\n");
    assert_int_equal(csv.columns.n, 2);
    arena_free(arena);
}

/* The columns timing and accumulate say how a kernel was timed and whether it adds to its result.
 * The source's name has no influence. */
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
    /* A product that is repeated without a pause has the clock of a long run. */
    assert_true(kernel_row_predicted_s(&row[1], NULL) >
                1.1 * kernel_row_predicted_s(&row[0], NULL));
    arena_free(arena);
}

/* Rows of several pages. The list of pages adds a column with the network's rate for KempnerForge's
 * row. The first row names its own network cards. */
static const char *const mixed[] = {
    "id=a;framework=Megatron-DeepSpeed;gpu=A100-SXM;n_gpus=16;global_batch_seqs=16;tp=1;zero_stage="
    ";"
    "d_model=4096;d_ff=16384;interconnect=1x100Gb IB",
    "id=b;framework=KempnerForge;gpu=H200;n_gpus=16;global_batch_seqs=16;tp=1;sp=0;zero_stage=3",
    "id=c;source=MLPerf;framework=NVIDIA NeMo Framework Release 25.04;precision=;missing=precision",
    "id=d;source=functional tests;source_path=megatron-lm/functional_tests;gpu=",
    "id=e;source=nemo2405;framework=NeMo;n_gpus=16;global_batch_seqs=16",
};
enum { N_MIXED = sizeof mixed / sizeof *mixed };

/* Returns the scores of a row as text. Ends the test if the row has no prediction. */
static const char *scores_of(Arena *arena, const json_t *root, const char *changes)
{
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    Str s = str_in(arena);
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *score = json_array_get(scores, i);
        const char *id = json_string_value(json_object_get(score, "row"));
        if (strncmp(id, changes + strlen("id="), 1) != 0) continue;
        char *text = json_dumps(score, JSON_SORT_KEYS);
        str_print(&s, "%s\n", text);
        free(text);
        n++;
    }
    if (n == 0) fail_msg("no prediction of the row %s", changes);
    return str_text(&s);
}

/* A row has the same prediction alone and in any table, before or after any other row. */
static void other_rows_change_no_prediction(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *reversed[N_MIXED];
    for (size_t i = 0; i < N_MIXED; i++) reversed[i] = mixed[N_MIXED - 1 - i];
    json_t *one_way = published_rows_scored(arena, mixed, N_MIXED);
    json_t *other_way = published_rows_scored(arena, reversed, N_MIXED);
    for (size_t i = 0; i < N_MIXED; i++) {
        json_t *own = published_row_scored(arena, mixed[i]);
        const char *alone = scores_of(arena, own, mixed[i]);
        assert_string_equal(scores_of(arena, one_way, mixed[i]), alone);
        assert_string_equal(scores_of(arena, other_way, mixed[i]), alone);
        json_decref(own);
    }
    json_decref(one_way);
    json_decref(other_way);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_fills_open_cells_of_its_rows),
        cmocka_unit_test(a_stated_cell_wins_over_a_page),
        cmocka_unit_test(columns_of_kernels_are_read),
        cmocka_unit_test(other_rows_change_no_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
