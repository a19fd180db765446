/* Lua -> Config and Graph. The only code that sees lua.h. Scripts are evaluated in a forked child
 * under hard limits (CPU time, memory, depth); a hostile or endless script is a diagnostic. */
#ifndef TANDEM_FRONT_FRONT_H
#define TANDEM_FRONT_FRONT_H

#include "planner/front/config.h"

typedef struct FrontOptions {
    const char *const *set; /* "mesh.tp=4", applied to the table given to plan{} */
    uint32_t n_set;
    bool shrink; /* --verify: two layers, smallest legal sizes, axes > 1 become 2 or 3, <= 16 ranks
                  */
    double cpu_seconds;  /* 0: default 5 */
    const char *cluster; /* a library cluster that replaces the script's before anything is judged;
                          * NULL: the script's */
    uint32_t nodes; /* of that cluster: the mesh must fill them; 0: as many as the ranks need (the
                     * script's where an axis is -1), and the last may be filled in part */
} FrontOptions;

/* Evaluates `path`. On failure: diagnostics with script:line, false. Graph: forward nodes only,
 * with tensors for the GLOBAL micro-step batch (micro_batch x data ranks), modules, initialisers.
 */
bool front_load(const char *path, const FrontOptions *options, Arena *arena, Config *config,
                Graph *graph, Diag *d);
/* The same of a script given as `code`, which may require the library alone; `name`: for messages.
 */
bool front_load_text(const char *name, const char *code, const FrontOptions *options, Arena *arena,
                     Config *config, Graph *graph, Diag *d);
/* A cluster by library name, e.g. "dgx_h100" with nodes; for plans given as text. */
bool front_cluster(const char *name, uint32_t nodes, Arena *arena, Cluster *cluster, Diag *d);
const char *front_scripts_dir(void); /* where the tandem Lua library lies */

/* All that a prediction reads of the hardware and the framework, one "path value" a line: two that
 * differ in any field of the table (planner/front/fields.c) differ here. */
void field_text(const Cluster *cluster, const Runtime *runtime, Str *out);
/* Why a field cannot change a prediction and is left out of that text; NULL: it is in it. */
const char *field_why_idle(const char *path);

#endif
