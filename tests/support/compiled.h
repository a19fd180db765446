/* Compiles tiny models for tests of passes. */
#ifndef TANDEM_TESTS_COMPILED_H
#define TANDEM_TESTS_COMPILED_H

#include "tests/support/plans/tiny.h"

/* Setup and teardown for cmocka: they create and free the arena of each test. */
int compile_setup(void **state);
int compile_teardown(void **state);
Arena *compile_arena(void);
Diag *compile_diag(void);

/* Compiles a tiny model. Ends the test if a pass refuses the model. */
Plan *compile(const Tiny *t);
/* Compiles a config that the passes must refuse, and returns their first error. compile_diag has
 * all errors. */
const Diagnostic *compile_refused(const Tiny *t, void (*change)(Config *));

typedef struct CommCount {
    uint32_t n;
    uint64_t bytes;
} CommCount;
/* Returns the number of collectives of one op on one axis name, outside the update, in program 0,
 * and their bytes. */
CommCount comm_count(const Plan *plan, OpKind op, AxisName axis);
uint64_t padded_elements(const Plan *plan); /* the sum over all units */

#endif
