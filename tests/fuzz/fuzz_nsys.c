/* Fuzzes the import of databases of Nsight Systems, which are SQLite files. */
#include "cli/import/import.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    ImportSink sink;
    sink_init(&sink, arena);
    nsys_read(fuzz_file(data, size), &sink, arena, &d);
    arena_free(arena);
    return 0;
}
