/* A plan in real time: load, initialise, step, report. Loads nothing but the plan. */
#ifndef TANDEM_EXEC_EXEC_H
#define TANDEM_EXEC_EXEC_H

#include "exec/backend.h"
#include "exec/cores.h"

typedef struct ExecOptions {
    const char *backend; /* "loopback", "mpi" or "cuda" */
    Backend *made;       /* not NULL: this one instead; it is closed all the same */
    uint32_t steps;
    double lr;
    int64_t warmup_steps, total_steps;
    double min_lr_ratio;
    const DataSource *data;
    uint32_t trace_step; /* whose rows to keep; must be steady (>= 2); beyond `steps`: none */
    const char *version; /* of this command; ranks of different versions refuse to run; may be NULL
                          */
    BackendOptions backend_options;
    /* called on the first process after each step; NULL: none */
    void (*on_step)(void *self, const StepRow *row, uint64_t tokens);
    /* called on every process after the last step, before the backend closes; NULL: none */
    bool (*at_end)(void *self, Backend *backend, Diag *d);
    void *self;
} ExecOptions;

typedef struct ExecResult {
    Trace trace;              /* rows of trace_step (mpi: of all ranks on rank 0); all steps */
    uint64_t highest_touched; /* largest over all ranks, with poison or measure */
    uint64_t host_touched;    /* the same of host memory */
    uint64_t outside_bytes;   /* largest over all ranks: what the backend holds outside the arena */
    CoreUse cores;            /* while all steps ran; of all processes */
    bool is_first;            /* this process is the first: it reports */
} ExecResult;

/* Every parameter is initialised from (seed, name, global element), in place, under any sharding.
 * Reports not-finite (with the first bad tensor), version-mismatch, plan-mismatch, and what the
 * backend reports. */
bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d);
/* Learning rate of `step` (from 0): linear warm-up to lr over warmup_steps, then a cosine from lr
 * to min_lr_ratio * lr at total_steps; total_steps 0: constant. */
double exec_lr(const ExecOptions *options, int64_t step);

/* Data: bytes of a text file (or a seeded synthetic stream), any sharding reads the same samples.
 * A sample is `seq` consecutive bytes at a random place, its labels the bytes that follow; the text
 * is a ring. Reports data-file. */
DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d);
/* Tokens in [0, vocab), labels likewise, of which a fraction is -1. */
DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena);
/* The same with labels as padded texts have them: every sequence ends somewhere else, every fourth
 * pair of sequences and every fourth micro-batch has no label at all. The first two micro-batches
 * always have some, and (seq 2 or more) not equally many. */
DataSource *data_ragged(uint64_t seed, int64_t vocab, Arena *arena);

/* The parallel oracle. Runs `plan` and `reference` (the same model on one rank, same micro-steps)
 * for one step in fp64 on loopback and compares, per tensor and on every rank that holds it, every
 * gradient and every updated parameter, the gradient norm and the loss: max |a - b| / max |b|.
 * (Gradients: the divisor is at least 1e-4 of the largest of all gradients, for some are zero but
 * for rounding.) False with verify-mismatch (FAULT_threshold) beyond the tolerance, and with
 * verify-nothing where the comparison would say nothing: the reference has no gradient but zeros,
 * or holds no gradient or value of some parameter. */
typedef struct VerifyResult {
    double worst_gradient, worst_parameter, norm_error, loss_error;
    double worst_state; /* of the optimizer's moments */
    const char *worst_tensor;
    uint32_t n_tensors;
    uint32_t n_unmoved;  /* whose gradient is zero throughout: equal, and no proof of anything */
    const char *unmoved; /* one of them; NULL */
    uint64_t highest_touched, predicted_bytes; /* of the rank where they differ most */
    uint64_t host_touched, host_predicted;     /* the same of host memory */
} VerifyResult;
bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d);

/* The same for a plan in low precision, by its errors: `plan` and `one_rank` (the same model on one
 * rank, in the same precision) are each compared with `exact` (one rank, fp64). An error is the
 * root of the mean square of the differences, relative to that of the exact values; of an element
 * that several ranks hold, the largest difference counts, and second moments count by their
 * roots, as Adam uses them. Holds if
 *   error of plan <= times * error of one_rank + 1e-3
 * with 1.5 times for the gradient as a whole, the norm and the loss, and 1.5 + 10 / sqrt(n) times
 * for the gradient and each moment of a parameter of n elements (for what is computed in one
 * precision more or less by chance has errors of like size; values themselves need not be close).
 * Updated weights are not judged. Else false, with verify-mismatch. */
#define ROUNDING_TIMES 1.5
typedef struct RoundingResult {
    double worst_excess; /* largest of error of plan / bound; at most 1 if it holds */
    double worst_error, its_one_rank_error; /* of that tensor */
    double largest_error;                   /* of the plan, of all */
    const char *worst_tensor;               /* "gradient of ..." */
    double gradient, gradient_of_one_rank;  /* errors of the gradient as a whole */
    uint32_t n_tensors;
    uint64_t highest_touched, predicted_bytes; /* as in VerifyResult */
} RoundingResult;
bool exec_verify_rounding(const Plan *plan, const Plan *one_rank, const Plan *exact,
                          const DataSource *data, const BackendOptions *options, Arena *arena,
                          RoundingResult *result, Diag *d);
/* The same of a plan of one rank that another backend runs, which is closed; NULL: loopback. */
bool exec_verify_rounding_on(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             Diag *d);

#endif
