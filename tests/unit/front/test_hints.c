/* A hint must name values that work. The test applies each hint of tests/bad_input that can be
 * applied, by a setting or by replacing the wrong word. The hint's error must then be gone. */
#undef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/list.h"
#include "planner/base/str.h"
#include "tests/support/command.h"
#include "tests/support/sample.h"

enum { MOST_SETS = 12 };

typedef struct Case {
    Arena *arena;
    const char *script;
    const char *error, *hint; /* one line each */
    const char *set[MOST_SETS];
    uint32_t n_set;
} Case;

static uint32_t n_applied;
/* the folder in which new folders are made, because the corpus must not be written to */
static char home[4096];

static const char *check(const Case *c, const char *script, const char *set)
{
    const char *words[2 * MOST_SETS + 4] = {"check", script};
    uint32_t n = 2;
    for (uint32_t i = 0; i < c->n_set; i++) words[n++] = "--set", words[n++] = c->set[i];
    if (set != NULL) words[n++] = "--set", words[n++] = set;
    CommandResult r = command_run(c->arena, 60, words);
    assert_int_equal(r.signal, 0);
    n_applied++;
    return r.err;
}

/* Returns true if `err` contains the case's error, possibly with another value. */
static bool complains(const Case *c, const char *err)
{
    size_t rule = strcspn(c->error, "]") + 2;
    size_t n = rule + 1 + strcspn(c->error + rule + 1, " ");
    return strstr(err, arena_copy(c->arena, c->error, n)) != NULL;
}

static void try_setting(const Case *c, const char *key, const char *value, size_t n)
{
    const char *set = arena_print(c->arena, "%s=%.*s", key, (int)n, value);
    const char *err = check(c, arena_print(c->arena, "%s.lua", c->script), set);
    if (complains(c, err))
        fail_msg("%s: %s\n%s\nwith %s:\n%s", c->script, c->error, c->hint, set, err);
}

/* Tries the values of "these sizes fill the cluster: dp_shard = 8, or tp = 4, 8, or nodes = 1". */
static void try_fitting(const Case *c, const char *at)
{
    for (const char *equals; (equals = strstr(at, " = ")) != NULL; at = equals + 3) {
        const char *word = equals;
        while (word > at && word[-1] != ' ') word--;
        const char *name = arena_copy(c->arena, word, (size_t)(equals - word));
        const char *group = strcmp(name, "nodes") == 0 ? "cluster" : "mesh";
        const char *key = arena_print(c->arena, "%s.%s", group, name), *value = equals + 3;
        for (size_t n; (n = strspn(value, "0123456789")) > 0;) {
            try_setting(c, key, value, n);
            value += n;
            value += strncmp(value, ", ", 2) == 0 ? 2 : 0;
        }
    }
}

/* Tries the values of "tp may be 1, 2, 4" or "seq may be 60 or 64; or ..." */
static void try_values(const Case *c, const char *key, const char *at)
{
    for (; *at != 0 && *at != ';'; at++) {
        size_t n = strspn(at, "0123456789");
        if (n == 0) continue;
        try_setting(c, key, at, n);
        at += n - 1;
    }
}

/* Replaces the wrong word by the right one. The error quotes the wrong word, and the script
 * contains it. */
static void try_word(const Case *c, const char *right)
{
    const char *quote = strchr(c->error, '\'');
    if (quote == NULL) return;
    const char *wrong = arena_copy(c->arena, quote + 1, strcspn(quote + 1, "'"));
    right = arena_copy(c->arena, right, strcspn(right, "'"));
    const char *text =
        command_read_file(c->arena, arena_print(c->arena, "%s.lua", c->script), NULL);
    if (strstr(text, wrong) == NULL) return; /* the wrong word came from --set */
    Str mended = str_in(c->arena);
    for (const char *at = text, *next; *at != 0; at = next) {
        next = strstr(at, wrong);
        str_add_bytes(&mended, at, next != NULL ? (size_t)(next - at) : strlen(at));
        if (next == NULL) break;
        str_add(&mended, right);
        next += strlen(wrong);
    }
    const char *path = arena_print(c->arena, "%s/try.lua", home);
    command_write_file(path, str_text(&mended));
    const char *err = check(c, path, NULL);
    if (strstr(err, arena_print(c->arena, "'%s'", wrong)) != NULL)
        fail_msg("%s: %s\n%s\n%s", c->script, c->error, c->hint, err);
}

static void apply(const Case *c)
{
    static const char fits[] = "these sizes fill the cluster: ", word[] = "did you mean '";
    static const struct {
        const char *words, *key;
    } values[] = {
        {"tp may be ", "mesh.tp"},
        {"ep may be ", "mesh.ep"},
        {"seq may be ", "batch.seq"},
        {"domain may be ", "mesh.domain"},
    };
    static const char fields[] = ", fields of ";
    const char *rows = strstr(c->hint, fields);
    if (rows != NULL) try_values(c, "batch.height", rows + strlen(fields));
    if (strncmp(c->hint, fits, strlen(fits)) == 0) try_fitting(c, c->hint + strlen(fits) - 1);
    if (strncmp(c->hint, word, strlen(word)) == 0) try_word(c, c->hint + strlen(word));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strncmp(c->hint, values[i].words, strlen(values[i].words)) == 0)
            try_values(c, values[i].key, c->hint + strlen(values[i].words));
}

static void read_case(Arena *arena, const char *script)
{
    Case c = {.arena = arena, .script = script};
    const char *text = command_read_file(arena, arena_print(arena, "%s.expect", script), NULL);
    while (text != NULL && *text != 0) {
        size_t n = strcspn(text, "\n");
        const char *line = arena_copy(arena, text, n);
        text += n + (text[n] == '\n');
        if (strncmp(line, "# set ", 6) == 0 && c.n_set < MOST_SETS) c.set[c.n_set++] = line + 6;
        const char *error = strstr(line, "error[");
        if (error != NULL) c.error = error;
        if (strncmp(line, "  hint: ", 8) != 0 || c.error == NULL) continue;
        c.hint = line + 8;
        apply(&c);
        c.error = NULL;
    }
}

/* Skips scripts of dialects: they have keys of another system, which --set cannot reach. */
static void hints_work_when_they_are_followed(void **state)
{
    (void)state;
    Arena *own = arena_new();
    assert_non_null(realpath(command_new_folder(own), home));
    arena_free(own);
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(TANDEM_SOURCE_DIR "/tests/bad_input"), 0);
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n < 8 || strcmp(e->d_name + n - 7, ".expect") != 0) continue;
        if (strncmp(e->d_name, "dialect", 7) == 0) continue;
        if (!is_sampled_name(e->d_name, 2)) continue;
        Arena *arena = arena_new();
        read_case(arena, arena_copy(arena, e->d_name, n - 7));
        arena_free(arena);
    }
    closedir(dir);
    assert_int_equal(chdir(before), 0);
    printf("%u hints were followed\n", n_applied);
    assert_true(n_applied > SAMPLE(50, 15));
}

/* Each size that fills the cluster must lead to a plan without any error. Sizes that break another
 * rule, such as 3 for heads, must not be named. */
static void sizes_for_another_cluster_break_no_rule(void **state)
{
    (void)state;
    static const char *const plans[] = {"llama3_8b", "gpt2_1558m", "mixtral_8x7b", "llava_7b"},
                             *const nodes[] = {"1", "3", "16"}, fits[] = "fill the cluster: ";
    uint32_t n_sizes = 0;
    for (size_t i = 0; i < 12; i++) {
        Arena *arena = arena_new();
        const char *script =
            arena_print(arena, TANDEM_SOURCE_DIR "/scripts/plans/%s.lua", plans[i / 3]);
        const char *words[] = {"check",      script, "--cluster", "hgx_b200", "--nodes",
                               nodes[i % 3], NULL,   NULL,        NULL};
        const CommandResult wrong = command_run(arena, 60, words);
        const char *at = strstr(wrong.err, fits), *key = "";
        if (strstr(wrong.err, "each of them breaks another rule") != NULL) at = NULL;
        for (at = at ? at + sizeof fits - 1 : ""; *at != 0 && *at != '\n';
             at += strcspn(at, ",\n")) {
            at += strspn(at, ", ");
            at += strncmp(at, "or ", 3) == 0 ? 3 : 0;
            const size_t word = strcspn(at, " =,\n");
            if (strncmp(at + word, " = ", 3) == 0) { /* in "tp = 2, 4" the key is named once */
                key = arena_copy(arena, at, word);
                at += word + 3;
            }
            const size_t size = strspn(at, "0123456789");
            if (size == 0) break;
            const char *value = arena_copy(arena, at, size);
            const bool is_nodes = strcmp(key, "nodes") == 0;
            words[5] = is_nodes ? value : nodes[i % 3];
            words[6] = is_nodes ? NULL : "--set";
            words[7] = arena_print(arena, "mesh.%s=%s", key, value);
            const CommandResult r = command_run(arena, 60, words);
            if (r.exit_code != 0)
                fail_msg("%s on %s nodes: %s\n%s", plans[i / 3], words[5], words[7], r.err);
            n_sizes++;
        }
        arena_free(arena);
    }
    assert_true(n_sizes > 12);
}

/* A size of tp that a hint names must suit all weights and the sequence, not only the weight of the
 * error. */
static void sizes_of_tp_suit_the_whole_model(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"llama3_8b", "mesh.tp=3", "batch.seq=24"},
                                           {"llama3_8b", "mesh.tp=3", "model.hidden=14340"},
                                           {"gpt2_1558m", "mesh.tp=6", "batch.seq=1002"}};
    static const char may[] = "hint: tp may be ";
    uint32_t n_sizes = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        const char *script =
            arena_print(arena, TANDEM_SOURCE_DIR "/scripts/plans/%s.lua", cases[i][0]);
        const char *words[] = {"check", script,
                               "--set", "mesh.dp_shard=-1",
                               "--set", cases[i][2],
                               "--set", "parallel.tp.sequence=true",
                               "--set", "cluster.nodes=3",
                               "--set", cases[i][1],
                               NULL};
        const CommandResult wrong = command_run(arena, 60, words);
        const char *at = strstr(wrong.err, may);
        if (at == NULL) fail_msg("%s: no hint\n%s", cases[i][0], wrong.err);
        words[9] = "cluster.nodes=256";
        for (at += sizeof may - 1; *at != '\n' && *at != 0; at += strspn(at, ", ")) {
            const size_t n = strspn(at, "0123456789");
            words[11] = arena_print(arena, "mesh.tp=%.*s", (int)n, at);
            const CommandResult r = command_run(arena, 60, words);
            if (n == 0 || strstr(r.err, "over tp") != NULL || strstr(r.err, "mesh-product") != NULL)
                fail_msg("%s with %s: %s\n%s", cases[i][0], cases[i][2], words[11], r.err);
            at += n;
            n_sizes++;
        }
        arena_free(arena);
    }
    assert_true(n_sizes > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hints_work_when_they_are_followed),
                                       cmocka_unit_test(sizes_of_tp_suit_the_whole_model),
                                       cmocka_unit_test(sizes_for_another_cluster_break_no_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
