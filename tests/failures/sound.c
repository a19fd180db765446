/* See sound.h. Opens the store read-only, so that checking can neither repair nor change it. */
#include "tests/failures/sound.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/seals.h"
#include "store/store.h"

const char *sound_fault(Arena *arena, const char *path)
{
    Diag d = diag_in(arena);
    Store *store = store_open(path, true, &d);
    if (store == NULL) return d.n_errors > 0 ? d.items.at[0].text : "it does not open";
    const char *fault = NULL;
    static const char *const checks[] = {"PRAGMA integrity_check(1)", "PRAGMA foreign_key_check"};
    for (size_t i = 0; i < 2; i++) {
        DbStatement *st = db_prepare(store_db(store), &d, checks[i], "");
        while (db_step(st, &d))
            if (i == 1 || strcmp(db_text(st, 0), "ok") != 0)
                fault = arena_dup(arena, db_text(st, 0));
    }
    seals_hold(store_db(store), &d);
    if (d.n_errors > 0) fault = d.items.at[0].text;
    store_close(store);
    return fault;
}

uint32_t sound_rows(Arena *arena, const char *path, const char *table)
{
    Diag d = diag_in(arena);
    Store *store = store_open(path, true, &d);
    const char *sql = arena_print(arena, "SELECT count(*) FROM %s", table);
    DbStatement *st = store != NULL ? db_prepare(store_db(store), &d, sql, "") : NULL;
    if (!db_step(st, &d)) {
        fprintf(stderr, "%s: %s\n", path, d.n_errors > 0 ? d.items.at[0].text : "not read");
        abort();
    }
    const uint32_t n = (uint32_t)db_int(st, 0);
    store_close(store);
    return n;
}
