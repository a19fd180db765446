/* Finds which elements of parameters a rank has in the flat buffer of a unit. A unit is a group of
 * parameters that lie one after the other in one buffer, as in FSDP (planner/ir/graph.h). */
#ifndef TANDEM_EXEC_FLAT_H
#define TANDEM_EXEC_FLAT_H

#include "planner/ir/plan.h"

/* `n` elements that are neighbours along the last dimension of a tensor. `global` is the row-major
 * index of the first one in the whole tensor, `at` its index in the rank's buffer. */
typedef struct FlatRun {
    TensorId tensor;
    uint64_t global, at, n;
} FlatRun;

/* Calls `run` for all elements that buffer `b` has on `rank`, except padding. The buffer holds a
 * whole unit, or the rank's part of it. */
void flat_each(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch,
               void (*run)(void *self, const FlatRun *run), void *self);

/* Returns the dtype of the weights between steps. Copies in other dtypes hold values that were
 * rounded to this dtype first. */
DType flat_rest_dtype(const Program *p, BufferId b);
/* Writes the initial values of parameters to a buffer. `at` is the buffer's memory on `rank`. */
void flat_init(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch, void *at);

/* Returns true if `b` is the flat buffer of a unit and keeps its values at least until the end of
 * the step. */
bool flat_is_home(const Buffer *b);

#endif
