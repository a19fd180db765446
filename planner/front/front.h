/* Lua -> Config and Graph. The only code that sees lua.h. Scripts are evaluated in a forked child
 * under hard limits (CPU time, memory, depth); a hostile or endless script only causes a
 * diagnostic. */
#ifndef TANDEM_FRONT_FRONT_H
#define TANDEM_FRONT_FRONT_H

#include "planner/front/config.h"

typedef struct FrontOptions {
    const char *const *set; /* for example "mesh.tp=4", applied to the table given to plan{} */
    uint32_t n_set;
    bool shrink; /* --verify: two layers, smallest legal sizes, axes > 1 become 2 or 3, <= 16 ranks
                  */
    double cpu_seconds; /* 0: default 5 */
    /* a library cluster that replaces the script's before any check; NULL: the script's */
    const char *cluster;
    /* number of nodes of `cluster`; the mesh must fill them. 0: as many nodes as the ranks need, of
     * which the last may be partly filled; if an axis is -1, the script's number */
    uint32_t nodes;
} FrontOptions;

/* Evaluates `path`. On failure it reports diagnostics with script:line and returns false. The graph
 * has forward nodes only, with tensors for the GLOBAL micro-step batch (micro_batch x data ranks),
 * modules and initialisers. */
bool front_load(const char *path, const FrontOptions *options, Arena *arena, Config *config,
                Graph *graph, Diag *d);
/* Does the same for a script given as the text `code`, which may require only the library. `name`
 * is for messages. */
bool front_load_text(const char *name, const char *code, const FrontOptions *options, Arena *arena,
                     Config *config, Graph *graph, Diag *d);
/* A script that is held open. It runs once, in one process, and is then loaded under many settings.
 * Each distinct model is traced once. Every load gives the same result as front_load. */
typedef struct FrontScript FrontScript;
/* Opens a script. `code`: the script's text, as for front_load_text; NULL: it is in the file
 * `path`. The script and all graphs live in `arena`. The process starts with the first load. */
FrontScript *front_open(const char *path, const char *code, double cpu_seconds, Arena *arena);
void front_close(FrontScript *script); /* ends the process; NULL is fine */
/* Loads the script under these options; options->shrink must be false. Other loads may share the
 * graph, so a caller must change only a copy of it (graph_copy). */
bool front_load_held(FrontScript *script, const FrontOptions *options, Arena *arena, Config *config,
                     Graph *graph, Diag *d);
/* Returns the trace that gave `graph`, which a load of this script made: the same pointer for equal
 * graphs, as long as the script is open. NULL if the graph belongs to this load alone. */
const void *front_trace(const FrontScript *script, const Graph *graph);
/* Sets the divisor of the graph's loss to the divisor that `config` asks for. Needed if the batch
 * of `config` has changed since the graph was made. */
void front_set_divisor(const Config *config, Graph *graph, Arena *arena);

/* ---- sweep_script.c: a script that ends with `return sweep { ... }` ---- */
typedef enum SweepCall { SWEEP_where, SWEEP_require, SWEEP_score, SWEEP_CALLS } SweepCall;
typedef struct FrontPair {
    const char *key, *value; /* "mesh.tp", "4" */
    Loc loc;                 /* for a value in `vary`: its line */
} FrontPair;
typedef LIST(FrontPair) FrontPairs;
typedef struct SweepAnswer {
    bool yes;         /* the result of where and require */
    double number;    /* the result of score */
    const char *text; /* the reason that require gave; NULL: none */
} SweepAnswer;
typedef struct FrontSweep {
    const char *plan;  /* the path of the plan's script */
    FrontPairs vary;   /* the values of each key follow each other */
    const char *score; /* the name of the score */
    bool has[SWEEP_CALLS];
    struct SweepProcess *process;
} FrontSweep;
/* Evaluates a script in a process of its own, which stays alive to answer calls. Returns NULL after
 * reporting diagnostics, or if the script returns a plan (then is_plan is set). */
FrontSweep *front_sweep_open(const char *path, Arena *arena, bool *is_plan, Diag *d);
/* Calls a function of the sweep with a point's settings and, except for `where`, the point's
 * result. `point` names the point in messages. Returns false after reporting diagnostics. */
bool front_sweep_call(FrontSweep *sweep, SweepCall call, const FrontPairs *settings,
                      const FrontPairs *result, const char *point, SweepAnswer *answer, Diag *d);
void front_sweep_close(FrontSweep *sweep); /* ends the process; NULL is fine */
/* One row of the table of keys that sweep{} takes. */
typedef struct SweepKeyInfo {
    const char *name, *type, *meaning;
    bool optional;
} SweepKeyInfo;
extern const SweepKeyInfo front_sweep_keys[];
extern const uint32_t front_n_sweep_keys;

/* Loads a cluster of the library by name, such as "dgx_h100", with this number of nodes. Plans that
 * are given as text need it. */
bool front_cluster(const char *name, uint32_t nodes, Arena *arena, Cluster *cluster, Diag *d);
/* The names of the library's scripts of clusters, in alphabetical order. Some scripts are only
 * parts of clusters, so front_cluster cannot load them. */
typedef struct ClusterNames {
    const char *at[64];
    size_t n;
} ClusterNames;
ClusterNames front_cluster_names(Arena *arena);
/* Makes a cluster of one node with n_devices GPUs of this name ("NVIDIA H200"). Returns false
 * without a message if the library has no such GPU. */
bool front_gpu_cluster(const char *gpu, uint32_t n_devices, Arena *arena, Cluster *cluster);
const char *front_scripts_dir(void); /* the folder of the Lua library */

/* Writes all fields of `cluster` and `runtime` that a prediction reads, one "path value" in each
 * line. Two configurations that differ in any field of the table (planner/front/keys/fields.c) give
 * different texts. */
void field_text(const Cluster *cluster, const Runtime *runtime, Str *out);
/* Returns the reason why field_text leaves out this field, which cannot change a prediction; NULL:
 * field_text includes it. */
const char *field_why_idle(const char *path);

#endif
