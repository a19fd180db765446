/* What a plan needs to know about this machine: the distinct kernels and collectives of its
 * programs; which of them the store has; and how the others are measured. */
#ifndef TANDEM_CLI_RUN_MEASURE_H
#define TANDEM_CLI_RUN_MEASURE_H

#include "cli/cli.h"
#include "exec/exec.h"

typedef struct KernelNeed {
    const char *key; /* cost_key */
    OpKind op;
    uint32_t program, n; /* n: instructions with this key, over all programs */
    Pc pc;               /* one of them */
    Ps known_ps;         /* -1: not in the store */
} KernelNeed;

typedef struct CollectiveNeed {
    OpKind op;
    AxisSet axes;
    uint32_t n_ranks, program, n;
    Pc pc;
    uint64_t bytes; /* plan_comm_bytes */
    DType dtype;
    Ps known_ps;
} CollectiveNeed;

typedef struct Needs {
    LIST(KernelNeed) kernels; /* by key */
    LIST(CollectiveNeed) collectives;
    uint32_t missing_kernels, missing_collectives;
} Needs;

/* `store` may be NULL: everything is missing. `backend`: whose collectives. */
void needs_find(const Plan *plan, Store *store, const char *machine, const char *backend,
                Arena *arena, Needs *needs, Diag *d);
/* A hash of all that a prediction depends on beside the plan: the cluster's numbers and the
 * measured costs; 12 hex digits. */
const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena);

/* Runs the plan three steps on the backend (loopback: there kernels never share a core) and stores
 * the median time of each key that is missing; `store` on the first process, NULL elsewhere. */
typedef struct MeasureOn {
    const char *backend, *machine;
    BackendOptions options;
} MeasureOn;
bool measure_kernels(const Plan *plan, const Needs *needs, Store *store, const MeasureOn *on,
                     const DataSource *data, Arena *arena, Diag *d);
/* Every process of the run calls this with the same needs: runs each missing collective some times
 * through the backend, on the mesh of the plan; `store` on the first process, NULL elsewhere. */
bool measure_collectives(const Plan *plan, const Needs *needs, Backend *backend,
                         const BackendOptions *options, Store *store, const char *machine,
                         Arena *arena, Diag *d);

#endif
