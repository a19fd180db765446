/* Turns a Lua script into a Config and a Graph. Only the files of planner/front include lua.h. A
 * script is evaluated in a forked process with hard limits on CPU time, memory and depth of calls.
 * So a hostile or endless script only causes an error message. */
#ifndef TANDEM_FRONT_FRONT_H
#define TANDEM_FRONT_FRONT_H

#include "planner/front/config.h"

typedef struct FrontOptions {
    /* settings such as "mesh.tp=4", applied to the table that the script gives to plan{} */
    const char *const *set;
    uint32_t n_set;
    /* make the plan small for --verify: two layers, the smallest allowed sizes, at most 16 ranks.
     * An axis with several ranks keeps at least two */
    bool shrink;
    double cpu_seconds; /* limit on the script's processor time; 0: 5 s */
    /* a cluster of the library that replaces the script's; NULL: the script's cluster stays */
    const char *cluster;
    /* number of nodes of `cluster`; the mesh must fill them. 0: as many nodes as the ranks need,
     * and the last node may be filled in part. If an axis is -1, 0 means the script's number of
     * nodes */
    uint32_t nodes;
} FrontOptions;

/* Evaluates the script at `path`. The graph has only forward nodes, modules and initial values. The
 * tensors are those of a micro-batch of all data ranks together (micro-batch x data ranks). On
 * failure, reports diagnostics with the script's line and returns false. */
bool front_load(const char *path, const FrontOptions *options, Arena *arena, Config *config,
                Graph *graph, Diag *d);
/* Like front_load, for a script given as the text `code`. Such a script may require only scripts of
 * the library. `name` names the script in messages. */
bool front_load_text(const char *name, const char *code, const FrontOptions *options, Arena *arena,
                     Config *config, Graph *graph, Diag *d);
/* A script that is held open. It runs once, in one process, and can then be loaded under many
 * settings. Each distinct model is traced only once. Every load gives the same result as
 * front_load. */
typedef struct FrontScript FrontScript;
/* Opens a script. `code` is its text, as for front_load_text; NULL: the text is in the file `path`.
 * The script and all its graphs live in `arena`. Its process starts at the first load. */
FrontScript *front_open(const char *path, const char *code, double cpu_seconds, Arena *arena);
void front_close(FrontScript *script); /* Ends the script's process. `script` may be NULL. */
/* Loads the script under these options; options->shrink must be false. Several loads may return the
 * same graph, so a caller that changes the graph must first copy it (graph_copy). */
bool front_load_held(FrontScript *script, const FrontOptions *options, Arena *arena, Config *config,
                     Graph *graph, Diag *d);
/* Returns a pointer that identifies the trace from which `graph` was built. Equal graphs of an open
 * script give the same pointer. Returns NULL if the graph belongs to only one load. */
const void *front_trace(const FrontScript *script, const Graph *graph);
/* Sets the divisor of the graph's loss for the batch of `config`. Call it if that batch has changed
 * since the graph was made. */
void front_set_divisor(const Config *config, Graph *graph, Arena *arena);

/* ---- sweep_script.c: a script that ends with `return sweep { ... }` ---- */
typedef enum SweepCall { SWEEP_where, SWEEP_require, SWEEP_score, SWEEP_CALLS } SweepCall;
typedef struct FrontPair {
    const char *key, *value; /* such as "mesh.tp" and "4" */
    Loc loc;                 /* for a value in `vary`: its source line */
} FrontPair;
typedef LIST(FrontPair) FrontPairs;
typedef struct SweepAnswer {
    bool yes;         /* the answer of where and of require */
    double number;    /* the answer of score */
    const char *text; /* the reason that require gave for its answer; NULL: none */
} SweepAnswer;
typedef struct FrontSweep {
    const char *plan; /* path of the plan's script */
    /* each key with each of its values; the values of one key follow each other */
    FrontPairs vary;
    const char *score; /* the name that the script gives to the score */
    bool has[SWEEP_CALLS];
    struct SweepProcess *process;
} FrontSweep;
/* Evaluates a script in a process of its own, which stays alive to answer calls. Returns NULL after
 * reporting diagnostics, or if the script returns a plan (then is_plan is set). */
FrontSweep *front_sweep_open(const char *path, Arena *arena, bool *is_plan, Diag *d);
/* Calls a function of the sweep. `settings` are those of one point; `result` holds the point's
 * result, and `where` gets none. `point` names the point in messages. Returns false after reporting
 * diagnostics. */
bool front_sweep_call(FrontSweep *sweep, SweepCall call, const FrontPairs *settings,
                      const FrontPairs *result, const char *point, SweepAnswer *answer, Diag *d);
void front_sweep_close(FrontSweep *sweep); /* Ends the sweep's process. `sweep` may be NULL. */
/* One row of the table of keys that sweep{} takes. */
typedef struct SweepKeyInfo {
    const char *name, *type, *meaning;
    bool optional;
} SweepKeyInfo;
extern const SweepKeyInfo front_sweep_keys[];
extern const uint32_t front_n_sweep_keys;

/* Loads a cluster of the library by its name, such as "dgx_h100", with this number of nodes. A plan
 * that is given as text has no script that could name a cluster, so callers need this function. */
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
const char *front_scripts_dir(void); /* Returns the folder of the Lua library. */

/* Writes all fields of `cluster` and `runtime` that a prediction reads, one "path value" in each
 * line. The fields are those of the table planner/front/keys/fields.c, except the ones that
 * field_why_idle names. */
void field_text(const Cluster *cluster, const Runtime *runtime, Str *out);
/* Returns the reason why field_text leaves out this field, which cannot change a prediction; NULL:
 * field_text includes it. */
const char *field_why_idle(const char *path);

#endif
