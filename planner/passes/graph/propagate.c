/* Propagates layouts: for each node and mesh axis, chooses the index letter that the axis splits
 * (Node.split), and for each activation its layout in use. If the op reads a split parameter, its
 * split decides. Otherwise the first split input decides. If no input is split, an output whose
 * layout a pass has requested decides. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/rows.h"
#include "planner/passes/pass.h"

/* Returns the index letter that `axis` splits in the first split input. Considers only weights
 * (params = true) or only other inputs. Returns 0 if none is split, or if the op needs the index of
 * an activation whole. */
static char letter_of_inputs(const Graph *g, const Node *n, const Binding *b, uint32_t axis,
                             bool params)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        const Tensor *t = &g->tensors.at[n->in[i]];
        if ((graph_weight(g, n->in[i]) != 0) != params) continue;
        int8_t on = t->use.on[axis];
        if (!layout_is_split(on)) continue;
        char letter = b->letter[i][layout_dim(on)];
        if (op_may_split(n->op, letter) || !params) return op_may_split(n->op, letter) ? letter : 0;
        /* the op needs an index whole on which its parameter is split: an error, which is reported
         * later */
        return letter;
    }
    return 0;
}

/* Returns the index letter that `axis` splits in an output whose layout a pass has requested. */
static char letter_of_output(const Graph *g, const Node *n, const Binding *b, uint32_t axis)
{
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Tensor *t = &g->tensors.at[n->out[j]];
        if (!t->use_is_fixed || !layout_is_split(t->use.on[axis])) continue;
        char letter = b->letter[n->n_in + j][layout_dim(t->use.on[axis])];
        if (op_may_split(n->op, letter)) return letter;
    }
    return 0;
}

/* A named axis such as tp may be several mesh axes. True if a parameter decides the split of one of
 * them other than `axis`. The ranks along `axis` then all do the same work: an activation that is
 * split over both axes could not be gathered over only one. */
static bool is_led_by_sibling(const Job *job, const Node *n, const Binding *b, uint32_t axis)
{
    const Mesh *mesh = &job->plan->mesh;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (a != axis && mesh->axis[a].name == mesh->axis[axis].name &&
            letter_of_inputs(&job->plan->graph, n, b, a, true))
            return true;
    return false;
}

/* Returns the deal of index `letter` (which indices each rank has, layout.h) from the first input
 * that has one; otherwise 0. */
static DealId deal_of_letter(const Graph *g, const Node *n, const Binding *b, char letter)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        for (int d = 0; d < b->n_dims[i]; d++)
            if (b->letter[i][d] == letter && !b->reads[i][d] && g->tensors.at[n->in[i]].deal[d])
                return g->tensors.at[n->in[i]].deal[d];
    return 0;
}

/* Sets Tensor.use of output j on `axis`, unless a pass has fixed it. If the dimension cannot be
 * divided over the ranks, reports "divides-activation" and returns false. */
static bool place_output(Job *job, const Node *n, const Binding *b, uint32_t j, uint32_t axis)
{
    Graph *g = &job->plan->graph;
    Tensor *out = &g->tensors.at[n->out[j]];
    int8_t made = op_axis_layout(n->op, b, n->n_in + j, n->split[axis]);
    const AxisInfo *info = axis_info(job->plan->mesh.axis[axis].name);
    const bool of_field = info->cuts == INDEX_height || info->cuts == INDEX_width;
    bool fixed = out->use_is_fixed &&
                 (info->flags & AXIS_WEIGHTS || (of_field && layout_is_split(out->use.on[axis])));
    const bool rows = op_dim(n->op, n->n_in + j, INDEX_experts) >= 0;
    if (rows && job->context.lent_axes >> axis & 1)
        fixed = false; /* folded experts: these axes divide experts, whatever was requested */
    /* An op that runs once a step is small and updates state, so its output is whole. */
    if (op_info(n->op)->flags & OP_ONCE) fixed = true;
    if (!fixed) out->use.on[axis] = layout_is_split(made) ? made : (int8_t)WHOLE;
    /* The op computes a split output even if `use` is whole, because each rank computes only its
     * part and then gathers it. So the output needs the deal of the split. */
    if (layout_is_split(made)) {
        DealId *deal = &out->deal[layout_dim(made)];
        if (!*deal) *deal = deal_of_letter(g, n, b, n->split[axis]);
    }
    int8_t on = out->use.on[axis];
    if (!layout_is_split(on)) return true;
    int d = layout_dim(on);
    Shape s = {.n_dims = out->n_dims, .layout = out->use};
    uint32_t parts = shape_parts(&s, &job->plan->mesh, d);
    /* for a composite dimension (hp), h is split */
    const int64_t pieces = b->size[(int)b->letter[n->n_in + j][d]];
    const bool whole_pieces = b->reads[n->n_in + j][d] || pieces == 0 || pieces % parts == 0;
    /* A part of a field may be shorter than the others, but not empty. */
    const bool single = b->reads[n->n_in + j][d] || pieces == out->dim[d];
    const int64_t each = (out->dim[d] + parts - 1) / parts;
    if (!out->deal[d] &&
        op_role(n->op, b->letter[n->n_in + j][d]) == INDEX_rooms) /* the last part may be short */
        out->deal[d] = deal_ceil(&g->deals, job->arena, out->dim[d], parts);
    const bool shared = of_field && single && each * (parts - 1) < out->dim[d];
    if (out->deal[d] || shared || (out->dim[d] % parts == 0 && whole_pieces)) return true;
    diag_error(job->diag, FAULT_input, "divides-activation", n->loc,
               "%s: dimension %d = %lld cannot be split over %u ranks", out->name, d,
               (long long)out->dim[d], parts);
    if (pieces == 0 || pieces == out->dim[d])
        diag_hint(job->diag, "use %s ranks", str_divisors(job->scratch, out->dim[d]));
    else
        diag_hint(job->diag,
                  "its %lld pieces cannot be cut: use %s ranks; or, for %u ranks, %lld pieces (a "
                  "size of %lld)",
                  (long long)pieces, str_divisors(job->scratch, pieces), parts,
                  (long long)((pieces + parts - 1) / parts * parts),
                  (long long)((pieces + parts - 1) / parts * parts * (out->dim[d] / pieces)));
    return false;
}

/* Returns the split of activation `t` on `axis` that all its readers need; WHOLE if they differ. */
static int8_t wanted_by_all(Job *job, TensorId t, uint32_t axis)
{
    const Graph *g = &job->plan->graph;
    int8_t wanted = WHOLE;
    for (NodeId id = g->tensors.at[t].producer + 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            Binding b;
            if (n->in[i] != t || !graph_bind(g, n, &b, job->diag)) continue;
            int8_t on = op_axis_layout(n->op, &b, i, n->split[axis]);
            if (!layout_is_split(on) || (wanted != WHOLE && on != wanted)) return WHOLE;
            wanted = on;
        }
    }
    return wanted;
}

/* On each of `axes` that splits tensor `t`: if all readers need the same split, gives `t` this
 * one. */
static void exchange(Job *job, TensorId t, AxisSet axes)
{
    Tensor *at = &job->plan->graph.tensors.at[t];
    for (uint32_t a = 0; a < job->plan->mesh.n_axes; a++) {
        if (!(axes >> a & 1) || !layout_is_split(at->use.on[a])) continue;
        int8_t on = wanted_by_all(job, t, a);
        if (layout_is_split(on)) at->use.on[a] = on;
    }
    /* The op computes the tensor with its tokens split, so dimension d keeps its deal even if `use`
     * no longer splits it. */
    const Shape s = {.n_dims = at->n_dims, .layout = at->use};
    for (int d = 0; d < at->n_dims; d++)
        if (shape_parts(&s, &job->plan->mesh, d) == 1 && at->deal[d]) return;
    sequence_fit(job, at);
}

/* If all readers of a tensor (experts, attention, a scan) need it in another split, the all_to_all
 * may as well come directly after the op that computes it. A rank stores equally many elements, and
 * the backward pass then finds the tensor in the split that it needs. */
static void exchange_at_once(Job *job)
{
    const Graph *g = &job->plan->graph;
    const AxisSet experts = mesh_axes_of(&job->plan->mesh, axes_trading(INDEX_experts));
    const AxisSet heads = job->context.heads_axes, scans = job->context.scan_axes;
    for (NodeId id = 1; id < g->nodes.n && (experts | heads | scans); id++) {
        const Node *n = &g->nodes.at[id];
        if (op_dim(n->op, n->n_in, INDEX_experts) >= 0) exchange(job, n->out[0], experts);
        for (uint32_t i = 0; op_mixes_tokens(n->op) && i < n->n_in; i++)
            exchange(job, n->in[i], heads);
        for (uint32_t i = 0; op_scans_tokens(n->op) && i < n->n_in; i++)
            exchange(job, n->in[i], scans);
    }
}

/* For a node that produces the batch: returns the index letter that `axis` splits, such as that of
 * samples for dp_shard; 0: none. */
static char split_of_batch(const Job *job, const Node *n, uint32_t axis)
{
    const IndexRole role = axis_info(job->plan->mesh.axis[axis].name)->cuts;
    return role == INDEX_none ? 0 : op_letter(n->op, role);
}

/* True if `axis` splits the tokens of ring attention, but is not part of the ring. Keys travel in
 * the ranges into which the ring's axes divide them, and queries must be split in the same way. */
static bool leaves_ring(const Job *job, const Node *n, uint32_t axis, char letter)
{
    const AxisSet ring = job->context.ring_axes;
    return letter && ring && !(ring >> axis & 1) && op_mixes_tokens(n->op) &&
           op_role(n->op, letter) == INDEX_tokens;
}

/* Returns the index letter by which `axis` should divide the node's work; 0: all ranks along `axis`
 * do the same work. */
static char wanted_split(const Job *job, const Node *n, const Binding *b, uint32_t axis)
{
    const Graph *g = &job->plan->graph;
    if (op_info(n->op)->flags & OP_SOURCE) return split_of_batch(job, n, axis);
    if (op_mixes_tokens(n->op) && job->context.heads_axes >> axis & 1)
        return op_letter(n->op, INDEX_groups);
    if (op_scans_tokens(n->op) && job->context.scan_axes >> axis & 1)
        return cp_scan_letter(job, n, axis);
    if (job->context.lent_axes >> axis & 1 && op_letter(n->op, INDEX_experts) &&
        (op_letter(n->op, INDEX_rooms) || op_whole_letter(n->op, INDEX_rooms)))
        return op_letter(n->op, INDEX_experts);
    if (job->context.rooms_axes >> axis & 1 && op_letter(n->op, INDEX_rooms))
        return op_letter(n->op, INDEX_rooms);
    char letter = letter_of_inputs(g, n, b, axis, true);
    if (letter || is_led_by_sibling(job, n, b, axis)) return letter;
    letter = letter_of_inputs(g, n, b, axis, false);
    if (!letter) letter = letter_of_output(g, n, b, axis);
    if (letter && float8_gathers_first(job, n, axis, letter)) return 0;
    return leaves_ring(job, n, axis, letter) ? 0 : letter;
}

/* Returns the letter of wanted_split. Returns 0 if it is a strided index (layout/stride.h) whose
 * pieces would differ in size, which is not supported. Lowering then gathers the values. */
static char split_of(const Job *job, const Node *n, const Binding *b, uint32_t axis)
{
    const Mesh *mesh = &job->plan->mesh;
    const char letter = wanted_split(job, n, b, axis);
    const uint32_t ranks = mesh_size(mesh, mesh_axes(mesh, mesh->axis[axis].name));
    return letter && op_strides_over(b, letter, ranks) ? letter : 0;
}

/* Splits the node's output by tokens again, after its inputs were gathered or split by heads. */
static void put_back(const Job *job, const Node *n, uint32_t axis)
{
    Tensor *out = &job->plan->graph.tensors.at[n->out[0]];
    const int d = op_dim(n->op, n->n_in, INDEX_tokens);
    out->use.on[axis] = SPLIT(d);
    if (!out->deal[d]) out->deal[d] = job->context.seq_deal;
}

/* If n sends tokens to experts that drop none, gives its output a deal of kind DEAL_rows, so that a
 * rank stores only the rooms that have a token (layout/rows.h). */
static void place_rows(Job *job, const Node *n)
{
    const char rooms = op_whole_letter(n->op, INDEX_rooms);
    const PassConfig *ep = pass_config(job, PASS_ep);
    const double bound = (ep ? ep->ep.bound : 1) * ROWS_MEAN;
    if (!op_sends_tokens(n->op) || !rooms) return;
    Tensor *out = &job->plan->graph.tensors.at[n->out[0]];
    const int d = op_dim(n->op, n->n_in, INDEX_rooms);
    const Attrs *attrs = graph_attrs_at(&job->plan->graph, n->attrs);
    out->deal[d] = deal_rows(&job->plan->graph.deals, job->arena, out->dim[d],
                             (uint32_t)attrs->top_k, (uint32_t)(bound + 0.5));
}

/* Chooses Node.split of node n on every axis, and the layouts of its outputs. Returns false after
 * an error. */
static bool place_node(Job *job, Node *n, AxisSet scatters)
{
    Graph *g = &job->plan->graph;
    const Mesh *mesh = &job->plan->mesh;
    Binding b;
    if (!graph_bind(g, n, &b, job->diag)) return false;
    place_rows(job, n);
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        n->split[a] = split_of(job, n, &b, a);
        if (n->split[a] && !op_may_split(n->op, n->split[a])) {
            diag_error(job->diag, FAULT_input, "split-whole-index", n->loc,
                       "%s needs index %c whole on each rank, but its parameter is split along "
                       "it over %s",
                       op_info(n->op)->name, n->split[a], mesh->axis[a].text);
            return false;
        }
        for (uint32_t j = 0; j < n->n_out; j++)
            if (!place_output(job, n, &b, j, a)) return false;
        if ((op_mixes_tokens(n->op) && job->context.heads_axes >> a & 1) ||
            (op_keeps_state(n->op) && job->context.scan_axes >> a & 1) ||
            (op_collects_tokens(n->op) && scatters >> a & 1))
            put_back(job, n, a);
    }
    for (uint32_t j = 0; j < n->n_out; j++) sequence_fit(job, &g->tensors.at[n->out[j]]);
    pad_outputs(g, n, &b);
    return true;
}

/* ---- equal blocks ----
 * place_node(n) depends only on n's op and attributes, and on the fields of its tensors that
 * same_place compares. If all these are equal for the node at the same position in the block
 * before, its result is copied. */

/* The fields of an output that place_node reads and may change. */
typedef struct Place {
    Layout use;
    DealId deal[MAX_DIMS];
    bool use_is_fixed;
} Place;

static Place place_of(const Tensor *t)
{
    Place place;
    /* zeroes the padding, because Places are compared byte by byte */
    memset(&place, 0, sizeof place);
    place.use = t->use;
    memcpy(place.deal, t->deal, sizeof place.deal);
    place.use_is_fixed = t->use_is_fixed;
    return place;
}

static bool same_size(const Tensor *x, const Tensor *y)
{
    return x->n_dims == y->n_dims && memcmp(x->dim, y->dim, x->n_dims * sizeof *x->dim) == 0;
}

/* True if tensors a and b, inputs of two nodes, are equal in all fields that place_node reads. */
static bool same_place(const Graph *g, TensorId a, TensorId b)
{
    const Tensor *x = &g->tensors.at[a], *y = &g->tensors.at[b];
    return a == b ||
           (x->role == y->role && same_size(x, y) && memcmp(&x->use, &y->use, sizeof x->use) == 0 &&
            memcmp(x->deal, y->deal, sizeof x->deal) == 0 && x->use_is_fixed == y->use_is_fixed &&
            !graph_weight(g, a) == !graph_weight(g, b));
}

/* True if place_node would give node n the same result as node m. before[t]: the Place of m's
 * output t before place_node(m). */
static bool is_equal(const Graph *g, const Node *m, const Node *n, const Place *before)
{
    if (m->op != n->op || m->attrs != n->attrs || m->n_in != n->n_in || m->n_out != n->n_out)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!same_place(g, m->in[i], n->in[i])) return false;
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Place place = place_of(&g->tensors.at[n->out[j]]);
        if (!same_size(&g->tensors.at[m->out[j]], &g->tensors.at[n->out[j]]) ||
            memcmp(&before[m->out[j]], &place, sizeof place) != 0)
            return false;
    }
    return true;
}

static void place_like(Graph *g, const Node *m, Node *n)
{
    memcpy(n->split, m->split, sizeof n->split);
    for (uint32_t j = 0; j < n->n_out; j++) {
        const Tensor *from = &g->tensors.at[m->out[j]];
        Tensor *to = &g->tensors.at[n->out[j]];
        to->use = from->use;
        memcpy(to->deal, from->deal, sizeof to->deal);
    }
}

/* The first nodes of the current block and of the block before it; 0: none. */
typedef struct BlockStarts {
    NodeId first, before;
} BlockStarts;

/* Returns the node with the same position in the block before, such as the product of layer 2's wq
 * for that of layer 3's wq; 0: none. Updates *blocks when a new block begins. */
static NodeId equal_candidate(const Graph *g, BlockStarts *blocks, NodeId id)
{
    const uint32_t layer = g->nodes.at[id].layer;
    if (layer != g->nodes.at[id - 1].layer) {
        blocks->before = blocks->first;
        blocks->first = layer != 0 ? id : 0;
    }
    if (blocks->first == 0 || blocks->before == 0) return 0;
    const NodeId candidate = id - (blocks->first - blocks->before);
    return candidate < blocks->first ? candidate : 0;
}

bool pass_propagate(Job *job)
{
    Graph *g = &job->plan->graph;
    const Mesh *mesh = &job->plan->mesh;
    const AxisSet tokens = mesh_axes_of(mesh, axes_cutting(INDEX_tokens)),
                  scatters = (AxisSet)((job->context.rooms_axes | job->context.lent_axes) & tokens);
    Place *before = arena_array(job->scratch, g->tensors.n, sizeof *before);
    BlockStarts blocks = {0, 0};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        const NodeId m = job->options.every_block ? 0 : equal_candidate(g, &blocks, id);
        if (m != 0 && is_equal(g, &g->nodes.at[m], n, before)) {
            for (uint32_t j = 0; j < n->n_out; j++)
                before[n->out[j]] = before[g->nodes.at[m].out[j]];
            place_like(g, &g->nodes.at[m], n);
            continue;
        }
        for (uint32_t j = 0; j < n->n_out; j++)
            before[n->out[j]] = place_of(&g->tensors.at[n->out[j]]);
        if (!place_node(job, n, scatters)) return false;
    }
    exchange_at_once(job);
    return true;
}
