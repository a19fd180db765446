/* Inputs of the mixture-of-experts ops that are no numbers: which experts a token chose, and which
 * slots it has. */
#ifndef TANDEM_TESTS_SUPPORT_CHOICES_H
#define TANDEM_TESTS_SUPPORT_CHOICES_H

#include "tests/support/eval.h"

/* Does argument `arg` of `op` hold ids of experts, or slots? Then fills v [b,s,K] with such, by
 * attrs.experts and attrs.capacity: the ids of a token differ, the slots of a sequence too, and
 * every fourth choice has none. */
bool choices_fill(OpKind op, uint32_t arg, const Attrs *attrs, Value *v);

#endif
