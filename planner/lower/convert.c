/* Converts a value to another layout. The steps are slice, reduce_scatter, all_reduce, all_to_all
 * and all_gather, in this order. One step covers all axes with the same change. Only this file
 * inserts collectives for layouts. */
#include <assert.h>

#include "planner/ir/layout/halo.h"
#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"
#include "planner/ir/layout/stride.h"
#include "planner/lower/lower.h"

/* Returns the number of local elements before dimension d. If it is 1, the parts of d are
 * contiguous. */
static int64_t outer_elements(const Lower *l, const Shape *s, int d)
{
    int64_t n = 1;
    for (int i = 0; i < d; i++) n *= shape_extent(s, &l->plan->mesh, &l->g->deals, i);
    return n;
}

static BufferId like(Lower *l, BufferId from, const Shape *shape, Category category)
{
    BufferId b = lower_buffer(l, shape, l->p->buffers.at[from].dtype, category);
    l->p->buffers.at[b].tensor = l->p->buffers.at[from].tensor;
    return b;
}

static BufferId local_step(Lower *l, OpKind op, BufferId from, const Shape *to, int dim,
                           uint32_t parts, bool packed, NodeId origin, int64_t chunks)
{
    BufferId out =
        like(l, from, to, packed ? CATEGORY_communication : l->p->buffers.at[from].category);
    l->p->buffers.at[out].packed = packed;
    Emit e = {.op = op,
              .stream = STREAM_compute,
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, out}};
    e.attrs.dim = dim;
    e.attrs.parts = parts;
    e.attrs.chunks = chunks;
    lower_emit(l, &e);
    return out;
}

static BufferId comm_step(Lower *l, OpKind op, AxisSet axes, BufferId from, BufferId out,
                          Reduce reduce, NodeId origin)
{
    /* Gradients of parameters are reduced on another stream than this value, because the next
     * computation waits for this value but not for those gradients. */
    Stream stream = reduce == REDUCE_max ? STREAM_tp : lower_value_stream(l, axes, op);
    Emit e = {.op = op,
              .stream = stream,
              .axes = axes,
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, out}};
    e.attrs.reduce = reduce;
    lower_emit(l, &e);
    return out;
}

static void set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on)
{
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (axes >> a & 1) layout->on[a] = on;
}

/* True if dimension d of `from` has tokens in zigzag order: two chunks for each cp rank. */
static bool is_sequence(const Lower *l, BufferId from, int d)
{
    const TensorId t = l->p->buffers.at[from].tensor;
    const DealId own = lower_shape(l, from)->deal[d];
    return lower_is_sequence(l, own ? own : t ? l->g->tensors.at[t].deal[d] : 0);
}

/* Returns the axes that make the parts of the zigzag. Inner axes of cp may divide these parts. */
static AxisSet zigzag_axes(const Lower *l)
{
    const uint32_t n = l->g->deals.deals.at[l->job->context.seq_deal].n_parts;
    AxisSet axes = mesh_axes_of(&l->plan->mesh, axes_cutting(INDEX_tokens));
    while (axes && mesh_size(&l->plan->mesh, axes) > n)
        axes &= (AxisSet) ~(1u << (31 - __builtin_clz(axes)));
    return axes;
}

/* Gathers dimension d. If parts of a zigzag are cut into pieces, first gathers the pieces of each
 * part, which then have the right order. Gathered parts must be reordered. */
static BufferId gather(Lower *l, BufferId from, AxisSet axes, int d, NodeId origin,
                       Category category)
{
    Shape to = *lower_shape(l, from);
    const bool tokens = is_sequence(l, from, d);
    const AxisSet inner = (AxisSet)(axes & ~zigzag_axes(l));
    if (tokens && inner && inner != axes)
        return gather(l, gather(l, from, inner, d, origin, category), (AxisSet)(axes & ~inner), d,
                      origin, category);
    const bool zigzag = tokens && !inner;
    bool direct = outer_elements(l, &to, d) == 1 && (!to.deal[d] || (tokens && !zigzag));
    set_axes(l, &to.layout, axes, WHOLE);
    if (!layout_axes_split(&to.layout, d)) to.deal[d] = 0;
    if (tokens) to.deal[d] = sequence_deal(l->job, shape_parts(&to, &l->plan->mesh, d));
    if (direct)
        return comm_step(l, OP_all_gather, axes, from, like(l, from, &to, category), REDUCE_none,
                         origin);
    uint32_t parts = mesh_size(&l->plan->mesh, axes);
    BufferId packed = like(l, from, &to, CATEGORY_communication);
    l->p->buffers.at[packed].packed = true;
    l->p->buffers.at[packed].bytes = l->p->buffers.at[from].bytes * parts;
    comm_step(l, OP_all_gather, axes, from, packed, REDUCE_none, origin);
    BufferId out = local_step(l, OP_unpack, packed, &to, d, parts, false, origin, zigzag ? 2 : 0);
    l->p->buffers.at[out].category = category;
    return out;
}

static BufferId scatter(Lower *l, BufferId from, AxisSet axes, int d, NodeId origin,
                        Category category)
{
    Shape to = *lower_shape(l, from);
    uint32_t parts = mesh_size(&l->plan->mesh, axes);
    const bool tokens = is_sequence(l, from, d);
    const AxisSet context = (AxisSet)(axes & zigzag_axes(l));
    if (tokens && context && context != axes)
        return scatter(l, scatter(l, from, context, d, origin, category),
                       (AxisSet)(axes & ~context), d, origin, category);
    const bool zigzag = tokens && context;
    if (outer_elements(l, &to, d) != 1 || zigzag)
        from = local_step(l, OP_pack, from, &to, d, parts, true, origin, zigzag ? 2 : 0);
    set_axes(l, &to.layout, axes, SPLIT(d));
    if (tokens) to.deal[d] = sequence_deal(l->job, shape_parts(&to, &l->plan->mesh, d));
    return comm_step(l, OP_reduce_scatter, axes, from, like(l, from, &to, category), REDUCE_sum,
                     origin);
}

/* Returns the deal (which indices each rank has) that splits dimension d over `parts` ranks. */
static DealId deal_for(Lower *l, BufferId from, int d, uint32_t parts)
{
    TensorId t = l->p->buffers.at[from].tensor;
    DealId own = t ? l->g->tensors.at[t].deal[d] : 0;
    int64_t size = lower_shape(l, from)->dim[d];
    const Deal *table = own ? &l->g->deals.deals.at[own] : NULL;
    if (deal_is_padded(&l->g->deals, own)) {
        if (table->n_parts == parts) return own;
        own = 0;
    }
    if (size % parts == 0) return 0;
    return own ? own : deal_ceil(&l->g->deals, l->arena, size, parts);
}

static BufferId cut(Lower *l, BufferId from, AxisSet axes, int d, NodeId origin)
{
    Shape to = *lower_shape(l, from);
    uint32_t parts = mesh_size(&l->plan->mesh, axes);
    const bool tokens = is_sequence(l, from, d);
    /* cp splits the tokens when the batch is read, so no conversion of layouts does so */
    assert(!tokens || !(axes & zigzag_axes(l)));
    if (!tokens) to.deal[d] = deal_for(l, from, d, parts);
    set_axes(l, &to.layout, axes, SPLIT(d));
    if (tokens) to.deal[d] = sequence_deal(l->job, shape_parts(&to, &l->plan->mesh, d));
    return local_step(l, OP_slice, from, &to, d, parts, false, origin, 0);
}

BufferId lower_unpad(Lower *l, BufferId from)
{
    for (int d = 0; d < lower_shape(l, from)->n_dims; d++) {
        Shape to = *lower_shape(l, from);
        if (!deal_whole(&l->g->deals, to.deal[d])) continue;
        to.deal[d] = 0;
        from = local_step(l, OP_slice, from, &to, d, 1, false, 0, 0);
    }
    return from;
}

/* The other axes give each rank a range of dimension d. True if `axes` split this range into equal,
 * consecutive parts. */
static bool follow(const Lower *l, BufferId from, const Shape *cut, AxisSet axes, int d)
{
    const AxisSet others = (AxisSet)(layout_axes_split(&cut->layout, d) & ~axes);
    if (cut->dim[d] % mesh_size(&l->plan->mesh, axes) != 0) return false;
    if (!is_sequence(l, from, d)) return cut->deal[d] == 0;
    return others && (axes & (0u - axes)) > others;
}

/* True if `axes` are the innermost axes that split sequences, and each cp rank has two chunks. */
static bool is_zigzag(const Lower *l, BufferId from, const Shape *cut, AxisSet axes, int d)
{
    const AxisSet others = (AxisSet)(layout_axes_split(&cut->layout, d) & ~axes);
    return is_sequence(l, from, d) && (axes & (0u - axes)) > others && !(axes & ~zigzag_axes(l));
}

/* Returns the tensor that holds the numbers of uneven rows of tensor t. It is an input of the op
 * that made the rows, or of an earlier op. */
static TensorId counts_of(const Lower *l, TensorId t)
{
    for (;;) {
        const Tensor *at = &l->g->tensors.at[t];
        const Node *n = &l->g->nodes.at[l->g->tensors.at[at->grad_of ? at->grad_of : t].producer];
        if (op_counts_arg(n->op) >= 0) return n->in[op_counts_arg(n->op)];
        uint32_t i = 0;
        while (i < n->n_in &&
               !deal_is_rows(&l->g->deals, l->g->tensors.at[n->in[i]].deal[ROWS_DIMS - 1]))
            i++;
        assert(i < n->n_in);
        t = n->in[i];
    }
}

/* Sends uneven rows to the ranks of their experts, or back. The numbers of rows in both layouts
 * determine the number of rows for each rank. */
static BufferId exchange_rows(Lower *l, BufferId from, AxisSet axes, int d, NodeId origin,
                              Category category)
{
    Shape to = *lower_shape(l, from);
    Layout layout[] = {to.layout, to.layout};
    set_axes(l, &to.layout, axes, SPLIT(d));
    layout[1] = to.layout;
    const TensorId counts = counts_of(l, l->p->buffers.at[from].tensor);
    /* the counts have no features, so an axis that splits features does not split them */
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
            if (layout_is_partial(layout[k].on[a]) || layout_dim(layout[k].on[a]) >= ROWS_DIMS)
                layout[k].on[a] = WHOLE;
    BufferId counted[2];
    for (uint32_t k = 0; k < 2; k++) counted[k] = lower_want(l, counts, &layout[k], origin);
    const BufferId out = like(l, from, &to, category);
    Emit e = {.op = OP_exchange_uneven,
              .stream = lower_value_stream(l, axes, OP_exchange_uneven),
              .axes = axes,
              .origin = origin,
              .n_in = 3,
              .n_out = 1,
              .arg = {from, counted[0], counted[1], out}};
    lower_emit(l, &e);
    return out;
}

/* Changes SPLIT(c) to SPLIT(d) by an exchange: each rank sends every other rank the part of
 * dimension d that belongs to the other rank. Uneven parts do not fit into messages of equal size;
 * they are gathered and then sliced instead. */
static BufferId exchange(Lower *l, BufferId from, AxisSet axes, int c, int d, NodeId origin,
                         Category category)
{
    Shape to = *lower_shape(l, from);
    uint32_t parts = mesh_size(&l->plan->mesh, axes);
    if (rows_uneven(&to, &l->g->deals)) return exchange_rows(l, from, axes, d, origin, category);
    Shape made = to;
    set_axes(l, &made.layout, axes, SPLIT(d));
    const bool leaves = is_zigzag(l, from, &to, axes, c),
               comes = is_zigzag(l, from, &made, axes, d);
    if (!(leaves || follow(l, from, &to, axes, c)) || !(comes || follow(l, from, &made, axes, d)))
        return cut(l, gather(l, from, axes, c, origin, category), axes, d, origin);
    if (outer_elements(l, &to, d) != 1 || comes)
        from = local_step(l, OP_pack, from, &to, d, parts, true, origin, comes ? 2 : 0);
    to = made;
    for (int k = 0; k < 2; k++)
        if (is_sequence(l, from, k ? d : c))
            to.deal[k ? d : c] = sequence_deal(l->job, shape_parts(&to, &l->plan->mesh, k ? d : c));
    bool direct = outer_elements(l, &to, c) == 1 && !leaves;
    BufferId out = like(l, from, &to, direct ? category : CATEGORY_communication);
    l->p->buffers.at[out].packed = !direct;
    comm_step(l, OP_all_to_all, axes, from, out, REDUCE_none, origin);
    return direct ? out
                  : local_step(l, OP_unpack, out, &to, c, parts, false, origin, leaves ? 2 : 0);
}

/* True if axis `axis` cannot be changed yet. The parts of a dimension nest in the order of the mesh
 * axes. So an axis can begin to split the dimension only after all outer axes that split it have
 * begun. An outer axis that stops splitting the dimension must stop before that. */
static bool must_wait(const Layout *a, const Layout *b, AxisSet group, uint32_t axis)
{
    if (!layout_is_split(b->on[axis])) return false;
    for (uint32_t i = 0; i < axis; i++) {
        if (a->on[i] == b->on[i] || group >> i & 1) continue;
        if (b->on[i] == b->on[axis] || a->on[i] == b->on[axis]) return true;
    }
    return false;
}

/* True if an axis inside `axis` also changes from splitting tokens to splitting another dimension.
 * The inner axis must change first: only then do the remaining axes have ranges in zigzag order. */
static bool leaves_later(const Lower *l, BufferId from, const Layout *b, uint32_t axis)
{
    const Layout *a = &lower_shape(l, from)->layout;
    if (!layout_is_split(a->on[axis]) || !is_sequence(l, from, layout_dim(a->on[axis])))
        return false;
    for (uint32_t i = axis + 1; i < l->plan->mesh.n_axes; i++)
        if (a->on[i] == a->on[axis] && layout_change(a->on[i], b->on[i]) == CHANGE_all_to_all &&
            b->on[i] != b->on[axis])
            return true;
    return false;
}

/* Finds the first axis that needs `change` on the way from the layout of `from` to `b`. Returns all
 * axes that need this change of the same dimensions, or with the same reduction. */
static AxisSet axes_of(const Lower *l, BufferId from, const Layout *b, Change change, int8_t *key)
{
    const Layout *a = &lower_shape(l, from)->layout;
    AxisSet axes = 0;
    bool by_source = change == CHANGE_all_gather || change == CHANGE_all_reduce;
    int8_t source = 0;
    for (uint32_t i = 0; i < l->plan->mesh.n_axes; i++) {
        if (layout_change(a->on[i], b->on[i]) != change || must_wait(a, b, axes, i)) continue;
        if (change == CHANGE_all_to_all && leaves_later(l, from, b, i)) continue;
        int8_t k = by_source ? a->on[i] : b->on[i];
        if (axes && (k != *key || a->on[i] != source)) continue;
        *key = k;
        source = a->on[i];
        axes = (AxisSet)(axes | 1u << i);
    }
    return axes;
}

static BufferId reduce(Lower *l, BufferId from, AxisSet axes, int8_t partial, NodeId origin,
                       Category category)
{
    Shape s = *lower_shape(l, from);
    set_axes(l, &s.layout, axes, WHOLE);
    Reduce kind = partial == PARTIAL_MAX ? REDUCE_max : REDUCE_sum;
    return comm_step(l, OP_all_reduce, axes, from, like(l, from, &s, category), kind, origin);
}

/* Makes one change of layout over `axes`. `key` is the dimension that is split, or the kind of
 * reduction. */
static BufferId change(Lower *l, Change what, BufferId from, AxisSet axes, int8_t key,
                       NodeId origin, Category category)
{
    int8_t is = lower_shape(l, from)->layout.on[__builtin_ctz(axes)];
    switch (what) {
    case CHANGE_slice: return cut(l, from, axes, layout_dim(key), origin);
    case CHANGE_reduce_scatter: return scatter(l, from, axes, layout_dim(key), origin, category);
    case CHANGE_all_reduce: return reduce(l, from, axes, key, origin, category);
    case CHANGE_all_to_all:
        return exchange(l, from, axes, layout_dim(is), layout_dim(key), origin, category);
    case CHANGE_all_gather: return gather(l, from, axes, layout_dim(key), origin, category);
    case CHANGE_nothing:
    case CHANGE_impossible: break;
    }
    assert(0 && "a change");
    return from;
}

/* Returns the axes that prevent the change because they split the dimension inside the parts of
 * `axes`. `on` is the layout that names this dimension. Uneven parts are gathered over all their
 * axes or over none. */
static AxisSet in_the_way(const Lower *l, const Shape *s, AxisSet axes, int8_t on)
{
    if (!layout_is_split(on)) return 0;
    int d = layout_dim(on);
    AxisSet all = layout_axes_split(&s->layout, d);
    AxisSet within = (AxisSet)(all & ~axes & ~((1u << __builtin_ctz(axes)) - 1));
    if (!within) return 0;
    const bool uneven = s->deal[d] || s->dim[d] % shape_parts(s, &l->plan->mesh, d) != 0;
    if (uneven && !lower_is_sequence(l, s->deal[d])) return all;
    return (AxisSet)(all & ~((1u << __builtin_ctz(within)) - 1));
}

/* Makes one change. If other axes prevent it, gathers over these axes first; a later step splits
 * them again. */
static BufferId step(Lower *l, Change what, BufferId from, const Layout *to, AxisSet axes,
                     int8_t key, NodeId origin, Category category)
{
    const Shape *s = lower_shape(l, from);
    int first = __builtin_ctz(axes);
    for (int leaves = 0; leaves < 2; leaves++) {
        int8_t on = leaves ? s->layout.on[first] : to->on[first];
        AxisSet others = in_the_way(l, s, axes, on);
        if (others) return gather(l, from, others, layout_dim(on), origin, category);
    }
    return change(l, what, from, axes, key, origin, category);
}

/* Reduces a maximum. reduce_scatter can only sum. So an all_reduce gives every rank the whole
 * maximum, which is then sliced. */
static BufferId take_maxima(Lower *l, BufferId from, const Layout *to, NodeId origin,
                            Category category)
{
    Layout whole = lower_shape(l, from)->layout;
    bool cut_after = false;
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++) {
        cut_after = cut_after || (whole.on[a] == PARTIAL_MAX && layout_is_split(to->on[a]));
        if (whole.on[a] == PARTIAL_MAX) whole.on[a] = WHOLE;
    }
    return cut_after ? lower_convert(l, from, &whole, origin, category) : from;
}

BufferId lower_convert(Lower *l, BufferId from, const Layout *to, NodeId origin, Category category)
{
    from = take_maxima(l, from, to, origin, category);
    static const Change order[] = {CHANGE_slice, CHANGE_reduce_scatter, CHANGE_all_reduce,
                                   CHANGE_all_to_all, CHANGE_all_gather};
    int8_t key = 0;
    AxisSet axes;
    for (size_t k = 0; k < sizeof order / sizeof order[0];) {
        axes = axes_of(l, from, to, order[k], &key);
        if (axes) from = step(l, order[k], from, to, axes, key, origin, category);
        k = axes ? 0 : k + 1; /* a change may make earlier kinds possible */
    }
    /* The loop stops early only if an axis moves from tokens to one dimension, and axes outside and
     * inside it move to another. The rule cp-tp, cp_scan_letter and tp_place_heads prevent that. */
    assert(layout_equal(&lower_shape(l, from)->layout, to));
    return from;
}

static void add_version(Lower *l, TensorId t, BufferId buffer, NodeId consumer)
{
    list_reserve_none(l->scratch, &l->value.versions);
    const Shape *s = lower_shape(l, buffer);
    Version v = {.buffer = buffer,
                 .layout = s->layout,
                 .consumer = consumer,
                 .next = l->value.versions_of[t]};
    for (int d = 0; d < s->n_dims; d++)
        v.around = v.around || deal_is_around(&l->g->deals, s->deal[d]) ||
                   deal_is_strided(&l->g->deals, s->deal[d]);
    l->value.versions_of[t] = (uint32_t)list_push(l->scratch, &l->value.versions, v);
    TensorId *first = &l->value.first_had[l->microbatch], *end = &l->value.end_had[l->microbatch];
    if (*end == 0 || t < *first) *first = t;
    if (t >= *end) *end = t + 1;
}

void lower_add_version(Lower *l, TensorId t, BufferId buffer)
{
    add_version(l, t, buffer, 0);
}

static BufferId find_version(const Lower *l, TensorId t, const Layout *layout, NodeId consumer)
{
    for (uint32_t i = l->value.versions_of[t]; i; i = l->value.versions.at[i].next) {
        const Version *v = &l->value.versions.at[i];
        if ((v->consumer && v->consumer != consumer) || v->around) continue;
        if (!layout || layout_equal(&v->layout, layout)) return v->buffer;
    }
    return 0;
}

BufferId lower_find_version(const Lower *l, TensorId t, const Layout *layout)
{
    return find_version(l, t, layout, 0);
}

/* Versions that contain only strips or messages are skipped, because they are not complete
 * values. */
BufferId lower_find_strided(const Lower *l, TensorId t)
{
    for (uint32_t i = l->value.versions_of[t]; i; i = l->value.versions.at[i].next) {
        const Version *v = &l->value.versions.at[i];
        if (v->around && !v->rows && lower_is_strided(l, v->buffer)) return v->buffer;
    }
    return 0;
}

BufferId lower_want(Lower *l, TensorId t, const Layout *layout, NodeId origin)
{
    const Tensor *tensor = &l->g->tensors.at[t];
    const Node *reader = &l->g->nodes.at[origin];
    NodeId consumer = l->job->tp.share_gathers ? 0 : reader->forward ? reader->forward : origin;
    BufferId found;
    if (tensor->role == ROLE_param) {
        found = lower_weight(l, t);
        if (layout_equal(&lower_shape(l, found)->layout, layout)) return found;
        return lower_convert(l, found, layout, origin, CATEGORY_gathered);
    }
    if (tensor->role == ROLE_state) {
        found = lower_state(l, t);
        return lower_convert(l, found, layout, origin, CATEGORY_state);
    }
    if ((found = lower_quantised_weight(l, t))) {
        if (layout_equal(&lower_shape(l, found)->layout, layout)) return found;
        return lower_convert(l, found, layout, origin, CATEGORY_gathered);
    }
    if ((found = find_version(l, t, layout, consumer))) return found;
    Layout use = tensor->use;
    BufferId from = find_version(l, t, &use, 0);
    if (!from) from = find_version(l, t, NULL, 0);
    const BufferId strided = from ? 0 : lower_find_strided(l, t);
    if (strided) {
        lower_add_version(l, t, lower_fold(l, strided, origin));
        return lower_want(l, t, layout, origin);
    }
    if (!from && tensor->role == ROLE_input) { /* each stage reads its own part of the batch */
        assert(l->phase == PHASE_forward);
        lower_forward_node(l, tensor->producer);
        return lower_want(l, t, layout, origin);
    }
    if (!from) {
        assert(tensor->role == ROLE_activation);
        assert(l->phase == PHASE_backward || l->phase == PHASE_recompute);
        Phase phase = l->phase;
        l->phase = PHASE_recompute;
        lower_forward_node(l, tensor->producer);
        l->phase = phase;
        return lower_want(l, t, layout, origin);
    }
    const Category category = tensor->role == ROLE_input ? CATEGORY_input : CATEGORY_activation;
    BufferId made = lower_convert(l, from, layout, origin, category);
    add_version(l, t, made, consumer);
    return made;
}
