/* Seals: a digest (64-bit hash) of each row, stored in the row. It reveals a row that another
 * program changed or that a faulty disk damaged; SQLite itself detects only malformed pages. If the
 * digest is NULL, an older version of Tandem or another program wrote the row, and it is not
 * checked. Only in the table `proof`, which is newer than digests, a missing digest is an error.
 *
 * The rows of trace, step, memory, collective and role have no digest of their own, because there
 * are many of them. They belong to a row of `run` or `plan`, their owner, which stores the sum of
 * their digests in a column such as trace_sum.
 */
#ifndef TANDEM_STORE_SEALS_H
#define TANDEM_STORE_SEALS_H

#include "store/store.h"

/* The columns that the digest covers. A query of one row names them, too, to check the row
 * (INTACT). */
#define SEALED_plan "id, name, n_ranks, recipe, scripts, packed"
#define SEALED_run                                                                                 \
    "kind, plan, name, cluster, scenario, backend, engine, calibration, seed, n_ranks, "           \
    "status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, "                             \
    "tokens_per_s_per_device, mfu, mfu_formula, steps_done, trace_step, made_at"
#define SEALED_found           "key, scripts, run, build, answer"
#define SEALED_kernel_cost     "machine, key, median_ps, spread, n, made_at"
#define SEALED_collective_cost "machine, backend, op, n_ranks, bytes, median_ps, made_at"
#define SEALED_product_choice  "device, call, choice, median_ps"

/* SEAL(table, update, key columns, columns under the digest); a test compares the columns with the
 * schema. The digest of a run does not cover the run's id, because merging stores changes ids.
 * `update` says how Tandem updates rows:
 *
 * - WHOLE: it writes all columns outside the key, so the new digest is right in any case.
 * - PARTS: it writes some columns. The digest is renewed only if it was right (or NULL) before; so
 *   a row that another program changed keeps its wrong digest.
 * - ALWAYS: like PARTS, but a row without a digest is wrong. */
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

/* DETAIL(table, table of the owner, the column with the owner's id, columns under the digest) */
#define DETAILS(DETAIL)                                                                            \
    DETAIL(role, plan, "plan",                                                                     \
           "program, purpose, stage, first_rank, n_ranks, bytes, n_instructions, n_buffers")       \
    DETAIL(memory, run, "run", "program, category, bytes")                                         \
    DETAIL(collective, run, "run", "number, op, axes, stream, bytes, n, total_ps, exposed_ps")     \
    DETAIL(step, run, "run", "step, loss, grad_norm, time_ps")                                     \
    DETAIL(trace, run, "run", "step, rank, pc, start_ps, end_ps, bytes")

/* Checks that no table of SEALS or DETAILS is a view, as in a manipulated file: a view may compute
 * rows forever. Returns false after reporting each. */
bool tables_are_no_views(Db *db, Diag *d);
/* Creates temporary triggers in this connection that write the digest whenever a row of SEALS is
 * inserted or updated. */
bool seal_rows(Db *db, Diag *d);
/* Computes the sums of digests (trace_sum, role_sum, ...) of run `run` and of its plan, where they
 * are NULL. Call it after the last detail row was written, in the same transaction. */
bool seal_details(Db *db, int64_t run, Diag *d);
/* Checks the digests of all rows. Reports "store-damaged" for each row that was changed, at most 20
 * in each table. Returns true if there is none. */
bool seals_hold(Db *db, Diag *d);
/* Checks the digests of run `run`, of its plan, of the plan's proof, and of their detail rows.
 * Returns false after reporting "store-damaged". Rows of `trace` are checked only if `with_trace`,
 * because reading a long trace takes time. */
bool run_seals_hold(Db *db, int64_t run, bool with_trace, Diag *d);
/* SQL for a result column: 1 if the row is as Tandem wrote it, or has no digest. */
#define INTACT(columns) "digest IS NULL OR digest = tandem_digest(" columns ")"
/* Returns true if result column `column`, which must be an INTACT(...), is 1. Otherwise reports
 * "store-damaged" for the row `name` of `table`. */
bool seal_intact(DbStatement *st, int column, const char *table, const char *name, Diag *d);

#endif
