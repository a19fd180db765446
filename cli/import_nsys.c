/* SQLite exports of Nsight Systems (`nsys export --type sqlite`). A kernel there has a name and a
 * grid, but no shape of an operator, so that no op of a plan can be told to be the same: kernels
 * are counted, no more. */
#include <stdio.h>
#include <string.h>

#include "cli/import.h"
#include "planner/base/db.h"

static const char kernels_query[] =
    "SELECT s.value, k.\"end\" - k.start"
    " FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName";

static bool has_tables(Db *db, Diag *d)
{
    DbStatement *st =
        db_prepare(db, d,
                   "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN "
                   "('CUPTI_ACTIVITY_KIND_KERNEL', 'StringIds')",
                   "");
    bool both = db_step(st, d) && db_int(st, 0) == 2;
    db_reset(st);
    return both;
}

static void read_kernels(Db *db, ImportSink *sink, Diag *d)
{
    DbStatement *st = db_prepare(db, d, kernels_query, "");
    while (db_step(st, d)) {
        const char *name = db_text(st, 0);
        int64_t ns = db_int(st, 1);
        sink->events++;
        if (name == NULL || ns <= 0 || ns > INT64_C(1000000000000)) continue;
        if (strncmp(name, "nccl", 4) == 0) {
            sink->n_sizeless++;
            continue;
        }
        sink->n_unused++;
        sink->unused_ps += ns * 1000;
    }
}

bool nsys_read(const char *path, ImportSink *sink, Arena *arena, Diag *d)
{
    Diag own = diag_in(arena); /* SQLite's words, as faults of the input, not of our store */
    Db *db = db_open_foreign(path, &own);
    bool tables = db != NULL && has_tables(db, &own);
    if (tables) read_kernels(db, sink, &own);
    db_close(db);
    if (own.n_errors > 0)
        return diag_error(d, FAULT_input, "import-syntax", (Loc){path, 0}, "%s",
                          own.items.at[0].text);
    if (!tables || sink->events == 0)
        return diag_error(d, FAULT_input, "import-format", (Loc){path, 0},
                          "it is a database, but no export of nsys with kernels in it");
    return true;
}
