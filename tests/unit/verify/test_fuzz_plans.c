/* The fuzz target of plan texts begins with stored inputs. They must be plans in the current form,
 * with seals. The first lines of an older form are refused, so the target would never reach the
 * proofs. TANDEM_UPDATE_GOLDEN=1 writes the inputs again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/support/command.h"

enum { PATIENCE_S = 60 };

/* These plans of tests/golden have sharded weights, 8-bit numbers with tp, the meta device, and one
 * rank. */
static const char *const plans[] = {"fsdp2_bf16", "float8", "meta", "one_rank"};

static bool updating(void)
{
    const char *value = getenv("TANDEM_UPDATE_GOLDEN");
    return value != NULL && strcmp(value, "1") == 0;
}

static void the_fuzzers_stored_plans_are_current(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const char *path =
            arena_print(arena, TANDEM_SOURCE_DIR "/tests/fuzz/corpus/plan_text/%s", plans[i]);
        if (updating()) {
            const char *script =
                arena_print(arena, TANDEM_SOURCE_DIR "/tests/golden/%s.lua", plans[i]);
            const CommandResult shown = COMMAND(arena, PATIENCE_S, "show", script, "--text");
            assert_int_equal(shown.exit_code, 0);
            command_write_file(path, shown.out);
        }
        size_t n = 0;
        const char *text = command_read_file(arena, path, &n);
        if (text == NULL) fail_msg("there is no %s", path);
        Diag d = diag_in(arena), seals = diag_in(arena);
        Str errors = str_in(arena);
        const Plan *plan = text_parse_sealed(path, text, n, arena, &d, &seals);
        const bool fine =
            plan != NULL && seals.n_errors == 0 && verify_plan(plan, VERIFY_all, true, &d);
        diag_print(&d, &errors);
        diag_print(&seals, &errors);
        if (!fine) fail_msg("%s\nTANDEM_UPDATE_GOLDEN=1 writes it again", str_text(&errors));
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fuzzers_stored_plans_are_current),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
