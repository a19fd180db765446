/* Stores scripts under the hash of their content, lists of scripts, and answers: the outputs of
 * earlier commands, which are found again as long as their scripts have not changed. */
#include <stdlib.h>
#include <string.h>

#include "store/pack.h"
#include "store/private.h"
#include "store/seals.h"

bool store_has_script(Store *store, Hash128 hash, Diag *d)
{
    unsigned char bytes[STORE_HASH_BYTES];
    store_hash_bytes(hash, bytes);
    DbStatement *st = db_prepare(store_db(store), d, "SELECT 1 FROM script WHERE hash = ?", "b",
                                 bytes, sizeof bytes);
    bool there = db_step(st, d);
    db_reset(st);
    return there;
}

const char *store_script_list(const Recipe *recipe, Arena *arena)
{
    Str list = str_in(arena);
    for (uint32_t i = 0; i < recipe->scripts.n; i++) {
        const RecipeScript *s = &recipe->scripts.at[i];
        str_print(&list, "%s %s %s\n", s->shipped ? "library" : "own", hash_hex(arena, s->hash),
                  s->name);
    }
    return str_text(&list);
}

static uint64_t read_hex(const char *digits)
{
    char text[17] = "";
    memcpy(text, digits, 16);
    return strtoull(text, NULL, 16);
}

bool store_script_line(const char *line, size_t n, Arena *arena, RecipeScript *s)
{
    *s = (RecipeScript){.shipped = strncmp(line, "library ", 8) == 0};
    /* the hash has 32 digits and begins here; a space follows it */
    const size_t at = s->shipped ? 8 : 4;
    if (!s->shipped && strncmp(line, "own ", 4) != 0) return false;
    if (n < at + 34 || strspn(line + at, "0123456789abcdef") != 32 || line[at + 32] != ' ')
        return false;
    s->hash.hi = read_hex(line + at);
    s->hash.lo = read_hex(line + at + 16);
    s->name = arena_copy(arena, line + at + 33, n - at - 33);
    return true;
}

static bool put_script(Db *db, const RecipeScript *s, Arena *arena, Diag *d)
{
    if (s->text == NULL) return true;
    unsigned char hash[STORE_HASH_BYTES];
    store_hash_bytes(s->hash, hash);
    size_t n = 0;
    const void *packed = pack_bytes(arena, s->text, s->bytes, &n);
    return db_run(db, d, "INSERT OR IGNORE INTO script(hash, bytes, packed) VALUES(?,?,?)", "bib",
                  hash, sizeof hash, (int64_t)s->bytes, packed, n);
}

bool store_put_scripts(Db *db, const Recipe *recipe, Hash128 *hash, Diag *d)
{
    Arena *arena = arena_new();
    const char *list = store_script_list(recipe, arena);
    *hash = hash_bytes(list, strlen(list));
    unsigned char bytes[STORE_HASH_BYTES];
    store_hash_bytes(*hash, bytes);
    bool fine = db_run(db, d, "INSERT OR IGNORE INTO script_list(hash, list) VALUES(?,?)", "bs",
                       bytes, sizeof bytes, list);
    for (uint32_t i = 0; fine && i < recipe->scripts.n; i++)
        fine = put_script(db, &recipe->scripts.at[i], arena, d);
    arena_free(arena);
    return fine;
}

/* True if the text is the list with this key: the key is the hash of the text. */
static bool is_list(const char *list, Hash128 key, Diag *d)
{
    if (list == NULL) return false;
    Hash128 hash = hash_bytes(list, strlen(list));
    if (hash.lo == key.lo && hash.hi == key.hi) return true;
    return diag_error(d, FAULT_store, "store-damaged", (Loc){NULL, 0},
                      "a list of scripts was changed after Tandem wrote it");
}

bool store_find_answer(Store *store, Hash128 key, Arena *arena, FoundAnswer *found, Diag *d)
{
    unsigned char bytes[STORE_HASH_BYTES];
    store_hash_bytes(key, bytes);
    DbStatement *st =
        db_prepare(store_db(store), d,
                   "SELECT scripts, run, answer, (SELECT list FROM script_list WHERE "
                   "hash = scripts), " INTACT(SEALED_found) " FROM found WHERE key = ?",
                   "b", bytes, sizeof bytes);
    bool there = db_step(st, d) && seal_intact(st, 4, "found", hash_hex(arena, key), d) &&
                 is_list(db_text(st, 3), store_hash_of(st, 0), d);
    if (there) {
        *found = (FoundAnswer){.scripts = store_hash_of(st, 0),
                               .run = db_is_null(st, 1) ? 0 : db_int(st, 1),
                               .answer = arena_dup(arena, db_text(st, 2)),
                               .list = arena_dup(arena, db_text(st, 3))};
    }
    db_reset(st);
    return there;
}

bool store_put_answer(Store *store, Hash128 key, const Recipe *recipe, int64_t run,
                      const char *build, const char *answer, Diag *d)
{
    Db *db = store_db(store);
    Hash128 list;
    unsigned char key_bytes[STORE_HASH_BYTES], list_bytes[STORE_HASH_BYTES];
    store_hash_bytes(key, key_bytes);
    if (!db_begin(db, d)) return false;
    bool fine = store_put_scripts(db, recipe, &list, d);
    store_hash_bytes(list, list_bytes);
    fine = fine && db_run(db, d,
                          "INSERT OR REPLACE INTO found(key, scripts, run, build, answer) "
                          "VALUES(?,?,nullif(?, 0),?,?)",
                          "bbiss", key_bytes, sizeof key_bytes, list_bytes, sizeof list_bytes, run,
                          build, answer);
    if (fine) return db_commit(db, d);
    db_rollback(db);
    return false;
}
