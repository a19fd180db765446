/* All steps from a script to a prediction: load a script (or a plan's text), compile it, prove the
 * plan, check that it fits, simulate it, store the prediction, and find it again. The command,
 * sweeps, `accuracy` and libtandem all use these functions, so they cannot give different numbers
 * for the same plan. */
#ifndef TANDEM_SESSION_SESSION_H
#define TANDEM_SESSION_SESSION_H

#include "kernels/kernel.h"
#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "sim/sim.h"
#include "store/store.h"

#define TANDEM_VERSION "0.1.0"

/* ---- load.c ---- */
/* The memory that a plan needs under its runtime, once it has been computed. */
typedef struct KnownHeld {
    bool known;
    Held held;
} KnownHeld;

/* The simulation of a plan on its own cluster and under its own runtime, without options. */
typedef struct KnownReport {
    bool known;
    SimReport report;
} KnownReport;

typedef struct Proof Proof; /* a proof that runs in a second thread (proof.c) */
typedef struct PlanReuse PlanReuse;

typedef struct PlanFile {
    const char *path;
    bool is_text;     /* the plan came from a plan's text (.plan), not from a script (.lua) */
    bool has_cluster; /* false for a plan's text if the user named no cluster */
    /* for a plan's text, only the cluster, the seed and the file's name are set */
    Config config;
    Plan *plan;
    Hash128 id;
    /* if `plan` has fewer micro-batches than the step of the configuration: the number in that
     * step; otherwise 0 */
    uint32_t microbatches;
    /* The programs of all micro-batches, for a pipeline whose `plan` has fewer. The times of a
     * pipeline need not repeat, so these programs are simulated. Its buffers have no offsets.
     * Otherwise NULL. */
    const Plan *whole;
    /* proofs and memory of `plan` do not hold for all micro-batches: buffers would get other
     * offsets, or a pipeline's programs do not repeat */
    bool unsettled;
    Recipe recipe;         /* makes the plan again; NULL for a plan that was loaded from text */
    KnownHeld *memory;     /* the memory, once it was computed; NULL: it is computed each time */
    KnownReport *ahead;    /* the simulation, if it was made in advance; NULL: none */
    Proof *proof;          /* a proof that runs in a second thread; NULL: none */
    bool proven;           /* the proofs of `plan` ended without a fault */
    struct KeptPlan *kept; /* the entry that keeps the plan for later loads; NULL: it is not kept */
} PlanFile;

/* Options of loading a plan. Zero is the default of each. */
typedef struct PlanOptions {
    const char *const *set; /* settings that change a script, such as "mesh.tp=4" */
    uint32_t n_set;
    /* a cluster of the library that replaces the script's; NULL: the script's cluster stays */
    const char *cluster;
    uint32_t nodes;       /* number of nodes of that cluster; 0: as many as the ranks need */
    const uint64_t *seed; /* a seed that replaces the script's; NULL: the script's seed stays */
    /* the text of the script, to which `path` only gives a name; NULL: the script is read from
     * `path` */
    const char *code;
    /* the script, if it is held open; NULL: a process is started for this load */
    FrontScript *script;
    /* plans that earlier loads of `script` made; NULL: the plan is always made */
    PlanReuse *reuse;
    /* processor time that the script may take [seconds]; 0: the default of front.h */
    double cpu_seconds;
    bool shrink;            /* true: makes the plan small and all dtypes fp64 */
    bool unpadded;          /* true: vocabularies are not padded to aligned rows */
    const DTypeMap *dtypes; /* with shrink: other dtypes than fp64; NULL: fp64 */
    /* returns how much scratch memory a kernel needs; NULL: the function for the cluster's
     * kernels */
    WorkspaceBytes workspace;
    Hash128 parent;         /* id of the plan that was made small to give this plan; zero: none */
    const char *stop_after; /* name of the last pass to run; NULL: all passes run */
    bool unproven;          /* true: the plan is not proven */
    /* true: a second thread proves the plan and checks that it fits; session_settle waits for it */
    bool settles_later;
    /* true: buffers get no offsets, because the plan is only simulated, for its times and for the
     * memory of other frameworks */
    bool unplaced;
    /* number of micro-batches to compile (session_fewer). session_simulate computes the time of the
     * whole step from this short step. 0: all micro-batches */
    uint32_t fewer;
    /* with `fewer`: true if even the time of a pipeline may be extrapolated from a period */
    bool by_period;
    bool unfitted; /* true: a plan need not fit its cluster */
    /* true: the hint of mesh-product names only sizes with which the plan breaks no other rule */
    bool tries_hints;
    /* receives the settings and scripts of the plan, even if the script is refused; may be NULL */
    Recipe *made_of;
    /* session_load calls this function after it has read a script, and before it compiles it; may
     * be NULL */
    void (*after_read)(void *self, const Config *config);
    void *self;
} PlanOptions;

/* True for names that end with .plan or .txt, which are plans as text. */
bool session_is_text(const char *path);

/* Loads the plan of `path`: compiles it, proves it and checks that it fits. Returns NULL if no plan
 * could be made. If the plan does not fit or a proof failed, returns the plan and adds errors to
 * `d`. */
PlanFile *session_load(const char *path, const PlanOptions *options, Arena *arena, Diag *d);

/* The first half of session_load, for scripts: reads the configuration and the graph. Runs no pass.
 * With `options->script`, other loads may share the graph, so only session_compile may
 * change it. */
bool session_read(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Graph *graph, Diag *d);
/* The second half of session_load: compiles configuration and graph. Does not prove the plan and
 * gives it no id. The plan takes the graph or, with `options->script` or `options->fewer`, a copy
 * of it. Returns NULL after reporting diagnostics. */
PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *options,
                          Arena *arena, Diag *d);

/* Returns the exact text of a plan, with script locations. */
const char *session_text(const PlanFile *file, Arena *arena);

/* Returns how much memory a device of the plan's cluster has, and how much of it no plan may use
 * [bytes]. */
Capacity session_capacity(const PlanFile *file, Arena *arena);
/* Adds an error to `d` if the plan does not fit its cluster. */
void session_fit(const PlanFile *file, Arena *arena, Diag *d);
/* Computes the id of a plan that was not proven. */
void session_identify(PlanFile *file);

/* Does the work of session_compile. Then, like session_load, proves the plan, checks that it fits,
 * and gives it an id. */
PlanFile *session_finish(const Config *config, Graph *graph, const PlanOptions *options,
                         Arena *arena, Diag *d);

/* Reads the configuration and the mesh of a script or of a plan's text, before any pass runs.
 * Returns false after reporting diagnostics. */
bool session_mesh(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Mesh *mesh, Diag *d);

/* Proves a loaded plan. Also checks that it fits, if it has a cluster and `unfitted` is false.
 * Returns false if a proof failed. If the plan does not fit, adds an error to `d` but does not
 * return false for that. */
bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d);

/* True if configurations `a` and `b` certainly compile to equal programs. They come from one script
 * under different runtimes. `plan` is the plan of `a`. */
bool session_same_program(const Config *a, const Plan *plan, const Config *b);
/* Like session_same_program, but without a plan: returns false only if the two configurations show
 * that their programs differ. */
bool session_same_passes(const Config *a, const Config *b);

/* ---- filling.c ---- */
/* Improves the hint of the error mesh-product, if it is the only error of a load. config->fills has
 * the settings with which the mesh would fill the cluster. Loads the plan with each of them. The
 * hint then names only settings with which the plan compiles and fits. The error is item number
 * `first` of `d`. */
void session_try_fillings(const char *path, const PlanOptions *options, const Config *config,
                          uint32_t first, Diag *d);

/* ---- reuse.c ---- */
/* Creates a list of the newest plans of a script that is held open. A load of the same plan under
 * another cluster or runtime then uses the plan again. This does not change results. A plan from
 * such a load may be used only until the next load. */
PlanReuse *reuse_new(Arena *arena);
void reuse_free(PlanReuse *reuse);            /* `reuse` may be NULL */
uint32_t reuse_count(const PlanReuse *reuse); /* returns how often a plan was used again */

/* ---- proof.c ---- */
/* Starts a thread that proves the plan and, unless `unfitted` is true, checks that it fits. The
 * caller must not change the plan before session_settle. */
void session_begin_proof(PlanFile *file, bool unfitted, Arena *arena);
/* Waits for the thread of session_begin_proof, and adds its diagnostics to `d`. Does nothing if
 * there is no thread. */
void session_settle(PlanFile *file, Diag *d);

/* ---- fewer.c: derives a step of many micro-batches from a step of a few ---- */
/* Returns a number of micro-batches that can represent the step of this configuration, which has
 * more of them. Each additional micro-batch would do the same as an earlier one. Returns 0 if the
 * step has few more micro-batches, or if the cluster is this machine. by_period: only the times of
 * a pipeline must repeat. Otherwise its programs and the offsets of its buffers must repeat, too
 * (plan_expand). */
uint32_t session_fewer(const Config *config, bool by_period);
/* Changes the number of micro-batches in the configuration, and the divisor of the graph's loss
 * with it. */
void session_set_microbatches(Config *config, Graph *graph, uint32_t n, Arena *arena);
uint32_t session_microbatches(const Config *config);
/* True if buffers of additional micro-batches would get the same offsets as those of earlier ones
 * (placement.c). */
bool session_settled(const Plan *plan);

/* ---- costs.c ---- */
typedef struct CostsOf {
    const char *backend; /* backend on which the collectives were measured; "": none were */
    /* machine whose measured costs are used; NULL: all costs come from models */
    const char *machine;
} CostsOf;
/* Chooses the costs for a plan. here: the key of this machine. ran: the backend on which the plan
 * ran here; NULL: it did not run. A plan for this machine, or one that ran here, gets the costs of
 * `here` and collectives measured on `ran` (NULL: on mpi). Any other plan gets the costs that were
 * imported under the machine name `imported` (NULL: only models). */
CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran);

/* ---- predict.c ---- */
/* Returns the memory that the plan holds under its runtime, which must have a name. */
Held session_held(const PlanFile *file);
/* Like session_held, for the rank that holds the most rows of experts. For loads and imbalance, see
 * SimOptions. */
Held session_held_uneven(const PlanFile *file, const struct RowLoads *loads, double imbalance);
/* Simulates the plan on `cluster` under its own runtime. If the file's plan has fewer micro-batches
 * than its configuration, the report is about the configuration's step. If the time of that step
 * can be computed only from the whole plan, sets report->aperiodic. Zero in `how` means: one step,
 * the seed of the plan, the runtime of the plan. */
bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d);

/* Simulates the plan in advance, as session_predict does with session_plain_options, and keeps the
 * report for that function. Other threads may read the plan at the same time. */
void session_simulate_ahead(const PlanFile *file, Arena *arena);

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend; /* backend of this machine whose costs are used, or "" */
    /* machine whose measured costs are used; NULL: all costs come from models */
    const char *machine;
    bool trace, unfolded, keep; /* keep: whether to store the prediction */
    bool exact;                 /* simulate every micro-batch, even if it repeats the one before */
    /* how devices differ; then every rank is simulated. NULL: they do not differ */
    const Unevenness *uneven;
    /* load of the busiest rank of experts / mean load; 1: all are equal */
    double imbalance;
    /* rows of experts on each rank; NULL: only `imbalance` is known */
    const struct RowLoads *loads;
} PredictOptions;

/* Describes in words how ranks and experts differ; "" if they do not differ. The text is a part of
 * a prediction's key. */
const char *session_scenario(Arena *arena, const PredictOptions *options);

typedef struct Predicted {
    RunRecord record;
    int64_t id; /* number of the run in the store; 0: not stored */
    bool found; /* the store had the prediction; the following fields are then not set */
    /* the time of the step cannot be computed from a few micro-batches; all other fields are then
     * not set */
    bool aperiodic;
    bool host_bound;
    CostCounts counts;
    uint64_t n_events;
    uint32_t n_classes;
} Predicted;

/* Returns the options of a plain prediction: all ranks and experts are equal, and all costs come
 * from models. */
PredictOptions session_plain_options(const PlanFile *file);
/* True if the store has the prediction with exactly this key. `store` may be NULL. */
bool session_has_prediction(const PlanFile *file, Store *store, const PredictOptions *options,
                            Arena *arena);
/* Finds the stored prediction with exactly this key, or else simulates. With options->keep, stores
 * a new prediction. Returns false after reporting diagnostics if the plan deadlocks or the store
 * cannot be read. Returns false without diagnostics if the result is `aperiodic`. If the store
 * cannot be written, the id is 0 and `d` has an error. A plan that does not fit is no error here.
 * `store` may be NULL. */
bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d);
/* Returns words for a cluster: "dgx-h100, 2 x 8". */
const char *cluster_text(Arena *arena, const Cluster *cluster);

/* converts an id to the bytes by which the store keeps it */
void hash_to_bytes(Hash128 id, unsigned char bytes[16]);

/* ---- recipe.c ---- */
/* Returns the options that determine a plan, one `key value` in each line. With the scripts, they
 * are enough to make the plan again. */
const char *recipe_head(const char *path, const PlanOptions *options, Arena *arena);
/* Returns the recipe of a configuration, without the texts of its scripts. */
Recipe recipe_of(const Config *config, const PlanOptions *options, Arena *arena);
/* Adds a script to the recipe, unless the recipe has it. */
void recipe_add(Recipe *recipe, const RecipeScript *script, Arena *arena);
/* Adds the scripts of a stored list, without their texts. */
void recipe_add_list(Recipe *recipe, const char *list, Arena *arena);
/* Reads the texts of the scripts that the store lacks. If a script has changed since it was used,
 * its text remains NULL. */
void recipe_read_scripts(Recipe *recipe, Store *store, Arena *arena, Diag *d);
/* Returns true if each script of a stored list still exists with the same bytes. `known` remembers
 * which files were read already; the caller zeroes it first. */
typedef struct KnownScripts {
    /* lists of scripts whose files were the same, and lists whose files have changed */
    LIST(Hash128) fresh, stale;
} KnownScripts;
bool recipe_is_fresh(KnownScripts *known, const FoundAnswer *found, const char *path, Arena *arena);
/* Returns a name for this build of the program. Different builds have different names. */
const char *build_name(Arena *arena);

#endif
