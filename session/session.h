/* The one pipeline from a script to a prediction. It compiles a script (or reads a plan's text),
 * proves the plan, checks that it fits, simulates it once, stores the prediction, and finds it
 * again. The command, sweeps, `accuracy` and libtandem all use it, so they cannot give different
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
/* Memory under the plan's runtime, computed at the first request. */
typedef struct KnownHeld {
    bool known;
    Held held;
} KnownHeld;

/* The plain simulation of a plan, on its own cluster and under its own runtime. */
typedef struct KnownReport {
    bool known;
    SimReport report;
} KnownReport;

typedef struct Proof Proof; /* proof.c */
typedef struct PlanReuse PlanReuse;

typedef struct PlanFile {
    const char *path;
    bool is_text;     /* a .plan, not a .lua */
    bool has_cluster; /* false for a .plan without a named cluster */
    Config config;    /* for a plan's text, only the cluster, the seed and the file are set */
    Plan *plan;
    Hash128 id;
    /* if `plan` has fewer micro-batches than the configuration's step: the number of micro-batches
     * of the step; otherwise 0 */
    uint32_t microbatches;
    /* For a pipeline whose `plan` has fewer micro-batches: the programs of all micro-batches,
     * because times may have no period. Its buffers have no offsets. Otherwise NULL. */
    const Plan *whole;
    /* buffers have other offsets than in the plan of all micro-batches, or a pipeline's programs
     * have no period */
    bool unsettled;
    Recipe recipe;         /* makes the plan again; NULL for a plan loaded from text */
    KnownHeld *memory;     /* NULL: it is computed at each request */
    KnownReport *ahead;    /* NULL: nothing is simulated ahead */
    Proof *proof;          /* a proof that runs beside other work; NULL: none */
    struct KeptPlan *kept; /* the plan is kept for later loads; NULL: it is not */
} PlanFile;

/* The default of each field is zero. */
typedef struct PlanOptions {
    const char *const *set; /* "mesh.tp=4": settings that change a script */
    uint32_t n_set;
    const char *cluster;  /* a library cluster that replaces the script's; NULL: the script's */
    uint32_t nodes;       /* nodes of that cluster; 0: as many as the ranks need */
    const uint64_t *seed; /* seed that replaces the script's; NULL: the script's */
    const char *code;    /* the script's text, and `path` is only its name; NULL: the script is read
                            from `path` */
    FrontScript *script; /* the script, held open; NULL: a process is started for this load */
    PlanReuse *reuse;    /* plans of earlier loads of `script`; NULL: the plan is made anew */
    double cpu_seconds;  /* CPU time that the script may take; 0: the front's default */
    bool shrink;         /* scales the plan down, with all dtypes fp64 */
    bool unpadded;       /* odd vocabularies are not padded */
    const DTypeMap *dtypes; /* with shrink: these dtypes; NULL: fp64 */
    /* returns the scratch memory of kernels; NULL: the kernels of the cluster */
    WorkspaceBytes workspace;
    Hash128 parent;         /* id of the plan from which this plan was scaled down; zero: none */
    const char *stop_after; /* the last pass to run; NULL: all passes run */
    bool unproven;          /* skip the proofs */
    /* prove and fit a script's plan in a thread, until session_settle */
    bool settles_later;
    /* buffers get no offsets: the plan is only simulated, for times and for the memory of other
     * frameworks */
    bool unplaced;
    /* compile a step of only this many micro-batches (session_fewer). session_simulate computes the
     * time of the configuration's step from this short step. 0: the configuration's own number */
    uint32_t fewer;
    bool by_period;   /* with `fewer`: extrapolate a pipeline's time from a period, too */
    bool unfitted;    /* skip the check that the plan fits its cluster */
    bool tries_hints; /* name only those sizes that fill the cluster and pass all other rules */
    Recipe *made_of;  /* receives the settings and scripts that make the plan again, even if the
                         script is refused; may be NULL */
    /* session_load calls this for a script, after reading it and before compiling; may be NULL */
    void (*after_read)(void *self, const Config *config);
    void *self;
} PlanOptions;

bool session_is_text(const char *path); /* true for .plan and .txt, which hold a plan's text */

/* Loads, compiles, proves and fits the plan of `path`. Returns NULL if no plan could be made. If
 * the plan does not fit or a proof failed, returns the plan and adds errors to `d`. */
PlanFile *session_load(const char *path, const PlanOptions *options, Arena *arena, Diag *d);

/* The first half of session_load, for scripts: reads the configuration and the graph, and runs no
 * pass. With `options->script` other loads may share the graph, so only session_compile may change
 * it. */
bool session_read(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Graph *graph, Diag *d);
/* The second half: compiles configuration and graph, without proofs and without an id. The plan
 * takes over the graph; with `options->script` or `options->fewer` it takes a copy. Returns NULL
 * after reporting diagnostics. */
PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *options,
                          Arena *arena, Diag *d);

/* The exact text of a plan, with script locations. */
const char *session_text(const PlanFile *file, Arena *arena);

/* Returns the memory of a device of the plan's cluster, and the part of it that no plan may use, in
 * bytes. */
Capacity session_capacity(const PlanFile *file, Arena *arena);
/* Checks that the plan fits its cluster. Adds an error to `d` if it does not fit. */
void session_fit(const PlanFile *file, Arena *arena, Diag *d);
/* Gives an unproven plan its id. */
void session_identify(PlanFile *file);

/* Does session_compile, then proofs, fit and id, as session_load does. */
PlanFile *session_finish(const Config *config, Graph *graph, const PlanOptions *options,
                         Arena *arena, Diag *d);

/* Reads the configuration and the mesh of a script or text, before any pass. Returns false after
 * reporting diagnostics. */
bool session_mesh(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Mesh *mesh, Diag *d);

/* Proves a loaded plan. If there is a cluster, and unless `unfitted`, also checks that the plan
 * fits. Returns false if a proof failed. If the plan does not fit, adds an error to `d`; that is
 * not a failed proof. */
bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d);

/* True if configurations `a` and `b` of one script, under different runtimes, certainly compile to
 * equal programs. `plan` is the plan of `a`. */
bool session_same_program(const Config *a, const Plan *plan, const Config *b);
/* Returns false if it can tell from the configurations alone that session_same_program is false. */
bool session_same_passes(const Config *a, const Config *b);

/* ---- filling.c ---- */
/* Called if the only error of a load is that the mesh of `config` does not fill the cluster; it is
 * error number `first` of `d`. Loads the plan with each of config->fills, and rewrites the error's
 * hint: it names the settings with which a plan was made that fits. */
void session_try_fillings(const char *path, const PlanOptions *options, const Config *config,
                          uint32_t first, Diag *d);

/* ---- reuse.c ---- */
/* Keeps the newest plans of a script that is held open, so that a load of the same plan under
 * another cluster or runtime uses them again. Results are the same as without it. A plan of such a
 * load may be used only until the next load. */
PlanReuse *reuse_new(Arena *arena);
void reuse_free(PlanReuse *reuse);            /* NULL is fine */
uint32_t reuse_count(const PlanReuse *reuse); /* the number of plans that were used again */

/* ---- proof.c ---- */
/* Starts a thread that proves the plan and, unless `unfitted` is true, checks that it fits. The
 * plan must not change before session_settle. */
void session_begin_proof(PlanFile *file, bool unfitted, Arena *arena);
/* Waits for the end of the proofs of session_begin_proof, and adds their diagnostics to `d`. Does
 * nothing if there are none. */
void session_settle(PlanFile *file, Diag *d);

/* ---- fewer.c: derives a step of many micro-batches from a step of a few ---- */
/* Returns a number of micro-batches that represents a longer step of this configuration: each
 * further micro-batch would do the same as an earlier one. Returns 0 if the step itself has hardly
 * more, or if the cluster is this machine. by_period: times of a pipeline must have a period, but
 * programs and offsets of buffers need not repeat. Otherwise these must repeat (plan_expand). */
uint32_t session_fewer(const Config *config, bool by_period);
/* Changes the configuration's batch and the graph's divisor of the loss. */
void session_set_microbatches(Config *config, Graph *graph, uint32_t n, Arena *arena);
uint32_t session_microbatches(const Config *config);
/* True if buffers of further micro-batches would get the same offsets as buffers of earlier ones
 * (placement.c). */
bool session_settled(const Plan *plan);

/* ---- costs.c ---- */
typedef struct CostsOf {
    const char *backend; /* the backend whose collectives are used; "": none was measured */
    const char *machine; /* NULL: only models are used */
} CostsOf;
/* Chooses the costs for a plan. here: this machine's key. ran: the backend that ran the plan here;
 * NULL: none. A plan for this machine, or one that ran here, uses the costs of `here` and the
 * collectives of `ran` (NULL: of mpi). A plan for another cluster uses costs that were imported
 * under the machine name `imported` (NULL: only models). */
CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran);

/* ---- predict.c ---- */
/* Returns the memory that the plan holds under its runtime. The runtime must have a name. */
Held session_held(const PlanFile *file);
/* The same for the rank that holds most rows of experts; see SimOptions for loads and imbalance. */
Held session_held_uneven(const PlanFile *file, const struct RowLoads *loads, double imbalance);
/* Simulates the plan on `cluster` under its own runtime profile. If the file's plan has fewer
 * micro-batches than its configuration, the report describes the configuration's step.
 * report->aperiodic is then true if only the whole plan can give its time. `how` may leave steps,
 * seed and runtime zero: one step, the plan's seed, the plan's profile. */
bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d);

/* Simulates the plan as session_predict does with session_plain_options, and keeps the
 * report, so that session_predict need not simulate. It may run beside other work that only reads
 * the plan. */
void session_simulate_ahead(const PlanFile *file, Arena *arena);

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend;          /* "", or the backend of this machine whose costs are used */
    const char *machine;          /* the machine whose measured costs are used; NULL: only models */
    bool trace, unfolded, keep;   /* keep: store the prediction */
    const Unevenness *uneven;     /* NULL: devices do not differ; otherwise ranks are not folded */
    double imbalance;             /* unevenness of the experts' choices; 1: even */
    const struct RowLoads *loads; /* rows of experts on each rank; NULL: as `imbalance` says */
} PredictOptions;

/* Describes in words how ranks and experts differ; "": they do not. The text is part of a
 * prediction's key. */
const char *session_scenario(Arena *arena, const PredictOptions *options);

typedef struct Predicted {
    RunRecord record;
    int64_t id;     /* number of the run in the store; 0: not stored */
    bool found;     /* it was stored already; the fields below are then unset */
    bool aperiodic; /* the step's time cannot be computed from a few micro-batches; no other field
                       is set */
    bool host_bound;
    CostCounts counts;
    uint64_t n_events;
    uint32_t n_classes;
} Predicted;

/* Returns the options of a plain prediction: on the plan's own cluster, without differences between
 * ranks or experts, and with costs of models. */
PredictOptions session_plain_options(const PlanFile *file);
/* True if the store has the prediction with exactly this key. `store` may be NULL. */
bool session_has_prediction(const PlanFile *file, Store *store, const PredictOptions *options,
                            Arena *arena);
/* Predicts, or finds the stored prediction with exactly the same key. With options->keep a new
 * prediction is stored. Returns false after reporting diagnostics if the plan deadlocks or the
 * store cannot be read, and without diagnostics if the result is `aperiodic`. If the store cannot
 * be written, the id is 0 and `d` has an error. A plan that does not fit is no failure here.
 * `store` may be NULL. */
bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d);
const char *cluster_text(Arena *arena, const Cluster *cluster); /* "dgx-h100, 2 x 8" */

/* converts an id to the bytes that the store keeps */
void hash_to_bytes(Hash128 id, unsigned char bytes[16]);
const char *hash_short(Arena *arena, Hash128 id); /* 12 hex digits */

/* ---- recipe.c ---- */
/* Returns the options that shape a plan, one `key value` in each line. These options and the
 * scripts suffice to make the plan again. */
const char *recipe_head(const char *path, const PlanOptions *options, Arena *arena);
/* Returns the recipe of a configuration, without the scripts' text. */
Recipe recipe_of(const Config *config, const PlanOptions *options, Arena *arena);
/* Adds a script to the recipe, unless the recipe has it already. */
void recipe_add(Recipe *recipe, const RecipeScript *script, Arena *arena);
/* Adds the scripts of a stored list, without their text. */
void recipe_add_list(Recipe *recipe, const char *list, Arena *arena);
/* Reads the texts of the scripts that the store lacks. The text of a script that has changed since
 * then stays NULL. */
void recipe_read_scripts(Recipe *recipe, Store *store, Arena *arena, Diag *d);
/* Returns true if each script of a stored list still exists and has the same bytes. `known` caches
 * the files that were read; the caller zeroes it first. */
typedef struct KnownScripts {
    LIST(Hash128) fresh, stale; /* lists */
} KnownScripts;
bool recipe_is_fresh(KnownScripts *known, const FoundAnswer *found, const char *path, Arena *arena);
/* Returns a name of this build of the program; different builds have different names. */
const char *build_name(Arena *arena);

#endif
