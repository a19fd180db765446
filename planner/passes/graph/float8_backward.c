/* The gradients of an 8-bit product, y = x w. They are 8-bit products, too, so the gradient of y is
 * quantised. The gradients of the quantised x and w are used as those of x and w (straight
 * through).
 *
 * With one scale for a whole tensor, one quantised gradient of y (e5m2, for its range) serves both
 * products, and the forward operands are used again. With scales for rows or blocks, each product
 * needs operands whose scales lie along the index that it sums. So all four operands are quantised
 * again (e4m3, because a row has a smaller range). */
#include <assert.h>

#include "planner/passes/graph/float8.h"

typedef struct Derive {
    Job *job;
    Node f; /* a copy of the forward node */
    NodeId forward;
} Derive;

/* True if the node computes, or reads, one scale for each token. */
static bool scales_tokens(const Node *n)
{
    const uint32_t scale = op_info(n->op)->flags & OP_MAGNITUDE ? n->n_in : 1;
    return (scale == n->n_in || n->n_in == 2) && op_dim(n->op, scale, INDEX_tokens) >= 0;
}

/* Returns the split of x, the first input of new node n, on `axis`. There is one exception. If
 * groups of a ring exchange tokens for heads (cp.c), x is split by heads, but the product reads
 * scales of the rank's own tokens. A rank's zigzag tokens cannot be sliced from x, so the node
 * reads x split by tokens, for which lowering changes the layout back. */
static int8_t split_of_first(const Job *job, const Node *n, const Tensor *x, uint32_t axis)
{
    const int8_t on = x->use.on[axis];
    const bool exchanged = job->context.ring_axes && job->context.heads_axes >> axis & 1;
    return exchanged && layout_is_split(on) && scales_tokens(n)
               ? SPLIT(op_dim(n->op, 0, INDEX_tokens))
               : on;
}

/* Sets the splits and layouts of the node that computes `made`, because propagation has already
 * run. Each axis splits the same index as in the node's first input. */
static bool place(const Derive *v, TensorId made)
{
    Job *job = v->job;
    Graph *g = &job->plan->graph;
    Node *n = &g->nodes.at[g->tensors.at[made].producer];
    const Tensor *x = &g->tensors.at[n->in[0]];
    Binding b;
    if (!graph_bind(g, n, &b, job->diag)) return false;
    n->forward = v->forward;
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++) {
        int8_t on = split_of_first(job, n, x, a);
        n->split[a] = layout_is_split(on) ? b.letter[0][layout_dim(on)] : 0;
        if (n->split[a] && float8_gathers_first(job, n, a, n->split[a])) n->split[a] = 0;
        for (uint32_t j = 0; j < n->n_out; j++) {
            Tensor *out = &g->tensors.at[n->out[j]];
            int8_t is = op_axis_layout(n->op, &b, n->n_in + j, n->split[a]);
            out->use.on[a] = layout_is_split(is) ? is : (int8_t)WHOLE;
            if (layout_is_split(is)) out->deal[layout_dim(is)] = x->deal[layout_dim(on)];
        }
    }
    for (uint32_t j = 0; j < n->n_out; j++) sequence_fit(job, &g->tensors.at[n->out[j]]);
    pad_outputs(g, n, &b);
    return true;
}

/* Appends the nodes that quantise x as operand i of `reader`, with layouts. For nvfp4, out->whole
 * may be the largest magnitude of x that a node already computes. */
static bool quantise(const Derive *v, OpKind reader, uint32_t i, TensorId x, DType to,
                     Quantised *out)
{
    Node like = v->f;
    like.op = reader;
    const TensorId known = out->whole;
    *out = float8_quantise(v->job, &like, i, x, float8_type(reader, to), known);
    /* one node computes both scales and values */
    const bool at_once = op_info(reader)->flags & OP_BLOCKS;
    if (out->whole && !known && !place(v, out->whole)) return false;
    return (at_once || place(v, out->amax)) && place(v, out->value);
}

static void add_product(const Derive *v, OpKind op, Quantised a, Quantised b, TensorId of)
{
    Job *job = v->job;
    Graph *g = &job->plan->graph;
    TensorId in[MAX_IN], out = gradient_of(job, of);
    const uint32_t n_in = float8_inputs(a, b, in);
    Attrs attrs = float8_attrs(g, op, a.value, b.value);
    NodeId id = graph_node(g, job->arena, op, in, n_in, &out, 1, &attrs, v->f.module, v->f.loc);
    Node *n = &g->nodes.at[id];
    n->forward = v->forward;
    n->layer = v->f.layer;
    n->stage = v->f.stage;
    n->region = v->f.region;
    /* gradients of a contraction use the letters of the forward op */
    for (uint32_t k = 0; k < job->plan->mesh.n_axes; k++) n->split[k] = v->f.split[k];
}

TensorId float8_source(const Graph *g, TensorId quantised)
{
    const Node *n = &g->nodes.at[g->tensors.at[quantised].producer];
    return op_info(n->op)->flags & OP_QUANTISES ? n->in[0] : quantised;
}

/* Sets *out to the quantised form of x for the gradient of a weight. For example, q, k and v read
 * the same x, so it is quantised once in each pipeline stage. Returns false after an error. */
static bool quantise_input(const Derive *v, OpKind reader, TensorId x, Quantised *again,
                           Quantised *out)
{
    const Graph *g = &v->job->plan->graph;
    if (again[x].value && g->nodes.at[g->tensors.at[again[x].value].producer].stage == v->f.stage) {
        *out = again[x];
        return true;
    }
    if (!quantise(v, reader, 0, x, DT_e4m3, out)) return false;
    again[x] = *out;
    return true;
}

bool float8_backward(Job *job, NodeId forward, bool of_input, bool of_weight, Quantised *again)
{
    Derive v = {.job = job, .forward = forward};
    Graph *g = &job->plan->graph;
    v.f = g->nodes.at[forward];
    const OpInfo *info = op_info(v.f.op);
    OpKind plain = info->scaled[SCALING_none];
    OpKind d0 = op_info((OpKind)((int)plain + 1))->scaled[info->scaling];
    OpKind d1 = op_info((OpKind)((int)plain + 2))->scaled[info->scaling];
    bool rows = info->scaling != SCALING_tensorwise; /* rows or blocks */
    DType to = rows ? DT_e4m3 : DT_e5m2;
    TensorId y = g->tensors.at[v.f.out[0]].grad;
    TensorId x = float8_source(g, v.f.in[0]), w = float8_source(g, v.f.in[1]);
    if (!y) return true; /* the loss does not depend on this output */
    const bool in_pairs = v.f.n_in == 6;
    Quantised dy = {0}, qx = {v.f.in[0], v.f.in[2], in_pairs ? v.f.in[4] : 0},
              qw = {v.f.in[1], v.f.in[3], in_pairs ? v.f.in[5] : 0};
    if (!quantise(&v, of_input ? d0 : d1, of_input ? 0 : 1, y, to, &dy)) return false;
    if (of_input) {
        if (rows && !quantise(&v, d0, 1, w, DT_e4m3, &qw)) return false;
        add_product(&v, d0, dy, qw, x);
    }
    if (of_weight) {
        if (rows && !quantise_input(&v, d1, x, again, &qx)) return false;
        if (rows && of_input && !quantise(&v, d1, 1, y, to, &dy)) return false;
        add_product(&v, d1, qx, dy, w);
    }
    return true;
}
