/* Exports tables as CSV, and reads the recipe of a stored plan: the scripts from which it can be
 * built again. */
#include <inttypes.h>
#include <string.h>

#include "store/pack.h"
#include "store/private.h"
#include "store/seals.h"

static bool is_table(Db *db, const char *name, Diag *d)
{
    DbStatement *st = db_prepare(db, d,
                                 "SELECT 1 FROM sqlite_master WHERE name = ? AND type IN "
                                 "('table', 'view')",
                                 "s", name);
    bool there = db_step(st, d);
    db_reset(st);
    return there;
}

static void add_field(Str *out, const char *text)
{
    if (text == NULL) return;
    bool quoted = strpbrk(text, ",\"\n\r") != NULL;
    if (quoted) str_add(out, "\"");
    for (; *text != 0; text++) str_print(out, *text == '"' ? "\"\"" : "%c", *text);
    if (quoted) str_add(out, "\"");
}

/* Writes the column names of table `name` to `heads`, and to `query` the SQL expression that prints
 * each column (a blob in hexadecimal). Returns the number of columns. */
static uint32_t list_columns(Db *db, const char *name, Str *heads, Str *query, Diag *d)
{
    uint32_t n = 0;
    DbStatement *st = db_prepare(db, d, "SELECT name FROM pragma_table_info(?)", "s", name);
    while (db_step(st, d)) {
        const char *column = db_text(st, 0);
        if (strchr(column, '"') != NULL) continue;
        str_print(heads, "%s%s", n > 0 ? "," : "", column);
        str_print(query,
                  "%s CASE typeof(\"%s\") WHEN 'blob' THEN lower(hex(\"%s\")) ELSE \"%s\" END",
                  n > 0 ? "," : "", column, column, column);
        n++;
    }
    return n;
}

bool store_csv(Store *store, const char *name, Str *out, Diag *d)
{
    Db *db = store_db(store);
    if (!is_table(db, name, d)) {
        diag_error(d, FAULT_usage, "option-value", (Loc){NULL, 0},
                   "the store has no table or view '%s'", name);
        diag_hint(d, "`tandem db info` lists tables and views");
        return false;
    }
    Str heads = str_in(out->arena), query = str_in(out->arena);
    str_add(&query, "SELECT");
    const uint32_t n = list_columns(db, name, &heads, &query, d);
    /* `name` is not user input here: is_table has found it in the file's own catalogue */
    str_print(&query, " FROM \"%s\"", name);
    str_print(out, "%s\n", str_text(&heads));
    DbStatement *st = db_prepare(db, d, str_text(&query), "");
    while (db_step(st, d)) {
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0) str_add(out, ",");
            add_field(out, db_is_null(st, (int)i) ? NULL : db_text(st, (int)i));
        }
        str_add(out, "\n");
    }
    return d->n_errors == 0;
}

static bool read_script(Store *store, RecipeScript *s, Arena *arena, Diag *d)
{
    unsigned char hash[STORE_HASH_BYTES];
    store_hash_bytes(s->hash, hash);
    DbStatement *st = db_prepare(store_db(store), d, "SELECT packed FROM script WHERE hash = ?",
                                 "b", hash, sizeof hash);
    if (db_step(st, d)) {
        size_t n = 0;
        const void *packed = db_blob(st, 0, &n);
        s->text = unpack_text(arena, packed, n, &s->bytes);
    }
    db_reset(st);
    if (s->text == NULL) return false;
    Hash128 hash_now = hash_bytes(s->text, s->bytes);
    if (hash_now.lo == s->hash.lo && hash_now.hi == s->hash.hi) return true;
    return diag_error(d, FAULT_store, "store-damaged", (Loc){NULL, 0},
                      "the script %s changed since it was stored", s->name);
}

bool store_recipe(Store *store, int64_t run, Arena *arena, Recipe *recipe, Diag *d)
{
    *recipe = (Recipe){.head = NULL};
    if (!run_seals_hold(store_db(store), run, false, d)) return false;
    DbStatement *st =
        db_prepare(store_db(store), d,
                   "SELECT p.recipe, l.list, l.hash, l.digest IS NULL OR l.digest = "
                   "tandem_digest(l.hash, l.list) FROM run r JOIN plan p ON p.id = r.plan "
                   "JOIN script_list l ON l.hash = p.scripts WHERE r.id = ?",
                   "i", run);
    if (!db_step(st, d)) return false;
    recipe->head = arena_dup(arena, db_text(st, 0));
    const char *list = arena_dup(arena, db_text(st, 1));
    const char *hash = hash_hex(arena, store_hash_of(st, 2));
    const bool intact = seal_intact(st, 3, "script_list", hash, d);
    db_reset(st);
    if (!intact) return false;
    while (*list != 0) {
        size_t n = strcspn(list, "\n");
        RecipeScript script;
        if (!store_script_line(list, n, arena, &script))
            return diag_error(d, FAULT_store, "no-recipe", (Loc){NULL, 0},
                              "the path of a script of run %" PRId64 " has a line break, so its "
                              "scripts cannot be listed",
                              run);
        list += n + (list[n] != 0);
        if (recipe_was_absent(&script)) continue;
        if (!read_script(store, &script, arena, d)) return false;
        list_push(arena, &recipe->scripts, script);
    }
    return recipe->scripts.n > 0;
}
