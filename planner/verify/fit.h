/* The proof that a plan fits, with advice for a plan whose settings are known. */
#ifndef TANDEM_VERIFY_FIT_H
#define TANDEM_VERIFY_FIT_H

#include "planner/verify/verify.h"

/* Settings that save memory and that the plan does not have yet, as "a, b, or c". */
typedef struct FitAdvice {
    const char *state;  /* memory that lives between steps; "": none but more ranks */
    const char *within; /* memory used within a step */
} FitAdvice;
/* Like verify_fit, whose hint may name settings that the plan has. */
bool verify_fit_advising(const Plan *plan, const Capacity *c, const FitAdvice *advice, Diag *d);

#endif
