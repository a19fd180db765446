/* Quantised inputs that are kept for the gradients of weights. With scales for rows or blocks, the
 * gradient of a weight reads its input in another quantised form than the forward product.
 * backward.c makes this form in the backward pass, so the unquantised input is kept until then.
 * With float8 { keep_quantised = true }, the forward pass makes this second form, after the first
 * one, and only the second form is kept. Two kinds of inputs do not change, because this would save
 * no memory. They are inputs that another backward node reads, and inputs of a layer that ac
 * recomputes. */
#include <assert.h>
#include <string.h>

#include "planner/passes/graph/float8.h"

typedef struct Mover {
    Graph *g;
    bool *stays;          /* [tensor]: true if another reader needs it, so that it is kept or
                             recomputed in any case */
    NodeId *behind;       /* [node]: the forward node after which it is placed; 0: it does not
                             move */
    NodeId *first, *next; /* first[node]: the first node that is placed after `node`; next[node]:
                             the next one placed after the same node */
} Mover;

static bool makes_form(const Node *n)
{
    return op_info(n->op)->flags & (OP_QUANTISES | OP_MAGNITUDE);
}

/* True if backward node n makes a quantised form of a forward activation, or finds its scales. */
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

/* Finds the new position of each node that moves: after the node that makes the form which the
 * forward product reads. */
static void find_places(Mover *m)
{
    const Graph *g = m->g;
    for (NodeId id = (NodeId)g->nodes.n; id-- > g->n_forward + 1;) { /* backwards, so that each list
                                                                        has the order of the
                                                                        nodes */
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

/* Rebuilds the list of nodes in the new order, and renumbers them. */
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
