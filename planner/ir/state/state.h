/* The state of each rank between steps: parts of weights and of moments. If several ranks have
 * equal copies, exactly one rank writes its copy to a checkpoint. All this follows from the plan,
 * so ranks need not communicate. */
#ifndef TANDEM_IR_STATE_H
#define TANDEM_IR_STATE_H

#include "planner/ir/plan.h"

/* buffer: a tensor that lives between steps and is no parameter (ROLE_state) */
#define STATE_KINDS(X) X(param) X(m) X(v) X(buffer)
typedef enum StateKind {
#define X(name) STATE_##name,
    STATE_KINDS(X)
#undef X
        STATE_KIND_COUNT
} StateKind;
const char *state_kind_name(StateKind k);

/* A box of a tensor: elements [offset, offset + size) in global indices. The key (name, kind,
 * offset) is the same for every mesh. A fused projection that is stored by groups has its original
 * order here. */
typedef struct StateSlice {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    Rank rank;
    bool writes; /* exactly one of several equal copies is written */
    bool lazy;   /* the parameter has no gradient, so its moments are zero at step 0 */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS], offset[MAX_DIMS], size[MAX_DIMS];
    BufferId buffer;    /* the buffer that contains the slice */
    uint64_t bytes, at; /* if this rank writes it: its size and position in the rank's file */
    /* Element x of the box is element first + sum of x[d] * stride[d] of the buffer. In dimension
     * group_dim, the summand is x / group_size * group_stride + x % group_size * stride. group_size
     * = 0: there is no such dimension. */
    uint64_t first;
    int64_t stride[MAX_DIMS], group_size, group_stride;
    uint8_t group_dim;
} StateSlice;
typedef LIST(StateSlice) StateSlices;

/* A tensor of the state, for the list in a checkpoint. */
typedef struct StateTensor {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
} StateTensor;
typedef LIST(StateTensor) StateTensors;

typedef struct State State; /* data that are equal on all ranks */
State *state_of(const Plan *plan, Arena *arena);
const Plan *state_plan(const State *state);
/* Appends the slices of `rank`, in the order of its buffers. */
void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends the slices of gathered weights that `rank` keeps between steps as copies. They are not
 * written, but a load fills them. */
void state_copies_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends each tensor of the state once. */
void state_tensors(const State *state, Arena *arena, StateTensors *tensors);

typedef struct StateTotal {
    uint64_t n_slices, held_bytes, written_bytes;                /* sums over all ranks */
    uint64_t most_held, least_held, most_written, least_written; /* bytes of one rank */
    uint64_t kind_bytes[STATE_KIND_COUNT];                       /* written */
} StateTotal;
StateTotal state_total(const State *state);

/* Checks that exactly one rank writes each element of every weight and moment. Reports
 * "state-duplicate" and "state-gap", once for each tensor. */
bool state_check(const State *state, Diag *d);
/* Does the work of state_check for slices from any source. The slices must cover every tensor of
 * `plan` or, if `plan` is NULL, every tensor that the slices name. */
bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d);

#endif
