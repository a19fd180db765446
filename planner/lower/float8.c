/* Weights that are gathered in 8 bits. Once a step, the program finds the largest magnitude of each
 * parameter, in one reduction for all parameters that are split over the same axes. Then each rank
 * quantises its part of a unit, and the quantised parts are gathered. The nodes `amax` and
 * `quantise` of these parameters are therefore skipped. */
#include <assert.h>

#include "planner/lower/lower.h"
#include "planner/passes/graph/float8.h"

bool lower_gathers_bytes(const Lower *l, UnitId u)
{
    return u && l->g->units.at[u].dtype == DT_e4m3;
}

bool lower_done_by_gather(const Lower *l, NodeId id)
{
    const Node *n = &l->g->nodes.at[id];
    if (!op_scales_whole(n->op)) return false;
    const Tensor *t = &l->g->tensors.at[n->in[0]];
    return t->role == ROLE_param && lower_gathers_bytes(l, t->unit);
}

static void emit_range(Lower *l, UnitId u, Emit *e, TensorId param)
{
    const Tensor *t = &l->g->tensors.at[param];
    Shape s = tensor_shape(l->g, t, &t->use);
    e->stream = STREAM_compute;
    e->unit = u;
    e->attrs.lo = (int64_t)t->flat_offset;
    e->attrs.hi = e->attrs.lo + shape_local_elements(&s, &l->plan->mesh, &l->g->deals);
    lower_add_scratch(l, e);
    lower_emit(l, e);
}

static AxisSet parts_of(const Lower *l, TensorId param)
{
    const Tensor *t = &l->g->tensors.at[param];
    return (AxisSet)(l->g->units.at[t->unit].shard | layout_axes_split(&t->use, -1));
}

static BufferId slot(Lower *l, BufferId table, uint32_t i)
{
    Shape s = {.n_dims = 0, .layout = lower_shape(l, table)->layout};
    DType dtype = l->p->buffers.at[table].dtype;
    return lower_view(l, table, &s, dtype, (uint64_t)i * dtype_bytes(dtype));
}

/* Finds the largest magnitudes of the parameters that are sharded over `axes`. They share one table
 * and one reduction. */
static void find_maxima(Lower *l, AxisSet axes, uint32_t n)
{
    Shape part = {.n_dims = 1, .dim = {n}};
    Layout whole = {{0}};
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (axes >> a & 1) part.layout.on[a] = PARTIAL_MAX;
    BufferId table = lower_buffer(l, &part, lower_dtype(l, DT_f32), CATEGORY_communication);
    uint32_t i = 0;
    for (int second = 0; second < 2; second++) {
        if (second) table = lower_convert(l, table, &whole, 0, CATEGORY_communication);
        i = 0;
        for (TensorId t = 1; t < l->g->tensors.n; t++) {
            const Tensor *at = &l->g->tensors.at[t];
            if (at->role != ROLE_param || !lower_gathers_bytes(l, at->unit) ||
                !lower_unit_is_mine(l, at->unit) || parts_of(l, t) != axes)
                continue;
            BufferId to = slot(l, table, i++);
            Emit e = {
                .op = OP_amax_range, .n_in = 1, .n_out = 1, .arg = {l->unit.of[at->unit].rest, to}};
            if (second)
                l->unit.maximum[t] = to;
            else
                emit_range(l, at->unit, &e, t);
        }
    }
    assert(i == n);
}

void lower_maxima(Lower *l)
{
    AxisSet seen[MAX_AXES] = {0};
    uint32_t count[MAX_AXES] = {0}, n_seen = 0;
    for (TensorId t = 1; t < l->g->tensors.n; t++) {
        const Tensor *at = &l->g->tensors.at[t];
        if (at->role != ROLE_param || !lower_gathers_bytes(l, at->unit) ||
            !lower_unit_is_mine(l, at->unit))
            continue;
        uint32_t k = 0;
        while (k < n_seen && seen[k] != parts_of(l, t)) k++;
        assert(k < MAX_AXES);
        if (k == n_seen) seen[n_seen++] = parts_of(l, t);
        count[k]++;
    }
    for (uint32_t k = 0; k < n_seen; k++) find_maxima(l, seen[k], count[k]);
}

BufferId lower_in_bytes(Lower *l, UnitId u, const Shape *flat, Category category)
{
    const Unit *unit = &l->g->units.at[u];
    BufferId out = lower_buffer(l, flat, lower_dtype(l, DT_e4m3), category);
    l->p->buffers.at[out].unit = u;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        TensorId t = unit->params.at[i];
        Emit e = {.op = OP_quantise_range,
                  .n_in = 2,
                  .n_out = 1,
                  .arg = {l->unit.of[u].rest, l->unit.maximum[t], out}};
        e.attrs.scale = float8_largest(DT_e4m3);
        e.attrs.accumulate = i > 0;
        emit_range(l, u, &e, t);
    }
    return out;
}

BufferId lower_quantised_weight(Lower *l, TensorId t)
{
    NodeId by = l->g->tensors.at[t].producer;
    if (l->g->tensors.at[t].role != ROLE_activation || !lower_done_by_gather(l, by)) return 0;
    TensorId param = l->g->nodes.at[by].in[0];
    if (op_info(l->g->nodes.at[by].op)->flags & OP_MAGNITUDE) return l->unit.maximum[param];
    BufferId view = lower_weight(l, param);
    l->p->buffers.at[view].tensor = t;
    return view;
}
