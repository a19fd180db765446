/* cli/documents.def lists every key of every document that --json prints, and no other key. So a
 * key that is added or dropped without its row fails here, because readers rely on the schema.
 * Lists in a document are written key[]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/docs/pages.h"
#include "tests/support/command.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

typedef struct Keys {
    Arena *arena;
    LIST(const char *) all;
} Keys;

static void add_key(Keys *keys, const char *path)
{
    for (uint32_t i = 0; i < keys->all.n; i++)
        if (strcmp(keys->all.at[i], path) == 0) return;
    list_push(keys->arena, &keys->all, path);
}

/* An object whose keys are data is written {}, and its keys are not collected. */
static bool has_free_keys(const char *path)
{
    static const char *const free[] = {"mesh", "tables", "flattened", "placement[].at",
                                       "rows[].settings"};
    for (size_t i = 0; i < sizeof free / sizeof *free; i++)
        if (strcmp(path, free[i]) == 0) return true;
    return false;
}

static void collect(Keys *keys, const char *path, json_t *value)
{
    if (json_is_array(value)) {
        const char *each = arena_print(keys->arena, "%s[]", path);
        size_t n = json_array_size(value);
        if (n == 0 || !json_is_object(json_array_get(value, 0))) add_key(keys, each);
        for (size_t i = 0; i < n; i++)
            if (json_is_object(json_array_get(value, i)))
                collect(keys, each, json_array_get(value, i));
    } else if (json_is_object(value) && !has_free_keys(path)) {
        const char *key;
        json_t *child;
        json_object_foreach(value, key, child)
            collect(keys,
                    path[0] != 0 ? arena_print(keys->arena, "%s.%s", path, key)
                                 : arena_dup(keys->arena, key),
                    child);
    } else {
        add_key(keys, has_free_keys(path) ? arena_print(keys->arena, "%s{}", path) : path);
    }
}

static bool is_common(const char *key)
{
    static const char *const common[] = {"schema", "version", "ok", "exit_code"};
    for (int i = 0; i < 4; i++)
        if (strcmp(key, common[i]) == 0) return true;
    return strncmp(key, "diagnostics", 11) == 0;
}

/* Returns true if cli/documents.def describes this key of this verb. */
static bool listed(const char *verb, const char *key)
{
    for (uint32_t i = 0; i < n_document_rows; i++)
        if (page_has_word(document_rows[i].verbs, verb) &&
            page_has_word(document_rows[i].keys, key))
            return true;
    return false;
}

/* Every key of a row must be in the documents. */
static void row_is_printed(const Keys *keys, const DocumentRow *row, const char *verb)
{
    for (const char *at = row->keys; *at != 0;) {
        size_t n = strcspn(at, " ");
        const char *key = arena_copy(keys->arena, at, n);
        bool found = false;
        for (uint32_t i = 0; i < keys->all.n; i++) found |= strcmp(keys->all.at[i], key) == 0;
        if (!found) fail_msg("cli/documents.def, %s: there is no key `%s`", verb, key);
        at += n + strspn(at + n, " ");
    }
}

/* Adds the keys of one more document. Returns its schema. */
static const char *collect_document(Keys *keys, const char *const *arguments)
{
    Arena *arena = keys->arena;
    CommandResult r = command_run(arena, 200, arguments);
    json_error_t error;
    json_t *root = json_loads(r.out, 0, &error);
    if (root == NULL || r.exit_code != 0)
        fail_msg("tandem %s: code %d\n%s\n%s", arguments[0], r.exit_code, r.err, r.out);
    const char *schema = arena_dup(arena, json_string_value(json_object_get(root, "schema")));
    collect(keys, "", root);
    json_decref(root);
    return schema;
}

/* `others`: arguments of the same verb that give other keys, with a NULL at the end; or NULL for
 * none. */
static void check(Arena *arena, const char *const *arguments, const char *const *const *others)
{
    Keys keys = {.arena = arena};
    const char *schema = collect_document(&keys, arguments);
    for (; others != NULL && *others != NULL; others++)
        assert_string_equal(collect_document(&keys, *others), schema);
    const char *verb = arguments[0];
    assert_string_equal(schema, arena_print(arena, "tandem.%s/1", verb));
    for (uint32_t i = 0; i < keys.all.n; i++)
        if (!is_common(keys.all.at[i]) && !listed(verb, keys.all.at[i]))
            fail_msg("cli/documents.def, %s: key `%s` is not listed", verb, keys.all.at[i]);
    for (uint32_t i = 0; i < n_document_rows; i++)
        if (page_has_word(document_rows[i].verbs, verb))
            row_is_printed(&keys, &document_rows[i], verb);
}
#define ARGUMENTS(...)    ((const char *const[]){__VA_ARGS__, "--json", NULL})
#define OTHERS(...)       ((const char *const *const[]){__VA_ARGS__, NULL})
#define CHECK(arena, ...) check((arena), ARGUMENTS(__VA_ARGS__), NULL)

static void documents_are_as_described(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    const char *file = arena_print(arena, "%s/t.json", folder);
    const char *exported = arena_print(arena, "%s/x", folder);
    const char *other = arena_print(arena, "%s/o.db", folder);
    const char *measured = arena_print(arena, "%s/m.txt", folder);
    CHECK(arena, "check", llama);
    check(arena, ARGUMENTS("sim", llama, "--db", db),
          OTHERS(ARGUMENTS("sim", llama, "--db", db, "--explain", "--mtbf", "1000", "--tokens",
                           "1T", "--storage", "40G"),
                 ARGUMENTS("sim", llama, "--db", "none", "--mfu", "all", "--what-if", "nic=2x",
                           "--what-if", "mesh.tp=3"),
                 ARGUMENTS("sim", llama, "--dry-run", "--set", "runtime=torchtitan")));
    check(arena, ARGUMENTS("sweep", llama, "--db", db, "--try", "mesh.tp=2,3"),
          OTHERS(ARGUMENTS("sweep", llama, "--db", db, "--try", "mesh.tp=2", "--tokens", "1T"),
                 ARGUMENTS("sweep", TANDEM_SOURCE_DIR "/scripts/sweeps/llama3_8b.lua", "--db",
                           "none", "--try", "mesh.tp=2", "--try", "batch.micro=1"),
                 ARGUMENTS("sweep", llama, "--try", "mesh.tp=2", "--dry-run"),
                 ARGUMENTS("sweep", llama, "--try", "mesh.tp=2", "--slurm", "1")));
    command_write_file(measured,
                       "# all_reduce_perf\n#  Rank  0\n#  Rank  1\n# size count type redop "
                       "root time algbw busbw #wrong\n8 2 float sum -1 10 0 0 0\n");
    check(arena, ARGUMENTS("net", "dgx_h100"),
          OTHERS(ARGUMENTS("net", "dgx_h100", "--compare", measured)));
    CHECK(arena, "import", measured, "--db", db);
    CHECK(arena, "accuracy", "--kernels", TANDEM_SOURCE_DIR "/tests/data/published_kernels.csv");
    check(arena, ARGUMENTS("show", tiny),
          OTHERS(ARGUMENTS("show", tiny, "--mesh"), ARGUMENTS("show", tiny, "--after", "all"),
                 ARGUMENTS("show", tiny, "--state", "--rank", "1")));
    const char *const experts = TANDEM_SOURCE_DIR "/tests/golden/moe_balance.lua";
    check(arena, ARGUMENTS("run", tiny, "--backend", "loopback", "--steps", "3", "--db", db),
          OTHERS(ARGUMENTS("run", experts, "--backend", "loopback", "--steps", "1", "--db", other),
                 ARGUMENTS("run", experts, "--verify"),
                 ARGUMENTS("run", tiny, "--verify", "--set", "precision.compute=bf16", "--set",
                           "parallel.float8=rowwise")));
    check(arena, ARGUMENTS("compare", "--db", db),
          OTHERS(ARGUMENTS("compare", "1", "2", "--db", db)));
    CHECK(arena, "runs", "--db", db);
    check(arena, ARGUMENTS("trace", "3", "--db", db, "-o", file),
          OTHERS(ARGUMENTS("trace", "3", "--db", db)));
    check(arena, ARGUMENTS("db", "info", "--db", db),
          OTHERS(ARGUMENTS("db", "prune", "--dry-run", "--db", db),
                 ARGUMENTS("db", "merge", other, "--db", db),
                 ARGUMENTS("db", "export", "v_run", "--db", db),
                 ARGUMENTS("db", "export", "1", "--db", db, "-o", exported)));
    check(arena,
          ARGUMENTS("search", llama, "--db", db, "--set", "mesh.pp=1", "--set", "mesh.tp=8",
                    "--set", "batch.seq=262144", "--set", "model.layers=1"),
          OTHERS(ARGUMENTS("search", llama, "--dry-run", "--where", "tp == 2")));
    check(arena,
          ARGUMENTS("fit", llama, "--db", db, "--set", "batch.seq=1048576", "--set",
                    "batch.micro=8", "--set", "model.layers=1"),
          OTHERS(ARGUMENTS("fit", llama, "--dry-run"),
                 ARGUMENTS("fit", llama, "--db", db, "--set", "batch.global=16", "--set",
                           "model.layers=1", "--tokens", "1T", "--days", "99999")));
    CHECK(arena, "calibrate", tiny, "--dry-run", "--db", db);
    CHECK(arena, "explain", "pass-order");
    CHECK(arena, "doctor");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_are_as_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
