/* Writes runs: the plan, its roles and all other data of a run, in one IMMEDIATE transaction. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "store/private.h"

static const char *some(const char *text)
{
    return text ? text : "";
}

/* ---- roles ---- read from the plan's text, whose lines describe each program. */

typedef struct RoleRow {
    char purpose[16];
    int64_t stage, bytes, n_instructions, n_buffers, first_rank, n_ranks;
} RoleRow;

/* Returns the number behind " key=" in a line; 0 if it is not there. */
static int64_t number_of(const char *line, const char *end, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = line; at + n < end; at++)
        if (memcmp(at, key, n) == 0) return (int64_t)strtoull(at + n, NULL, 10);
    return 0;
}

/* Reads the third word of "program 0 train ...". */
static void read_purpose(const char *line, const char *end, RoleRow *role)
{
    size_t n = 0;
    for (int word = 0; word < 2 && line < end; line++) word += *line == ' ';
    while (line + n < end && line[n] != ' ' && n + 1 < sizeof role->purpose) n++;
    memcpy(role->purpose, line, n);
    role->purpose[n] = 0;
}

typedef LIST(RoleRow) RoleRows;

/* "ranks 0 4-7" */
static void add_ranks(RoleRows *roles, const char *line)
{
    char *at;
    unsigned long program = strtoul(line + strlen("ranks "), &at, 10);
    unsigned long first = strtoul(at, &at, 10);
    unsigned long last = *at == '-' ? strtoul(at + 1, NULL, 10) : first;
    if (program >= roles->n || last < first) return;
    RoleRow *role = &roles->at[program];
    if (!role->n_ranks) role->first_rank = (int64_t)first;
    role->n_ranks += (int64_t)(last - first + 1);
}

static void read_roles(const char *text, Arena *arena, RoleRows *roles)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        RoleRow *role = roles->n ? &roles->at[roles->n - 1] : NULL;
        if (role && *line == '%') {
            role->n_buffers++;
        } else if (role && *line >= '0' && *line <= '9') {
            role->n_instructions++;
        } else if (strncmp(line, "program ", 8) == 0) {
            RoleRow new = {.stage = number_of(line, end, " stage="),
                           .bytes = number_of(line, end, " bytes=")};
            read_purpose(line, end, &new);
            list_push(arena, roles, new);
        } else if (strncmp(line, "ranks ", 6) == 0) {
            add_ranks(roles, line);
        }
        line = *end ? end + 1 : end;
    }
}

static bool put_roles(Db *db, Diag *d, const unsigned char *plan, const char *text)
{
    Arena *arena = arena_new();
    RoleRows roles = {NULL, 0, 0};
    bool fine = true;
    read_roles(text, arena, &roles);
    for (uint32_t i = 0; fine && i < roles.n; i++) {
        const RoleRow *r = &roles.at[i];
        fine = db_run(db, d,
                      "INSERT INTO role(plan, program, purpose, stage, first_rank, n_ranks, bytes, "
                      "n_instructions, n_buffers) VALUES(?,?,?,?,?,?,?,?,?)",
                      "bisiiiiii", plan, (size_t)STORE_HASH_BYTES, (int64_t)i, r->purpose, r->stage,
                      r->first_rank, r->n_ranks, r->bytes, r->n_instructions, r->n_buffers);
    }
    arena_free(arena);
    return fine;
}

static bool put_plan(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    DbStatement *st =
        db_prepare(db, d, "SELECT 1 FROM plan WHERE id = ?", "b", plan, (size_t)STORE_HASH_BYTES);
    if (!st) return false;
    bool known = db_step(st, d);
    db_reset(st);
    if (known) return true;
    return db_run(db, d, "INSERT INTO plan(id, name, n_ranks, text) VALUES(?,?,?,?)", "bsis", plan,
                  (size_t)STORE_HASH_BYTES, some(run->plan_name), (int64_t)run->n_ranks,
                  some(run->plan_text)) &&
           put_roles(db, d, plan, some(run->plan_text));
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
    return db_run(db, d, "UPDATE run SET trace_step = ? WHERE id = ?", "ii", (int64_t)trace->step,
                  id);
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

/* Runs inside the transaction. A prediction that was stored without its trace gets it now. */
static int64_t put_all(Db *db, Diag *d, const unsigned char *plan, const RunRecord *run)
{
    const uint32_t before = d->n_errors;
    if (!put_plan(db, d, plan, run)) return 0;
    int64_t id = run->kind == RUN_predicted ? find_prediction(db, d, plan, run) : 0;
    const bool old = id != 0;
    if (!old) id = put_run(db, d, plan, run);
    if (!id) return 0;
    if (!old && !put_details(db, d, id, run)) return 0;
    if (!old && run->trace && !put_steps(db, d, id, run->trace)) return 0;
    if (run->trace && run->trace->rows.n && !(old && has_trace_rows(db, d, id)) &&
        !put_trace_rows(db, d, id, run->trace))
        return 0;
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
