/* Declarations that both ways of comparing a plan with one rank use: the values of each tensor in
 * the reference run, and the differences between these and the values on the plan's ranks. */
#ifndef TANDEM_EXEC_VERIFY_PRIVATE_H
#define TANDEM_EXEC_VERIFY_PRIVATE_H

#include "exec/exec.h"

/* One of the two runs that are compared. */
typedef struct Side {
    const Plan *plan;
    Backend *made, *backend; /* made: the backend that runs the plan; NULL: loopback */
    double loss, norm;
} Side;

typedef enum Kind {
    KIND_gradient,
    KIND_parameter,
    KIND_first_moment,
    KIND_second_moment,
    KINDS
} Kind;

/* The values of one kind of a whole tensor in the reference run, and the largest difference between
 * them and the values on the plan's ranks. */
typedef struct ComparedValues {
    double *at;
    bool *seen;
    double *difference; /* [element]: largest difference over the ranks; NULL: not recorded */
    bool there;         /* the reference has these values */
    double max;         /* largest magnitude in the reference */
    double error;       /* largest difference */
    Rank rank;          /* the rank with the largest difference */
} ComparedValues;
/* All values of one tensor of the reference. */
typedef struct Whole {
    const char *name; /* NULL: the tensor is not a parameter */
    uint64_t n;
    ComparedValues of[KINDS];
} Whole;

typedef struct Verify {
    Side plan, reference;
    Arena *arena, *scratch;
    VerifyResult *result;
    double tolerance;
    bool rounding; /* true: record `difference`, and compare second moments by their square roots,
                      as Adam uses them */
    Diag *d;
    Whole *whole; /* [tensor of the reference's graph] */
    TensorId *twin;
} Verify;

/* One compared quantity (such as "gradient of wq.weight") on one draw of data. */
typedef struct RoundingError {
    const char *what;
    double plan, one_rank; /* errors of the plan and of one rank, relative to the run in fp64 */
    double times, more;    /* bound of the plan's error: times * one_rank + more */
    double excess;         /* error of the plan divided by its bound */
} RoundingError;
typedef LIST(RoundingError) RoundingErrors;

/* Runs the three plans of exec_verify_rounding_on and lists the errors, without judging them. The
 * list has the same quantities in the same order for all data. Returns false after diagnostics if a
 * run fails or nothing can be compared. */
bool verify_rounding_measure(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             RoundingErrors *errors, Diag *d);
/* Reports that `e` exceeds its bound, and adds `more` to the message. Returns false. */
bool verify_rounding_report(const RoundingError *e, const char *more, Diag *d);

/* Smallest divisor of a gradient's error, as a fraction of the largest gradient of all tensors. It
 * is needed because some gradients, such as that of a bias of attention keys, consist only of
 * rounding errors. For second moments, the square of this fraction is used. */
#define GRADIENT_FLOOR 1e-4

/* Learning rate of the step that is compared. */
#define VERIFY_LR 1e-3

extern const char *const verify_kinds[KINDS];

/* Runs the reference, then the plan, and records the differences without judging them. Before the
 * call, the plans, arena, result and diagnostics in `v` must be set. */
bool verify_measure(Verify *v, const DataSource *data, const BackendOptions *options);
/* Checks that the reference has all values, and that not all its gradients are zero. If not,
 * reports verify-nothing and returns false. */
bool verify_says_something(const Verify *v);
/* Returns true if each element is on at least one rank. */
bool verify_seen(const Verify *v, const Whole *w);
/* Returns |a - b| / |b|; 0 if a and b are equal, also if both are zero. */
double verify_relative(double a, double b);

#endif
