/* Checks scales of 8-bit and 4-bit numbers: wherever the graph scales a number, it must divide by
 * the same scale later. The rules follow from the signatures of ops, and share no code with the
 * passes. */
#include <assert.h>
#include <string.h>

#include "planner/verify/private.h"

static double largest_of(DType t)
{
    return t == DT_e4m3 ? 448 : t == DT_e5m2 ? 57344 : t == DT_e2m1x2 ? 6 : 0;
}

static const Node *producer(const Graph *g, TensorId t)
{
    return &g->nodes.at[g->tensors.at[t].producer];
}

/* Returns a set of dimensions. Bit d is set if argument `arg` of the node has dimension d of the
 * first input. */
static uint32_t dims_of_first(const Binding *b, uint32_t arg)
{
    uint32_t set = 0;
    for (uint32_t d = 0; d < b->n_dims[0]; d++)
        for (uint32_t k = 0; k < b->n_dims[arg]; k++)
            if (b->letter[arg][k] == b->letter[0][d]) set |= 1u << d;
    return set;
}

/* Returns the fault of a quantise node; NULL if there is none. Its scale must be the largest
 * magnitude of the same tensor. */
static const char *fault_of_quantise(const Verifier *v, const Node *n)
{
    const Node *max = producer(v->g, n->in[1]);
    Binding b, of_max;
    if (op_info(max->op)->reduce != REDUCE_max || max->n_in != 1)
        return "is scaled by a value that is not the largest magnitude of a tensor";
    if (max->in[0] != n->in[0]) return "is scaled by the largest magnitude of another tensor";
    if (!graph_bind(v->g, n, &b, NULL) || !graph_bind(v->g, max, &of_max, NULL) ||
        dims_of_first(&b, 1) != dims_of_first(&of_max, 1))
        return "is scaled by the largest magnitudes along a wrong index";
    if (graph_attrs_at(v->g, n->attrs)->scale != largest_of(v->g->tensors.at[n->out[0]].dtype))
        return "does not use the whole range of its type";
    return NULL;
}

/* Returns the fault of a node that makes 4-bit numbers. It must use scales in e4m3 and the largest
 * magnitude of the tensor. Blocks of weights must be square, so that both products with a weight
 * read the same rounded numbers. */
static const char *fault_of_pairs(const Verifier *v, const Node *n)
{
    const Attrs *attrs = graph_attrs_at(v->g, n->attrs);
    const DType of_values = v->g->tensors.at[n->out[0]].dtype;
    const DType of_scales = v->g->tensors.at[n->out[1]].dtype;
    const Node *max = producer(v->g, n->in[1]);
    if (!(op_info(max->op)->flags & OP_MAGNITUDE) || !op_scales_whole(max->op))
        return "is scaled by a value that is not the largest magnitude of all";
    if (max->in[0] != n->in[0]) return "is scaled by the largest magnitude of another tensor";
    if ((v->g->tensors.at[n->in[0]].role == ROLE_param) !=
        (strchr(op_info(n->op)->signature, 'C') != NULL))
        return "must have square blocks for a weight, and other blocks for other tensors";
    if (of_values != DT_e2m1x2) return "must make 4-bit numbers";
    if (of_scales != DT_e4m3) return "must have scales of dtype e4m3";
    if (attrs->scale != largest_of(of_values) * largest_of(of_scales))
        return "does not use the whole range of its numbers and scales";
    return NULL;
}

/* Returns the fault of operands in blocks: an operand and its scales must come from one node. */
static const char *fault_of_blocks(const Verifier *v, const Node *n)
{
    const Attrs *attrs = graph_attrs_at(v->g, n->attrs);
    if (op_has_pairs(n->op)) return fault_of_pairs(v, n);
    if (attrs->scale != largest_of(v->g->tensors.at[n->out[0]].dtype))
        return "does not use the whole range of its type";
    if (v->g->tensors.at[n->out[1]].dtype != DT_e8m0)
        return "must have scales that are powers of two";
    return NULL;
}

/* Returns the fault of a contraction of blocks. It must multiply each operand with its own scales.
 * For 4-bit numbers it must also undo the scales of tensors. */
static const char *fault_of_block_product(const Verifier *v, const Node *n)
{
    double undone = graph_attrs_at(v->g, n->attrs)->scale;
    for (uint32_t i = 0; i < 2; i++) {
        const Node *from = producer(v->g, n->in[i]);
        if (!(op_info(from->op)->flags & OP_QUANTISES)) return "reads an operand that has no scale";
        if (n->in[i] != from->out[0] || n->in[2 + i] != from->out[1])
            return "divides by the scale of another operand";
        if (graph_attrs_at(v->g, from->attrs)->group != graph_attrs_at(v->g, n->attrs)->group)
            return "has blocks whose length differs from that of its operands";
        if (!op_has_pairs(n->op)) continue;
        if (n->in[4 + i] != from->in[1])
            return "multiplies with the largest magnitude of another operand";
        undone *= graph_attrs_at(v->g, from->attrs)->scale;
    }
    if (op_has_pairs(n->op) && !(undone > 1 - 1e-12 && undone < 1 + 1e-12))
        return "does not undo the scales of its operands";
    return NULL;
}

/* Returns the fault of a scaled contraction: it must divide by exactly the scales of its
 * operands. */
static const char *fault_of_contraction(const Verifier *v, const Node *n)
{
    double scale = graph_attrs_at(v->g, n->attrs)->scale;
    for (uint32_t i = 0; i < 2; i++) {
        const Node *from = producer(v->g, n->in[i]);
        if (op_info(from->op)->flags & OP_TURNS) from = producer(v->g, from->in[0]);
        if (!(op_info(from->op)->flags & OP_QUANTISES)) return "reads an operand that has no scale";
        if (from->in[1] != n->in[2 + i]) return "divides by the scale of another operand";
        scale *= largest_of(v->g->tensors.at[n->in[i]].dtype);
    }
    return scale > 1 - 1e-12 && scale < 1 + 1e-12 ? NULL
                                                  : "does not undo the scales of its operands";
}

void verify_scales(Verifier *v)
{
    for (NodeId id = 1; id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        const OpInfo *info = op_info(n->op);
        const char *fault = NULL;
        if (info->flags & OP_QUANTISES)
            fault = info->flags & OP_BLOCKS ? fault_of_blocks(v, n) : fault_of_quantise(v, n);
        else if (info->scaling != SCALING_none)
            fault =
                info->flags & OP_BLOCKS ? fault_of_block_product(v, n) : fault_of_contraction(v, n);
        if (fault)
            verify_report(v, "verify-scale", 0, "graph node %u (%s, %s) %s", id, info->name,
                          v->g->tensors.at[n->out[0]].name, fault);
    }
}
