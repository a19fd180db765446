/* Builds a graph: appends tensors and nodes, infers and checks shapes, and stores equal attributes
 * once. */
#include "planner/ir/graph.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/op/bound.h"
#include "planner/ir/window.h"

_Static_assert(sizeof(Attrs) % sizeof(double) == 0,
               "Attrs are interned by their bytes: no padding");

void graph_init(Graph *g, Arena *arena)
{
    *g = (Graph){0};
    list_reserve_none(arena, &g->tensors);
    list_reserve_none(arena, &g->nodes);
    list_reserve_none(arena, &g->modules);
    list_reserve_none(arena, &g->units);
    list_reserve_none(arena, &g->attrs);
    list_reserve_none(arena, &g->deals.deals);
}

#define COPY_LIST(arena, list)                                                                     \
    do {                                                                                           \
        const void *old = (list)->at;                                                              \
        const uint32_t n = (list)->n;                                                              \
        (list)->at = NULL, (list)->room = 0;                                                       \
        if (n == 0) break;                                                                         \
        (list)->at = list_grow((arena), NULL, 0, &(list)->room, n, sizeof *(list)->at);            \
        memcpy((list)->at, old, n * sizeof *(list)->at);                                           \
    } while (0)

Graph graph_copy(const Graph *g, Arena *arena)
{
    Graph copy = *g;
    COPY_LIST(arena, &copy.tensors);
    COPY_LIST(arena, &copy.nodes);
    COPY_LIST(arena, &copy.modules);
    COPY_LIST(arena, &copy.units);
    COPY_LIST(arena, &copy.attrs);
    COPY_LIST(arena, &copy.deals.deals);
    COPY_LIST(arena, &copy.deals.intervals);
    copy.attrs_index = (Intern){NULL, 0, 0}; /* intern_find builds it again from the copied list */
    return copy;
}

AttrsId graph_attrs(Graph *g, Arena *arena, const Attrs *attrs)
{
    static const Attrs none;
    /* `attrs` may point into the list itself; its index is then known */
    const uintptr_t at = (uintptr_t)attrs, first = (uintptr_t)g->attrs.at;
    if (at >= first && at < first + g->attrs.n * sizeof *attrs)
        return (AttrsId)(attrs - g->attrs.at);
    if (!attrs || memcmp(attrs, &none, sizeof none) == 0) return 0;
    list_reserve_none(arena, &g->attrs);
    uint32_t found =
        intern_find(&g->attrs_index, arena, g->attrs.at, g->attrs.n, sizeof *attrs, attrs);
    return found != UINT32_MAX ? found : (AttrsId)list_push(arena, &g->attrs, *attrs);
}

TensorId graph_tensor(Graph *g, Arena *arena, const char *name, Role role, DType dtype,
                      uint32_t n_dims, const int64_t *dim, Loc loc)
{
    assert(n_dims <= MAX_DIMS);
    list_reserve_none(arena, &g->tensors);
    TensorId id = (TensorId)list_add(arena, &g->tensors);
    Tensor *t = &g->tensors.at[id];
    t->name = arena_dup(arena, name);
    t->role = role;
    t->dtype = dtype;
    t->n_dims = (uint8_t)n_dims;
    for (uint32_t d = 0; d < n_dims; d++) t->dim[d] = dim[d];
    t->loc = loc;
    return id;
}

NodeId graph_node(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in,
                  const TensorId *out, uint32_t n_out, const Attrs *attrs, ModuleId module, Loc loc)
{
    assert(n_in <= MAX_IN);
    assert(n_out <= MAX_OUT);
    AttrsId interned = graph_attrs(g, arena, attrs);
    list_reserve_none(arena, &g->nodes);
    NodeId id = (NodeId)list_add(arena, &g->nodes);
    Node *n = &g->nodes.at[id];
    n->op = op;
    n->n_in = (uint8_t)n_in;
    n->n_out = (uint8_t)n_out;
    for (uint32_t i = 0; i < n_in; i++) n->in[i] = in[i];
    for (uint32_t j = 0; j < n_out; j++) {
        n->out[j] = out[j];
        /* Several nodes may write one gradient tensor. Its producer is the first of them, because
         * the tensor exists from then on. */
        if (!g->tensors.at[out[j]].producer) g->tensors.at[out[j]].producer = id;
    }
    n->attrs = interned;
    n->module = module;
    n->layer = module < g->modules.n ? g->modules.at[module].layer : 0;
    n->loc = loc;
    return id;
}

TensorId graph_weight(const Graph *g, TensorId t)
{
    const Node *n = &g->nodes.at[g->tensors.at[t].producer];
    if (g->tensors.at[t].role == ROLE_param) return t;
    if (!n->op) return 0;
    if (op_info(n->op)->flags & OP_TURNS) return graph_weight(g, n->in[0]);
    if (!(op_info(n->op)->flags & OP_QUANTISES)) return 0;
    return g->tensors.at[n->in[0]].role == ROLE_param ? n->in[0] : 0;
}

bool graph_is_made_again(const Graph *g, TensorId t, ModuleId region)
{
    const Node *maker = &g->nodes.at[g->tensors.at[t].producer];
    if (graph_weight(g, t)) return true;
    return maker->region != 0 && maker->region == region && !maker->keep;
}

NodeId graph_product(const Graph *g, TensorId t)
{
    NodeId id = g->tensors.at[t].producer;
    if (g->nodes.at[id].op == OP_divide) id = g->tensors.at[g->nodes.at[id].in[0]].producer;
    return id;
}

bool graph_is_statistic(const Graph *g, TensorId t)
{
    const Node *n = &g->nodes.at[g->tensors.at[t].producer];
    if (g->tensors.at[t].role != ROLE_activation || !n->op) return false;
    /* an `add` of tensors [samples] sums the balance losses of several layers */
    if (n->op == OP_add) return g->tensors.at[t].n_dims == 1;
    return n->out[0] != t || op_info(n->op)->flags & (OP_ONCE | OP_WIDE);
}

Dims graph_dims(const Graph *g, TensorId t)
{
    return (Dims){g->tensors.at[t].n_dims, g->tensors.at[t].dim};
}

/* Returns a unique name for output j of the next node, such as "layers.3.attention.mul.12": the
 * module, the op and the index of the node. */
static const char *output_name(const Graph *g, Arena *arena, OpKind op, ModuleId module, uint32_t j)
{
    const char *path = module ? g->modules.at[module].path : "";
    const char *dot = *path ? "." : "", *name = op_info(op)->name;
    if (j) return arena_print(arena, "%s%s%s.%u.%u", path, dot, name, g->nodes.n, j);
    return arena_print(arena, "%s%s%s.%u", path, dot, name, g->nodes.n);
}

/* For a slicing op (OP_TAKES): gives the index that only its output has the size attrs->count.
 * Reports "shape-mismatch" if the slice is not inside the input. */
static bool take_part(OpKind op, Binding *b, const Attrs *attrs, Loc loc, Diag *d)
{
    for (uint32_t i = 0; i < b->n_letters; i++) {
        int64_t *size = &b->size[(int)b->letters[i]];
        if (!*size) *size = attrs ? attrs->count : 0;
    }
    if (attrs && op_takes(op, b, attrs)) return true;
    return diag_error(d, FAULT_input, "shape-mismatch", loc,
                      "%s (%s): the part to take is not inside its input", op_info(op)->name,
                      op_info(op)->signature);
}

static bool size_indices(OpKind op, Binding *b, const Attrs *attrs, Loc loc, Diag *d)
{
    static const Attrs none;
    const Attrs *a = attrs ? attrs : &none;
    if (op_sized(b, a)) return true;
    return diag_error(
        d, FAULT_input, "shape-mismatch", loc,
        "%s (%s): top_k = %lld of %lld experts, capacity %lld: these shapes do not fit",
        op_info(op)->name, op_info(op)->signature, (long long)a->top_k, (long long)a->experts,
        (long long)a->capacity);
}

/* For an op with windows: computes the count of output rows from the count of input rows, or the
 * other way round. Reports "shape-mismatch" if a window does not fit. */
static bool fit_windows(OpKind op, Binding *b, const Attrs *attrs, Loc loc, Diag *d)
{
    static const Attrs none;
    const Attrs *a = attrs ? attrs : &none;
    if (op_windowed(op, b, a)) return true;
    return diag_error(d, FAULT_input, "shape-mismatch", loc,
                      "%s (%s): a window of %lld x %lld (stride %lld x %lld, padding %lld + %lld "
                      "and %lld + %lld) does not fit a field of %lld x %lld",
                      op_info(op)->name, op_info(op)->signature, (long long)a->h_kernel,
                      (long long)a->w_kernel, (long long)a->h_stride, (long long)a->w_stride,
                      (long long)a->h_before, (long long)a->h_after, (long long)a->w_before,
                      (long long)a->w_after, (long long)b->size['H'], (long long)b->size['W']);
}

TensorId graph_op(Graph *g, Arena *arena, OpKind op, const TensorId *in, uint32_t n_in, DType dtype,
                  const Attrs *attrs, ModuleId module, Loc loc, Diag *d)
{
    Dims dims[MAX_IN];
    Binding b;
    TensorId out[MAX_OUT];
    assert(n_in <= MAX_IN);
    list_reserve_none(arena, &g->nodes);
    for (uint32_t i = 0; i < n_in; i++) dims[i] = graph_dims(g, in[i]);
    static const Attrs none;
    if (!op_infer(op, dims, n_in, attrs ? attrs : &none, &b, loc, d)) return 0;
    if (!op_grouped(op, &b, attrs ? attrs : &none)) {
        diag_error(d, FAULT_input, "shape-mismatch", loc,
                   "%s (%s): the shapes of its inputs do not match", op_info(op)->name,
                   op_info(op)->signature);
        return 0;
    }
    if (op_info(op)->flags & OP_TAKES && !take_part(op, &b, attrs, loc, d)) return 0;
    if (op_info(op)->flags & OP_SIZED && !size_indices(op, &b, attrs, loc, d)) return 0;
    if (op_info(op)->flags & OP_WINDOWED && !fit_windows(op, &b, attrs, loc, d)) return 0;
    if (op_info(op)->flags & OP_INDEXES) dtype = DT_i32;
    if (op_takes_tokens(op) && g->tensors.at[in[0]].dtype == DT_i32) dtype = DT_i32;
    for (uint32_t j = 0; j < b.n_out; j++) {
        int64_t dim[MAX_DIMS];
        int n = op_output_dims(op, &b, j, dim);
        if (n < 0) {
            diag_error(d, FAULT_input, "shape-mismatch", loc,
                       "%s (%s): the shape of output %u does not follow from the inputs",
                       op_info(op)->name, op_info(op)->signature, j);
            return 0;
        }
        out[j] = graph_tensor(g, arena, output_name(g, arena, op, module, j), ROLE_activation,
                              dtype, (uint32_t)n, dim, loc);
        g->tensors.at[out[j]].module = module;
    }
    graph_node(g, arena, op, in, n_in, out, b.n_out, attrs, module, loc);
    return b.n_out ? out[0] : 0;
}

void graph_find_producers(Graph *g)
{
    for (TensorId t = 1; t < g->tensors.n; t++) g->tensors.at[t].producer = 0;
    for (NodeId id = 1; id < g->nodes.n; id++)
        for (uint32_t j = 0; j < g->nodes.at[id].n_out; j++) {
            Tensor *t = &g->tensors.at[g->nodes.at[id].out[j]];
            if (!t->producer) t->producer = id;
        }
}

int64_t graph_labels(const Graph *g)
{
    const Node *n = &g->nodes.at[g->loss ? g->tensors.at[g->loss].producer : 0];
    if (n->op != OP_xent_loss && n->op != OP_xent_loss_mean) return 0;
    return g->tensors.at[n->in[3]].dim[1];
}

TensorId graph_count(const Graph *g)
{
    const Node *n = &g->nodes.at[g->loss ? g->tensors.at[g->loss].producer : 0];
    return g->loss && n->n_out > 1 && n->out[0] == g->loss ? n->out[1] : 0;
}

uint64_t graph_original(const Graph *g, TensorId id, uint64_t element)
{
    const Tensor *t = &g->tensors.at[id];
    if (!t->order) return element;
    const int64_t n = t->dim[t->order_dim], each = t->dim[t->order_dim + 1];
    uint64_t inner = 1, row = (uint64_t)(n * each);
    for (int d = t->order_dim + 2; d < t->n_dims; d++) inner *= (uint64_t)t->dim[d];
    uint64_t at = element / inner % row, group = at / (uint64_t)each;
    int64_t is = deal_index(&g->deals, t->order, n * each, (uint32_t)n, (uint32_t)group,
                            (int64_t)(at % (uint64_t)each));
    return (element / inner / row * row + (uint64_t)is) * inner + element % inner;
}

const Binding *graph_bound(const Graph *g, const Node *n, Binding *own, Diag *d)
{
    Dims in[MAX_IN], out[MAX_OUT];
    for (uint32_t i = 0; i < n->n_in; i++) in[i] = graph_dims(g, n->in[i]);
    for (uint32_t j = 0; j < n->n_out; j++) out[j] = graph_dims(g, n->out[j]);
    return op_bound(n->op, in, n->n_in, out, n->n_out, own, n->loc, d);
}

bool graph_bind(const Graph *g, const Node *n, Binding *b, Diag *d)
{
    const Binding *bound = graph_bound(g, n, b, d);
    if (bound != NULL && bound != b) *b = *bound;
    return bound != NULL;
}

uint32_t graph_partial_run(const Graph *g, const Unit *unit, uint32_t i, uint64_t *hi)
{
    AxisSet partial = g->tensors.at[unit->params.at[i]].partial;
    while (i < unit->params.n && g->tensors.at[unit->params.at[i]].partial == partial) i++;
    *hi = i < unit->params.n ? g->tensors.at[unit->params.at[i]].flat_offset : unit->elements;
    return i;
}
