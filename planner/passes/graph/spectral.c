/* The gradient of a weight W through its spectral norm. Forward, z = x W / sigma with sigma = u^T W
 * v; u and v count as constants. Besides the gradient of the product, dL/dW has the term -(sum dz z
 * / sigma) v u^T. If samples or tokens are split over ranks, each rank adds the term for its own
 * tokens, a partial sum like the gradient of the product. So no rank waits for others. */
#include "planner/passes/graph/spectral.h"

#include <assert.h>

typedef struct SpectralNorm {
    /* W; the vector over its first indices; the vector over its last indices */
    TensorId weight, of_rows, of_columns;
    OpKind outer; /* the op that computes the outer product of the two vectors */
} SpectralNorm;

/* True for the products of the power iteration that computes sigma: sums that run once a step. */
static bool sums_once(OpKind op)
{
    return op_info(op)->flags & OP_ONCE && op_info(op)->reduce == REDUCE_sum;
}

/* Matches the nodes that compute sigma = (W^T u) . v, and fills *norm. The node of W^T u names W
 * and u, and its signature shows which indices of W each vector has. */
static bool find_norm(const Graph *g, TensorId sigma, SpectralNorm *norm)
{
    const Node *dot = &g->nodes.at[g->tensors.at[sigma].producer];
    if (!sums_once(dot->op)) return false;
    const Node *project = &g->nodes.at[g->tensors.at[dot->in[0]].producer];
    if (!sums_once(project->op)) return false;
    const Signature *sig = &op_info(project->op)->sig;
    /* in "k...", the first vector has k; in "...n" and "kn...", the second vector has n */
    const int before = sig->in[0].ellipsis;
    const bool keeps_rows = (sig->out[0].ellipsis >= 0) == (before != 1);
    norm->weight = project->in[0];
    norm->of_rows = keeps_rows ? dot->in[1] : project->in[1];
    norm->of_columns = keeps_rows ? project->in[1] : dot->in[1];
    norm->outer = before == 1 ? OP_outer_first : before == 0 ? OP_outer_last : OP_outer_second;
    return g->tensors.at[norm->weight].role == ROLE_param;
}

static Node *backward_node(Job *job, OpKind op, const TensorId *in, TensorId out, NodeId forward)
{
    Graph *g = &job->plan->graph;
    Node f = g->nodes.at[forward];
    NodeId id = graph_node(g, job->arena, op, in, 3, &out, 1, NULL, f.module, f.loc);
    Node *n = &g->nodes.at[id];
    n->forward = forward;
    n->layer = f.layer;
    n->stage = f.stage;
    n->region = f.region;
    return n;
}

/* Appends the node that computes -(sum over the features of dz z) / sigma for each token. The
 * result [b,s] is split like z, and is a partial sum on axes that split the features. */
static TensorId add_dot(Job *job, NodeId divide)
{
    Graph *g = &job->plan->graph;
    const Node f = g->nodes.at[divide];
    const Tensor z = g->tensors.at[f.out[0]];
    DType dtype = g->tensors.at[f.in[1]].dtype;
    const char *name = arena_print(job->arena, "%s.norm_grad", z.name);
    TensorId out = graph_tensor(g, job->arena, name, ROLE_activation, dtype, 2, z.dim, f.loc);
    TensorId in[] = {g->tensors.at[f.out[0]].grad, f.out[0], f.in[1]};
    Node *n = backward_node(job, OP_divide_dot, in, out, divide);
    Tensor *t = &g->tensors.at[out];
    Binding forward, b;
    t->module = f.module;
    if (!graph_bind(g, &f, &forward, job->diag) || !graph_bind(g, n, &b, job->diag)) return 0;
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++) {
        for (int d = 0; d < z.n_dims && f.split[a]; d++)
            if (forward.letter[f.n_in][d] == f.split[a]) n->split[a] = b.letter[1][d];
        int8_t made = op_axis_layout(n->op, &b, 3, n->split[a]);
        if (!layout_is_split(made)) continue;
        t->use.on[a] = made;
        t->deal[layout_dim(made)] = z.deal[layout_dim(made)];
    }
    sequence_fit(job, t);
    pad_outputs(g, n, &b);
    return out;
}

/* Appends the node that adds the outer product to the gradient of the weight. An axis that splits
 * the weight also splits the outer product. On another axis that splits tokens, each rank sums over
 * its own tokens. */
static bool add_outer(Job *job, NodeId divide, TensorId dot, const SpectralNorm *norm)
{
    Graph *g = &job->plan->graph;
    TensorId in[] = {dot, norm->of_rows, norm->of_columns};
    TensorId out = gradient_of(job, norm->weight);
    Node *n = backward_node(job, norm->outer, in, out, divide);
    const Tensor *w = &g->tensors.at[norm->weight], *d = &g->tensors.at[dot];
    Binding b;
    if (!graph_bind(g, n, &b, job->diag)) return false;
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++) {
        if (layout_is_split(w->use.on[a]))
            n->split[a] = b.letter[3][layout_dim(w->use.on[a])];
        else if (layout_is_split(d->use.on[a]))
            n->split[a] = b.letter[0][layout_dim(d->use.on[a])];
    }
    return true;
}

bool spectral_backward(Job *job, NodeId divide)
{
    const Graph *g = &job->plan->graph;
    const Node *f = &g->nodes.at[divide];
    SpectralNorm norm;
    if (!find_norm(g, f->in[1], &norm))
        return diag_error(job->diag, FAULT_internal, "graph-structure", f->loc,
                          "%s is divided by a value other than the norm of a weight",
                          g->tensors.at[f->in[0]].name);
    if (!g->tensors.at[f->out[0]].grad) return true; /* the loss does not depend on this node */
    TensorId dot = add_dot(job, divide);
    return dot && add_outer(job, divide, dot, &norm);
}
