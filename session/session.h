/* The one pipeline: a script or a plan's text becomes a plan that is compiled, proven and fitted,
 * then a prediction that is simulated once, stored, and found again. The command, sweeps,
 * `accuracy` and libtandem all go through here, so they cannot give different numbers for one plan.
 */
#ifndef TANDEM_SESSION_SESSION_H
#define TANDEM_SESSION_SESSION_H

#include "kernels/kernel.h"
#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "sim/sim.h"
#include "store/store.h"

/* ---- load.c ---- */
typedef struct PlanFile {
    const char *path;
    bool is_text;     /* a .plan, not a .lua */
    bool has_cluster; /* false for a .plan without a named cluster */
    Config config;    /* of a text: only the cluster, the seed and the file */
    Plan *plan;
    Hash128 id;
    const char *text; /* exact, with locations; NULL unless it was asked for */
} PlanFile;

/* Zero is the default of each. */
typedef struct PlanOptions {
    const char *const *set; /* "mesh.tp=4", changes a script */
    uint32_t n_set;
    const char *cluster;      /* a library cluster in place of the script's; NULL: the script's */
    uint32_t nodes;           /* of that cluster; 0: as many as the ranks need */
    const uint64_t *seed;     /* in place of the script's; NULL: the script's */
    const char *code;         /* the script itself, `path` only names it; NULL: `path` is read */
    double cpu_seconds;       /* that the script may take; 0: the front's default */
    bool shrink;              /* scaled down, all fp64 */
    const DTypeMap *dtypes;   /* ... in other dtypes; NULL: fp64 */
    WorkspaceBytes workspace; /* lower for these kernels, whatever the cluster; NULL: not asked */
    Hash128 parent;           /* the plan that this one is a smaller form of; zero: none */
    const char *stop_after;   /* a pass */
    bool unproven;            /* leave the proofs out */
    bool unfitted;            /* do not ask whether it fits the plan's cluster */
    bool keep_text;           /* PlanFile.text is wanted: the plan goes to the store */
} PlanOptions;

bool session_is_text(const char *path); /* .plan and .txt hold a plan's text */

/* Loads, compiles, proves and fits the plan of `path`. Returns NULL when there is no plan to speak
 * of; a plan with errors in `d` otherwise (it does not fit, a proof failed). */
PlanFile *session_load(const char *path, const PlanOptions *options, Arena *arena, Diag *d);

/* The first half of it, of a script: its configuration and its graph, before any pass. */
bool session_read(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Graph *graph, Diag *d);
/* The second half: compiles them, without proofs and id. The plan takes the graph over. NULL after
 * diagnostics. */
PlanFile *session_compile(const Config *config, Graph *graph, const PlanOptions *options,
                          Arena *arena, Diag *d);

/* The configuration and the mesh of a script or text, before any pass; false after diagnostics. */
bool session_mesh(const char *path, const PlanOptions *options, Arena *arena, Config *config,
                  Mesh *mesh, Diag *d);

/* Proves a loaded plan; with a cluster and unless `unfitted`, asks whether it fits. False when a
 * proof failed. Not fitting is an error in `d`, not a failed proof. */
bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d);

/* ---- predict.c ---- */
/* Simulates the plan on `cluster` under its own runtime profile. `how` may leave steps, seed and
 * runtime at zero: one step, the plan's seed, the plan's profile. */
bool session_simulate(const PlanFile *file, const Cluster *cluster, const SimOptions *how,
                      Arena *arena, SimReport *report, Diag *d);

typedef struct PredictOptions {
    const Cluster *cluster;
    const char *backend;        /* "" unless the costs are a backend's of this machine */
    const char *machine;        /* whose measured costs are used; NULL: none, only models */
    bool trace, unfolded, keep; /* keep: store it */
    const Unevenness *uneven;   /* NULL: devices are alike; else unfolded */
    double imbalance;           /* of the experts' choices; 1: none */
} PredictOptions;

typedef struct Predicted {
    RunRecord record;
    int64_t id; /* in the store; 0: not stored */
    bool found; /* it was there already: what follows is not known */
    bool host_bound;
    CostCounts counts;
    uint64_t n_events;
    uint32_t n_classes;
} Predicted;

/* Predicts, or finds the stored prediction of the very same key; with options->keep a new one is
 * stored, which needs the plan's text. False after diagnostics: a plan that deadlocks, a store that
 * cannot be read. A store that takes nothing leaves id 0 and an error in `d`. Not fitting is no
 * failure here. `store` may be NULL. */
bool session_predict(const PlanFile *file, Store *store, const PredictOptions *options,
                     Arena *arena, Predicted *out, Diag *d);
const char *cluster_text(Arena *arena, const Cluster *cluster); /* "dgx-h100, 2 x 8" */

void hash_to_bytes(Hash128 id, unsigned char bytes[16]); /* as the store keeps ids */
const char *hash_short(Arena *arena, Hash128 id);        /* 12 hex digits */

#endif
