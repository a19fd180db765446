/* Runs a plan in real time: initialises parameters, runs steps, reports. Loads nothing but the
 * plan. */
#ifndef TANDEM_EXEC_EXEC_H
#define TANDEM_EXEC_EXEC_H

#include "exec/backend.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/cores.h"

/* As trace_step: a step in the middle of the steps that are left after loading. */
#define EXEC_TRACE_MIDDLE UINT32_MAX

typedef struct ExecOptions {
    const char *backend; /* "loopback", "mpi" or "cuda" */
    Backend *made;       /* if not NULL, this backend is used instead; the run closes it */
    /* the number of steps of the training; a run that loads a checkpoint does those that are left
     */
    uint32_t steps;
    CheckpointOptions checkpoint;
    double lr;
    int64_t warmup_steps, total_steps;
    double min_lr_ratio;
    const DataSource *data;
    /* the step whose rows are kept, at least 2, so that it is steady; beyond `steps`: none;
     * EXEC_TRACE_MIDDLE: chosen after loading */
    uint32_t trace_step;
    /* version of this command; ranks with different versions refuse to run; may be NULL */
    const char *version;
    BackendOptions backend_options;
    /* called on the first process after each step; NULL: none */
    void (*on_step)(void *self, const StepRow *row, uint64_t tokens);
    /* called on every process after the last step, before the backend closes; NULL: none */
    bool (*at_end)(void *self, Backend *backend, Diag *d);
    void *self;
} ExecOptions;

typedef struct ExecResult {
    Trace trace; /* rows of trace_step (mpi: of all ranks, on rank 0), and a StepRow of each step */
    uint64_t highest_touched; /* the largest value of all ranks, with poison or measure */
    uint64_t host_touched;    /* the same for host memory */
    /* bytes that the backend holds outside the arena: the largest number of all ranks */
    uint64_t outside_bytes;
    ExpertLoads experts;
    CoreUse cores;                /* core use of all processes while the steps ran */
    bool is_first;                /* this process is the first, which reports */
    CheckpointInfo loaded, saved; /* path NULL: none; the last one saved */
    uint32_t n_saves;
    Ps save_ps; /* time of all saves */
} ExecResult;

/* Runs the plan. Every parameter is initialised in place from (seed, name, global element),
 * under any sharding. Reports not-finite (with the first bad tensor), version-mismatch,
 * plan-mismatch, and the backend's own errors. */
bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d);
/* Learning rate of `step` (from 0): linear warm-up to lr over warmup_steps, then a cosine from lr
 * to min_lr_ratio * lr at total_steps; total_steps 0: constant. */
double exec_lr(const ExecOptions *options, int64_t step);

/* A source that reads samples from the bytes of a text file; every sharding reads the same samples.
 * A sample is `seq` consecutive bytes at a random place. Its labels are the bytes shifted by one.
 * The text is read as a ring: its first byte follows its last. Reports data-file. */
DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d);
/* A seeded synthetic source: tokens in [0, vocab), and labels in the same range, except a fraction
 * that is -1 (ignored). A model without a vocabulary (0) reads fields: a travelling wave. */
DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena);
/* A seeded source like data_synthetic, in which labels are missing as in padded texts. Every
 * sequence ends at a different place. Every fourth pair of sequences and every fourth micro-batch
 * has no label. The first two micro-batches always have labels, and (seq 2 or more) different
 * numbers of them. Fields are independent random numbers. */
DataSource *data_ragged(uint64_t seed, int64_t vocab, Arena *arena);

/* The oracle for parallelism. Runs `plan` and `reference` (the same model on one rank, same
 * micro-steps) for one step in fp64 on loopback. Compares the loss, the gradient norm, and every
 * gradient and updated parameter of every tensor on every rank that holds it: max |a - b| / max
 * |b|. For gradients the divisor is at least 1e-4 of the largest gradient of all tensors, because
 * some gradients are zero apart from rounding. If a difference exceeds the tolerance, returns false
 * with verify-mismatch (FAULT_threshold). Returns false with verify-nothing if the comparison would
 * prove nothing: all gradients of the reference are zero, or the reference lacks a gradient or
 * value of some parameter. */
typedef struct VerifyResult {
    double worst_gradient, worst_parameter, norm_error, loss_error;
    double worst_state; /* error of the optimizer's moments */
    const char *worst_tensor;
    uint32_t n_tensors; /* parameters that are trained */
    /* parameters whose gradient is zero everywhere in both runs; such a parameter proves nothing */
    uint32_t n_unmoved;
    const char *unmoved; /* name of one such parameter; NULL: none */
    uint64_t highest_touched,
        predicted_bytes; /* bytes of the rank on which these two numbers differ most */
    uint64_t host_touched, host_predicted; /* the same for host memory */
} VerifyResult;
bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d);

/* Compares a plan in low precision by the sizes of its errors. `plan` and `one_rank` (the same
 * model on one rank, in the same precision) are each compared with `exact` (one rank, fp64). An
 * error is the root mean square of the differences / the root mean square of the exact values. If
 * several ranks hold an element, its largest difference counts. Second moments are compared by
 * their roots, as Adam uses them. The plan passes if
 *   error of plan <= times * error of one_rank + 1e-3
 * with times = 1.5 for the gradient as a whole, the norm and the loss, and 1.5 + 10 / sqrt(n) for
 * the gradient and each moment of a parameter of n elements. (By chance, errors of computations in
 * one precision have similar sizes, while the values need not be close.) Updated weights are not
 * judged. Otherwise returns false with verify-mismatch. */
#define ROUNDING_TIMES 1.5
typedef struct RoundingResult {
    double worst_excess; /* the largest quotient of an error of the plan and its bound; at most 1 if
                            the comparison succeeds */
    /* for worst_tensor: the plan's error, and one rank's error */
    double worst_error, its_one_rank_error;
    double largest_error;                  /* largest error of the plan over all tensors */
    const char *worst_tensor;              /* "gradient of ..." */
    double gradient, gradient_of_one_rank; /* errors of the gradient as a whole */
    uint32_t n_tensors;
    uint64_t highest_touched, predicted_bytes; /* as in VerifyResult */
    uint32_t draws; /* The number of times that data were drawn. The other fields are of the median
                     * draw. 0: nothing was drawn, and the given data were used */
} RoundingResult;
bool exec_verify_rounding(const Plan *plan, const Plan *one_rank, const Plan *exact,
                          const DataSource *data, const BackendOptions *options, Arena *arena,
                          RoundingResult *result, Diag *d);
/* Does the comparison of exec_verify_rounding on one draw of data after another, until the verdict
 * is clear (draws.c). Seeds of the draws begin at the plan's seed. The effect of rounding on a
 * gradient depends on the data. On one draw, a legal plan may have twice the error of one rank,
 * because the plan and the rank sum in different orders. A plan that rounds once too often has a
 * larger error on nearly every draw. The chance that a legal plan is refused is at most
 * ROUNDING_ALARM. `result` describes the median draw. */
enum { ROUNDING_DRAWS = 32 }; /* at most */
#define ROUNDING_ALARM 1e-4
bool exec_verify_rounding_draws(const Plan *plan, const Plan *one_rank, const Plan *exact,
                                const BackendOptions *options, Arena *arena, RoundingResult *result,
                                Diag *d);
/* Does the work of exec_verify_rounding for a plan of one rank on the backend `made`, which it
 * closes; NULL: loopback. */
bool exec_verify_rounding_on(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             Diag *d);

#endif
