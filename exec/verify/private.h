/* What the two ways of judging a plan against one rank share: values of the reference, tensor by
 * tensor, and how far what the plan's ranks hold is from them. */
#ifndef TANDEM_EXEC_VERIFY_PRIVATE_H
#define TANDEM_EXEC_VERIFY_PRIVATE_H

#include "exec/exec.h"

/* What one run left behind, by tensor of its graph. */
typedef struct Side {
    const Plan *plan;
    Backend *made, *backend; /* made: runs it instead of loopback; NULL: none */
    double loss, norm;
} Side;

typedef enum Kind {
    KIND_gradient,
    KIND_parameter,
    KIND_first_moment,
    KIND_second_moment,
    KINDS
} Kind;

/* Values of the reference, whole; what the plan's ranks hold is compared with it piece by piece. */
typedef struct Values {
    double *at;
    bool *seen;
    double *apart; /* largest difference of each element; NULL: nobody asks */
    bool there;    /* the reference has them */
    double max;    /* of the reference */
    double error;  /* largest difference */
    Rank rank;     /* on which rank */
} Values;
typedef struct Whole {
    const char *name; /* NULL: no parameter */
    uint64_t n;
    Values of[KINDS];
} Whole;

typedef struct Verify {
    Side plan, reference;
    Arena *arena, *scratch;
    VerifyResult *result;
    double tolerance;
    bool rounding; /* keep what is apart; second moments by their roots, as Adam uses them */
    Diag *d;
    Whole *whole; /* [tensor of the reference's graph] */
    TensorId *twin;
} Verify;

/* Divisor of a gradient's error, as a part of the largest gradient of all: some gradients (a bias
 * of attention keys) are zero but for rounding. Of a second moment, its square. */
#define GRADIENT_FLOOR 1e-4

/* Of the one step that is compared. */
#define VERIFY_LR 1e-3

extern const char *const verify_kinds[KINDS];

/* Runs the reference, then the plan, and compares; judges nothing. `v` has the plans, arena, result
 * and diagnostics. */
bool verify_measure(Verify *v, const DataSource *data, const BackendOptions *options);
/* The reference has what is to be compared, and not only zeros; reports "verify-nothing". */
bool verify_says_something(const Verify *v);
/* Somebody holds each element. */
bool verify_seen(const Verify *v, const Whole *w);
/* |a - b| / |b|; 0 for equal, also for two zeros. */
double verify_relative(double a, double b);

#endif
