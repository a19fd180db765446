/* Deletes rows that no command finds any more (`tandem db prune`). */
#include "store/private.h"

static int64_t changes(Db *db, Diag *d)
{
    DbStatement *st = db_prepare(db, d, "SELECT changes()", "");
    int64_t n = db_step(st, d) ? db_int(st, 0) : 0;
    db_reset(st);
    return n;
}

static bool remove_all(Db *db, const char *engine, const char *build, Pruned *out, Diag *d)
{
    if (!db_run(db, d, "DELETE FROM found WHERE build <> ?", "s", build)) return false;
    out->answers = changes(db, d);
    if (!db_run(db, d, "DELETE FROM run WHERE kind = 'predicted' AND engine <> ?", "s", engine))
        return false;
    out->runs = changes(db, d);
    if (!db_run(db, d,
                "UPDATE plan SET packed = NULL WHERE packed IS NOT NULL AND recipe IS NOT NULL AND "
                "NOT EXISTS(SELECT 1 FROM run WHERE plan = plan.id AND (kind = 'measured' OR "
                "trace_step IS NOT NULL))",
                ""))
        return false;
    out->texts = changes(db, d);
    if (!db_run(db, d, "DELETE FROM role WHERE plan NOT IN (SELECT plan FROM run)", "") ||
        !db_run(db, d, "DELETE FROM plan WHERE id NOT IN (SELECT plan FROM run)", ""))
        return false;
    out->plans = changes(db, d);
    if (!db_run(db, d,
                "DELETE FROM script_list WHERE hash NOT IN (SELECT scripts FROM plan WHERE scripts "
                "IS NOT NULL UNION SELECT scripts FROM found)",
                "") ||
        !db_run(db, d,
                "DELETE FROM script WHERE NOT EXISTS(SELECT 1 FROM script_list WHERE "
                "instr(list, lower(hex(script.hash))) > 0)",
                ""))
        return false;
    out->scripts = changes(db, d);
    return true;
}

bool store_prune(Store *store, const char *engine, const char *build, bool try_only, Pruned *pruned,
                 Diag *d)
{
    Db *db = store_db(store);
    *pruned = (Pruned){0};
    if (!db_begin(db, d)) return false;
    if (!remove_all(db, engine, build, pruned, d)) {
        db_rollback(db);
        return false;
    }
    if (try_only) {
        db_rollback(db);
        return true;
    }
    return db_commit(db, d) && db_exec(db, "VACUUM", d);
}
