/* Fuzzes the import of the output of nccl-tests. */
#include "cli/import/import.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    NcclTestText text;
    nccl_tests_read(fuzz_file(data, size), arena, &text, &d);
    arena_free(arena);
    return 0;
}
