/* Turns a Lua script into a Config and a Graph. Only the files of planner/front include lua.h. The
 * script is evaluated in a forked process (child/) with hard limits on processor time, memory and
 * call depth, so a hostile or endless script only causes an error message. This process, the
 * parent, checks all that the child sends. */
#ifndef TANDEM_FRONT_FRONT_H
#define TANDEM_FRONT_FRONT_H

#include "planner/front/config.h"

typedef struct FrontOptions {
    /* settings such as "mesh.tp=4", which change the table that the script passes to plan{} */
    const char *const *set;
    uint32_t n_set;
    /* for --verify: reduce the plan to two layers, small sizes and at most 16 ranks. An axis with
     * several ranks keeps at least two of them if the limit of 16 allows it */
    bool shrink;
    double cpu_seconds; /* limit on the script's processor time; 0: 5 s */
    /* name of a library cluster, such as "dgx_h100", that replaces the script's; NULL: no other
     * cluster */
    const char *cluster;
    /* nodes of `cluster`; the mesh must then use all of them. 0: as many as the mesh needs (the
     * last one may be used in part), or the script's number if a mesh axis is -1 */
    uint32_t nodes;
} FrontOptions;

/* Evaluates the script at `path`. The graph has the forward pass of one micro-batch: its modules,
 * its tensors with initial values, and its ops. The batch dimension is that of all data ranks
 * together, batch.micro x data ranks. On failure, reports diagnostics with the script's line and
 * returns false. */
bool front_load(const char *path, const FrontOptions *options, Arena *arena, Config *config,
                Graph *graph, Diag *d);
/* Like front_load, for a script given as the text `code`, which may require only scripts of the
 * library. `name` stands for its path in messages. */
bool front_load_text(const char *name, const char *code, const FrontOptions *options, Arena *arena,
                     Config *config, Graph *graph, Diag *d);
/* A script that is held open: a process runs it once, and front_load_held can then load it under
 * many settings. Each distinct model is traced only once. Every load gives the same result as
 * front_load with these settings. */
typedef struct FrontScript FrontScript;
/* Opens a script. code: its text, as for front_load_text; NULL: read the file `path`. Memory of all
 * loads that later loads may reuse, such as graphs, comes from `arena`. The process starts at the
 * first load. */
FrontScript *front_open(const char *path, const char *code, double cpu_seconds, Arena *arena);
void front_close(FrontScript *script); /* Ends the script's process. `script` may be NULL. */
/* Loads the script under `options`, whose `shrink` must be false. Several loads may return the same
 * graph, so a caller that changes the graph must first copy it (graph_copy). */
bool front_load_held(FrontScript *script, const FrontOptions *options, Arena *arena, Config *config,
                     Graph *graph, Diag *d);
/* Returns a pointer that is equal for two graphs of `script` if both come from the same trace of
 * the model. Returns NULL if the graph belongs to only one load. */
const void *front_trace(const FrontScript *script, const Graph *graph);
/* Sets the divisor of the graph's loss from the batch of `config`. Call it if that batch has
 * changed since the graph was built. */
void front_set_divisor(const Config *config, Graph *graph, Arena *arena);

/* ---- sweep_script.c: a script that ends with `return sweep { ... }` ---- */
typedef enum SweepCall { SWEEP_where, SWEEP_require, SWEEP_score, SWEEP_CALLS } SweepCall;
typedef struct FrontPair {
    const char *key, *value; /* such as "mesh.tp" and "4" */
    Loc loc;                 /* for a pair of `vary`: the source line of the value */
} FrontPair;
typedef LIST(FrontPair) FrontPairs;
typedef struct SweepAnswer {
    bool yes;         /* result of where or require */
    double number;    /* result of score */
    const char *text; /* second result of require: why the point passed or failed; NULL: none */
} SweepAnswer;
typedef struct FrontSweep {
    const char *plan; /* path of the plan's script */
    /* all values of all varied settings: { "mesh.tp", "1" }, { "mesh.tp", "2" }, { "batch.micro",
     * "1" }, ... The values of one setting follow each other */
    FrontPairs vary;
    const char *score; /* name of the score's unit for tables, such as "GPU days" */
    bool has[SWEEP_CALLS];
    struct SweepProcess *process;
} FrontSweep;
/* Evaluates a sweep script in a process of its own, which stays alive to answer front_sweep_call.
 * Returns NULL after reporting diagnostics. Also returns NULL if the script returns a plan; then
 * sets *is_plan. */
FrontSweep *front_sweep_open(const char *path, Arena *arena, bool *is_plan, Diag *d);
/* Calls the sweep's function where, require or score for one point, that is, one combination of
 * settings. result: names and values of the point's prediction; NULL for where. point: the name of
 * the point in messages. Returns false after reporting diagnostics. */
bool front_sweep_call(FrontSweep *sweep, SweepCall call, const FrontPairs *settings,
                      const FrontPairs *result, const char *point, SweepAnswer *answer, Diag *d);
void front_sweep_close(FrontSweep *sweep); /* Ends the sweep's process. `sweep` may be NULL. */
/* The description of one key of sweep{}, from sweep_keys.def. */
typedef struct SweepKeyInfo {
    const char *name, *type, *meaning;
    bool optional;
} SweepKeyInfo;
extern const SweepKeyInfo front_sweep_keys[];
extern const uint32_t front_n_sweep_keys;

/* Loads the library cluster `name`, such as "dgx_h100", with this number of nodes, for commands
 * that have no plan script to name a cluster. */
bool front_cluster(const char *name, uint32_t nodes, Arena *arena, Cluster *cluster, Diag *d);
/* The names of the scripts in the library's folder clusters/, in alphabetical order. Some of them
 * are only parts of clusters, and front_cluster cannot load these. */
typedef struct ClusterNames {
    const char *at[64];
    size_t n;
} ClusterNames;
ClusterNames front_cluster_names(Arena *arena);
/* Makes a cluster of one node with n_devices GPUs whose name, as the driver reports it, is `gpu`
 * ("NVIDIA H200"). Returns false without a message if the library does not know the GPU. */
bool front_gpu_cluster(const char *gpu, uint32_t n_devices, Arena *arena, Cluster *cluster);
/* Makes a cluster of one node with `per_node` GPUs from two cells of a published collective: the
 * GPU and the links. between: the cell of the links must also state the network between nodes.
 * Returns false after reporting the reason. */
bool front_published_cluster(const char *gpu, const char *interconnect, uint32_t per_node,
                             bool between, Arena *arena, Cluster *cluster, Diag *d);
const char *front_scripts_dir(void); /* Returns the folder of the Lua library. */

/* Writes all fields of `cluster` and `runtime` that can change a prediction, one "path value" in
 * each line. The store uses this text to recognise equal hardware. The fields are the rows of the
 * table in keys/fields.c, except those that field_why_idle names. */
void field_text(const Cluster *cluster, const Runtime *runtime, Str *out);
/* Returns the reason why the field at `path` cannot change a prediction and is left out of
 * field_text, such as a price; NULL: field_text includes it. */
const char *field_why_idle(const char *path);

#endif
