/* The measurements that a prediction needs: the distinct kernels and collectives of a plan, their
 * times in the store, and a hash of all inputs other than the plan. */
#ifndef TANDEM_SESSION_NEEDS_H
#define TANDEM_SESSION_NEEDS_H

#include "planner/front/config.h"
#include "store/store.h"

typedef struct KernelNeed {
    const char *key; /* cost_key */
    OpKind op;
    uint32_t program, n; /* program: the program of `pc`. n: the number of instructions with this
                          * key in all programs */
    Pc pc;               /* one of these instructions */
    Ps known_ps;         /* -1: not in the store */
} KernelNeed;

typedef struct CollectiveNeed {
    OpKind op;
    AxisSet axes;
    uint32_t n_ranks, program, n;
    Pc pc;
    uint64_t bytes; /* plan_comm_bytes */
    DType dtype;
    Ps known_ps; /* time measured at this very size; -1: not in the store */
    Ps used_ps;  /* the time that the simulator uses, perhaps interpolated between two measured
                  * sizes; -1: none */
} CollectiveNeed;

typedef struct Needs {
    LIST(KernelNeed) kernels; /* sorted by key */
    LIST(CollectiveNeed) collectives;
    uint32_t missing_kernels, missing_collectives;
} Needs;

/* Finds the needs of `plan` and looks them up. store: NULL: no time is known. backend: the backend
 * of whose collectives the times are looked up. */
void needs_find(const Plan *plan, Store *store, const char *machine, const char *backend,
                Arena *arena, Needs *needs, Diag *d);

/* Returns a hash (12 hex digits) of every input of a prediction except the plan: every field of the
 * cluster and of the runtime profile (field_text), and the measured costs. */
const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena);

#endif
