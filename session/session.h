/* The one pipeline. A script or a plan's text becomes a plan that is compiled, proven and checked
 * to fit. The plan becomes a prediction that is simulated once, stored, and found again. The
 * command, sweeps, `accuracy` and libtandem all go through here, so they cannot give different
 * numbers for one plan. */
#ifndef TANDEM_SESSION_SESSION_H
#define TANDEM_SESSION_SESSION_H

#include "kernels/kernel.h"
#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "sim/sim.h"
#include "store/store.h"

#define TANDEM_VERSION "0.1.0"

/* ---- load.c ---- */
/* Memory under the plan's runtime, computed when somebody first asks. */
typedef struct KnownHeld {
    bool known;
    Held held;
} KnownHeld;

typedef struct PlanFile {
    const char *path;
    bool is_text;     /* a .plan, not a .lua */
    bool has_cluster; /* false for a .plan without a named cluster */
    Config config;    /* for a text: only the cluster, the seed and the file */
    Plan *plan;
    Hash128 id;
    /* micro-batches of the configuration's step, if `plan` has fewer that stand for them; else 0 */
    uint32_t microbatches;
    bool unsettled;    /* their buffers have other places than in a plan of all */
    Recipe recipe;     /* makes the plan again; a plan's text has none */
    KnownHeld *memory; /* NULL: it is computed each time */
} PlanFile;

/* The default of each field is zero. */
typedef struct PlanOptions {
    const char *const *set; /* "mesh.tp=4": settings that change a script */
    uint32_t n_set;
    const char *cluster;    /* a library cluster in place of the script's; NULL: the script's */
    uint32_t nodes;         /* nodes of that cluster; 0: as many as the ranks need */
    const uint64_t *seed;   /* in place of the script's; NULL: the script's */
    const char *code;       /* the script's text, which `path` only names; NULL: `path` is read */
    FrontScript *script;    /* the script, held open; NULL: a process is started for this load */
    double cpu_seconds;     /* CPU time that the script may take; 0: the front's default */
    bool shrink;            /* scaled down, with all dtypes fp64 */
    bool unpadded;          /* odd vocabularies are not padded */
    const DTypeMap *dtypes; /* with shrink: these dtypes; NULL: fp64 */
    /* these kernels' scratch on any cluster; NULL: the cluster's kernels */
    WorkspaceBytes workspace;
    Hash128 parent;         /* the plan that this one was scaled down from; zero: none */
    const char *stop_after; /* a pass */
    bool unproven;          /* skip the proofs */
    /* buffers get no offsets: the plan is only simulated for times, and for the memory of other
     * frameworks */
    bool unplaced;
    /* compile a step of this many micro-batches, from which session_simulate tells the time of the
     * configuration's step (session_fewer); 0: the configuration's own number */
    uint32_t fewer;
    bool unfitted;   /* skip the check that it fits the plan's cluster */
    Recipe *made_of; /* receives the recipe, even of a refused script; NULL: not wanted */
} PlanOptions;

bool session_is_text(const char *path); /* true for .plan and .txt, which hold a plan's text */

/* Loads, compiles, proves and fits the plan of `path`. Returns NULL if there is no plan at all. If
 * it does not fit or a proof failed, returns the plan and adds errors to `d`. */
PlanFile *session_load(const char *path, const PlanOptions *options, Arena *arena, Diag *d);

/* The first half, for scripts: reads the configuration and the graph, before any pass. With
 * `options->script` other loads may share the graph, so only session_compile may change it. */
bool session_read(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Graph *graph, Diag *d);
/* The second half: compiles them, without proofs and without an id. The plan takes over the graph,
 * or with `options->script` or `options->fewer` a copy. Returns NULL after diagnostics. */
PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *options,
                          Arena *arena, Diag *d);

/* The exact text of a plan, with script locations. */
const char *session_text(const PlanFile *file, Arena *arena);

/* Returns the memory of the plan's cluster, and the bytes of it that no plan may use. */
Capacity session_capacity(const PlanFile *file, Arena *arena);
/* Checks that the plan fits its cluster. If it does not fit, that is an error in `d`. */
void session_fit(const PlanFile *file, Arena *arena, Diag *d);
/* Gives an unproven plan its id. */
void session_identify(PlanFile *file);

/* session_compile, then proofs, fit and id, as session_load does it. */
PlanFile *session_finish(const Config *config, Graph *graph, const PlanOptions *options,
                         Arena *arena, Diag *d);

/* Reads the configuration and the mesh of a script or text, before any pass. Returns false after
 * diagnostics. */
bool session_mesh(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Mesh *mesh, Diag *d);

/* Proves a loaded plan. If there is a cluster, and unless `unfitted`, also checks that the plan
 * fits. Returns false if a proof failed. A plan that does not fit is an error in `d`, not a failed
 * proof. */
bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d);

/* True if two configurations of one script under different runtimes surely compile to equal
 * programs. `plan` is that of `a`. */
bool session_same_program(const Config *a, const Plan *plan, const Config *b);

/* ---- fewer.c: a step of many micro-batches from one of a few ---- */
/* Returns how many micro-batches show how a step of this configuration goes on: each further one
 * repeats the last but one. Returns 0 if the step has hardly more. `timed`: only times count;
 * else also memory, which pipelines place differently for each number of micro-batches. */
uint32_t session_fewer(const Config *config, bool timed);
/* Changes the configuration's batch and the graph's divisor of the loss. */
void session_set_microbatches(Config *config, Graph *graph, uint32_t n, Arena *arena);
uint32_t session_microbatches(const Config *config);
/* True if each buffer has the same place in all micro-batches between the first and the last one.
 * Further ones then have it too (placement.c). */
bool session_settled(const Plan *plan);

/* ---- costs.c ---- */
typedef struct CostsOf {
    const char *backend; /* whose collectives count; "": none was measured */
    const char *machine; /* NULL: models alone */
} CostsOf;
/* A plan of this machine, or one that a backend `ran` here, uses the costs of `here`, this
 * machine's key, and the collectives of that backend (NULL: mpi). A plan of another cluster uses
 * the costs that were imported from the machine `imported` (NULL: models alone). */
CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran);

/* ---- predict.c ---- */
/* Returns the memory under the plan's runtime, which must have a name. */
Held session_held(const PlanFile *file);
/* Simulates the plan on `cluster` under its own runtime profile. If the file's plan has fewer
 * micro-batches than its configuration, the report is that of the configuration's step. Then
 * report->aperiodic may say that only the whole plan tells its time. `how` may leave steps, seed
 * and runtime at zero: one step, the plan's seed, the plan's profile. */
bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d);

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend;        /* "", or the backend of this machine whose costs are used */
    const char *machine;        /* the machine whose measured costs are used; NULL: only models */
    bool trace, unfolded, keep; /* keep: store the prediction */
    const Unevenness *uneven;   /* NULL: all devices are alike; else ranks are not folded */
    double imbalance;           /* unevenness of the experts' choices; 1: even */
} PredictOptions;

typedef struct Predicted {
    RunRecord record;
    int64_t id;     /* in the store; 0: not stored */
    bool found;     /* it was stored already, so the fields below are unknown */
    bool aperiodic; /* fewer micro-batches do not tell the step's time: nothing else is known */
    bool host_bound;
    CostCounts counts;
    uint64_t n_events;
    uint32_t n_classes;
} Predicted;

/* Predicts, or finds the stored prediction with exactly the same key. With options->keep a new
 * prediction is stored. Returns false after diagnostics: the plan
 * deadlocks, the store cannot be read, or `aperiodic` (without diagnostics). If the store cannot be
 * written, the id is 0 and `d` has an error. A plan that does not fit is no failure here. `store`
 * may be NULL. */
bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d);
const char *cluster_text(Arena *arena, const Cluster *cluster); /* "dgx-h100, 2 x 8" */

/* converts an id to the bytes that the store keeps */
void hash_to_bytes(Hash128 id, unsigned char bytes[16]);
const char *hash_short(Arena *arena, Hash128 id); /* 12 hex digits */

/* ---- recipe.c ---- */
/* Returns the options that shape a plan, one `key value` in each line. With the scripts they make
 * the plan again. */
const char *recipe_head(const char *path, const PlanOptions *options, Arena *arena);
/* Returns the recipe of a configuration, without the scripts' text. */
Recipe recipe_of(const Config *config, const PlanOptions *options, Arena *arena);
/* Reads the text of the scripts that the store lacks. A script that has changed meanwhile stays
 * NULL. */
void recipe_read_scripts(Recipe *recipe, Store *store, Arena *arena, Diag *d);
/* Returns true if each script of a stored list would be found and still has the same bytes. `known`
 * caches the files that were read; it begins zeroed. */
typedef struct KnownScripts {
    LIST(Hash128) fresh, stale; /* lists */
} KnownScripts;
bool recipe_is_fresh(KnownScripts *known, const FoundAnswer *found, const char *path, Arena *arena);
/* Names the program: two builds that differ have different names. */
const char *build_name(Arena *arena);

#endif
