/* A copy of a plan, in which a test plants a mistake. */
#ifndef TANDEM_TESTS_SUPPORT_SUSPECT_H
#define TANDEM_TESTS_SUPPORT_SUSPECT_H

#include "tests/support/plans/tiny.h"

typedef struct Suspect {
    Arena *arena; /* owns the plan; the test frees it */
    Plan *plan;
    Program *p; /* the first program */
} Suspect;

/* Makes a small plan and copies it. A plan that cannot be made fails the test. */
Suspect suspect_of(const Tiny *t);
/* Proves the plan. Returns the reports of the proofs; "": they hold. */
const char *suspect_verdict(const Suspect *s);
/* Fails the test unless a report contains `says`. */
void suspect_is_refused(const Suspect *s, const char *says);

#endif
