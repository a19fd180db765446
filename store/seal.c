/* Writes and checks the digests of rows; seals.h says why there are digests. */
#include "store/seals.h"

#include <inttypes.h>
#include <string.h>

#include "store/private.h"

enum { MOST_NAMED = 20 }; /* greatest number of damaged rows that are reported for each table */

typedef enum SealUpdate { SEAL_WHOLE, SEAL_PARTS, SEAL_ALWAYS } SealUpdate;
typedef struct Seal {
    const char *table;
    SealUpdate update;
    const char *keys, *columns;
} Seal;
typedef struct Detail {
    const char *table, *owner, *link, *columns;
} Detail;

#define SEAL(table, update, keys, columns)  {#table, SEAL_##update, keys, columns},
#define DETAIL(table, owner, link, columns) {#table, #owner, link, columns},
static const Seal seals[] = {SEALS(SEAL)};
static const Detail details[] = {DETAILS(DETAIL)};
enum { N_SEALS = sizeof seals / sizeof *seals, N_DETAILS = sizeof details / sizeof *details };

/* Appends a list of column names such as "machine, key" with `prefix` before each name:
 * "OLD.machine, OLD.key". */
static void add_names(Str *out, const char *names, const char *prefix)
{
    while (*names != 0) {
        size_t n = strcspn(names, ",");
        str_print(out, "%s%.*s", prefix, (int)n, names);
        names += n + strspn(names + n, ", ");
        if (*names != 0) str_add(out, ", ");
    }
}

/* Appends the condition under which the trigger renews a digest: before the update, the row was
 * still as Tandem had written it. */
static void add_intact_before(Str *sql, const Seal *s)
{
    str_print(sql, "WHEN %sOLD.digest = tandem_digest(",
              s->update == SEAL_PARTS ? "OLD.digest ISNULL OR " : "");
    add_names(sql, s->columns, "OLD.");
    str_add(sql, ") ");
}

/* The triggers are temporary, that is, part of this connection and not of the file: they call
 * tandem_digest, which other programs lack. */
bool seal_rows(Db *db, Diag *d)
{
    static const char *const events[] = {"INSERT", "UPDATE"};
    Arena *arena = arena_new();
    Str sql = str_in(arena);
    for (uint32_t i = 0; i < N_SEALS; i++) {
        const Seal *s = &seals[i];
        for (uint32_t e = 0; e < 2; e++) {
            str_print(&sql, "CREATE TEMP TRIGGER seal_%s_%s AFTER %s%s%s ON main.%s ", s->table,
                      events[e], events[e], e == 1 ? " OF " : "", e == 1 ? s->columns : "",
                      s->table);
            if (e == 1 && s->update != SEAL_WHOLE) add_intact_before(&sql, s);
            str_print(&sql, "BEGIN UPDATE %s SET digest = tandem_digest(%s) WHERE (", s->table,
                      s->columns);
            add_names(&sql, s->keys, "");
            str_add(&sql, ") = (");
            add_names(&sql, s->keys, "NEW.");
            str_add(&sql, "); END;\n");
        }
    }
    bool fine = db_exec(db, str_text(&sql), d);
    arena_free(arena);
    return fine;
}

/* Appends 'name' to a parenthesised SQL list, with a comma unless it is the first element. */
static void add_quoted(Str *sql, const char *name)
{
    str_print(sql, "%s'%s'", str_text(sql)[sql->n - 1] == '(' ? "" : ", ", name);
}

bool tables_are_no_views(Db *db, Diag *d)
{
    const uint32_t before = d->n_errors;
    Arena *arena = arena_new();
    Str sql = str_in(arena);
    str_add(&sql, "SELECT name FROM sqlite_schema WHERE type = 'view' AND name IN (");
    for (uint32_t i = 0; i < N_SEALS; i++) add_quoted(&sql, seals[i].table);
    for (uint32_t i = 0; i < N_DETAILS; i++) add_quoted(&sql, details[i].table);
    str_add(&sql, ")");
    DbStatement *st = db_prepare(db, d, str_text(&sql), "");
    while (db_step(st, d))
        diag_error(d, FAULT_store, "store-damaged", (Loc){.file = arena_dup(d->arena, db_file(db))},
                   "%s is a view, but Tandem makes a table of this name", db_text(st, 0));
    arena_free(arena);
    return d->n_errors == before; /* a failed query is an error, too */
}

/* Appends the SQL for the sum of the digests of the rows of t->table that belong to the current row
 * of t->owner. */
static void add_sum(Str *sql, const Detail *t)
{
    str_print(sql, "(SELECT tandem_total(tandem_digest(%s)) FROM %s t WHERE t.%s = %s.id)",
              t->columns, t->table, t->link, t->owner);
}

/* An existing sum is not computed again: a new sum would hide that a row was changed. */
bool seal_details(Db *db, int64_t run, Diag *d)
{
    bool fine = true;
    Arena *arena = arena_new();
    for (uint32_t i = 0; fine && i < N_DETAILS; i++) {
        const Detail *t = &details[i];
        const bool of_run = strcmp(t->owner, "run") == 0;
        Str sql = str_in(arena);
        str_print(&sql, "UPDATE %s SET %s_sum = ", t->owner, t->table);
        add_sum(&sql, t);
        str_print(&sql, " WHERE %s_sum ISNULL AND id = %s", t->table,
                  of_run ? "?" : "(SELECT plan FROM run WHERE id = ?)");
        fine = db_run(db, d, str_text(&sql), "i", run);
    }
    arena_free(arena);
    return fine;
}

/* Appends an SQL expression for the name of a row in messages: "id = 3", with blobs in hexadecimal.
 */
static void add_name(Str *sql, const char *keys)
{
    for (const char *sep = ""; *keys != 0; sep = ", ") {
        int n = (int)strcspn(keys, ",");
        str_print(
            sql,
            "%s'%s%.*s = ' || CASE typeof(%.*s) WHEN 'blob' THEN lower(hex(%.*s)) ELSE %.*s END",
            *sep != 0 ? " || " : "", sep, n, keys, n, keys, n, keys, n, keys);
        keys += n + (int)strspn(keys + n, ", ");
    }
}

/* Reports each row that the query `sql` returns, as "table <table>, <row>: <what>". Returns true if
 * there is no such row. */
static bool report(Db *db, const char *table, const char *what, const char *sql, int64_t run,
                   Diag *d)
{
    const uint32_t before = d->n_errors;
    DbStatement *st = run != 0 ? db_prepare(db, d, sql, "i", run) : db_prepare(db, d, sql, "");
    while (db_step(st, d)) {
        diag_error(d, FAULT_store, "store-damaged", (Loc){NULL, 0}, "table %s, %s: %s", table,
                   db_text(st, 0), what);
        diag_hint(d,
                  "other rows can be read; restore the file from a copy or use another --db FILE");
    }
    return d->n_errors == before; /* a failed query is an error, too */
}

/* Reports the rows of s->table that satisfy `condition` and `where` (" AND ...", or ""). */
static bool check_rows(Db *db, const Seal *s, const char *condition, const char *what,
                       const char *where, int64_t run, Diag *d)
{
    Arena *arena = arena_new();
    Str sql = str_in(arena);
    str_add(&sql, "SELECT ");
    add_name(&sql, s->keys);
    str_print(&sql, " FROM %s WHERE %s%s LIMIT %d", s->table, condition, where, MOST_NAMED);
    bool fine = report(db, s->table, what, str_text(&sql), run, d);
    arena_free(arena);
    return fine;
}

static bool check_seal(Db *db, const Seal *s, const char *where, int64_t run, Diag *d)
{
    Arena *arena = arena_new();
    bool fine = check_rows(db, s, arena_print(arena, "digest <> tandem_digest(%s)", s->columns),
                           "a value was changed after Tandem wrote it", where, run, d);
    if (s->update == SEAL_ALWAYS)
        fine = check_rows(db, s, "digest ISNULL",
                          "the row has no digest, so Tandem did not write it", where, run, d) &&
               fine;
    arena_free(arena);
    return fine;
}

static bool check_details(Db *db, const Detail *t, const char *where, int64_t run, Diag *d)
{
    Arena *arena = arena_new();
    Str sql = str_in(arena);
    str_add(&sql, "SELECT ");
    add_name(&sql, "id");
    str_print(&sql, " FROM %s WHERE %s_sum <> ", t->owner, t->table);
    add_sum(&sql, t);
    str_print(&sql, "%s LIMIT %d", where, MOST_NAMED);
    bool fine = report(
        db, t->owner,
        arena_print(arena, "its rows in table %s were changed after Tandem wrote it", t->table),
        str_text(&sql), run, d);
    arena_free(arena);
    return fine;
}

bool seals_hold(Db *db, Diag *d)
{
    bool fine = true;
    for (uint32_t i = 0; i < N_SEALS; i++) fine = check_seal(db, &seals[i], "", 0, d) && fine;
    for (uint32_t i = 0; i < N_DETAILS; i++)
        fine = check_details(db, &details[i], "", 0, d) && fine;
    return fine;
}

bool run_seals_hold(Db *db, int64_t run, bool with_trace, Diag *d)
{
    static const char this_run[] = " AND id = ?";
    static const char this_plan[] = " AND id = (SELECT plan FROM run WHERE id = ?)";
    static const char its_proof[] = " AND plan = (SELECT plan FROM run WHERE id = ?)";
    bool fine = true;
    for (uint32_t i = 0; i < N_SEALS; i++) {
        const Seal *s = &seals[i];
        const char *where = strcmp(s->table, "run") == 0     ? this_run
                            : strcmp(s->table, "plan") == 0  ? this_plan
                            : strcmp(s->table, "proof") == 0 ? its_proof
                                                             : NULL;
        if (where != NULL) fine = check_seal(db, s, where, run, d) && fine;
    }
    for (uint32_t i = 0; i < N_DETAILS; i++) {
        const bool of_run = strcmp(details[i].owner, "run") == 0;
        if (!with_trace && strcmp(details[i].table, "trace") == 0) continue;
        fine = check_details(db, &details[i], of_run ? this_run : this_plan, run, d) && fine;
    }
    return fine;
}

bool seal_intact(DbStatement *st, int column, const char *table, const char *name, Diag *d)
{
    if (db_int(st, column) != 0) return true;
    return diag_error(d, FAULT_store, "store-damaged", (Loc){NULL, 0},
                      "table %s, %s: a value was changed after Tandem wrote it", table, name);
}
