/* Plans that every proof must accept: one for each mesh and for each option that changes the
 * communications. The mutation test (tests/exec/test_mutants.c) makes one change at a time in
 * them. */
#ifndef TANDEM_TESTS_CORPUS_H
#define TANDEM_TESTS_CORPUS_H

#include "tests/support/plans/tiny.h"

/* Calls `visit` for each plan of the corpus. `self` is passed on to it. */
void corpus_each(void (*visit)(void *self, const Tiny *t), void *self);
/* Calls `visit` only for members whose feed-forward is a mixture of experts. */
void corpus_experts(void (*visit)(void *self, const Tiny *t), void *self);
/* Calls `visit` only for members that split sequences over cp. */
void corpus_context(void (*visit)(void *self, const Tiny *t), void *self);
/* Calls `visit` only for members in which some parameters are not trained. */
void corpus_frozen(void (*visit)(void *self, const Tiny *t), void *self);
/* Returns a name such as "llama dp_shard 2 tp 2 sequence ac full ...". */
const char *corpus_name(const Tiny *t, Arena *arena);

#endif
