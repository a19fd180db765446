/* What a plan needs to know about this machine: the distinct kernels and collectives of its
 * programs; which of them the store has; and measuring the others. */
#ifndef TANDEM_CLI_MEASURE_H
#define TANDEM_CLI_MEASURE_H

#include "cli/cli.h"

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
const char *calibration_id(const Cluster *cluster, const Needs *needs, Arena *arena);

/* Runs the compute instructions of one rank's program in order, several times, on made-up data, and
 * stores the median time of each key. Communication only leaves its outputs filled. */
bool measure_kernels(const Plan *plan, const Needs *needs, Store *store, const char *machine,
                     Diag *d);
/* A plan that does nothing but `repeats` times each collective that is missing, in turn, on the
 * mesh of `plan`. NULL when none is missing. */
Plan *measure_plan(const Plan *plan, const Needs *needs, uint32_t repeats, Arena *arena);
/* Stores the medians of a trace of measure_plan's plan. */
bool measure_store(const Plan *measured, const Trace *trace, Store *store, const char *machine,
                   const char *backend, Diag *d);

#endif
