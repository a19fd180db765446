/* Checks fused projections with segments of different sizes. Their features are stored group by
 * group. Tensor.order says which features of a group belong to which segment; initial weights and
 * checkpoints depend on it. The ops that take a segment name its features in attributes. If this
 * order and these attributes differ, a rank gets features of another segment, such as half of k
 * instead of q. All ranks would be wrong in the same way, so a comparison of ranks would not show
 * it. */
#include "planner/verify/value/value.h"

#define RULE "verify-segments"

static bool order_fits(const Verifier *v, const Tensor *t)
{
    const Deals *deals = &v->g->deals;
    bool lasts = t->role == ROLE_param || t->role == ROLE_state;
    if (t->order >= deals->deals.n || !lasts || t->order_dim + 1 >= t->n_dims) return false;
    const Deal *d = &deals->deals.at[t->order];
    return d->kind == DEAL_segments && d->n_parts == t->dim[t->order_dim] &&
           deal_valid(deals, t->order, d->size, d->n_parts, 0) == t->dim[t->order_dim + 1];
}

/* True if features [lo, hi) of each group are exactly one segment. */
static bool is_a_segment(const Verifier *v, DealId order, int64_t lo, int64_t hi)
{
    const Deals *deals = &v->g->deals;
    const Deal *d = &deals->deals.at[order];
    Interval at;
    for (uint32_t k = 0; deal_interval(deals, order, d->size, d->n_parts, 0, k, &at); k++) {
        int64_t each = at.hi - at.lo;
        if (lo == 0) return hi == each;
        lo -= each, hi -= each;
        if (lo < 0) return false;
    }
    return false;
}

static void check_param(Verifier *v, NodeId id, const char *name, DealId order, int64_t groups)
{
    const Attrs *a = graph_attrs_at(v->g, v->g->nodes.at[id].attrs);
    int64_t end = a->first + a->count;
    if (!order && groups > 1)
        verify_report(v, RULE, 0,
                      "graph node %u takes a segment from each of the %lld groups of %s, but their "
                      "features are in plain order",
                      id, (long long)groups, name);
    else if (order && !is_a_segment(v, order, a->first, end))
        verify_report(v, RULE, 0,
                      "graph node %u takes features %lld to %lld of each group of %s, but these "
                      "are not one segment",
                      id, (long long)a->first, (long long)end, name);
}

/* Checks the projection from which a segment is taken, and its bias. */
static void check_taken(Verifier *v, NodeId id)
{
    const Graph *g = v->g;
    const Node *n = &g->nodes.at[id];
    /* the dimension after the groups holds the features of a group */
    const int64_t groups = g->tensors.at[n->in[0]].dim[op_taken_dim(n->op) - 1];
    const Node *made = &g->nodes.at[graph_product(g, n->in[0])];
    if (op_adds_bias(made->op)) {
        const Tensor *bias = &g->tensors.at[made->in[1]];
        check_param(v, id, bias->name, bias->order, groups);
        made = &g->nodes.at[graph_product(g, made->in[0])];
    }
    if (op_info(made->op)->class_ != OP_CLASS_contract) return;
    const Tensor *w = &g->tensors.at[graph_weight(g, made->in[1])];
    if (w->role == ROLE_param) check_param(v, id, w->name, w->order, groups);
}

void verify_segments(Verifier *v)
{
    const Graph *g = v->g;
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].order && !order_fits(v, &g->tensors.at[t]))
            verify_report(v, RULE, 0, "%s has an order that does not fit its dimensions",
                          g->tensors.at[t].name);
    if (v->n_reported) return;
    NodeId last = g->n_forward ? g->n_forward : (NodeId)(g->nodes.n - 1);
    for (NodeId id = 1; id <= last; id++) {
        const OpKind op = g->nodes.at[id].op;
        /* other ops take channels or tokens */
        if (op_taken_dim(op) > 0 && op_dim(op, 0, INDEX_tokens) >= 0) check_taken(v, id);
    }
}
