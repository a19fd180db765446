/* Finds the elements of parameters in a rank's part of a flat unit. */
#ifndef TANDEM_EXEC_FLAT_H
#define TANDEM_EXEC_FLAT_H

#include "planner/ir/plan.h"

/* `n` consecutive elements along the last dimension of a tensor. `global` is the first index in the
 * whole tensor (row-major). `at` is the first index in the rank's buffer. */
typedef struct FlatRun {
    TensorId tensor;
    uint64_t global, at, n;
} FlatRun;

/* Calls `run` for all elements of a unit in buffer `b` on `rank`, except padding. `b` holds the
 * whole unit or the rank's part of it. */
void flat_each(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch,
               void (*run)(void *self, const FlatRun *run), void *self);

/* Returns the dtype of the weights between steps. Copies in other dtypes hold values that were
 * rounded to this dtype. */
DType flat_rest_dtype(const Program *p, BufferId b);
/* Writes initial values into a buffer of parameters. `at` is its memory on `rank`. */
void flat_init(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch, void *at);

/* True for the flat buffer of a unit that keeps its values until the end of a step or longer. */
bool flat_is_home(const Buffer *b);

#endif
