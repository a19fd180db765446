/* Maps a rank's part of a flat unit to elements of parameters. */
#ifndef TANDEM_EXEC_FLAT_H
#define TANDEM_EXEC_FLAT_H

#include "planner/ir/plan.h"

/* `n` consecutive elements along the last dimension of a tensor, from row-major index `global`
 * of the whole tensor and index `at` of the rank's buffer. */
typedef struct FlatRun {
    TensorId tensor;
    uint64_t global, at, n;
} FlatRun;

/* Calls `run` for all elements of a unit, except padding, that buffer `b` holds on `rank`. `b` is a
 * flat root with the whole unit, or with the rank's part of it. */
void flat_each(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch,
               void (*run)(void *self, const FlatRun *run), void *self);

/* Returns the dtype of the unit's weights at rest. A copy in another dtype also holds values that
 * were rounded to this dtype. */
DType flat_rest_dtype(const Program *p, BufferId b);
/* Writes initial values into a parameter buffer. `at`: its memory on `rank`. */
void flat_init(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch, void *at);

/* True for a flat root of a unit whose values live until the end of a step or longer. */
bool flat_is_home(const Buffer *b);

#endif
