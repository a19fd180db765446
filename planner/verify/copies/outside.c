/* Finds items outside the blocks that refer to a block, which the comparison of one block with the
 * next cannot show. */
#include "planner/verify/copies/copies.h"

/* Notes that an item outside all blocks refers to item x. The block of x then differs from its
 * neighbours, to which this item does not refer. */
static void touch(BlockCopies *b, ItemKind kind, uint32_t x)
{
    const uint32_t block = b->of[kind].block[x];
    if (block) b->differs[block] = b->differs[block - 1] = true;
}

static void touch_from_graph(BlockCopies *b)
{
    const Graph *g = b->g;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (b->of[OF_tensors].block[t]) continue;
        touch(b, OF_nodes, g->tensors.at[t].producer);
        touch(b, OF_tensors, g->tensors.at[t].grad);
        touch(b, OF_tensors, g->tensors.at[t].grad_of);
        touch(b, OF_units, g->tensors.at[t].unit);
    }
    for (NodeId id = 1; id < g->nodes.n; id++) {
        if (b->of[OF_nodes].block[id]) continue;
        const Node *n = &g->nodes.at[id];
        touch(b, OF_nodes, n->forward);
        for (uint32_t i = 0; i < n->n_in; i++) touch(b, OF_tensors, n->in[i]);
        for (uint32_t j = 0; j < n->n_out; j++) touch(b, OF_tensors, n->out[j]);
    }
    for (UnitId u = 1; u < g->units.n; u++)
        for (uint32_t i = 0; !b->of[OF_units].block[u] && i < g->units.at[u].params.n; i++)
            touch(b, OF_tensors, g->units.at[u].params.at[i]);
}

void copies_touch(BlockCopies *b)
{
    const Program *p = b->p;
    touch_from_graph(b);
    for (BufferId at = 1; at < p->buffers.n; at++) {
        const Buffer *is = &p->buffers.at[at];
        if (b->of[OF_buffers].block[at]) continue;
        touch(b, OF_buffers, is->parent);
        touch(b, OF_tensors, is->tensor);
        touch(b, OF_units, is->unit);
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (b->of[OF_code].block[pc]) continue;
        touch(b, OF_nodes, in->origin);
        touch(b, OF_units, in->unit);
        for (uint32_t i = 0; i < in->args.n; i++) touch(b, OF_buffers, program_arg(p, in, i));
    }
}
