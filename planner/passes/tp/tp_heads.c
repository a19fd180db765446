/* Splits attention heads over tp. KV heads (groups) are split first. If tp has more ranks than
 * there are KV heads, tp becomes several mesh axes (tp_refine). The outer ones split the KV heads,
 * the inner ones the query heads of each KV head. K and V are whole on the inner axes, so their
 * gradients are summed over them. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the head dimensions of argument `arg` of a product, counted from dimension `from` on. */
static HeadDims dims_with(OpKind op, uint32_t arg, int from)
{
    const int groups = op_dim(op, arg, INDEX_groups), heads = op_dim(op, arg, INDEX_heads);
    HeadDims h = {0, 0, 0};
    if (groups >= from) h.groups = (int8_t)(groups - from + 1);
    if (heads >= from) h.repeat = (int8_t)(heads - from + 1);
    return h;
}

/* True if the op slices query heads out of the output of a fused projection. */
static bool takes_heads(OpKind op)
{
    const OpInfo *info = op_info(op);
    return info->flags & OP_TAKES && info->sig.n_out == 1 &&
           op_dim(op, info->sig.n_in, INDEX_heads) >= 0;
}

/* Node `taken` slices query heads. Sets *weight and *bias (0: none) to the parameters of the fused
 * projection that it slices. */
static void fused_params(const Graph *g, const Node *taken, TensorId *weight, TensorId *bias)
{
    const Node *made = &g->nodes.at[graph_product(g, taken->in[0])];
    *bias = op_adds_bias(made->op) ? made->in[1] : 0;
    if (*bias) made = &g->nodes.at[graph_product(g, made->in[0])];
    *weight = op_info(made->op)->class_ == OP_CLASS_contract ? made->in[1] : 0;
}

static void note_fused(const Graph *g, const Node *n, HeadDims *of)
{
    const Attrs *a = graph_attrs_at(g, n->attrs);
    TensorId weight, bias;
    fused_params(g, n, &weight, &bias);
    of[weight].fused = of[bias].fused = a->count;
}

/* True for ops on heads that are not products. Their parameters may have head dimensions: sinks, a
 * table of biases by distance, parameters of a state-space layer. */
static bool has_heads(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_compute && op_dim(op, 0, INDEX_groups) >= 0 &&
           op_dim(op, 0, INDEX_tokens) >= 0;
}

const HeadDims *tp_head_dims(Job *job)
{
    const Graph *g = &job->plan->graph;
    HeadDims *of = arena_array(job->scratch, g->tensors.n, sizeof *of);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        if (takes_heads(n->op)) note_fused(g, n, of);
        for (uint32_t i = 0; has_heads(n->op) && i < n->n_in; i++)
            if (g->tensors.at[n->in[i]].role == ROLE_param) of[n->in[i]] = dims_with(n->op, i, 0);
        if (n->n_in < 2 || g->tensors.at[n->in[1]].role != ROLE_param) continue;
        const Node *made = &g->nodes.at[graph_product(g, n->in[0])];
        if (op_info(n->op)->class_ == OP_CLASS_contract)
            of[n->in[1]] = dims_with(n->op, 1, 0);
        else if (op_adds_bias(n->op) && op_info(made->op)->class_ == OP_CLASS_contract)
            of[n->in[1]] =
                dims_with(made->op, made->n_in,
                          g->tensors.at[n->in[0]].n_dims - g->tensors.at[n->in[1]].n_dims);
    }
    return of;
}

/* True if tp may split the parameter by its heads. With tp { plan } every parameter may be split,
 * because the patterns are applied later. */
static bool may_be_cut(const Job *job, const Tensor *t)
{
    return t->tp == TP_column || t->tp == TP_row || pass_config(job, PASS_tp)->tp.plan.n > 0;
}

/* Splits tp into mesh axes that suit all attention layers. If their counts of KV heads divide each
 * other, each count gets an axis: 2 and 4 KV heads on 8 ranks give 2 x 2 x 2. Otherwise tp is split
 * once, at the greatest common divisor. */
void tp_refine(Job *job)
{
    const Graph *g = &job->plan->graph;
    Mesh *mesh = &job->plan->mesh;
    AxisSet tp = pass_axes(job, PASS_tp);
    if (!tp) return;
    const HeadDims *heads = tp_head_dims(job);
    uint32_t axis = (uint32_t)__builtin_ctz(tp), size = mesh->axis[axis].size;
    bool wanted[1024] = {false};
    int64_t common = size, above = size;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role != ROLE_param || !heads[t].groups || !may_be_cut(job, at)) continue;
        int64_t outer = gcd(size, at->dim[heads[t].groups - 1]);
        common = gcd(common, outer);
        if (outer < 1024) wanted[outer] = true;
    }
    bool nest = true;
    for (int64_t k = size < 1024 ? size : 1023; k > 0; k--) {
        if (!wanted[k]) continue;
        nest = nest && above % k == 0;
        above = k;
    }
    for (int64_t k = size - 1 < 1023 ? size - 1 : 1023; k > 1; k--)
        if (nest ? wanted[k] : k == common)
            mesh_refine(mesh, job->arena, axis, (uint32_t)(mesh->axis[axis].size / k));
}

bool tp_heads_fit(int64_t groups, int64_t repeat, uint32_t tp)
{
    return repeat % (tp / gcd(tp, groups)) == 0;
}

bool tp_place_heads(const Job *job, Tensor *t, HeadDims heads, uint32_t *rest)
{
    const Mesh *mesh = &job->plan->mesh;
    AxisSet tp = pass_axes(job, PASS_tp);
    int64_t groups = t->dim[heads.groups - 1];
    bool outer = true;
    *rest = 1;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        if (!(tp >> a & 1)) continue;
        outer = outer && groups % mesh->axis[a].size == 0;
        if (outer) {
            groups /= mesh->axis[a].size;
            t->use.on[a] = SPLIT(heads.groups - 1);
        } else {
            *rest *= mesh->axis[a].size;
            t->use.on[a] = heads.repeat ? SPLIT(heads.repeat - 1) : (int8_t)WHOLE;
        }
    }
    int64_t repeat = heads.repeat ? t->dim[heads.repeat - 1] : heads.fused;
    return repeat % *rest == 0;
}

/* A fused projection is whole on the inner mesh axes of tp, whose ranks share KV heads. Each rank
 * computes all of it, and then slices its own query heads. A projection that the plan leaves whole
 * stays so. */
void tp_place_fused(Job *job)
{
    Graph *g = &job->plan->graph;
    const Mesh *mesh = &job->plan->mesh;
    AxisSet tp = pass_axes(job, PASS_tp);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        TensorId weight, bias;
        if (!takes_heads(n->op)) continue;
        fused_params(g, n, &weight, &bias);
        const Tensor *w = &g->tensors.at[weight];
        if (!weight || w->tp != TP_column || g->tensors.at[n->in[0]].use_is_fixed) continue;
        Tensor *q = &g->tensors.at[n->out[0]];
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (tp >> a & 1)
                q->use.on[a] = SPLIT(op_dim(
                    n->op, n->n_in, layout_is_split(w->use.on[a]) ? INDEX_groups : INDEX_heads));
        q->use_is_fixed = true;
    }
}
