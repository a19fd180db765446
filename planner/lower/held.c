/* Values with a halo. The exchange of a halo begins early, before the node that reads it. Some
 * convolutions are computed in parts: first the inner rows, during the exchange, and then the rows
 * at the border. Other ops with windows read a copy in which the rank's rows and the halo are
 * contiguous. */
#include <assert.h>

#include "planner/ir/window.h"
#include "planner/lower/lower.h"

/* ---- versions of a value ---- */

/* Returns the version of t with this halo; NULL if there is none. If `in_strips` is true, this is a
 * version with only the strips; if not, it is a copy with all rows. */
static const Version *find_held(const Lower *l, TensorId t, const Shape *held, bool in_strips)
{
    for (uint32_t i = l->value.versions_of[t]; i; i = l->value.versions.at[i].next) {
        const Version *v = &l->value.versions.at[i];
        if (v->around && (v->rows != 0) == in_strips &&
            shape_equal(lower_shape(l, v->buffer), held))
            return v;
    }
    return NULL;
}

/* Returns the exchange of this halo of t that has begun in this micro-batch; NULL if none has. */
static HaloStarted *find_started(Lower *l, TensorId t, const Shape *held)
{
    for (uint32_t i = 0; i < l->value.started.n; i++) {
        HaloStarted *s = &l->value.started.at[i];
        if (s->tensor == t && s->microbatch == l->microbatch && shape_equal(&s->held, held))
            return s;
    }
    return NULL;
}

static int first_around(const DealId *around)
{
    int d = 0;
    while (!around[d]) d++;
    return d;
}

/* True if most outputs along `role` need no halo, so that it pays to compute them during the
 * exchange. `role` is dimension d of the input. */
static bool most_are_inner(const Lower *l, NodeId id, IndexRole role, int d)
{
    const Node *n = &l->g->nodes.at[id];
    const char letter = op_letter(n->op, role);
    Binding b;
    if (!graph_bind(l->g, n, &b, NULL)) return false;
    const int64_t inputs = b.size[(int)window_reach(letter)], outputs = b.size[(int)letter];
    const Shape held = lower_arg_shape(l, id, 0);
    const uint32_t parts = shape_parts(&held, &l->plan->mesh, d);
    const Window w = op_window(n->op, &b, graph_attrs_at(l->g, n->attrs), letter);
    for (uint32_t p = 0; p < parts; p++) {
        Interval own, out;
        if (!deal_interval(&l->g->deals, 0, inputs, parts, p, 0, &own) ||
            !deal_interval(&l->g->deals, 0, outputs, parts, p, 0, &out))
            return false;
        const Interval inner = window_inner_rows(&w, inputs, own, out);
        if (2 * (inner.hi - inner.lo) < out.hi - out.lo) return false;
    }
    return true;
}

/* Finds the directions in which the node can be computed in parts. */
static RowsParts directions(const Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    const DealId *around = op_in_rows(n->op).inner ? lower_arg_around(l, id, 0) : NULL;
    const int h = op_dim(n->op, 0, INDEX_height), w = op_dim(n->op, 0, INDEX_width);
    RowsParts p = {.rows = false};
    if (!l->job->interior_first || !around) return p;
    p.rows = around[h] && most_are_inner(l, id, INDEX_height, h);
    p.columns = around[w] && (p.rows || !around[h]) && most_are_inner(l, id, INDEX_width, w);
    return p;
}

/* If a node is computed in parts along both rows and columns, this only exchanges columns. Rows are
 * exchanged later, because their strips contain the corners and so parts of the columns' halo. */
void lower_start_halo(Lower *l, NodeId id, uint32_t i)
{
    const TensorId t = l->g->nodes.at[id].in[i];
    if (!lower_arg_around(l, id, i)) return;
    const Shape held = lower_arg_shape(l, id, i);
    if (find_held(l, t, &held, false) || find_held(l, t, &held, true) || find_started(l, t, &held))
        return;
    const BufferId from = lower_want(l, t, lower_arg_layout(l, id, i), id);
    const RowsParts parts = i == 0 ? directions(l, id) : (RowsParts){.rows = false};
    const DealId *around = lower_arg_around(l, id, i);
    const int w = op_dim(l->g->nodes.at[id].op, i, INDEX_width);
    const HaloStarted s = {t, l->microbatch, held,
                           parts.rows && parts.columns
                               ? lower_hold_begin_along(l, from, around, w, id)
                               : lower_hold_begin(l, from, around, id)};
    list_push(l->scratch, &l->value.started, s);
}

/* Looks only at the next AHEAD nodes. This suffices, because at most two other projections lie
 * between a projection and the attention that reads it. */
void lower_start_ahead(Lower *l, NodeId id)
{
    enum { AHEAD = 8 };
    if (!l->value.any_around) return;
    const NodeId end = id > l->g->n_forward ? l->g->nodes.n : l->g->n_forward + 1;
    for (NodeId reader = id + 1; reader < end && reader <= id + AHEAD; reader++) {
        const Node *n = &l->g->nodes.at[reader];
        for (uint32_t i = 0; n->stage == l->g->nodes.at[id].stage && i < n->n_in; i++) {
            if (!lower_arg_around(l, reader, i)) continue;
            const Shape held = lower_arg_shape(l, reader, i);
            if (lower_shape_is_strided(l, &held) &&
                lower_find_version(l, n->in[i], lower_arg_layout(l, reader, i)))
                lower_start_halo(l, reader, i);
        }
    }
}

/* Begins the exchanges of all branches that read the same value with different halos. The exchanges
 * run during the first branch. */
static void start_branches(Lower *l, NodeId id, TensorId t)
{
    const uint32_t stage = l->g->nodes.at[id].stage;
    if (!l->value.any_around) return;
    for (NodeId other = id + 1; l->phase == PHASE_forward && other <= l->g->n_forward; other++) {
        const Node *n = &l->g->nodes.at[other];
        for (uint32_t i = 0; n->stage == stage && i < n->n_in; i++)
            if (n->in[i] == t) lower_start_halo(l, other, i);
    }
}

/* Removes an exchange from the list of those that have begun. */
static HaloStep take_started(Lower *l, HaloStarted *s)
{
    const HaloStep step = s->step;
    *s = l->value.started.at[--l->value.started.n];
    return step;
}

/* Returns the exchange for the strips of node `id`. Begins it if it has not begun. */
static HaloStep take_strips(Lower *l, NodeId id, uint32_t i, const Shape *held)
{
    const TensorId t = l->g->nodes.at[id].in[i];
    const Version *found = find_held(l, t, held, true);
    const DealId *around = lower_arg_around(l, id, i);
    const int first = first_around(around);
    if (found) return (HaloStep){found->rows, found->buffer, *held, first};
    lower_start_halo(l, id, i);
    start_branches(l, id, t);
    HaloStarted *own = find_started(l, t, held);
    assert(own);
    HaloStep step = take_started(l, own);
    if (step.d != first)
        step = lower_hold_begin_along(l, lower_hold_end(l, &step, id), around, first, id);
    lower_add_version(l, t, step.strips);
    l->value.versions.at[l->value.versions_of[t]].rows = step.from;
    return step;
}

BufferId lower_want_arg(Lower *l, NodeId id, uint32_t i)
{
    const TensorId t = l->g->nodes.at[id].in[i];
    if (!lower_arg_around(l, id, i)) return lower_want(l, t, lower_arg_layout(l, id, i), id);
    const Shape held = lower_arg_shape(l, id, i);
    const Version *found = find_held(l, t, &held, false);
    if (found) return found->buffer;
    const HaloStep step = take_strips(l, id, i, &held);
    const BufferId copy = lower_hold_end(l, &step, id);
    lower_add_version(l, t, copy);
    return copy;
}

/* ---- convolutions in parts ---- */

/* Returns the exchange of the halo of the node's first input, if only its columns are being
 * exchanged; otherwise NULL. */
static HaloStarted *started_columns(Lower *l, NodeId id)
{
    const Shape held = lower_arg_shape(l, id, 0);
    HaloStarted *s = find_started(l, l->g->nodes.at[id].in[0], &held);
    return s && s->step.d != first_around(lower_arg_around(l, id, 0)) ? s : NULL;
}

/* Returns the directions in which the node is computed in parts. If the exchange of columns has
 * already ended, columns need no parts. */
static RowsParts parts_of(Lower *l, NodeId id)
{
    RowsParts p = directions(l, id);
    if (!p.columns) return p;
    const Shape held = lower_arg_shape(l, id, 0);
    const TensorId t = l->g->nodes.at[id].in[0];
    p.columns = !find_held(l, t, &held, false) && !find_held(l, t, &held, true) &&
                (!find_started(l, t, &held) || started_columns(l, id));
    return p;
}

RowsParts lower_begin_parts(Lower *l, NodeId id, BufferId *x)
{
    RowsParts p = parts_of(l, id);
    if (!lower_has_parts(&p)) return p;
    const Node *n = &l->g->nodes.at[id];
    if (p.columns && started_columns(l, id)) {
        p.sides = take_started(l, started_columns(l, id));
        *x = p.sides.from;
        return p;
    }
    if (p.columns) {
        *x = lower_want(l, n->in[0], lower_arg_layout(l, id, 0), id);
        p.sides = lower_hold_begin_along(l, *x, lower_arg_around(l, id, 0),
                                         op_dim(n->op, 0, INDEX_width), id);
        return p;
    }
    const Shape held = lower_arg_shape(l, id, 0);
    const HaloStep step = take_strips(l, id, 0, &held);
    *x = step.from;
    p.strips = step.strips;
    return p;
}

static void emit_part(Lower *l, Emit part)
{
    lower_add_scratch(l, &part);
    lower_emit(l, &part);
}

/* Emits the centre, waits for the halo of columns, and emits the sides. Returns the input with this
 * halo. The exchange of rows begins before the sides, because its strips contain the corners. */
static BufferId centre_and_sides(Lower *l, const Emit *e, RowsParts *parts)
{
    const NodeId id = e->origin;
    const TensorId t = l->g->nodes.at[id].in[0];
    Emit part = *e;
    part.op = op_in_rows(e->op).inner;
    part.attrs.parts = ROWS_centre;
    emit_part(l, part);
    const BufferId x = lower_hold_end(l, &parts->sides, id);
    if (parts->rows) {
        const DealId *around = lower_arg_around(l, id, 0);
        const HaloStep step = lower_hold_begin_along(l, x, around, first_around(around), id);
        parts->strips = step.strips;
        lower_add_version(l, t, step.strips);
        l->value.versions.at[l->value.versions_of[t]].rows = x;
    } else {
        lower_add_version(l, t, x);
    }
    start_branches(l, id, t);
    lower_next_returns(l);
    part = *e;
    part.op = op_in_rows(e->op).inner;
    part.arg[0] = x;
    part.attrs.parts = ROWS_sides;
    part.attrs.accumulate = 1;
    emit_part(l, part);
    return x;
}

/* Emits all parts of the op. The parts after the first add their results to the output. */
void lower_parts(Lower *l, const Emit *e, RowsParts *parts)
{
    const RowsOps ops = op_in_rows(e->op);
    Emit part = *e;
    part.op = ops.inner;
    if (parts->columns)
        part.arg[0] = centre_and_sides(l, e, parts);
    else
        emit_part(l, part), lower_next_returns(l);
    if (!parts->rows) return;
    part.op = ops.border;
    part.arg[part.n_in++] = parts->strips;
    for (uint32_t j = 0; j < e->n_out; j++) part.arg[part.n_in + j] = e->arg[e->n_in + j];
    part.attrs.accumulate = 1;
    emit_part(l, part);
}
