/* A model before it is distributed: what one micro-batch computes, with global shapes.
 *
 *   Tensor  a value: a parameter, an activation, a gradient, ...
 *   Node    an op that reads tensors and writes tensors. Forward nodes come first; after the
 *           backward pass of the compiler, nodes that compute gradients follow
 *   Module  a part of the model with its own path, such as "layers.3.attention"
 *   Unit    parameters that share one flat buffer, such as those of an FSDP unit
 *
 * The graph has no communication. A pass that distributes the model, such as tp, writes layouts
 * (layout.h) and flags into tensors and nodes. Lowering then turns the graph into programs and
 * inserts a collective wherever a layout must change. The verifier checks these programs against
 * the graph. */
#ifndef TANDEM_IR_GRAPH_H
#define TANDEM_IR_GRAPH_H

#include "planner/base/intern.h"
#include "planner/ir/op/op.h"

typedef uint32_t TensorId, NodeId, ModuleId, UnitId, AttrsId; /* 0: none */

/* The divisor of a step's loss, the sum over tokens. kept: the count of tokens with a label
 * >= 0. all: the count of all tokens. microbatch_mean: every group of sequences has the same
 * weight; each group's sum is divided by its count of kept tokens, and the result by the count of
 * groups. */
#define DENOMINATORS(X) X(kept) X(all) X(microbatch_mean)
typedef enum Denominator {
#define X(name) DENOMINATOR_##name,
    DENOMINATORS(X)
#undef X
        DENOMINATOR_COUNT
} Denominator;

/* ROLE_state: a tensor without gradient that keeps its value between steps, such as the vectors of
 * a spectral norm. Unlike a parameter it is whole on every rank. */
typedef enum Role {
    ROLE_activation,
    ROLE_param,
    ROLE_gradient,
    ROLE_input,
    ROLE_loss,
    ROLE_state
} Role;

typedef enum InitKind { INIT_none, INIT_zeros, INIT_ones, INIT_normal, INIT_uniform } InitKind;
typedef struct Init {
    InitKind kind;
    double a, b; /* normal: mean, standard deviation; uniform: lower and upper bound */
} Init;

/* How tensor parallelism splits a parameter, as the module or the plan asks for. column: along its
 * outputs. row: along its inputs. vocab: along the vocabulary. */
typedef enum TpStyle { TP_none, TP_column, TP_row, TP_vocab } TpStyle;

typedef struct Tensor {
    /* a parameter's path, "layers.3.attention.wq.weight"; other tensors have any unique name */
    const char *name;
    Role role;
    DType dtype; /* dtype of an activation; dtype of a parameter while ops use it */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS]; /* global */
    DealId deal[MAX_DIMS]; /* deals (layout.h) of the dimensions that `use` splits */
    /* layout while ops use it; layout between its forward use and its backward use */
    Layout use, kept;
    /* a pass has chosen `use`, so the propagation of layouts must not change it */
    bool use_is_fixed;
    NodeId producer; /* the node that writes it first; 0: a parameter, or an input without a node */
    /* `grad` is this tensor's gradient; this tensor is the gradient of `grad_of` */
    TensorId grad, grad_of;
    ModuleId module;
    Loc loc;
    /* The fields from here on are set for parameters only. */
    /* dtype between steps; dtype in which its gradient is summed over ranks */
    DType rest_dtype, reduce_dtype;
    TpStyle tp;
    /* the dimensions that TP_column and TP_row split; 1 and 0 for the weight [in, out] of a
     * linear */
    uint8_t column_dim, row_dim;
    /* For a fused projection of queries, keys and values. Users see its features in the original
     * order: all queries, all keys, all values. They are stored group by group, so that tp can
     * split the groups: the queries of KV head 0, its key, its value, then those of KV head 1.
     * Dimensions order_dim and order_dim + 1 are [groups, features of a group]. `order` is a deal
     * whose part i lists the original indices of group i. 0: stored in the original order. */
    DealId order;
    uint8_t order_dim;
    Init init;
    uint64_t init_stream; /* key of the random numbers of its initial value: a hash of the name */
    UnitId unit;
    /* where this rank's part of the parameter starts in the flat buffer of its unit [elements] */
    uint64_t flat_offset;
    /* mesh axes along which each rank has only a summand of the parameter's gradient. Data-parallel
     * axes are not included. */
    AxisSet partial;
    bool input_embedding; /* an input embedding, which the default MFU does not count */
    /* True for a parameter that is not trained. A backward node may compute its gradient as a
     * by-product of another one; the program then discards it. */
    bool frozen;
} Tensor;

/* An op with the tensors that it reads and writes. Several backward nodes may write the same
 * gradient tensor; its value is the sum of what they write. */
typedef struct Node {
    OpKind op;
    uint8_t n_in, n_out;
    /* In a recompute region (activation checkpointing): true if the outputs are kept, so the node
     * does not run again in the backward pass. */
    bool keep;
    TensorId in[MAX_IN], out[MAX_OUT];
    AttrsId attrs;
    ModuleId module;
    /* `layer`: 1 + the index of its transformer block, 0 outside blocks; `stage`: pipeline stage */
    uint32_t layer, stage;
    /* the recompute region that contains it: a group of nodes that run again before their backward;
     * 0: none */
    uint32_t region;
    /* for a backward node: the forward node for whose inputs it computes gradients */
    NodeId forward;
    /* tile{} cuts the head and the loss into pieces along the tokens, to save memory. 1 + the index
     * of the piece that the node computes; 0: not cut. The backward nodes of a piece run directly
     * after its forward nodes. */
    uint32_t tile;
    /* split[a]: the index letter of the op's signature that mesh axis a splits, such as 'n' of
     * "bsk,kn->bsn" for a column-parallel linear on tp. 0: all ranks of the axis do the same
     * work. */
    char split[MAX_AXES];
    Loc loc;
} Node;

typedef struct Module {
    const char *path;   /* "layers.3.attention"; "" for the whole model */
    const char *class_; /* the constructor that made it: "linear", "attention", "block" */
    ModuleId parent;
    /* a transformer block: fsdp2 makes a unit of it, full checkpointing a recompute region */
    bool is_block;
    bool fsdp2_shard; /* the model asks that this module alone be an FSDP unit */
    uint32_t layer;   /* the block that contains it, counted from 1; 0: none */
    Loc loc;
} Module;

/* Parameters that share one flat, padded buffer, so that one collective gathers or reduces them
 * all: an FSDP unit, a DDP bucket, or all parameters of the model. Weights, gradients and optimizer
 * state have the same order of elements. Parameters whose gradients are partial sums on the same
 * axes (Tensor.partial) are neighbours, so that one all_reduce sums them. */
typedef struct Unit {
    const char *name;      /* such as "layers.3", "root" or "bucket 2" */
    LIST(TensorId) params; /* in the order of the flat buffer */
    /* Between steps, the flat buffer is divided over the axes `shard`. Gradients are summed over
     * `shard` and over `replicate`. */
    AxisSet shard, replicate;
    /* length of the flat buffer with the gaps between parameters, but without the padding at its
     * end */
    uint64_t elements;
    /* `elements`, rounded up so that every shard has the same length and is aligned */
    uint64_t padded;
    DType dtype, rest_dtype, reduce_dtype;
    DType state_dtype; /* dtype of Adam's moments; DT_none: no moments */
} Unit;

typedef struct ModelInfo { /* for reports and MFU; `name` is not part of the plan's id */
    const char *name;
    uint64_t n_params, n_params_no_embedding;
    uint32_t n_layers;
    uint32_t d_model, n_heads, n_kv_heads, head_dim, vocab, seq;
} ModelInfo;

typedef struct Graph {
    LIST(Tensor) tensors; /* [0] is none, also in nodes, modules and units */
    LIST(Node) nodes; /* forward nodes in execution order, then backward nodes in execution order */
    LIST(Module) modules;
    LIST(Unit) units;
    LIST(Attrs) attrs; /* equal attributes are stored once; attrs[0] has only zeros */
    Intern attrs_index;
    Deals deals;
    /* nodes 1 to n_forward are forward nodes. 0 before the backward pass, when all nodes are. */
    uint32_t n_forward;
    TensorId loss;
    ModelInfo info;
} Graph;

void graph_init(Graph *g, Arena *arena);
/* Returns a copy of `g` with its own tensors, nodes, modules and units. Names, and the lists inside
 * units, are shared with `g`. */
Graph graph_copy(const Graph *g, Arena *arena);
/* Returns the index of `attrs` in g->attrs. Adds the attributes if they are new. */
AttrsId graph_attrs(Graph *g, Arena *arena, const Attrs *attrs);
/* True for a parameter that the step updates. */
static inline bool tensor_trains(const Tensor *t)
{
    return t->role == ROLE_param && !t->frozen;
}
/* True for the gradient of a trained parameter. Unlike other gradients it is summed over the
 * micro-batches of a step, and the update reads it. */
static inline bool graph_is_param_gradient(const Graph *g, const Tensor *t)
{
    return t->grad_of && tensor_trains(&g->tensors.at[t->grad_of]);
}
/* True for a unit of frozen parameters. A unit contains only frozen or only trained parameters. */
static inline bool graph_is_frozen(const Graph *g, UnitId u)
{
    const Unit *unit = &g->units.at[u];
    return unit->params.n > 0 && g->tensors.at[unit->params.at[0]].frozen;
}
/* True for the bias with which a router balances its experts (DeepSeek-V3). Its "gradient" is a
 * count: how many tokens chose each expert. It has its own update rule (sign_step) in place of the
 * optimizer. Only valid after the backward pass. */
static inline bool graph_balances(const Graph *g, const Tensor *t)
{
    const NodeId by = t->role == ROLE_param && t->grad ? g->tensors.at[t->grad].producer : 0;
    return by != 0 && op_counts_choices(g->nodes.at[by].op);
}
/* True for a unit of such balancing biases. A unit never mixes them with other parameters. */
static inline bool graph_is_balance(const Graph *g, UnitId u)
{
    const Unit *unit = &g->units.at[u];
    return unit->params.n > 0 && graph_balances(g, &g->tensors.at[unit->params.at[0]]);
}
static inline const Attrs *graph_attrs_at(const Graph *g, AttrsId id)
{
    return &g->attrs.at[id];
}
TensorId graph_tensor(Graph *g, Arena *arena, const char *name, Role role, DType dtype,
                      uint32_t n_dims, const int64_t *dim, Loc loc);
/* Appends a node with existing outputs. It becomes the producer of each output that has none. */
NodeId graph_node(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in,
                  const TensorId *out, uint32_t n_out, const Attrs *attrs, ModuleId module,
                  Loc loc);
/* Appends a node and new output tensors, whose dimensions follow from the inputs. Returns output 0.
 * If the shapes do not fit, reports "shape-mismatch" and returns 0. */
TensorId graph_op(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in, DType dtype,
                  const Attrs *attrs, ModuleId module, Loc loc, Diag *d);
/* Sets Tensor.producer of all tensors again, after nodes have been moved. */
void graph_find_producers(Graph *g);
/* Computes all fields of g->info except `name` and `seq`. */
void graph_find_info(Graph *g);
/* Returns for how many tokens of each sequence the loss has labels. In a model with an encoder and
 * a decoder, only the decoder's tokens have labels. Returns 0 for a loss over fields. */
int64_t graph_labels(const Graph *g);
/* Returns the second output of the loss node: how many tokens the loss counts. Returns 0 if there
 * is no loss. */
TensorId graph_count(const Graph *g);
/* Returns the parameter of which t is a copy: t itself, or the parameter whose 8-bit or transposed
 * form t is. Returns 0 if t is no parameter. */
TensorId graph_weight(const Graph *g, TensorId t);
/* A backward node that belongs to recompute region `region` (0: none) reads forward tensor t. True
 * if it reads a recomputed t, false if t was kept since the forward pass. Always true for the 8-bit
 * form of a weight, because the weight is gathered again and must be quantised again. */
bool graph_is_made_again(const Graph *g, TensorId t, ModuleId region);
/* Returns the node that computes t. If t is x / sigma (spectral norm), returns the node that
 * computes x. */
NodeId graph_product(const Graph *g, TensorId t);
/* True if t is a statistic or a sum of statistics: the 1/rms of a norm, the log-sum-exp of
 * attention, a value of the loss. Statistics have a wider dtype than the tensors that they
 * describe. */
bool graph_is_statistic(const Graph *g, TensorId t);
bool graph_bind(const Graph *g, const Node *n, Binding *b, Diag *d);
Dims graph_dims(const Graph *g, TensorId t);
/* The roles (tokens, heads, features; ops.def) of a tensor's dimensions. graph_roles returns an
 * array with an entry for each tensor. An op's row in ops.def gives the roles of most dimensions
 * that the op touches. A dimension that the row writes as `...` has the same role in the output as
 * in the input. */
typedef struct DimRoles {
    uint8_t of[MAX_DIMS]; /* IndexRole */
} DimRoles;
DimRoles *graph_roles(const Graph *g, Arena *arena);
/* Returns the dimension with this role; -1: none. */
int roles_dim(const DimRoles *roles, IndexRole role);
/* Converts the row-major index of an element of parameter t, as it is stored, into the element's
 * index in the original order of features (Tensor.order). */
uint64_t graph_original(const Graph *g, TensorId t, uint64_t element);
/* The parameters of a unit are sorted into runs with equal Tensor.partial. Given that
 * unit->params[i] starts a run, returns the index of the first parameter after the run. Sets *hi to
 * the end of the run in the flat buffer [elements]. */
uint32_t graph_partial_run(const Graph *g, const Unit *unit, uint32_t i, uint64_t *hi);
/* Prints the graph for people: `tandem show --after PASS`. */
void graph_print(const Graph *g, const Mesh *mesh, Str *out);

#endif
