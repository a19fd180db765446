/* The README shows what the command prints: each block that begins with "    $ tandem check" is run
 * again in the source tree and compared, line by line. TANDEM_UPDATE_GOLDEN=1 rewrites them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "tests/support/command.h"

static const char readme[] = TANDEM_SOURCE_DIR "/README.md";
static const char prompt[] = "    $ tandem check ";

/* Output of the command line, indented as in the README; results first, then diagnostics. */
static const char *shown(Arena *arena, const char *line, size_t n)
{
    const char *script =
        arena_print(arena, "cd '%s' && '%s' %.*s", TANDEM_SOURCE_DIR, TANDEM_COMMAND,
                    (int)(n - strlen("    $ tandem ")), line + strlen("    $ tandem "));
    CommandResult r =
        command_run_program(arena, 60, (const char *const[]){"sh", "-c", script, NULL});
    Str out = str_in(arena);
    const char *parts[] = {r.out, r.err};
    for (int i = 0; i < 2; i++)
        for (const char *at = parts[i]; *at != 0;) {
            size_t length = strcspn(at, "\n");
            str_print(&out, "    %.*s\n", (int)length, at);
            at += length + (at[length] == '\n');
        }
    return str_text(&out);
}

static void checks_are_as_shown(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *text = command_read_file(arena, readme, NULL);
    assert_non_null(text);
    const char *update = getenv("TANDEM_UPDATE_GOLDEN");
    Str renewed = str_in(arena);
    uint32_t n_blocks = 0;
    const char *at = text;
    for (const char *block; (block = strstr(at, prompt)) != NULL; n_blocks++) {
        size_t line = strcspn(block, "\n");
        const char *old = block + line + 1, *end = strstr(old, "\n\n");
        assert_non_null(end);
        end++;
        const char *now = shown(arena, block, line);
        if (update == NULL &&
            (strlen(now) != (size_t)(end - old) || strncmp(now, old, (size_t)(end - old)) != 0))
            fail_msg("README.md shows\n%.*s\nbut now it is\n%s\nTANDEM_UPDATE_GOLDEN=1 renews it",
                     (int)(end - old), old, now);
        str_add_bytes(&renewed, at, (size_t)(old - at));
        str_add(&renewed, now);
        at = end;
    }
    str_add(&renewed, at);
    assert_true(n_blocks >= 2);
    if (update != NULL) command_write_file(readme, str_text(&renewed));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(checks_are_as_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
