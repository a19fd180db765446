/* Writes a run, its details, its plan and the plan's roles, in one transaction. */
#include <assert.h>
#include <string.h>

#include "store/pack.h"
#include "store/private.h"
#include "store/seals.h"

static const char *some(const char *text)
{
    return text ? text : "";
}

static bool put_roles(Db *db, Diag *d, const unsigned char *id, const Plan *plan)
{
    bool fine = true;
    for (uint32_t i = 0; fine && i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        int64_t first = 0, n = 0;
        for (Rank r = plan->mesh.n_ranks; r-- > 0;)
            if (plan->program_of[r] == i) first = r, n++;
        fine = db_run(db, d,
                      "INSERT INTO role(plan, program, purpose, stage, first_rank, n_ranks, bytes, "
                      "n_instructions, n_buffers) VALUES(?,?,?,?,?,?,?,?,?)",
                      "bisiiiiii", id, (size_t)STORE_HASH_BYTES, (int64_t)i,
                      purpose_name(p->purpose), (int64_t)p->stage, first, n, (int64_t)p->bytes,
                      (int64_t)p->code.n - 1, (int64_t)p->buffers.n - 1);
    }
    return fine;
}

/* Returns what the store has of the plan. 0: nothing; 1: its row without the text; 2: its row and
 * its text. */
static int known_plan(Db *db, Diag *d, const unsigned char *plan)
{
    DbStatement *st = db_prepare(db, d, "SELECT packed IS NOT NULL FROM plan WHERE id = ?", "b",
                                 plan, (size_t)STORE_HASH_BYTES);
    int known = db_step(st, d) ? 1 + (int)db_int(st, 0) : 0;
    db_reset(st);
    return known;
}

static bool put_text(Db *db, Diag *d, const unsigned char *plan, const char *text)
{
    if (text == NULL) return true;
    Arena *arena = arena_new();
    size_t n = 0;
    const void *packed = pack_bytes(arena, text, strlen(text), &n);
    bool fine = db_run(db, d, "UPDATE plan SET packed = ? WHERE id = ?", "bb", packed, n, plan,
                       (size_t)STORE_HASH_BYTES);
    arena_free(arena);
    return fine;
}

static bool put_recipe(Db *db, Diag *d, const unsigned char *plan, const Recipe *recipe)
{
    if (recipe == NULL) return true;
    Hash128 list;
    unsigned char hash[STORE_HASH_BYTES];
    if (!store_put_scripts(db, recipe, &list, d)) return false;
    store_hash_bytes(list, hash);
    return db_run(db, d, "UPDATE plan SET recipe = ?, scripts = ? WHERE id = ?", "sbb",
                  recipe->head, hash, sizeof hash, plan, (size_t)STORE_HASH_BYTES);
}

/* Stores that `build` verified the plan. Changes nothing if the store lacks the plan or has a proof
 * of it with a right digest. A proof with a wrong digest is replaced. */
static bool put_proof(Db *db, Diag *d, const unsigned char *plan, const char *build)
{
    if (build == NULL) return true;
    return db_run(db, d,
                  "INSERT OR REPLACE INTO proof(plan, build) SELECT id, ? FROM plan WHERE id = ? "
                  "AND NOT EXISTS (SELECT 1 FROM proof f WHERE f.plan = id AND f.digest = "
                  "tandem_digest(f.plan, f.build, f.made_at))",
                  "sb", build, plan, (size_t)STORE_HASH_BYTES);
}

bool store_put_proof(Store *store, Hash128 plan, const char *build, Diag *d)
{
    unsigned char id[STORE_HASH_BYTES];
    store_hash_bytes(plan, id);
    return put_proof(store_db(store), d, id, build);
}

static bool put_plan(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    int known = known_plan(db, d, plan);
    if (known == 2 || (known == 1 && run->plan_text == NULL)) return true;
    if (known == 1) return put_text(db, d, plan, run->plan_text);
    return db_run(db, d, "INSERT INTO plan(id, name, n_ranks) VALUES(?,?,?)", "bsi", plan,
                  (size_t)STORE_HASH_BYTES, some(run->plan_name), (int64_t)run->n_ranks) &&
           put_text(db, d, plan, run->plan_text) && put_recipe(db, d, plan, run->recipe) &&
           (run->program == NULL || put_roles(db, d, plan, run->program));
}

/* ---- the run ---- */

static int64_t find_prediction(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    DbStatement *st = db_prepare(
        db, d,
        "SELECT id FROM run WHERE kind = 'predicted' AND plan = ? AND cluster = ? AND "
        "scenario = ? AND backend = ? AND seed = ? AND engine = ? AND calibration = ?",
        "bsssiss", plan, (size_t)STORE_HASH_BYTES, some(run->cluster), some(run->scenario),
        some(run->backend), (int64_t)run->seed, some(run->engine), some(run->calibration));
    int64_t id = db_step(st, d) ? db_int(st, 0) : 0;
    db_reset(st);
    return id;
}

static bool put_steps(Db *db, Diag *d, int64_t id, const Trace *trace)
{
    for (uint32_t i = 0; i < trace->steps.n; i++) {
        const StepRow *s = &trace->steps.at[i];
        if (!db_run(db, d,
                    "INSERT INTO step(run, step, loss, grad_norm, time_ps) VALUES(?,?,?,?,?)",
                    "iiddi", id, (int64_t)s->step, s->loss, s->grad_norm, (int64_t)s->time_ps))
            return false;
    }
    return true;
}

static bool put_trace_rows(Db *db, Diag *d, int64_t id, const Trace *trace)
{
    for (uint32_t i = 0; i < trace->rows.n; i++) {
        const TraceRow *r = &trace->rows.at[i];
        if (!db_run(db, d,
                    "INSERT INTO trace(run, step, rank, pc, start_ps, end_ps, bytes) "
                    "VALUES(?,?,?,?,?,?,?)",
                    "iiiiiii", id, (int64_t)r->step, (int64_t)r->rank, (int64_t)r->pc,
                    (int64_t)r->start_ps, (int64_t)r->end_ps, (int64_t)r->bytes))
            return false;
    }
    return db_run(db, d, "UPDATE run SET trace_step = ?, trace_sum = NULL WHERE id = ?", "ii",
                  (int64_t)trace->step, id);
}

static bool put_details(Db *db, Diag *d, int64_t id, const RunRecord *run)
{
    for (uint32_t i = 0; i < run->memory.n; i++) {
        const MemoryRow *m = &run->memory.at[i];
        if (!db_run(db, d, "INSERT INTO memory(run, program, category, bytes) VALUES(?,?,?,?)",
                    "iisi", id, (int64_t)m->program, category_name(m->category), (int64_t)m->bytes))
            return false;
    }
    for (uint32_t i = 0; i < run->collectives.n; i++) {
        const CollectiveRow *c = &run->collectives.at[i];
        if (!db_run(db, d,
                    "INSERT INTO collective(run, number, op, axes, stream, bytes, n, total_ps, "
                    "exposed_ps) VALUES(?,?,?,?,?,?,?,?,?)",
                    "iisssiiii", id, (int64_t)i, op_info(c->op)->name, some(c->axes),
                    some(c->stream), (int64_t)c->bytes, (int64_t)c->n, (int64_t)c->total_ps,
                    (int64_t)c->exposed_ps))
            return false;
    }
    return true;
}

static int64_t put_run(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    const char *status = run->status ? run->status : "ok";
    bool fine = db_run(
        db, d,
        "INSERT INTO run(kind, plan, name, cluster, scenario, backend, engine, calibration, seed, "
        "n_ranks, status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, "
        "tokens_per_s_per_device, mfu, mfu_formula, steps_done) "
        "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "sbssssssiisiiiiiddsi", store_kind(run->kind), plan, (size_t)STORE_HASH_BYTES,
        some(run->plan_name), some(run->cluster), some(run->scenario), some(run->backend),
        some(run->engine), some(run->calibration), (int64_t)run->seed, (int64_t)run->n_ranks,
        status, (int64_t)run->step_ps, (int64_t)run->compute_ps, (int64_t)run->exposed_ps,
        (int64_t)run->peak_bytes, (int64_t)run->peak_rank, run->tokens_per_s_per_device, run->mfu,
        some(run->mfu_formula), (int64_t)run->steps_done);
    return fine ? db_last_id(db) : 0;
}

static bool has_trace_rows(Db *db, Diag *d, int64_t id)
{
    DbStatement *st = db_prepare(db, d, "SELECT 1 FROM trace WHERE run = ? LIMIT 1", "i", id);
    bool has = db_step(st, d);
    db_reset(st);
    return has;
}

/* Writes everything inside the open transaction and returns the run's id. If the prediction is
 * already stored, writes only its trace, if that is missing. */
static int64_t put_all(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    const uint32_t before = d->n_errors;
    if (!put_plan(db, d, plan, run) || !put_proof(db, d, plan, run->proven_by)) return 0;
    int64_t id = run->kind == RUN_predicted ? find_prediction(db, d, plan, run) : 0;
    const bool old = id != 0;
    if (old && !run_seals_hold(db, id, false, d)) return 0;
    if (!old) id = put_run(db, d, plan, run);
    if (!id) return 0;
    if (!old && !put_details(db, d, id, run)) return 0;
    if (!old && run->trace && !put_steps(db, d, id, run->trace)) return 0;
    if (run->trace && run->trace->rows.n && !(old && has_trace_rows(db, d, id)) &&
        !put_trace_rows(db, d, id, run->trace))
        return 0;
    if (!seal_details(db, id, d)) return 0;
    return d->n_errors == before ? id : 0;
}

int64_t store_run(Store *store, const RunRecord *run, Diag *d)
{
    Db *db = store_db(store);
    unsigned char plan[STORE_HASH_BYTES];
    store_hash_bytes(run->plan, plan);
    if (!db_begin(db, d)) return 0;
    int64_t id = put_all(db, d, plan, run);
    if (!id) {
        db_rollback(db);
        return 0;
    }
    return db_commit(db, d) ? id : 0;
}
