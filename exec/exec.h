/* Runs a plan on real processors: initialises parameters, runs steps and reports. */
#ifndef TANDEM_EXEC_EXEC_H
#define TANDEM_EXEC_EXEC_H

#include "exec/backend.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/cores.h"

/* A value of trace_step: the middle of the steps that are left after loading a checkpoint. */
#define EXEC_TRACE_MIDDLE UINT32_MAX

typedef struct ExecOptions {
    const char *backend; /* "loopback", "mpi" or "cuda" */
    Backend *made;       /* a backend to be used instead; the run closes it; NULL: none */
    /* the steps of the whole training; after loading a checkpoint, only the remaining steps run */
    uint32_t steps;
    CheckpointOptions checkpoint;
    double lr;
    int64_t warmup_steps, total_steps;
    double min_lr_ratio;
    const DataSource *data;
    /* The step whose trace rows are kept. It must be at least 2 to be steady. If it is larger than
     * `steps`, no rows are kept. EXEC_TRACE_MIDDLE: it is chosen after loading. */
    uint32_t trace_step;
    /* the version of this command, which must be equal on all ranks; may be NULL */
    const char *version;
    BackendOptions backend_options;
    /* called on the first process after each step; may be NULL */
    void (*on_step)(void *self, const StepRow *row, uint64_t tokens);
    /* called on every process after the last step, while the backend is open; may be NULL */
    bool (*at_end)(void *self, Backend *backend, Diag *d);
    void *self;
} ExecOptions;

typedef struct ExecResult {
    /* the rows of trace_step on rank 0, for all ranks, and one StepRow for each step */
    Trace trace;
    uint64_t highest_touched; /* the largest value of all ranks; needs poison or measure */
    uint64_t host_touched;    /* the same for host memory */
    /* the most bytes that the backend uses for a rank outside the arena */
    uint64_t outside_bytes;
    ExpertLoads experts;
    CoreUse cores; /* the core use of all processes during the steps */
    bool is_first; /* this process is the first one, which reports */
    /* the loaded checkpoint and the last saved one; path NULL: none */
    CheckpointInfo loaded, saved;
    uint32_t n_saves;
    Ps save_ps; /* the time of all saves together */
} ExecResult;

/* Runs the plan. Initial values depend only on the seed, the name and the global element, so they
 * are the same for every sharding. Reports not-finite, version-mismatch or plan-mismatch, or an
 * error of the backend. */
bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d);
/* Returns the learning rate of `step`, which counts from 0. It rises linearly to lr over
 * warmup_steps. Then it falls as a cosine to min_lr_ratio * lr at total_steps. With total_steps = 0
 * it stays constant. */
double exec_lr(const ExecOptions *options, int64_t step);

/* A source of samples from a text file. A sample is `seq` consecutive bytes from a random offset
 * on, and its labels are the next bytes. After the last byte the text begins again. Reports
 * data-file. */
DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d);
/* A source of random tokens in [0, vocab) with random labels. A fraction of the labels is -1, which
 * means ignored. For a model without a vocabulary, vocab is 0 and the source gives fields: a wave.
 */
DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena);
/* A source like data_synthetic with missing labels, as in texts of different lengths. Every fourth
 * pair of sequences and every fourth micro-batch has no labels. The first two micro-batches have
 * different numbers of labels, if seq is 2 or more. Fields are independent random numbers. */
DataSource *data_ragged(uint64_t seed, int64_t vocab, Arena *arena);

/* Compares a plan with a one-rank run. `plan` and `reference`, the same model on one rank, run for
 * one step in fp64 on loopback. The loss, the gradient norm, every gradient and every updated
 * parameter are compared on each rank. A difference is max |a - b| / max |b|. For gradients the
 * divisor is at least 1e-4 of the largest gradient, because some gradients are zero apart from
 * rounding.
 *
 * Returns false with verify-mismatch if a difference is too large. Returns false with
 * verify-nothing if the comparison would prove nothing, for example because all gradients are zero.
 */
typedef struct VerifyResult {
    double worst_gradient, worst_parameter, norm_error, loss_error;
    double worst_state; /* the largest difference of the optimizer's moments */
    const char *worst_tensor;
    uint32_t n_tensors; /* the number of trained parameter tensors */
    /* the number of parameters whose gradient is zero in both runs; these prove nothing */
    uint32_t n_unmoved;
    const char *unmoved; /* the name of one of them; NULL: there is none */
    uint64_t highest_touched,
        predicted_bytes;                   /* for the rank on which these two numbers differ most */
    uint64_t host_touched, host_predicted; /* the same for host memory */
    /* of all layers: experts, experts that no token chose, and the most choices of an expert
     * relative to the mean of its layer. 0: the model has no experts */
    uint32_t n_experts, n_empty;
    double busiest;
} VerifyResult;
bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d);

/* Compares a plan in low precision by the sizes of its errors. `plan` and `one_rank` (the same
 * model on one rank, in the same precision) are each compared with `exact` (one rank, fp64). An
 * error is the root mean square of the differences / the root mean square of the exact values. If
 * several ranks hold an element, its largest difference counts. Second moments are compared by
 * their roots, as Adam uses them. The plan passes if error of plan <= times * error of one_rank +
 * 1e-3 with times = 1.5 for the gradient as a whole, the norm and the loss, and 1.5 + 10 / sqrt(n)
 * for the gradient and each moment of a parameter of n elements. (Two computations in one precision
 * have errors of similar size, even if their values are not close.) Updated weights are not judged.
 * Otherwise returns false with verify-mismatch. */
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
    uint64_t highest_touched, predicted_bytes; /* see VerifyResult */
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
enum { ROUNDING_DRAWS = 32 }; /* the most draws */
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
