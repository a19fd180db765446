/* Every rule id of a diagnostic in the sources has a row in cli/rules/rules.def. Every row is
 * raised somewhere and has a full story. The test finds the ids by reading the sources; it needs no
 * list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "tests/support/command.h"

/* Quoted kebab-case words in the sources that are not rules. */
static const char *const not_rules[] = {
    "dev-cal",      "dry-run",  "exit-codes",  "micro-batch", "absent-or-known",
    "share-device", "per-node", "save-every",  "what-if",     "nvidia-smi",
    "rocm-smi",     "amd-smi",  "llm-foundry", NULL,
};

static bool is_listed(const char *id)
{
    for (uint32_t i = 0; not_rules[i] != NULL; i++)
        if (strcmp(not_rules[i], id) == 0) return true;
    return false;
}

static bool is_kebab(const char *id)
{
    if (!islower((unsigned char)id[0])) return false;
    for (const char *at = id; *at != 0; at++)
        if (!islower((unsigned char)*at) && !isdigit((unsigned char)*at) && *at != '-')
            return false;
    return id[strlen(id) - 1] != '-';
}

/* Returns true if the literal at `quote` is the rule in diag_error(d, FAULT_x, "rule" or
 * diag_warning(d, "rule". */
static bool follows_fault(const char *text, const char *quote)
{
    const char *at = quote;
    while (at > text && isspace((unsigned char)at[-1])) at--;
    if (at == text || at[-1] != ',') return false;
    at--;
    const char *end = at;
    while (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')) at--;
    return end - at > 6 && strncmp(at, "FAULT_", 6) == 0;
}

static uint32_t n_found;
static bool raised[1024]; /* true if a source quotes the id of the row */

static void mark(const char *id)
{
    const Rule *rule = rule_find(id);
    if (rule == NULL) return;
    assert_true(n_rules <= sizeof raised / sizeof raised[0]);
    raised[rule - rules] = true;
}

static void check_file(Arena *arena, const char *path)
{
    const char *text = command_read_file(arena, path, NULL);
    assert_non_null(text);
    for (const char *at = text; (at = strchr(at, '"')) != NULL;) {
        const char *end = at + 1;
        while (*end != 0 && *end != '"' && *end != '\n') end += 1 + (*end == '\\' && end[1] != 0);
        if (*end != '"') {
            at = end + (*end != 0);
            continue;
        }
        const char *id = arena_copy(arena, at + 1, (size_t)(end - at - 1));
        mark(id);
        /* "error[...]" is printed without memory for a diagnostic */
        if (strncmp(id, "error[", 6) == 0) mark(arena_copy(arena, id + 6, strcspn(id + 6, "]")));
        bool sure = follows_fault(text, at);
        if (id[0] != 0 && is_kebab(id) && (sure || strchr(id, '-') != NULL) && !is_listed(id)) {
            n_found++;
            if (rule_find(id) == NULL)
                fail_msg("%s: \"%s\" has no row in cli/rules/rules.def", path, id);
        }
        at = end + 1;
    }
}

/* Lua code reports rules by core.fail("rule", ...) and similar functions, and dialects by
 * d:error("rule". */
static void check_lua_calls(Arena *arena, const char *path, const char *text, const char *call)
{
    for (const char *at = text; (at = strstr(at, call)) != NULL;) {
        at += strlen(call);
        const char *id = arena_copy(arena, at, strcspn(at, "\""));
        n_found++;
        mark(id);
        if (rule_find(id) == NULL)
            fail_msg("%s: \"%s\" has no row in cli/rules/rules.def", path, id);
    }
}

static void check_lua(Arena *arena, const char *path)
{
    static const char *const calls[] = {"core.fail(\"", "core.report(\"", "core.warn(\"",
                                        "core.note(\"", ":error(\"",      ":warn(\"",
                                        ":note(\"",     ":mistake(\""};
    const char *text = command_read_file(arena, path, NULL);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        check_lua_calls(arena, path, text, calls[i]);
}

static void walk(Arena *arena, const char *folder)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        const char *path = arena_print(arena, "%s/%s", folder, entry->d_name);
        struct stat about;
        if (stat(path, &about) != 0) continue;
        size_t n = strlen(path);
        if (S_ISDIR(about.st_mode))
            walk(arena, path);
        else if (strcmp(path + n - 2, ".c") == 0)
            check_file(arena, path);
        else if (n > 4 && strcmp(path + n - 4, ".lua") == 0)
            check_lua(arena, path);
    }
    closedir(dir);
}

static void every_rule_of_the_sources_is_explained(void **state)
{
    (void)state;
    static const char *const folders[] = {"planner", "kernels", "sim",     "store",  "exec",
                                          "session", "cli",     "include", "scripts"};
    Arena *arena = arena_new();
    n_found = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        walk(arena, arena_print(arena, "%s/%s", TANDEM_SOURCE_DIR, folders[i]));
    assert_true(n_found > 50); /* otherwise the search itself is broken */
    for (uint32_t i = 0; i < n_rules; i++)
        if (!raised[i]) fail_msg("cli/rules/rules.def: no source raises \"%s\"", rules[i].id);
    arena_free(arena);
}

static void rows_are_distinct_and_complete(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_rules; i++) {
        assert_true(is_kebab(rules[i].id));
        assert_ptr_equal(rule_find(rules[i].id), &rules[i]);
        size_t n = strlen(rules[i].text);
        assert_true(n > 10 && rules[i].text[n - 1] == '.');
        assert_true(strlen(rules[i].fix) > 5);
    }
}

static void explain_prints_the_story(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 10, "explain", "data-none");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "silently Every replica trains a model of its own"));
    for (const char *line = r.out; *line != 0;) {
        size_t n = strcspn(line, "\n");
        assert_true(n <= 100);
        line += n + (line[n] == '\n');
    }
    r = COMMAND(arena, 10, "explain");
    for (uint32_t i = 0; i < n_rules; i++) assert_non_null(strstr(r.out, rules[i].id));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_of_the_sources_is_explained),
        cmocka_unit_test(rows_are_distinct_and_complete),
        cmocka_unit_test(explain_prints_the_story),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
