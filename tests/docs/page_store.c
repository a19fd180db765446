/* docs/reference/store.md: the tables and views of a new store, as SQLite lists them. */
#include <assert.h>
#include <string.h>

#include "store/store.h"
#include "tests/docs/pages.h"

const ColumnRow column_rows[] = {
#define TABLE(name, text)             {name, NULL, text},
#define COLUMNS(table, columns, text) {table, columns, text},
#include "store/columns.def"
#undef TABLE
#undef COLUMNS
};
const uint32_t n_column_rows = sizeof column_rows / sizeof column_rows[0];

static void add_table(Str *out, const char *name)
{
    str_print(out, "\n## %s\n\n", name);
    for (uint32_t i = 0; i < n_column_rows; i++)
        if (strcmp(column_rows[i].table, name) == 0 && column_rows[i].columns == NULL)
            page_text(out, column_rows[i].text);
    str_add(out, "\n| columns | meaning |\n|---|---|\n");
    for (uint32_t i = 0; i < n_column_rows; i++) {
        const ColumnRow *row = &column_rows[i];
        if (strcmp(row->table, name) != 0 || row->columns == NULL) continue;
        str_print(out, "| %s | %s |\n", page_names(out->arena, row->columns),
                  page_cell(out->arena, row->text));
    }
}

static void add_kind(Str *out, Db *db, Diag *d, const char *kind)
{
    DbStatement *all = db_prepare(
        db, d, "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%'", "s",
        kind);
    while (db_step(all, d)) add_table(out, arena_dup(out->arena, db_text(all, 0)));
}

const char *page_store(Arena *arena)
{
    Diag diag = diag_in(arena);
    Store *store = store_open(":memory:", false, &diag);
    assert(store);
    Str out = page_begin(arena, "The store", "store/schema.c and store/columns.def");
    str_add(&out,
            "```\nsqlite3 tandem.db 'SELECT id, plan, step_ms, peak_gib FROM v_run'\n```\n\n");
    page_text(&out,
              "The store is one SQLite file: `--db FILE`, else `TANDEM_DB`, else `tandem.db`. "
              "Times are integer picoseconds (`_ps`), sizes are bytes. The views, whose names "
              "begin with `v_`, use milliseconds, GiB and dates.");
    add_kind(&out, store_db(store), &diag, "table");
    add_kind(&out, store_db(store), &diag, "view");
    store_close(store);
    return str_text(&out);
}
