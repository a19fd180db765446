/* Declarations that the files of the lowering share. Lowering walks the graph once for each
 * micro-batch and writes the program.
 *   emit.c     instructions, buffers, dependences; vector clocks keep `after` reduced
 *   convert.c  converts a value to the layout that a node needs, by the table of layout changes
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
    bool around;     /* the value has a halo; only nodes that read this halo may use it */
    BufferId rows;   /* not 0: `buffer` holds only the halo, in strips, and this buffer holds the
                      * rank's own rows */
    NodeId consumer; /* 0: any node may use it; otherwise it was made for this forward node alone
                      * (unshared gathers) */
    uint32_t next;   /* in Values.versions; 0: end */
} Version;

/* A gradient tensor while it is being summed: one partial sum for each layout. */
typedef struct GradState {
    uint32_t n_expected, n_arrived; /* contributions */
    uint32_t n_uses;                /* backward nodes that have still to read it */
    uint32_t sums;                  /* first Version in the list of sums */
} GradState;

typedef struct UnitState {
    BufferId rest;       /* at rest */
    BufferId m, v, grad; /* optimizer state; gradient accumulator at rest (or whole) */
    BufferId gathered;   /* gathered weights that are now on the device; 0: none */
    BufferId kept;       /* reshard_after_forward = n: this rank's slice of the gathered weights */
    Pc last_use;         /* newest instruction that read the weights */
    Pc reduced;          /* the unit's newest reduce_scatter */
    BufferId full_grad;  /* unsharded gradient while it is being written */
    uint32_t n_contributions; /* contributions still to come before the gradient is reduced */
    uint32_t n_per_microbatch;
    uint32_t n_reduced; /* number of reductions done, one for each window of accumulation */
    bool begun;         /* the current use has begun, and its prefetches are issued */
    bool copied;        /* the gathered weights were copied out, each to its own buffer */
} UnitState;

/* One use of a unit. The list of uses over all micro-batches gives the order of gathers. */
typedef struct UnitUse {
    UnitId unit;
    uint32_t microbatch;
    bool backward;
} UnitUse;

/* A gradient tensor that shares a buffer with others, because an op passed the gradient on
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
/* Two buffers at fixed offsets, which units of equal size use in turn. */
typedef struct Turns {
    BufferId buffer[2];
    UnitId holds[2]; /* the unit that uses the buffer now; 0: free */
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
    Pc floor;         /* all later instructions wait for this instruction; 0: none */
    Pc compute_waits; /* the next computation waits for this instruction */
    Pc send_waits[2]; /* the next message forward and the next message backward wait for these */
    uint32_t match, launch;
    AttrsId newest_attrs[OP_COUNT]; /* attributes of the newest instruction with this op that
                                     * belongs to no graph node */
} Emitter;

/* halo.c: an exchange of halos between its beginning and its end. The local op that puts the
 * neighbours' strips in place comes at the end, so other work may run before. */
typedef struct HaloStep {
    BufferId from, strips;
    Shape held; /* the shape with the halo, or with the neighbours' shares */
    int d;
} HaloStep;

/* An exchange that begins before the node that reads it is lowered. The reader begins the exchange
 * of rows if only columns have begun. */
typedef struct HaloStarted {
    TensorId tensor;
    uint32_t microbatch;
    Shape held; /* the shape that the reader requires */
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
    TensorId *first_had, *end_had; /* [micro-batch]: the range of tensors that have versions */
    uint32_t tensor_room;
    bool *keep;  /* [tensor]: kept from the forward to the backward pass */
    bool *again; /* [node]: runs again in the backward pass (recomputation) */
    /* [tensor]: value that is made once a step, or state between steps; 0: none */
    BufferId *of_step;
    Layout *arg_layouts;   /* the layouts of all arguments of all nodes */
    uint32_t *arg_first;   /* [node]: its first entry in arg_layouts and in `around` */
    const DealId **around; /* the deals of the dimensions with a halo; NULL: no halo */
    bool any_around;       /* true if some argument has a halo */
    uint64_t *workspace;   /* [node]: scratch bytes for the backend's kernel */
} Values;

/* unit.c, turns.c, offload.c, copy.c, float8.c: parameters, unit by unit. */
typedef struct Units {
    UnitState *of;     /* [unit] */
    bool *takes_turns; /* [unit]: the unit uses the two pairs of buffers below; NULL: no unit
                        * does */
    Turns turns_weights, turns_grads;
    NodeId *last_forward, *last_backward; /* [unit]: the last nodes that read its weights */
    /* linked lists of the sharded units whose last reader is a node: [node] the first unit, [unit]
     * the next unit; 0: end */
    UnitId *forward_ends, *next_forward_end, *backward_ends, *next_backward_end;
    bool *is_last; /* [unit]: true for the last block of its stage */
    /* [unit]: true if some of its gradients are sums over pieces of the tokens */
    bool *sums_pieces;
    bool *is_mixed; /* [unit]: true if gradients of several micro-batches arrive interleaved */
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
    LIST(uint32_t)
    share_of; /* [buffer]: 1 + index of its newest share; valid if that share still names this
                 buffer */
    Pc after; /* the first writer of a new gradient buffer waits for this instruction */
} Gradients;

/* stage.c: messages between pipeline stages. */
typedef struct Stages {
    uint32_t rank;             /* the pipeline rank that this program is for */
    AxisSet pipe;              /* the pp axes */
    LIST(TensorId) * crossing; /* [stage]: tensors that go from it to the next stage */
    NodeId *first[2], *end[2]; /* [0]: forward, [1]: backward; [stage]: the range of its nodes */
    uint32_t first_tied_match, first_p2p_match, most_crossing;
    LIST(StageTransfer) transfers; /* messages of this rank, in order */
    uint32_t next_transfer, transfer_launch;
    /* when this instruction has finished, all actions but the newest have ended, so messages may be
     * received into their memory */
    Pc receive_after;
    Pc newest_send[2];
} Stages;

/* update.c: scalars of the whole step. */
typedef struct Scalars {
    uint32_t match;
    uint32_t n_losses; /* number of loss nodes lowered so far */
    BufferId loss, norm_table, coefficient;
    BufferId loss_sum, count; /* sums of the step so far; step_mean divides the loss by the count */
    BufferId host_norm;       /* offload: sum of squares of the gradients on the host */
} Scalars;

/* One program while it is being written. The comment at each part's type names the files that use
 * it. */
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
/* Returns the compute instruction of a node, without its arguments. */
Emit lower_emit_of(const Lower *l, NodeId node);
/* Emits an instruction that copies `from` to `to` (accumulate: adds it) and waits for instruction
 * `after`. */
void lower_pass(Lower *l, BufferId from, BufferId to, bool accumulate, Pc after, NodeId origin);
BufferId lower_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
BufferId lower_view(Lower *l, BufferId parent, const Shape *shape, DType dtype,
                    uint64_t offset_bytes);
const Shape *lower_shape(const Lower *l, BufferId b);
DType lower_dtype(const Lower *l, DType t); /* applies the dtype map */
Shape tensor_shape(const Graph *g, const Tensor *t, const Layout *layout);
/* Returns the shape of t's value in this layout, with the deal of the tokens that belongs to this
 * layout. */
Shape lower_value(const Lower *l, const Tensor *t, const Layout *layout);
/* True if `deal` is a deal of tokens over ranks of cp, or over ranks of cp and tp. */
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
/* Returns the buffer of a version of t whose rows are strided; 0: none. */
BufferId lower_find_apart(const Lower *l, TensorId t);

/* ---- ring.c ---- */
/* True if node n is attention that reads its keys part by part, in a ring. */
bool lower_rings(const Lower *l, NodeId n);
/* Sets the layouts of a ring's node: keys, values and their gradients stay cut along their
 * tokens. */
void lower_ring_layouts(Lower *l, NodeId n);
/* Emits the hops of a node's ring. `e` has its arguments. */
void lower_ring_forward(Lower *l, Emit *e);
/* Emits the hops of the gradient's ring. Makes new buffers for the gradients of keys and values. */
void lower_ring_backward(Lower *l, Emit *e);

/* ---- unit.c ---- */
void lower_units_start(Lower *l);
/* Gathers the weight's unit if necessary, and prefetches the next units. Returns the weight in its
 * layout in use. */
BufferId lower_weight(Lower *l, TensorId param);
/* Releases the units whose last forward reader or last backward reader is n, unless they stay
 * gathered. */
void lower_after_node(Lower *l, NodeId n);
bool lower_defers(const Lower *l, UnitId u);
uint32_t lower_n_windows(const Lower *l, UnitId u); /* number of reductions of the unit in a step */
/* True if the unit stays gathered from forward to backward. */
bool lower_stays_gathered(const Lower *l, UnitId u);

/* Gathers the weights of u after its update into the buffer from which the next step reads them. */
void lower_gather_updated(Lower *l, UnitId u);

/* ---- reduce.c ---- */
/* Returns the view in which this micro-batch sums the gradient of `param`; *home is its layout. */
BufferId lower_grad_home(Lower *l, TensorId param, Layout *home);
void lower_grad_arrived(Lower *l, TensorId param);
void lower_flush_pending(Lower *l, uint32_t keep);

/* ---- turns.c ---- */
void lower_turns_start(Lower *l);
bool lower_takes_turns(const Lower *l, UnitId u);
/* Gives u the buffer whose turn it is, and returns it. If other units use both buffers, reports
 * "zero-option" and returns 0. */
BufferId lower_turns_take(Lower *l, Turns *turns, UnitId u);
/* If a free buffer still has u's weights, gives it to u again and returns it; otherwise returns
 * 0. */
BufferId lower_turns_find(Turns *turns, UnitId u);
void lower_turns_give(Turns *turns, UnitId u);

/* ---- float8.c ---- */
bool lower_gathers_bytes(const Lower *l, UnitId u);
/* True if this node is the amax or quantise of a parameter whose unit is gathered in 8 bits. The
 * node then does nothing. */
bool lower_done_by_gather(const Lower *l, NodeId id);
/* Finds, once a step, the largest magnitude of each parameter whose unit is gathered in 8 bits. */
void lower_maxima(Lower *l);
/* Returns this rank's part of the unit at rest in 8 bits. */
BufferId lower_in_bytes(Lower *l, UnitId u, const Shape *flat, Category category);
/* If t is the amax or the 8-bit form of a parameter, returns the buffer that the gather has made
 * for it; otherwise 0. */
BufferId lower_quantised_weight(Lower *l, TensorId t);

/* Sets the layout on each axis of `axes` to `on`. */
void lower_set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on);
/* Returns the shape of a flat buffer. */
Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial);

/* ---- offload.c ---- state in host memory: fsdp2 { offload = true } */
bool lower_offloads(const Lower *l, UnitId u);
BufferId lower_host_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
/* Copies `from` to `to`, or casts it if the dtypes differ. The instruction also waits for `after`
 * and `also`. */
Pc lower_copy(Lower *l, UnitId u, Stream stream, BufferId from, BufferId to, Pc after, Pc also);
BufferId lower_fetch(Lower *l, UnitId u); /* copies this rank's shard to the device */
/* Copies a reduced gradient to the host. first: stores it; otherwise adds it. */
void lower_take_out(Lower *l, UnitId u, BufferId part, bool first);

/* ---- copy.c ---- FSDP2's copies: fsdp2 { copy = true } */
bool lower_copies(const Lower *l, UnitId u);
/* Casts this rank's shard into a new buffer, from which the unit is gathered. */
BufferId lower_copy_in(Lower *l, UnitId u);
void lower_copy_out(Lower *l, UnitId u); /* copies each weight to its own buffer */
/* Returns the dtype in which gradients of the unit are computed. Gradients that are not sums over
 * micro-batches or pieces are cast later, when they are packed for the reduction. */
DType lower_grad_dtype(const Lower *l, UnitId u);
BufferId lower_copied_grad(Lower *l, TensorId param, const Layout *home);
BufferId lower_chunk_cat(Lower *l, UnitId u); /* packs the unit's gradients into one flat buffer */

/* ---- grad.c ---- */
/* Lowers the outputs of backward node n: chooses buffers and the accumulate mask before n runs, and
 * settles the sums afterwards. */
void lower_backward_node(Lower *l, NodeId n);
/* Ends all exchanges of gradients that have begun. */
void lower_end_returns(Lower *l);
/* Ends the first exchange of each gradient that is exchanged in two dimensions, and begins the
 * second. */
void lower_next_returns(Lower *l);
void lower_pass_node(Lower *l, NodeId n);
/* Lowers the node that quantises an operand of the backward pass. */
void lower_cast_node(Lower *l, NodeId n);

/* ---- lower.c ---- */
/* Selects the current micro-batch. Several may be in flight; each has its own versions and gradient
 * sums. */
void lower_select(Lower *l, uint32_t microbatch);
void lower_forward_node(Lower *l, NodeId n);
BufferId lower_state(Lower *l, TensorId t);
/* Adds the scratch memory of node n's kernel as one more argument behind the op's own. */
void lower_add_workspace(Lower *l, NodeId n, Emit *e);
/* Adds the scratch memory of the kernel of an instruction that belongs to no node. */
void lower_add_scratch(Lower *l, Emit *e);
/* Returns the layout of argument `arg` (inputs, then outputs): the layout that an input must have,
 * or that an output gets. */
static inline const Layout *lower_arg_layout(const Lower *l, NodeId n, uint32_t arg)
{
    return &l->value.arg_layouts[l->value.arg_first[n] + arg];
}

/* ---- plan.c ---- */
/* A walk over the nodes of an action in order. The caller sets the action's stage and kind, and
 * zeroes the rest. */
typedef struct ActionWalk {
    ActionKind kind;
    uint32_t stage;
    NodeId id, behind; /* id: the node that was visited last. behind: in a forward action, the last
                        * visited backward node of a piece */
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
/* Adds to the rank's own rows of `from` the shares of these rows that its neighbours computed, and
 * returns the sum. lower_fold_begin and lower_fold_end do the same in two calls; instructions
 * emitted between them overlap with the exchange. If two dimensions are exchanged, lower_fold_next
 * ends the first exchange and begins the second; it returns false if there is no second. */
BufferId lower_fold(Lower *l, BufferId from, NodeId origin);
HaloStep lower_fold_begin(Lower *l, BufferId from, NodeId origin);
bool lower_fold_next(Lower *l, HaloStep *step, NodeId origin);
BufferId lower_fold_end(Lower *l, HaloStep *step, NodeId origin);
/* True if a buffer holds strided rows instead of the rank's own rows. */
bool lower_is_apart(const Lower *l, BufferId b);
bool lower_shape_is_apart(const Lower *l, const Shape *s);
/* Returns `from` with the halos that `around` names, in two calls like lower_fold. */
HaloStep lower_hold_begin(Lower *l, BufferId from, const DealId *around, NodeId origin);
/* The same, for the halo of dimension d alone. */
HaloStep lower_hold_begin_along(Lower *l, BufferId from, const DealId *around, int d,
                                NodeId origin);
BufferId lower_hold_end(Lower *l, const HaloStep *step, NodeId origin);

/* ---- held.c ---- */
/* A convolution that computes inner points while its halo is exchanged. If columns need a halo, it
 * first computes the centre, then the sides. If rows need one, the border comes last. */
typedef struct RowsParts {
    bool rows, columns;
    BufferId strips; /* those of the rows; with columns: set when the sides begin */
    HaloStep sides;  /* the begun exchange of columns */
} RowsParts;
/* Finds out whether node n is computed in parts. If it is, begins the exchange of the halo of its
 * first input and sets *x to the rank's own rows and columns. */
RowsParts lower_begin_parts(Lower *l, NodeId n, BufferId *x);
static inline bool lower_has_parts(const RowsParts *parts)
{
    return parts->rows || parts->columns;
}
/* Emits the parts. `e` has the arguments of the whole op. */
void lower_parts(Lower *l, const Emit *e, RowsParts *parts);
/* Begins the halo exchange of input i of node n, which is lowered soon. Does nothing if the input
 * needs no halo, or already has it. */
void lower_start_halo(Lower *l, NodeId n, uint32_t i);
/* Begins the exchanges of strided rows for the nodes behind n whose inputs exist already.
 */
void lower_start_ahead(Lower *l, NodeId n);

/* ---- stage.c ---- */
void lower_find_crossing(Lower *l);
void lower_find_stages(Lower *l); /* the nodes of each stage */
void lower_plan_transfers(Lower *l);
/* Emits the transfers whose value is complete by time `when` of the played schedule
 * (schedule.h). */
void lower_transfers(Lower *l, uint32_t when);
void lower_sum_tied(Lower *l); /* sums the gradients of parameters that two stages hold */
/* Adds a gradient that another stage has summed as one more contribution. */
void lower_grad_received(Lower *l, TensorId grad, BufferId part);

/* ---- update.c ---- */
void lower_update(Lower *l);
uint32_t lower_n_scalars(const Lower *l); /* number of scalar all_reduces at the end of a step */

#endif
