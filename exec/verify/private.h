/* Shared by the two ways of comparing a plan with one rank: the values of each tensor in the
 * reference, and the differences from the values on the plan's ranks. */
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

/* A whole tensor of the reference. The parts on the plan's ranks are compared with it. */
typedef struct ComparedValues {
    double *at;
    bool *seen;
    double *apart; /* [element] the largest difference over the ranks; NULL: not wanted */
    bool there;    /* the reference has these values */
    double max;    /* largest magnitude in the reference */
    double error;  /* largest difference */
    Rank rank;     /* the rank with that difference */
} ComparedValues;
typedef struct Whole {
    const char *name; /* NULL: it is not a parameter */
    uint64_t n;
    ComparedValues of[KINDS];
} Whole;

typedef struct Verify {
    Side plan, reference;
    Arena *arena, *scratch;
    VerifyResult *result;
    double tolerance;
    bool rounding; /* keep `apart`; compare second moments by their roots, as Adam uses them */
    Diag *d;
    Whole *whole; /* [tensor of the reference's graph] */
    TensorId *twin;
} Verify;

/* One compared quantity on one draw of data, such as "gradient of wq.weight". */
typedef struct RoundingError {
    const char *what;
    double plan, one_rank; /* errors of the two, relative to fp64 */
    double times, more;    /* the bound of the plan's error: times * one_rank + more */
    double excess;         /* the plan's error / its bound */
} RoundingError;
typedef LIST(RoundingError) RoundingErrors;

/* Runs the three plans of exec_verify_rounding_on and lists the errors, but does not judge them.
 * The quantities and their order do not depend on the data. Returns false after diagnostics if a
 * run fails or nothing can be compared. */
bool verify_rounding_measure(Backend *made, const Plan *plan, const Plan *one_rank,
                             const Plan *exact, const DataSource *data,
                             const BackendOptions *options, Arena *arena, RoundingResult *result,
                             RoundingErrors *errors, Diag *d);
/* Reports that `e` exceeds its bound; `more` is added to the message. */
bool verify_rounding_report(const RoundingError *e, const char *more, Diag *d);

/* Lower limit of the divisor of a gradient's error, as a fraction of the largest gradient of all
 * tensors. Some gradients are zero apart from rounding, such as the gradient of a bias of attention
 * keys. For second moments the limit is the square. */
#define GRADIENT_FLOOR 1e-4

/* The learning rate of the step that is compared. */
#define VERIFY_LR 1e-3

extern const char *const verify_kinds[KINDS];

/* Runs the reference, then the plan, and records the differences; does not judge them. The caller
 * sets the plans, arena, result and diagnostics in `v`. */
bool verify_measure(Verify *v, const DataSource *data, const BackendOptions *options);
/* Checks that the reference has all values, and that not all its gradients are zero. Otherwise
 * reports "verify-nothing" and returns false. */
bool verify_says_something(const Verify *v);
/* True if every element is held by at least one rank. */
bool verify_seen(const Verify *v, const Whole *w);
/* Returns |a - b| / |b|; 0 if they are equal, also for two zeros. */
double verify_relative(double a, double b);

#endif
