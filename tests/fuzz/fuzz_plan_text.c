/* Fuzzes a plan's text, which anybody may have written: reading, proofs, printing. A plan that can
 * be read must print the same text again. */
#include <assert.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = text_parse("plan.txt", (const char *)data, size, arena, &d);
    if (plan != NULL) {
        Str once = str_in(arena), twice = str_in(arena);
        text_print(plan, TEXT_WITH_LOCATIONS, &once);
        Plan *again = text_parse("again.txt", str_text(&once), once.n, arena, &d);
        assert(again != NULL);
        text_print(again, TEXT_WITH_LOCATIONS, &twice);
        assert(strcmp(str_text(&once), str_text(&twice)) == 0);
        verify_plan(plan, VERIFY_all, true, &d);
    }
    arena_free(arena);
    return 0;
}
