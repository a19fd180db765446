/* Inputs of expert ops that cannot be random numbers: the experts that each token chose, and the
 * tokens' slots. */
#ifndef TANDEM_TESTS_SUPPORT_CHOICES_H
#define TANDEM_TESTS_SUPPORT_CHOICES_H

#include "tests/support/ops/eval.h"

/* If argument `arg` of `op` holds ids of experts or slots, fills v [b,s,K] with valid values for
 * attrs.experts and attrs.capacity, and returns true. The ids of a token differ, the slots of a
 * sequence differ, and every fourth choice has no slot. */
bool choices_fill(OpKind op, uint32_t arg, const Attrs *attrs, Value *v);

/* ---- experts that drop no token (planner/ir/layout/rows.h) ---- */
/* The number of rooms for rows that an expert has in addition to one for each token of a sequence,
 * so that some rooms stay empty. */
enum { CHOICES_SPARE = 2 };
/* Returns true if the argument consists of uneven rows. Tests give such an argument memory for all
 * rooms. */
bool choices_are_rows(OpKind op, uint32_t arg);
/* choices_rooms moves each row to its room and fills the other rooms with zeros. choices_rows moves
 * the rows back. */
Value choices_rooms(Arena *arena, const Value *rows, const Value *counts);
Value choices_rows(Arena *arena, const Value *rooms, const Value *counts);

#endif
