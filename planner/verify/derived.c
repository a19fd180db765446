/* Checks fields in a plan's text that follow from other fields. Examples are the producer of a
 * tensor, and the forward node of a backward node. No value depends on these fields, but
 * predictions of time and memory read them. */
#include <inttypes.h>

#include "planner/verify/private.h"

#define RULE "verify-metadata"

/* ---- tensors ---- */

static bool report(Verifier *v, TensorId t, const char *field, uint32_t is, uint32_t should)
{
    verify_report(v, RULE, 0,
                  "tensor %" PRIu32 " (%s) states %s=%" PRIu32 ", but it must be %" PRIu32, t,
                  v->g->tensors.at[t].name, field, is, should);
    return false;
}

/* Checks Tensor.producer: the first node that writes the tensor. */
static void check_producers(Verifier *v)
{
    const Graph *g = v->g;
    NodeId *made_by = arena_array(v->arena, g->tensors.n, sizeof *made_by);
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t j = 0; j < n->n_out; j++)
            if (!made_by[n->out[j]]) made_by[n->out[j]] = id;
    }
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].producer != made_by[t])
            report(v, t, "producer", g->tensors.at[t].producer, made_by[t]);
}

/* Checks that a tensor and its gradient name each other. */
static void check_gradients(Verifier *v)
{
    const Graph *g = v->g;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->grad && g->tensors.at[at->grad].grad_of != t)
            report(v, at->grad, "grad_of", g->tensors.at[at->grad].grad_of, t);
        else if (at->grad_of && g->tensors.at[at->grad_of].grad != t)
            report(v, at->grad_of, "grad", g->tensors.at[at->grad_of].grad, t);
    }
}

static Role role_of(const Graph *g, TensorId t)
{
    const Tensor *at = &g->tensors.at[t];
    const Node *maker = &g->nodes.at[at->producer];
    if (at->grad_of) return ROLE_gradient;
    if (at->producer == 0) return at->role == ROLE_state ? ROLE_state : ROLE_param;
    if (op_info(maker->op)->flags & OP_SOURCE) return ROLE_input;
    return op_makes_loss(maker->op) && maker->out[0] == t ? ROLE_loss : ROLE_activation;
}

static void check_roles(Verifier *v)
{
    const Graph *g = v->g;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *at = &g->tensors.at[t];
        if (at->role != role_of(g, t)) report(v, t, "role", at->role, role_of(g, t));
        if (at->role == ROLE_param) continue;
        if (at->rest_dtype) report(v, t, "rest", at->rest_dtype, 0);
        if (at->reduce_dtype) report(v, t, "reduce", at->reduce_dtype, 0);
        if (at->unit) report(v, t, "unit", at->unit, 0);
        if (at->flat_offset) report(v, t, "flat", (uint32_t)at->flat_offset, 0);
        if (at->partial) report(v, t, "partial", at->partial, 0);
    }
}

/* ---- nodes ---- */

/* Returns the tensor whose quantised or transposed form is x; 0: x is no such form. Nodes of a text
 * may read each other's results in a circle, so only earlier nodes count. */
static TensorId recoded_from(const Graph *g, TensorId x)
{
    const NodeId maker = g->tensors.at[x].producer;
    const TensorId from = g->nodes.at[maker].in[0];
    if (!(op_info(g->nodes.at[maker].op)->flags & (OP_QUANTISES | OP_TURNS))) return 0;
    return g->tensors.at[from].producer < maker ? from : 0;
}

/* Returns the tensor of which x is the quantised or transposed form, or x itself. */
static TensorId source_of(const Graph *g, TensorId x)
{
    for (TensorId from; (from = recoded_from(g, x)) != 0;) x = from;
    return x;
}

/* True if the node reads `t` or a quantised or transposed form of it. */
static bool reads(const Graph *g, const Node *n, TensorId t)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        TensorId x = n->in[i];
        while (x != t && x != 0) x = recoded_from(g, x);
        if (x == t) return true;
    }
    return false;
}

/* For a backward op that no row of ops.def lists: true if the node belongs to forward node `of`.
 * There are three cases. (1) The node reads the output of a node that belongs to `of`. (2) It
 * computes gradients, all of them of inputs of `of`. (3) It computes no gradient, and reads an
 * input or output of `of`. An 8-bit form of an input counts as the input. */
static bool is_backward_of(const Graph *g, const Node *n, const Node *of)
{
    bool makes = false, foreign = false, touches = false;
    for (uint32_t j = 0; j < n->n_out; j++) {
        const TensorId x = g->tensors.at[n->out[j]].grad_of;
        makes = makes || x;
        foreign = foreign || (x && !reads(g, of, x));
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        const TensorId x = n->in[i];
        const Node *maker = &g->nodes.at[g->tensors.at[x].producer];
        if (maker->forward == n->forward) return true;
        touches = touches || reads(g, of, x) || reads(g, of, source_of(g, x)) || maker == of;
        for (uint32_t j = 0; j < of->n_out; j++)
            touches = touches || g->tensors.at[of->out[j]].grad == x;
    }
    return makes ? !foreign : touches;
}

/* Returns a fault of a backward node that makes or reads helper values: values of the backward pass
 * that are not gradients, such as 8-bit forms. If several forward nodes have the same inputs, only
 * helper values tell to which of them the node belongs. A node that quantises or transposes may
 * read a form that other gradients share, but its own output tells where it belongs.
 * first_reader[tensor]: the first backward node that reads it; 0: none. */
static const char *helper_fault(const Graph *g, const Node *n, const NodeId *first_reader)
{
    bool makes = false, has_helper = false, has_own = false, is_read = false, is_own = false;
    for (uint32_t j = 0; j < n->n_out; j++) {
        const NodeId reader = first_reader[n->out[j]];
        makes = makes || g->tensors.at[n->out[j]].grad_of;
        is_read = is_read || reader;
        is_own = is_own || (reader && g->nodes.at[reader].forward == n->forward);
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        const Tensor *x = &g->tensors.at[n->in[i]];
        if (x->grad_of || x->producer <= g->n_forward) continue;
        has_helper = true;
        has_own = has_own || g->nodes.at[x->producer].forward == n->forward;
    }
    if (!makes && is_read && !is_own) return "computes a value for the gradient of another node";
    if (is_own && (op_info(n->op)->flags & (OP_QUANTISES | OP_TURNS))) return NULL;
    return has_helper && !has_own ? "reads a value for the gradient of another node" : NULL;
}

/* True if the node reads the values that the row of the forward op requires for this backward op.
 */
static bool is_wired(const Graph *g, const Node *n, const Node *of, const Backward *w)
{
    for (uint32_t i = 0; i < w->n_in; i++) {
        const TensorId t = w->in[i].kind == WIRE_i   ? of->in[w->in[i].index]
                           : w->in[i].kind == WIRE_o ? of->out[w->in[i].index]
                                                     : g->tensors.at[of->out[w->in[i].index]].grad;
        if (n->in[i] != t) return false;
    }
    return true;
}

static const char *forward_fault(const Graph *g, NodeId id, const bool *listed_op,
                                 const NodeId *first_reader)
{
    const Node *n = &g->nodes.at[id];
    if (id <= g->n_forward && n->forward) return "is in the forward pass";
    for (uint32_t j = 0; id <= g->n_forward && j < n->n_out; j++)
        if (g->tensors.at[n->out[j]].grad_of) return "computes a gradient";
    if (id <= g->n_forward) return NULL;
    if (!n->forward) return "is in the backward pass";
    if (n->forward > g->n_forward) return "cannot belong to a backward node";
    const Node *of = &g->nodes.at[n->forward];
    const OpInfo *info = op_info(of->op);
    bool listed = false;
    for (uint32_t k = 0; k < info->n_backward; k++) {
        if (info->backward[k].op != n->op) continue;
        listed = true;
        if (is_wired(g, n, of, &info->backward[k])) return NULL;
    }
    if (listed || listed_op[n->op]) return "lacks an input that the gradient of that node needs";
    if (!is_backward_of(g, n, of)) return "computes no gradient of that node";
    return helper_fault(g, n, first_reader);
}

static void check_nodes(Verifier *v)
{
    const Graph *g = v->g;
    if (!g->n_forward) return;
    /* [op]: true if the row of some op lists it as a backward op */
    bool *listed = arena_array(v->arena, OP_COUNT, sizeof *listed);
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (uint32_t k = 0; k < op_info((OpKind)op)->n_backward; k++)
            listed[op_info((OpKind)op)->backward[k].op] = true;
    NodeId *first_reader = arena_array(v->arena, g->tensors.n, sizeof *first_reader);
    for (NodeId id = g->nodes.n; id-- > g->n_forward + 1;)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in; i++)
            first_reader[g->nodes.at[id].in[i]] = id;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const char *fault = forward_fault(g, id, listed, first_reader);
        if (fault)
            verify_report(v, RULE, 0,
                          "graph node %" PRIu32 " (%s) states forward=%" PRIu32 ", but it %s", id,
                          op_info(g->nodes.at[id].op)->name, g->nodes.at[id].forward, fault);
    }
}

/* ---- the step ---- */

static void check_group(Verifier *v)
{
    int64_t group = 0;
    for (NodeId id = 1; id < v->g->nodes.n; id++)
        if (op_means_groups(v->g->nodes.at[id].op) && op_makes_loss(v->g->nodes.at[id].op))
            group = graph_attrs_at(v->g, v->g->nodes.at[id].attrs)->group;
    if (v->plan->step.group != group)
        verify_report(v, RULE, 0,
                      "`step` states group=%" PRId64 ", but its loss has group=%" PRId64,
                      v->plan->step.group, group);
}

/* Checks each program's stage: it must be the coordinate of its ranks along the axis of stages. */
static void check_stages(Verifier *v)
{
    const Mesh *m = &v->plan->mesh;
    for (Rank r = 0; r < m->n_ranks; r++) {
        uint32_t stage = 0;
        for (uint32_t a = 0; a < m->n_axes; a++)
            if (axis_info(m->axis[a].name)->flags & AXIS_STAGES)
                stage = stage * m->axis[a].size + mesh_coordinate(m, r, a);
        const Program *p = plan_program(v->plan, r);
        if (p->stage != stage) {
            verify_report(v, RULE, 0,
                          "program %" PRIu32 " runs stage %" PRIu32 ", but its rank %" PRIu32
                          " is on stage %" PRIu32,
                          v->plan->program_of[r], p->stage, r, stage);
            return;
        }
    }
}

/* ---- buffers and instructions ---- */

/* Checks the fields of a view that must equal the fields of its root. */
static void check_view(Verifier *v, BufferId b)
{
    const Buffer *at = &v->p->buffers.at[b], *root = &v->p->buffers.at[at->parent];
    const struct {
        const char *field;
        uint32_t is, should;
    } shared[] = {{"persistent", at->persistent, root->persistent},
                  {"result", at->result, root->result},
                  {"packed", at->packed, root->packed},
                  {"unit", at->unit, root->unit}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (shared[i].is != shared[i].should)
            verify_report(v, RULE, 0,
                          "buffer %" PRIu32 " states %s=%" PRIu32
                          ", but the buffer that contains it states %" PRIu32,
                          b, shared[i].field, shared[i].is, shared[i].should);
}

static void check_root(Verifier *v, BufferId b)
{
    const Buffer *at = &v->p->buffers.at[b];
    const bool of_graph = at->category == CATEGORY_activation || at->category == CATEGORY_input ||
                          at->category == CATEGORY_state || at->category == CATEGORY_workspace;
    if (at->unit && of_graph)
        verify_report(v, RULE, 0, "buffer %" PRIu32 " states unit=%" PRIu32 ", but is %s", b,
                      at->unit, category_name(at->category));
    const Role role = v->g->tensors.at[at->tensor].role;
    if (at->category == CATEGORY_state && at->tensor && !at->persistent && role != ROLE_state)
        verify_report(v, RULE, 0,
                      "buffer %" PRIu32 " has category state, but holds tensor %" PRIu32, b,
                      at->tensor);
    if (at->unit && at->tensor && at->category == CATEGORY_optimizer)
        verify_report(v, RULE, 0,
                      "buffer %" PRIu32 " states tensor=%" PRIu32
                      ", but holds all of unit %" PRIu32,
                      b, at->tensor, at->unit);
}

static void check_buffer(Verifier *v, BufferId b)
{
    if (v->p->buffers.at[b].parent)
        check_view(v, b);
    else
        check_root(v, b);
}

/* Returns the tensor that the buffer of argument i must name. It is known for an input that is a
 * weight, and for outputs at the first instruction that writes the buffer. The destination of a
 * message or a copy has the tensor of its source. Otherwise returns the tensor that the buffer
 * names. */
static TensorId tensor_of(const Verifier *v, Pc pc, uint32_t i, const Node *n)
{
    const Instr *in = &v->p->code.at[pc];
    const Buffer *b = &v->p->buffers.at[program_arg(v->p, in, i)];
    const bool begins = i >= in->n_in && b->first == pc;
    if (n && i < n->n_in && v->g->tensors.at[n->in[i]].role == ROLE_param) return n->in[i];
    if (!begins || b->category == CATEGORY_state) return b->tensor;
    if (n) return i < (uint32_t)n->n_in + n->n_out ? n->out[i - n->n_in] : b->tensor;
    if (in->n_in == 0 && in->op == OP_fill) return 0;
    if (in->n_in != 1 || in->unit || in->op == OP_pass) return b->tensor;
    return v->p->buffers.at[program_arg(v->p, in, 0)].tensor;
}

/* True if the buffer holds weights or gradients, but names no unit. */
static bool lacks_unit(const Program *p, BufferId b)
{
    const Buffer *at = &p->buffers.at[b];
    const Category c = at->category;
    return !at->unit && !verify_is_room(p, b) &&
           (c == CATEGORY_parameter || c == CATEGORY_optimizer || c == CATEGORY_gradient ||
            c == CATEGORY_gathered || c == CATEGORY_communication);
}

static void check_args(Verifier *v, Pc pc, const Node *n)
{
    const Instr *in = &v->p->code.at[pc];
    UnitId unit = 0;
    bool room = false;
    /* the buffer holds the largest magnitudes of the weights of several units */
    const bool has_maxima = (op_info(in->op)->flags & OP_RANGE) != 0;
    /* the buffer holds a rank's part of weights, or of a gradient */
    const bool is_part = in->op == OP_slice || (in->op == OP_pass && in->origin);
    for (uint32_t i = 0; i < in->args.n; i++) {
        const BufferId b = program_arg(v->p, in, i);
        const Buffer *at = &v->p->buffers.at[b];
        const TensorId should = tensor_of(v, pc, i, n);
        if (at->tensor != should)
            verify_report(v, RULE, pc,
                          "buffer %" PRIu32 " (%s) states tensor=%" PRIu32
                          ", but it must be %" PRIu32,
                          b, category_name(at->category), at->tensor, should);
        if (!n && at->unit && unit && at->unit != unit)
            verify_report(v, RULE, pc,
                          "one instruction has buffers of units %" PRIu32 " and %" PRIu32, unit,
                          at->unit);
        if (in->op == OP_slice && i >= in->n_in && at->unit && at->unit != unit)
            verify_report(v, RULE, pc,
                          "buffer %" PRIu32 " states unit=%" PRIu32
                          ", but the buffer that contains it states %" PRIu32,
                          b, at->unit, unit);
        if (!n && at->unit) unit = at->unit;
        room = room || verify_is_room(v->p, b);
        if (!n && in->unit && !is_part && !has_maxima && lacks_unit(v->p, b))
            verify_report(v, RULE, pc,
                          "buffer %" PRIu32
                          " (%s) states no unit, but it is used for unit %" PRIu32,
                          b, category_name(at->category), in->unit);
    }
    if (is_part) unit = 0, room = false;
    if (in->unit != unit && !(room && !unit && !n))
        verify_report(v, RULE, pc,
                      "states unit=%" PRIu32 ", but its buffers belong to unit %" PRIu32, in->unit,
                      unit);
}

static void check_instr(void *self, Pc pc)
{
    Verifier *v = self;
    const Instr *in = &v->p->code.at[pc];
    const Node *n = &v->g->nodes.at[in->origin];
    const bool is_node = in->origin && verify_is_of_node(in, n) && in->op != OP_pass;
    check_args(v, pc, is_node ? n : NULL);
    if (in->op == OP_pass && !in->origin && !verify_accumulates(v, in, 0))
        verify_report(v, RULE, pc,
                      "adds nothing and belongs to no graph node, so its op must be copy");
}

/* If several units use the same memory for gradients, one after the other, views of this memory
 * name no unit. A fill of such a view belongs to the unit that uses the memory next. */
static void check_fills(Verifier *v)
{
    UnitId *next = arena_array(v->arena, v->p->buffers.n, sizeof *next); /* [root] */
    for (Pc pc = v->p->code.n; pc-- > 1;) {
        const Instr *in = &v->p->code.at[pc];
        const bool fills = in->op == OP_fill;
        for (uint32_t i = 0; i < in->args.n; i++) {
            const BufferId b = program_arg(v->p, in, i);
            const Buffer *at = &v->p->buffers.at[b];
            const BufferId root = at->parent ? at->parent : b;
            if (!fills)
                next[root] = in->unit;
            else if (!at->unit && next[root] && in->unit != next[root])
                verify_report(v, RULE, pc,
                              "states unit=%" PRIu32 ", but fills memory of unit %" PRIu32,
                              in->unit, next[root]);
        }
    }
}

void verify_derived(Verifier *v)
{
    check_producers(v);
    check_gradients(v);
    check_roles(v);
    check_nodes(v);
    check_group(v);
    check_stages(v);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        verify_each_buffer(v, check_buffer);
        if (v->p->purpose == PURPOSE_gather)
            continue; /* a program that gathers state has no
                         step */
        verify_each_instr(v, check_instr, v);
        check_fills(v);
    }
    v->p = NULL;
}
