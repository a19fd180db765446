/* Written by tests/unit/store/test_schema_now.c with SNAP_UPDATE=1. */
#include "store/private.h"

/* clang-format off */
const char *const store_schema_now[] = {
    "CREATE TABLE plan( id BLOB PRIMARY KEY CHECK(length(id) = 16), name TEXT NOT "
    "NULL, n_ranks INTEGER NOT NULL, recipe TEXT, scripts BLOB REFERENCES script_list(hash), "
    "packed BLOB, digest INTEGER, role_sum INTEGER) STRICT, WITHOUT ROWID;",
    "CREATE TABLE role( plan BLOB NOT NULL REFERENCES plan(id), program INTEGER "
    "NOT NULL, purpose TEXT NOT NULL, stage INTEGER NOT NULL, first_rank INTEGER, "
    "n_ranks INTEGER NOT NULL, bytes INTEGER NOT NULL, n_instructions INTEGER NOT "
    "NULL, n_buffers INTEGER NOT NULL, PRIMARY KEY(plan, program)) STRICT, WITHOUT "
    "ROWID;",
    "CREATE TABLE run( id INTEGER PRIMARY KEY, kind TEXT NOT NULL CHECK(kind IN "
    "('predicted', 'measured')), plan BLOB NOT NULL REFERENCES plan(id), name TEXT "
    "NOT NULL, cluster TEXT NOT NULL, scenario TEXT NOT NULL, backend TEXT NOT NULL, "
    "engine TEXT NOT NULL, calibration TEXT NOT NULL, seed INTEGER NOT NULL, n_ranks "
    "INTEGER NOT NULL, status TEXT NOT NULL CHECK(status IN ('ok', 'infeasible', "
    "'failed')), step_ps INTEGER NOT NULL, compute_ps INTEGER NOT NULL, exposed_ps "
    "INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, peak_rank INTEGER NOT NULL, "
    "tokens_per_s_per_device REAL, mfu REAL, mfu_formula TEXT NOT NULL, steps_done "
    "INTEGER NOT NULL, trace_step INTEGER, made_at INTEGER NOT NULL DEFAULT (unixepoch()), "
    "digest INTEGER, memory_sum INTEGER, collective_sum INTEGER, step_sum INTEGER, "
    "trace_sum INTEGER) STRICT;",
    "CREATE UNIQUE INDEX run_key ON run(plan, cluster, scenario, backend, seed, "
    "engine, calibration) WHERE kind = 'predicted';",
    "CREATE INDEX run_plan ON run(plan, kind, id);",
    "CREATE TABLE step( run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, "
    "step INTEGER NOT NULL, loss REAL, grad_norm REAL, time_ps INTEGER NOT NULL, "
    "PRIMARY KEY(run, step)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE trace( run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, "
    "step INTEGER NOT NULL, rank INTEGER NOT NULL, pc INTEGER NOT NULL, start_ps "
    "INTEGER NOT NULL, end_ps INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY "
    "KEY(run, step, rank, pc)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE memory( run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, "
    "program INTEGER NOT NULL, category TEXT NOT NULL, bytes INTEGER NOT NULL, PRIMARY "
    "KEY(run, program, category)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE collective( run INTEGER NOT NULL REFERENCES run(id) ON DELETE "
    "CASCADE, number INTEGER NOT NULL, op TEXT NOT NULL, axes TEXT NOT NULL, stream "
    "TEXT NOT NULL, bytes INTEGER NOT NULL, n INTEGER NOT NULL, total_ps INTEGER "
    "NOT NULL, exposed_ps INTEGER NOT NULL, PRIMARY KEY(run, number)) STRICT, WITHOUT "
    "ROWID;",
    "CREATE TABLE kernel_cost( machine TEXT NOT NULL, key TEXT NOT NULL, median_ps "
    "INTEGER NOT NULL, spread REAL, n INTEGER NOT NULL, made_at INTEGER NOT NULL "
    "DEFAULT 0, digest INTEGER, PRIMARY KEY(machine, key)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE collective_cost( machine TEXT NOT NULL, backend TEXT NOT NULL, "
    "op TEXT NOT NULL, n_ranks INTEGER NOT NULL, bytes INTEGER NOT NULL, median_ps "
    "INTEGER NOT NULL, made_at INTEGER NOT NULL DEFAULT 0, digest INTEGER, PRIMARY "
    "KEY(machine, backend, op, n_ranks, bytes)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE sweep( id INTEGER PRIMARY KEY, script TEXT NOT NULL, space BLOB "
    "NOT NULL CHECK(length(space) = 16), seed INTEGER NOT NULL, n_points INTEGER, "
    "status TEXT NOT NULL CHECK(status IN ('running', 'done')), made_at INTEGER "
    "NOT NULL DEFAULT (unixepoch()), digest INTEGER, UNIQUE(space, seed)) STRICT;",
    "CREATE TABLE sweep_point( sweep INTEGER NOT NULL REFERENCES sweep(id) ON DELETE "
    "CASCADE, point INTEGER NOT NULL, settings TEXT NOT NULL, run INTEGER REFERENCES "
    "run(id) ON DELETE SET NULL, status TEXT NOT NULL CHECK(status IN ('ok', 'infeasible', "
    "'invalid', 'failed')), digest INTEGER, PRIMARY KEY(sweep, point)) STRICT, WITHOUT "
    "ROWID;",
    "CREATE VIEW v_instruction AS SELECT c.measured AS run, m.rank, m.pc, (p.end_ps "
    "- p.start_ps) / 1e6 AS predicted_us, (m.end_ps - m.start_ps) / 1e6 AS measured_us, "
    "p.start_ps / 1e6 AS predicted_start_us, m.start_ps / 1e6 AS measured_start_us, "
    "m.bytes FROM v_compare c JOIN trace m ON m.run = c.measured JOIN trace p ON "
    "p.run = c.predicted AND p.rank = m.rank AND p.pc = m.pc;",
    "CREATE VIEW v_memory AS SELECT m.run, r.name AS plan, m.program, m.category, "
    "m.bytes, round(m.bytes / 1073741824.0, 3) AS gib, round(100.0 * m.bytes / nullif(sum(m.bytes) "
    "OVER (PARTITION BY m.run, m.program), 0), 1) AS percent FROM memory m JOIN "
    "run r ON r.id = m.run ORDER BY m.run, m.program, m.bytes DESC;",
    "CREATE VIEW v_collective AS SELECT c.run, r.name AS plan, c.op, c.axes, c.stream, "
    "c.bytes, c.n, round(c.total_ps / 1e9, 3) AS total_ms, round(c.exposed_ps / "
    "1e9, 3) AS exposed_ms, round(100.0 * c.exposed_ps / nullif(r.step_ps, 0), 1) "
    "AS percent_of_step FROM collective c JOIN run r ON r.id = c.run ORDER BY c.run, "
    "c.exposed_ps DESC, c.number;",
    "CREATE VIEW v_role AS SELECT lower(hex(r.plan)) AS plan_id, p.name AS plan, "
    "r.program, r.purpose, r.stage, r.first_rank, r.n_ranks, r.bytes, r.n_instructions, "
    "r.n_buffers FROM role r JOIN plan p ON p.id = r.plan;",
    "CREATE TABLE product_choice( device TEXT NOT NULL, call TEXT NOT NULL, choice "
    "BLOB NOT NULL, median_ps INTEGER NOT NULL, digest INTEGER, PRIMARY KEY(device, "
    "call)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE trust( run INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, "
    "basis TEXT NOT NULL, calibrated_at INTEGER NOT NULL, n INTEGER NOT NULL, error_p50 "
    "REAL, error_p90 REAL, kernels_measured INTEGER, kernels_modelled INTEGER, collectives_measured "
    "INTEGER, collectives_modelled INTEGER, digest INTEGER) STRICT;",
    "CREATE TABLE cores( run INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, "
    "cores INTEGER NOT NULL, running REAL NOT NULL, ready REAL NOT NULL, others "
    "REAL NOT NULL, digest INTEGER) STRICT;",
    "CREATE TABLE script( hash BLOB PRIMARY KEY CHECK(length(hash) = 16), bytes "
    "INTEGER NOT NULL, packed BLOB NOT NULL, digest INTEGER) STRICT, WITHOUT ROWID;",
    "CREATE TABLE script_list( hash BLOB PRIMARY KEY CHECK(length(hash) = 16), list "
    "TEXT NOT NULL, digest INTEGER) STRICT, WITHOUT ROWID;",
    "CREATE TABLE found( key BLOB PRIMARY KEY CHECK(length(key) = 16), scripts BLOB "
    "NOT NULL REFERENCES script_list(hash), run INTEGER REFERENCES run(id) ON DELETE "
    "CASCADE, build TEXT NOT NULL, answer TEXT NOT NULL, digest INTEGER) STRICT, "
    "WITHOUT ROWID;",
    "CREATE INDEX found_run ON found(run);",
    "CREATE INDEX sweep_point_run ON sweep_point(run);",
    "CREATE VIEW v_compare AS SELECT m.id AS measured, p.id AS predicted, m.name "
    "AS plan, round(p.step_ps / 1e9, 3) AS predicted_ms, round(m.step_ps / 1e9, "
    "3) AS measured_ms, round(p.step_ps * 1.0 / nullif(m.step_ps, 0), 3) AS ratio, "
    "p.peak_bytes AS predicted_bytes, m.peak_bytes AS measured_bytes FROM run m "
    "LEFT JOIN run p ON p.id =  (SELECT max(id) FROM run q WHERE q.plan = m.plan "
    "AND q.kind = 'predicted'  AND q.scenario IN ('', 'unfolded')) WHERE m.kind "
    "= 'measured' ORDER BY m.id;",
    "CREATE VIEW v_run AS SELECT r.id, r.kind, r.name AS plan, lower(hex(r.plan)) "
    "AS plan_id, r.cluster, r.scenario, r.backend, r.n_ranks, r.status, EXISTS(SELECT "
    "1 FROM proof f WHERE f.plan = r.plan AND f.digest NOTNULL) AS proven, round(r.step_ps "
    "/ 1e9, 3) AS step_ms, round(r.compute_ps / 1e9, 3) AS compute_ms, round(r.exposed_ps "
    "/ 1e9, 3) AS exposed_ms, round(r.tokens_per_s_per_device, 1) AS tokens_per_s_per_device, "
    "round(r.mfu, 4) AS mfu, r.mfu_formula, round(r.peak_bytes / 1073741824.0, 3) "
    "AS peak_gib, r.peak_rank, r.steps_done, datetime(r.made_at, 'unixepoch') AS "
    "made_at FROM run r ORDER BY r.id;",
    "CREATE VIEW v_sweep AS SELECT w.id AS sweep, w.script, s.point, s.settings, "
    "s.status, v.* FROM sweep w JOIN sweep_point s ON s.sweep = w.id LEFT JOIN v_run "
    "v ON v.id = s.run ORDER BY w.id, v.step_ms;",
    "CREATE TABLE proof( plan BLOB PRIMARY KEY REFERENCES plan(id) ON DELETE CASCADE, "
    "build TEXT NOT NULL, made_at INTEGER NOT NULL DEFAULT (unixepoch()), digest "
    "INTEGER) STRICT, WITHOUT ROWID;",
    NULL};
/* clang-format on */
