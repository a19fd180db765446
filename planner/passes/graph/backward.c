/* Derives the gradient nodes. The gradients of a contraction follow from its signature; every other
 * op's row in ops.def names its backward ops. A gradient has the layout of its activation, and a
 * backward node splits the same indices as its forward node. Several nodes may write one gradient
 * tensor, whose value is their sum. The gradients of an 8-bit contraction take several nodes
 * (float8_backward.c). */
#include <assert.h>

#include "planner/ir/op/bound.h"
#include "planner/passes/graph/float8.h"
#include "planner/passes/graph/spectral.h"

static TensorId wire_tensor(const Graph *g, const Node *f, Wire w)
{
    TensorId out = w.kind == WIRE_i ? f->in[w.index] : f->out[w.index];
    return w.kind == WIRE_d ? g->tensors.at[out].grad : out;
}

static uint32_t wire_arg(const Node *f, Wire w)
{
    return w.kind == WIRE_i ? w.index : (uint32_t)f->n_in + w.index;
}

/* Signatures of different ops use different letters for the same index. Returns the letter that
 * backward op `w->op` has for the index with letter `letter` in the forward op. */
static char follow_letter(const Node *f, const Binding *forward, const Backward *w,
                          const Binding *backward, char letter)
{
    if (!letter) return 0;
    for (uint32_t i = 0; i < (uint32_t)w->n_in + w->n_of; i++) {
        uint32_t arg = i < w->n_in ? wire_arg(f, w->in[i]) : w->of[i - w->n_in];
        for (int d = 0; d < forward->n_dims[arg]; d++)
            if (forward->letter[arg][d] == letter) {
                char found = backward->letter[i][d];
                return op_may_split(w->op, found) ? found : 0;
            }
    }
    return 0;
}

static bool add_backward(Job *job, NodeId forward_id, const Backward *w)
{
    Graph *g = &job->plan->graph;
    Node f = g->nodes.at[forward_id];
    TensorId in[MAX_IN], out[MAX_OUT];
    for (uint32_t i = 0; i < w->n_in; i++) {
        in[i] = wire_tensor(g, &f, w->in[i]);
        if (!in[i]) return true; /* the loss does not depend on this output */
    }
    for (uint32_t j = 0; j < w->n_of; j++) out[j] = gradient_of(job, f.in[w->of[j]]);
    static const Attrs none; /* an op that only passes the gradient on has no attributes */
    const Attrs *attrs = w->op == OP_pass ? &none : graph_attrs_at(g, f.attrs);
    NodeId id = graph_node(g, job->arena, w->op, in, w->n_in, out, w->n_of, attrs, f.module, f.loc);
    Node *n = &g->nodes.at[id];
    n->forward = forward_id;
    n->layer = f.layer;
    n->stage = f.stage;
    n->region = f.region;
    Binding own[2];
    const Binding *fb = graph_bound(g, &f, &own[0], job->diag);
    const Binding *nb = fb != NULL ? graph_bound(g, n, &own[1], job->diag) : NULL;
    if (nb == NULL) return false;
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++)
        n->split[a] = follow_letter(&f, fb, w, nb, f.split[a]);
    return true;
}

/* Returns an array with an entry for each tensor: true if the tensor needs a gradient, because a
 * trained parameter affects the loss through it. */
static bool *find_needs(Job *job)
{
    const Graph *g = &job->plan->graph;
    bool *needs = arena_array(job->scratch, g->tensors.n, sizeof *needs);
    for (TensorId t = 1; t < g->tensors.n; t++) needs[t] = tensor_trains(&g->tensors.at[t]);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const OpInfo *info = op_info(n->op);
        bool any = (info->flags & OP_QUANTISES) && needs[n->in[0]];
        if (info->scaling != SCALING_none) any = needs[n->in[0]] || needs[n->in[1]];
        for (uint32_t k = 0; k < info->n_backward; k++)
            for (uint32_t j = 0; j < info->backward[k].n_of; j++)
                any = any || needs[n->in[info->backward[k].of[j]]];
        for (uint32_t j = 0; any && j < n->n_out; j++) needs[n->out[j]] = true;
    }
    return needs;
}

/* Returns the forward nodes in the order in which their gradients are computed: the last node
 * first. Pieces of a region that tile{} has cut keep their order, because the backward nodes of
 * each piece directly follow its forward nodes. */
static NodeId *backward_order(const Job *job)
{
    const Graph *g = &job->plan->graph;
    NodeId *order = arena_array(job->scratch, g->nodes.n, sizeof *order);
    uint32_t n = 0;
    for (NodeId id = g->n_forward; id > 0; id--) {
        NodeId first = id, last = id;
        for (; g->nodes.at[id].tile && g->nodes.at[first - 1].tile; first--) {
        }
        for (NodeId from = first; from <= id; from = last + 1) {
            for (last = from; last < id && g->nodes.at[last + 1].tile == g->nodes.at[from].tile;)
                last++;
            for (NodeId k = last; k >= from; k--) order[n++] = k;
        }
        id = first;
    }
    return order;
}

/* Appends all gradient nodes of forward node `id`. */
static bool differentiate(Job *job, NodeId id, const bool *needs, Quantised *again)
{
    Graph *g = &job->plan->graph;
    const OpInfo *info = op_info(g->nodes.at[id].op);
    const TensorId *in = g->nodes.at[id].in;
    if (info->scaling != SCALING_none && (needs[in[0]] || needs[in[1]]) &&
        !float8_backward(job, id, needs[in[0]], needs[in[1]], again))
        return false;
    if (op_is_by_scalar(g->nodes.at[id].op) && info->flags & OP_AFFINE &&
        !spectral_backward(job, id))
        return false;
    for (uint32_t k = 0; k < info->n_backward; k++) {
        bool any = false;
        for (uint32_t j = 0; j < info->backward[k].n_of; j++)
            any = any || needs[g->nodes.at[id].in[info->backward[k].of[j]]];
        if (any && !add_backward(job, id, &info->backward[k])) return false;
    }
    return true;
}

bool pass_backward(Job *job)
{
    Graph *g = &job->plan->graph;
    const uint32_t before = job->diag->n_errors;
    const bool *needs = find_needs(job);
    Quantised *again = arena_array(job->scratch, g->tensors.n, sizeof *again);
    g->n_forward = (uint32_t)g->nodes.n - 1;
    if (!g->loss || !needs[g->loss]) {
        diag_error(job->diag, FAULT_input, "no-gradient", job->config->batch_loc,
                   "the model's loss does not depend on any parameter");
        diag_hint(job->diag, "forward must return nn.cross_entropy(logits, labels)");
        return false;
    }
    const NodeId *order = backward_order(job);
    /* room for most gradients at once, because a list that grows is copied each time */
    list_reserve(job->arena, &g->nodes, 2 * g->n_forward);
    list_reserve(job->arena, &g->tensors, g->tensors.n);
    for (uint32_t k = 0; k < g->n_forward; k++) {
        NodeId first = g->nodes.n;
        if (!differentiate(job, order[k], needs, again)) return false;
        for (NodeId id = first; id < g->nodes.n; id++)
            g->nodes.at[id].tile = g->nodes.at[order[k]].tile;
    }
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *p = &g->tensors.at[t];
        if (!tensor_trains(p) || p->grad) continue;
        diag_error(job->diag, FAULT_input, "unused-parameter", p->loc,
                   "%s gets no gradient, because the loss does not depend on it", p->name);
        diag_hint(job->diag, "call the module in forward, or remove it");
    }
    compile_gradients(job);
    return job->diag->n_errors == before;
}
