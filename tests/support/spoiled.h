/* Valid plans that a test makes wrong, to check that the verifier finds the error. */
#ifndef TANDEM_TESTS_SPOILED_H
#define TANDEM_TESTS_SPOILED_H

#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

typedef struct Spoiled {
    Arena *arena; /* It is freed after the verdict. */
    Plan *plan;   /* The test may overwrite all of it. */
    Program *p;   /* It is the plan's first program. */
    Diag d;
} Spoiled;

Spoiled spoiled_of(const Tiny *t, bool fp64);
/* Both return valid plans with two data ranks (sharded or replicated) x tp 2, and three
 * micro-batches. */
Spoiled spoiled_sharded(void);
Spoiled spoiled_replicated(void);

/* Returns the first instruction with this op, stream, phase and micro-batch. Ends the test if there
 * is none. */
Pc spoiled_find(const Spoiled *s, OpKind op, Stream stream, Phase phase, uint32_t mb);
void spoil(Spoiled *s, MutationKind kind, Pc pc, uint32_t choice);
Attrs spoiled_attrs(const Spoiled *s, Pc pc);
void spoil_attrs(Spoiled *s, Pc pc, Attrs a);

/* Asserts that some report has this rule, contains `text`, and blames the plan instead of its
 * user. */
void spoiled_rejected(Spoiled *s, const char *rule, const char *text);
void spoiled_accepted(Spoiled *s);

#endif
