/* An op is its index signature. ops.def is the only list of ops; shapes, legal layouts, FLOPs,
 * bytes and gradients of contractions are derived from its rows.
 *
 * Grammar of a signature: "in,in->out,out". A lower-case letter is an index that may be split over
 * ranks; an UPPER-CASE letter must be whole on each rank. A letter that is missing on the right is
 * reduced, so splitting it leaves a partial result. `...` stands for any number (also 0) of
 * splittable indices, the same in every term. `(hp)` is one dimension made of two indices; the
 * first, h, is outermost. The first index carries the split, unless it is UPPER-CASE. Then the
 * second index carries the split, and the elements of a part are not contiguous (stride.h). `h~` is
 * the dimension of the input rows that output rows h read (window.h). Where h is split, parts of h~
 * have a halo: rows of other parts. Only h and w have windows. A letter has one size per row. */
#ifndef TANDEM_IR_OP_H
#define TANDEM_IR_OP_H

#include <assert.h>

#include "planner/base/diag.h"
#include "planner/base/str.h"
#include "planner/ir/layout/layout.h"
#include "planner/ir/op/attrs.h"

enum { MAX_IN = 8, MAX_OUT = 4, MAX_ARGS = MAX_IN + MAX_OUT, MAX_LETTERS = 16 };

/* The forms of a contraction by name, in the order of OpInfo.scaled and .along. */
#define CONTRACT_FORMS(X, name)                                                                    \
    X(name)                                                                                        \
    X(name##_tensorwise)                                                                           \
    X(name##_rowwise)                                                                              \
    X(name##_blocks) X(name##_pairs) X(name##_tensorwise_along) X(name##_rowwise_along)

typedef enum OpKind {
    OP_none,
#define COMPUTE(name, signature, flops, reduce, backward, flags) OP_##name,
#define CONTRACT_3(name)                                         OP_##name, OP_##name##_d0, OP_##name##_d1,
#define CONTRACT(name, signature)                                CONTRACT_FORMS(CONTRACT_3, name)
#define PRODUCT(name, signature)                                 CONTRACT_3(name)
#define RESHAPE(name, flags)                                     OP_##name,
#define COMM(name)                                               OP_##name,
#include "planner/ir/op/ops.def"
    OP_COUNT
} OpKind;
#undef CONTRACT_3

typedef enum OpClass {
    OP_CLASS_none,
    OP_CLASS_compute,
    OP_CLASS_contract,
    OP_CLASS_reshape,
    OP_CLASS_comm
} OpClass;

/* The reduction over an index that is missing on the right of the signature. */
/* mean exists for collectives only, over ranks that hold the same value. It keeps the value, and
 * removes the drift that rounding causes between ranks. */
typedef enum Reduce { REDUCE_none, REDUCE_sum, REDUCE_max, REDUCE_mean } Reduce;

enum {                     /* OpInfo.flags */
       OP_ACCUMULATES = 1, /* honours attrs.accumulate: bit j set means out[j] += instead of = */
       OP_IN_PLACE = 2,    /* out[0] may take the memory of in[0] if in[0] is not read afterwards */
       OP_UPDATES = 4,     /* out[j] is in[j] changed in place (optimizer state): same buffer */
       OP_STATE = 8,       /* reads or writes state that lives between steps; never recomputed */
       /* reads few elements of a table, or with accumulate adds to few elements */
       OP_SCATTERS = 16,
       OP_SOURCE = 32, /* produces data from outside the program (the batch) */
       /* out[0] is in[0] in fewer bits; the gradient of out[0] serves as the gradient of in[0] */
       OP_QUANTISES = 64,
       OP_RANGE = 128,  /* reads only elements [lo, hi) of x */
       OP_TAKES = 256,  /* takes `count` entries of index F from `first` on; or is the gradient of
                           such an op, which puts the entries back */
       OP_PLACED = 512, /* depends on global positions (KernelArgs.start and valid), which describe
                           one interval only */
       OP_ONCE = 1024,  /* reads only weights and state; runs once a step, even in a recompute
                           region */
       OP_IN_KERNEL = 2048,  /* a sum that may be part of a kernel that works row by row
                              * (Instr.fuse) */
       OP_TURNS = 4096,      /* out[0] is in[0] with its indices in another memory order */
       OP_SIZED = 8192,      /* attributes give sizes that no argument has (op_sized) */
       OP_INDEXES = 16384,   /* its outputs are indices (such as ids) of type i32 */
       OP_WIDE = 32768,      /* its first output is a statistic, so it has the widest type */
       OP_WINDOWED = 131072, /* derived: the row has an index h~ or w~ */
       OP_CHUNKED = 65536,  /* like OP_PLACED, but a rank's tokens may be two chunks of the sequence
                               (KernelArgs.second) */
       OP_OF_LOSS = 262144, /* an op of the loss over logits, or of its gradient */
       OP_AFFINE = 1 << 19, /* multiplies each element of in[0] by a number and adds a number */
       OP_LOOKS_UP = 1 << 20,  /* looks up entries of a table of weights by id, or makes the table's
                                * gradient */
       OP_MAGNITUDE = 1 << 21, /* its output is the largest magnitude: a scale */
       OP_ADDS = 1 << 22,      /* linear in all its inputs together, so its inputs may be partial
                                * sums */
       OP_SCALES = 1 << 23,    /* multiplies its input by attrs.scale and does nothing else */
       OP_DRAWS = 1 << 24,     /* may draw random numbers (attrs.drop, attrs.site) */
       OP_TAKES_TOKENS = 1 << 25, /* takes part of the tokens of each sequence, or puts their
                                   * gradient back */
       OP_OF_TILE = 1 << 26,      /* like OP_TAKES_TOKENS, for a piece made by tile{} */
       OP_IN_PRODUCT = 1 << 27,   /* the kernel of a product may compute it from the product's
                                   * result */
       /* with attrs.accumulate, merges its result with the result for other keys: rescales both,
        * and adds them */
       OP_MERGES = 1 << 28,
       OP_COUNTED = 1 << 29, /* its last input counts the uneven rows that it reads or writes */
       /* index B counts the attrs.group neighbours of a block, which share a scale; index A counts
        * pairs of them */
       OP_BLOCKS = 1 << 30
};

/* One dimension of a term of the signature, after parsing. */
typedef struct SigDim {
    char letter; /* letter of the index; h for both (hp) and h~ */
    char inner;  /* 0, or the second letter: p of (hp) */
    bool reads;  /* true for h~: the rows that are read */
} SigDim;

/* True for (Xu): index u carries the split, and the elements of one u are not contiguous. */
static inline bool sig_strides(const SigDim *dim)
{
    return dim->inner >= 'a' && dim->letter < 'a';
}

typedef struct SigTerm {
    uint8_t n_dims;  /* the ellipsis does not count */
    int8_t ellipsis; /* position of `...` among the dims, or -1 */
    SigDim dim[MAX_DIMS];
} SigTerm;

/* A set of letters: bit 0 is A, bit 32 is a. */
typedef uint64_t Letters;

static inline Letters letters_with(char letter)
{
    return letter >= 'A' && letter <= 'z' ? UINT64_C(1) << (letter - 'A') : 0;
}

typedef struct Signature {
    uint8_t n_in, n_out;
    SigTerm in[MAX_IN], out[MAX_OUT];
    Letters uses; /* the letters of all terms */
} Signature;

/* One backward node of an op: `op` reads `in`, and its outputs add to the gradients of the
 * forward inputs `of`. A wire is the gradient of output k (WIRE_d), forward input k (WIRE_i) or
 * forward output k (WIRE_o). OP_pass passes the gradient on unchanged. */
typedef enum WireKind { WIRE_d, WIRE_i, WIRE_o } WireKind;
typedef struct Wire {
    uint8_t kind, index;
} Wire;
typedef struct Backward {
    OpKind op;
    uint8_t n_in, n_of;
    Wire in[MAX_IN];
    uint8_t of[MAX_OUT];
} Backward;

enum { MAX_BACKWARD = 3 };

/* The forms of a contraction: on plain numbers, or on 8-bit numbers with two more inputs that
 * hold scales. A scale belongs to a whole operand (tensorwise), to each index that is not
 * summed (rowwise), or to a block of neighbours along the last summed index (blocks). pairs: 4-bit
 * numbers, two in a byte, with scales for blocks and for whole operands. */
typedef enum Scaling {
    SCALING_none,
    SCALING_tensorwise,
    SCALING_rowwise,
    SCALING_blocks,
    SCALING_pairs,
    SCALINGS
} Scaling;

typedef struct OpInfo {
    const char *name;
    const char *signature; /* text; derived for the variants _d0 and _d1 */
    OpClass class_;
    Signature sig;
    double flops_per_point; /* FLOPs for each point; the number of points is the product of the
                               sizes of all letters of the row */
    Reduce reduce;
    uint32_t flags;
    uint8_t n_backward;
    Backward backward[MAX_BACKWARD];
    Scaling scaling;         /* set for contractions only */
    OpKind scaled[SCALINGS]; /* contractions: the form for each scaling, with operands laid out as
                                in the row; 0: none */
    OpKind along; /* the form of a scaled contraction whose operands are contiguous along the summed
                     index; the op itself if its operands already are */
} OpInfo;

/* The table's rows; NULL until op_rows_build has built them from ops.def. A malformed row is a bug
 * and aborts. */
extern const OpInfo *op_rows;
const OpInfo *op_rows_build(void);
/* Returns the table row of `op`. For OP_none all fields are 0. It is inline, because every loop
 * over a program calls it for every instruction. */
static inline const OpInfo *op_info(OpKind op)
{
    const OpInfo *rows = __atomic_load_n(&op_rows, __ATOMIC_ACQUIRE);
    assert((int)op >= 0 && op < OP_COUNT);
    return (rows != NULL ? rows : op_rows_build()) + op;
}
/* True for collectives that send a different message to each member. */
static inline bool op_exchanges(OpKind op)
{
    return op == OP_all_to_all || op == OP_exchange_uneven;
}
/* True for the local ops that add or remove the halo of a split dimension. */
static inline bool op_is_halo(OpKind op)
{
    return op == OP_halo_pack || op == OP_halo_join || op == OP_halo_cut || op == OP_halo_fold;
}
/* True for the local ops before and after an exchange between contiguous rows and strided rows. */
static inline bool op_is_stride(OpKind op)
{
    return op == OP_stride_pack || op == OP_stride_unpack;
}
/* Returns the op of that name, or OP_none. */
OpKind op_find(const char *name);

/* Parses a signature that is not in ops.def (used by tests and by the front end). Reports
 * "bad-signature" if the text is wrong. */
bool op_parse_signature(const char *text, Signature *sig, Diag *d);

/* A signature bound to the dimensions of its arguments. Ellipsis indices get free lower-case
 * letters. letter[arg][dim] is the index letter of a dimension; for (hp), the letter that carries
 * the split. Args count inputs, then outputs. */
typedef struct Binding {
    uint8_t n_in, n_out, n_letters;
    char letters[MAX_LETTERS]; /* the letters in order of first appearance */
    int64_t size['z' + 1];     /* global size of each letter; 0: not in this op */
    uint8_t n_dims[MAX_ARGS];
    char letter[MAX_ARGS][MAX_DIMS];
    bool reads[MAX_ARGS][MAX_DIMS]; /* the dimension is h~ (or w~): its size is size['H'], the
                                       number of rows that are read */
    /* for a dimension (Xu) the letter X: each of the size['X'] runs has every u once; otherwise
     * 0 */
    char strides[MAX_ARGS][MAX_DIMS];
    char ellipsis[MAX_DIMS + 1]; /* the letters for which `...` stands; ends with a 0 byte */
} Binding;

/* op_bind binds `op` to the dimensions of its arguments, inputs then outputs. An output may have n
 * = 0 and at = NULL if every index of it appears in an input; op_output_dims then derives its
 * dimensions. On failure reports "shape-mismatch" at `loc` with op, argument, index and both sizes,
 * and returns false. */
typedef struct Dims {
    uint8_t n;
    const int64_t *at;
} Dims;
bool op_bind(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b,
             Loc loc, Diag *d);
/* Writes the dimensions of output j, after op_bind. Returns their number, or -1 when the inputs do
 * not determine a size. */
int op_output_dims(OpKind op, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS]);

/* True if `letter` may be split over ranks: a lower-case letter of the row that is the split index
 * of its dimension. */
bool op_may_split(OpKind op, char letter);
/* True unless the index `letter` is strided and its size is not a multiple of n. In that case its
 * pieces would differ in size. */
bool op_strides_over(const Binding *b, char letter, uint32_t n);
/* ---- roles of indices, as the comment at the top of ops.def lists them ---- */
/* Returns the role of the letter in the op's row; none if it has no role or stands for `...`. */
IndexRole op_role(OpKind op, char letter);
/* Returns the row's letter for an index of that role that may be split; 0: the row has none. */
char op_letter(OpKind op, IndexRole role);
/* Returns the row's letter for an index of that role that must stay whole; 0: the row has none. */
char op_whole_letter(OpKind op, IndexRole role);
/* Returns the number of the dimension with that role in argument `arg` (inputs, then outputs), not
 * counting dimensions after `...`. Returns -1 if there is none. */
int op_dim(OpKind op, uint32_t arg, IndexRole role);
/* True if the argument has an index of that role that must be whole. */
bool op_is_whole(OpKind op, uint32_t arg, IndexRole role);
/* True if each token reads all tokens of its sequence, head by head: attention and its gradient. */
bool op_mixes_tokens(OpKind op);
/* True if each token reads the tokens before it, group by group, so that the op needs whole
 * sequences. This holds for the ops of a state-space layer and their gradients. */
bool op_scans_tokens(OpKind op);
/* True for those ops of op_scans_tokens that carry a state from one token to the next. */
bool op_keeps_state(OpKind op);
bool op_is_optimizer(OpKind op); /* true if the op updates a weight by its gradient */
/* True if the op's row has no backward, as with ops that compute gradients. For an op that does
 * part of another op's work (op_part, op_in_rows), returns the answer for the other op. */
bool op_is_gradient(OpKind op);
/* True if the op takes some of the tokens of each sequence. The tensor from which it takes may also
 * hold token ids. */
bool op_takes_tokens(OpKind op);
bool op_attends(OpKind op); /* true for the forward op of any kind of attention */
/* IN_PARTS in ops.def pairs an op with a partial op, which does the work of the op for some of the
 * keys. op_part returns the partial op of `op`. op_whole returns the op whose partial op is `op`.
 * OP_none: there is none. */
OpKind op_part(OpKind op);
OpKind op_whole(OpKind op);
/* IN_ROWS in ops.def splits an op with windows by output rows. op_in_rows returns the two ops that
 * do the work of `op` for the inner rows and for the border rows. op_of_rows returns the op for
 * which `op` does one of these parts. OP_none: there is none. */
typedef struct RowsOps {
    OpKind inner, border;
} RowsOps;
RowsOps op_in_rows(OpKind op);
/* attrs.parts of the op for inner rows: which points it computes.
 *   all      all points of the inner rows
 *   centre   the points whose windows read only the rank's own columns. If the rows are split, too,
 *            only those in the first half of the inner rows.
 *   sides    the other points; the op's input then has the halo of columns */
enum { ROWS_all, ROWS_centre, ROWS_sides };
OpKind op_of_rows(OpKind op);
static inline bool op_is_border(OpKind op)
{
    return op != OP_none && op_in_rows(op_of_rows(op)).border == op;
}
/* Returns the dimension of argument `arg` that has the keys' tokens; -1 if there is none. The op
 * needs this dimension whole. */
int op_keys_dim(OpKind op, uint32_t arg);
/* For an op of op_mixes_tokens: returns the size of each role, given the size of each letter. */
typedef struct HeadsSizes {
    int64_t samples, groups, heads, queries, keys, head, value;
} HeadsSizes;
HeadsSizes op_heads_sizes(OpKind op, const int64_t size['z' + 1]);
/* True if input `arg` holds the labels of all tokens, so that the op can count the tokens of a
 * mean. */
bool op_reads_whole_labels(OpKind op, uint32_t arg);

/* ---- what an op means, derived from the columns of its row (op_meaning.c). Code outside the table
 * calls these functions and never compares with an op by name. ---- */
/* op_adds_bias: true if the op adds a bias, in[1], with the trailing dimensions of in[0].
 * op_sums_bias: true if it sums the gradient of such a bias. */
bool op_adds_bias(OpKind op);
bool op_sums_bias(OpKind op);
/* True if in[1] is one number for the whole of in[0]. */
bool op_is_by_scalar(OpKind op);
/* True if the op finds or applies the one scale with which a whole tensor is quantised. */
bool op_scales_whole(OpKind op);
/* op_reads_logits: true if the op reads the logits of a loss. op_starts_loss: true if it is the
 * first op that reads them (their maximum). */
bool op_reads_logits(OpKind op);
bool op_starts_loss(OpKind op);
/* op_makes_loss: true if out[0] is the loss and out[1] the number of points that it counts.
 * op_means_groups: true if the loss gives groups of sequences equal weight. */
bool op_makes_loss(OpKind op);
/* True if the op produces the batch's images, in patches. */
bool op_makes_images(OpKind op);
bool op_means_groups(OpKind op);
/* op_sends_tokens: true if the op copies tokens into the slots of experts. op_collects_tokens: true
 * if it sums the slots of each token. */
bool op_sends_tokens(OpKind op);
bool op_collects_tokens(OpKind op);
/* op_counts_rows: true if the op counts the uneven rows of experts. op_counts_arg: returns the
 * input that holds such counts; -1: none. */
bool op_counts_rows(OpKind op);
int op_counts_arg(OpKind op);
/* True for sums of products: contractions, convolutions and the products of uneven rows. False for
 * attention and scans. */
bool op_is_product(OpKind op);
/* True if the op makes or multiplies 4-bit numbers, two in an element. */
bool op_has_pairs(OpKind op);
/* True if the op counts how often each expert was chosen. */
bool op_counts_choices(OpKind op);
/* op_takes_piece: true if the op takes the tokens of a piece of tile{}. op_returns_piece: true if
 * it puts their gradient back. */
bool op_takes_piece(OpKind op);
bool op_returns_piece(OpKind op);
/* True for attention, or its gradient, if a value has as many features as a key. */
bool op_is_plain_attention(OpKind op);
/* For OP_TAKES: returns the dimension of in[0] from which the op takes entries. For the gradient of
 * such an op, it is a dimension of out[0]. For other ops: -1. */
int op_taken_dim(OpKind op);
/* True for a product that sums over heads: attention's output projection. */
bool op_joins_heads(OpKind op);

/* For a scaled contraction: true if the last indices of operand i are the summed ones. */
bool op_lies_along(OpKind op, uint32_t i);
/* True if the op works row by row: it sums nothing. Each point of the first output depends only on
 * its own row (the leading [b,s]) of the inputs. Such ops can run as one kernel. Derived from the
 * signature. */
bool op_is_rowwise(OpKind op);
/* True if the op may join a kernel that works row by row: the op is rowwise, or a sum that the
 * table marks OP_IN_KERNEL. */
bool op_joins_kernel(OpKind op);
/* True if output j sums over many rows. The sum is complete only when the kernel ends, so no other
 * op in the same kernel may read it. */
bool op_sums_rows(OpKind op, uint32_t j);
/* Returns the layout that argument `arg` has on an axis that splits `letter`. An input must have
 * this layout, and an output gets it. It is SPLIT(dim), WHOLE, PARTIAL_SUM or PARTIAL_MAX. letter
 * 0: WHOLE. */
int8_t op_axis_layout(OpKind op, const Binding *b, uint32_t arg, char letter);

/* For an op that looks up entries of a table in argument `arg`: returns the letter of the table's
 * index. No other argument has this index. 0: the op looks nothing up. */
char op_looked_up(OpKind op, const Binding *b, uint32_t arg);

/* Returns the FLOPs over all points. A lookup counts only the entry that it chooses. `size` may be
 * global or local. `seen` is the fraction of keys that attention computes (op_seen), or 1. */
double op_flops(OpKind op, const Binding *b, const int64_t size['z' + 1], double seen);

/* ---- attributes of an op ---- */
/* The bounds of an op's attribute, as in attrs.def. */
typedef struct AttrBounds {
    uint32_t attr;
    bool is_given;           /* the script states it; else it follows from the rest of the plan */
    bool above_lo, below_hi; /* the bound itself is not allowed */
    double lo, hi;
} AttrBounds;
/* Returns false if the op has no such attribute; the attribute must then be zero. */
bool op_attr_bounds(OpKind op, uint32_t attr, AttrBounds *bounds);
/* True if each attribute is within its bounds, and the attributes do not contradict each other.
 * Otherwise appends to `why` which attribute is wrong. Sizes are not checked here: op_grouped and
 * similar functions check them. */
bool op_attrs_fit(OpKind op, const Attrs *attrs, Str *why);
/* For rope, segment, turn_poles, image, offsets and xent_loss_mean: true if the sizes fit the
 * attributes. op_grouped calls it. */
bool op_attrs_match(OpKind op, const Binding *b, const Attrs *attrs);

/* Returns the fraction of all keys that a query reads on average: half if attention is causal, less
 * with a window. For a state-space layer it returns the work done in chunks, divided by the work on
 * states. For any other op it returns 1. */
double op_seen(OpKind op, const Binding *b, const Attrs *attrs);
/* For OP_TAKES: true if the sizes fit the attributes `first` and `count`. */
bool op_takes(OpKind op, const Binding *b, const Attrs *attrs);
/* For OP_SIZED: true if the sizes fit the attributes. An index whose size no argument gives takes
 * its size from the attributes. */
bool op_sized(Binding *b, const Attrs *attrs);
/* Does the work of op_bind for the inputs alone. Attributes give the sizes that no input has:
 * groups of channels, points of a window, rows of a resized field. */
bool op_infer(OpKind op, const Dims *in, uint32_t n_in, const Attrs *attrs, Binding *b, Loc loc,
              Diag *d);
/* True if the numbers of channels, groups and window points fit the attributes. */
bool op_grouped(OpKind op, const Binding *b, const Attrs *attrs);
/* Returns the arguments that are ids, labels or slots (i32): bit i for argument i. */
uint32_t op_index_args(OpKind op);
/* MOST_EXPERTS: the largest number of experts for which the routing can count tokens.
 * MOST_EXPERT_GROUPS: the largest number of their groups. */
enum { MOST_EXPERTS = 1024, MOST_EXPERT_GROUPS = 64 };

#endif
