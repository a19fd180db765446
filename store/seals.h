/* Seals: a digest beside each row of the store. The digest reveals a row that another program
 * changed or a faulty disk spoiled; SQLite itself detects only damage of its pages. A row without a
 * digest (NULL) comes from an older version or from another program, and is not checked.
 *
 * Rows that are written with a run or plan (trace, step, memory, collective, role) have no digest
 * of their own. Their owner keeps the sum of their digests in the column TABLE_sum. */
#ifndef TANDEM_STORE_SEALS_H
#define TANDEM_STORE_SEALS_H

#include "store/store.h"

/* The columns under a digest. Queries of one row need them, too. */
#define SEALED_plan "id, name, n_ranks, recipe, scripts, packed"
#define SEALED_run                                                                                 \
    "kind, plan, name, cluster, scenario, backend, engine, calibration, seed, n_ranks, "           \
    "status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, "                             \
    "tokens_per_s_per_device, mfu, mfu_formula, steps_done, trace_step, made_at"
#define SEALED_found           "key, scripts, run, build, answer"
#define SEALED_kernel_cost     "machine, key, median_ps, spread, n, made_at"
#define SEALED_collective_cost "machine, backend, op, n_ranks, bytes, median_ps, made_at"
#define SEALED_product_choice  "device, call, choice, median_ps"

/* SEAL(table, columns of the key, columns under the digest). The number of a run is not under its
 * digest, because merging stores changes it. A test compares the columns with the schema. */
#define SEALS(SEAL)                                                                                \
    SEAL(plan, "id", SEALED_plan)                                                                  \
    SEAL(run, "id", SEALED_run)                                                                    \
    SEAL(script, "hash", "hash, bytes, packed")                                                    \
    SEAL(script_list, "hash", "hash, list")                                                        \
    SEAL(found, "key", SEALED_found)                                                               \
    SEAL(kernel_cost, "machine, key", SEALED_kernel_cost)                                          \
    SEAL(collective_cost, "machine, backend, op, n_ranks, bytes", SEALED_collective_cost)          \
    SEAL(product_choice, "device, call", SEALED_product_choice)                                    \
    SEAL(sweep, "id", "script, space, seed, n_points, status, made_at")                            \
    SEAL(sweep_point, "sweep, point", "point, settings, status")                                   \
    SEAL(trust, "run",                                                                             \
         "basis, calibrated_at, n, error_p50, error_p90, kernels_measured, kernels_modelled, "     \
         "collectives_measured, collectives_modelled")                                             \
    SEAL(cores, "run", "cores, running, ready, others")

/* DETAIL(table, its owner, the column that names the owner, columns under the digest) */
#define DETAILS(DETAIL)                                                                            \
    DETAIL(role, plan, "plan",                                                                     \
           "program, purpose, stage, first_rank, n_ranks, bytes, n_instructions, n_buffers")       \
    DETAIL(memory, run, "run", "program, category, bytes")                                         \
    DETAIL(collective, run, "run", "number, op, axes, stream, bytes, n, total_ps, exposed_ps")     \
    DETAIL(step, run, "run", "step, loss, grad_norm, time_ps")                                     \
    DETAIL(trace, run, "run", "step, rank, pc, start_ps, end_ps, bytes")

/* From now on, this connection seals each row that it writes to a table in SEALS. */
bool seal_rows(Db *db, Diag *d);
/* Seals the details of run `run` and of its plan that have no seal yet. Call it after the last
 * detail is written, in the same transaction. */
bool seal_details(Db *db, int64_t run, Diag *d);
/* Reports "store-damaged" for each changed row of the store, at most 20 for each table. */
bool seals_hold(Db *db, Diag *d);
/* Returns false after reporting "store-damaged" if the row of the run or of its plan was changed,
 * or one of their details. The trace is checked only if `with_trace`, because reading a long trace
 * takes time. */
bool run_seals_hold(Db *db, int64_t run, bool with_trace, Diag *d);
/* A column to add to queries of one row: true if the row has not changed since it was written. */
#define INTACT(columns) "digest IS NULL OR digest = tandem_digest(" columns ")"
/* Returns column `column` of a query that ends with INTACT; reports "store-damaged" if it is false.
 * `name` names the row of `table` in the message. */
bool seal_intact(DbStatement *st, int column, const char *table, const char *name, Diag *d);

#endif
