/* Computes the fields of ModelInfo (parameters, layers, heads, ...) from the graph. */
#include "planner/ir/graph.h"

static void count_params(Graph *g)
{
    g->info.n_params = g->info.n_params_no_embedding = 0;
    for (TensorId id = 1; id < g->tensors.n; id++) {
        const Tensor *t = &g->tensors.at[id];
        uint64_t n = t->role == ROLE_param;
        for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dim[d];
        g->info.n_params += n;
        if (!t->input_embedding) g->info.n_params_no_embedding += n;
    }
}

/* Returns the size of the dimension of `w` with this role, where `w` is input 1 of `op`. */
static uint32_t weight_size(OpKind op, const Tensor *w, IndexRole role)
{
    return (uint32_t)w->dim[op_dim(op, 1, role)];
}

static void find_widths(Graph *g, const Node *n)
{
    ModelInfo *info = &g->info;
    const Tensor *w = &g->tensors.at[n->in[1]];
    /* forward lookups only: the gradient of an embedding does not read its table */
    if (op_info(n->op)->flags & OP_LOOKS_UP && op_dim(n->op, 1, INDEX_vocab) >= 0 &&
        info->vocab == 0) {
        info->vocab = weight_size(n->op, w, INDEX_vocab);
        info->d_model = weight_size(n->op, w, INDEX_features);
    }
    /* a model without an embedding table still has logits over the vocabulary */
    if (op_info(n->op)->flags & OP_OF_LOSS && op_dim(n->op, 0, INDEX_vocab) >= 0 &&
        info->vocab == 0)
        info->vocab = (uint32_t)g->tensors.at[n->in[0]].dim[op_dim(n->op, 0, INDEX_vocab)];
    if (op_joins_heads(n->op) && info->n_heads == 0) {
        if (info->d_model == 0) info->d_model = weight_size(n->op, w, INDEX_features);
        info->n_kv_heads = weight_size(n->op, w, INDEX_groups);
        info->n_heads = info->n_kv_heads * weight_size(n->op, w, INDEX_heads);
        info->head_dim = weight_size(n->op, w, INDEX_head);
    }
}

void graph_find_info(Graph *g)
{
    ModelInfo *info = &g->info;
    count_params(g);
    info->n_layers = info->vocab = info->d_model = 0;
    info->n_heads = info->n_kv_heads = info->head_dim = 0;
    for (ModuleId m = 1; m < g->modules.n; m++)
        if (g->modules.at[m].layer > info->n_layers) info->n_layers = g->modules.at[m].layer;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].op != OP_none && g->nodes.at[id].n_in >= 2)
            find_widths(g, &g->nodes.at[id]);
}
