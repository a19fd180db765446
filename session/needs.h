/* The measurements that a prediction needs: the distinct kernels and collectives of a plan and
 * their times in the store. Also makes a hash of everything that a prediction reads besides the
 * plan. */
#ifndef TANDEM_SESSION_NEEDS_H
#define TANDEM_SESSION_NEEDS_H

#include "planner/front/config.h"
#include "store/store.h"

typedef struct KernelNeed {
    const char *key; /* the kernel's key, from cost_key */
    OpKind op;
    /* program: the program that contains `pc`. n: number of instructions with this key in all
     * programs */
    uint32_t program, n;
    Pc pc;       /* one of the instructions with this key */
    Ps known_ps; /* time in the store; -1: none */
} KernelNeed;

typedef struct CollectiveNeed {
    OpKind op;
    AxisSet axes;
    uint32_t n_ranks, program, n;
    Pc pc;
    uint64_t bytes; /* the size as plan_comm_bytes counts it */
    DType dtype;
    Ps known_ps; /* time that was measured at exactly this size; -1: the store has none */
    /* the time that the simulator uses, which may be interpolated between two measured sizes; -1:
     * none */
    Ps used_ps;
} CollectiveNeed;

typedef struct Needs {
    LIST(KernelNeed) kernels; /* in the order of their keys */
    LIST(CollectiveNeed) collectives;
    uint32_t missing_kernels, missing_collectives;
} Needs;

/* Finds the needs of `plan` and looks up their times. If `store` is NULL, no time is known.
 * backend: times of collectives are those measured on this backend. */
void needs_find(const Plan *plan, Store *store, const char *machine, const char *backend,
                Arena *arena, Needs *needs, Diag *d);

/* Returns a hash (12 hex digits) of everything that a prediction reads besides the plan. This is
 * every field of the cluster and of the runtime's profile (field_text), and the measured costs. */
const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena);

#endif
