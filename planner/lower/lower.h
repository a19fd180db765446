/* Declarations that the files of the lowering share. Lowering walks the graph once for each
 * micro-batch and writes the program.
 *   emit.c     instructions, buffers, dependences; vector clocks keep `after` reduced
 *   convert.c  the one rule: converts a value to the layout that a node wants
 *   sharding.c when units are gathered, kept and reduced
 *   unit.c     parameters: gathered, released, prefetched
 *   reduce.c   gradients of a unit: summed, reduced, accumulated at rest
 *   offload.c  state in host memory
 *   copy.c     FSDP2's copies around gathers and reductions
 *   halo.c     exchanges of halos
 *   held.c     values with a halo, and convolutions in two parts
 *   grad.c     contributions to gradient tensors
 *   ring.c     attention with the keys of other ranks, one rank after the other
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
    Clock read, written;
} Access;

/* A copy of a tensor's value, for the current micro-batch, in one layout. */
typedef struct Version {
    BufferId buffer;
    Layout layout;
    bool around;     /* the value has a halo; only nodes that read this halo use it */
    BufferId rows;   /* not 0: `buffer` holds only the halo, in strips, and this buffer holds the
                      * rank's own rows */
    NodeId consumer; /* 0: any node may use it; otherwise it was made for this forward node alone
                      * (unshared gathers) */
    uint32_t next;   /* in Values.versions; 0: end */
} Version;

/* A gradient tensor while it is being summed: one partial sum for each layout. */
typedef struct GradState {
    uint32_t n_expected, n_arrived; /* contributions */
    uint32_t n_uses;                /* number of reads by backward nodes that are still to come */
    uint32_t sums;                  /* first Version in the list of sums */
} GradState;

typedef struct UnitState {
    BufferId rest;            /* at rest */
    BufferId m, v, grad;      /* optimizer state; gradient accumulator at rest (or whole) */
    BufferId gathered;        /* gathered weights that are now on the device; 0: none */
    BufferId kept;            /* reshard to n: this rank's slice of the gathered weights */
    Pc last_use;              /* last instruction that read the weights */
    Pc reduced;               /* its last reduce_scatter */
    BufferId full_grad;       /* unsharded gradient while it is being written */
    uint32_t n_contributions; /* contributions still to come before the gradient is reduced */
    uint32_t n_per_microbatch;
    uint32_t n_reduced; /* number of reductions done, one for each window of accumulation */
    bool begun;         /* the current use has begun, so its prefetches were issued */
    bool copied;        /* its weights were copied out to buffers of their own */
} UnitState;

/* One use of a unit. The list of uses over all micro-batches gives the order of gathers. */
typedef struct UnitUse {
    UnitId unit;
    uint32_t microbatch;
    bool backward;
} UnitUse;

/* Two gradient tensors that lie in the same buffer because an op passed the gradient through
 * unchanged. */
typedef struct Share {
    BufferId buffer;
    TensorId tensor;
    uint32_t next; /* 1 + an older share of the same buffer; 0: end */
} Share;

/* A message between `stage` and stage + 1: an activation forward, or its gradient backward. */
typedef struct StageTransfer {
    uint32_t when, stage, microbatch;
    bool backward, is_send;
} StageTransfer;
/* Two buffers at fixed places, which units of equal size use in turn. */
typedef struct Turns {
    BufferId buffer[2];
    UnitId holds[2]; /* the unit that uses it now; 0: free */
    UnitId has[2];   /* the unit whose weights are still in the buffer */
    uint32_t next;
} Turns;

typedef struct Pending {
    UnitId unit;
    BufferId part;
    bool last;
} Pending; /* reduced gradients that are still to be accumulated */

/* emit.c: the order of instructions on streams, and the dependences of the next one. */
typedef struct Emitter {
    LIST(Clock) clocks;     /* [pc] */
    LIST(Access) access;    /* [buffer]: root buffers only */
    LIST(int64_t) elements; /* [shape]: 1 + its local elements; 0: not counted yet */
    Pc stream_end[STREAM_COUNT];
    Pc floor;         /* all later instructions wait for this one; 0: none */
    Pc compute_waits; /* the next computation waits for this instruction */
    Pc send_waits[2]; /* the next message forward and the next message backward wait for these */
    uint32_t match, launch;
    AttrsId newest_attrs[OP_COUNT]; /* of the newest instruction with this op, unless its node's */
} Emitter;

/* halo.c: an exchange of halos that was begun and not ended. The local op that puts the neighbours'
 * strips in place comes later, so other work may run meanwhile. */
typedef struct HaloStep {
    BufferId from, strips;
    Shape held; /* the shape with the halo, or with the neighbours' shares */
    int d;
} HaloStep;

/* An exchange that was begun before its reader is lowered. */
typedef struct HaloStarted {
    TensorId tensor;
    uint32_t microbatch;
    HaloStep step;
} HaloStarted;

/* A gradient whose strips are exchanged while the next node runs. */
typedef struct HaloReturn {
    NodeId node;
    uint32_t output;
    bool temporary, accumulated;
    HaloStep step;
} HaloReturn;

/* convert.c, lower.c: the values of activations, and the layouts that nodes require. */
typedef struct Values {
    LIST(Version) versions;
    LIST(HaloStarted) started;
    uint32_t *versions_of; /* [tensor]: versions for the current micro-batch */
    uint32_t **by_microbatch;
    TensorId *first_had, *end_had; /* [micro-batch]: all its tensors with versions lie between */
    uint32_t tensor_room;
    bool *keep;            /* [tensor]: kept from the forward to the backward pass */
    bool *again;           /* [node]: runs again in the backward pass (recomputation) */
    BufferId *of_step;     /* [tensor]: made once a step, or state between steps */
    Layout *arg_layouts;   /* the layouts of all arguments of all nodes */
    uint32_t *arg_first;   /* [node]: its first entry in arg_layouts, and in `around`: */
    const DealId **around; /* the deals of the dimensions with a halo; NULL: none has */
    bool any_around;       /* some argument has a halo */
    uint64_t *workspace;   /* [node]: scratch bytes for the backend's kernel */
} Values;

/* unit.c, turns.c, offload.c, copy.c, float8.c: parameters, unit by unit. */
typedef struct Units {
    UnitState *of;     /* [unit] */
    bool *takes_turns; /* [unit]: the unit uses the two pairs of buffers below; NULL: no unit
                        * does */
    Turns turns_weights, turns_grads;
    NodeId *last_forward, *last_backward; /* [unit]: the last nodes that read its weights */
    /* sharded units whose last reader is this node, in order: [node] the first one, [unit] the
       next; 0: end */
    UnitId *forward_ends, *next_forward_end, *backward_ends, *next_backward_end;
    bool *is_last;     /* [unit]: it is the last block of its stage */
    bool *sums_pieces; /* [unit]: some of its gradients are sums over pieces of the tokens */
    bool *is_mixed;    /* [unit]: gradients of several micro-batches arrive interleaved */
    LIST(UnitUse) uses;
    uint32_t next_use;
    LIST(Pending) pending;
    BufferId *weight_view, *grad_view; /* [tensor]: the newest view of a parameter */
    BufferId *maximum; /* [param]: largest magnitude, for units that are gathered in 8 bits */
    Pc last_release, last_reduce, previous_reduce;
    Pc last_copy_out;
    Pc last_offload, previous_offload, last_host_sum, previous_host_sum;
} Units;

/* grad.c: gradients while their contributions arrive. */
typedef struct Gradients {
    GradState *of; /* [tensor]: state for the current micro-batch */
    GradState **by_microbatch;
    uint32_t *arrived; /* [param]: contributions that have arrived in this accumulation window */
    LIST(Share) shares;
    LIST(HaloReturn) returning;
    LIST(uint32_t) share_of; /* [buffer]: 1 + its newest share, if that still names this buffer */
    Pc after;                /* the first writer of a new gradient buffer waits for this */
} Gradients;

/* stage.c: messages between pipeline stages. */
typedef struct Stages {
    uint32_t rank;             /* the pipeline rank that this program is for */
    AxisSet pipe;              /* the pp axes */
    LIST(TensorId) * crossing; /* [stage]: tensors that go from it to the next stage */
    NodeId *first[2], *end[2]; /* [stage]: its forward nodes and its backward nodes lie between */
    uint32_t first_tied_match, first_p2p_match, most_crossing;
    LIST(StageTransfer) transfers; /* messages of this rank, in order */
    uint32_t next_transfer, transfer_launch;
    /* all actions but the newest have ended, so messages may be received into the memory that these
     * actions used */
    Pc receive_after;
    Pc newest_send[2];
} Stages;

/* update.c: scalars of the whole step. */
typedef struct Scalars {
    uint32_t match;
    uint32_t n_losses; /* nodes so far that have added to the step's loss */
    BufferId loss, norm_table, coefficient;
    BufferId loss_sum, count; /* sums of the step so far; step_mean divides the loss by the count */
    BufferId host_norm;       /* offload: sum of squares of the gradients on the host */
} Scalars;

/* One program while it is being written. Each part belongs to the files that its comment names. */
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
    uint32_t match; /* 0: takes the next number */
    uint32_t launch;
    Attrs attrs;
    NodeId origin;
    UnitId unit;
    uint32_t n_in, n_out;
    BufferId arg[MAX_ARGS];
    Pc after[4]; /* dependences in addition to those that follow from the buffers; 0: none */
} Emit;
Pc lower_emit(Lower *l, const Emit *e);
/* Adds the value of `from` to `to`, or copies it there, after instruction `after`. */
void lower_pass(Lower *l, BufferId from, BufferId to, bool accumulate, Pc after, NodeId origin);
BufferId lower_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
BufferId lower_view(Lower *l, BufferId parent, const Shape *shape, DType dtype,
                    uint64_t offset_bytes);
const Shape *lower_shape(const Lower *l, BufferId b);
DType lower_dtype(const Lower *l, DType t); /* applies the dtype map */
Shape tensor_shape(const Graph *g, const Tensor *t, const Layout *layout);
/* Shape of a value in this layout. If the tokens were dealt for another layout, the shape has the
 * deal for this layout. */
Shape lower_value(const Lower *l, const Tensor *t, const Layout *layout);
/* True if tokens are dealt in this way, over ranks of cp, perhaps of tp within them. */
bool lower_is_sequence(const Lower *l, DealId deal);
Stream lower_stream(const Lower *l, AxisSet axes, OpKind op);
/* Stream of a collective that changes the layout of an activation or of its gradient. */
Stream lower_value_stream(const Lower *l, AxisSet axes, OpKind op);

/* ---- convert.c ---- */
/* Returns the value of `from` without the padding of dimensions that no axis splits; `from` itself
 * if there is none. */
BufferId lower_unpad(Lower *l, BufferId from);
/* Returns a new buffer with the value of `from` in layout `to`. */
BufferId lower_convert(Lower *l, BufferId from, const Layout *to, NodeId origin, Category category);
/* Returns the value of tensor t in `layout`; converts, gathers or recomputes it if necessary. */
BufferId lower_want(Lower *l, TensorId t, const Layout *layout, NodeId origin);
/* Returns input i of node n in the form that the node reads, including its halo. */
BufferId lower_want_arg(Lower *l, NodeId n, uint32_t i);
void lower_add_version(Lower *l, TensorId t, BufferId buffer);
BufferId lower_find_version(const Lower *l, TensorId t, const Layout *layout); /* 0: none */
BufferId lower_find_apart(const Lower *l, TensorId t); /* one whose rows are strided */

/* ---- ring.c ---- */
/* True if node n is computed with one part of its keys after the other. */
bool lower_rings(const Lower *l, NodeId n);
/* The keys, the values and their gradients stay cut along their tokens. */
void lower_ring_layouts(Lower *l, NodeId n);
/* Emits the hops of a node's ring. `e` has its arguments. */
void lower_ring_forward(Lower *l, Emit *e);
/* Does the same for the gradient. Its outputs for keys and values are made here, in new buffers. */
void lower_ring_backward(Lower *l, Emit *e);

/* ---- unit.c ---- */
void lower_units_start(Lower *l);
/* gathers the weight, and prefetches the next units; returns the weight in its layout in use */
BufferId lower_weight(Lower *l, TensorId param);
/* releases the units whose last reader in its direction is n, unless they stay gathered */
void lower_after_node(Lower *l, NodeId n);
bool lower_defers(const Lower *l, UnitId u);
uint32_t lower_n_windows(const Lower *l, UnitId u); /* reductions a step */
/* true if it stays gathered from forward to backward */
bool lower_stays_gathered(const Lower *l, UnitId u);

/* Gathers the weights that u's update made, to where the next step reads them. */
void lower_gather_updated(Lower *l, UnitId u);

/* ---- reduce.c ---- */
/* Returns where this micro-batch sums the gradient of `param`: a view, with its layout. */
BufferId lower_grad_home(Lower *l, TensorId param, Layout *home);
void lower_grad_arrived(Lower *l, TensorId param);
void lower_flush_pending(Lower *l, uint32_t keep);

/* ---- turns.c ---- */
void lower_turns_start(Lower *l);
bool lower_takes_turns(const Lower *l, UnitId u);
/* Returns the buffer whose turn it is; 0 with "zero-option" if both hold another unit. */
BufferId lower_turns_take(Lower *l, Turns *turns, UnitId u);
/* Takes back the buffer in which u's weights still lie; 0 if they do not. */
BufferId lower_turns_find(Turns *turns, UnitId u);
void lower_turns_give(Turns *turns, UnitId u);

/* ---- float8.c ---- */
bool lower_gathers_bytes(const Lower *l, UnitId u);
/* True if this node is the amax or quantise of a parameter that is not needed because the
 * parameter's unit is gathered in 8 bits. */
bool lower_done_by_gather(const Lower *l, NodeId id);
/* Finds the largest magnitude of each such parameter, once a step. */
void lower_maxima(Lower *l);
/* Returns this rank's part of the unit at rest in 8 bits. */
BufferId lower_in_bytes(Lower *l, UnitId u, const Shape *flat, Category category);
/* If t is the amax or the 8-bit form of a parameter, returns the buffer that the gather has made
 * for it; otherwise 0. */
BufferId lower_quantised_weight(Lower *l, TensorId t);

/* Sets `on` for each axis of `axes`. */
void lower_set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on);
/* Returns the shape of a flat buffer. */
Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial);

/* ---- offload.c ---- state in host memory: fsdp2 { offload = true } */
bool lower_offloads(const Lower *l, UnitId u);
BufferId lower_host_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
/* Copies, or casts if the dtypes differ; it also waits for `after` and `also`. */
Pc lower_copy(Lower *l, UnitId u, Stream stream, BufferId from, BufferId to, Pc after, Pc also);
BufferId lower_fetch(Lower *l, UnitId u); /* copies this rank's shard to the device */
/* Copies a reduced gradient to the host. The first one is stored; later ones are added. */
void lower_take_out(Lower *l, UnitId u, BufferId part, bool first);

/* ---- copy.c ---- FSDP2's copies: fsdp2 { copy = true } */
bool lower_copies(const Lower *l, UnitId u);
/* casts this rank's shard into a buffer to gather from */
BufferId lower_copy_in(Lower *l, UnitId u);
void lower_copy_out(Lower *l, UnitId u); /* copies each weight to a buffer of its own */
/* Returns the dtype in which gradients are computed. The copies are cast on their way to the
 * reduction, unless they are sums over micro-batches or pieces. */
DType lower_grad_dtype(const Lower *l, UnitId u);
BufferId lower_copied_grad(Lower *l, TensorId param, const Layout *home);
BufferId lower_chunk_cat(Lower *l, UnitId u); /* packs its gradients into one flat buffer */

/* ---- grad.c ---- */
/* Lowers the outputs of backward node n: chooses buffers and the accumulate mask before n runs, and
 * settles the sums afterwards. */
void lower_backward_node(Lower *l, NodeId n);
/* Ends all exchanges of gradients that were begun. */
void lower_end_returns(Lower *l);
void lower_pass_node(Lower *l, NodeId n);
/* Lowers the node that quantises an operand of the backward pass. */
void lower_cast_node(Lower *l, NodeId n);

/* ---- lower.c ---- */
/* Several micro-batches may be in flight, each with versions and gradient sums of its own. Selects
 * the current one. */
void lower_select(Lower *l, uint32_t microbatch);
void lower_forward_node(Lower *l, NodeId n);
BufferId lower_state(Lower *l, TensorId t);
/* Adds the scratch memory of node n's kernel as one more argument behind the op's own. */
void lower_add_workspace(Lower *l, NodeId n, Emit *e);
/* Does the same for an instruction that belongs to no node. */
void lower_add_scratch(Lower *l, Emit *e);
/* Returns the layout of argument `arg` (inputs, then outputs): the required one of an input, the
 * resulting one of an output. */
static inline const Layout *lower_arg_layout(const Lower *l, NodeId n, uint32_t arg)
{
    return &l->value.arg_layouts[l->value.arg_first[n] + arg];
}

/* ---- plan.c ---- */
/* Walks the nodes of an action in order. The walk begins with the action's stage and kind. */
typedef struct ActionWalk {
    ActionKind kind;
    uint32_t stage;
    NodeId id, behind; /* newest node; in a forward action, the newest backward node of pieces */
} ActionWalk;
NodeId lower_next(const Lower *l, ActionWalk *walk); /* 0: the end */
void lower_find_mixed(Lower *l);
void lower_find_layouts(Lower *l);
void lower_find_kept(Lower *l);
void lower_plan_uses(Lower *l);
void lower_count_contributions(Lower *l);
bool lower_is_mine(const Lower *l, uint32_t stage);
bool lower_unit_is_mine(const Lower *l, UnitId u);

/* ---- halo.c ---- */
/* Finds the halos of the arguments of a node, whose layouts must be known. */
void lower_find_halos(Lower *l, NodeId id, const Binding *b);
/* Returns the deals [MAX_DIMS] of the dimensions with a halo or an overlap; NULL: there is none. */
const DealId *lower_arg_around(const Lower *l, NodeId n, uint32_t arg);
/* Returns the shape that node n requires of argument `arg`, or gives to it. */
Shape lower_arg_shape(const Lower *l, NodeId n, uint32_t arg);
/* Returns the rows of `from` that a rank owns, plus the shares of these rows that its neighbours
 * computed. lower_fold_begin begins this, and lower_fold_end ends it. Instructions emitted between
 * the two overlap with the exchange. */
BufferId lower_fold(Lower *l, BufferId from, NodeId origin);
HaloStep lower_fold_begin(Lower *l, BufferId from, NodeId origin);
BufferId lower_fold_end(Lower *l, const HaloStep *step, NodeId origin);
/* True if a buffer holds strided rows instead of the rank's own rows. */
bool lower_is_apart(const Lower *l, BufferId b);
bool lower_shape_is_apart(const Lower *l, const Shape *s);
/* Gives `from` the halos that `around` names, also in two calls. */
HaloStep lower_hold_begin(Lower *l, BufferId from, const DealId *around, NodeId origin);
BufferId lower_hold_end(Lower *l, const HaloStep *step, NodeId origin);

/* ---- held.c ---- */
/* True if node n is a convolution whose inner rows are computed first. */
bool lower_in_rows(const Lower *l, NodeId n);
/* Returns the strips in which the halo of n's first input arrives, and the rank's own rows. */
BufferId lower_want_strips(Lower *l, NodeId n, BufferId *rows);
/* Emits both parts of such a convolution. `e` has the arguments of the whole. */
void lower_rows(Lower *l, const Emit *e, BufferId strips);
/* Begins the exchange of input i for node n, which reads it soon. Does nothing if the input has no
 * halo, or already has it. */
void lower_start_halo(Lower *l, NodeId n, uint32_t i);
/* Begins the exchanges of strided rows that the next nodes read, if the values exist.
 */
void lower_start_ahead(Lower *l, NodeId n);

/* ---- stage.c ---- */
void lower_find_crossing(Lower *l);
void lower_find_stages(Lower *l); /* the nodes of each stage */
void lower_plan_transfers(Lower *l);
/* Issues the transfers whose value is complete by time `when` of the played schedule. */
void lower_transfers(Lower *l, uint32_t when);
void lower_sum_tied(Lower *l); /* sums the gradients of parameters with two homes */
/* Adds a gradient that another stage has summed as one more contribution. */
void lower_grad_received(Lower *l, TensorId grad, BufferId part);

/* ---- update.c ---- */
void lower_update(Lower *l);
uint32_t lower_n_scalars(const Lower *l); /* number of scalar all_reduces at the end of a step */

#endif
