/* Appends the nodes before an 8-bit product: one finds the largest magnitude of an operand, as a
 * whole or along the summed index; another computes the 8-bit operand from it. With blocks, one
 * node computes both the operand and the scales of its blocks. With 4-bit blocks, this node also
 * reads the largest magnitude of the tensor. */
#include <assert.h>

#include "planner/passes/graph/float8.h"

static const Node *made_by(const Graph *g, TensorId t)
{
    return &g->nodes.at[g->tensors.at[t].producer];
}

int64_t float8_block(const PassConfig *pass, int64_t size)
{
    const int64_t cuts = pass->float8.cuts;
    int64_t block = cuts > 0 ? FLOAT8_SMALL_BLOCK : 1;
    if (!pass->float8.any_size)
        return pass->float8.recipe == FLOAT8_nvfp4 ? FLOAT8_BLOCK_OF_FOUR : FLOAT8_BLOCK;
    while (block > 1 && size % (block * cuts) != 0) block /= 2;
    return block;
}

double float8_largest(DType t)
{
    assert(t == DT_e4m3 || t == DT_e5m2 || t == DT_e2m1x2);
    return t == DT_e4m3 ? 448 : t == DT_e5m2 ? 57344 : 6;
}

DType float8_type(OpKind reader, DType to)
{
    return op_has_pairs(reader) ? DT_e2m1x2 : to;
}

uint32_t float8_inputs(Quantised a, Quantised b, TensorId in[MAX_IN])
{
    in[0] = a.value, in[1] = b.value, in[2] = a.amax, in[3] = b.amax;
    in[4] = a.whole, in[5] = b.whole;
    return a.whole ? 6 : 4;
}

Attrs float8_attrs(const Graph *g, OpKind op, TensorId a, TensorId b)
{
    if (op_info(op)->flags & OP_BLOCKS) {
        const Attrs *x = graph_attrs_at(g, made_by(g, a)->attrs),
                    *y = graph_attrs_at(g, made_by(g, b)->attrs);
        return (Attrs){.group = x->group,
                       .scale = op_has_pairs(op) ? 1 / (x->scale * y->scale) : 0};
    }
    DType x = g->tensors.at[a].dtype, y = g->tensors.at[b].dtype;
    return (Attrs){.scale = 1 / (float8_largest(x) * float8_largest(y))};
}

static const OpKind pairs[][2] = {
    {OP_amax, OP_quantise},
    {OP_amax_of_tokens, OP_quantise_of_tokens},
    {OP_amax_over_tokens, OP_quantise_over_tokens},
    {OP_amax_of_first, OP_quantise_of_first},
    {OP_amax_over_first, OP_quantise_over_first},
    {OP_amax_of_last, OP_quantise_of_last},
    {OP_amax_over_last, OP_quantise_over_last},
};

static bool has_letter(const SigTerm *term, char letter)
{
    for (uint32_t d = 0; d < term->n_dims; d++)
        if (term->dim[d].letter == letter) return true;
    return false;
}

/* True if op `amax`, applied to x, keeps exactly those dimensions that the scales of the product's
 * operand have. */
static bool keeps(const Graph *g, OpKind amax, TensorId x, const SigTerm *operand,
                  const SigTerm *scale)
{
    Dims dims = graph_dims(g, x);
    Binding b;
    uint32_t at = 0;
    if (!op_bind(amax, &dims, 1, NULL, 0, &b, (Loc){NULL, 0}, NULL)) return false;
    int64_t out[MAX_DIMS];
    int n = op_output_dims(amax, &b, 0, out);
    for (uint32_t d = 0; d < operand->n_dims; d++) {
        bool kept = has_letter(scale, operand->dim[d].letter), found = false;
        for (int k = 0; k < n; k++) found = found || b.letter[1][k] == b.letter[0][d];
        if (kept != found) return false;
        at += kept;
    }
    return (int)at == n;
}

static uint32_t find_pair(const Graph *g, const Node *reader, uint32_t i, TensorId x)
{
    const Signature *sig = &op_info(reader->op)->sig;
    assert(sig->n_in == 4 && i < 2);
    for (uint32_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
        if (keeps(g, pairs[k][0], x, &sig->in[i], &sig->in[2 + i])) return k;
    assert(0 && "an amax for each row of ops.def");
    return 0;
}

/* Returns the dimension of operand i along which blocks extend. In the signature, the block's
 * letter comes directly behind it, as B behind k in "bskB". */
static uint32_t blocked_dim(OpKind op, uint32_t i)
{
    const int d = op_dim(op, i, INDEX_block);
    assert(d > 0);
    return (uint32_t)d - 1;
}

/* Returns the last dimension of operand i that the product does not sum. */
static uint32_t kept_dim(const Node *reader, uint32_t i)
{
    const Signature *sig = &op_info(reader->op)->sig;
    const SigTerm *scales = &sig->in[2 + i];
    uint32_t d = scales->n_dims;
    while (d-- > 1)
        if (has_letter(&sig->out[0], scales->dim[d].letter)) return d;
    return 0;
}

/* Returns the op that quantises a weight in squares: 16 x 16 values share a scale, so that both
 * products that read the weight, which sum along different dimensions, read the same values. */
static OpKind squares_op(const Node *reader, uint32_t i)
{
    const uint32_t n_dims = op_info(reader->op)->sig.in[2 + i].n_dims;
    const uint32_t d = blocked_dim(reader->op, i), other = kept_dim(reader, i);
    if (d == 0) {
        assert(other + 1 == n_dims);
        return OP_quantise_squares_first;
    }
    if (d + 1 == n_dims && other == 0) return OP_quantise_squares_last;
    assert(d + 1 == n_dims ? other + 1 == d : d + 2 == n_dims && other == d + 1);
    return d + 1 == n_dims ? OP_quantise_squares_outer : OP_quantise_squares_inner;
}

static OpKind pairs_op(const Graph *g, const Node *reader, uint32_t i, TensorId x)
{
    const uint32_t d = blocked_dim(reader->op, i);
    if (g->tensors.at[x].role == ROLE_param) return squares_op(reader, i);
    if (d + 1 == op_info(reader->op)->sig.in[2 + i].n_dims) return OP_quantise_pairs_last;
    if (d == 0) return OP_quantise_pairs_first;
    return d == 1 ? OP_quantise_pairs_tokens : OP_quantise_pairs_inner;
}

static OpKind blocks_op(const Graph *g, const Node *reader, uint32_t i, TensorId x)
{
    const Signature *sig = &op_info(reader->op)->sig;
    const uint32_t d = blocked_dim(reader->op, i), n_dims = sig->in[2 + i].n_dims;
    if (op_has_pairs(reader->op)) return pairs_op(g, reader, i, x);
    if (d + 1 == n_dims) return OP_quantise_blocks_last;
    if (d == 0) return OP_quantise_blocks_first;
    if (d == 1 && op_role(reader->op, sig->in[i].dim[d].letter) == INDEX_tokens)
        return OP_quantise_blocks_tokens;
    assert(d + 2 == n_dims);
    return OP_quantise_blocks_inner;
}

OpKind float8_scale(const Graph *g, const Node *reader, uint32_t i, TensorId x)
{
    if (op_info(reader->op)->flags & OP_BLOCKS) return blocks_op(g, reader, i, x);
    return pairs[find_pair(g, reader, i, x)][0];
}

static TensorId add(Job *job, const Node *reader, OpKind op, const TensorId *in, uint32_t n_in,
                    DType dtype, const Attrs *attrs)
{
    Graph *g = &job->plan->graph;
    TensorId out =
        graph_op(g, job->arena, op, in, n_in, dtype, attrs, reader->module, reader->loc, job->diag);
    assert(out);
    Node *n = &g->nodes.at[g->tensors.at[out].producer];
    n->layer = reader->layer;
    n->stage = reader->stage;
    n->region = reader->region;
    return out;
}

static Quantised quantise_blocks(Job *job, const Node *reader, uint32_t i, TensorId x, DType to,
                                 TensorId whole)
{
    Graph *g = &job->plan->graph;
    const uint32_t d = blocked_dim(reader->op, i);
    const bool in_pairs = op_has_pairs(reader->op);
    const OpKind op = blocks_op(g, reader, i, x);
    const Attrs attrs = {.scale = float8_largest(to) * (in_pairs ? float8_largest(DT_e4m3) : 1),
                         .group =
                             float8_block(pass_config(job, PASS_float8), g->tensors.at[x].dim[d])};
    if (in_pairs && !whole) whole = add(job, reader, OP_amax, &x, 1, DT_f32, NULL);
    const TensorId in[2] = {x, whole};
    const TensorId value = add(job, reader, op, in, in_pairs ? 2 : 1, to, &attrs);
    const TensorId scales = made_by(g, value)->out[1];
    g->tensors.at[scales].dtype = in_pairs ? DT_e4m3 : DT_e8m0;
    return (Quantised){value, scales, in_pairs ? whole : 0};
}

Quantised float8_quantise(Job *job, const Node *reader, uint32_t i, TensorId x, DType to,
                          TensorId whole)
{
    Graph *g = &job->plan->graph;
    Node copy = *reader; /* a copy, because appending a node can move g->nodes */
    if (op_info(copy.op)->flags & OP_BLOCKS) return quantise_blocks(job, &copy, i, x, to, whole);
    uint32_t k = find_pair(g, &copy, i, x);
    Attrs attrs = {.scale = float8_largest(to)};
    TensorId in[2] = {x, add(job, &copy, pairs[k][0], &x, 1, DT_f32, NULL)};
    return (Quantised){add(job, &copy, pairs[k][1], in, 2, to, &attrs), in[1], 0};
}
