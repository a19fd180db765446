/* Runs a plan on real processors: initialises parameters, runs steps, and reports results. */
#ifndef TANDEM_EXEC_EXEC_H
#define TANDEM_EXEC_EXEC_H

#include "exec/backend.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/cores.h"

/* A value of trace_step: the middle one of the steps of this run, or the last one if there are at
 * most four. */
#define EXEC_TRACE_MIDDLE UINT32_MAX

typedef struct ExecOptions {
    const char *backend; /* name: "loopback", "mpi" or "cuda" */
    Backend *made;       /* backend to use instead of the one with that name; the run closes it;
                            NULL: none */
    /* number of steps of the whole training; if a checkpoint is loaded, only the remaining steps
     * run */
    uint32_t steps;
    CheckpointOptions checkpoint;
    double lr;
    int64_t warmup_steps, total_steps;
    double min_lr_ratio;
    const DataSource *data;
    /* index of the step (from 0) whose trace rows are kept. It should be at least 2, because the
     * first steps are slower than the others. If it is larger than `steps`, no rows are kept. */
    uint32_t trace_step;
    /* version of this command, which must be equal on all ranks; may be NULL */
    const char *version;
    BackendOptions backend_options;
    /* called on the first process after each step; may be NULL */
    void (*on_step)(void *self, const StepRow *row, uint64_t tokens);
    /* called on every process after the last step, while the backend is open; may be NULL */
    bool (*at_end)(void *self, Backend *backend, Diag *d);
    void *self;
} ExecOptions;

typedef struct ExecResult {
    /* the trace rows of trace_step for all ranks (only on rank 0), and one StepRow for each step */
    Trace trace;
    uint64_t highest_touched; /* end of the highest byte written in an arena, maximum over all
                                 ranks; needs the option poison or measure */
    uint64_t host_touched;    /* the same for the arenas in host memory */
    /* bytes that the backend uses outside of the arena, maximum over all ranks */
    uint64_t outside_bytes;
    ExpertLoads experts;
    CoreUse cores; /* how all processes together used the cores during the steps */
    bool is_first; /* true on the first process, which reports results */
    /* the checkpoint that was loaded, and the last one that was saved; path NULL: none */
    CheckpointInfo loaded, saved;
    uint32_t n_saves;
    Ps save_ps; /* time of all saves together, in picoseconds */
} ExecResult;

/* Runs the plan. The initial value of an element depends only on the seed, the tensor's name and
 * the element's index in the whole tensor. So it is the same for every way of splitting the tensor.
 * Reports not-finite, version-mismatch, plan-mismatch, or an error of the backend. */
bool exec_run(const Plan *plan, const ExecOptions *options, Arena *arena, ExecResult *result,
              Diag *d);
/* Returns the learning rate of `step`, counted from 0. It rises linearly to lr over warmup_steps
 * steps, then falls as a cosine to min_lr_ratio * lr at step total_steps. If total_steps is 0, it
 * stays at lr after the rise. */
double exec_lr(const ExecOptions *options, int64_t step);

/* Makes a data source from a text file. A sample is `seq` consecutive bytes from a random position
 * on; its labels are the bytes that follow each of them. After its last byte, the text starts
 * again. Reports data-file. */
DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d);
/* Makes a data source of random tokens from 0 to vocab - 1 with random labels. The given fraction
 * of the labels is -1, which means that the token is ignored. For a model without a vocabulary,
 * vocab is 0, and the source gives fields with a smooth wave. */
DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena);
/* Makes a data source like data_synthetic, but with missing labels, as in texts of different
 * lengths. Every fourth pair of sequences and every fourth micro-batch has no labels. The first two
 * micro-batches have different numbers of labels if seq is at least 2. Fields consist of
 * independent random numbers. */
DataSource *data_ragged(uint64_t seed, int64_t vocab, Arena *arena);

/* Compares a plan with a run of the same model on one rank (`reference`). Both run one step in fp64
 * on the loopback backend. On each rank, the comparison covers the loss, the norm of the gradients,
 * every gradient and every updated parameter. A difference is max |a - b| / max |b|. For a
 * gradient, the divisor is at least 1e-4 times the largest gradient, because some gradients consist
 * only of rounding errors.
 *
 * Returns false with verify-mismatch if a difference is larger than `tolerance`. Returns false with
 * verify-nothing if the comparison would prove nothing, for example because all gradients are zero.
 */
typedef struct VerifyResult {
    double worst_gradient, worst_parameter, norm_error, loss_error;
    double worst_state; /* largest difference of the optimizer's moments */
    const char *worst_tensor;
    uint32_t n_tensors; /* number of trained parameter tensors */
    /* number of parameters whose gradient is zero in both runs, so that comparing them proves
     * nothing */
    uint32_t n_unmoved;
    const char *unmoved; /* name of one of them; NULL: there is none */
    uint64_t highest_touched,
        predicted_bytes;                   /* of the rank for which these two numbers differ most */
    uint64_t host_touched, host_predicted; /* the same for the arenas in host memory */
    /* n_experts: experts of all layers; n_empty: how many of them no token chose; busiest: most
     * choices of an expert, divided by the mean of its layer. All are 0 if the model has no
     * experts */
    uint32_t n_experts, n_empty;
    double busiest;
} VerifyResult;
bool exec_verify(const Plan *plan, const Plan *reference, const DataSource *data,
                 const BackendOptions *options, double tolerance, Arena *arena,
                 VerifyResult *result, Diag *d);

/* Compares a plan in low precision by the sizes of its errors. `one_rank` is the same model on one
 * rank in the same precision, and `exact` is the same model on one rank in fp64. The plan and
 * `one_rank` are each compared with `exact`. An error is the root mean square of the differences
 * divided by the root mean square of the exact values. If several ranks hold an element, its
 * largest difference counts. Second moments are compared by their square roots, as Adam uses them.
 * The plan passes if error of plan <= times * error of one_rank + 1e-3. `times` is 1.5 for the
 * gradient as a whole, the norm and the loss. It is 1.5 + 10 / sqrt(n) for the gradient and each
 * moment of a parameter with n elements. (Two computations in one precision have errors of similar
 * size, even if their values are not close.) Updated weights are not judged. If the plan does not
 * pass, returns false with verify-mismatch. */
#define ROUNDING_TIMES 1.5
typedef struct RoundingResult {
    double worst_excess; /* largest ratio of an error of the plan to its bound; at most 1 if the
                            plan passes */
    /* for worst_tensor: error of the plan, and error of `one_rank` */
    double worst_error, its_one_rank_error;
    double largest_error;                  /* largest error of the plan over all tensors */
    const char *worst_tensor;              /* such as "gradient of ..." */
    double gradient, gradient_of_one_rank; /* errors of the gradient as a whole: of the plan, and of
                                              `one_rank` */
    uint32_t n_tensors;
    uint64_t highest_touched, predicted_bytes; /* see VerifyResult */
    uint32_t draws; /* how many data sets were drawn; the other fields belong to the draw with the
                       median result. 0: the given data were used */
} RoundingResult;
bool exec_verify_rounding(const Plan *plan, const Plan *one_rank, const Plan *exact,
                          const DataSource *data, const BackendOptions *options, Arena *arena,
                          RoundingResult *result, Diag *d);
/* Repeats the comparison of exec_verify_rounding with other random data until the verdict is clear
 * (draws.c). The seeds of the draws count up from the plan's seed. How much rounding affects a
 * gradient depends on the data. On one draw, a correct plan may have twice the error of one rank,
 * because the two add in different orders. A plan that rounds once too often has a larger error on
 * nearly every draw. A correct plan is refused with a probability of at most ROUNDING_ALARM.
 * `result` describes the draw with the median result. */
enum { ROUNDING_DRAWS = 32 }; /* largest number of draws */
#define ROUNDING_ALARM 1e-4
bool exec_verify_rounding_draws(const Plan *plan, const Plan *one_rank, const Plan *exact,
                                const BackendOptions *options, Arena *arena, RoundingResult *result,
                                Diag *d);
/* Does the same as exec_verify_rounding for a plan on one rank, which runs on the backend `made`;
 * NULL: loopback. Closes this backend. */
bool exec_verify_rounding_on(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             Diag *d);

#endif
