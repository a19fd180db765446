/* A plan in real time: load, initialise, step, report. Loads nothing but the plan. */
#ifndef TANDEM_EXEC_EXEC_H
#define TANDEM_EXEC_EXEC_H

#include "exec/backend.h"

typedef struct ExecOptions {
    const char *backend; /* "loopback" or "mpi" */
    uint32_t steps;
    double lr;
    int64_t warmup_steps, total_steps;
    double min_lr_ratio;
    const DataSource *data;
    uint32_t trace_step; /* whose rows to keep; must be steady (>= 2) */
    BackendOptions backend_options;
    /* called on the first process after each step; NULL: none */
    void (*on_step)(void *self, const StepRow *row, uint64_t tokens);
    void *self;
} ExecOptions;

typedef struct ExecResult {
    Trace trace;              /* rows of the local ranks (mpi: gathered on rank 0), all steps */
    uint64_t highest_touched; /* largest over local ranks, with poison */
    uint64_t allocations;     /* calls of malloc and kin during steps, where counted */
} ExecResult;

/* Every parameter is initialised from (seed, name, global element), in place, under any sharding.
 */
bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d);
double exec_lr(const ExecOptions *options, int64_t step);

/* Data: bytes of a text file (or a seeded synthetic stream), any sharding reads the same samples.
 */
DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d);
DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena);

/* The parallel oracle. Runs `plan` and `reference` (the same model on one rank, same micro-steps)
 * for one step in fp64 on loopback and compares, per tensor, every gradient and every updated
 * parameter, and the gradient norm: max |a - b| / max |b|. */
typedef struct VerifyResult {
    double worst_gradient, worst_parameter, norm_error, loss_error;
    const char *worst_tensor;
    uint32_t n_tensors;
    uint64_t highest_touched, predicted_bytes; /* of the worst rank */
} VerifyResult;
bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d);

#endif
