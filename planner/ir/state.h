/* What the ranks of a plan hold between steps: which parts of which tensors' weights and moments,
 * and which of several equal copies is the one that a checkpoint takes. All of it follows from the
 * plan's units, layouts and deals; no rank asks another. */
#ifndef TANDEM_IR_STATE_H
#define TANDEM_IR_STATE_H

#include "planner/ir/plan.h"

/* buffer: what lives between steps beside the parameters (ROLE_state). */
#define STATE_KINDS(X) X(param) X(m) X(v) X(buffer)
typedef enum StateKind {
#define X(name) STATE_##name,
    STATE_KINDS(X)
#undef X
        STATE_KIND_COUNT
} StateKind;
const char *state_kind_name(StateKind k);

/* A box of a tensor: elements [offset, offset + size) of the global index; of a fused projection
 * that lies by groups, of its index in the original order, one dimension less. (name, kind, offset)
 * is its key: the same whatever rank holds it, and under any other mesh. */
typedef struct StateSlice {
    const char *name;
    TensorId tensor;
    StateKind kind;
    DType dtype;
    Rank rank;
    bool writes; /* of the copies that several ranks hold, exactly one is written */
    bool lazy;   /* moments of what no gradient ever reaches: zero, at step 0 */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS], offset[MAX_DIMS], size[MAX_DIMS];
    BufferId buffer;    /* where it lies on the rank */
    uint64_t bytes, at; /* in the rank's file: size, and where it begins; only if written */
} StateSlice;
typedef LIST(StateSlice) StateSlices;

typedef struct State State; /* what all ranks have in common */
State *state_of(const Plan *plan, Arena *arena);
const Plan *state_plan(const State *state);
/* Appends what `rank` holds, in the order of its program's buffers. */
void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices);

typedef struct StateTotal {
    uint64_t n_slices, held_bytes, written_bytes;                /* over all ranks */
    uint64_t most_held, least_held, most_written, least_written; /* of one rank */
    uint64_t kind_bytes[STATE_KIND_COUNT];                       /* written */
} StateTotal;
StateTotal state_total(const State *state);

/* Over all ranks each element of each tensor's weights and moments is written exactly once. Reports
 * "state-duplicate" and "state-gap" with the tensor, the part and the ranks; the first of each
 * tensor. */
bool state_check(const State *state, Diag *d);
/* The same of slices that come from anywhere; `plan` says which tensors there must be (NULL: those
 * that the slices name). */
bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d);

#endif
