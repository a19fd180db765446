/* tile{}: computes the head and the loss in pieces along the tokens, so that no tensor contains all
 * logits.
 *
 * The region that is cut consists of all nodes from the head's product to the loss. For each
 * piece, `tokens` nodes slice the region's inputs (some tokens of every sequence). Copies of the
 * region's nodes then compute the piece's contribution and add it to the loss. The divisor of the
 * loss is outside of the region. Node.tile gives the piece of a node.
 *
 * The backward pass derives gradients piece by piece, and lowering runs a piece's backward directly
 * after its forward, because no gradient needs the whole loss. The pass runs right after
 * propagation, keeps its layouts and inserts no collective. */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

typedef struct Tile {
    Job *job;
    Graph *g;
    const PassConfig *pass;
    bool *inside; /* inside[node]: it belongs to the region */
    bool *wanted; /* wanted[tensor]: a node of the region computes it */
    /* piece[tensor before the cut]: its slice, or its copy, in the current piece */
    TensorId *piece;
    const DimRoles *roles; /* [tensor before the cut] */
    uint32_t n_tensors;    /* how many tensors there were before the cut */
    int64_t seq;
    /* How many ranks divide the tokens. A piece has a multiple of this many tokens, so that each
     * rank has equally many tokens of the piece. */
    int64_t step;
} Tile;

/* True for ops that may be in the region: those that work token by token, and those whose sums over
 * pieces add up to the whole sum. */
static bool may_be_inside(OpKind op)
{
    return op_info(op)->flags & (OP_OF_LOSS | OP_AFFINE);
}

static bool is_head(const Node *n)
{
    return op_info(n->op)->class_ == OP_CLASS_contract;
}

static int tokens_dim(const Tile *t, TensorId id)
{
    return roles_dim(&t->roles[id], INDEX_tokens);
}

/* True if the tensor has a dimension of tokens. Weights and scalars have none. */
static bool has_tokens(const Tile *t, TensorId id)
{
    const Tensor *at = &t->g->tensors.at[id];
    return (at->role == ROLE_activation || at->role == ROLE_input) && tokens_dim(t, id) >= 0;
}

static bool refuse(const Tile *t, const Node *n, const char *rule, const char *what,
                   const char *hint)
{
    diag_error(t->job->diag, FAULT_input, rule, t->pass->loc, "tile{}: %s (%s) %s",
               t->g->modules.at[n->module].path, op_info(n->op)->name, what);
    diag_hint(t->job->diag, "%s", hint);
    return false;
}

static bool check_inside(const Tile *t, const Node *n)
{
    if (is_head(n) && op_info(n->op)->scaling != SCALING_none)
        return refuse(t, n, "tile-float8",
                      "is converted by float8{}, whose scales need all tokens, but a piece has "
                      "only some of them",
                      "leave out tile, or set float8 { head = false }");
    if (!is_head(n) && !may_be_inside(n->op))
        return refuse(t, n, "tile-region", "stands between the head and the loss",
                      "leave out tile, or leave only a linear, its bias and nn.scale before "
                      "nn.cross_entropy");
    if (n->region)
        return refuse(t, n, "tile-recomputed",
                      "is recomputed by ac{}, which saves nothing because the backward pass of a "
                      "piece begins at once",
                      "leave the head's module out of ac { modules }");
    return true;
}

/* Finds the region: walks backwards from the loss to the products that compute logits. */
static bool find_region(Tile *t)
{
    Graph *g = t->g;
    const Node *loss = &g->nodes.at[g->loss ? g->tensors.at[g->loss].producer : 0];
    uint32_t n_heads = 0;
    if (!(op_info(loss->op)->flags & OP_OF_LOSS) || op_dim(loss->op, 0, INDEX_tokens) < 0)
        return diag_error(t->job->diag, FAULT_input, "tile-region", t->pass->loc,
                          "tile{} works only if the model's loss is nn.cross_entropy");
    t->wanted[g->loss] = true;
    for (NodeId id = g->nodes.n - 1; id > 0; id--) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t j = 0; j < n->n_out; j++)
            t->inside[id] = t->inside[id] || t->wanted[n->out[j]];
        if (!t->inside[id]) continue;
        if (!check_inside(t, n)) return false;
        n_heads += is_head(n);
        for (uint32_t i = 0; i < n->n_in && !is_head(n); i++)
            if (has_tokens(t, n->in[i]) && g->tensors.at[n->in[i]].role == ROLE_activation)
                t->wanted[n->in[i]] = true;
        for (uint32_t j = 0; j < n->n_out; j++) t->wanted[n->out[j]] = true;
    }
    assert(n_heads > 0); /* some product computes the logits */
    for (NodeId id = 1; id < g->nodes.n; id++)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in && !t->inside[id]; i++)
            if (t->wanted[g->nodes.at[id].in[i]])
                return refuse(t, &g->nodes.at[id], "tile-region",
                              "reads a tensor between the head and the loss, which tile{} never "
                              "makes as a whole",
                              "leave out tile");
    return true;
}

/* True if input i of a region's node must be sliced: it has tokens and comes from outside of the
 * region. Exception: the labels of a mean over groups, which needs all labels to count them. */
static bool is_taken(const Tile *t, const Node *n, uint32_t i)
{
    if (t->wanted[n->in[i]] || !has_tokens(t, n->in[i])) return false;
    return !op_reads_whole_labels(n->op, i);
}

/* True if mesh axis a splits the tokens of argument `arg` of node n. */
static bool cuts_tokens(const Tile *t, const Node *n, uint32_t arg, uint32_t a)
{
    Binding b;
    bool bound = graph_bind(t->g, n, &b, t->job->diag);
    assert(bound);
    const int dim = tokens_dim(t, n->in[arg]);
    return dim >= 0 && n->split[a] && n->split[a] == b.letter[arg][dim];
}

/* Sets t->step. Reports "tile-pieces" if the tokens of a rank are fewer than the pieces. */
static bool find_step(Tile *t)
{
    const Mesh *mesh = &t->job->plan->mesh;
    AxisSet axes = 0;
    t->seq = t->job->config->seq;
    for (NodeId id = 1; id < t->g->nodes.n; id++)
        for (uint32_t a = 0; t->inside[id] && a < mesh->n_axes; a++)
            if (cuts_tokens(t, &t->g->nodes.at[id], 0, a)) axes = (AxisSet)(axes | 1u << a);
    t->step = mesh_size(mesh, axes);
    if (t->seq / t->step >= t->pass->tile.pieces) return true;
    diag_error(t->job->diag, FAULT_input, "tile-pieces", t->pass->loc,
               "tile{}: %lld tokens%s cannot be divided into %u pieces", (long long)t->seq,
               t->step > 1 ? arena_print(t->job->scratch, " on %lld ranks", (long long)t->step)
                           : "",
               t->pass->tile.pieces);
    if (t->seq / t->step >= 2)
        diag_hint(t->job->diag, "pieces may be at most %lld", (long long)(t->seq / t->step));
    else
        diag_hint(t->job->diag, "leave out tile");
    return false;
}

/* Returns the index of the first token of piece `piece`. */
static int64_t first_of(const Tile *t, uint32_t piece)
{
    return t->seq / t->step * piece / t->pass->tile.pieces * t->step;
}

/* ---- making the pieces ---- */

/* Returns the tensor that takes the place of `id` in a piece: a new one with fewer tokens, or `id`
 * itself for the results of piece 0. */
static TensorId cut_tensor(Tile *t, TensorId id, uint32_t piece)
{
    Graph *g = t->g;
    Tensor part = g->tensors.at[id];
    const int dim = tokens_dim(t, id);
    /* the loss and its count have no tokens; every piece adds to them */
    if (dim < 0) return id;
    if (t->wanted[id] && piece == 0) return id; /* its size is changed at the end */
    part.dim[dim] = first_of(t, piece + 1) - first_of(t, piece);
    part.name = arena_print(t->job->arena, "%s.tile%u", part.name, piece);
    return (TensorId)list_push(t->job->arena, &g->tensors, part);
}

static NodeId add_node(Tile *t, Node n, uint32_t piece)
{
    Graph *g = t->g;
    n.tile = piece + 1;
    NodeId id = (NodeId)list_push(t->job->arena, &g->nodes, n);
    for (uint32_t j = 0; j < n.n_out; j++) /* the producer of the loss is the node of piece 0 */
        if (piece == 0 || n.out[j] >= t->n_tensors) g->tensors.at[n.out[j]].producer = id;
    return id;
}

/* Appends the `tokens` node that slices `source`, input i of `reader`, for a piece, and returns the
 * slice. It slices whole sequences. If an axis splits tokens, the slice is then split, so that a
 * rank has only its own tokens of the piece. */
static TensorId take(Tile *t, TensorId source, const Node *reader, uint32_t i, uint32_t piece)
{
    Graph *g = t->g;
    Attrs attrs = {.first = first_of(t, piece)};
    attrs.count = first_of(t, piece + 1) - attrs.first;
    TensorId out = cut_tensor(t, source, piece);
    const int dim = tokens_dim(t, source);
    g->tensors.at[out].role = ROLE_activation;
    g->tensors.at[out].use_is_fixed = false;
    Node n = {.op = OP_tokens,
              .n_in = 1,
              .n_out = 1,
              .in = {source},
              .out = {out},
              .attrs = graph_attrs(g, t->job->arena, &attrs),
              .module = reader->module,
              .layer = reader->layer,
              .stage = reader->stage,
              .loc = reader->loc};
    Binding b;
    bool bound = graph_bind(g, &n, &b, t->job->diag);
    assert(bound);
    for (uint32_t a = 0; a < t->job->plan->mesh.n_axes; a++) {
        int8_t on = g->tensors.at[source].use.on[a];
        if (layout_is_split(on) && layout_dim(on) != dim) n.split[a] = b.letter[0][layout_dim(on)];
        int8_t made = op_axis_layout(OP_tokens, &b, 1, n.split[a]);
        g->tensors.at[out].use.on[a] = cuts_tokens(t, reader, i, a) ? SPLIT(dim) : made;
    }
    add_node(t, n, piece);
    return out;
}

/* Slices all inputs of the piece that node `whole` reads. It is called before the piece's first op,
 * so that no `tokens` node separates ops that can be fused. */
static void take_all(Tile *t, const Node *whole, uint32_t piece)
{
    for (uint32_t i = 0; i < whole->n_in; i++)
        if (is_taken(t, whole, i) && !t->piece[whole->in[i]])
            t->piece[whole->in[i]] = take(t, whole->in[i], whole, i, piece);
}

static void cut_node(Tile *t, const Node *whole, uint32_t piece)
{
    Graph *g = t->g;
    Node n = *whole;
    for (uint32_t i = 0; i < n.n_in; i++) {
        TensorId source = n.in[i];
        if (is_taken(t, whole, i) || t->wanted[source]) n.in[i] = t->piece[source];
    }
    for (uint32_t j = 0; j < n.n_out; j++)
        n.out[j] = t->piece[n.out[j]] = cut_tensor(t, n.out[j], piece);
    bool whole_labels = false;
    for (uint32_t i = 0; i < n.n_in; i++)
        whole_labels = whole_labels || op_reads_whole_labels(n.op, i);
    if (whole_labels) {
        Attrs attrs = *graph_attrs_at(g, n.attrs);
        attrs.first = first_of(t, piece);
        n.attrs = graph_attrs(g, t->job->arena, &attrs);
    }
    add_node(t, n, piece);
}

/* Rebuilds g->nodes: first the nodes outside of the region in their order, then the pieces one
 * after the other. */
static void cut(Tile *t)
{
    Graph *g = t->g;
    const uint32_t n_nodes = g->nodes.n, n_tensors = t->n_tensors;
    Node *was = arena_array(t->job->scratch, n_nodes, sizeof *was);
    memcpy(was, g->nodes.at, n_nodes * sizeof *was);
    memset(g->nodes.at + 1, 0, (n_nodes - 1) * sizeof *was);
    g->nodes.n = 1;
    for (NodeId id = 1; id < n_nodes; id++) {
        if (t->inside[id]) continue;
        NodeId now = (NodeId)list_push(t->job->arena, &g->nodes, was[id]);
        for (uint32_t j = 0; j < was[id].n_out; j++)
            if (g->tensors.at[was[id].out[j]].producer == id)
                g->tensors.at[was[id].out[j]].producer = now;
    }
    for (uint32_t piece = 0; piece < t->pass->tile.pieces; piece++) {
        memset(t->piece, 0, n_tensors * sizeof *t->piece);
        for (NodeId id = 1; id < n_nodes; id++)
            if (t->inside[id]) take_all(t, &was[id], piece);
        for (NodeId id = 1; id < n_nodes; id++)
            if (t->inside[id]) cut_node(t, &was[id], piece);
    }
    for (TensorId id = 1; id < n_tensors; id++)
        if (t->wanted[id] && tokens_dim(t, id) >= 0)
            g->tensors.at[id].dim[tokens_dim(t, id)] = first_of(t, 1);
}

static bool pass_tile(Job *job)
{
    Graph *g = &job->plan->graph;
    Tile t = {.job = job, .g = g, .pass = pass_config(job, PASS_tile)};
    assert(t.pass && t.pass->tile.pieces >= 2);
    t.inside = arena_array(job->scratch, g->nodes.n, sizeof *t.inside);
    t.wanted = arena_array(job->scratch, g->tensors.n, sizeof *t.wanted);
    t.roles = graph_roles(g, job->scratch);
    t.n_tensors = g->tensors.n;
    t.piece = arena_array(job->scratch, g->tensors.n, sizeof *t.piece);
    if (!find_region(&t) || !find_step(&t)) return false;
    cut(&t);
    return true;
}

static const PassOption options[] = {
    OPTION(u32, tile.pieces, 2, 1024, 8, "pieces",
           "The number of pieces. Each piece has some of the tokens."),
    OPTION_END,
};

static void print(const PassConfig *pass, Str *out)
{
    str_print(out, "tile(%u pieces)", pass->tile.pieces);
}

static void shrink(PassConfig *pass, Shrink *s)
{
    (void)s;
    if (pass->tile.pieces > 3) pass->tile.pieces = 3; /* a shrunk sequence has five tokens */
}

const PassSpec pass_spec_tile = {
    .name = "tile",
    .doc = {"tile", "",
            "Computes the head and the loss for some tokens at a time, so the logits of all tokens "
            "are never in memory at once."},
    .options = options,
    .run = pass_tile,
    .print = print,
    .shrink = shrink,
};
