/* Fuzzes the command line. The first byte chooses the verb; each line is one word. */
#include <string.h>

#include "cli/cli.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WORDS = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    Arena *arena = arena_new();
    Cli cli = {.arena = arena, .diag = diag_in(arena), .verb = &verbs[data[0] % n_verbs]};
    char *argv[MOST_WORDS + 1] = {arena_copy(arena, "tandem", 6)};
    int argc = 1;
    const char *text = arena_copy(arena, (const char *)data + 1, size - 1);
    while (*text != 0 && argc < MOST_WORDS) {
        size_t n = strcspn(text, "\n");
        argv[argc++] = arena_copy(arena, text, n);
        text += n + (text[n] != 0);
    }
    options_parse(&cli, argc, argv);
    arena_free(arena);
    return 0;
}
