/* Declarations that the files of the lowering share. Lowering makes a program from a graph with
 * layouts.
 *
 *    emit.c      instructions, buffers and dependences
 *    convert.c   changes of layout
 *    sharding.c  when units are gathered, kept and reduced
 *    unit.c      gathers of parameters
 *    reduce.c    reductions of gradients
 *    offload.c   state in host memory
 *    copy.c      PyTorch's copies around gathers and reductions
 *    halo.c      exchanges of halos
 *    held.c      values with a halo, and convolutions in parts
 *    grad.c      contributions to gradients
 *    ring.c      attention over the keys of other ranks
 *    blocks/     copies of equal blocks, and of equal actions
 *    node.c      forward nodes
 *    lower.c     actions, and whole programs
 *    plan.c      the tensors that are kept, and the order of units
 *    stage.c     messages between pipeline stages
 *    update.c    gradient norm, clipping and optimizer */
#ifndef TANDEM_LOWER_LOWER_H
#define TANDEM_LOWER_LOWER_H

#include "planner/lower/access.h"
#include "planner/lower/clock.h"
#include "planner/lower/stages.h"
#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

/* A copy of a tensor in one layout, for the current micro-batch. */
typedef struct Version {
    BufferId buffer;
    Layout layout;
    /* It has a halo, or strided rows (rows at equal distances, layout/stride.h) instead of
     * contiguous ones. Only nodes that read these rows may use it. */
    bool around;
    /* If not 0, `buffer` has only the strips of the halo, and this buffer has the rank's own
     * rows. */
    BufferId rows;
    NodeId consumer; /* the only forward node that may read this version; 0: every node may */
    uint32_t next;   /* the next version of the tensor in Values.versions; 0: none */
} Version;

/* A gradient that is being summed. There is one partial sum for each layout. */
typedef struct GradState {
    uint32_t n_expected, n_arrived; /* how many contributions there are in all, and how many have
                                       been added */
    uint32_t n_uses;                /* the number of backward nodes that will still read the
                                       gradient */
    uint32_t sums;                  /* the index of the first partial sum in Values.versions */
} GradState;

typedef struct UnitState {
    BufferId rest;       /* the parameters as they are kept between steps */
    BufferId m, v, grad; /* the moments, and the gradient that is accumulated */
    BufferId gathered;   /* the buffer with gathered weights on the device; 0: they are not
                            gathered */
    /* if reshard_after_forward is a number: this rank's part of the gathered weights */
    BufferId kept;
    Pc reduced;         /* the newest reduce_scatter of the unit */
    BufferId full_grad; /* the whole gradient while it is being written */
    /* how many contributions must still arrive before the gradient is reduced */
    uint32_t n_contributions;
    uint32_t n_per_microbatch;
    uint32_t n_reduced; /* the number of finished reductions in the step */
    bool begun;         /* the unit is in use, and the gathers of the next units were emitted */
    bool copied;        /* each gathered weight was copied to its own buffer */
} UnitState;

/* One use of a unit. The list of all uses gives the order of gathers. */
typedef struct UnitUse {
    UnitId unit;
    uint32_t microbatch;
    bool backward;
} UnitUse;

/* A gradient that shares its buffer with other gradients, because an op passed it on unchanged. */
typedef struct SharedGrad {
    BufferId buffer;
    TensorId tensor;
    uint32_t next; /* 1 + the index of an older entry for the same buffer; 0: none */
} SharedGrad;

/* A pair of buffers at fixed offsets, which units of equal size use alternately. */
typedef struct Turns {
    BufferId buffer[2];
    UnitId holds[2]; /* the unit that is using the buffer; 0: the buffer is free */
    UnitId has[2];   /* the unit whose weights were written to the buffer last */
    uint32_t next;
} Turns;

typedef struct Pending {
    UnitId unit;
    BufferId part;
    bool last;
} Pending; /* a reduced gradient that has not been accumulated yet */

/* The instructions for which one instruction waits because the lowering explicitly requested it.
 * All its other waits follow from its buffers. */
typedef struct NamedWaits {
    Pc pc, after[4]; /* Emit.after */
    Pc compute;      /* Emitter.compute_waits; 0 if `pc` is not a computation */
} NamedWaits;

/* For emit.c: the order of instructions on streams, and their dependences. */
typedef struct Emitter {
    LIST(Clock) clocks;     /* [pc] */
    LIST(Access) access;    /* [buffer]: only for root buffers */
    LIST(int64_t) elements; /* [shape]: 1 + the number of local elements; 0: not computed yet */
    Pc stream_end[STREAM_COUNT];
    Pc floor;         /* all later instructions wait for this one; 0: none */
    Pc compute_waits; /* the next computation waits for this instruction */
    Pc send_waits[2]; /* the sends for which the next computation waits, too */
    uint32_t match, launch;
    LIST(NamedWaits) named; /* in the order of their instructions; only actions.h reads them */
    /* [op]: the attributes of its newest instruction that belongs to no node */
    AttrsId newest_attrs[OP_COUNT];
} Emitter;

/* For halo.c: an exchange that has begun but not ended. Other instructions may be emitted before it
 * ends. Its end copies the received strips to their rows. */
typedef struct HaloStep {
    BufferId from, strips;
    Shape held; /* the shape after the exchange */
    int d;
} HaloStep;

/* An exchange that begins before the node that reads its result is lowered. If only columns are
 * being exchanged, the reader begins the exchange of rows. */
typedef struct HaloStarted {
    TensorId tensor;
    uint32_t microbatch;
    Shape held; /* the shape that the reader needs */
    HaloStep step;
} HaloStarted;

/* A gradient whose strips are exchanged while the next node runs. */
typedef struct HaloReturn {
    NodeId node;
    uint32_t output;
    bool temporary, accumulated;
    HaloStep step;
} HaloReturn;

/* For convert.c and lower.c: the values of activations, and the layouts that nodes need. */
typedef struct Values {
    LIST(Version) versions;
    LIST(HaloStarted) started;
    uint32_t *versions_of; /* [tensor]: the first of its versions in the current micro-batch */
    uint32_t **by_microbatch;
    TensorId *first_had, *end_had; /* [micro-batch]: the first and last tensor that have versions */
    uint32_t tensor_room;
    bool *keep;  /* [tensor]: true if the backward pass reads the forward value */
    bool *again; /* [node]: true if the backward pass runs the node again */
    /* [tensor]: the buffer of a value that is computed once a step, or of state; 0: none */
    BufferId *of_step;
    uint32_t n_of_step;    /* how many tensors have an entry in of_step */
    Layout *arg_layouts;   /* the layouts of all arguments of all nodes */
    uint32_t *arg_first;   /* [node]: its first entry in arg_layouts and in `around` */
    const DealId **around; /* [argument]: the deals of dimensions with a halo; NULL: no halo */
    bool any_around;       /* true if some argument has a halo */
    uint64_t *workspace;   /* [node]: the bytes of scratch memory of its kernel */
} Values;

/* For unit.c, turns.c, offload.c, copy.c and float8.c: parameters, unit by unit. */
typedef struct Units {
    UnitState *of;     /* [unit] */
    bool *takes_turns; /* [unit]: true if it uses the pairs of buffers below; NULL: no unit does */
    Turns turns_weights, turns_grads;
    /* [unit]: the last node that reads its weights, in the forward pass and in the backward pass */
    NodeId *last_forward, *last_backward;
    /* Lists of the sharded units by the node that reads them last. [node]: the first unit of its
     * list; [unit]: the next unit in the same list; 0: none. */
    UnitId *forward_ends, *next_forward_end, *backward_ends, *next_backward_end;
    bool *is_last; /* [unit]: true for the last block of its stage */
    /* [unit]: true if some of its gradients are sums over pieces of tokens */
    bool *sums_pieces;
    bool *is_mixed; /* [unit]: true if gradients of several micro-batches arrive in a mixed order */
    LIST(UnitUse) uses;
    uint32_t next_use;
    uint32_t seen_uses; /* the lowering has read `uses` up to this index */
    LIST(Pending) pending;
    /* [tensor]: the newest view of a parameter or of its gradient */
    BufferId *weight_view, *grad_view;
    BufferId *maximum; /* [parameter]: its largest magnitude, if its unit is gathered in 8 bits */
    Pc last_release, last_reduce, previous_reduce;
    Pc last_copy_out;
    Pc last_offload, previous_offload, last_host_sum, previous_host_sum;
} Units;

/* For grad.c: gradients while their contributions arrive. */
typedef struct Gradients {
    GradState *of; /* [tensor]: its partial sums in the current micro-batch */
    GradState **by_microbatch;
    TensorId first, end; /* the states of all tensors outside [first, end) stay zero */
    uint32_t *arrived;   /* [parameter]: contributions added since its last reduction */
    LIST(SharedGrad) shared;
    LIST(HaloReturn) returning;
    /* [buffer]: 1 + the index of its newest entry in `shared`. The entry counts only if it still
     * names this buffer. */
    LIST(uint32_t)
    shared_of;
    Pc after; /* the first writer of a new gradient buffer waits for this instruction */
} Gradients;

/* For update.c: scalars of the whole step. */
typedef struct Scalars {
    uint32_t match;
    uint32_t n_losses; /* the number of loss nodes so far */
    BufferId loss, norm_table, coefficient;
    BufferId loss_sum, count; /* sums over the step; step_mean divides the loss by the count */
    BufferId host_norm;       /* for offload: the sum of squares of the gradients on the host */
} Scalars;

/* For blocks.c and repeat.c: equal blocks that follow each other. */
typedef struct BlockRun {
    NodeId first;       /* the first node of the first block */
    uint32_t length, n; /* length: number of nodes in a block; n: number of blocks */
    /* the run's first forward node, the forward nodes of a block, the distance between blocks */
    uint32_t forward, forward_length, forward_step;
} BlockRun;

/* The state of lowering while one program is written. The comments at the types above say which
 * files use each member. */
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
    LIST(BlockRun) blocks;
    struct BlockCopier *repeat;   /* NULL: the program has no equal blocks */
    struct ActionCopier *actions; /* NULL: actions are not copied */
} Lower;

/* ---- emit.c ---- */
typedef struct Emit {
    OpKind op;
    Stream stream;
    AxisSet axes;
    int32_t hop;    /* for send and recv: the distance to the other rank along `axes` */
    uint32_t match; /* the match number; 0: the next free number */
    uint32_t launch;
    Attrs attrs;
    NodeId origin;
    UnitId unit;
    uint32_t n_in, n_out;
    BufferId arg[MAX_ARGS];
    /* instructions for which it waits, in addition to the waits that follow from its buffers; 0:
     * none */
    Pc after[4];
} Emit;
Pc lower_emit(Lower *l, const Emit *e);
/* Appends an instruction, and fills in its arguments and waits; the caller sets all other fields.
 * `arg` has in->args.n buffers. The instruction also waits for the instructions `after`. */
Pc lower_append(Lower *l, Instr *in, const BufferId *arg, const Pc after[4]);
/* Returns the instruction of a node, without its arguments. */
Emit lower_emit_of(const Lower *l, NodeId node);
/* Adds the kernel's scratch memory as the last argument, for an instruction of no node. */
void lower_add_scratch(Lower *l, Emit *e);
/* Emits an instruction that copies `from` to `to`, or adds `from` to `to` if `accumulate` is true.
 * The instruction also waits for `after`. */
void lower_pass(Lower *l, BufferId from, BufferId to, bool accumulate, Pc after, NodeId origin);
BufferId lower_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
BufferId lower_view(Lower *l, BufferId parent, const Shape *shape, DType dtype,
                    uint64_t offset_bytes);
const Shape *lower_shape(const Lower *l, BufferId b);
DType lower_dtype(const Lower *l, DType t); /* applies the map of dtypes */
Shape tensor_shape(const Graph *g, const Tensor *t, const Layout *layout);
/* Returns the shape of t in this layout. Split tokens get the deal (layout.h)
 * that belongs to the layout. */
Shape lower_value(const Lower *l, const Tensor *t, const Layout *layout);
/* True if `deal` splits the tokens of a sequence over cp, or over cp and tp. */
bool lower_is_sequence(const Lower *l, DealId deal);
Stream lower_stream(const Lower *l, AxisSet axes, OpKind op);
/* Returns the stream of a collective that changes the layout of an activation or of its
 * gradient. */
Stream lower_value_stream(const Lower *l, AxisSet axes, OpKind op);

/* ---- convert.c ---- */
/* Returns `from` without the padding of dimensions that no axis splits. */
BufferId lower_unpad(Lower *l, BufferId from);
/* Returns a buffer with the value of `from` in layout `to`. */
BufferId lower_convert(Lower *l, BufferId from, const Layout *to, NodeId origin, Category category);
/* Returns a buffer with tensor t in `layout`. May convert, gather or recompute the tensor. */
BufferId lower_want(Lower *l, TensorId t, const Layout *layout, NodeId origin);
/* Returns input i of node n as the node needs it, including its halo. */
BufferId lower_want_arg(Lower *l, NodeId n, uint32_t i);
void lower_add_version(Lower *l, TensorId t, BufferId buffer); /* records that `buffer` has t */
BufferId lower_find_version(const Lower *l, TensorId t, const Layout *layout); /* 0: none */
/* Returns the buffer that holds t in strided rows; 0 if there is none. */
BufferId lower_find_strided(const Lower *l, TensorId t);

/* ---- ring.c ---- */
/* True if node n is attention that reads the keys of one rank after the other, in a ring. */
bool lower_rings(const Lower *l, NodeId n);
/* Sets the layouts of a ring's node. Keys, values and their gradients stay split along tokens. */
void lower_ring_layouts(Lower *l, NodeId n);
/* Emits the attention of a ring, hop by hop. `e` has the arguments of the whole attention. */
void lower_ring_forward(Lower *l, Emit *e);
/* Emits the hops of the gradient of a ring. The gradients of keys and values get new buffers. */
void lower_ring_backward(Lower *l, Emit *e);

/* ---- unit.c ---- */
void lower_units_start(Lower *l); /* makes the buffers that keep units between steps */
/* Returns the weight in the layout in which it is used. May gather its unit and the next units. */
BufferId lower_weight(Lower *l, TensorId param);
/* Releases the units whose last reader in this pass is n, unless they must stay gathered. */
void lower_after_node(Lower *l, NodeId n);
bool lower_defers(const Lower *l, UnitId u);        /* true if gradients are reduced once a step */
uint32_t lower_n_windows(const Lower *l, UnitId u); /* reductions of the unit in a step */
/* True if the gathered weights are kept from the forward pass to the backward pass. */
bool lower_stays_gathered(const Lower *l, UnitId u);
/* True if weights stay gathered after the backward pass of this micro-batch. */
bool lower_outlives_backward(const Lower *l, uint32_t microbatch);
void lower_gather_updated(Lower *l, UnitId u); /* gathers u after the update, for the next step */

/* ---- reduce.c ---- */
/* Returns the view in which the gradient of `param` is summed, and sets *home to its layout. */
BufferId lower_grad_home(Lower *l, TensorId param, Layout *home);
void lower_grad_arrived(Lower *l, TensorId param); /* counts a contribution; may reduce the unit */
/* Emits the reductions that wait for the end of the last backward pass. */
void lower_reduce_last(Lower *l);
/* Accumulates the reduced gradients in Units.pending, except the newest `keep`. */
void lower_flush_pending(Lower *l, uint32_t keep);

/* ---- turns.c ---- */
void lower_turns_start(Lower *l);
bool lower_takes_turns(const Lower *l, UnitId u); /* true if u uses the pairs of buffers */
/* Gives unit u the next of the two buffers and returns the buffer. If other units use both, reports
 * "zero-option" and returns 0. */
BufferId lower_turns_take(Lower *l, Turns *turns, UnitId u);
/* If one of the two buffers is free and still has the weights of u, gives it to u and returns it.
 * Otherwise returns 0. */
BufferId lower_turns_find(Turns *turns, UnitId u);
void lower_turns_give(Turns *turns, UnitId u); /* frees the buffer that u is using */

/* ---- float8.c ---- */
bool lower_gathers_bytes(const Lower *l, UnitId u); /* true if u is gathered in 8 bits */
/* True if node `id` (amax or quantise) is not needed, because the gather of an 8-bit unit does its
 * work. */
bool lower_done_by_gather(const Lower *l, NodeId id);
/* Finds the largest magnitude of each parameter that is gathered in 8 bits. It runs once a step. */
void lower_maxima(Lower *l);
/* Returns this rank's part of the unit in 8 bits. */
BufferId lower_in_bytes(Lower *l, UnitId u, const Shape *flat, Category category);
/* If an 8-bit gather has made t (the largest magnitude or the 8-bit form of a parameter), returns
 * the buffer of t. Otherwise returns 0. */
BufferId lower_quantised_weight(Lower *l, TensorId t);

/* Sets the layout on each axis of `axes` to `on`. */
void lower_set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on);
/* Returns the shape of a flat buffer. */
Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial);

/* ---- offload.c ---- state in host memory: fsdp2 { offload = true } */
bool lower_offloads(const Lower *l, UnitId u);
BufferId lower_host_buffer(Lower *l, const Shape *shape, DType dtype, Category category);
/* Copies `from` to `to`, or casts it if the dtypes differ. It also waits for `after` and `also`. */
Pc lower_copy(Lower *l, UnitId u, Stream stream, BufferId from, BufferId to, Pc after, Pc also);
BufferId lower_fetch(Lower *l, UnitId u); /* copies the rank's shard from the host to the device */
/* Moves a reduced gradient to the host. Stores it if `first` is true; adds it if not. */
void lower_take_out(Lower *l, UnitId u, BufferId part, bool first);

/* ---- copy.c ---- FSDP2's copies: fsdp2 { copy = true } */
bool lower_copies(const Lower *l, UnitId u);
/* Emits a cast of this rank's shard into a new buffer, from which the unit is gathered. */
BufferId lower_copy_in(Lower *l, UnitId u);
void lower_copy_out(Lower *l, UnitId u); /* copies each gathered weight to its own buffer */
/* Returns the dtype in which gradients of the unit are computed. Most gradients are converted
 * later, when they are packed for the reduction. */
DType lower_grad_dtype(const Lower *l, UnitId u);
BufferId lower_copied_grad(Lower *l, TensorId param, const Layout *home);
/* packs the gradients of the unit into one flat buffer */
BufferId lower_chunk_cat(Lower *l, UnitId u);

/* ---- grad.c ---- */
/* Lowers backward node n and its outputs: chooses the buffers of the outputs before the node, and
 * adds them to their sums afterwards. */
void lower_backward_node(Lower *l, NodeId n);
/* True if several gradients may share this buffer. */
bool lower_is_shared(const Lower *l, BufferId buffer);
/* Appends to the list of shares: `tensor` shares `buffer`. */
void lower_add_share(Lower *l, BufferId buffer, TensorId tensor);
/* Ends all exchanges of gradients that have begun. */
void lower_end_returns(Lower *l);
void lower_pass_node(Lower *l, NodeId n);
/* Lowers a node that quantises an operand of the backward pass. */
void lower_cast_node(Lower *l, NodeId n);

/* ---- node.c ---- */
void lower_forward_node(Lower *l, NodeId n);
BufferId lower_state(Lower *l, TensorId t); /* returns the buffer of a state tensor */
/* Adds the scratch memory of node n's kernel as the last argument. */
void lower_add_workspace(Lower *l, NodeId n, Emit *e);
/* Returns the layout of argument `arg` of node n. Inputs come first, then outputs. */
static inline const Layout *lower_arg_layout(const Lower *l, NodeId n, uint32_t arg)
{
    return &l->value.arg_layouts[l->value.arg_first[n] + arg];
}

/* ---- plan.c ---- */
/* Visits the nodes of an action in order. The caller sets `stage` and `kind`, and zeroes the
 * rest. */
typedef struct ActionWalk {
    ActionKind kind;
    uint32_t stage;
    /* id: the newest node. behind: the newest backward node of a piece of tokens. A forward action
     * also visits these. */
    NodeId id, behind;
} ActionWalk;
NodeId lower_next(const Lower *l, ActionWalk *walk); /* 0: there are no more nodes */
void lower_find_mixed(Lower *l);
void lower_find_layouts(Lower *l);
void lower_find_kept(Lower *l);
void lower_plan_uses(Lower *l);
void lower_count_contributions(Lower *l);
bool lower_is_mine(const Lower *l, uint32_t stage);
bool lower_unit_is_mine(const Lower *l, UnitId u);

/* ---- halo.c ---- */
/* Finds the halos of the arguments of a node. The layouts of the arguments must be known. */
void lower_find_halos(Lower *l, NodeId id, const Binding *b);
/* Returns the deals [MAX_DIMS] of dimensions with a halo or an overlap; NULL: there are none. */
const DealId *lower_arg_around(const Lower *l, NodeId n, uint32_t arg);
/* Returns the shape of argument `arg` of node n. */
Shape lower_arg_shape(const Lower *l, NodeId n, uint32_t arg);
/* Receives the neighbours' contributions to the rank's own rows of `from`, and returns the sum.
 * lower_fold_begin and lower_fold_end do the same in two calls. Instructions emitted between these
 * calls overlap with the exchange. */
BufferId lower_fold(Lower *l, BufferId from, NodeId origin);
HaloStep lower_fold_begin(Lower *l, BufferId from, NodeId origin);
BufferId lower_fold_end(Lower *l, HaloStep *step, NodeId origin);
/* For gradients that are exchanged in two dimensions: ends the first exchange and begins the
 * second. */
void lower_next_returns(Lower *l);
/* True if a buffer has strided rows instead of the rank's contiguous rows. */
bool lower_is_strided(const Lower *l, BufferId b);
bool lower_shape_is_strided(const Lower *l, const Shape *s);
/* Begins the exchange that adds the halos in `around` to `from`. Instructions emitted before
 * lower_hold_end overlap with it. */
HaloStep lower_hold_begin(Lower *l, BufferId from, const DealId *around, NodeId origin);
/* Begins the exchange of the halo of dimension d only. */
HaloStep lower_hold_begin_along(Lower *l, BufferId from, const DealId *around, int d,
                                NodeId origin);
BufferId lower_hold_end(Lower *l, const HaloStep *step, NodeId origin);

/* ---- held.c ---- */
/* A convolution that is computed in parts, so that its inner points are computed during the
 * exchange of the halo. If columns need a halo, the centre comes first, then the sides. If rows
 * need a halo, the rows at the border are computed last. */
typedef struct RowsParts {
    bool rows, columns;
    /* The strips of rows. For a convolution with sides, they are set when the sides begin. */
    BufferId strips;
    HaloStep sides; /* the exchange of columns, which has begun */
} RowsParts;
/* Decides whether node n is computed in parts. If so, begins the exchange of the halo and sets *x
 * to the buffer with the rank's own rows and columns. */
RowsParts lower_begin_parts(Lower *l, NodeId n, BufferId *x);
static inline bool lower_has_parts(const RowsParts *parts)
{
    return parts->rows || parts->columns;
}
/* Emits the parts. `e` has the arguments of the whole op. */
void lower_parts(Lower *l, const Emit *e, RowsParts *parts);
/* Begins the halo exchange of input i of node n, before n is lowered. Does nothing if no exchange
 * is needed. */
void lower_start_halo(Lower *l, NodeId n, uint32_t i);
/* Begins the exchanges of strided rows for the nodes after n whose inputs have been computed. */
void lower_start_ahead(Lower *l, NodeId n);

/* ---- stage.c ---- */
/* Selects the current micro-batch. Each micro-batch has its own versions and gradient sums. */
void lower_select(Lower *l, uint32_t microbatch);
void lower_find_crossing(Lower *l);
void lower_find_stages(Lower *l); /* finds the nodes of each stage */
void lower_plan_transfers(Lower *l);
/* Emits the messages whose values are complete at time `when` of the simulated schedule
 * (schedule.h). */
void lower_transfers(Lower *l, uint32_t when);
void lower_sum_tied(Lower *l); /* tied.c: sums gradients of parameters that two stages share */
/* Adds the gradient that another stage has sent. */
void lower_grad_received(Lower *l, TensorId grad, BufferId part);

/* ---- update.c ---- */
void lower_update(Lower *l);
/* returns the number of all_reduces of scalars at the end of a step */
uint32_t lower_n_scalars(const Lower *l);

#endif
