/* Seals: a digest beside each row of the store. The digest reveals a row that another program
 * changed or a faulty disk spoiled; SQLite itself detects only damage of its pages. A row without a
 * digest (NULL) comes from an older version or from another program, and is not checked. Proofs are
 * newer than digests, so a proof without a digest is an error.
 *
 * Rows that are written with a run or plan (trace, step, memory, collective, role) have no digest
 * of their own. Their owner keeps the sum of their digests in the column TABLE_sum. */
#ifndef TANDEM_STORE_SEALS_H
#define TANDEM_STORE_SEALS_H

#include "store/store.h"

/* The columns from which the digest of a row is made. INTACT needs the same columns in a query of
 * one row. */
#define SEALED_plan "id, name, n_ranks, recipe, scripts, packed"
#define SEALED_run                                                                                 \
    "kind, plan, name, cluster, scenario, backend, engine, calibration, seed, n_ranks, "           \
    "status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, "                             \
    "tokens_per_s_per_device, mfu, mfu_formula, steps_done, trace_step, made_at"
#define SEALED_found           "key, scripts, run, build, answer"
#define SEALED_kernel_cost     "machine, key, median_ps, spread, n, made_at"
#define SEALED_collective_cost "machine, backend, op, n_ranks, bytes, median_ps, made_at"
#define SEALED_product_choice  "device, call, choice, median_ps"

/* SEAL(table, update, columns of the key, columns under the digest). The digest of a run does not
 * contain its number, because the number changes when stores are merged. A test compares the
 * columns with the tables. An update writes all columns of a row that are not part of the key
 * (WHOLE), or some of them (PARTS). After an update of PARTS, a row that another program had
 * changed before keeps its wrong digest. Each row of an ALWAYS table has a digest; its updates
 * write PARTS. */
#define SEALS(SEAL)                                                                                \
    SEAL(plan, PARTS, "id", SEALED_plan)                                                           \
    SEAL(run, PARTS, "id", SEALED_run)                                                             \
    SEAL(script, PARTS, "hash", "hash, bytes, packed")                                             \
    SEAL(script_list, PARTS, "hash", "hash, list")                                                 \
    SEAL(found, PARTS, "key", SEALED_found)                                                        \
    SEAL(kernel_cost, WHOLE, "machine, key", SEALED_kernel_cost)                                   \
    SEAL(collective_cost, WHOLE, "machine, backend, op, n_ranks, bytes", SEALED_collective_cost)   \
    SEAL(product_choice, WHOLE, "device, call", SEALED_product_choice)                             \
    SEAL(sweep, PARTS, "id", "script, space, seed, n_points, status, made_at")                     \
    SEAL(sweep_point, PARTS, "sweep, point", "point, settings, status")                            \
    SEAL(trust, PARTS, "run",                                                                      \
         "basis, calibrated_at, n, error_p50, error_p90, kernels_measured, kernels_modelled, "     \
         "collectives_measured, collectives_modelled")                                             \
    SEAL(cores, PARTS, "run", "cores, running, ready, others")                                     \
    SEAL(proof, ALWAYS, "plan", "plan, build, made_at")

/* DETAIL(table, table of its owner, the column that names the owner, columns under the digest) */
#define DETAILS(DETAIL)                                                                            \
    DETAIL(role, plan, "plan",                                                                     \
           "program, purpose, stage, first_rank, n_ranks, bytes, n_instructions, n_buffers")       \
    DETAIL(memory, run, "run", "program, category, bytes")                                         \
    DETAIL(collective, run, "run", "number, op, axes, stream, bytes, n, total_ps, exposed_ps")     \
    DETAIL(step, run, "run", "step, loss, grad_norm, time_ps")                                     \
    DETAIL(trace, run, "run", "step, rank, pc, start_ps, end_ps, bytes")

/* Returns false after reporting each table of the store in whose place there is a view. A view may
 * compute rows without end. */
bool tables_are_no_views(Db *db, Diag *d);
/* Makes this connection write a digest with each row of a table in SEALS. */
bool seal_rows(Db *db, Diag *d);
/* Computes the sums for the details of run `run` and of its plan, unless they exist. Call it after
 * the last detail was written, in the same transaction. */
bool seal_details(Db *db, int64_t run, Diag *d);
/* Checks all rows of the store. Reports "store-damaged" for each row that was changed, up to 20
 * rows of each table. */
bool seals_hold(Db *db, Diag *d);
/* Checks the row of a run, the rows of its plan and of the plan's proof, and their details. Returns
 * false after reporting "store-damaged" if one was changed. The trace is checked only if
 * `with_trace`, because a long trace takes time to read. */
bool run_seals_hold(Db *db, int64_t run, bool with_trace, Diag *d);
/* A column for queries of one row. It is true if the row has not changed since it was written. */
#define INTACT(columns) "digest IS NULL OR digest = tandem_digest(" columns ")"
/* Returns the value of column `column`, which must be INTACT. If it is false, reports
 * "store-damaged" for the row `name` of `table`. */
bool seal_intact(DbStatement *st, int column, const char *table, const char *name, Diag *d);

#endif
