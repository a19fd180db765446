/* Stores sweeps and their points: which settings led to which run. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "cli/sweep/point.h"

int64_t sweep_begin(Cli *cli, Store *store, const char *script, const TextList *settings,
                    uint32_t n)
{
    Str space = str_in(cli->arena);
    str_add(&space, script);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < settings[i].n; k++)
            str_print(&space, "%c%s", k == 0 ? '\n' : ' ', settings[i].at[k]);
    for (uint32_t i = 0; i < cli->options.set.n; i++)
        str_print(&space, "\n%s", cli->options.set.at[i]);
    unsigned char hash[16];
    hash_to_bytes(hash_bytes(str_text(&space), space.n), hash);
    const int64_t seed = (int64_t)cli->options.seed;
    Db *db = store_db(store);
    if (!db_run(db, &cli->diag,
                "INSERT INTO sweep(script, space, seed, n_points, status) "
                "VALUES(?,?,?,?,'running') ON CONFLICT(space, seed) DO UPDATE SET "
                "status = 'running'",
                "sbii", script, hash, sizeof hash, seed, (int64_t)n))
        return 0;
    DbStatement *st =
        db_prepare(db, &cli->diag, "SELECT id FROM sweep WHERE space = ? AND seed = ?", "bi", hash,
                   sizeof hash, seed);
    int64_t id = db_step(st, &cli->diag) ? db_int(st, 0) : 0;
    db_reset(st);
    return id;
}

/* Returns settings as JSON, such as {"mesh.tp":"2"}, because SQLite can read JSON. */
static const char *settings_json(const TextList *settings, Arena *arena)
{
    Str out = str_in(arena);
    str_add(&out, "{");
    for (uint32_t i = 0; i < settings->n; i++) {
        const char *text = settings->at[i], *equals = strchr(text, '=');
        size_t n = equals != NULL ? (size_t)(equals - text) : strlen(text);
        if (i > 0) str_add(&out, ",");
        str_add_json(&out, arena_copy(arena, text, n));
        str_add(&out, ":");
        str_add_json(&out, equals != NULL ? equals + 1 : "");
    }
    str_add(&out, "}");
    return str_text(&out);
}

bool sweep_put_point(Store *store, int64_t sweep, uint32_t point, const TextList *settings,
                     int64_t run, SweepStatus status, Arena *arena, Diag *d)
{
    static const char *const words[] = {"ok", "infeasible", "invalid", "infeasible"};
    assert(status < sizeof words / sizeof words[0]); /* an open point is never stored */
    return db_run(store_db(store), d,
                  "INSERT OR REPLACE INTO sweep_point(sweep, point, settings, run, status) "
                  "VALUES(?,?,?,nullif(?, 0),?)",
                  "iisis", sweep, (int64_t)point, settings_json(settings, arena), run,
                  words[status]);
}

bool sweep_end(Store *store, int64_t sweep, Diag *d)
{
    return db_run(store_db(store), d, "UPDATE sweep SET status = 'done' WHERE id = ?", "i", sweep);
}

bool measured_any(Store *store, Diag *d)
{
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT EXISTS (SELECT 1 FROM kernel_cost) OR "
                                 "EXISTS (SELECT 1 FROM collective_cost)",
                                 "");
    const bool any = db_step(st, d) && db_int(st, 0) != 0;
    db_reset(st);
    return any;
}

Hash128 measured_state(Store *store, Diag *d)
{
    static const char *const queries[] = {
        "SELECT machine || ' ' || key || ' ' || median_ps || ' ' || made_at FROM kernel_cost "
        "ORDER BY machine, key",
        "SELECT machine || ' ' || backend || ' ' || op || ' ' || n_ranks || ' ' || bytes || ' ' "
        "|| median_ps || ' ' || made_at FROM collective_cost "
        "ORDER BY machine, backend, op, n_ranks, bytes",
        "SELECT count(*) || ' ' || ifnull(max(id), 0) FROM run WHERE kind = 'measured'"};
    Arena *arena = arena_new();
    Hasher *hasher = hasher_new(arena);
    for (uint32_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        DbStatement *st = db_prepare(store_db(store), d, queries[i], "");
        while (db_step(st, d)) {
            const char *row = db_text(st, 0);
            hasher_add(hasher, row, row != NULL ? strlen(row) + 1 : 0);
        }
    }
    Hash128 state = hasher_end(hasher);
    arena_free(arena);
    return state;
}
