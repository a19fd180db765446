/* Models experts that are chosen unevenly: the busiest ranks have `factor` times as many rows as
 * with even choices. All ranks wait for these ranks in every layer, at the exchange back. The step
 * therefore takes as long as if every rank had as many rows, and ranks stay equivalent. The model
 * multiplies the times of computation on experts' rows, and of the exchange of tokens, by `factor`.
 * It applies to plans that drop no tokens; with a fixed capacity an expert cannot get more rows. */
#include <assert.h>
#include <math.h>

#include "planner/ir/experts.h"
#include "sim/runtime/runtime.h"

struct Imbalance {
    /* factor for the rows; the share of a plan's bytes that an exchange really sends */
    double factor, exchanged;
    CostModel cost;
    NetModel net;
    const NodeId *rows; /* [tensor] */
    AxisSet ep;         /* the mesh axis ep, whose ranks exchange tokens */
};

static Ps longer(const Imbalance *b, Ps time)
{
    return ps_of((double)time * b->factor);
}

static bool is_on_rows(const Imbalance *b, const Program *p, const Instr *in)
{
    if (op_info(in->op)->class_ == OP_CLASS_comm || op_info(in->op)->flags & OP_SCATTERS)
        return false;
    for (uint32_t i = 0; i < in->args.n; i++) {
        TensorId t = p->buffers.at[program_arg(p, in, i)].tensor;
        if (t && b->rows[t]) return true;
    }
    return false;
}

static Ps compute(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Imbalance *b = self;
    Ps time = b->cost.compute(b->cost.self, plan, p, in);
    return is_on_rows(b, p, in) ? longer(b, time) : time;
}

static Ps issue(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Imbalance *b = self;
    return b->cost.issue(b->cost.self, plan, p, in);
}

static double bytes(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Imbalance *b = self;
    return b->cost.bytes(b->cost.self, plan, p, in) * (is_on_rows(b, p, in) ? b->factor : 1);
}

static bool leaves_out(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    const Imbalance *b = self;
    return b->cost.leaves_out(b->cost.self, plan, p, in);
}

static double waited(const void *self, const Plan *plan, const Instr *in)
{
    const Imbalance *b = self;
    return b->cost.waited(b->cost.self, plan, in);
}

static bool waits(const void *self, const Instr *in)
{
    const Imbalance *b = self;
    return b->cost.waits(b->cost.self, in);
}

static void start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    const Imbalance *b = self;
    Transfer more = *t;
    const bool exchange = op_exchanges(t->op) && t->group && !(t->group->axes & ~b->ep);
    if (exchange) more.bytes = (uint64_t)llround((double)t->bytes * b->factor * b->exchanged);
    b->net.start(b->net.self, id, &more, now);
}

static bool next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    const Imbalance *b = self;
    return b->net.next(b->net.self, now, settle, id, when);
}

static void finish(void *self, uint32_t id, Ps now)
{
    const Imbalance *b = self;
    b->net.finish(b->net.self, id, now);
}

/* Returns the elements of an argument for each sample and each feature. */
static double size_without(const Tensor *t, OpKind op, uint32_t arg)
{
    double n = 1;
    for (int d = 0; d < t->n_dims; d++)
        if (d != op_dim(op, arg, INDEX_samples) && d != op_dim(op, arg, INDEX_features))
            n *= (double)t->dim[d];
    return n;
}

double imbalance_exchanged(const Plan *plan, const Runtime *runtime)
{
    const Graph *g = &plan->graph;
    const double ep =
        mesh_size(&plan->mesh, mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts)));
    double most = 0;
    if (runtime_is_own(runtime) || !runtime->pads_late) return 1;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const Attrs *a = graph_attrs_at(g, n->attrs);
        if (!op_sends_tokens(n->op) || a->experts < 1 || n->n_out < 1) continue;
        const Tensor *rows = &g->tensors.at[n->out[0]], *tokens = &g->tensors.at[n->in[0]];
        /* numbers for one sequence: slots of all experts, and choices of all tokens */
        const double rooms = size_without(rows, n->op, n->n_in);
        const double chosen = size_without(tokens, n->op, 0) * (double)a->top_k;
        most = fmax(most, fmin(1, chosen * ep / rooms));
    }
    return most > 0 ? most : 1;
}

Imbalance *imbalance_new(const Plan *plan, double factor, double exchanged, CostModel cost,
                         NetModel net, Arena *arena)
{
    Imbalance *b = arena_alloc(arena, sizeof *b);
    *b = (Imbalance){.factor = factor, .exchanged = exchanged, .cost = cost, .net = net};
    b->rows = experts_rows(&plan->graph, arena);
    b->ep = mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
    assert(b->rows && factor >= 1 && exchanged > 0 && exchanged <= 1);
    return b;
}

/* Each function of the wrapped model receives that model's `self`, so each needs a wrapper. */
CostModel imbalance_cost(Imbalance *b)
{
    CostModel model = b->cost;
    model.self = b;
    model.compute = compute;
    if (model.issue != NULL) model.issue = issue;
    if (model.bytes != NULL) model.bytes = bytes;
    if (model.leaves_out != NULL) model.leaves_out = leaves_out;
    if (model.waited != NULL) model.waited = waited;
    if (model.waits != NULL) model.waits = waits;
    return model;
}

NetModel imbalance_net(Imbalance *b)
{
    return (NetModel){start, next, finish, b};
}
