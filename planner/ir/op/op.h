/* An op is its index signature, in the notation of einsum. A row of ops.def such as "bsk,kn->bsn"
 * is the only description of an op. Shapes, legal layouts, FLOPs, bytes and the gradients of
 * products are derived from it.
 *
 *   bsk,kn->bsn  inputs, "->", outputs. A letter is an index; it has one size wherever it occurs
 *   lower case   the index may be split over ranks, in all arguments that have it
 *   UPPER CASE   each rank needs the whole index: "bsD" for a norm over the features D
 *   k            on the left only: summed, or reduced to the maximum. If k is split, each rank gets
 *                a partial result
 *   ...          any number of lower-case indices, also none, the same in every argument
 *   (hp)         one dimension made of two indices, h outermost. A split divides h. In (Xu), whose
 *                X is upper case, it divides u; a rank's elements are not contiguous (stride.h)
 *   h~           the input rows that output rows h read through a window (window.h); also w~. If h
 *                is split, a rank also needs some input rows of its neighbours, the halo
 *
 * A point is one combination of values of all indices. "bsk,kn->bsn" has b * s * k * n points of 2
 * FLOPs each. */
#ifndef TANDEM_IR_OP_H
#define TANDEM_IR_OP_H

#include <assert.h>

#include "planner/base/diag.h"
#include "planner/base/str.h"
#include "planner/ir/layout/layout.h"
#include "planner/ir/op/attrs.h"

enum { MAX_IN = 8, MAX_OUT = 4, MAX_ARGS = MAX_IN + MAX_OUT, MAX_LETTERS = 16 };

/* The names of a contraction's forms (Scaling), in the order of OpInfo.scaled and then .along. */
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

/* How an index that is missing on the right of the signature is reduced. */
/* REDUCE_mean is only for collectives over ranks that hold the same value. The mean removes the
 * differences between ranks that rounding has caused. */
typedef enum Reduce { REDUCE_none, REDUCE_sum, REDUCE_max, REDUCE_mean } Reduce;

enum {                     /* OpInfo.flags */
       OP_ACCUMULATES = 1, /* honours attrs.accumulate: if bit j is set, out[j] += result */
       OP_IN_PLACE = 2,    /* out[0] may use the memory of in[0] if nobody reads in[0] afterwards */
       OP_UPDATES = 4, /* out[j] is in[j], changed in place: the same buffer (optimizer state) */
       OP_STATE = 8,   /* reads or writes state that lives between steps; never recomputed */
       /* reads few elements of a table or, with accumulate, adds to few elements */
       OP_SCATTERS = 16,
       OP_SOURCE = 32, /* its outputs come from outside the program (the batch) */
       /* out[0] is in[0] in fewer bits. The gradient of out[0] is used as that of in[0] (straight
        * through) */
       OP_QUANTISES = 64,
       OP_RANGE = 128, /* reads only elements attrs.lo to attrs.hi - 1 of x */
       /* slices: takes entries attrs.first to first + count - 1 of index F; or is the gradient of
        * such an op */
       OP_TAKES = 256,
       /* needs the global indices of its elements (KernelArgs.start and valid). They describe one
        * interval, so a part must be contiguous */
       OP_PLACED = 512,
       /* reads only weights and state, so it runs once a step, even inside a recompute region */
       OP_ONCE = 1024,
       /* a sum that may join a fused kernel that works row by row (Instr.fuse) */
       OP_IN_KERNEL = 2048,
       OP_TURNS = 4096, /* transposes: out[0] is in[0] with its indices in another memory order */
       OP_SIZED = 8192, /* attributes give sizes that no argument has, such as top_k (op_sized) */
       OP_INDEXES = 16384,   /* its outputs are indices, such as token ids, of type i32 */
       OP_WIDE = 32768,      /* out[0] is a statistic, so it has the widest dtype */
       OP_WINDOWED = 131072, /* its signature contains h~ or w~; derived, not stated in ops.def */
       /* like OP_PLACED, but a rank's tokens may also be two chunks of a sequence
        * (KernelArgs.second) */
       OP_CHUNKED = 65536,
       OP_OF_LOSS = 262144, /* part of a loss over logits, or of its gradient */
       OP_AFFINE = 1 << 19, /* in[0] times a factor plus a summand, element by element */
       /* looks up rows of a weight by id (an embedding), or computes that weight's gradient */
       OP_LOOKS_UP = 1 << 20,
       /* its output is the largest magnitude of its input, from which a scale is made */
       OP_MAGNITUDE = 1 << 21,
       /* linear in all its inputs together (add), so all inputs may be partial sums */
       OP_ADDS = 1 << 22,
       OP_SCALES = 1 << 23, /* only multiplies its input by attrs.scale */
       OP_DRAWS = 1 << 24,  /* may draw random numbers (attrs.drop, attrs.site) */
       /* slices each sequence along its tokens, or is the gradient of such an op */
       OP_TAKES_TOKENS = 1 << 25,
       OP_OF_TILE = 1 << 26, /* like OP_TAKES_TOKENS, where tile{} has cut the tokens into pieces */
       /* the kernel of a matrix product may apply it to the product's result */
       OP_IN_PRODUCT = 1 << 27,
       /* with accumulate, merges its output with an earlier one, which attended to other keys:
        * rescales both by their log-sum-exp and adds them */
       OP_MERGES = 1 << 28,
       /* its last input says how many uneven rows it reads or writes (rows.h) */
       OP_COUNTED = 1 << 29,
       /* quantises, or reads, blocks of attrs.group neighbours that share a scale. Index B is the
        * place in the block; index A the pair of 4-bit values in it */
       OP_BLOCKS = 1 << 30
};

/* One dimension of an argument in a parsed signature. */
typedef struct SigDim {
    char letter; /* the letter; the first one for (hp); h for h~ */
    char inner;  /* the second letter of (hp); otherwise 0 */
    bool reads;  /* true for h~: the input rows that a window reads */
} SigDim;

/* True for a dimension such as (Xu), of which a split divides the second index, u. */
static inline bool sig_strides(const SigDim *dim)
{
    return dim->inner >= 'a' && dim->letter < 'a';
}

typedef struct SigTerm {
    uint8_t n_dims;  /* without those for which `...` stands */
    int8_t ellipsis; /* `...` stands before dim[ellipsis]; -1: there is none */
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
    Letters uses; /* the letters of all arguments */
} Signature;

/* One backward node of an op, as ops.def states it: `op` reads `in`, and adds its output j to the
 * gradient of forward input of[j]. A wire is an input of the backward node: the gradient of forward
 * output k (WIRE_d), forward input k (WIRE_i) or forward output k (WIRE_o). OP_pass stands for
 * passing the gradient on unchanged. */
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

/* The forms of a contraction. none: ordinary values. In the other forms, further inputs are the
 * scales of 8-bit or 4-bit operands. tensorwise: one scale for each operand. rowwise: one for each
 * row or column that is not summed. blocks: one for each block of neighbours along the last summed
 * index. pairs: 4-bit values, two in a byte, with a scale for each block and for each operand. */
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
    const char *signature; /* as in ops.def; derived for the gradients _d0 and _d1 */
    OpClass class_;
    Signature sig;
    /* FLOPs of each point; there are as many points as the product of all index sizes */
    double flops_per_point;
    Reduce reduce;
    uint32_t flags;
    uint8_t n_backward;
    Backward backward[MAX_BACKWARD];
    Scaling scaling; /* contractions only */
    /* contractions only: the op for each Scaling, with the same order of indices; 0: none */
    OpKind scaled[SCALINGS];
    /* scaled contractions only: the op that computes the same with operands whose summed indices
     * are last, so that they are contiguous; the op itself if they already are */
    OpKind along;
} OpInfo;

/* The parsed rows of ops.def; NULL until op_rows_build has built them. A malformed row aborts. */
extern const OpInfo *op_rows;
const OpInfo *op_rows_build(void);
/* Returns the row of `op`; for OP_none a row of zeros. Inline, because every loop over a program
 * calls it for every instruction. */
static inline const OpInfo *op_info(OpKind op)
{
    const OpInfo *rows = __atomic_load_n(&op_rows, __ATOMIC_ACQUIRE);
    assert((int)op >= 0 && op < OP_COUNT);
    return (rows != NULL ? rows : op_rows_build()) + op;
}
/* True for collectives in which each rank sends a different message to each other rank. */
static inline bool op_exchanges(OpKind op)
{
    return op == OP_all_to_all || op == OP_exchange_uneven;
}
/* True for the local ops that add or remove the halo of a split dimension (halo.h). */
static inline bool op_is_halo(OpKind op)
{
    return op == OP_halo_pack || op == OP_halo_join || op == OP_halo_cut || op == OP_halo_fold;
}
/* True for the local ops before and after an exchange of contiguous for strided rows (stride.h). */
static inline bool op_is_stride(OpKind op)
{
    return op == OP_stride_pack || op == OP_stride_unpack;
}
/* Returns the op with this name; OP_none if there is none. */
OpKind op_find(const char *name);

/* Parses a signature that is not in ops.def, for tests and the front end. Reports "bad-signature"
 * and returns false if the text is malformed. */
bool op_parse_signature(const char *text, Signature *sig, Diag *d);

/* A signature with sizes: which index each dimension of each argument is, and how large each index
 * is. Arguments are the inputs, then the outputs. The dimensions of `...` get unused lower-case
 * letters. letter[arg][dim] is the letter of a dimension; for (hp), the letter that a split
 * divides. */
typedef struct Binding {
    uint8_t n_in, n_out, n_letters;
    char letters[MAX_LETTERS]; /* all letters, in the order in which they first appear */
    int64_t size['z' + 1];     /* size[l]: global size of index l; 0: not in this op */
    uint8_t n_dims[MAX_ARGS];
    char letter[MAX_ARGS][MAX_DIMS];
    /* true for h~ and w~, whose size is size['H'] or size['W']: the rows that windows read */
    bool reads[MAX_ARGS][MAX_DIMS];
    /* for a dimension such as (Xu): X, the index over whose values u repeats; otherwise 0 */
    char strides[MAX_ARGS][MAX_DIMS];
    char ellipsis[MAX_DIMS + 1]; /* the letters that `...` got, as a string */
} Binding;

/* Binds `op` to the dimensions of its inputs and outputs. If the inputs contain every index of an
 * output, it may be left out (n = 0, at = NULL); op_output_dims then computes it. If the dimensions
 * do not match, returns false and reports "shape-mismatch" at `loc`, with the argument, the index
 * and both sizes. `d` may be NULL. */
typedef struct Dims {
    uint8_t n;
    const int64_t *at;
} Dims;
bool op_bind(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b,
             Loc loc, Diag *d);
/* Writes the dimensions of output j of a bound op. Returns how many there are; -1 if a size is
 * unknown. */
int op_output_dims(OpKind op, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS]);

/* True if index `letter` may be split over ranks: it is lower-case, and the index of its dimension
 * that a split divides (h of (hp)). */
bool op_may_split(OpKind op, char letter);
/* False if `letter` is the strided index u of a dimension (Xu), and n does not divide its size. n
 * ranks would then get pieces of different sizes. */
bool op_strides_over(const Binding *b, char letter, uint32_t n);
/* ---- roles: what an index means, such as tokens, heads or features (ROLE in ops.def) ---- */
/* Returns the role of index `letter` of the op. INDEX_none: it has no role, or stands for `...`. */
IndexRole op_role(OpKind op, char letter);
/* Returns the op's lower-case letter with this role, such as 's' for tokens; 0: none. */
char op_letter(OpKind op, IndexRole role);
/* Returns the op's upper-case letter with this role, such as 'T' for the tokens of keys; 0:
 * none. */
char op_whole_letter(OpKind op, IndexRole role);
/* Returns which dimension of argument `arg` (inputs, then outputs) has this role; -1: none. Does
 * not see dimensions after `...`, whose position varies. */
int op_dim(OpKind op, uint32_t arg, IndexRole role);
/* True if argument `arg` has an upper-case index with this role. */
bool op_is_whole(OpKind op, uint32_t arg, IndexRole role);
/* True for attention and its gradient: each token reads all tokens of its sequence. */
bool op_mixes_tokens(OpKind op);
/* True for the ops of a state-space layer (convolution, scan) and their gradients: each token reads
 * the tokens before it, so a rank needs whole sequences. */
bool op_scans_tokens(OpKind op);
/* True for those of op_scans_tokens that carry a state from token to token: the scan. */
bool op_keeps_state(OpKind op);
bool op_is_optimizer(OpKind op); /* true for adamw and sgd */
/* True if the op has no backward of its own, as ops that compute gradients. For an op that does
 * part of another op's work (op_part, op_in_rows), this is asked of the other op. */
bool op_is_gradient(OpKind op);
/* True for forward ops that slice a sequence along its tokens. Their input may also be token
 * ids. */
bool op_takes_tokens(OpKind op);
bool op_attends(OpKind op); /* true for forward attention of any kind */
/* Ring attention does attention's work in hops, each with the keys of one rank. op_part(attention)
 * is attention_part, the op of one hop; op_whole is the inverse. OP_none: there is no such op. From
 * the rows IN_PARTS of ops.def. */
OpKind op_part(OpKind op);
OpKind op_whole(OpKind op);
/* If the rows of a convolution's input are split over ranks, its work is cut into two ops: `inner`
 * for the output rows that need no halo, and `border` for the others. op_in_rows returns these two;
 * op_of_rows is the inverse. OP_none: there is no such op. From the rows IN_ROWS of ops.def. */
typedef struct RowsOps {
    OpKind inner, border;
} RowsOps;
RowsOps op_in_rows(OpKind op);
/* attrs.parts of an `inner` op: which points of the inner rows it computes, if columns are split,
 * too.
 *   all      all of them
 *   centre   those whose windows read only the rank's own columns. If rows are also split, only
 *            those in the first half of the inner rows
 *   sides    the other points; the op's input then contains the halo of columns */
enum { ROWS_all, ROWS_centre, ROWS_sides };
OpKind op_of_rows(OpKind op);
static inline bool op_is_border(OpKind op)
{
    return op != OP_none && op_in_rows(op_of_rows(op)).border == op;
}
/* For attention and its gradient: returns the dimension of argument `arg` that counts the tokens of
 * keys, all of which every rank needs; -1: none. */
int op_keys_dim(OpKind op, uint32_t arg);
/* Returns the sizes of an attention op by their meaning, given the size of each letter. */
typedef struct HeadsSizes {
    int64_t samples, groups, heads, queries, keys, head, value;
} HeadsSizes;
HeadsSizes op_heads_sizes(OpKind op, const int64_t size['z' + 1]);
/* True if input `arg` of a loss contains the labels of all tokens on every rank. The loss needs
 * them to count the tokens of a group of sequences. */
bool op_reads_whole_labels(OpKind op, uint32_t arg);

/* ---- kinds of ops, derived from the columns of their rows (op_meaning.c). Other code calls these
 * functions and never compares with an op by name. ---- */
/* op_adds_bias: the op adds a bias in[1] to in[0]. op_sums_bias: it computes the gradient of such a
 * bias. */
bool op_adds_bias(OpKind op);
bool op_sums_bias(OpKind op);
/* True if in[1] is a scalar that applies to all of in[0]. */
bool op_is_by_scalar(OpKind op);
/* True if the op computes or applies the one scale with which a whole tensor is quantised. */
bool op_scales_whole(OpKind op);
/* op_reads_logits: the op belongs to a loss and reads the logits. op_starts_loss: it is the first
 * such op, which computes their maximum. */
bool op_reads_logits(OpKind op);
bool op_starts_loss(OpKind op);
/* op_makes_loss: out[0] is the loss, and out[1] how many points it counts. op_means_groups: the
 * loss gives groups of sequences equal weight (Denominator in graph.h). */
bool op_makes_loss(OpKind op);
/* True if the op produces the images of the batch. */
bool op_makes_images(OpKind op);
bool op_means_groups(OpKind op);
/* op_sends_tokens: the op copies tokens to their experts (dispatch). op_collects_tokens: it sums
 * the results of each token's experts (combine). */
bool op_sends_tokens(OpKind op);
bool op_collects_tokens(OpKind op);
/* op_counts_rows: the op counts the tokens that each expert gets (rows.h). op_counts_arg: returns
 * the input that contains these counts; -1: none. */
bool op_counts_rows(OpKind op);
int op_counts_arg(OpKind op);
/* True for sums of products: contractions, convolutions and the products of experts' uneven rows;
 * not for attention and scans. */
bool op_is_product(OpKind op);
/* True if the op computes or multiplies 4-bit values, stored in pairs. */
bool op_has_pairs(OpKind op);
/* True if the op counts how many tokens chose each expert (loads). */
bool op_counts_choices(OpKind op);
/* op_takes_piece: the op slices out the tokens of a piece of tile{}. op_returns_piece: it is the
 * gradient of such an op. */
bool op_takes_piece(OpKind op);
bool op_returns_piece(OpKind op);
/* True for attention and its gradient if keys and values have equally many features. */
bool op_is_plain_attention(OpKind op);
/* Returns the dimension of in[0] that an op with OP_TAKES slices; for its gradient, that of out[0];
 * for other ops -1. */
int op_taken_dim(OpKind op);
/* True for attention's output projection, a product that sums over heads. */
bool op_joins_heads(OpKind op);

/* For a scaled contraction: true if the summed indices of operand i (0 or 1) come last. */
bool op_lies_along(OpKind op, uint32_t i);
/* True if the op works row by row: element [b, s, ...] of the first output depends only on row [b,
 * s] of the inputs, and nothing is summed. Such ops can be fused into one kernel. */
bool op_is_rowwise(OpKind op);
/* True if the op may join a fused kernel that works row by row: it is rowwise, or a sum marked
 * OP_IN_KERNEL. */
bool op_joins_kernel(OpKind op);
/* True if output j of such a kernel's op is a sum over rows, such as the gradient of a norm's
 * weight. It is complete only at the end of the kernel, so no other op of the kernel may read
 * it. */
bool op_sums_rows(OpKind op, uint32_t j);
/* Returns the layout of argument `arg` on a mesh axis that splits index `letter` of the op:
 * SPLIT(d) if the argument has the index as dimension d; otherwise WHOLE for an input, and
 * PARTIAL_SUM or PARTIAL_MAX for an output. For letter 0 (the axis splits nothing): WHOLE. */
int8_t op_axis_layout(OpKind op, const Binding *b, uint32_t arg, char letter);

/* Returns the index of a table in argument `arg` along which the op looks up entries: an index that
 * no other argument has, such as 'v' of an embedding. 0: the op looks nothing up there. */
char op_looked_up(OpKind op, const Binding *b, uint32_t arg);

/* Returns the op's FLOPs for these sizes, global or local. Of a table that is looked up, only the
 * chosen entries count. `seen`: the fraction of keys that attention computes (op_seen), otherwise
 * 1. */
double op_flops(OpKind op, const Binding *b, const int64_t size['z' + 1], double seen);

/* ---- attributes (attrs.h) ---- */
/* The bounds of an attribute of an op, from attrs.def. */
typedef struct AttrBounds {
    uint32_t attr;
    /* the script or its model states it; else it follows from the rest of the plan */
    bool is_given;
    bool above_lo, below_hi; /* true: `lo` itself, or `hi` itself, is not allowed */
    double lo, hi;
} AttrBounds;
/* Returns false if the op does not have this attribute, which must then be zero. */
bool op_attr_bounds(OpKind op, uint32_t attr, AttrBounds *bounds);
/* True if each attribute is within its bounds and none contradicts another. Otherwise appends a
 * message about the wrong one to `why`. Does not compare them with sizes; op_grouped does. */
bool op_attrs_fit(OpKind op, const Attrs *attrs, Str *why);
/* The part of op_grouped for ops such as rope and image: true if the sizes fit the attributes. */
bool op_attrs_match(OpKind op, const Binding *b, const Attrs *attrs);

/* Returns which fraction of all keys a query reads on average: 1/2 under a causal mask, less with a
 * window. For the scan of a state-space layer, returns its work when computed in chunks, divided by
 * the work of the plain recurrence (1 or more). For other ops returns 1. */
double op_seen(OpKind op, const Binding *b, const Attrs *attrs);
/* For ops with OP_TAKES: true if attrs.first and attrs.count lie within the sliced index and fit
 * the other sizes. */
bool op_takes(OpKind op, const Binding *b, const Attrs *attrs);
/* For ops with OP_SIZED: sets the sizes that no argument has (experts, top_k, capacity) from the
 * attributes. Returns false if attributes and sizes contradict each other. */
bool op_sized(Binding *b, const Attrs *attrs);
/* Like op_bind, but the outputs are unknown. Sizes that no input has come from the attributes:
 * groups of channels, points of a window, rows of a resized field. */
bool op_infer(OpKind op, const Dims *in, uint32_t n_in, const Attrs *attrs, Binding *b, Loc loc,
              Diag *d);
/* True if all sizes of the bound op fit its attributes and each other, such as channels that are a
 * multiple of the groups. */
bool op_grouped(OpKind op, const Binding *b, const Attrs *attrs);
/* Returns which arguments are ids, labels, slots or counts (i32): bit i for argument i. */
uint32_t op_index_args(OpKind op);
/* The most experts of a layer, and the most groups of experts, that the routing ops support. */
enum { MOST_EXPERTS = 1024, MOST_EXPERT_GROUPS = 64 };

#endif
