/* Copies the rows of another store, attached as `other`. The keys of plans, scripts and answers are
 * hashes of their content, so equal rows have equal keys. Runs get new ids: the temporary table
 * `moved` maps the id of each run of `other` (old) to its id here (new). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/private.h"
#include "store/seals.h"

static const char contents[] =
    "INSERT OR IGNORE INTO script(hash, bytes, packed) SELECT hash, bytes, packed FROM "
    "other.script;\n"
    "INSERT OR IGNORE INTO script_list(hash, list) SELECT hash, list FROM other.script_list;\n"
    "INSERT OR IGNORE INTO plan(id, name, n_ranks, recipe, scripts, packed)"
    " SELECT id, name, n_ranks, recipe, scripts, packed FROM other.plan;\n"
    "UPDATE plan SET packed = (SELECT o.packed FROM other.plan o WHERE o.id = plan.id)"
    " WHERE packed IS NULL;\n"
    "INSERT OR IGNORE INTO role(plan, program, purpose, stage, first_rank, n_ranks, bytes,"
    " n_instructions, n_buffers) SELECT plan, program, purpose, stage, first_rank, n_ranks, bytes,"
    " n_instructions, n_buffers FROM other.role;\n"
    /* keep the proof that this store has, even a damaged one; verifying the plan again replaces it
     */
    "INSERT OR IGNORE INTO proof(plan, build, made_at) SELECT plan, build, made_at FROM "
    "other.proof;\n";

/* Fills `moved`, then copies the runs that this store lacks (fresh = 1). Two predictions are the
 * same run if their keys are equal; two measurements, if their dates and step times are equal, too.
 */
static const char runs[] =
    "CREATE TEMP TABLE moved(old INTEGER PRIMARY KEY, new INTEGER NOT NULL, fresh INTEGER NOT "
    "NULL);\n"
    "INSERT INTO moved SELECT o.id, min(r.id), 0 FROM other.run o JOIN main.run r ON r.kind ="
    " o.kind AND r.plan = o.plan AND r.cluster = o.cluster AND r.scenario = o.scenario AND"
    " r.backend = o.backend AND r.seed = o.seed AND r.engine = o.engine AND r.calibration ="
    " o.calibration AND (r.kind = 'predicted' OR (r.made_at = o.made_at AND r.step_ps ="
    " o.step_ps)) GROUP BY o.id;\n"
    "INSERT INTO moved SELECT id, (SELECT ifnull(max(id), 0) FROM main.run) + row_number() OVER"
    " (ORDER BY id), 1 FROM other.run WHERE id NOT IN (SELECT old FROM moved);\n"
    "INSERT INTO run(id, kind, plan, name, cluster, scenario, backend, engine, calibration, seed,"
    " n_ranks, status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank,"
    " tokens_per_s_per_device, mfu, mfu_formula, steps_done, trace_step, made_at)"
    " SELECT m.new, kind, plan, name, cluster, scenario, backend, engine, calibration, seed,"
    " n_ranks, status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank,"
    " tokens_per_s_per_device, mfu, mfu_formula, steps_done, trace_step, made_at"
    " FROM other.run JOIN moved m ON m.old = id WHERE m.fresh ORDER BY id;\n";

static const char details[] =
    "INSERT INTO step SELECT m.new, step, loss, grad_norm, time_ps FROM other.step JOIN moved m ON"
    " m.old = run WHERE m.fresh;\n"
    "INSERT INTO trace SELECT m.new, step, rank, pc, start_ps, end_ps, bytes FROM other.trace JOIN"
    " moved m ON m.old = run WHERE m.fresh;\n"
    "INSERT INTO memory SELECT m.new, program, category, bytes FROM other.memory JOIN moved m ON"
    " m.old = run WHERE m.fresh;\n"
    "INSERT INTO collective SELECT m.new, number, op, axes, stream, bytes, n, total_ps, exposed_ps"
    " FROM other.collective JOIN moved m ON m.old = run WHERE m.fresh;\n"
    "INSERT INTO trust(run, basis, calibrated_at, n, error_p50, error_p90, kernels_measured,"
    " kernels_modelled, collectives_measured, collectives_modelled) SELECT m.new, basis,"
    " calibrated_at, n, error_p50, error_p90, kernels_measured, kernels_modelled,"
    " collectives_measured, collectives_modelled FROM other.trust JOIN moved m ON m.old = run"
    " WHERE m.fresh;\n"
    "INSERT INTO cores(run, cores, running, ready, others) SELECT m.new, cores, running, ready, "
    "others FROM other.cores JOIN moved m"
    " ON m.old = run WHERE m.fresh;\n";

/* If both stores have a measurement of the same cost, the newer one stays. product_choice has no
 * date, so the choice of this store stays. */
static const char costs[] =
    "INSERT INTO kernel_cost(machine, key, median_ps, spread, n, made_at) SELECT machine, key,"
    " median_ps, spread, n, made_at FROM other.kernel_cost WHERE true ON CONFLICT DO UPDATE SET"
    " median_ps = excluded.median_ps, spread = excluded.spread, n = excluded.n,"
    " made_at = excluded.made_at WHERE excluded.made_at > made_at;\n"
    "INSERT INTO collective_cost(machine, backend, op, n_ranks, bytes, median_ps, made_at) SELECT"
    " machine, backend, op, n_ranks, bytes, median_ps, made_at FROM other.collective_cost WHERE"
    " true ON CONFLICT DO UPDATE SET median_ps = excluded.median_ps, made_at = excluded.made_at"
    " WHERE excluded.made_at > made_at;\n"
    "INSERT OR IGNORE INTO product_choice(device, call, choice, median_ps) SELECT device, call, "
    "choice, median_ps FROM"
    " other.product_choice;\n";

static const char sweeps[] =
    "INSERT OR IGNORE INTO found(key, scripts, run, build, answer) SELECT key, scripts, m.new,"
    " build, json_set(answer, '$.run', ifnull(m.new, 0)) FROM other.found LEFT JOIN moved m ON"
    " m.old = run;\n"
    "INSERT OR IGNORE INTO sweep(script, space, seed, n_points, status, made_at) SELECT script,"
    " space, seed, n_points, status, made_at FROM other.sweep;\n"
    "INSERT OR REPLACE INTO sweep_point(sweep, point, settings, run, status) SELECT w.id, p.point,"
    " p.settings, m.new, p.status FROM other.sweep_point p JOIN other.sweep o ON o.id = p.sweep"
    " JOIN main.sweep w ON w.space = o.space AND w.seed = o.seed LEFT JOIN moved m ON"
    " m.old = p.run;\n";

static int64_t one_number(Db *db, const char *sql, Diag *d)
{
    DbStatement *st = db_prepare(db, d, sql, "");
    int64_t n = db_step(st, d) ? db_int(st, 0) : -1;
    db_reset(st);
    return n;
}

static bool seal_moved(Db *db, Diag *d)
{
    const uint32_t before = d->n_errors;
    DbStatement *st = db_prepare(db, d, "SELECT new FROM moved WHERE fresh", "");
    bool fine = true;
    while (db_step(st, d)) fine = fine && seal_details(db, db_int(st, 0), d);
    return fine && d->n_errors == before;
}

static bool take(Db *db, Merged *merged, Diag *d)
{
    static const char n_costs[] =
        "SELECT (SELECT count(*) FROM kernel_cost) + (SELECT count(*) FROM collective_cost)";
    const int64_t before = one_number(db, n_costs, d);
    if (!db_exec(db, contents, d) || !db_exec(db, runs, d) || !db_exec(db, details, d) ||
        !db_exec(db, costs, d) || !db_exec(db, sweeps, d))
        return false;
    merged->runs = one_number(db, "SELECT count(*) FROM moved WHERE fresh", d);
    merged->known = one_number(db, "SELECT count(*) FROM moved WHERE NOT fresh", d);
    merged->costs = one_number(db, n_costs, d) - before;
    merged->points = one_number(db, "SELECT count(*) FROM other.sweep_point", d);
    return seal_moved(db, d) && db_exec(db, "DROP TABLE moved", d);
}

static bool is_same_file(Db *db, const char *path)
{
    struct stat a, b;
    return stat(db_file(db), &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

bool store_merge(Store *store, const char *path, Merged *merged, Diag *d)
{
    *merged = (Merged){0};
    if (is_same_file(store_db(store), path))
        return diag_error(d, FAULT_usage, "same-store", (Loc){.file = arena_dup(d->arena, path)},
                          "a store cannot be merged into itself");
    /* first open the other store by itself, which refuses other programs' files and migrates old
     * stores */
    if (access(path, F_OK) != 0) /* store_open would create a missing file */
        return diag_error(d, FAULT_store, "store-open", (Loc){.file = arena_dup(d->arena, path)},
                          "%s", strerror(errno));
    Store *other = store_open(path, false, d);
    if (other == NULL) return false;
    const bool sound = seals_hold(store_db(other), d);
    store_close(other);
    if (!sound)
        return diag_hint(d, "%s was not merged; first remove the damaged rows there", path), false;
    Db *db = store_db(store);
    if (!db_run(db, d, "ATTACH ? AS other", "s", path)) return false;
    bool fine = db_begin(db, d);
    if (fine && !take(db, merged, d)) {
        db_rollback(db);
        fine = false;
    } else if (fine) {
        fine = db_commit(db, d);
    }
    return db_exec(db, "DETACH other", d) && fine;
}
