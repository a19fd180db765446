/* Declarations that the files of the verifier share.
 *
 * The first proofs check structure. Later proofs rely on this structure, so that no damaged plan
 * can crash them:
 *   segments.c   fused projections
 *   structure.c  indices, shapes, deals, graph
 *   program.c    instructions and buffers
 *
 * The others:
 *   verify.c     the proofs in order, fit
 *   copies/      plans with fewer blocks
 *   report.c     reports
 *   fit.c        memory of the cluster's devices and hosts
 *   dtype.c      the dtype that each value must have
 *   bind.c       ops bound to shapes
 *   kinds.h      the proof of values that an op gets
 *   order.c      happens-before and races
 *   kernel.c     instructions that run as one kernel
 *   product.c    kernels that begin with a product
 *   deadlock.c   sequences of communications, and waits in a circle
 *   graph.c      value numbers of the global graph
 *   scale.c      scales of 8-bit numbers
 *   tiles.c      regions in pieces along the tokens
 *   state.c      state between steps other than parameters
 *   start.c      the memory at the beginning of a step
 *   run.c        runs all programs on abstract values
 *   whole.c      values of buffers that are only accessed as a whole
 *   value.c      abstract memory: the value in each byte range of the arena
 *   halo.c       strips of neighbours, and the rows that windows read
 *   strides.c    contiguous rows exchanged for strided rows
 *   uneven.c     rows of experts and their counts
 *   range.c      one parameter of a flat buffer, and its 8-bit form
 *   nest.c       parts of parts, and parts that moved to another rank
 *   ring.c       attention with a part of the keys
 *   rows.c       convolutions in two parts
 *   op.c         computations
 *   move.c       copies and communication of data
 *   update.c     the end of the step
 *   rule.c       attributes of an update
 *   twins.c      equal instructions, of which local checks visit only one
 *   metadata.c   statements of the plan about itself: the step, axes, units, uses of buffers
 *   stated.c     sizes and settings that other fields decide
 *   derived.c    fields that follow from others
 *   attributes.c attributes that follow from others */
#ifndef TANDEM_VERIFY_PRIVATE_H
#define TANDEM_VERIFY_PRIVATE_H

#include "planner/ir/layout/halo.h"
#include "planner/ir/window.h"
#include "planner/verify/twins.h"
#include "planner/verify/value/map.h"
#include "planner/verify/verify.h"

/* For each lane, the newest instruction that is known to have finished. A lane is a stream. A
 * stream with launch groups has one lane for each position in a group, because members of a group
 * may finish in any order. */
typedef struct HappensBefore {
    uint32_t n_lanes;
    uint32_t *lane; /* [pc] */
    /* [pc]: true if the instruction has no lane of its own. It is known to have finished only when
     * a later launch group has finished. */
    bool *vague, any_vague;
    uint32_t first_lane[STREAM_COUNT];
    Pc *clock; /* [pc * n_lanes] */
} HappensBefore;
/* True if instruction a has finished when b starts; a must be less than b. */
bool order_before(const HappensBefore *o, Pc a, Pc b);

/* How a value is packed for a message. Strips of halos, and pieces for the exchange of strided and
 * contiguous rows, also say whether they have been sent: PIECES_to_* are packed but not sent,
 * PIECES_for_* are received. PACKED_zigzag equals the Attrs.chunks of a zigzag packing. */
typedef enum Packing {
    PACKED_in_order,
    PACKED_zigzag = 2,
    STRIPS_to_send,
    STRIPS_received,
    PIECES_to_strides,
    PIECES_for_strides,
    PIECES_to_rows,
    PIECES_for_rows
} Packing;

/* The value in a range of bytes. The value of a flat buffer is a list of entries, one for each
 * parameter. */
typedef struct Val {
    Hash128 vn;
    uint64_t bytes;
    uint32_t shape; /* the number of the shape (value_shape) */
    uint32_t list;  /* the number of its list of entries; 0: the range has a single value */
    uint32_t packed_parts;
    int8_t packed_dim;     /* 1 + the dimension along which it is packed; 0: not packed */
    uint8_t packed_chunks; /* Packing */
    uint8_t dtype;
    bool bad;  /* a fault of this value has been reported already */
    bool comm; /* a communication wrote it */
    bool used; /* an instruction has read it */
    Pc writer;
    BufferId buffer;
} Val;

typedef LIST(Val) Vals;

typedef struct ValueEntry {
    uint64_t lo, n; /* the first element, counted from the start of the range, and the number of
                       elements */
    Hash128 vn;     /* 0: zeros */
    /* The shape of the parameter. An axis on which the whole range is PARTIAL counts as WHOLE
     * here. */
    uint32_t shape;
} ValueEntry;
typedef struct ValueEntries {
    uint32_t first, n;
} ValueEntries;

typedef struct HeldValue { /* the data stored for a range of bytes */
    uint64_t base;         /* address at which the value begins */
    uint32_t val;
} HeldValue;

/* The data that a communication with one match number carries between programs. */
typedef struct Transported {
    Val val;
    uint32_t program;
    Pc pc;
    bool there;  /* `val` is set: a program has sent or contributed it */
    Hash128 sum; /* for an all_reduce over stages: the sum of the values contributed so far */
    uint32_t n_brought; /* the number of programs that have contributed */
} Transported;

/* An op bound to the shapes of its arguments. */
typedef struct Bound {
    uint32_t key[2 + MAX_ARGS], n_key;
    Binding binding;
    const char *fault;     /* NULL if binding succeeded; otherwise the error */
    bool layouts_are_fine; /* the layouts of these shapes have been checked and are right */
} Bound;

typedef struct Verifier {
    const Plan *plan;
    const Graph *g;
    Diag *d;
    Arena *arena;
    Fault fault;
    uint32_t proofs;
    bool by_root; /* true if the race proof runs, too; values of whole buffers then need no map of
                   * bytes */
    uint32_t n_reported, n_left_out, n_warned;
    Twins *twins; /* [program]; NULL: checks skip no twins */
    /* the program that is being proven */
    uint32_t program;
    const Program *p;
    HappensBefore order;
    /* the values of the graph, which programs must compute (graph.c) */
    uint32_t n_mb;
    uint64_t *attrs_key; /* [attrs]: hash of the attributes that affect a value */
    Hash128 *vn;         /* [tensor * n_mb + mb] */
    uint8_t *known;      /* [tensor]: 1: a node makes it, or none; 2: a sum over several nodes */
    Hash128 *sum;        /* [tensor]: sum over micro-batches, for gradients and the loss */
    Hash128 norm;        /* the value of the gradient norm over all parameters */
    double loss_scale;   /* the factor of each token's loss in the graph; 0: unknown */
    bool has_gradients;
    uint32_t *leaf_slots, n_leaf_slots; /* hash table: value number of a parameter -> tensor */
    /* shapes that the verifier itself stores, each once, and caches by shape */
    LIST(Shape) shapes;
    uint32_t *shape_slots, n_shape_slots;
    uint32_t *canon;          /* [ShapeId]: the number of the shape in `shapes` */
    uint64_t *local_elements; /* [ShapeId] */
    LIST(Bound *) bounds;
    uint32_t *bound_slots, n_bound_slots;
    Bound **bound_of_node; /* [node]: its newest binding; NULL: none */
    uint32_t *param_shape; /* [tensor]: the shape of a parameter */
    TensorId *counts;      /* [tensor]: the tensor that counts its uneven rows; 0: it has none */
    /* abstract memory of the program */
    RangeMap memory;
    /* [root], NULL: not used. The value of a buffer that is only accessed as a whole; 0: see
     * `memory`. A buffer that still holds a value must not lose bytes to another buffer, so such
     * results count only if the program has no races. */
    uint32_t *whole;
    bool *has_views;          /* [root]: some access is to a part of its bytes */
    struct ValueCache *cache; /* value/cache.h */
    Vals vals;
    LIST(ValueEntry) entries;
    LIST(ValueEntries) lists;
    uint32_t *present_slots, n_present_slots; /* hash table: (value, shape) -> newest val */
    uint32_t *n_updates;                      /* [tensor]: updates in this program */
    uint32_t *n_homes;                        /* [tensor]: the number of programs that hold it
                                                 between steps */
    TensorId *advanced;                       /* [state tensor]: the tensor with its value after the
                                                 step */
    Transported *transports;                  /* [match number] */
    AxisSet stages;                           /* axes along which programs differ */
    /* attributes of the clip_coef seen so far; NULL: none yet */
    const Attrs *clip;
    const Attrs *rule; /* attributes of the newest update */
    OpKind rule_op;    /* the op of the newest update */
    DType rule_dtype;  /* the dtype of the parameters that it updates */
} Verifier;

/* True if the buffer holds parameters when a step begins: the parameters of a rank, or whole copies
 * of the weights. */
static inline bool value_is_of_parameters(const Buffer *b)
{
    return !b->parent && b->persistent &&
           (b->category == CATEGORY_parameter || (b->category == CATEGORY_gathered && b->unit));
}

/* ---- deadlock.c ---- */
/* Returns the axes along which programs differ: pipeline stages. */
AxisSet verify_stage_axes(const Verifier *v);

/* ---- verify.c ---- */
void verify_report(Verifier *v, const char *rule, Pc pc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void verify_warn(Verifier *v, Pc pc, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* True if the user requested the proof that reports this rule. */
bool verify_reports(const Verifier *v, const char *rule);
/* Reports how many faults were found but not listed. */
void verify_report_rest(Verifier *v);
static inline uint64_t verify_address(const Program *p, BufferId b)
{
    uint64_t offset;
    BufferId root = program_root(p, b, &offset);
    return offset | (p->buffers.at[root].space == SPACE_host ? UINT64_C(1) << 63 : 0);
}
/* Returns the number of arguments that the op's row has. The scratch memory of the kernel may
 * follow them. */
static inline uint32_t verify_n_args(const Instr *in)
{
    const OpInfo *info = op_info(in->op);
    uint32_t n = (uint32_t)in->n_in + info->sig.n_out;
    bool computes = info->class_ == OP_CLASS_compute || info->class_ == OP_CLASS_contract;
    return computes && in->args.n > n ? n : in->args.n;
}
static inline bool verify_is_comm(const Instr *in)
{
    return op_info(in->op)->class_ == OP_CLASS_comm;
}
static inline bool verify_is_p2p(const Instr *in)
{
    return in->op == OP_send || in->op == OP_recv;
}
static inline bool verify_accumulates(const Verifier *v, const Instr *in, uint32_t j)
{
    return graph_attrs_at(v->g, in->attrs)->accumulate >> j & 1;
}
/* True if the instruction does all the work of its graph node, or a part of this work. */
static inline bool verify_is_of_node(const Instr *in, const Node *n)
{
    return n->op == in->op ||
           (n->op != OP_none && (n->op == op_whole(in->op) || n->op == op_of_rows(in->op)));
}
static inline const Attrs *verify_attrs(const Verifier *v, Pc pc)
{
    return graph_attrs_at(v->g, v->p->code.at[pc].attrs);
}

/* ---- twins.c ---- */
/* Call `check` for each instruction, or buffer, of the program. They skip twins of those without a
 * fault, so `check` must read only fields that the keys of twins have (twins.h). */
void verify_each_instr(Verifier *v, void (*check)(void *self, Pc pc), void *self);
void verify_each_buffer(Verifier *v, void (*check)(Verifier *v, BufferId b));

/* ---- the proofs; each reports the faults that it finds ---- */
void verify_structure_graph(Verifier *v); /* mesh, deals, shapes, graph, units */
void verify_segments(Verifier *v);
bool verify_structure_program(Verifier *v); /* returns false after a report */
void verify_order(Verifier *v);             /* fills v->order */
void verify_races(Verifier *v);
/* True if all ranks run one program without messages, and no member of a launch group waits for the
 * group's first member or a later instruction. Then no rank waits forever: imagine each group at
 * the position of its first member. Every instruction then waits only for earlier ones, and all
 * ranks reach communications in this order. */
bool verify_ends_in_order(const Plan *plan);
/* Returns [root]: true if a view has only a part of the root's bytes. */
bool *verify_has_views(const Program *p, Arena *arena);
void verify_kernels(Verifier *v); /* checks that the instructions of each kernel may be fused */
bool verify_is_product(const Instr *in);
/* Checks the instruction at pc, which belongs to a kernel that begins with `product`. before: the
 * kernel's previous instruction. */
void verify_product_part(Verifier *v, Pc pc, const Instr *product, const Instr *before);
/* True if buffers a and b have the same address, size and dtype. */
bool verify_alike(const Program *p, BufferId a, BufferId b);
bool verify_overlap(const Program *p, BufferId a, BufferId b); /* true if they share a byte */
void verify_deadlock(Verifier *v);
void verify_graph_values(Verifier *v);
void verify_scales(Verifier *v);
void verify_tiles(Verifier *v);
void verify_values(Verifier *v); /* all programs */
void verify_purity(Verifier *v); /* recomputation and evaluation change no state */
/* ---- metadata.c ---- */
void verify_metadata(Verifier *v);
/* ---- rule.c ---- */
/* Return the fault in the attributes of an update; NULL if there is none. param: the dtype of the
 * parameters. */
const char *verify_rule_fault(const Instr *in, const Attrs *a);
const char *verify_rounding_fault(const Instr *in, const Attrs *a, DType param);
/* Reports an update of parameter t by the wrong kind of op, because biases that balance experts
 * have their own update. Returns false after a report. */
bool verify_balance(Verifier *v, Pc pc, TensorId t);
/* Returns the index of the gradient among the inputs of an update. In an optimizer's update the
 * clip coefficient follows the gradient. */
static inline uint32_t verify_gradient_arg(const Instr *in)
{
    return in->n_in - (in->op == OP_sign_step ? 1U : 2U);
}
/* ---- stated.c: part of verify_metadata ---- */
void verify_stated(Verifier *v);
/* Check facts that a plan with fewer blocks (copies/copies.h) does not show. */
void verify_whole_stated(Verifier *v);
void verify_whole_graph(Verifier *v);   /* structure.c */
void verify_whole_program(Verifier *v); /* program.c */
/* ---- derived.c: part of verify_metadata ---- */
void verify_derived(Verifier *v);
/* ---- attributes.c: part of verify_metadata ---- */
void verify_attributes(Verifier *v);
void verify_dtypes(Verifier *v);

/* ---- nest.c ---- */
/* True if `cut` divides each rank's range of dimension d in `whole` into equal parts over `axes`.
 * Each rank must have the part whose number is the rank's place along these axes. Works for
 * dimensions in which each rank has at most two intervals. */
bool verify_nests(const Verifier *v, const Shape *whole, const Shape *cut, int d, AxisSet axes);
/* True if, for every i, part i of dimension d in `b` has the indices that part i - `by` has in
 * `a`. */
bool verify_turned(const Verifier *v, const Shape *a, const Shape *b, int d, uint32_t by);

/* ---- ring.c ---- */
/* One hop of ring attention: the op with the keys of one rank. */
typedef struct Hop {
    uint32_t n, i; /* n: the number of hops. i: the number of this hop, from 0; it is the distance
                      along the ring from which its keys come */
} Hop;
/* Finds the hop of instruction pc from the shapes of its arguments. Replaces the shapes by those of
 * the same op with all keys. Reports an error and returns false if the ranges of keys do not
 * fit. */
bool value_hop(Verifier *v, Pc pc, uint32_t *shape, Hop *hop);
/* Returns the value of output j after hop i alone. The values of all hops add up to the value in
 * the graph. */
Hash128 value_of_hop(const Verifier *v, Pc pc, const Hop *hop, uint32_t i, const Val *in,
                     uint32_t j);
/* Checks a hop that merges its output: `old`, the output so far, must hold exactly the hops before
 * this hop. Returns false after a report. */
bool value_merges(Verifier *v, Pc pc, const Hop *hop, const Val *in, const Val *old);

/* ---- rows.c ---- */
/* Checks the shapes of one part of a convolution. For the border, replaces the shapes by those of
 * the whole op with a halo. Reports an error and returns false if the shapes do not fit. */
bool value_rows_part(Verifier *v, Pc pc, uint32_t *shape);
/* Checks that the strips have arrived and hold the same value as the first input. Returns false
 * after a report. */
bool value_takes_strips(Verifier *v, Pc pc, const Val *strips, const Val *own);
/* Returns the value of output j of one part of a convolution. The values of both parts add up to
 * the value in the graph. */
Hash128 value_of_rows(Verifier *v, Pc pc, const Val *in, uint32_t j);
/* True if the value consists of strips of dimension d that neighbours have sent. */
bool value_is_received(const Val *val, int d);

/* ---- bind.c ---- */
Bound *verify_bound(Verifier *v, Pc pc); /* binds instruction pc, or returns an earlier result */

/* ---- hash.c ---- */
Hash128 value_add(Hash128 a, Hash128 b);
static inline bool value_same(Hash128 a, Hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}
static inline bool value_is_zero(Hash128 a)
{
    return !a.hi && !a.lo;
}
/* Returns the value of output j of an op, whose inputs have the values `in`. `dim` has the output's
 * dimensions. */
Hash128 value_of_op(OpKind op, uint64_t attrs_key, const Hash128 *in, uint32_t n_in, uint32_t j,
                    uint32_t n_dims, const int64_t *dim);
Hash128 value_leaf(const char *kind, uint64_t number); /* a value that no instruction computed */
/* Hashes the attributes that affect a value in micro-batch mb. Random numbers differ between
 * micro-batches, so ops that draw them have different hashes. */
uint64_t value_key(const Verifier *v, AttrsId attrs, uint32_t mb);
/* Returns the value of the first (which = 1) or second (2) moment of a parameter when the step
 * begins. */
static inline Hash128 value_moment(uint32_t which, TensorId t)
{
    return value_leaf(which == 1 ? "first moment" : "second moment", t);
}
Hash128 value_norm(Hash128 gradient);          /* value of the sum of squares of a whole gradient */
Hash128 value_clip(Hash128 norm, double clip); /* value of the clip coefficient */
/* Returns the value of output j of a graph node in micro-batch mb. */
Hash128 value_contribution(const Verifier *v, NodeId node, uint32_t j, uint32_t mb);
static inline Hash128 value_of_tensor(const Verifier *v, TensorId t, uint32_t mb)
{
    return v->vn[(size_t)t * v->n_mb + mb];
}
const char *value_name(Verifier *v, Hash128 vn); /* for messages */
/* Returns a text that says why value `is` differs from the sum of tensor t over micro-batches; ""
 * if no simple reason is found. */
const char *value_difference(Verifier *v, TensorId t, Hash128 is);

/* ---- graph.c ---- */
/* Returns the value of output j of step_mean. 0: the mean loss; 1: the factor that turns sums into
 * means. */
Hash128 value_step_mean(const Verifier *v, uint32_t j);
/* Returns the parameter that has the value `leaf` when the step begins; 0 if there is none. */
TensorId value_param(const Verifier *v, Hash128 leaf);

/* ---- value.c ---- */
/* Returns the shape's number; equal shapes have equal numbers. */
uint32_t value_shape(Verifier *v, const Shape *s);
static inline const Shape *value_shape_at(const Verifier *v, uint32_t shape)
{
    return &v->shapes.at[shape];
}
const char *value_shape_text(Verifier *v, uint32_t shape);
void value_shapes_start(Verifier *v);
/* Returns the value in buffer b. If memory holds no value of the buffer's shape, reports this and
 * returns a bad value. `what` and `arg` name the argument in the message. */
Val value_read(Verifier *v, Pc pc, BufferId b, const char *what, uint32_t arg);
/* Does the work of value_read for `bytes` bytes at `address`, as a value of `shape`. */
Val value_read_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, uint32_t shape,
                  const char *what, uint32_t arg);
/* Writes a value to buffer b. The value gets the shape, dtype and bytes of b. */
void value_write(Verifier *v, Pc pc, BufferId b, Val val);
void value_write_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, Val val);
/* Returns the entries of a value and their number *n. A value without a list has one entry, the
 * value itself, which is written to *single. */
const ValueEntry *value_entries(const Verifier *v, const Val *val, ValueEntry *single, uint32_t *n);
uint32_t value_add_list(Verifier *v, const ValueEntry *at, uint32_t n);
/* Returns a + b for equal shapes; reports and returns a bad value if their entries do not match. */
Val value_sum(Verifier *v, Pc pc, const Val *a, const Val *b);
bool value_present(Verifier *v, Pc pc, const Val *val, BufferId *where);

/* ---- whole.c ---- */
void value_whole_start(Verifier *v);
/* Returns the value of buffer b if it is held outside the map and has this shape; else NULL. */
const Val *value_whole(Verifier *v, BufferId b, uint32_t shape);
/* Puts a value that is held outside the map into the map. */
void value_spread(Verifier *v, BufferId b);
/* Holds a value outside the map. Returns false if the map must hold it. */
bool value_write_whole(Verifier *v, BufferId b, uint64_t bytes, uint32_t val);

/* ---- state.c ---- */
void verify_graph_state(Verifier *v);
void value_end_of_state(Verifier *v, BufferId b);
void value_homes_of_state(Verifier *v); /* called when all programs have ended */

/* ---- start.c ---- */
void value_memory_start(Verifier *v); /* sets the values of persistent buffers at the beginning of a
                                       * step */

/* ---- the effect of an instruction on memory ---- */
void value_compute(Verifier *v, Pc pc); /* op.c: for ops of the graph */
void value_move(Verifier *v, Pc pc);    /* move.c: for pass, cast, fill, RESHAPE and COMM */
/* move.c: for an all_reduce over stages. Contributes this program's part, unless *brought says that
 * it has done so at `pc`. Returns true when every stage has contributed. */
bool value_meet_stages(Verifier *v, Pc pc, Pc *brought);
bool value_exchange(Verifier *v, Pc pc); /* send, recv; returns false if the other program has not
                                            reached the communication yet */
/* ---- halo.c ---- */
void value_halo(Verifier *v, Pc pc);
/* Returns the bytes of a rank's two strips of dimension d; 0: dimension d has no halo. */
uint64_t value_strip_bytes(const Verifier *v, const Shape *held, int d, DType dtype);
/* Returns NULL, or the fault in the rows of dimension d of `read`. Window w connects these rows
 * with `outputs` rows, which read them or, if is_output, add to them. */
const char *value_window_fault(const Verifier *v, const Window *w, const Shape *read, int d,
                               int64_t outputs, bool is_output);

/* ---- strides.c ---- */
/* checks stride_pack, stride_unpack, and the all_to_all of the packed messages */
void value_strides(Verifier *v, Pc pc);
/* True if the input of instruction pc has strided rows along the axes of the instruction's
 * group. */
bool value_has_strides(const Verifier *v, Pc pc);
/* Returns NULL, or the fault in the deal of dimension d of argument `arg` of an op. */
const char *value_stride_fault(const Verifier *v, const Binding *b, const Shape *s, uint32_t arg,
                               int d);
/* ---- uneven.c ---- */
void value_exchange_uneven(Verifier *v, Pc pc);
/* Finds for each tensor of uneven rows the tensor with the numbers of these rows. Reports nodes
 * whose rows and counts do not belong together. */
void verify_uneven(Verifier *v);
/* For an op that reads or writes uneven rows as dimension d of argument `arg`: returns the fault;
 * NULL: none. */
const char *value_rows_fault(OpKind op, const Binding *b, uint32_t arg, int d);

void value_sumsq(Verifier *v, Pc pc); /* update.c */
void value_mean(Verifier *v, Pc pc);  /* step_mean */
void value_clip_coef(Verifier *v, Pc pc);
void value_update(Verifier *v, Pc pc);
void value_amax_range(Verifier *v, Pc pc); /* range.c */
void value_quantise_range(Verifier *v, Pc pc);
void value_end(Verifier *v); /* checks the conditions at the end of a step */

/* True if the buffer lies in memory that several units use in turn. */
static inline bool verify_is_room(const Program *p, BufferId b)
{
    const Buffer *root = &p->buffers.at[program_root(p, b, NULL)];
    return root->persistent && !root->unit &&
           (root->category == CATEGORY_gradient || root->category == CATEGORY_gathered);
}

#endif
