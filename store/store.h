/* The store of experiments: an SQLite file with predictions and measurements of plans. A prediction
 * has the key (plan id, cluster, scenario, backend, seed, engine version, calibration); a
 * prediction whose key is in the store is not simulated again. Times are integers in picoseconds,
 * sizes are in bytes. Views (v_run, v_compare, ...) show them in ms and GiB.
 *
 * Terms:
 * - run: a prediction or a measured execution of a plan; its id is an integer
 * - recipe: the scripts and options from which a plan can be built again
 * - role: one program of a plan and the ranks that execute it
 * - engine, build: versions of the simulator and of the whole executable
 * - calibration: a hash of the measured costs that a prediction used */
#ifndef TANDEM_STORE_STORE_H
#define TANDEM_STORE_STORE_H

#include "planner/ir/plan.h"
#include "planner/ir/trace.h"
#include "store/db.h"

typedef struct Store Store;
/* Opens the store. Unless read_only, creates the file if it is missing, and migrates an old file.
 */
Store *store_open(const char *path, bool read_only, Diag *d);
/* Opens the store for a few look-ups. The caller must not write rows, because they would get no
 * digest (seals.h). Creates or migrates the file like store_open. Unlike a store opened with
 * read_only, it removes its write-ahead log when it is closed. */
Store *store_open_brief(const char *path, Diag *d);
/* Checks that the store can be opened for writing, and closes it again. Creates it if it is
 * missing. Returns false after reporting why it cannot be written. */
bool store_ready(const char *path, Diag *d);
void store_close(Store *store);
Db *store_db(Store *store);

typedef enum RunKind { RUN_predicted, RUN_measured } RunKind;

typedef struct MemoryRow {
    uint32_t program;
    Category category;
    uint64_t bytes;
} MemoryRow; /* memory of one category on the ranks of program `program`, at their peak */
typedef struct CollectiveRow {
    OpKind op;
    const char *axes;
    const char *stream;
    uint64_t bytes;
    uint32_t n;
    Ps total_ps, exposed_ps;
} CollectiveRow;

/* A script on which a plan depends. */
typedef struct RecipeScript {
    /* a path as the user gave it, or a path in the library's folder */
    const char *name;
    bool shipped; /* the script is a file of the library */
    Hash128 hash; /* XXH3 hash of its bytes; 0: the file did not exist or could not be read */
    /* the script's bytes; NULL: the store already has them, or they could not be read again */
    const char *text;
    size_t bytes;
} RecipeScript;
static inline bool recipe_was_absent(const RecipeScript *script)
{
    return script->hash.hi == 0 && script->hash.lo == 0;
}

/* All that is needed to build a plan again: `head`, the options of the command with one `key value`
 * in each line, and the scripts. */
typedef struct Recipe {
    const char *head;
    LIST(RecipeScript) scripts;
} Recipe;

typedef struct RunRecord {
    RunKind kind;
    Hash128 plan;
    const char *plan_name; /* path of the plan's script */
    /* the plan, whose roles are written; NULL: the store already has them */
    const Plan *program;
    /* the plan as text, which only runs with a trace or measurements store; NULL: not stored */
    const char *plan_text;
    const Recipe *recipe; /* how to build the plan again; NULL: not known */
    /* the build of Tandem that verified the plan; NULL: the plan was not verified */
    const char *proven_by;
    /* part of a prediction's key, see above; "": unknown; never NULL */
    const char *cluster, *scenario, *backend, *engine, *calibration;
    uint64_t seed;
    uint32_t n_ranks;
    /* "ok", "infeasible" (does not fit into memory) or "failed" */
    const char *status;
    /* step, computation, and communication that computation waits for, all of the slowest rank */
    Ps step_ps, compute_ps, exposed_ps;
    uint64_t peak_bytes;
    Rank peak_rank;
    double tokens_per_s_per_device, mfu;
    const char *mfu_formula;
    const Trace *trace; /* times of steps and of instructions; NULL: none */
    LIST(MemoryRow) memory;
    LIST(CollectiveRow) collectives;
    uint32_t steps_done;
} RunRecord;

/* True if the store has run `id` and the digests of its rows are right. */
bool store_has_run(Store *store, int64_t id, Diag *d);
/* Stores a run in one transaction and returns its id, or 0 on failure. If the store has a
 * prediction with the same key, stores only the trace, if the stored prediction has none, and
 * returns its id. */
int64_t store_run(Store *store, const RunRecord *run, Diag *d);
/* Stores that this build verified the plan. Changes nothing if the store already has a proof of the
 * plan, or does not have the plan. */
bool store_put_proof(Store *store, Hash128 plan, const char *build, Diag *d);
/* An SQL condition on runs: true for a run without a scenario, such as a slow rank or uneven
 * experts. The scenario "unfolded" also counts: it only means that every rank was simulated. */
#define STORE_IS_PLAIN "scenario IN ('', 'unfolded')"
/* Returns the id of the newest run of `kind` of this plan that did not fail and for which
 * STORE_IS_PLAIN is true. Returns 0 if there is none. */
int64_t store_find_run(Store *store, RunKind kind, Hash128 plan, Diag *d);
/* Returns the id of the newest run of `kind`, of any plan, that did not fail. Returns 0 if there is
 * none. */
int64_t store_latest_run(Store *store, RunKind kind, Diag *d);
/* Loads run `id` into *run and, unless `trace` is NULL, its trace, ordered by step, rank and pc.
 * The plan's text is not loaded (see store_plan_text). A loss that was stored as NULL becomes NaN.
 */
bool store_load_run(Store *store, int64_t id, Arena *arena, RunRecord *run, Trace *trace, Diag *d);
/* Returns the text of a stored plan, or NULL if the store has only its recipe. */
const char *store_plan_text(Store *store, Hash128 plan, Arena *arena, Diag *d);
bool store_has_script(Store *store, Hash128 hash, Diag *d);

/* The output of an earlier command, found again by a key: a hash of all that determines the output,
 * except the contents of scripts. The caller compares the scripts in `list` with the files before
 * it uses the answer. */
typedef struct FoundAnswer {
    Hash128 scripts;  /* hash of `list` */
    int64_t run;      /* id of the run that the answer describes; 0: none, or several */
    const char *list; /* one line `library|own HASH NAME` for each script */
    const char *answer;
} FoundAnswer;
/* Finds the answer with this key. Returns false if there is none, or after reporting a damaged row.
 */
bool store_find_answer(Store *store, Hash128 key, Arena *arena, FoundAnswer *found, Diag *d);
/* Stores an answer and its scripts; replaces an answer with the same key. build: the version of the
 * executable that made the answer. */
bool store_put_answer(Store *store, Hash128 key, const Recipe *recipe, int64_t run,
                      const char *build, const char *answer, Diag *d);
/* Returns the recipe's scripts as FoundAnswer.list. */
const char *store_script_list(const Recipe *recipe, Arena *arena);
/* Reads one line of FoundAnswer.list, line [n] without its line end, into *script. Returns false if
 * the line does not have that form. */
bool store_script_line(const char *line, size_t n, Arena *arena, RecipeScript *script);

/* ---- prune.c, merge.c ---- */
typedef struct Pruned {
    int64_t runs, plans, texts, answers, scripts;
} Pruned;
/* Deletes rows that no command finds any more: predictions of other engine versions, answers of
 * other builds, texts of plans that have a recipe and neither a trace nor measurements; then plans
 * and scripts to which no row refers. Counts them in *pruned. try_only: only counts them. */
bool store_prune(Store *store, const char *engine, const char *build, bool try_only, Pruned *pruned,
                 Diag *d);
typedef struct Merged {
    int64_t runs, known, costs, points;
} Merged;
/* Copies every row that only the store at `path` has into this store. Copied runs get new ids.
 * *merged: copied runs, runs that both stores have, copied costs, sweep points. */
bool store_merge(Store *store, const char *path, Merged *merged, Diag *d);
/* Writes a table or view as CSV with a header line. Returns false after reporting "option-value" if
 * the store has no table of this name. */
bool store_csv(Store *store, const char *name, Str *out, Diag *d);
/* Reads the recipe of the plan of run `run`, with the texts of its scripts. Returns false if the
 * store has no recipe of the plan, or after an error. */
bool store_recipe(Store *store, int64_t run, Arena *arena, Recipe *recipe, Diag *d);

/* Stores the measured time of a kernel. machine: such as "local:<cpu model>:<cores>:<kernels of
 * OpenBLAS>". key: op, dtypes, layout and sizes, such as "linear f32 bsk,kn s=256 k=64 n=128".
 * spread, n: dispersion and count of the measurements. */
bool store_put_kernel(Store *store, const char *machine, const char *key, Ps median_ps,
                      double spread, uint32_t n, Diag *d);
/* Returns the measured time of a kernel, or -1 if there is none. */
Ps store_get_kernel(Store *store, const char *machine, const char *key, Diag *d);
/* Stores the fastest algorithm for a matrix product, replacing an older one. device: name of the
 * GPU and of its library. call: sizes, layouts and dtypes. choice [bytes]: the library's own
 * description of the algorithm. */
bool store_put_choice(Store *store, const char *device, const char *call, const void *choice,
                      size_t bytes, Ps median_ps, Diag *d);
/* Reads the algorithm into choice [bytes]. Returns false if none is stored, or if it has another
 * length (another version of the library). */
bool store_get_choice(Store *store, const char *device, const char *call, void *choice,
                      size_t bytes, Diag *d);
/* Stores the measured time of a collective over n_ranks. bytes: its size, counted as
 * plan_comm_bytes does. */
bool store_put_collective(Store *store, const char *machine, const char *backend, OpKind op,
                          uint32_t n_ranks, uint64_t bytes, Ps median_ps, Diag *d);
/* Returns the time of a collective, or -1 if the machine has no measurement of this op with
 * n_ranks. Between two measured sizes, interpolates log(time) over log(bytes). Below the smallest
 * size, returns the smallest size's time. Above the largest, scales its time in proportion to the
 * bytes. */
Ps store_get_collective(Store *store, const char *machine, const char *backend, OpKind op,
                        uint32_t n_ranks, uint64_t bytes, Diag *d);

#endif
