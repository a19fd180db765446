/* Which global elements of which parameters lie where in a rank's part of a flat unit. */
#ifndef TANDEM_EXEC_FLAT_H
#define TANDEM_EXEC_FLAT_H

#include "planner/ir/plan.h"

/* `n` consecutive elements, along the last dimension of tensor t: row-major index `global` in the
 * whole tensor, `at` in the rank's buffer. */
typedef struct FlatRun {
    TensorId tensor;
    uint64_t global, at, n;
} FlatRun;

/* Calls `run` for every real (not padding) element of the unit that buffer `b`, a flat root, holds
 * on `rank`: the whole unit, or the part that the buffer's layout cuts. */
void flat_each(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch,
               void (*run)(void *self, const FlatRun *run), void *self);

/* Writes initial values into a parameter buffer. `at`: its memory on `rank`. */
void flat_init(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch, void *at);

/* A flat root that lives between steps, or until the end of one, of a unit. */
bool flat_is_home(const Buffer *b);

#endif
