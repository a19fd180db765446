/* Declarations that the files of the verifier share.
 *
 * The first proofs check structure. Later proofs rely on this structure, so that no damaged plan
 * can crash them:
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
 *   deadlock.c   sequences of communications, and waits in a circle
 *   scale.c      scales of 8-bit numbers
 *   start.c      the memory at the beginning of a step
 *   run.c        runs all programs on abstract values
 *   value/       abstract values, and what each instruction does to them (value/value.h)
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

/* A vector clock for each instruction: clock[pc * n_lanes + lane] is the newest instruction of that
 * lane that has surely finished when instruction pc starts. A lane is a stream. A stream with
 * launch groups has one lane for each position in a group (first, second, ...), because the
 * instructions of a group start together and may finish in any order. */
typedef struct HappensBefore {
    uint32_t n_lanes;
    uint32_t *lane; /* [pc]: the lane of the instruction */
    /* [pc]: true if its launch group has more members than there are lanes. The instruction has
     * surely finished only when a later launch group of its stream has finished. */
    bool *vague, any_vague;
    uint32_t first_lane[STREAM_COUNT];
    Pc *clock;
} HappensBefore;
/* True if instruction a has finished when b starts; a must be less than b. */
bool order_before(const HappensBefore *o, Pc a, Pc b);

/* How a value is packed for a message. For strips of halos, and for pieces of rows, this also says
 * whether they have been sent: PIECES_to_* are packed but not sent, PIECES_for_* are received. (A
 * rank sends pieces to exchange contiguous rows for strided ones, layout/stride.h, or back.)
 * PACKED_zigzag equals the Attrs.chunks of a zigzag packing. */
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

/* The abstract value (verify.h) of a range of bytes. `vn` is the hash of its content. A flat buffer
 * holds several parameters, one behind the other, so its value is a list with one entry
 * (ValueEntry) for each of them. */
typedef struct Val {
    Hash128 vn;
    uint64_t bytes;
    uint32_t shape; /* index in Verifier.shapes (value_shape) */
    uint32_t list;  /* index in Verifier.lists: its entries; 0: the range has a single value */
    uint32_t packed_parts;
    int8_t packed_dim;     /* 1 + the dimension that was packed for a message; 0: not packed */
    uint8_t packed_chunks; /* Packing */
    uint8_t dtype;
    bool bad;  /* a fault was reported where it was computed; readers report no more */
    bool comm; /* a communication wrote it */
    bool used; /* an instruction has read it */
    Pc writer;
    BufferId buffer;
} Val;

typedef LIST(Val) Vals;

typedef struct ValueEntry {
    uint64_t lo, n; /* elements [lo, lo + n) of the range */
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

/* The value that a communication carries from one program to others. The send of one program and
 * the receive of another have the same match number. */
typedef struct Transported {
    Val val;
    uint32_t program;
    Pc pc;
    bool there;  /* `val` is set: a program has sent or contributed it */
    Hash128 sum; /* for an all_reduce over stages: the sum of the values contributed so far */
    uint32_t n_brought; /* for an all_reduce over stages: count of programs that contributed */
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
    bool by_root; /* true if values may be stored by buffer instead of by byte (whole.c). This needs
                   * the race proof */
    uint32_t n_reported, n_left_out, n_warned;
    Twins *twins; /* [program]; NULL: checks skip no twins */
    /* the program that is being proven */
    uint32_t program;
    const Program *p;
    HappensBefore order;
    /* the values of the graph's tensors (graph.c). The programs must compute the same values */
    uint32_t n_mb;
    uint64_t *attrs_key; /* [attrs]: hash of the attributes that affect a value */
    Hash128 *vn;         /* [tensor * n_mb + mb]: its value in micro-batch mb */
    uint8_t *known;      /* [tensor]: 1: input, or output of one node; 2: sum of several outputs */
    Hash128 *sum;        /* [tensor]: sum over micro-batches, for gradients and the loss */
    Hash128 norm;        /* the value of the gradient norm over all parameters */
    double loss_scale;   /* the factor of each token's loss in the graph; 0: unknown */
    bool has_gradients;
    uint32_t *leaf_slots, n_leaf_slots; /* hash table: value number of a parameter -> tensor */
    /* every distinct shape, stored once, and results that depend only on shapes */
    LIST(Shape) shapes;
    uint32_t *shape_slots, n_shape_slots;
    uint32_t *canon;          /* [ShapeId of the plan]: index in `shapes` */
    uint64_t *local_elements; /* [ShapeId] */
    LIST(Bound *) bounds;
    uint32_t *bound_slots, n_bound_slots;
    Bound **bound_of_node; /* [node]: its newest binding; NULL: none */
    uint32_t *param_shape; /* [tensor]: the shape of a parameter */
    TensorId *counts;      /* [tensor of uneven rows]: the tensor with their counts; 0: even rows */
    /* the abstract memory of the program: a map from byte ranges to HeldValue */
    RangeMap memory;
    /* [root buffer]: the value of a buffer that is only accessed as a whole; 0: look in `memory`.
     * NULL without by_root. Values found here are right only if the program has no races: another
     * buffer with the same bytes could have overwritten them. */
    uint32_t *whole;
    bool *has_views;          /* [root]: some access is to a part of its bytes */
    struct ValueCache *cache; /* value/cache.h */
    Vals vals;
    LIST(ValueEntry) entries;
    LIST(ValueEntries) lists;
    uint32_t *present_slots, n_present_slots; /* hash table: (value, shape) -> newest val */
    uint32_t *n_updates;                      /* [tensor]: updates in this program */
    uint32_t *n_homes;                        /* [tensor]: count of programs that hold it between
                                                 steps */
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
/* Only the first faults of a proof are listed. This reports how many others there are. */
void verify_report_rest(Verifier *v);
static inline uint64_t verify_address(const Program *p, BufferId b)
{
    uint64_t offset;
    BufferId root = program_root(p, b, &offset);
    return offset | (p->buffers.at[root].space == SPACE_host ? UINT64_C(1) << 63 : 0);
}
/* Returns the number of arguments that ops.def gives the op. An instruction may have one more, the
 * scratch memory of its kernel. */
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
/* True if the instruction computes node n: with the same op, or with an op for a part of it (some
 * of the keys of attention, or some of the rows of a convolution). */
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
/* Call `check` for each instruction, or buffer, of the program. If `check` reports no fault for
 * one, its twins are skipped. So `check` may read only fields that are equal in twins (twins.h). */
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
/* Returns an array [root buffer]: true if a view covers only a part of its bytes. */
bool *verify_has_views(const Program *p, Arena *arena);
void verify_kernels(Verifier *v); /* checks that the instructions of each kernel may be fused */
bool verify_is_product(const Instr *in);
/* Checks instruction pc of a kernel whose first instruction is the matrix product `product`.
 * `before` is the kernel's instruction just before pc. */
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
/* Biases that balance the load of experts must be updated by sign_step, all other parameters by an
 * optimizer. Reports an update of parameter t that breaks this rule, and returns false. */
bool verify_balance(Verifier *v, Pc pc, TensorId t);
/* Returns the index of the gradient among the inputs of an update. In an optimizer's update the
 * clip coefficient follows the gradient. */
static inline uint32_t verify_gradient_arg(const Instr *in)
{
    return in->n_in - (in->op == OP_sign_step ? 1U : 2U);
}
/* ---- stated.c: part of verify_metadata ---- */
void verify_stated(Verifier *v);
/* These check the whole plan. All other checks may get a plan with fewer layers (copies/copies.h),
 * and would miss a fault in a layer that was left out, for example in its name or offset. */
void verify_whole_stated(Verifier *v);
void verify_whole_graph(Verifier *v);   /* structure.c */
void verify_whole_program(Verifier *v); /* program.c */
/* ---- derived.c: part of verify_metadata ---- */
void verify_derived(Verifier *v);
/* ---- attributes.c: part of verify_metadata ---- */
void verify_attributes(Verifier *v);
void verify_dtypes(Verifier *v);

/* True if several units (FSDP units, such as layers) use the memory of this buffer in turn, for
 * gathered parameters or for gradients. */
static inline bool verify_is_room(const Program *p, BufferId b)
{
    const Buffer *root = &p->buffers.at[program_root(p, b, NULL)];
    return root->persistent && !root->unit &&
           (root->category == CATEGORY_gradient || root->category == CATEGORY_gathered);
}

#endif
