/* The training state that each rank stores between steps and that a checkpoint contains: weights
 * and optimizer moments. If several ranks store the same elements, exactly one of them writes these
 * to the checkpoint. Everything here follows from the plan, so ranks need not communicate to agree
 * on it. */
#ifndef TANDEM_IR_STATE_H
#define TANDEM_IR_STATE_H

#include "planner/ir/plan.h"

/* param: a weight. m, v: Adam's first and second moment. buffer: a ROLE_state tensor (graph.h),
 * such as the vectors of a spectral norm. */
#define STATE_KINDS(X) X(param) X(m) X(v) X(buffer)
typedef enum StateKind {
#define X(name) STATE_##name,
    STATE_KINDS(X)
#undef X
        STATE_KIND_COUNT
} StateKind;
const char *state_kind_name(StateKind k);

/* A part of a tensor that one rank stores: the box of elements [offset[d], offset[d] + size[d]) in
 * each dimension d, in global indices. For example, rank 1 of a wq [4096, 4096] that is split over
 * 8 ranks may store the box with offset {512, 0} and size {512, 4096}. Names and offsets do not
 * depend on the mesh, so a plan for another mesh can load the checkpoint. A fused projection that
 * is stored group by group (Tensor.order) appears here in its original order. */
typedef struct StateSlice {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    Rank rank;
    /* this rank writes the slice to checkpoints; of several ranks with equal copies, one does */
    bool writes;
    bool lazy; /* a moment of a parameter without gradient: zero at step 0, and never changed */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS], offset[MAX_DIMS], size[MAX_DIMS];
    BufferId buffer; /* the buffer that contains the slice */
    /* size [bytes]; if `writes`: the place of the slice in the rank's file [bytes] */
    uint64_t bytes, at;
    /* Where the elements of the box are in the buffer. The element at place x of the box (0 <= x[d]
     * < size[d]) is element first + sum over d of x[d] * stride[d] of the buffer. If group_size >
     * 0, dimension group_dim contributes x / group_size * group_stride + x % group_size * stride in
     * place of x * stride, because its features are stored group by group. */
    uint64_t first;
    int64_t stride[MAX_DIMS], group_size, group_stride;
    uint8_t group_dim;
} StateSlice;
typedef LIST(StateSlice) StateSlices;

/* A whole tensor of the state, as a checkpoint lists it. */
typedef struct StateTensor {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];
} StateTensor;
typedef LIST(StateTensor) StateTensors;

/* An index over the plan, from which the slices of every rank can be computed. */
typedef struct State State;
State *state_of(const Plan *plan, Arena *arena);
const Plan *state_plan(const State *state);
/* Appends all slices that `rank` stores, in the order of its buffers. */
void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends the slices of whole weights of which `rank` also keeps a gathered copy between steps. A
 * checkpoint does not contain these copies, but loading it must fill them. */
void state_copies_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);
/* Appends every tensor of the state once, whichever rank stores it. */
void state_tensors(const State *state, Arena *arena, StateTensors *tensors);

typedef struct StateTotal {
    uint64_t n_slices, held_bytes, written_bytes; /* sums over all ranks */
    /* stored (held) and written by one rank: the most and the least of all ranks [bytes] */
    uint64_t most_held, least_held, most_written, least_written;
    /* kind_bytes[k]: bytes of kind k that all ranks write */
    uint64_t kind_bytes[STATE_KIND_COUNT];
} StateTotal;
StateTotal state_total(const State *state);

/* Checks that exactly one rank writes each element of each weight and moment. Reports "state-gap"
 * if none does, and "state-duplicate" if several do; each at most once for a tensor. */
bool state_check(const State *state, Diag *d);
/* The same check for slices from anywhere, such as a checkpoint. They must cover every tensor of
 * `plan`. If `plan` is NULL, they must cover every tensor that they name. */
bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d);

#endif
