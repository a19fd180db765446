/* Fuzzes the reader of tables of published measurements, as spreadsheets write them. */
#include "cli/accuracy/accuracy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Csv csv;
    if (csv_read(fuzz_file(data, size), arena, &csv, &d))
        for (uint32_t row = 0; row < csv.n_rows && row < 20; row++) {
            csv_cell(&csv, row, "gpu");
            csv_number(&csv, row, "step_s");
        }
    arena_free(arena);
    return 0;
}
