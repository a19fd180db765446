/* Fuzzes the printing of text of unknown origin: as JSON that any reader accepts, and in messages
 * without control characters. Also fuzzes the search for the nearest word. */
#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"tp", "dp_shard", "sequence", "reshard_after_forward"};
    Arena *arena = arena_new();
    const char *text = arena_copy(arena, (const char *)data, size);
    Str json = str_in(arena);
    str_add_json(&json, text);
    json_t *value = json_loads(str_text(&json), JSON_DECODE_ANY, NULL);
    assert(value != NULL && json_is_string(value));
    const size_t n = strlen(text);
    if (str_unreadable(text, n) == n) assert(strcmp(json_string_value(value), text) == 0);
    json_decref(value);
    const char *shown = str_readable(arena, text, 80);
    for (const char *c = shown; *c != 0; c++)
        assert((unsigned char)*c >= ' ' || *c == '\n' || *c == '\t');
    str_nearest(text, words, sizeof words / sizeof *words);
    arena_free(arena);
    return 0;
}
