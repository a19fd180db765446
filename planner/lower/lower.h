/* Shared by the lowering's files. Lowering walks the graph once a micro-batch and writes the
 * program.
 *   emit.c     instructions, buffers, dependences; vector clocks keep `after` reduced
 *   convert.c  the one rule: a value in the layout that somebody wants
 *   sharding.c when units are gathered, kept and reduced
 *   unit.c     parameters: gathered, released, prefetched
 *   reduce.c   gradients of a unit: summed, reduced, accumulated at rest
 *   offload.c  state in host memory
 *   copy.c     FSDP2's copies around gathers and reductions
 *   grad.c     contributions to gradient tensors
 *   lower.c    nodes, forward and backward; the programs
 *   plan.c     the kept tensors, the order of units, the number of contributions
 *   stage.c    tensors that cross from stage to stage
 *   update.c   norm, clipping, optimizer */
#ifndef TANDEM_LOWER_LOWER_H
#define TANDEM_LOWER_LOWER_H

#include "planner/lower/clock.h"
#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

/* Newest access of a root buffer by each stream. */
typedef struct Access {
    Pc read[STREAM_COUNT], written[STREAM_COUNT];
} Access;

/* A copy of a tensor's value (of the current micro-batch) in one layout. */
typedef struct Version {
    BufferId buffer;
    Layout layout;
    NodeId
        consumer;  /* 0: for everybody; else made for this forward node alone (unshared gathers) */
    uint32_t next; /* in Values.versions; 0: end */
} Version;

/* A gradient tensor while it is being summed: one partial sum a layout. */
typedef struct GradState {
    uint32_t n_expected, n_arrived; /* contributions */
    uint32_t n_uses;                /* reads by backward nodes still to come */
    uint32_t sums;                  /* list of Version */
} GradState;

typedef struct UnitState {
    BufferId rest;            /* at rest */
    BufferId m, v, grad;      /* optimizer state, gradient accumulator at rest (or whole) */
    BufferId gathered;        /* resident weights; 0: not gathered */
    BufferId kept;            /* reshard to n: my slice of the gathered weights */
    Pc last_use;              /* last instruction that read the weights */
    Pc reduced;               /* its last reduce_scatter */
    BufferId full_grad;       /* unsharded gradient, while being written */
    uint32_t n_contributions; /* still to come before the gradient is reduced */
    uint32_t n_per_microbatch;
    uint32_t n_reduced; /* reductions done: windows of accumulation */
    bool begun;         /* the current use has begun: its prefetches are issued */
    bool copied;        /* its weights lie in buffers of their own */
} UnitState;

/* The order in which units are needed, all micro-batches. */
typedef struct UnitUse {
    UnitId unit;
    uint32_t microbatch;
    bool backward;
} UnitUse;

/* Two gradient tensors that lie in the same buffer (a gradient passed through). */
typedef struct Share {
    BufferId buffer;
    TensorId tensor;
} Share;

/* Between stage and stage + 1: an activation's way on, or its gradient's way back. */
typedef struct StageTransfer {
    uint32_t when, stage, microbatch;
    bool backward, is_send;
} StageTransfer;
/* Two buffers at fixed places that units of equal size take turns in. */
typedef struct Turns {
    BufferId buffer[2];
    UnitId holds[2]; /* whose it is; 0: free */
    UnitId has[2];   /* whose weights still lie there */
    uint32_t next;
} Turns;

typedef struct Pending {
    UnitId unit;
    BufferId part;
    bool last;
} Pending; /* reduced, to be accumulated */

/* emit.c: the order of instructions on streams, and what the next one must wait for. */
typedef struct Emitter {
    LIST(Clock) clocks;  /* [pc] */
    LIST(Access) access; /* [buffer]: roots only */
    Pc stream_end[STREAM_COUNT];
    Pc floor;         /* every instruction from here on waits for it; 0: nothing */
    Pc compute_waits; /* the next computation waits for it */
    Pc send_waits[2]; /* the next message forward, and backward, waits for it */
    uint32_t match, launch;
} Emitter;

/* convert.c, lower.c: the values of activations, and the layouts in which nodes want them. */
typedef struct Values {
    LIST(Version) versions;
    uint32_t *versions_of; /* [tensor]: of the current micro-batch */
    uint32_t **by_microbatch;
    uint32_t tensor_room;
    bool *keep;          /* [tensor]: kept from forward to backward */
    bool *again;         /* [node]: runs again in the backward pass (recomputation) */
    BufferId *of_step;   /* [tensor]: made once a step, or state */
    Layout *arg_layouts; /* the layouts of all arguments of all nodes */
    uint32_t *arg_first; /* [node]: its first entry in arg_layouts */
    uint64_t *workspace; /* [node]: bytes of scratch that the backend's kernel asks for */
} Values;

/* unit.c, turns.c, offload.c, copy.c, float8.c: parameters, unit by unit. */
typedef struct Units {
    UnitState *of;     /* [unit] */
    bool *takes_turns; /* [unit]: uses the two pairs of buffers below; NULL: no unit does */
    Turns turns_weights, turns_grads;
    NodeId *last_forward, *last_backward; /* [unit]: nodes that read its weights last */
    bool *is_last;                        /* [unit]: the last block of its stage */
    bool *sums_pieces; /* [unit]: some of its gradients are sums over pieces of the tokens */
    bool *is_mixed;    /* [unit]: gradients of several micro-batches arrive interleaved */
    LIST(UnitUse) uses;
    uint32_t next_use;
    LIST(Pending) pending;
    BufferId *weight_view, *grad_view; /* [tensor]: the newest view of a parameter */
    BufferId *maximum; /* [param]: the largest magnitude, of units that are gathered in 8 bits */
    Pc last_release, last_reduce, previous_reduce;
    Pc last_copy_out;
    Pc last_offload, previous_offload, last_host_sum, previous_host_sum;
} Units;

/* grad.c: gradients while their contributions arrive. */
typedef struct Gradients {
    GradState *of; /* [tensor]: of the current micro-batch */
    GradState **by_microbatch;
    uint32_t *arrived; /* [param]: contributions so far in this accumulation window */
    LIST(Share) shares;
    Pc after; /* the first writer of a new gradient buffer waits for it */
} Gradients;

/* stage.c: messages between pipeline stages. */
typedef struct Stages {
    uint32_t rank;             /* the pipeline rank whose program this is */
    AxisSet pipe;              /* the pp axes */
    LIST(TensorId) * crossing; /* [stage]: tensors that go from it to the next */
    uint32_t first_tied_match, first_p2p_match, most_crossing;
    LIST(StageTransfer) transfers; /* of this rank, in order */
    uint32_t next_transfer, transfer_launch;
    Pc receive_after; /* all but the newest action have ended: their memory may be received into */
    Pc newest_send[2];
} Stages;

/* update.c: the numbers of the whole step. */
typedef struct Scalars {
    uint32_t match;
    uint32_t n_losses; /* nodes that added to the loss of the step so far */
    BufferId loss, norm_table, coefficient;
    BufferId loss_sum, count; /* of the step so far: step_mean divides one by the other */
    BufferId host_norm;       /* offloaded: squares of the numbers on the host */
} Scalars;

/* One program while it is written. Each part belongs to the files that its comment names. */
typedef struct Lower {
    Job *job;
    Plan *plan;
    Graph *g;
    Program *p;
    Arena *arena, *scratch;
    uint32_t microbatch, n_microbatches;
    Phase phase;
    Emitter emit;
    Values value;
    Units unit;
    Gradients grad;
    Stages stage;
    Scalars scalar;
} Lower;

/* ---- emit.c ---- */
typedef struct Emit {
    OpKind op;
    Stream stream;
    AxisSet axes;
    int32_t hop;    /* send, recv */
    uint32_t match; /* 0: the next number */
    uint32_t launch;
    Attrs attrs;
    NodeId origin;
    UnitId unit;
    uint32_t n_in, n_out;
    BufferId arg[MAX_ARGS];
    Pc after[4]; /* besides what the buffers demand; 0: none */
} Emit;
Pc lower_emit(Lower *l, const Emit *e);
BufferId lower_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
BufferId lower_view(Lower *l, BufferId parent, const Shape *shape, DType dtype,
                    uint64_t offset_bytes);
const Shape *lower_shape(const Lower *l, BufferId b);
DType lower_dtype(const Lower *l, DType t); /* through the dtype map */
Shape tensor_shape(const Tensor *t, const Layout *layout);
/* ... of a value, whose tokens may be dealt out for another layout: for this one. */
Shape lower_value(const Lower *l, const Tensor *t, const Layout *layout);
/* Are tokens dealt out so, over ranks of cp, perhaps of tp within them? */
bool lower_is_sequence(const Lower *l, DealId deal);
Stream lower_stream(const Lower *l, AxisSet axes, OpKind op);

/* ---- convert.c ---- */
/* A new buffer with the value of `from` in layout `to`. */
BufferId lower_convert(Lower *l, BufferId from, const Layout *to, NodeId origin, Category category);
/* The value of tensor t in `layout`, made if need be (converted, gathered, recomputed). */
BufferId lower_want(Lower *l, TensorId t, const Layout *layout, NodeId origin);
void lower_add_version(Lower *l, TensorId t, BufferId buffer);
BufferId lower_find_version(const Lower *l, TensorId t, const Layout *layout); /* 0: none */

/* ---- unit.c ---- */
void lower_units_start(Lower *l);
BufferId lower_weight(Lower *l, TensorId param); /* gathers and prefetches; layout: use */
void lower_after_node(Lower *l, NodeId n);       /* releases and reduces what n ended */
bool lower_defers(const Lower *l, UnitId u);
uint32_t lower_n_windows(const Lower *l, UnitId u);  /* reductions a step */
bool lower_stays_gathered(const Lower *l, UnitId u); /* from forward to backward */

/* The weights that u's update made, gathered to where the next step reads them. */
void lower_gather_updated(Lower *l, UnitId u);

/* ---- reduce.c ---- */
/* Where the gradient of `param` is summed in this micro-batch: a view with its home layout. */
BufferId lower_grad_home(Lower *l, TensorId param, Layout *home);
void lower_grad_arrived(Lower *l, TensorId param);
void lower_flush_pending(Lower *l, uint32_t keep);

/* ---- turns.c ---- */
void lower_turns_start(Lower *l);
bool lower_takes_turns(const Lower *l, UnitId u);
/* The buffer whose turn it is; 0 with "zero-option" when both hold another unit. */
BufferId lower_turns_take(Lower *l, Turns *turns, UnitId u);
/* Takes back the buffer in which u's weights still lie; 0: they do not. */
BufferId lower_turns_find(Turns *turns, UnitId u);
void lower_turns_give(Turns *turns, UnitId u);

/* ---- float8.c ---- */
bool lower_gathers_bytes(const Lower *l, UnitId u);
/* Is this node, amax or quantise of a parameter, done by gathering its unit in 8 bits? */
bool lower_done_by_gather(const Lower *l, NodeId id);
/* The largest magnitude of each such parameter, once a step. */
void lower_maxima(Lower *l);
/* My part of the unit at rest in 8 bits. */
BufferId lower_in_bytes(Lower *l, UnitId u, const Shape *flat, Category category);
/* If t is the amax or the 8-bit form of a parameter: the buffer that gathering has made for it;
 * else 0. */
BufferId lower_quantised_weight(Lower *l, TensorId t);

/* Sets `on` for each axis of `axes`. */
void lower_set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on);
/* A flat buffer's shape. */
Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial);

/* ---- offload.c ---- state in host memory: fsdp2 { offload = true } */
bool lower_offloads(const Lower *l, UnitId u);
BufferId lower_host_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
/* A copy, or a cast where dtypes differ; waits for `after` and `also` besides. */
Pc lower_copy(Lower *l, UnitId u, Stream stream, BufferId from, BufferId to, Pc after, Pc also);
BufferId lower_fetch(Lower *l, UnitId u); /* my shard, on the device */
/* A reduced gradient leaves the device; the first is set, all others are added. */
void lower_take_out(Lower *l, UnitId u, BufferId part, bool first);

/* ---- copy.c ---- FSDP2's copies: fsdp2 { copy = true } */
bool lower_copies(const Lower *l, UnitId u);
BufferId lower_copy_in(Lower *l, UnitId u); /* my shard, cast, to be gathered */
void lower_copy_out(Lower *l, UnitId u);    /* a buffer for each weight */
/* In which gradients are made: copies are cast on their way to the reduction, unless they are sums
 * over micro-batches or pieces. */
DType lower_grad_dtype(const Lower *l, UnitId u);
BufferId lower_copied_grad(Lower *l, TensorId param, const Layout *home);
BufferId lower_chunk_cat(Lower *l, UnitId u); /* its gradients, one flat buffer */

/* ---- grad.c ---- */
/* Lowers backward node n's outputs: decides buffers and the accumulate mask before, settles after.
 */
void lower_backward_node(Lower *l, NodeId n);
void lower_pass_node(Lower *l, NodeId n);
/* The node that quantises an operand of the backward pass. */
void lower_cast_node(Lower *l, NodeId n);

/* ---- lower.c ---- */
/* Several micro-batches may be in flight: each has its own versions and gradient sums. */
void lower_select(Lower *l, uint32_t microbatch);
void lower_forward_node(Lower *l, NodeId n);
BufferId lower_state(Lower *l, TensorId t);
/* Layout of argument `arg` (inputs, then outputs) of a node: wanted of an input, made of an output.
 */
/* Gives the kernel of node n its scratch, as one more argument after the op's own. */
void lower_add_workspace(Lower *l, NodeId n, Emit *e);
/* The same for an instruction that carries out no node. */
void lower_add_scratch(Lower *l, Emit *e);
/* Layout of argument `arg` (inputs, then outputs): wanted of an input, made of an output. */
const Layout *lower_arg_layout(const Lower *l, NodeId n, uint32_t arg);

/* ---- plan.c ---- */
/* The nodes of an action, in order. Begins with its stage and kind. */
typedef struct ActionWalk {
    ActionKind kind;
    uint32_t stage;
    NodeId id, behind; /* newest; newest of the backward nodes of pieces, in a forward action */
} ActionWalk;
NodeId lower_next(const Lower *l, ActionWalk *walk); /* 0: the end */
void lower_find_mixed(Lower *l);
void lower_find_layouts(Lower *l);
void lower_find_kept(Lower *l);
void lower_plan_uses(Lower *l);
void lower_count_contributions(Lower *l);
bool lower_is_mine(const Lower *l, uint32_t stage);
bool lower_unit_is_mine(const Lower *l, UnitId u);

/* ---- stage.c ---- */
void lower_find_crossing(Lower *l);
void lower_plan_transfers(Lower *l);
/* Issues what is made by `when` in the played schedule. */
void lower_transfers(Lower *l, uint32_t when);
void lower_sum_tied(Lower *l); /* the gradients of parameters with two homes */
/* A gradient that another stage has summed: one more contribution. */
void lower_grad_received(Lower *l, TensorId grad, BufferId part);

/* ---- update.c ---- */
void lower_update(Lower *l);
uint32_t lower_n_scalars(const Lower *l); /* all_reduces of scalars at the end of a step */

#endif
