/* Pads the vocabulary of the logits, so that rows of the head's matrices are aligned. A row of
 * 50257 16-bit values is not a multiple of 16 bytes, so most rows start at addresses that tensor
 * memory access and 16-byte loads do not support.
 *
 * Padding is a deal with more room than indices (layout/padding.h); sizes in the graph stay the
 * same. This pass gives the deal to the weights that compute logits. Propagation passes it on to
 * activations, and the backward pass to gradients. Padding is zero: weights start as zeros there,
 * and the gradient of the loss writes zeros there. */
#include <assert.h>

#include "planner/ir/layout/padding.h"
#include "planner/passes/pass.h"

/* Rows must be multiples of 16 bytes, 8 values of 16 bits (cuBLAS' documentation, "Tensor Core
 * Usage"). A padded row becomes a multiple of 64 values, because NVIDIA recommends multiples of 128
 * bytes (docs.nvidia.com, "Matrix Multiplication Background User's Guide"). Small vocabularies, as
 * in tests, become multiples of 8. Padding is never more than half of a part.
 *
 * Products compute the padding, too. On an H200, products that read only the first 50257 of 50304
 * values in each row were also timed: two of the head's three products were as slow as without
 * padding. */
enum { ALIGNED = 8, WIDE = 64 };

static int64_t padded(int64_t part)
{
    const int64_t wide = (part + WIDE - 1) / WIDE * WIDE;
    const int64_t least = (part + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (least == part) return part;
    if (2 * (wide - part) <= part) return wide;
    return 2 * (least - part) <= part ? least : part;
}

typedef struct Pad {
    Job *job;
    Graph *g;
    /* dim[tensor]: 1 + the dimension that is the vocabulary of logits; 0: none */
    uint8_t *dim;
} Pad;

/* True for ops that turn zeros in the padding into zeros, or do not read the padding. 8-bit
 * products do not count, because their scales would need padding, too. (GPUs refuse 8-bit heads
 * with odd vocabularies anyway.) */
static bool keeps_padding(OpKind op)
{
    const OpInfo *info = op_info(op);
    return (info->class_ == OP_CLASS_contract && info->scaling == SCALING_none) ||
           info->flags & (OP_OF_LOSS | OP_AFFINE | OP_LOOKS_UP);
}

/* Sets p->dim of tensor t, whose dimension `dim` is the vocabulary, and of all tensors from which
 * it is computed along this dimension. Returns false if one of these is an input of the model, or
 * would be marked in two dimensions. */
static bool mark(Pad *p, TensorId t, int dim)
{
    const Tensor *at = &p->g->tensors.at[t];
    if (p->dim[t]) return p->dim[t] == dim + 1;
    p->dim[t] = (uint8_t)(dim + 1);
    if (!at->producer) return at->role == ROLE_param;
    const Node *n = &p->g->nodes.at[at->producer];
    Binding b;
    if (!graph_bind(p->g, n, &b, p->job->diag)) return false;
    uint32_t arg = n->n_in;
    while (n->out[arg - n->n_in] != t) arg++;
    for (uint32_t i = 0; i < n->n_in; i++)
        for (int d = 0; d < b.n_dims[i]; d++)
            if (b.letter[i][d] == b.letter[arg][dim] && !mark(p, n->in[i], d)) return false;
    return true;
}

static bool mark_logits(Pad *p)
{
    bool any = false;
    for (NodeId id = 1; id < p->g->nodes.n; id++) {
        const Node *n = &p->g->nodes.at[id];
        const int dim = n->n_in > 0 ? op_dim(n->op, 0, INDEX_vocab) : -1;
        if (dim < 0 || !(op_info(n->op)->flags & OP_OF_LOSS)) continue;
        if (!mark(p, n->in[0], dim)) return false;
        any = true;
    }
    return any;
}

/* Marks all tensors that are computed from marked ones along the vocabulary. Returns false if one
 * of their readers does not tolerate padding. */
static bool may_pad(Pad *p)
{
    for (NodeId id = 1; id < p->g->nodes.n; id++) {
        const Node *n = &p->g->nodes.at[id];
        Binding b;
        bool reads = false;
        for (uint32_t i = 0; i < n->n_in; i++) reads = reads || p->dim[n->in[i]];
        if (!reads) continue;
        if (!graph_bind(p->g, n, &b, p->job->diag) || !keeps_padding(n->op)) return false;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const int dim = (int)p->dim[n->in[i]] - 1;
            if (dim < 0) continue;
            const char letter = b.letter[i][dim];
            const int64_t size = p->g->tensors.at[n->in[i]].dim[dim];
            if (b.size[(int)letter] != size || !op_may_split(n->op, letter)) return false;
            for (uint32_t j = 0; j < n->n_out; j++)
                for (int d = 0; d < b.n_dims[n->n_in + j]; d++)
                    if (b.letter[n->n_in + j][d] == letter) p->dim[n->out[j]] = (uint8_t)(d + 1);
        }
    }
    return true;
}

/* True if only vocabularies of logits have this deal. */
static bool is_own(const Pad *p, DealId deal)
{
    for (TensorId t = 1; t < p->g->tensors.n; t++)
        for (int d = 0; d < p->g->tensors.at[t].n_dims; d++)
            if (p->g->tensors.at[t].deal[d] == deal && p->dim[t] != d + 1) return false;
    return true;
}

/* Gives dimension `dim` of weight t the padded deal. If tp has given an uneven vocabulary a deal,
 * changes that deal itself, so that the plan has no unused deal. */
static void pad_weight(const Pad *p, Tensor *t, int dim)
{
    Deals *deals = &p->g->deals;
    const Shape s = {.n_dims = t->n_dims, .layout = t->use};
    const uint32_t parts = shape_parts(&s, &p->job->plan->mesh, dim);
    const int64_t part = (t->dim[dim] + parts - 1) / parts, each = padded(part);
    const DealId old = t->deal[dim];
    if (each == part || each > UINT32_MAX) return;
    if (old && !deal_is_padded(deals, old) && is_own(p, old))
        deals->deals.at[old].per_part = (uint32_t)each;
    else
        t->deal[dim] = deal_padded(deals, p->job->arena, t->dim[dim], parts, (uint32_t)each);
}

/* Does nothing in a plan that predicts another framework, because its tensors have no such
 * padding. */
bool pass_pad(Job *job)
{
    Graph *g = &job->plan->graph;
    Pad p = {.job = job, .g = g};
    if (job->config->runtime.name || job->options.unpadded) return true;
    p.dim = arena_array(job->scratch, g->tensors.n, sizeof *p.dim);
    if (!mark_logits(&p) || !may_pad(&p)) return true;
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (p.dim[t] && g->tensors.at[t].role == ROLE_param)
            pad_weight(&p, &g->tensors.at[t], p.dim[t] - 1);
    return true;
}

void pad_outputs(Graph *g, const Node *n, const Binding *b)
{
    for (uint32_t j = 0; j < n->n_out; j++) {
        Tensor *out = &g->tensors.at[n->out[j]];
        for (int d = 0; d < out->n_dims; d++) {
            const char letter = b->letter[n->n_in + j][d];
            bool is_split = layout_axes_split(&out->use, d) != 0 || out->deal[d];
            for (uint32_t a = 0; a < MAX_AXES; a++) is_split = is_split || n->split[a] == letter;
            for (uint32_t i = 0; i < n->n_in && !is_split; i++)
                for (int k = 0; k < b->n_dims[i]; k++)
                    if (b->letter[i][k] == letter && !out->deal[d])
                        out->deal[d] = deal_whole(&g->deals, g->tensors.at[n->in[i]].deal[k]);
        }
    }
}
