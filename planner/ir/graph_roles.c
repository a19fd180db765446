/* Finds the role (tokens, heads, features) of each dimension of each tensor. */
#include <string.h>

#include "planner/ir/graph.h"

/* For a slicing op (OP_TAKES): returns the letter of the input's dimension that it slices. The
 * output has another letter for it, because its size differs. Returns 0 for other ops. */
static char letter_taken(OpKind op, const Binding *b)
{
    if (!(op_info(op)->flags & OP_TAKES)) return 0;
    for (int d = 0; d < b->n_dims[0]; d++)
        if (!memchr(b->letter[b->n_in], b->letter[0][d], b->n_dims[b->n_in]))
            return b->letter[0][d];
    return 0;
}

static void note_node(const Graph *g, const Node *n, const Binding *b, DimRoles *of)
{
    IndexRole role['z' + 1] = {INDEX_none};
    const uint32_t n_args = (uint32_t)n->n_in + n->n_out;
    for (uint32_t i = 0; i < b->n_letters; i++)
        role[(int)b->letters[i]] = op_role(n->op, b->letters[i]);
    for (uint32_t i = 0; i < n->n_in; i++)
        for (int d = 0; d < b->n_dims[i]; d++)
            if (role[(int)b->letter[i][d]] == INDEX_none)
                role[(int)b->letter[i][d]] = (IndexRole)of[n->in[i]].of[d];
    const char taken = letter_taken(n->op, b);
    for (uint32_t i = 0; i < n_args; i++) {
        const TensorId t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        for (int d = 0; d < b->n_dims[i] && d < g->tensors.at[t].n_dims; d++) {
            IndexRole is = role[(int)b->letter[i][d]];
            const bool part =
                taken && i >= n->n_in && !memchr(b->letter[0], b->letter[i][d], b->n_dims[0]);
            if (part && is == INDEX_none) is = role[(int)taken];
            if (of[t].of[d] == INDEX_none) of[t].of[d] = (uint8_t)is;
        }
    }
}

DimRoles *graph_roles(const Graph *g, Arena *arena)
{
    DimRoles *of = arena_array(arena, g->tensors.n, sizeof *of);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        Binding b;
        if (graph_bind(g, n, &b, NULL)) note_node(g, n, &b, of);
    }
    return of;
}

int roles_dim(const DimRoles *roles, IndexRole role)
{
    for (int d = 0; d < MAX_DIMS; d++)
        if (roles->of[d] == role) return d;
    return -1;
}
