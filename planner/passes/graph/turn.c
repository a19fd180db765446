/* Transposed copies of 8-bit operands. Except on GPUs of compute capability 10 and 11
 * ("Blackwell"), an 8-bit operand must be contiguous along the summed index (cuBLAS' documentation,
 * 8-bit data types). If an operand is not, the product becomes the "_along" form of its op
 * (ops.def), which reads a transposed copy.
 *
 * One copy serves all readers. If it is computed right after the 8-bit operand, pass_fuse puts both
 * into one kernel; the original is then written only if another op reads it. Tensors that the
 * backward pass reads transposed are kept transposed, or are transposed again after they are
 * gathered or recomputed.
 *
 * Not done for plans that predict other frameworks: their products transpose operands themselves,
 * and the framework's profile includes this time. */
#include <assert.h>
#include <string.h>

#include "planner/passes/graph/float8.h"

/* The transposed copy of a tensor in one layout, and the node that computes it. */
typedef struct Turned {
    TensorId of;
    Layout layout; /* layout of the tensor before it is transposed */
    Node node;
    /* next entry of the list Turner.of, and of the list Turner.before or .behind; 0: the last */
    uint32_t next_of, next_at;
} Turned;

typedef struct Turner {
    Job *job;
    Graph *g;
    LIST(Turned) turned;
    uint32_t *of; /* of[tensor]: list of its copies, the newest first; 0: none */
    /* [node]: lists of the copies that are computed directly before, and directly behind the
     * node */
    uint32_t *before, *behind;
} Turner;

/* True if the products of this plan need operands that are contiguous along the summed index. */
static bool wants_along(const Job *job)
{
    const char *arch = job->config->cluster.device.arch;
    return pass_config(job, PASS_float8) && !job->config->runtime.name &&
           (arch == NULL || strcmp(arch, "Blackwell") != 0);
}

static bool is_forward(const Graph *g, NodeId n)
{
    return n <= g->n_forward;
}

/* True if the forward pass quantises the tensor, the backward pass reads it (or the other way
 * round), and it is recomputed in between. */
static bool is_made_again(const Graph *g, NodeId quantise, NodeId reader)
{
    if (is_forward(g, quantise) == is_forward(g, reader)) return false;
    return graph_is_made_again(g, g->nodes.at[quantise].out[0], g->nodes.at[reader].region);
}

/* The summed indices of operand i come first. Returns the op that moves them to the end. */
static OpKind turning(const Node *reader, uint32_t i)
{
    const Signature *sig = &op_info(reader->op)->sig;
    const SigTerm *term = &sig->in[i];
    uint32_t n_summed = 0;
    for (uint32_t d = 0; d < term->n_dims; d++) {
        bool kept = false;
        for (uint32_t k = 0; k < sig->out[0].n_dims; k++)
            kept = kept || sig->out[0].dim[k].letter == term->dim[d].letter;
        assert(kept || n_summed == d);
        n_summed += !kept;
    }
    if (n_summed == 1) return OP_turn_first;
    if (n_summed == 2 && op_role(reader->op, term->dim[0].letter) == INDEX_samples)
        return OP_turn_tokens;
    assert(n_summed + 1u == term->n_dims);
    return OP_turn_last;
}

/* Adds the tensor of a transposed copy, and prepares the node that computes it, with the module and
 * stage of node `like`. */
static void make(Turner *t, OpKind op, const Node *like, Turned *one)
{
    Graph *g = t->g;
    const Tensor x = g->tensors.at[one->of];
    const Dims dims = graph_dims(g, one->of);
    Node n = *like;
    Binding b;
    int64_t to[MAX_DIMS];
    bool bound = op_bind(op, &dims, 1, NULL, 0, &b, n.loc, t->job->diag);
    int n_dims = op_output_dims(op, &b, 0, to);
    assert(bound && n_dims == x.n_dims);
    (void)bound;
    const char *name = arena_print(t->job->arena, "%s.turned.%u", x.name, g->tensors.n);
    TensorId id =
        graph_tensor(g, t->job->arena, name, ROLE_activation, x.dtype, x.n_dims, to, n.loc);
    Tensor *made = &g->tensors.at[id];
    made->module = n.module;
    n.op = op, n.n_in = n.n_out = 1, n.in[0] = one->of, n.out[0] = id, n.attrs = 0;
    memset(n.split, 0, sizeof n.split);
    for (uint32_t a = 0; a < t->job->plan->mesh.n_axes; a++) {
        const int8_t on = one->layout.on[a];
        if (!layout_is_split(on)) continue;
        n.split[a] = b.letter[0][layout_dim(on)];
        made->use.on[a] = op_axis_layout(op, &b, 1, n.split[a]);
        made->deal[layout_dim(made->use.on[a])] = x.deal[layout_dim(on)];
    }
    sequence_fit(t->job, made);
    pad_outputs(g, &n, &b);
    one->node = n;
}

/* Returns the layout in which `reader` needs operand i. */
static Layout wanted(const Turner *t, const Node *reader, uint32_t i)
{
    Layout l = {{0}};
    Binding b;
    bool bound = graph_bind(t->g, reader, &b, t->job->diag);
    assert(bound);
    (void)bound;
    for (uint32_t a = 0; a < t->job->plan->mesh.n_axes; a++)
        l.on[a] = op_axis_layout(reader->op, &b, i, reader->split[a]);
    return l;
}

/* Returns the transposed copy of operand i of product `id`. Adds one if there is none in the layout
 * that the product needs. */
static TensorId turned(Turner *t, NodeId id, uint32_t i)
{
    Graph *g = t->g;
    const Node *reader = &g->nodes.at[id];
    const TensorId x = reader->in[i];
    const NodeId quantise = g->tensors.at[x].producer;
    Turned one = {.of = x, .layout = wanted(t, reader, i), .next_of = t->of[x]};
    assert(op_info(g->nodes.at[quantise].op)->flags & OP_QUANTISES);
    for (uint32_t k = one.next_of; k; k = t->turned.at[k].next_of)
        if (layout_equal(&t->turned.at[k].layout, &one.layout)) return t->turned.at[k].node.out[0];
    const bool behind =
        layout_equal(&one.layout, &g->tensors.at[x].use) && !is_made_again(g, quantise, id);
    uint32_t *place = behind ? &t->behind[quantise] : &t->before[id];
    one.next_at = *place;
    make(t, turning(reader, i), behind ? &g->nodes.at[quantise] : reader, &one);
    list_reserve_none(t->job->scratch, &t->turned);
    *place = t->of[x] = (uint32_t)list_push(t->job->scratch, &t->turned, one);
    return one.node.out[0];
}

static void append_all(Turner *t, uint32_t first)
{
    for (uint32_t k = first; k; k = t->turned.at[k].next_at) {
        const Node n = t->turned.at[k].node;
        NodeId id = (NodeId)list_push(t->job->arena, &t->g->nodes, n);
        t->g->tensors.at[n.out[0]].producer = id;
    }
}

/* Rebuilds g->nodes with the nodes of the copies, and changes all node ids. */
static void rewrite(Turner *t, uint32_t n_tensors)
{
    Graph *g = t->g;
    const Node *old = g->nodes.at;
    const uint32_t n = g->nodes.n;
    NodeId *now = arena_array(t->job->scratch, n, sizeof *now);
    memset(&g->nodes, 0, sizeof g->nodes);
    list_reserve_none(t->job->arena, &g->nodes);
    for (NodeId id = 1; id < n; id++) {
        append_all(t, t->before[id]);
        now[id] = (NodeId)list_push(t->job->arena, &g->nodes, old[id]);
        append_all(t, t->behind[id]);
    }
    for (TensorId x = 1; x < n_tensors; x++)
        g->tensors.at[x].producer = now[g->tensors.at[x].producer];
    for (NodeId id = 1; id < g->nodes.n; id++)
        g->nodes.at[id].forward = now[g->nodes.at[id].forward];
    g->n_forward = now[g->n_forward];
}

bool pass_turn(Job *job)
{
    Graph *g = &job->plan->graph;
    const uint32_t n_tensors = g->tensors.n;
    Turner t = {.job = job, .g = g};
    if (!wants_along(job)) return true;
    t.of = arena_array(job->scratch, n_tensors, sizeof *t.of);
    t.before = arena_array(job->scratch, g->nodes.n, sizeof *t.before);
    t.behind = arena_array(job->scratch, g->nodes.n, sizeof *t.behind);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        TensorId in[2] = {n->in[0], n->in[1]};
        if (op_info(n->op)->scaling == SCALING_none) continue;
        for (uint32_t i = 0; i < 2; i++)
            if (!op_lies_along(n->op, i)) in[i] = turned(&t, id, i);
        n->op = op_info(n->op)->along;
        n->in[0] = in[0], n->in[1] = in[1];
    }
    if (t.turned.n) rewrite(&t, n_tensors);
    return true;
}
