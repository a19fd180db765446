/* All steps from a script to a prediction. The command, sweeps, `accuracy` and libtandem all call
 * these functions, so they predict the same times for the same plan.
 *
 * Terms:
 * - to prove a plan: the verifier (planner/verify) shows that its programs compute what the model
 *   says, without deadlocks or buffers that overwrite each other
 * - a plan fits if each device has enough memory for it
 * - short plan: a plan compiled with fewer micro-batches than the step has, to save time (fewer.c)
 * - placing: giving each buffer an offset in memory
 * - recipe: the scripts and options from which a plan can be built again */
#ifndef TANDEM_SESSION_SESSION_H
#define TANDEM_SESSION_SESSION_H

#include "kernels/kernel.h"
#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "sim/sim.h"
#include "store/store.h"

#define TANDEM_VERSION "0.1.0"

/* ---- load.c ---- */
/* The memory that a plan needs under its runtime, computed at its first use. */
typedef struct KnownHeld {
    bool known;
    Held held;
} KnownHeld;

/* The result of the default simulation: on the plan's own cluster and runtime, without options. */
typedef struct KnownReport {
    bool known;
    SimReport report;
} KnownReport;

typedef struct Proof Proof; /* a proof that runs in a second thread (proof.c) */
typedef struct PlanReuse PlanReuse;

typedef struct PlanFile {
    const char *path;
    bool is_text;     /* the plan was read from a plan's text (.plan), not from a script (.lua) */
    bool has_cluster; /* false: a plan from text, and the user named no cluster */
    /* for a plan from text, only the cluster, the seed and the file's name are set */
    Config config;
    Plan *plan;
    Hash128 id;
    /* if `plan` is a short plan: the number of micro-batches in the whole step; otherwise 0 */
    uint32_t microbatches;
    /* For a short plan with a pipeline, whose times need not repeat: the programs of all
     * micro-batches, which are simulated. Their buffers have no offsets. NULL: not needed. */
    const Plan *whole;
    /* for a short plan: its proof and its memory do not hold for the whole step. Either buffers of
     * further micro-batches would get other offsets, or a pipeline's programs do not repeat */
    bool unsettled;
    Recipe recipe;      /* how to build the plan again; empty for a plan from text */
    KnownHeld *memory;  /* where the memory is remembered; NULL: computed each time */
    KnownReport *ahead; /* where a simulation made in advance is remembered; NULL: nowhere */
    Proof *proof;       /* the running second thread that proves the plan; NULL: none */
    bool proven;        /* `plan` was proven */
    /* the entry of reuse.h that owns the plan; NULL: the plan is not reused */
    struct KeptPlan *kept;
} PlanFile;

/* Options of loading a plan. Zero is the default of each. */
typedef struct PlanOptions {
    const char *const *set; /* settings that change a script, such as "mesh.tp=4" */
    uint32_t n_set;
    /* name of a library cluster that replaces the script's; NULL: the script's stays */
    const char *cluster;
    uint32_t nodes;       /* number of nodes of `cluster`; 0: as many as the mesh needs */
    const uint64_t *seed; /* replaces the script's seed; NULL: the script's stays */
    /* the script's text; `path` then only names it. NULL: read the file `path` */
    const char *code;
    /* the held script to load from (front_open); NULL: start a process for this load */
    FrontScript *script;
    /* plans of earlier loads of `script` that may be reused; NULL: always compile */
    PlanReuse *reuse;
    /* limit on the script's processor time [seconds]; 0: the default of front.h */
    double cpu_seconds;
    bool shrink;            /* for --verify: make the plan small, with all dtypes fp64 */
    bool unpadded;          /* do not pad vocabularies to aligned rows */
    const DTypeMap *dtypes; /* with shrink: dtypes to use instead of fp64; NULL: fp64 */
    /* scratch memory of each kernel; NULL: that of the cluster's kernels */
    WorkspaceBytes workspace;
    Hash128 parent;         /* with shrink: id of the user's plan; zero: none */
    const char *stop_after; /* name of the last pass to run; NULL: all */
    bool unproven;          /* do not prove the plan */
    /* prove the plan and check that it fits in a second thread, for which session_settle waits */
    bool settles_later;
    /* do not place buffers, because the plan is only simulated */
    bool unplaced;
    /* compile a short plan with this many micro-batches (session_fewer); session_simulate still
     * gives the time of the whole step. 0: compile all micro-batches */
    uint32_t fewer;
    /* with `fewer`: the time of a pipeline may be extrapolated, too, without the programs of all
     * micro-batches */
    bool by_period;
    bool unfitted; /* do not check that the plan fits */
    /* the hint of the error mesh-product names only sizes with which the plan compiles and fits */
    bool tries_hints;
    /* receives the plan's recipe, even if the script is refused; may be NULL */
    Recipe *made_of;
    /* called by session_load after the script was read and before it is compiled; may be NULL */
    void (*after_read)(void *self, const Config *config);
    void *self;
} PlanOptions;

/* True for a path that ends in .plan or .txt: the text of a plan, not a script. */
bool session_is_text(const char *path);

/* Loads the plan at `path`: compiles it, proves it, and checks that it fits. Returns NULL if no
 * plan could be compiled. If it is not proven or does not fit, returns it and adds errors to `d`.
 */
PlanFile *session_load(const char *path, const PlanOptions *options, Arena *arena, Diag *d);

/* The first half of session_load, for scripts: reads the configuration and the graph, and runs no
 * pass. With options->script, other loads may share the graph, so only session_compile may change
 * it. */
bool session_read(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Graph *graph, Diag *d);
/* The second half of session_load: compiles the configuration and the graph. Does not prove the
 * plan or compute its id. The plan uses the graph itself or, with options->script or
 * options->fewer, a copy. Returns NULL after reporting diagnostics. */
PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *options,
                          Arena *arena, Diag *d);

/* Returns the plan as text, with the script lines of its instructions. */
const char *session_text(const PlanFile *file, Arena *arena);

/* Computes the id of a plan that was loaded with `unproven`. */
void session_identify(PlanFile *file);

/* session_compile, then what session_load does after it: proves the plan, checks that it fits,
 * computes its id. */
PlanFile *session_finish(const Config *config, Graph *graph, const PlanOptions *options,
                         Arena *arena, Diag *d);

/* Reads only the configuration and the mesh of a script or of a plan's text, and runs no pass.
 * Returns false after reporting diagnostics. */
bool session_mesh(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Mesh *mesh, Diag *d);

/* True if configurations `a` and `b` of one script, which differ in their runtime, certainly
 * compile to equal programs. plan: the plan of `a`. */
bool session_same_program(const Config *a, const Plan *plan, const Config *b);
/* Like session_same_program, when no plan is compiled yet: false if the two configurations already
 * show that their programs differ. */
bool session_same_passes(const Config *a, const Config *b);

/* ---- filling.c ---- */
/* Improves the hint of the error mesh-product (diagnostic `first` or later of `d`), if it is the
 * only error of a load. config->fills has settings with which the mesh would use all devices. Loads
 * the plan with each of them; the hint then names only those with which it compiles and fits. */
void session_try_fillings(const char *path, const PlanOptions *options, const Config *config,
                          uint32_t first, Diag *d);

/* ---- reuse.c ---- */
/* Creates a list of reusable plans for the loads of a held script. A load with an equal plan, under
 * another cluster or runtime, then does not compile it again; results do not change. A plan from
 * such a load is valid only until the next load. */
PlanReuse *reuse_new(Arena *arena);
void reuse_free(PlanReuse *reuse);            /* `reuse` may be NULL */
uint32_t reuse_count(const PlanReuse *reuse); /* number of times that a plan was reused */

/* ---- proof.c ---- */
/* Returns the memory of a device, and the part of it that no plan may use [bytes]. */
Capacity session_capacity(const PlanFile *file, Arena *arena);
/* Reports "does-not-fit" if the plan needs more memory than a device has. */
void session_fit(const PlanFile *file, Arena *arena, Diag *d);
/* Proves a loaded plan. Unless `unfitted`, also checks that it fits, if it has a cluster. Returns
 * false if it is not proven; a plan that does not fit only adds an error to `d`. */
bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d);
/* Starts a thread that proves the plan and, unless `unfitted`, checks that it fits. The caller must
 * not change the plan before session_settle. */
void session_begin_proof(PlanFile *file, bool unfitted, Arena *arena);
/* Waits for the thread of session_begin_proof, and adds its diagnostics to `d`. Does nothing if
 * there is none. */
void session_settle(PlanFile *file, Diag *d);

/* ---- fewer.c: computes a step of many micro-batches from a short plan ---- */
/* Returns the number of micro-batches for a short plan of this configuration. The whole step can be
 * computed from it, because each further micro-batch does the same as an earlier one. Returns 0 if
 * that would not save enough, or if the cluster is this machine. by_period: only times need to
 * repeat; otherwise a pipeline's programs and offsets must, too (plan_expand). */
uint32_t session_fewer(const Config *config, bool by_period);
/* Changes the number of micro-batches in the configuration, and with it the divisor of the loss. */
void session_set_microbatches(Config *config, Graph *graph, uint32_t n, Arena *arena);
uint32_t session_microbatches(const Config *config);
/* True if further micro-batches would get the same offsets as earlier ones (placement.c). */
bool session_settled(const Plan *plan);

/* ---- costs.c ---- */
typedef struct CostsOf {
    const char *backend; /* the backend on which collectives were measured; "": no measurements */
    /* the machine whose measurements are used; NULL: only models */
    const char *machine;
} CostsOf;
/* Chooses the measurements for a plan. here: name of this machine. imported: a machine whose
 * measurements were imported; NULL: none. ran: the backend on which the plan ran here; NULL: it did
 * not run. A plan for this machine, or one that ran here, uses measurements of `here`, with
 * collectives of `ran` (by default mpi). Any other plan uses those of `imported`. */
CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran);

/* ---- predict.c ---- */
/* Returns the memory that the plan needs under its runtime, which must have a name. */
Held session_held(const PlanFile *file);
/* Like session_held, for the rank whose experts get the most rows. loads, imbalance: see
 * SimOptions. */
Held session_held_uneven(const PlanFile *file, const struct RowLoads *loads, double imbalance);
/* Simulates the plan on `cluster` under its own runtime. For a short plan, the report describes the
 * whole step; if its time cannot be extrapolated, sets report->aperiodic. Zero in `how` means: one
 * step, the plan's seed, the plan's runtime. */
bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d);

/* Simulates the plan in advance, as session_predict does with session_plain_options, and remembers
 * the report for it. Other threads may read the plan meanwhile. */
void session_simulate_ahead(const PlanFile *file, Arena *arena);

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend; /* the backend of this machine whose collectives are used, or "" */
    /* the machine whose measurements are used; NULL: only models */
    const char *machine;
    bool trace, unfolded, keep; /* keep: store the prediction */
    bool exact;                 /* simulate every micro-batch, even if it repeats the one before */
    bool unkeyed; /* without a store: nobody reads record.calibration, so it stays "" */
    /* how devices differ in speed (every rank is then simulated); NULL: they are equal */
    const Unevenness *uneven;
    /* rows of the busiest rank's experts / mean rows; 1: all equal */
    double imbalance;
    /* rows on each rank of experts; NULL: only `imbalance` is known */
    const struct RowLoads *loads;
} PredictOptions;

/* Describes how ranks and experts differ, as a part of a prediction's key: "unfolded, jitter 0.1,
 * rank 3 x 1.5". Returns "" if they are equal. */
const char *session_scenario(Arena *arena, const PredictOptions *options);

typedef struct Predicted {
    RunRecord record;
    int64_t id; /* id of the run in the store; 0: not stored */
    bool found; /* the store had the prediction; the members below are then not set */
    /* the time of the step cannot be extrapolated from the short plan; all other members are then
     * not set */
    bool aperiodic;
    bool host_bound;
    CostCounts counts;
    uint64_t n_events;
    uint32_t n_classes;
} Predicted;

/* Returns the options of a plain prediction: all ranks and experts are equal, and costs come from
 * models only. */
PredictOptions session_plain_options(const PlanFile *file);
/* True if the store has the prediction with this key. `store` may be NULL. */
bool session_has_prediction(const PlanFile *file, Store *store, const PredictOptions *options,
                            Arena *arena);
/* Finds the prediction with this key in the store, or else simulates the plan; with options->keep,
 * stores the result. `store` may be NULL. Returns false after reporting diagnostics if the plan
 * deadlocks or the store cannot be read; returns false without diagnostics if out->aperiodic. If
 * the store cannot be written, out->id is 0 and `d` has an error. That the plan does not fit is no
 * error here. */
bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d);
/* Returns the text for a cluster in predictions: "dgx-h100, 2 x 8" (nodes x devices). */
const char *cluster_text(Arena *arena, const Cluster *cluster);

/* converts an id to its bytes in the store, big-endian */
void hash_to_bytes(Hash128 id, unsigned char bytes[16]);

/* ---- recipe.c ---- */
/* Returns the options that determine a plan, one `key value` in each line: Recipe.head. */
const char *recipe_head(const char *path, const PlanOptions *options, Arena *arena);
/* Returns the recipe of a configuration, without the texts of its scripts. */
Recipe recipe_of(const Config *config, const PlanOptions *options, Arena *arena);
/* Adds a script to the recipe, unless it is already there. */
void recipe_add(Recipe *recipe, const RecipeScript *script, Arena *arena);
/* Adds the scripts of a FoundAnswer.list, without their texts. */
void recipe_add_list(Recipe *recipe, const char *list, Arena *arena);
/* Reads the texts of the scripts that the store lacks. The text of a script that has changed since
 * it was used remains NULL. */
void recipe_read_scripts(Recipe *recipe, Store *store, Arena *arena, Diag *d);
/* True if each script of found->list still has the same content. path: the plan's script. `known`
 * remembers lists that were already compared; the caller zeroes it first. */
typedef struct KnownScripts {
    /* hashes of lists whose files are unchanged, and of lists with a changed file */
    LIST(Hash128) fresh, stale;
} KnownScripts;
bool recipe_is_fresh(KnownScripts *known, const FoundAnswer *found, const char *path, Arena *arena);
/* Returns a name that differs for every build: the version, the engine's version, and the linker's
 * build id. */
const char *build_name(Arena *arena);

#endif
