/* The measurements that a prediction needs: the distinct kernels and collectives of a plan, and
 * their times in the store. Also a hash of all that a prediction reads besides the plan. */
#ifndef TANDEM_SESSION_NEEDS_H
#define TANDEM_SESSION_NEEDS_H

#include "planner/front/config.h"
#include "store/store.h"

typedef struct KernelNeed {
    const char *key; /* kernel with its sizes, as cost_key writes it */
    OpKind op;
    /* an example: instruction pc of program `program` runs this kernel. n: number of instructions
     * in all programs that run it */
    uint32_t program, n;
    Pc pc;
    Ps known_ps; /* measured time in the store; -1: none */
} KernelNeed;

typedef struct CollectiveNeed {
    OpKind op;
    AxisSet axes;
    uint32_t n_ranks, program, n;
    Pc pc;
    uint64_t bytes; /* size, as plan_comm_bytes counts it */
    DType dtype;
    Ps known_ps; /* measured time at exactly this size; -1: none in the store */
    /* time that the simulator uses, perhaps interpolated between measured sizes; -1: none */
    Ps used_ps;
} CollectiveNeed;

typedef struct Needs {
    LIST(KernelNeed) kernels; /* sorted by key */
    LIST(CollectiveNeed) collectives;
    uint32_t missing_kernels, missing_collectives;
} Needs;

/* Lists the kernels and collectives of `plan`, and looks up their times for `machine` in the store.
 * store NULL: no times are known. backend: the backend on which collectives were measured. */
void needs_find(const Plan *plan, Store *store, const char *machine, const char *backend,
                Arena *arena, Needs *needs, Diag *d);

/* Returns a hash (12 hex digits) of all that a prediction reads besides the plan: the fields of the
 * cluster and of the runtime's profile (field_text), and the measured costs. It is part of a
 * prediction's key. */
const char *calibration_id(const Cluster *cluster, const Runtime *runtime, const Needs *needs,
                           Arena *arena);

#endif
