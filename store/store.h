/* The store of experiments: predictions and measurements of plans, in an SQLite file. Tables are
 * STRICT, times are integers in picoseconds, sizes are in bytes, and there are views for people. A
 * prediction has the key (plan id, cluster, scenario, seed, engine version, calibration). A
 * prediction whose key is in the store is not simulated again. */
#ifndef TANDEM_STORE_STORE_H
#define TANDEM_STORE_STORE_H

#include "planner/ir/plan.h"
#include "planner/ir/trace.h"
#include "store/db.h"

typedef struct Store Store;
/* Opens the store. Creates the file if it is missing, and migrates it if it is old. */
Store *store_open(const char *path, bool read_only, Diag *d);
/* Opens an existing store for a few look-ups; the caller writes nothing, so rows are not sealed.
 * May migrate the store. Unlike a store opened as read-only, it removes its log when it
 * is closed. */
Store *store_open_brief(const char *path, Diag *d);
/* Checks that the store can be written. Creates it if it is missing, and closes it again. Reports
 * the reason and returns false if it cannot be written. */
bool store_ready(const char *path, Diag *d);
void store_close(Store *store);
Db *store_db(Store *store);

typedef enum RunKind { RUN_predicted, RUN_measured } RunKind;

typedef struct MemoryRow {
    uint32_t program;
    Category category;
    uint64_t bytes;
} MemoryRow; /* memory of a rank at its peak */
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
    /* the name in diagnostics: the script's path, or its path in the library's folder */
    const char *name;
    bool shipped; /* true if the script is a file of the library */
    Hash128 hash; /* hash of its bytes; 0: the file could not be read */
    /* the script's text; NULL: the store already has it, or it could not be read again */
    const char *text;
    size_t bytes;
} RecipeScript;
static inline bool recipe_was_absent(const RecipeScript *script)
{
    return script->hash.hi == 0 && script->hash.lo == 0;
}

/* All that is needed to make a plan again: the options of the command (one `key value` in each
 * line), and the scripts. */
typedef struct Recipe {
    const char *head;
    LIST(RecipeScript) scripts;
} Recipe;

typedef struct RunRecord {
    RunKind kind;
    Hash128 plan;
    const char *plan_name; /* name of the plan's script */
    /* the plan whose roles are to be stored; NULL: the store already has them */
    const Plan *program;
    /* the exact text, which is stored only with a trace or measurements; NULL: it is not stored */
    const char *plan_text;
    const Recipe *recipe; /* all that is needed to make the plan again; NULL: not known */
    /* the build of Tandem that proved the plan; NULL: the plan is not proven */
    const char *proven_by;
    /* these texts are never NULL; "": unknown */
    const char *cluster, *scenario, *backend, *engine, *calibration;
    uint64_t seed;
    uint32_t n_ranks;
    const char *status;                 /* status: "ok", "infeasible" or "failed" */
    Ps step_ps, compute_ps, exposed_ps; /* times of the slowest rank */
    uint64_t peak_bytes;
    Rank peak_rank;
    double tokens_per_s_per_device, mfu;
    const char *mfu_formula;
    const Trace *trace; /* the rows of instructions and the steps; may be NULL */
    LIST(MemoryRow) memory;
    LIST(CollectiveRow) collectives;
    uint32_t steps_done;
} RunRecord;

/* True if the store has this run and its row was not changed. */
bool store_has_run(Store *store, int64_t id, Diag *d);
/* Stores a run in one transaction. Returns its id, or 0 on failure. If the store has a prediction
 * with the same key, returns the id of that prediction; adds the trace to it if it had none. */
int64_t store_run(Store *store, const RunRecord *run, Diag *d);
/* Notes that this build proved the plan. Does nothing if the store already knows a proof of the
 * plan, or lacks the plan. */
bool store_put_proof(Store *store, Hash128 plan, const char *build, Diag *d);
/* An SQL condition: true for runs in which all ranks and experts are equal. "unfolded" only says
 * that every rank was simulated. */
#define STORE_IS_PLAIN "scenario IN ('', 'unfolded')"
/* Returns the newest run of `kind` for a plan, among those that did not fail and in which all ranks
 * and experts are equal. Returns 0 if there is none. */
int64_t store_find_run(Store *store, RunKind kind, Hash128 plan, Diag *d);
/* Returns the newest run of `kind`, of any plan, that did not fail. Returns 0 if there is none. */
int64_t store_latest_run(Store *store, RunKind kind, Diag *d);
/* Loads run `id`. plan_text remains NULL (see store_plan_text); `trace` may be NULL. Rows are
 * ordered by step, rank and pc. A loss that was not a number becomes NaN. */
bool store_load_run(Store *store, int64_t id, Arena *arena, RunRecord *run, Trace *trace, Diag *d);
/* Returns the text of a stored plan, or NULL if the plan was stored without its text. */
const char *store_plan_text(Store *store, Hash128 plan, Arena *arena, Diag *d);
bool store_has_script(Store *store, Hash128 hash, Diag *d);

/* The stored answer to an earlier command. Its key depends on everything that determines the
 * answer, except the scripts. */
typedef struct FoundAnswer {
    Hash128 scripts;  /* hash of the list of scripts */
    int64_t run;      /* number of the run that the answer is about; 0: it is about no single run */
    const char *list; /* the list of scripts, with a line `library|own HASH NAME` for each */
    const char *answer;
} FoundAnswer;
/* Finds the answer with this key. Returns false if there is none, or after adding an error
 * to `d`. */
bool store_find_answer(Store *store, Hash128 key, Arena *arena, FoundAnswer *found, Diag *d);
/* Stores an answer in place of an older one with the same key. `build` names the program that made
 * it. */
bool store_put_answer(Store *store, Hash128 key, const Recipe *recipe, int64_t run,
                      const char *build, const char *answer, Diag *d);
/* Returns the list of a recipe's scripts in the form in which it is stored. */
const char *store_script_list(const Recipe *recipe, Arena *arena);
/* Reads one line of a stored list of scripts; `n` is its length without the line end. Returns false
 * if the line has another form. */
bool store_script_line(const char *line, size_t n, Arena *arena, RecipeScript *script);

/* ---- prune.c, merge.c ---- */
typedef struct Pruned {
    int64_t runs, plans, texts, answers, scripts;
} Pruned;
/* Removes rows that no command can find any more: predictions of other engines, answers of other
 * builds, and texts of plans that have a recipe. Then removes plans and scripts to which no row
 * refers. try_only: only counts these rows. */
bool store_prune(Store *store, const char *engine, const char *build, bool try_only, Pruned *pruned,
                 Diag *d);
typedef struct Merged {
    int64_t runs, known, costs, points;
} Merged;
/* Copies every row of the store `path` that this store lacks. Runs get new numbers. */
bool store_merge(Store *store, const char *path, Merged *merged, Diag *d);
/* Writes a table or view as CSV. Returns false after "option-value" if there is no table of this
 * name. */
bool store_csv(Store *store, const char *name, Str *out, Diag *d);
/* Reads the recipe of a run's plan, with the texts of its scripts. Returns false if the run has no
 * recipe, or after an error. */
bool store_recipe(Store *store, int64_t run, Arena *arena, Recipe *recipe, Diag *d);

/* Stores the measured time of a kernel. `machine` names the measured machine ("local:<cpu
 * model>:<cores>:<kernels of OpenBLAS>"). A key looks like "linear f32 bsk,kn s=256 k=64 n=128". */
bool store_put_kernel(Store *store, const char *machine, const char *key, Ps median_ps,
                      double spread, uint32_t n, Diag *d);
/* Returns the measured time of a kernel, or -1 if there is none. */
Ps store_get_kernel(Store *store, const char *machine, const char *key, Diag *d);
/* Stores the algorithm that was the fastest for a product, in place of an older one. `device` names
 * the device and its library. `call` names sizes, layouts and types. */
bool store_put_choice(Store *store, const char *device, const char *call, const void *choice,
                      size_t bytes, Ps median_ps, Diag *d);
/* Reads a stored algorithm, whose description must have exactly `bytes` bytes. Returns false if
 * there is none. */
bool store_get_choice(Store *store, const char *device, const char *call, void *choice,
                      size_t bytes, Diag *d);
/* Stores the time of a collective. `bytes` is its size as plan_comm_bytes counts it. */
bool store_put_collective(Store *store, const char *machine, const char *backend, OpKind op,
                          uint32_t n_ranks, uint64_t bytes, Ps median_ps, Diag *d);
/* Returns the time of a collective, or -1 if none was measured for this op and group size. Between
 * two measured sizes, log(time) is interpolated over log(bytes). Below the smallest size, returns
 * the time of that size. Above the largest size, the time grows in proportion to the bytes. */
Ps store_get_collective(Store *store, const char *machine, const char *backend, OpKind op,
                        uint32_t n_ranks, uint64_t bytes, Diag *d);

#endif
