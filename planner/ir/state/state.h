/* The state that each rank of a plan holds between steps: parts of weights and of moments. Where
 * several ranks hold equal copies, exactly one of them writes its copy to a checkpoint. A rank's
 * parts, and whether it writes them, follow from the plan's units, layouts and deals, so ranks need
 * not communicate. */
#ifndef TANDEM_IR_STATE_H
#define TANDEM_IR_STATE_H

#include "planner/ir/plan.h"

/* buffer: a tensor other than a parameter that lives between steps (ROLE_state). */
#define STATE_KINDS(X) X(param) X(m) X(v) X(buffer)
typedef enum StateKind {
#define X(name) STATE_##name,
    STATE_KINDS(X)
#undef X
        STATE_KIND_COUNT
} StateKind;
const char *state_kind_name(StateKind k);

/* A box of a tensor: elements [offset, offset + size) of the global index. A fused projection
 * stored by groups uses its original index order, with one dimension fewer. The key (name, kind,
 * offset) does not depend on the rank or the mesh. */
typedef struct StateSlice {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    Rank rank;
    bool writes; /* among equal copies on several ranks, exactly one rank writes */
    bool lazy;   /* moments of a parameter that no gradient reaches: they are zero, at step 0 */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS], offset[MAX_DIMS], size[MAX_DIMS];
    BufferId buffer;    /* the buffer on this rank that contains it */
    uint64_t bytes, at; /* if this rank writes it: its size and start in the rank's file */
    /* Element x of the box (counted from its first one) is element
     *   first + sum of x[d] * stride[d]
     * of the buffer. Dimension group_dim is stored in groups of group_size elements: its part of
     * the sum is x / group_size * group_stride + x % group_size * stride. group_size 0: none is. */
    uint64_t first;
    int64_t stride[MAX_DIMS], group_size, group_stride;
    uint8_t group_dim;
} StateSlice;
typedef LIST(StateSlice) StateSlices;

/* A tensor of the state, as a checkpoint lists it. */
typedef struct StateTensor {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
} StateTensor;
typedef LIST(StateTensor) StateTensors;

typedef struct State State; /* fields that are equal on all ranks */
State *state_of(const Plan *plan, Arena *arena);
const Plan *state_plan(const State *state);
/* Appends the slices that `rank` holds, in the order of its program's buffers. */
void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends the slices of weights in the copies that `rank` keeps between steps beside its weights at
 * rest: units that stay gathered. No rank writes them, and a loaded checkpoint fills them, too. */
void state_copies_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends every tensor of the state once: the tensors that persistent buffers of the programs hold.
 */
void state_tensors(const State *state, Arena *arena, StateTensors *tensors);

typedef struct StateTotal {
    uint64_t n_slices, held_bytes, written_bytes;                /* summed over all ranks */
    uint64_t most_held, least_held, most_written, least_written; /* bytes of one rank */
    uint64_t kind_bytes[STATE_KIND_COUNT];                       /* written */
} StateTotal;
StateTotal state_total(const State *state);

/* Checks that over all ranks each element of every weight and moment is written exactly once.
 * Reports "state-duplicate" and "state-gap" with tensor, part and ranks, once for each tensor. */
bool state_check(const State *state, Diag *d);
/* Does the work of state_check for slices from any source. The slices must cover every tensor of
 * `plan` or, if `plan` is NULL, every tensor that the slices name. */
bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d);

#endif
