/* A model before placement: global shapes, one micro-batch, forward and (after the backward pass)
 * gradient nodes. It holds no collectives; passes only write layouts and marks on it. It is the
 * specification that the verifier checks lowered programs against. */
#ifndef TANDEM_IR_GRAPH_H
#define TANDEM_IR_GRAPH_H

#include "planner/ir/intern.h"
#include "planner/ir/op.h"

typedef uint32_t TensorId, NodeId, ModuleId, UnitId, AttrsId; /* 0: none */

/* What the loss of a step is divided by: kept tokens; all of them; or each group's own kept tokens,
 * and then the number of groups (a mean of means). */
#define DENOMINATORS(X) X(kept) X(all) X(microbatch_mean)
typedef enum Denominator {
#define X(name) DENOMINATOR_##name,
    DENOMINATORS(X)
#undef X
        DENOMINATOR_COUNT
} Denominator;

/* state: lives between steps beside the parameters, whole on every rank; no gradient reaches it. */
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
    double a, b; /* normal: mean, deviation; uniform: from, to */
} Init;

/* What a block or a plan asked of a parameter. */
typedef enum TpStyle { TP_none, TP_column, TP_row, TP_vocab } TpStyle;

typedef struct Tensor {
    const char
        *name; /* parameters: dotted path, "layers.3.attention.wq.weight"; else unique text */
    Role role;
    DType dtype; /* in use: activations, gathered weights */
    uint8_t n_dims;
    int64_t dim[MAX_DIMS];  /* global */
    DealId deal[MAX_DIMS];  /* of split dims, in use */
    Layout use, kept;       /* while used; between forward and backward */
    bool use_is_fixed;      /* a pass asked for `use`; propagation keeps it */
    NodeId producer;        /* 0: parameter or input */
    TensorId grad, grad_of; /* the gradient of this one; this one is the gradient of */
    ModuleId module;
    Loc loc;
    /* parameters only */
    DType rest_dtype, reduce_dtype; /* at rest; gradient accumulation and reduction */
    TpStyle tp;
    uint8_t column_dim, row_dim; /* which dimension a column/row split cuts, from the module kind */
    /* Of a fused projection of unequal segments, whose features lie by groups (a KV head's: its
     * query heads, its key, its value) so that a cut between groups cuts each segment: which of the
     * features, in the order of the segments side by side, group i of dimension order_dim has along
     * the next one. 0: they lie in their own order. */
    DealId order;
    uint8_t order_dim;
    Init init;
    uint64_t init_stream; /* random stream: a hash of the name */
    UnitId unit;
    uint64_t flat_offset; /* elements, in its unit, of the local (tp-cut) tensor */
    AxisSet partial;      /* axes, other than data, on which its gradient comes in partial sums */
    bool input_embedding; /* not counted by the default MFU */
} Tensor;

/* A gradient tensor is the sum of everything its producers write: backward nodes contribute. */
typedef struct Node {
    OpKind op;
    uint8_t n_in, n_out;
    bool keep; /* of a region: its outputs are kept all the same, it runs once */
    TensorId in[MAX_IN], out[MAX_OUT];
    AttrsId attrs;
    ModuleId module;
    uint32_t layer, stage; /* layer: 0 outside blocks, else 1 + index of the block */
    uint32_t region;       /* recompute region, 0: none */
    NodeId forward;        /* of a backward node: what it differentiates */
    uint32_t tile;         /* 1 + piece of a region that is cut along the tokens; 0: none. A piece's
                            * backward         nodes run right behind its forward ones */
    char split[MAX_AXES];  /* the index letter that each mesh axis splits; 0: done by all alike */
    Loc loc;
} Node;

typedef struct Module {
    const char *path;   /* "layers.3.attention"; "" is the root */
    const char *class_; /* constructor's name: "linear", "attention", "block", ... */
    ModuleId parent;
    bool is_block;    /* a unit of fsdp2 and of full checkpointing */
    bool fsdp2_shard; /* asked to be an FSDP unit of its own */
    uint32_t layer;   /* as Node.layer */
    Loc loc;
} Module;

/* An FSDP unit, a DDP bucket, or simply all parameters: a flat, padded buffer. Element order is the
 * same for weights, gradients and optimizer state. Parameters whose gradient is PARTIAL on the same
 * other axes than the reduction's (tp) lie together. */
typedef struct Unit {
    const char *name;      /* "layers.3", "root", "bucket 2" */
    LIST(TensorId) params; /* in flat order */
    AxisSet shard,
        replicate;     /* FLAT over `shard` at rest; gradients also summed over `replicate` */
    uint64_t elements; /* with inner gaps, without the final padding */
    uint64_t padded;   /* a multiple of the shard count (and of the alignment) */
    DType dtype, rest_dtype, reduce_dtype;
    DType state_dtype; /* of the optimizer's moments; DT_none: it has none */
} Unit;

typedef struct ModelInfo { /* for reports and MFU; names are not part of the plan's identity */
    const char *name;
    uint64_t n_params, n_params_no_embedding;
    uint32_t n_layers;
    uint32_t d_model, n_heads, n_kv_heads, head_dim, vocab, seq;
} ModelInfo;

typedef struct Graph {
    LIST(Tensor) tensors; /* [0] none, all four */
    LIST(Node) nodes;     /* forward in execution order, then backward in execution order */
    LIST(Module) modules;
    LIST(Unit) units;
    LIST(Attrs) attrs; /* interned; [0] all zero */
    Intern attrs_index;
    Deals deals;
    uint32_t n_forward; /* nodes [1, n_forward] are forward; 0 before the backward pass: all */
    TensorId loss;
    ModelInfo info;
} Graph;

void graph_init(Graph *g, Arena *arena);
AttrsId graph_attrs(Graph *g, Arena *arena, const Attrs *attrs); /* interns */
static inline const Attrs *graph_attrs_at(const Graph *g, AttrsId id)
{
    return &g->attrs.at[id];
}
TensorId graph_tensor(Graph *g, Arena *arena, const char *name, Role role, DType dtype,
                      uint32_t n_dims, const int64_t *dim, Loc loc);
/* Appends a node; sets producer of those outputs that have none yet. */
NodeId graph_node(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in,
                  const TensorId *out, uint32_t n_out, const Attrs *attrs, ModuleId module,
                  Loc loc);
/* Adds node and fresh outputs with inferred dims; returns output 0. Reports shape-mismatch, returns
 * 0. */
TensorId graph_op(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in, DType dtype,
                  const Attrs *attrs, ModuleId module, Loc loc, Diag *d);
/* What the loss counts: the second output of its node; 0 if there is no loss. */
TensorId graph_count(const Graph *g);
/* The parameter that t is, or is the quantised form of; 0: neither. */
TensorId graph_weight(const Graph *g, TensorId t);
/* Is t, of the forward pass, made again for a backward node in `region` (of recomputation, 0: none)
 * rather than kept? Quantised weights are, as weights are gathered again. */
bool graph_is_made_again(const Graph *g, TensorId t, ModuleId region);
/* The node that makes t, but for a division by the norm of its weight: that of what it divides. */
NodeId graph_product(const Graph *g, TensorId t);
/* Is it a statistic (of a norm, of attention, of weights, of the loss), or a sum of such? They are
 * wider than what they are statistics of. */
bool graph_is_statistic(const Graph *g, TensorId t);
bool graph_bind(const Graph *g, const Node *n, Binding *b, Diag *d);
Dims graph_dims(const Graph *g, TensorId t);
/* Where an element of a parameter (row-major in the whole tensor) is in the original order. */
uint64_t graph_original(const Graph *g, TensorId t, uint64_t element);
/* The run of parameters from unit->params[i] whose gradients are partial on the same axes: its end,
 * and the end of its elements in the flat buffer. */
uint32_t graph_partial_run(const Graph *g, const Unit *unit, uint32_t i, uint64_t *hi);
void graph_print(const Graph *g, const Mesh *mesh, Str *out); /* friendly, for `show --after` */

#endif
