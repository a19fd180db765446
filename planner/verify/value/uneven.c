/* Checks uneven rows and their counts (layout/rows.h). Every op that reads or writes such rows must
 * read the counts with which they were stored. An exchange must read the counts in both layouts. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/rows.h"
#include "planner/verify/value/value.h"

const char *value_rows_fault(OpKind op, const Binding *b, uint32_t arg, int d)
{
    const OpInfo *info = op_info(op);
    const SigTerm *term =
        arg < info->sig.n_in ? &info->sig.in[arg] : &info->sig.out[arg - info->sig.n_in];
    const char c = b->letter[arg][d];
    if (info->flags & OP_COUNTED && op_role(op, c) == INDEX_rooms &&
        d == op_dim(op, arg, INDEX_rooms))
        return NULL;
    /* the op works element by element and does not use the position of an element */
    const bool places = info->flags & (OP_PLACED | OP_CHUNKED | OP_DRAWS | OP_MAGNITUDE);
    if (term->ellipsis >= 0 && term->n_dims == 0 && info->reduce == REDUCE_none && !places)
        return NULL;
    return "holds only the rows that experts received, but the op also reads empty places";
}

static bool is_rows(const Verifier *v, TensorId t)
{
    const Tensor *at = &v->g->tensors.at[t];
    return at->n_dims >= ROWS_DIMS && deal_is_rows(&v->g->deals, at->deal[ROWS_DIMS - 1]);
}

/* Returns the input that holds the slots of tokens (the rows of the experts' buffers). It is an
 * input of indices, but not the last input, which holds the counts. Returns 0 if there is none. */
static TensorId slots_of(const Node *n)
{
    for (uint32_t i = 0; i + 1 < n->n_in; i++)
        if (op_index_args(n->op) >> i & 1) return n->in[i];
    return 0;
}

/* Returns the tensor with the counts of the rows in tensor t. The gradient of rows has the counts
 * of the rows. */
static TensorId counts_of(const Verifier *v, TensorId t)
{
    const Tensor *at = &v->g->tensors.at[t];
    return v->counts[at->role == ROLE_gradient && at->grad_of ? at->grad_of : t];
}

/* True if the deal provides top_k rows for each token of a sample. */
static bool has_room(const Verifier *v, const Node *n, TensorId rows)
{
    const Deal *d = &v->g->deals.deals.at[v->g->tensors.at[rows].deal[ROWS_DIMS - 1]];
    const Attrs *attrs = graph_attrs_at(v->g, n->attrs);
    return d->per_part == attrs->top_k && d->size == attrs->capacity;
}

static void check_node(Verifier *v, NodeId id, bool made)
{
    const Node *n = &v->g->nodes.at[id];
    const int arg = op_counts_arg(n->op);
    TensorId counts = arg >= 0 ? n->in[arg] : 0;
    bool fine = true;
    if (counts) { /* the counts must belong to the same slots by which the rows are placed */
        const Node *by = &v->g->nodes.at[v->g->tensors.at[counts].producer];
        const TensorId slots = slots_of(n);
        fine = op_counts_rows(by->op) && (!slots || by->in[0] == slots);
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!is_rows(v, n->in[i])) continue;
        const TensorId own = counts_of(v, n->in[i]);
        if (!counts) counts = own;
        fine = fine && own && own == counts;
    }
    for (uint32_t j = 0; j < n->n_out; j++) {
        if (!is_rows(v, n->out[j])) continue;
        fine = fine && counts;
        if (made) v->counts[n->out[j]] = counts;
        if (made && op_sends_tokens(n->op)) fine = fine && has_room(v, n, n->out[j]);
        fine = fine && counts_of(v, n->out[j]) == counts;
    }
    if (!fine)
        verify_report(v, "verify-layout", 0,
                      "graph node %u (%s) reads counts that do not belong to its rows", id,
                      op_info(n->op)->name);
}

void verify_uneven(Verifier *v)
{
    v->counts = arena_array(v->arena, v->g->tensors.n, sizeof *v->counts);
    const NodeId last = v->g->n_forward ? v->g->n_forward : (NodeId)(v->g->nodes.n - 1);
    for (NodeId id = 1; id < v->g->nodes.n; id++) check_node(v, id, id <= last);
}

/* ---- the exchange ---- */

typedef struct UnevenExchange {
    Verifier *v;
    Pc pc;
    const Instr *in;
    Shape from, to;
} UnevenExchange;

static bool complain(const UnevenExchange *r, const char *what)
{
    verify_report(r->v, "verify-layout", r->pc, "%s", what);
    return false;
}

/* Checks that rows move between samples and experts over the group, and that nothing else
 * changes. */
static bool check_change(const UnevenExchange *r)
{
    const Shape *a = &r->from, *b = &r->to;
    const Verifier *v = r->v;
    const Deals *deals = &v->g->deals;
    if (!rows_uneven(a, deals) || !rows_uneven(b, deals) || a->n_dims != b->n_dims)
        return complain(r, "may exchange only uneven rows");
    for (int d = 0; d < a->n_dims; d++)
        if (a->dim[d] != b->dim[d] || a->deal[d] != b->deal[d])
            return complain(r, "must not change dimensions or deals");
    for (uint32_t x = 0; x < v->plan->mesh.n_axes; x++) {
        const int8_t on = a->layout.on[x], after = b->layout.on[x];
        const bool changes =
            (on == SPLIT(0) && after == SPLIT(1)) || (on == SPLIT(1) && after == SPLIT(0));
        if (r->in->axes >> x & 1 ? !changes : on != after)
            return complain(r, "must exchange over exactly the axes of its group");
        if (layout_is_partial(on)) return complain(r, "must not exchange partial sums");
    }
    /* the rows of a part are contiguous only if the axes of the group are the innermost */
    for (int d = 0; d < 2; d++) {
        const Shape *cut = layout_axes_split(&a->layout, d) & r->in->axes ? a : b;
        const AxisSet all = layout_axes_split(&cut->layout, d),
                      others = (AxisSet)(all & ~r->in->axes);
        const bool uneven = cut->dim[d] % mesh_size(&v->plan->mesh, all) != 0 || cut->deal[d];
        if (uneven || (others && (r->in->axes & (0u - r->in->axes)) < others))
            return complain(r, "exchanges parts that cross each other");
        if ((layout_axes_split(&a->layout, d) & r->in->axes) &&
            (layout_axes_split(&a->layout, d) & r->in->axes) != r->in->axes)
            return complain(
                r,
                "moves the split from rows to features and back, but may do only one of the two");
    }
    return true;
}

/* Checks argument k: it must have the counts of these rows, in the same layout as the rows. */
static bool check_counts(const UnevenExchange *r, uint32_t k, const Val *rows, const Shape *as)
{
    Verifier *v = r->v;
    const BufferId b = program_arg(v->p, r->in, k);
    const Val counts = value_read(v, r->pc, b, "input", k);
    const TensorId t = v->p->buffers.at[program_arg(v->p, r->in, 0)].tensor;
    if (counts.bad) return false;
    if (!t || t >= v->g->tensors.n || !is_rows(v, t) || !counts_of(v, t) ||
        !value_same(rows->vn, value_of_tensor(v, t, r->in->microbatch)))
        return complain(r, "exchanges rows of a value that is not in the graph");
    if (!value_same(counts.vn, value_of_tensor(v, counts_of(v, t), r->in->microbatch)))
        return complain(r, "uses counts that do not belong to its rows");
    const Shape *shape = value_shape_at(v, counts.shape);
    if (shape->n_dims != 2 || counts.packed_dim || counts.list)
        return complain(r, "has counts of a wrong shape");
    for (int d = 0; d < 2; d++)
        if (shape->dim[d] != as->dim[d] || shape->deal[d] ||
            layout_axes_split(&shape->layout, d) != layout_axes_split(&as->layout, d))
            return complain(r, "has counts that are split differently from the rows");
    return !layout_axes_partial(&shape->layout) || complain(r, "has partial counts");
}

void value_exchange_uneven(Verifier *v, Pc pc)
{
    UnevenExchange r = {.v = v, .pc = pc, .in = &v->p->code.at[pc]};
    const BufferId to = program_arg(v->p, r.in, 3);
    Val val = value_read(v, pc, program_arg(v->p, r.in, 0), "input", 0);
    r.to = *value_shape_at(v, v->canon[v->p->buffers.at[to].shape]);
    bool fine = !val.bad;
    if (fine && (val.list || val.packed_dim))
        fine = complain(&r, "exchanges packed rows, but needs unpacked ones");
    if (fine) r.from = *value_shape_at(v, val.shape);
    const Attrs *attrs = verify_attrs(v, pc);
    if (fine && (attrs->scale != 0 || attrs->reduce || verify_accumulates(v, r.in, 0)))
        fine = complain(&r, "scales or adds, which the graph does not state");
    fine = fine && check_change(&r) && check_counts(&r, 1, &val, &r.from) &&
           check_counts(&r, 2, &val, &r.to);
    if (fine && v->p->buffers.at[to].packed) fine = complain(&r, "must not make packed rows");
    val.bad = !fine;
    val.shape = v->canon[v->p->buffers.at[to].shape];
    val.dtype = (uint8_t)v->p->buffers.at[to].dtype;
    BufferId where;
    if (fine && value_present(v, pc, &val, &where))
        verify_warn(v, pc, "makes a result that is already in buffer %u", where);
    value_write(v, pc, to, val);
}
