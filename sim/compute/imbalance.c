/* Models experts that tokens choose unevenly, in one of two ways. The model applies only to plans
 * that drop no tokens. With a fixed capacity, no expert can get more rows than this capacity.
 *
 * One factor: the busiest ranks have `factor` times the mean number of rows. In every layer, all
 * ranks wait for the busiest ones at the exchange that sends rows back. So the step takes as long
 * as if every rank had as many rows as the busiest ones, and all ranks stay equivalent. The model
 * multiplies the rows of each kernel, and the bytes of each exchange of tokens, by `factor`.
 *
 * Loads: each rank has its own number of rows in each layer and computes only those. The tokens are
 * spread evenly over the n ranks that exchange rows (along ep). So a rank receives (n - 1) / n of
 * its rows from the others. To each of the others, it sends 1 / n of that rank's rows. An exchange
 * ends for all n ranks when the busiest rank has received its rows, or has sent them back. Ranks
 * along tp and cp may have different experts as well. Such ranks have the same tokens but exchange
 * no rows with each other. Each of them exchanges the rows of its own experts along ep. */
#include <assert.h>
#include <math.h>

#include "planner/ir/experts.h"
#include "sim/compute/imbalance.h"
#include "sim/compute/rows_share.h"
#include "sim/runtime/runtime.h"

struct Imbalance {
    /* factor: multiplies the rows; exchanged: fraction of the bytes in the plan that an exchange
     * really sends */
    double factor, exchanged;
    CostModel cost;
    NetModel net;
    const NodeId *rows;    /* [tensor]: not 0 if the tensor has rows of experts */
    AxisSet ep;            /* the mesh axes along which ranks exchange tokens */
    const RowLoads *loads; /* NULL: the model has one factor instead */
    const uint32_t
        *layer_of; /* [node]: its layer, counting only layers with experts, from 1; 0: none */
    uint32_t n_classes;
    /* [layer][class]: rows that the class receives, or sends, in an exchange to the experts,
     * relative to the rows of the busiest rank that takes part */
    const double *received, *sent;
    const double *most;  /* [layer][class]: rows of that busiest rank, relative to the mean */
    const double *share; /* [layer][class]: rows of the class, relative to the mean */
};

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
    const RowsShare rows = {b->rows, b->factor};
    if (b->factor == 1 || !is_on_rows(b, p, in)) return b->cost.compute(b->cost.self, plan, p, in);
    return b->cost.compute_rows(b->cost.self, plan, p, in, &rows);
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
    double factor = b->factor;
    if (exchange && b->loads != NULL && t->layer > 0) {
        const size_t row = (size_t)(t->layer - 1) * b->n_classes;
        factor = b->most[row + t->group->members[0].class_];
        more.out = (t->back ? b->received : b->sent) + row;
        more.in = (t->back ? b->sent : b->received) + row;
    }
    /* an exchange of no rows still counts one byte */
    if (exchange) more.bytes = (uint64_t)llround(fmax(1, (double)t->bytes * factor * b->exchanged));
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

/* Returns how many elements an argument has for each sample and each feature. */
static double size_without(const Tensor *t, OpKind op, uint32_t arg)
{
    double n = 1;
    for (int d = 0; d < t->n_dims; d++)
        if (d != op_dim(op, arg, INDEX_samples) && d != op_dim(op, arg, INDEX_features))
            n *= (double)t->dim[d];
    return n;
}

static AxisSet axes_of_ep(const Plan *plan)
{
    return mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
}

double imbalance_exchanged(const Plan *plan, const Runtime *runtime)
{
    const Graph *g = &plan->graph;
    const double ep = mesh_size(&plan->mesh, axes_of_ep(plan));
    double most = 0;
    if (runtime_is_own(runtime) || !runtime->pads_late) return 1;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        const Attrs *a = graph_attrs_at(g, n->attrs);
        if (!op_sends_tokens(n->op) || a->experts < 1 || n->n_out < 1) continue;
        const Tensor *rows = &g->tensors.at[n->out[0]], *tokens = &g->tensors.at[n->in[0]];
        /* for one sequence: the slots of all experts, and the choices of all tokens */
        const double rooms = size_without(rows, n->op, n->n_in);
        const double chosen = size_without(tokens, n->op, 0) * (double)a->top_k;
        most = fmax(most, fmin(1, chosen * ep / rooms));
    }
    return most > 0 ? most : 1;
}

bool loads_fit(const RowLoads *loads, const Plan *plan)
{
    if (loads == NULL) return false; /* finding the axes visits the whole graph */
    const AxisSet axes = experts_axes(&plan->graph);
    return axes != 0 && mesh_size(&plan->mesh, axes) == loads->n_ranks;
}

uint32_t *loads_members(const Plan *plan, Arena *arena)
{
    const AxisSet axes = experts_axes(&plan->graph);
    uint32_t *member = arena_array(arena, plan->mesh.n_ranks, sizeof *member);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) member[r] = mesh_part(&plan->mesh, r, axes);
    return member;
}

/* The rows of those ranks that exchange rows with each other: their sum, and the largest number on
 * one rank. */
typedef struct Exchanged {
    double sum, most;
} Exchanged;

/* Returns the rows of the ranks with which `rank` exchanges rows along axes `ep`. For `share` see
 * RowLoads.share; `member` is the result of loads_members. */
static Exchanged exchanged_with(const Plan *plan, AxisSet ep, Rank rank, const double *share,
                                const uint32_t *member)
{
    Exchanged all = {0, 0};
    for (uint32_t i = 0; i < mesh_size(&plan->mesh, ep); i++) {
        const double rows = share[member[mesh_member(&plan->mesh, rank, ep, i)]];
        all.sum += rows;
        all.most = fmax(all.most, rows);
    }
    return all;
}

/* Counts the layers with experts, and gives each an index. Computes the rows of each class of ranks
 * in each layer, relative to the mean. */
static void find_shares(Imbalance *b, const Plan *plan, const Fold *fold, Arena *arena)
{
    const Graph *g = &plan->graph;
    const RowLoads *loads = b->loads;
    const NodeId end = g->n_forward > 0 ? g->n_forward + 1 : g->nodes.n;
    uint32_t *layer_of = arena_array(arena, g->nodes.n + 1, sizeof *layer_of), n = 0;
    for (NodeId id = 1; id < end; id++)
        if (op_sends_tokens(g->nodes.at[id].op)) layer_of[id] = ++n;
    const size_t cells = (size_t)n * fold->n_classes;
    double *share = arena_array(arena, cells + 1, sizeof *share),
           *received = arena_array(arena, cells + 1, sizeof *received),
           *sent = arena_array(arena, cells + 1, sizeof *sent),
           *most = arena_array(arena, cells + 1, sizeof *most);
    const uint32_t *member = loads_members(plan, arena);
    const double others = mesh_size(&plan->mesh, b->ep) - 1.;
    for (uint32_t layer = 0; layer < n; layer++)
        for (uint32_t c = 0; c < fold->n_classes; c++) {
            const double *row = loads->share + (size_t)(layer % loads->n_layers) * loads->n_ranks;
            const size_t cell = (size_t)layer * fold->n_classes + c;
            const Exchanged all = exchanged_with(plan, b->ep, fold->rank_of[c], row, member);
            share[cell] = row[member[fold->rank_of[c]]];
            most[cell] = all.most;
            if (others == 0 || all.most == 0) continue; /* these ranks exchange no rows */
            received[cell] = share[cell] / all.most;
            sent[cell] = (all.sum - share[cell]) / others / all.most;
        }
    b->layer_of = layer_of, b->n_classes = fold->n_classes;
    b->share = share, b->received = received, b->sent = sent, b->most = most;
}

Imbalance *imbalance_new(const Plan *plan, double factor, double exchanged, const RowLoads *loads,
                         const Fold *fold, CostModel cost, NetModel net, Arena *arena)
{
    Imbalance *b = arena_alloc(arena, sizeof *b);
    *b = (Imbalance){.factor = loads != NULL ? 1 : factor,
                     .exchanged = exchanged,
                     .loads = loads,
                     .cost = cost,
                     .net = net};
    b->rows = experts_rows(&plan->graph, arena);
    b->ep = axes_of_ep(plan);
    assert(b->rows && factor >= 1 && exchanged > 0 && exchanged <= 1);
    if (loads != NULL) find_shares(b, plan, fold, arena);
    return b;
}

/* Returns true if an exchange sends rows back to the ranks of their tokens: its input is split over
 * ep by experts. */
static bool is_back(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in)
{
    const Shape *s = plan_shape_at(plan, p->buffers.at[program_arg(p, in, 0)].shape);
    return (layout_axes_split(&s->layout, 0) & b->ep) != 0 && s->n_dims > 1 &&
           (layout_axes_split(&s->layout, 1) & b->ep) == 0;
}

double imbalance_held(const RowLoads *loads, double factor)
{
    double most = loads != NULL ? 0 : factor;
    for (uint32_t r = 0; loads != NULL && r < loads->n_ranks; r++) {
        double sum = 0;
        for (uint32_t l = 0; l < loads->n_layers; l++) sum += loads->share[l * loads->n_ranks + r];
        most = fmax(most, sum / loads->n_layers);
    }
    return fmax(most, 1);
}

uint32_t imbalance_layer(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                         bool *back)
{
    const bool exchange = op_exchanges(in->op) && in->axes && !(in->axes & ~b->ep);
    if (b->loads == NULL || !(exchange || is_on_rows(b, p, in))) return 0;
    for (uint32_t i = 0; i < in->args.n; i++) {
        const TensorId t = p->buffers.at[program_arg(p, in, i)].tensor;
        if (t == 0 || b->rows[t] == 0) continue;
        *back = exchange && is_back(b, plan, p, in);
        return b->layer_of[b->rows[t]];
    }
    return 0;
}

Ps imbalance_compute(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                     uint32_t layer, uint32_t class_)
{
    assert(layer > 0 && class_ < b->n_classes);
    const RowsShare rows = {b->rows, b->share[(size_t)(layer - 1) * b->n_classes + class_]};
    return b->cost.compute_rows(b->cost.self, plan, p, in, &rows);
}

/* Returns a model that calls the inner model `b->cost` and applies `b`. Each function of the inner
 * model expects that model's `self`, so each of them has a wrapper. */
CostModel imbalance_cost(Imbalance *b)
{
    CostModel model = b->cost;
    model.self = b;
    model.by_shape = false; /* layers have their own rows of experts */
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
