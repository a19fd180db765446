/* Reads runs from the store. A file that another program changed may contain names of unknown ops
 * or memory categories; these are reported as damage. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "store/pack.h"
#include "store/private.h"
#include "store/seals.h"

static const char *column(DbStatement *st, int i, Arena *arena)
{
    const char *text = db_text(st, i);
    return arena_dup(arena, text ? text : "");
}

static double real(DbStatement *st, int i)
{
    return db_is_null(st, i) ? NAN : db_double(st, i);
}

Hash128 store_hash_of(DbStatement *st, int i)
{
    size_t n = 0;
    const unsigned char *bytes = db_blob(st, i, &n);
    Hash128 h = {0, 0};
    for (size_t k = 0; bytes && n == STORE_HASH_BYTES && k < 8; k++) {
        h.hi = h.hi << 8 | bytes[k];
        h.lo = h.lo << 8 | bytes[8 + k];
    }
    return h;
}

static bool damaged(int64_t id, const char *what, Diag *d)
{
    Loc none = {NULL, 0};
    return diag_error(d, FAULT_store, "store-damaged", none, "run %" PRId64 " has an unknown %s",
                      id, what);
}

static int64_t one_id(DbStatement *st, Diag *d)
{
    int64_t id = db_step(st, d) && !db_is_null(st, 0) ? db_int(st, 0) : 0;
    db_reset(st);
    return id;
}

int64_t store_find_run(Store *store, RunKind kind, Hash128 plan, Diag *d)
{
    unsigned char bytes[STORE_HASH_BYTES];
    store_hash_bytes(plan, bytes);
    return one_id(db_prepare(store_db(store), d,
                             "SELECT max(id) FROM run WHERE plan = ? AND kind = ? AND status <> "
                             "'failed' AND " STORE_IS_PLAIN,
                             "bs", bytes, sizeof bytes, store_kind(kind)),
                  d);
}

int64_t store_latest_run(Store *store, RunKind kind, Diag *d)
{
    return one_id(db_prepare(store_db(store), d,
                             "SELECT max(id) FROM run WHERE kind = ? AND status <> 'failed'", "s",
                             store_kind(kind)),
                  d);
}

const char *store_plan_text(Store *store, Hash128 plan, Arena *arena, Diag *d)
{
    unsigned char bytes[STORE_HASH_BYTES];
    store_hash_bytes(plan, bytes);
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT packed, " INTACT(SEALED_plan) " FROM plan WHERE id = ?",
                                 "b", bytes, sizeof bytes);
    const char *text = NULL;
    if (db_step(st, d) && !db_is_null(st, 0) &&
        seal_intact(st, 1, "plan", hash_hex(arena, plan), d)) {
        size_t n = 0;
        const void *packed = db_blob(st, 0, &n);
        text = unpack_text(arena, packed, n, NULL);
        if (text == NULL)
            diag_error(d, FAULT_store, "store-damaged", (Loc){NULL, 0},
                       "the text of plan %s cannot be unpacked", hash_hex(arena, plan));
    }
    db_reset(st);
    return text;
}

bool store_has_run(Store *store, int64_t id, Diag *d)
{
    Db *db = store_db(store);
    return one_id(db_prepare(db, d, "SELECT id FROM run WHERE id = ?", "i", id), d) != 0 &&
           run_seals_hold(db, id, false, d);
}

static bool read_run(Store *store, int64_t id, Arena *arena, RunRecord *run, uint32_t *trace_step,
                     Diag *d)
{
    const uint32_t before = d->n_errors;
    DbStatement *st = db_prepare(
        store_db(store), d,
        "SELECT kind, plan, name, cluster, scenario, backend, engine, calibration, seed, n_ranks, "
        "status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, tokens_per_s_per_device, "
        "mfu, mfu_formula, steps_done, trace_step FROM run WHERE id = ?",
        "i", id);
    if (!db_step(st, d)) {
        Loc none = {NULL, 0};
        if (d->n_errors > before) return false;
        diag_error(d, FAULT_store, "no-run", none, "the store has no run %" PRId64, id);
        diag_hint(d, "`tandem runs` lists all runs; --db FILE names another store");
        return false;
    }
    run->kind = strcmp(db_text(st, 0), "measured") == 0 ? RUN_measured : RUN_predicted;
    run->plan = store_hash_of(st, 1);
    run->plan_name = column(st, 2, arena);
    run->cluster = column(st, 3, arena);
    run->scenario = column(st, 4, arena);
    run->backend = column(st, 5, arena);
    run->engine = column(st, 6, arena);
    run->calibration = column(st, 7, arena);
    run->seed = (uint64_t)db_int(st, 8);
    run->n_ranks = (uint32_t)db_int(st, 9);
    run->status = column(st, 10, arena);
    run->step_ps = db_int(st, 11);
    run->compute_ps = db_int(st, 12);
    run->exposed_ps = db_int(st, 13);
    run->peak_bytes = (uint64_t)db_int(st, 14);
    run->peak_rank = (Rank)db_int(st, 15);
    run->tokens_per_s_per_device = real(st, 16);
    run->mfu = real(st, 17);
    run->mfu_formula = column(st, 18, arena);
    run->steps_done = (uint32_t)db_int(st, 19);
    *trace_step = db_is_null(st, 20) ? 0 : (uint32_t)db_int(st, 20);
    db_reset(st);
    return true;
}

static bool read_memory(Store *store, int64_t id, Arena *arena, RunRecord *run, Diag *d)
{
    bool fine = true;
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT program, category, bytes FROM memory WHERE run = ? "
                                 "ORDER BY program, category",
                                 "i", id);
    while (fine && db_step(st, d)) {
        MemoryRow row = {(uint32_t)db_int(st, 0), CATEGORY_COUNT, (uint64_t)db_int(st, 2)};
        for (int c = 0; c < CATEGORY_COUNT; c++)
            if (strcmp(category_name((Category)c), db_text(st, 1)) == 0) row.category = (Category)c;
        fine = row.category != CATEGORY_COUNT;
        if (fine) list_push(arena, &run->memory, row);
    }
    db_reset(st);
    return fine ? true : damaged(id, "memory category", d);
}

static bool read_collectives(Store *store, int64_t id, Arena *arena, RunRecord *run, Diag *d)
{
    bool fine = true;
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT op, axes, stream, bytes, n, total_ps, exposed_ps "
                                 "FROM collective WHERE run = ? ORDER BY number",
                                 "i", id);
    while (fine && db_step(st, d)) {
        CollectiveRow row = {.op = op_find(db_text(st, 0)),
                             .axes = column(st, 1, arena),
                             .stream = column(st, 2, arena),
                             .bytes = (uint64_t)db_int(st, 3),
                             .n = (uint32_t)db_int(st, 4),
                             .total_ps = db_int(st, 5),
                             .exposed_ps = db_int(st, 6)};
        fine = row.op != OP_none;
        if (fine) list_push(arena, &run->collectives, row);
    }
    db_reset(st);
    return fine ? true : damaged(id, "collective", d);
}

static void read_trace(Store *store, int64_t id, Arena *arena, Trace *trace, Diag *d)
{
    DbStatement *st = db_prepare(store_db(store), d,
                                 "SELECT step, rank, pc, start_ps, end_ps, bytes FROM trace "
                                 "WHERE run = ? ORDER BY step, rank, pc",
                                 "i", id);
    while (db_step(st, d)) {
        TraceRow row = {.step = (uint32_t)db_int(st, 0),
                        .rank = (Rank)db_int(st, 1),
                        .pc = (Pc)db_int(st, 2),
                        .start_ps = db_int(st, 3),
                        .end_ps = db_int(st, 4),
                        .bytes = (uint64_t)db_int(st, 5)};
        list_push(arena, &trace->rows, row);
    }
    st = db_prepare(store_db(store), d,
                    "SELECT step, loss, grad_norm, time_ps FROM step WHERE run = ? ORDER BY step",
                    "i", id);
    while (db_step(st, d)) {
        StepRow row = {(uint32_t)db_int(st, 0), real(st, 1), real(st, 2), db_int(st, 3)};
        list_push(arena, &trace->steps, row);
    }
}

bool store_load_run(Store *store, int64_t id, Arena *arena, RunRecord *run, Trace *trace, Diag *d)
{
    const uint32_t before = d->n_errors;
    uint32_t trace_step = 0;
    memset(run, 0, sizeof *run);
    if (!run_seals_hold(store_db(store), id, trace != NULL, d)) return false;
    if (!read_run(store, id, arena, run, &trace_step, d)) return false;
    if (!read_memory(store, id, arena, run, d)) return false;
    if (!read_collectives(store, id, arena, run, d)) return false;
    if (trace) {
        memset(trace, 0, sizeof *trace);
        trace->step = trace_step;
        read_trace(store, id, arena, trace, d);
        run->trace = trace;
    }
    return d->n_errors == before;
}
