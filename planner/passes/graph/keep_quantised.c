/* The option float8 { keep_quantised = true }. With scales for rows or blocks, the gradient of a
 * weight needs its input quantised along another index than the forward product. backward.c lets
 * the backward pass compute this second form, so the unquantised input is kept until then. This
 * pass moves the second quantisation into the forward pass, behind the first, so that only the
 * second form (a byte or less for each value) is kept.
 *
 * Nothing is moved where it would save no memory: if another backward node also reads the
 * unquantised input, or if the layer is recomputed. */
#include <assert.h>
#include <string.h>

#include "planner/passes/graph/float8.h"

typedef struct Mover {
    Graph *g;
    /* stays[tensor]: another reader needs it unquantised in the backward pass, so it is kept or
     * recomputed anyway */
    bool *stays;
    NodeId *behind; /* behind[node]: the forward node behind which the node is moved; 0: it stays */
    /* Lists of the nodes that move behind one node: first[node] starts the list, next[moved node]
     * continues it. */
    NodeId *first, *next;
} Mover;

static bool makes_form(const Node *n)
{
    return op_info(n->op)->flags & (OP_QUANTISES | OP_MAGNITUDE);
}

/* True if backward node n quantises a forward activation, or finds its scales, outside of regions
 * that are recomputed or cut by tile{}. */
static bool is_movable(const Graph *g, const Node *n)
{
    const TensorId x = n->in[0];
    const Tensor *at = &g->tensors.at[x];
    if (!makes_form(n) || n->region || n->tile) return false;
    return at->role == ROLE_activation && at->producer <= g->n_forward;
}

static void find_stays(Mover *m)
{
    const Graph *g = m->g;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const bool moves = id > g->n_forward ? is_movable(g, n) : !n->region;
        for (uint32_t i = 0; i < n->n_in; i++)
            if (!moves) m->stays[n->in[i]] = true;
    }
}

/* Chooses the place of each node that moves: behind the node that quantises the same input for the
 * forward product. */
static void find_places(Mover *m)
{
    const Graph *g = m->g;
    /* backwards, because each node is put at the front of its list */
    for (NodeId id = (NodeId)g->nodes.n; id-- > g->n_forward + 1;) {
        const Node *n = &g->nodes.at[id];
        if (!is_movable(g, n) || m->stays[n->in[0]]) continue;
        const Node *product = &g->nodes.at[n->forward];
        const NodeId place = g->tensors.at[product->in[0]].producer;
        assert(makes_form(&g->nodes.at[place]) && g->nodes.at[place].in[0] == n->in[0]);
        m->behind[id] = place;
        m->next[id] = m->first[place];
        m->first[place] = id;
    }
}

/* Rebuilds g->nodes in the new order, and changes all node ids. */
static void rewrite(Mover *m, Job *job)
{
    Graph *g = m->g;
    const Node *old = g->nodes.at;
    const uint32_t n = g->nodes.n;
    NodeId *now = arena_array(job->scratch, n, sizeof *now);
    memset(&g->nodes, 0, sizeof g->nodes);
    list_reserve_none(job->arena, &g->nodes);
    for (NodeId id = 1; id < n; id++) {
        if (m->behind[id]) continue;
        now[id] = (NodeId)list_push(job->arena, &g->nodes, old[id]);
        for (NodeId k = m->first[id]; k; k = m->next[k]) {
            now[k] = (NodeId)list_push(job->arena, &g->nodes, old[k]);
            g->n_forward++;
        }
    }
    for (TensorId t = 1; t < g->tensors.n; t++)
        g->tensors.at[t].producer = now[g->tensors.at[t].producer];
    for (NodeId id = 1; id < n; id++)
        g->nodes.at[now[id]].forward = m->behind[id] ? 0 : now[old[id].forward];
    assert(g->nodes.n == n);
}

bool pass_keep_quantised(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_float8);
    Mover m = {.g = &job->plan->graph};
    if (!pass || !pass->float8.keep_quantised) return true;
    m.stays = arena_array(job->scratch, m.g->tensors.n, sizeof *m.stays);
    m.behind = arena_array(job->scratch, m.g->nodes.n, sizeof *m.behind);
    m.first = arena_array(job->scratch, m.g->nodes.n, sizeof *m.first);
    m.next = arena_array(job->scratch, m.g->nodes.n, sizeof *m.next);
    find_stays(&m);
    find_places(&m);
    rewrite(&m, job);
    return true;
}
