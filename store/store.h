/* The experiment store: predictions and measurements of plans, in SQLite. STRICT tables, views for
 * people, integer picoseconds and bytes. A stored prediction is keyed by (plan id, cluster,
 * scenario, seed, engine version, calibration); equal keys are never simulated twice. */
#ifndef TANDEM_STORE_STORE_H
#define TANDEM_STORE_STORE_H

#include "planner/ir/plan.h"
#include "planner/ir/trace.h"
#include "store/db.h"

typedef struct Store Store;
/* Creates or migrates the file if necessary. */
Store *store_open(const char *path, bool read_only, Diag *d);
/* Opens an existing store for a few look-ups, without sealing its rows. It may migrate the store;
 * the caller writes nothing. Unlike a read-only store, it removes its log when it is closed. */
Store *store_open_brief(const char *path, Diag *d);
/* Checks that the store can be written: creates it if it is missing, then closes it. Reports the
 * reason and returns false if it cannot. */
bool store_ready(const char *path, Diag *d);
void store_close(Store *store);
Db *store_db(Store *store);

typedef enum RunKind { RUN_predicted, RUN_measured } RunKind;

typedef struct MemoryRow {
    uint32_t program;
    Category category;
    uint64_t bytes;
} MemoryRow; /* memory at the peak */
typedef struct CollectiveRow {
    OpKind op;
    const char *axes;
    const char *stream;
    uint64_t bytes;
    uint32_t n;
    Ps total_ps, exposed_ps;
} CollectiveRow;

/* A script from which a plan was made. */
typedef struct RecipeScript {
    const char *name; /* the name in diagnostics: its path, or its path in the library */
    bool shipped;     /* the script is a file of the library */
    Hash128 hash;     /* hash of its bytes; 0: the file could not be read */
    const char *text; /* NULL: the store has it, or it could not be read again */
    size_t bytes;
} RecipeScript;
static inline bool recipe_was_absent(const RecipeScript *script)
{
    return script->hash.hi == 0 && script->hash.lo == 0;
}

/* All that is needed to make a plan again: the command's options (one `key value` in each line) and
 * the scripts. */
typedef struct Recipe {
    const char *head;
    LIST(RecipeScript) scripts;
} Recipe;

typedef struct RunRecord {
    RunKind kind;
    Hash128 plan;
    const char *plan_name; /* script */
    const Plan *program;   /* the plan whose roles are stored; NULL: the store has them already */
    const char *plan_text; /* the exact text; kept together with a trace or measurements. NULL: not
                            * kept */
    const Recipe *recipe;  /* NULL: not known */
    const char *cluster, *scenario, *backend, *engine, *calibration; /* "" instead of NULL */
    uint64_t seed;
    uint32_t n_ranks;
    const char *status;                 /* "ok", "infeasible", "failed" */
    Ps step_ps, compute_ps, exposed_ps; /* times of the slowest rank */
    uint64_t peak_bytes;
    Rank peak_rank;
    double tokens_per_s_per_device, mfu;
    const char *mfu_formula;
    const Trace *trace; /* rows and steps; may be NULL */
    LIST(MemoryRow) memory;
    LIST(CollectiveRow) collectives;
    uint32_t steps_done;
} RunRecord;

/* True if the store has the run, and its row is unchanged. */
bool store_has_run(Store *store, int64_t id, Diag *d);
/* Stores a run in one IMMEDIATE transaction; returns its id, 0 on failure. If a prediction with the
 * same key exists, returns its id; it then stores only the trace, if the old prediction has
 * none. */
int64_t store_run(Store *store, const RunRecord *run, Diag *d);
/* An SQL condition that is true for runs without uneven ranks or experts. "unfolded" only says that
 * each rank was simulated. */
#define STORE_IS_PLAIN "scenario IN ('', 'unfolded')"
/* Returns the newest plain run of `kind` for a plan that did not fail (0: none). A plain run has no
 * uneven ranks or experts. */
int64_t store_find_run(Store *store, RunKind kind, Hash128 plan, Diag *d);
int64_t store_latest_run(Store *store, RunKind kind, Diag *d);
/* Loads run `id`. plan_text stays NULL (use store_plan_text); `trace` may be NULL. Rows are
 * ordered by step, rank and pc; a loss that was not a number reads back as NaN. */
bool store_load_run(Store *store, int64_t id, Arena *arena, RunRecord *run, Trace *trace, Diag *d);
/* Returns the text of a stored plan; NULL if it was stored without its text. */
const char *store_plan_text(Store *store, Hash128 plan, Arena *arena, Diag *d);
bool store_has_script(Store *store, Hash128 hash, Diag *d);

/* The stored answer of an earlier command. Its key contains all that the answer depends on, except
 * the scripts. */
typedef struct FoundAnswer {
    Hash128 scripts;  /* hash of the list of scripts */
    int64_t run;      /* 0: there were no numbers */
    const char *list; /* the scripts: a line `library|own HASH NAME` for each */
    const char *answer;
} FoundAnswer;
/* Returns false if there is no answer with this key, or after adding an error to `d`. */
bool store_find_answer(Store *store, Hash128 key, Arena *arena, FoundAnswer *found, Diag *d);
/* Replaces an older answer of the same key. `build` names the program that made it. */
bool store_put_answer(Store *store, Hash128 key, const Recipe *recipe, int64_t run,
                      const char *build, const char *answer, Diag *d);
/* Returns the list of a recipe's scripts in the stored form. */
const char *store_script_list(const Recipe *recipe, Arena *arena);
/* Reads one line [n bytes without the line end] of a stored list of scripts. Returns false if the
 * line has another form. */
bool store_script_line(const char *line, size_t n, Arena *arena, RecipeScript *script);

/* ---- prune.c, merge.c ---- */
typedef struct Pruned {
    int64_t runs, plans, texts, answers, scripts;
} Pruned;
/* Removes rows that no command can find any more: predictions of other engines, answers of other
 * builds, texts of plans that have a recipe, then plans and scripts to which no row refers.
 * try_only: only counts these rows. */
bool store_prune(Store *store, const char *engine, const char *build, bool try_only, Pruned *pruned,
                 Diag *d);
typedef struct Merged {
    int64_t runs, known, costs, points;
} Merged;
/* Copies every row of the store `path` that this store lacks. Runs get new numbers. */
bool store_merge(Store *store, const char *path, Merged *merged, Diag *d);
/* Prints a table or view as CSV. Returns false after "option-value" if no table has that name. */
bool store_csv(Store *store, const char *name, Str *out, Diag *d);
/* Reads the recipe of a run's plan, with the text of its scripts. Returns false if the run has no
 * recipe, or after an error. */
bool store_recipe(Store *store, int64_t run, Arena *arena, Recipe *recipe, Diag *d);

/* Measured costs. `machine` names the measured machine ("local:<cpu model>:<cores>:<kernels of
 * OpenBLAS>"), key e.g. "linear f32 bsk,kn s=256 k=64 n=128". */
bool store_put_kernel(Store *store, const char *machine, const char *key, Ps median_ps,
                      double spread, uint32_t n, Diag *d);
Ps store_get_kernel(Store *store, const char *machine, const char *key, Diag *d); /* -1: none */
/* Stores the fastest algorithm measured for a product, replacing an older one. `device` names
 * device and library; `call` names sizes, layouts and types. */
bool store_put_choice(Store *store, const char *device, const char *call, const void *choice,
                      size_t bytes, Ps median_ps, Diag *d);
/* Reads a stored choice of exactly `bytes` bytes; false if there is none. */
bool store_get_choice(Store *store, const char *device, const char *call, void *choice,
                      size_t bytes, Diag *d);
/* Stores the time of a collective. `bytes` counts as in plan_comm_bytes. */
bool store_put_collective(Store *store, const char *machine, const char *backend, OpKind op,
                          uint32_t n_ranks, uint64_t bytes, Ps median_ps, Diag *d);
/* Time of a collective; -1 if none was measured for this op and group size. Between two measured
 * sizes it interpolates log(time) over log(bytes). Below the smallest size it returns that size's
 * time; above the largest, it scales in proportion to bytes. */
Ps store_get_collective(Store *store, const char *machine, const char *backend, OpKind op,
                        uint32_t n_ranks, uint64_t bytes, Diag *d);

#endif
