/* Fuzzes the import of traces of Kineto and Chrome in JSON. */
#include "cli/import/import.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    ImportSink sink;
    sink_init(&sink, arena);
    if (chrome_trace_read(fuzz_file(data, size), &sink, &d)) meet_all(&sink);
    arena_free(arena);
    return 0;
}
