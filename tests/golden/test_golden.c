/* Golden plans. For every tests/golden/NAME.lua, the changes of each pass in the graph must equal
 * the committed file NAME.PASS.show (in the form of text_diff.h), and the lowered program must
 * equal NAME.plan. TANDEM_UPDATE_GOLDEN=1 rewrites the files in the source tree; the difference is
 * then reviewed like code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/lower/compile.h"
#include "tests/support/command.h"
#include "tests/support/sample.h"
#include "tests/support/text/text_diff.h"

/* A command that takes so many seconds by the clock counts as endless. Most take under a second,
 * but an emulated processor on a busy machine may need a minute. */
enum { PATIENCE_S = 300 };

static const char folder[] = TANDEM_SOURCE_DIR "/tests/golden";

static bool updating(void)
{
    const char *value = getenv("TANDEM_UPDATE_GOLDEN");
    return value != NULL && strcmp(value, "1") == 0;
}

static void first_difference(const char *path, const char *want, const char *got)
{
    uint32_t line = 1;
    while (*want != 0 && *want == *got) {
        line += *want == '\n';
        want++;
        got++;
    }
    const char *end_want = want + strcspn(want, "\n"), *end_got = got + strcspn(got, "\n");
    fail_msg("%s:%u differs\n  committed ...%.*s\n  now       ...%.*s\n"
             "TANDEM_UPDATE_GOLDEN=1 rewrites it",
             path, line, (int)(end_want - want), want, (int)(end_got - got), got);
}

static void compare(Arena *arena, const char *path, const char *got)
{
    if (updating()) {
        command_write_file(path, got);
        return;
    }
    const char *want = command_read_file(arena, path, NULL);
    if (want == NULL) fail_msg("%s is not there; TANDEM_UPDATE_GOLDEN=1 writes it", path);
    if (strcmp(want, got) != 0) first_difference(path, want, got);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t plans(Arena *arena, const char **names, uint32_t room)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    uint32_t n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && n < room;) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && strcmp(entry->d_name + length - 4, ".lua") == 0)
            names[n++] = arena_copy(arena, entry->d_name, length - 4);
    }
    closedir(dir);
    qsort(names, n, sizeof *names, by_name);
    return n;
}

/* Only the name given on the command line may appear in the text, so the place of the script does
 * not matter. */
static const char *show(Arena *arena, const char *script, const char *option, const char *value)
{
    CommandResult r = value != NULL ? COMMAND(arena, PATIENCE_S, "show", script, option, value)
                                    : COMMAND(arena, PATIENCE_S, "show", script, option);
    if (r.exit_code != 0) fail_msg("tandem show %s %s: %s", script, option, r.err);
    return r.out;
}

/* Makes the paths in the output relative to the source tree. */
static const char *without_tree(Arena *arena, const char *text)
{
    static const char tree[] = TANDEM_SOURCE_DIR "/";
    Str out = str_in(arena);
    for (const char *at; (at = strstr(text, tree)) != NULL; text = at + sizeof tree - 1)
        str_add_bytes(&out, text, (size_t)(at - text));
    str_add(&out, text);
    return str_text(&out);
}

/* Seals are hashes of the other lines, so they are not committed. */
static const char *seals_of(const char *text)
{
    const char *seals = strstr(text, "\nseal ");
    if (seals == NULL) fail_msg("no seals: %.40s", text);
    return seals + 1;
}

/* Cuts the part of pass `name`, which must come next, from the output of `show --after all`. */
static const char *after_pass(Arena *arena, const char **all, const char *name)
{
    const char *head = arena_print(arena, "after %s\n", name), *at = *all;
    if (strncmp(at, head, strlen(head)) != 0) fail_msg("no graph after %s: %.40s", name, at);
    at += strlen(head);
    const char *end = strstr(at, "\nafter ");
    size_t bytes = end != NULL ? (size_t)(end + 1 - at) : strlen(at);
    *all = at + bytes;
    return arena_copy(arena, at, bytes);
}

static void passes_change_the_graph_as_committed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *names[64];
    uint32_t n = plans(arena, names, 64);
    assert_true(n >= 4);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_sampled(i, 3)) continue;
        const char *script = arena_print(arena, "%s/%s.lua", folder, names[i]);
        const char *before = "";
        const char *all = without_tree(arena, show(arena, script, "--after", "all"));
        for (uint32_t pass = 0; pass < passes_count; pass++) {
            const char *name = passes_list[pass].name;
            const char *text = after_pass(arena, &all, name);
            Str change = str_in(arena);
            text_diff(before, text, &change);
            /* A pass that changes nothing here has no file. */
            if (change.n > 0)
                compare(arena, arena_print(arena, "%s/%s.%s.show", folder, names[i], name),
                        str_text(&change));
            before = text;
        }
        assert_string_equal(all, "");
        const char *exact = show(arena, script, "--text", NULL);
        exact = arena_copy(arena, exact, (size_t)(seals_of(exact) - exact));
        compare(arena, arena_print(arena, "%s/%s.plan", folder, names[i]),
                without_tree(arena, exact));
    }
    arena_free(arena);
}

/* A committed text together with its seals is a plan: it can be read and proven, and has the id of
 * the script's plan. */
static void texts_are_plans(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *names[64];
    const char *text = arena_print(arena, "%s/sealed.plan", command_new_folder(arena));
    uint32_t n = plans(arena, names, 64);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_sampled(i + 1, 3)) continue;
        const char *script = arena_print(arena, "%s/%s.lua", folder, names[i]);
        const char *plan = arena_print(arena, "%s/%s.plan", folder, names[i]);
        size_t bytes = 0;
        const char *committed = command_read_file(arena, plan, &bytes);
        if (committed == NULL) fail_msg("%s is not read", plan);
        const char *seals = seals_of(show(arena, script, "--text", NULL));
        command_write_file(text, arena_print(arena, "%.*s%s", (int)bytes, committed, seals));
        CommandResult a = COMMAND(arena, PATIENCE_S, "check", script);
        CommandResult b = COMMAND(arena, PATIENCE_S, "check", text);
        if (a.exit_code != 0 || b.exit_code != 0)
            fail_msg("%s: %d %d\n%s%s", names[i], a.exit_code, b.exit_code, a.err, b.err);
        assert_memory_equal(a.out, b.out, strlen("plan        0123456789ab"));
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_change_the_graph_as_committed),
        cmocka_unit_test(texts_are_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
