/* The state that each rank holds between steps: parts of weights and of moments. If several ranks
 * hold equal copies, exactly one of them writes its copy to a checkpoint. All of this follows from
 * the plan, so ranks need not communicate about it. */
#ifndef TANDEM_IR_STATE_H
#define TANDEM_IR_STATE_H

#include "planner/ir/plan.h"

/* m, v: the moments. buffer: another tensor that lives between steps (ROLE_state) */
#define STATE_KINDS(X) X(param) X(m) X(v) X(buffer)
typedef enum StateKind {
#define X(name) STATE_##name,
    STATE_KINDS(X)
#undef X
        STATE_KIND_COUNT
} StateKind;
const char *state_kind_name(StateKind k);

/* A box of a tensor: the elements [offset, offset + size) in global indices. The key (name, kind,
 * offset) does not depend on the mesh. A fused projection that is stored by groups appears here in
 * its original order. */
typedef struct StateSlice {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    Rank rank;
    bool writes; /* true for exactly one of several equal copies */
    bool lazy;   /* true if the parameter has no gradient, so that its moments are zero at step 0 */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS], offset[MAX_DIMS], size[MAX_DIMS];
    BufferId buffer; /* the buffer in which the slice is */
    /* if this rank writes the slice: its size and its position in the rank's file [bytes] */
    uint64_t bytes, at;
    /* Element x of the box is element first + sum of x[d] * stride[d] of the buffer. In dimension
     * group_dim, the summand is x / group_size * group_stride + x % group_size * stride. group_size
     * = 0: there is no such dimension. */
    uint64_t first;
    int64_t stride[MAX_DIMS], group_size, group_stride;
    uint8_t group_dim;
} StateSlice;
typedef LIST(StateSlice) StateSlices;

/* A tensor of the state, as an entry in a checkpoint's list of tensors. */
typedef struct StateTensor {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
} StateTensor;
typedef LIST(StateTensor) StateTensors;

typedef struct State State; /* data that all ranks share */
State *state_of(const Plan *plan, Arena *arena);
const Plan *state_plan(const State *state);
/* Appends the slices of `rank` in the order of its buffers. */
void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends the slices of gathered weights of which `rank` keeps copies between steps. A checkpoint
 * does not contain these copies, but loading it must fill them. */
void state_copies_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends every tensor of the state once. */
void state_tensors(const State *state, Arena *arena, StateTensors *tensors);

typedef struct StateTotal {
    uint64_t n_slices, held_bytes, written_bytes; /* sums over all ranks */
    /* bytes held and written by the rank with the most, and by the rank with the least */
    uint64_t most_held, least_held, most_written, least_written;
    /* [kind]: bytes written by all ranks */
    uint64_t kind_bytes[STATE_KIND_COUNT];
} StateTotal;
StateTotal state_total(const State *state);

/* Checks that every element of every weight and moment is written by exactly one rank. Reports
 * "state-duplicate" and "state-gap", each at most once for a tensor. */
bool state_check(const State *state, Diag *d);
/* Does the work of state_check for slices that may come from anywhere, such as a checkpoint. They
 * must cover every tensor of `plan`. If `plan` is NULL, they must cover every tensor that a slice
 * names. */
bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d);

#endif
