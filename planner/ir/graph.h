/* A model before placement on ranks: global shapes, one micro-batch, forward nodes and (after the
 * backward pass) gradient nodes. It has no collectives. A pass that distributes the model only
 * writes layouts and flags into the graph. The verifier checks lowered programs against this
 * graph. */
#ifndef TANDEM_IR_GRAPH_H
#define TANDEM_IR_GRAPH_H

#include "planner/base/intern.h"
#include "planner/ir/op/op.h"

typedef uint32_t TensorId, NodeId, ModuleId, UnitId, AttrsId; /* 0: none */

/* The divisor of a step's loss. kept: the number of counted tokens (labels >= 0). all: the number
 * of all tokens. microbatch_mean: the mean of the means of groups of sequences. The sum of a group
 * is divided by the group's counted tokens, and the sum over groups by the number of groups. */
#define DENOMINATORS(X) X(kept) X(all) X(microbatch_mean)
typedef enum Denominator {
#define X(name) DENOMINATOR_##name,
    DENOMINATORS(X)
#undef X
        DENOMINATOR_COUNT
} Denominator;

/* state: a tensor that lives between steps like a parameter. Unlike a parameter it is whole on
 * every rank and has no gradient. */
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
    double a, b; /* normal: mean and standard deviation; uniform: lower and upper bound */
} Init;

/* The dimension in which tensor parallelism splits a parameter. The module or the plan chooses
 * it. */
typedef enum TpStyle { TP_none, TP_column, TP_row, TP_vocab } TpStyle;

typedef struct Tensor {
    /* of a parameter: its dotted path, "layers.3.attention.wq.weight"; otherwise any unique text */
    const char *name;
    Role role;
    DType dtype; /* dtype of an activation, or of a weight while it is gathered for use */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];  /* global */
    DealId deal[MAX_DIMS];  /* the deals (layout.h) of the dimensions that `use` splits */
    Layout use, kept;       /* layout while used; layout between forward and backward */
    bool use_is_fixed;      /* a pass set `use`, so propagation leaves it unchanged */
    NodeId producer;        /* 0: parameter or input */
    TensorId grad, grad_of; /* its gradient; the tensor of which it is the gradient */
    ModuleId module;
    Loc loc;
    /* The fields from here on are only set for parameters. */
    DType rest_dtype, reduce_dtype; /* dtype between steps; dtype in which its gradient is summed */
    TpStyle tp;
    /* the dimensions that the styles TP_column and TP_row split; the module kind sets them */
    uint8_t column_dim, row_dim;
    /* For a fused projection of unequal segments (queries, keys, values). Its features are stored
     * group by group: the query heads of one KV head, its key, its value. Dimensions order_dim and
     * order_dim + 1 are [groups, features of a group]. The deal lists the features of each group in
     * the original order (all queries, all keys, all values). 0: features are stored in the
     * original order. */
    DealId order;
    uint8_t order_dim;
    Init init;
    uint64_t init_stream; /* random stream: a hash of the name */
    UnitId unit;
    /* the index in the unit's flat buffer at which this rank's part of the parameter starts, in
     * elements */
    uint64_t flat_offset;
    AxisSet partial;      /* axes (without data axes) on which the parameter's gradient is a partial
                             sum */
    bool input_embedding; /* not counted by the default MFU */
    /* True for a parameter that is not trained. A node that computes another gradient may also
     * compute the gradient of a frozen parameter; the program then drops this result. */
    bool frozen;
} Tensor;

/* An op and the tensors that it reads and writes. Several backward nodes may write one gradient
 * tensor, whose value is then their sum. */
typedef struct Node {
    OpKind op;
    uint8_t n_in, n_out;
    /* for a node in a recompute region: its outputs are kept, so the node does not run again */
    bool keep;
    TensorId in[MAX_IN], out[MAX_OUT];
    AttrsId attrs;
    ModuleId module;
    uint32_t layer, stage; /* layer: 1 + the index of the block, or 0 outside blocks; stage: the
                              pipeline stage */
    uint32_t region;       /* recompute region, 0: none */
    NodeId forward;        /* for a backward node: the forward node whose gradient it computes */
    /* If the region is cut along the tokens by tile{}: 1 + the number of the piece; otherwise 0.
     * The backward nodes of a piece run directly after the piece's forward nodes. */
    uint32_t tile;
    /* for each mesh axis, the index letter that the axis splits; 0: all ranks of the axis do the
     * same work */
    char split[MAX_AXES];
    Loc loc;
} Node;

typedef struct Module {
    const char *path;   /* "layers.3.attention"; "" is the root */
    const char *class_; /* constructor's name: "linear", "attention", "block", ... */
    ModuleId parent;
    bool is_block;    /* a unit of fsdp2 and of full checkpointing */
    bool fsdp2_shard; /* the model asks for an FSDP unit with this module alone */
    uint32_t layer;   /* counts like Node.layer */
    Loc loc;
} Module;

/* The parameters that lie in one flat, padded buffer: an FSDP unit, a DDP bucket, or all
 * parameters. Weights, gradients and optimizer state have the same element order. Parameters whose
 * gradients are PARTIAL on the same axes are neighbours in the buffer. (The axes over which the
 * unit itself is reduced do not count; in practice only tp is left.) */
typedef struct Unit {
    const char *name;      /* "layers.3", "root", "bucket 2" */
    LIST(TensorId) params; /* in the order of the flat buffer */
    /* between steps, the flat buffer is split over `shard`; gradients are also summed over
     * `replicate` */
    AxisSet shard, replicate;
    uint64_t elements; /* includes inner gaps, excludes the final padding */
    uint64_t padded;   /* `elements` rounded up to a multiple of the number of shards, and of the
                          alignment */
    DType dtype, rest_dtype, reduce_dtype;
    DType state_dtype; /* dtype of the optimizer's moments; DT_none: no moments */
} Unit;

typedef struct ModelInfo { /* for reports and MFU; names do not enter the plan's id */
    const char *name;
    uint64_t n_params, n_params_no_embedding;
    uint32_t n_layers;
    uint32_t d_model, n_heads, n_kv_heads, head_dim, vocab, seq;
} ModelInfo;

typedef struct Graph {
    LIST(Tensor) tensors; /* [0] is none, also in the next three lists */
    LIST(Node) nodes;     /* forward in execution order, then backward in execution order */
    LIST(Module) modules;
    LIST(Unit) units;
    LIST(Attrs) attrs; /* each value is stored once; [0] has only zeros */
    Intern attrs_index;
    Deals deals;
    uint32_t n_forward; /* nodes [1, n_forward] are forward; 0 before the backward pass: all */
    TensorId loss;
    ModelInfo info;
} Graph;

void graph_init(Graph *g, Arena *arena);
/* Returns a copy. Its lists of tensors, nodes and so on are its own; names and the lists inside
 * units are shared with `g`. */
Graph graph_copy(const Graph *g, Arena *arena);
AttrsId graph_attrs(Graph *g, Arena *arena, const Attrs *attrs); /* returns the number under which
                                                                    these attributes are stored */
/* True for a parameter that the step updates. */
static inline bool tensor_trains(const Tensor *t)
{
    return t->role == ROLE_param && !t->frozen;
}
/* True for the gradient of a trained parameter. It is summed over the step, and then read by the
 * update. */
static inline bool graph_is_param_gradient(const Graph *g, const Tensor *t)
{
    return t->grad_of && tensor_trains(&g->tensors.at[t->grad_of]);
}
/* True for a unit of frozen parameters. A unit holds either frozen or trained parameters. */
static inline bool graph_is_frozen(const Graph *g, UnitId u)
{
    const Unit *unit = &g->units.at[u];
    return unit->params.n > 0 && g->tensors.at[unit->params.at[0]].frozen;
}
/* True for a bias that balances the load of experts. Its gradient is the number of choices, and its
 * update follows its own rule instead of the optimizer's. Valid after the backward pass. */
static inline bool graph_balances(const Graph *g, const Tensor *t)
{
    const NodeId by = t->role == ROLE_param && t->grad ? g->tensors.at[t->grad].producer : 0;
    return by != 0 && op_counts_choices(g->nodes.at[by].op);
}
/* True for a unit of biases that balance experts. A unit holds either such biases or other
 * parameters, never both. */
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
/* Appends a node and makes it the producer of each output that has none yet. */
NodeId graph_node(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in,
                  const TensorId *out, uint32_t n_out, const Attrs *attrs, ModuleId module,
                  Loc loc);
/* Adds a node and new outputs with inferred dimensions; returns output 0. If the shapes do not
 * match, reports "shape-mismatch" and returns 0. */
TensorId graph_op(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in, DType dtype,
                  const Attrs *attrs, ModuleId module, Loc loc, Diag *d);
/* Sets each tensor's producer again, after nodes have moved. */
void graph_find_producers(Graph *g);
/* Sets the numbers of `info` that follow from the graph: all but name and seq. */
void graph_find_info(Graph *g);
/* Returns the number of tokens of each sequence that the loss counts; 0 if it counts the points of
 * fields. This can be fewer tokens than a sequence has, because an encoder's tokens have no
 * labels. */
int64_t graph_labels(const Graph *g);
/* Returns the second output of the loss node, the number of tokens that the loss counts. Returns 0
 * if there is no loss. */
TensorId graph_count(const Graph *g);
/* Returns t if t is a parameter. If t is the quantised form of a parameter, returns that parameter.
 * Otherwise returns 0. */
TensorId graph_weight(const Graph *g, TensorId t);
/* True if a backward node in recompute region `region` (0: in none) reads a recomputed copy of
 * forward tensor t instead of the kept one. Quantised weights are computed again because weights
 * are gathered again. */
bool graph_is_made_again(const Graph *g, TensorId t, ModuleId region);
/* Returns the node that produces t. If t is a quotient by a spectral norm, returns the node that
 * produces the dividend. */
NodeId graph_product(const Graph *g, TensorId t);
/* True if t is a statistic (of a norm, attention, weights or the loss), or a sum of statistics. A
 * statistic has a wider type than the tensor it describes. */
bool graph_is_statistic(const Graph *g, TensorId t);
bool graph_bind(const Graph *g, const Node *n, Binding *b, Diag *d);
Dims graph_dims(const Graph *g, TensorId t);
/* The roles of a tensor's dimensions; graph_roles returns an array with one DimRoles for each
 * tensor. The roles come from the rows of the ops that touch the tensor. Dimensions after `...`
 * have the roles of the op's input. */
typedef struct DimRoles {
    uint8_t of[MAX_DIMS]; /* IndexRole */
} DimRoles;
DimRoles *graph_roles(const Graph *g, Arena *arena);
int roles_dim(const DimRoles *roles, IndexRole role); /* the dimension with this role; -1: none */
/* Converts the row-major index of an element of parameter t [global tensor] into its index in
 * the original feature order. */
uint64_t graph_original(const Graph *g, TensorId t, uint64_t element);
/* Parameter unit->params[i] begins a run of parameters whose gradients are partial on the same
 * axes. Returns the index after the run's last parameter. Sets *hi to the end of the run in the
 * flat buffer, in elements. */
uint32_t graph_partial_run(const Graph *g, const Unit *unit, uint32_t i, uint64_t *hi);
/* prints the friendly form, for `show --after` */
void graph_print(const Graph *g, const Mesh *mesh, Str *out);

#endif
