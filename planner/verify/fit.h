/* The proof that a plan fits, with advice for a plan whose settings are known. */
#ifndef TANDEM_VERIFY_FIT_H
#define TANDEM_VERIFY_FIT_H

#include "planner/verify/verify.h"

/* Settings that would save memory and that the plan does not use yet, as text: "a, b, or c". */
typedef struct FitAdvice {
    const char *state;  /* settings that save memory between steps; "": only more ranks would help
                         */
    const char *within; /* settings that save memory within a step */
} FitAdvice;
/* Does the work of verify_fit, with a hint that names only settings of `advice`. */
bool verify_fit_advising(const Plan *plan, const Capacity *c, const FitAdvice *advice, Diag *d);

#endif
