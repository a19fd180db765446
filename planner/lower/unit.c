/* Parameters while a step runs: gathered before use and a unit ahead, released after, gradients
 * reduced when the last contribution of a unit has arrived. Two edges bound memory: a prefetched
 * gather waits for the release before it, and the first write of a gradient buffer for the
 * reduction before the last. */
#include <assert.h>
#include <string.h>

#include "planner/lower/lower.h"

/* Are gradients summed unsharded over micro-batches, and reduced once a step? */
bool lower_defers(const Lower *l, UnitId u)
{
    bool mixed = /* gradients of several micro-batches */
        l->job->schedule->splits_backward || l->is_mixed[u];
    return !l->g->units.at[u].shard || l->job->sharding.defer_grad_sync || mixed;
}

uint32_t lower_n_windows(const Lower *l, UnitId u)
{
    return lower_defers(l, u) ? 1 : l->n_microbatches;
}

bool lower_stays_gathered(const Lower *l, UnitId u)
{
    if (!l->g->units.at[u].shard || l->job->sharding.reshard_after_forward == RESHARD_false)
        return true;
    if (l->is_last[u] && !l->job->sharding.reshard_last) return true;
    return unit_is_root(l->job, u) && !l->job->sharding.reshard_root;
}

static void set_axes(const Lower *l, Layout *layout, AxisSet axes, int8_t on)
{
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (axes >> a & 1) layout->on[a] = on;
}

Shape lower_flat(const Lower *l, uint64_t elements, AxisSet split, AxisSet partial)
{
    Shape s = {.n_dims = 1, .dim = {(int64_t)elements}};
    set_axes(l, &s.layout, split, SPLIT(0));
    set_axes(l, &s.layout, partial, PARTIAL_SUM);
    return s;
}

static BufferId persistent(Lower *l, UnitId u, DType dtype, Category category)
{
    const Unit *unit = &l->g->units.at[u];
    Shape s = lower_flat(l, unit->padded, unit->shard, 0);
    BufferId b = lower_buffer(l, &s, dtype, category);
    l->p->buffers.at[b].persistent = true;
    l->p->buffers.at[b].unit = u;
    if (lower_offloads(l, u)) l->p->buffers.at[b].space = SPACE_host;
    return b;
}

static bool has_gradient(const Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    for (uint32_t i = 0; i < unit->params.n; i++)
        if (l->g->tensors.at[unit->params.at[i]].grad) return true;
    return false;
}

/* Where the reduced gradient lives. One that is written once a step leaves its bytes to activations
 * until then. */
static BufferId grad_at_rest(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    BufferId b = persistent(l, u, lower_dtype(l, unit->reduce_dtype), CATEGORY_gradient);
    Buffer *at = &l->p->buffers.at[b];
    bool sums = unit->shard ? lower_n_windows(l, u) > 1 : l->n_microbatches > 1;
    if (!sums && at->space == SPACE_device && has_gradient(l, u))
        at->persistent = false, at->result = true;
    return b;
}

/* The unit at rest, in the dtype in which it is used. */
static BufferId in_use_dtype(Lower *l, UnitId u, Category category)
{
    const Unit *unit = &l->g->units.at[u];
    if (lower_gathers_bytes(l, u)) {
        Shape part = lower_flat(l, unit->padded, unit->shard, 0);
        return lower_in_bytes(l, u, &part, category);
    }
    bool fetched = lower_offloads(l, u);
    BufferId rest = fetched ? lower_fetch(l, u) : l->units[u].rest;
    DType use = lower_dtype(l, unit->dtype);
    if (use == l->p->buffers.at[rest].dtype) return rest;
    Shape shape = lower_flat(l, unit->padded, unit->shard, 0);
    BufferId cast = lower_buffer(l, &shape, use, category);
    l->p->buffers.at[cast].unit = u;
    lower_copy(l, u, fetched ? STREAM_copy_in : STREAM_compute, rest, cast, 0, 0);
    return cast;
}

/* Weights that stay gathered from step to step: what a step reads, its predecessor's end wrote. */
static BufferId whole_copy(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    Shape whole = lower_flat(l, unit->padded, 0, 0);
    BufferId b = lower_buffer(l, &whole, lower_dtype(l, unit->dtype), CATEGORY_gathered);
    l->p->buffers.at[b].persistent = true;
    l->p->buffers.at[b].unit = u;
    return b;
}

void lower_units_start(Lower *l)
{
    bool adamw = l->job->config->optimizer.kind == OPTIMIZER_adamw;
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!lower_unit_is_mine(l, u)) continue;
        const Unit *unit = &l->g->units.at[u];
        UnitState *s = &l->units[u];
        DType rest = lower_dtype(l, unit->rest_dtype);
        s->rest = persistent(l, u, rest, CATEGORY_parameter);
        s->grad = grad_at_rest(l, u);
        if (!adamw) continue;
        const DType state = lower_dtype(l, unit->state_dtype);
        s->m = persistent(l, u, state, CATEGORY_optimizer);
        s->v = persistent(l, u, state, CATEGORY_optimizer);
    }
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!lower_unit_is_mine(l, u)) continue;
        if (!l->g->units.at[u].shard)
            l->units[u].gathered = in_use_dtype(l, u, CATEGORY_parameter); /* whole: once a step */
        else if (l->job->gather_eager)
            l->units[u].gathered = whole_copy(l, u);
    }
    lower_turns_start(l);
}

static void gather_from(Lower *l, UnitId u, BufferId from)
{
    UnitState *s = &l->units[u];
    AxisSet axes = layout_axes_split(&lower_shape(l, from)->layout, 0);
    Emit e = {.op = OP_all_gather,
              .stream = lower_stream(l, axes, OP_all_gather),
              .axes = axes,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, s->gathered},
              .after = {l->last_release}};
    e.attrs.registered = l->job->registered && lower_takes_turns(l, u);
    if (l->job->gather_waits) e.after[1] = l->stream_end[STREAM_compute];
    lower_emit(l, &e);
}

static void gather(Lower *l, UnitId u, bool backward)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->units[u];
    s->begun = false;
    s->gathered = lower_turns_find(&l->turns_weights, u);
    if (s->gathered) return;
    BufferId from = backward && s->kept  ? s->kept
                    : lower_copies(l, u) ? lower_copy_in(l, u)
                                         : in_use_dtype(l, u, CATEGORY_communication);
    Shape whole = lower_flat(l, unit->padded, 0, 0);
    s->gathered = lower_takes_turns(l, u) ? lower_turns_take(l, &l->turns_weights, u) : 0;
    if (!s->gathered) {
        s->gathered = lower_buffer(l, &whole, l->p->buffers.at[from].dtype, CATEGORY_gathered);
        l->p->buffers.at[s->gathered].unit = u;
    }
    gather_from(l, u, from);
    if (backward) s->kept = 0;
}

/* My part of the gathered weights for the backward pass: on the innermost axis of dp_shard, which
 * has as many ranks as were asked for. Others that share the unit out (cp, ep) lie beside it. */
static void keep_slice(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    const Mesh *mesh = &l->plan->mesh;
    AxisSet inner = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (unit->shard >> a & 1 && mesh->axis[a].name == AXIS_dp_shard) inner = (AxisSet)(1u << a);
    assert(inner); /* its number divides dp_shard: refine_for_reshard() */
    Layout to = {{0}};
    set_axes(l, &to, inner, SPLIT(0));
    l->units[u].kept = lower_convert(l, l->units[u].gathered, &to, 0, CATEGORY_gathered);
    l->p->buffers.at[l->units[u].kept].unit = u;
}

static bool keeps_slice(const Lower *l)
{
    return l->job->sharding.reshard_after_forward == RESHARD_to;
}

/* The flat weights are needed no longer than it takes to copy them. */
static void open_copies(Lower *l, UnitId u)
{
    if (l->units[u].copied) return;
    lower_copy_out(l, u);
    bool forward = l->phase == PHASE_forward;
    if (forward && keeps_slice(l) && !lower_stays_gathered(l, u)) keep_slice(l, u);
}

void lower_gather_updated(Lower *l, UnitId u)
{
    if (!l->job->gather_eager || !l->g->units.at[u].shard) return;
    gather_from(l, u, in_use_dtype(l, u, CATEGORY_communication));
}

/* The use of u begins: later units are gathered ahead. */
static void begin_use(Lower *l, UnitId u)
{
    uint32_t k = l->next_use;
    while (k < l->uses.n && l->uses.at[k].unit != u) k++;
    bool planned = k < l->uses.n && l->uses.at[k].microbatch == l->microbatch;
    if (!l->units[u].gathered) gather(l, u, l->phase != PHASE_forward);
    l->units[u].begun = true;
    if (lower_copies(l, u)) open_copies(l, u);
    if (!planned) return;
    l->next_use = k + 1;
    uint32_t ahead = 0; /* a module's 8-bit unit comes with the one of its other parameters */
    for (uint32_t j = k + 1; j < l->uses.n; j++) {
        ahead += !lower_gathers_bytes(l, l->uses.at[j].unit);
        if (ahead > l->job->sharding.prefetch || !l->job->sharding.prefetch) break;
        if (!l->units[l->uses.at[j].unit].gathered)
            gather(l, l->uses.at[j].unit, l->uses.at[j].backward);
    }
}

BufferId lower_weight(Lower *l, TensorId param)
{
    const Tensor *t = &l->g->tensors.at[param];
    UnitState *s = &l->units[t->unit];
    if (l->g->units.at[t->unit].shard && (!s->gathered || !s->begun)) begin_use(l, t->unit);
    BufferId view = l->weight_view[param];
    if (s->copied) return view;
    if (view && l->p->buffers.at[view].parent == s->gathered) return view;
    Shape shape = tensor_shape(t, &t->use);
    DType dtype = l->p->buffers.at[s->gathered].dtype;
    view = lower_view(l, s->gathered, &shape, dtype, t->flat_offset * dtype_bytes(dtype));
    l->p->buffers.at[view].tensor = param;
    return l->weight_view[param] = view;
}

/* keep: a slice, if that is asked for, as the backward pass is still to come. */
static void release(Lower *l, UnitId u, bool keep)
{
    UnitState *s = &l->units[u];
    if (!s->gathered) return;
    if (keep && keeps_slice(l) && !s->copied) keep_slice(l, u);
    s->gathered = 0;
    s->begun = s->copied = false;
    lower_turns_give(&l->turns_weights, u);
    l->last_release = l->stream_end[STREAM_compute];
    bool again = l->next_use < l->uses.n && l->uses.at[l->next_use].unit == u;
    if (again && l->job->sharding.prefetch) gather(l, u, l->uses.at[l->next_use].backward);
}

void lower_after_node(Lower *l, NodeId n)
{
    bool forward = n <= l->g->n_forward || l->g->nodes.at[n].tile;
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!l->g->units.at[u].shard) continue;
        bool at_all = !l->last_backward[u] && !l->job->resident; /* the backward pass came along */
        if (forward && l->last_forward[u] == n && (at_all || !lower_stays_gathered(l, u)))
            release(l, u, l->last_backward[u] != 0);
        /* gathered ahead but not begun: for the next micro-batch (an embedding's backward reads no
         * weights) */
        bool ends = !forward && l->last_backward[u] == n && l->units[u].begun;
        if (ends && !l->job->resident) release(l, u, false);
    }
}

/* ---- gradients ---- */

static AxisSet data_axes(const Unit *unit)
{
    return (AxisSet)(unit->shard | unit->replicate);
}

BufferId lower_grad_home(Lower *l, TensorId param, Layout *home)
{
    const Tensor *t = &l->g->tensors.at[param];
    const Unit *unit = &l->g->units.at[t->unit];
    UnitState *s = &l->units[t->unit];
    *home = t->use;
    set_axes(l, home, (AxisSet)(data_axes(unit) | t->partial), PARTIAL_SUM);
    if (!unit->shard) s->full_grad = s->grad;
    if (lower_copies(l, t->unit)) return lower_copied_grad(l, param, home);
    if (!s->full_grad && lower_takes_turns(l, t->unit))
        s->full_grad = lower_turns_take(l, &l->turns_grads, t->unit);
    if (!s->full_grad) {
        Shape whole = lower_flat(l, unit->padded, 0, data_axes(unit));
        s->full_grad =
            lower_buffer(l, &whole, lower_dtype(l, unit->reduce_dtype), CATEGORY_gradient);
        l->p->buffers.at[s->full_grad].unit = t->unit;
        /* its own last reduction is long past: with that edge its bytes can be the same again */
        if (!lower_defers(l, t->unit))
            l->grad_after = s->reduced > l->previous_reduce ? s->reduced : l->previous_reduce;
    }
    BufferId view = l->grad_view[param];
    if (view && l->p->buffers.at[view].parent == s->full_grad) return view;
    Shape shape = tensor_shape(t, home);
    DType dtype = l->p->buffers.at[s->full_grad].dtype;
    view = lower_view(l, s->full_grad, &shape, dtype, t->flat_offset * dtype_bytes(dtype));
    l->p->buffers.at[view].tensor = t->grad;
    return l->grad_view[param] = view;
}

static void fill_range(Lower *l, UnitId u, BufferId grad, uint64_t lo, uint64_t hi)
{
    if (lo >= hi) return;
    Shape s = lower_flat(l, hi - lo, 0, 0);
    DType dtype = l->p->buffers.at[grad].dtype;
    BufferId view = lower_view(l, grad, &s, dtype, lo * dtype_bytes(dtype));
    Emit e = {.op = OP_fill, .stream = STREAM_compute, .unit = u, .n_out = 1, .arg = {view}};
    lower_emit(l, &e);
}

/* Alignment gaps and the final padding enter sums: they must be zero. */
static void fill_gaps(Lower *l, UnitId u, BufferId grad)
{
    const Unit *unit = &l->g->units.at[u];
    uint64_t end = 0;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        const Tensor *t = &l->g->tensors.at[unit->params.at[i]];
        Shape s = tensor_shape(t, &t->use);
        fill_range(l, u, grad, end, t->flat_offset);
        end = t->flat_offset + (uint64_t)shape_local_elements(&s, &l->plan->mesh, &l->g->deals);
    }
    fill_range(l, u, grad, end, unit->padded);
}

/* In place: a range that is PARTIAL on `axes` (and on `also`) is summed over `axes`; or, of values
 * that are the same there, the mean is taken. */
static Pc reduce_range(Lower *l, UnitId u, BufferId base, uint64_t lo, uint64_t hi, AxisSet axes,
                       AxisSet split, AxisSet also, Reduce reduce)
{
    DType dtype = l->p->buffers.at[base].dtype;
    uint64_t parts = mesh_size(&l->plan->mesh, split), offset = lo / parts * dtype_bytes(dtype);
    AxisSet partial = reduce == REDUCE_sum ? axes : 0;
    Shape from = lower_flat(l, hi - lo, split, (AxisSet)(partial | also)),
          to = lower_flat(l, hi - lo, split, also);
    BufferId in = lower_view(l, base, &from, dtype, offset),
             out = lower_view(l, base, &to, dtype, offset);
    Emit e = {.op = OP_all_reduce,
              .stream = lower_stream(l, axes, OP_all_reduce),
              .axes = axes,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {in, out}};
    e.attrs.reduce = reduce;
    Pc pc = lower_emit(l, &e);
    if (l->job->reduce_waits) l->compute_waits = pc;
    return pc;
}

static void reduce_replicas(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    if (unit->replicate)
        reduce_range(l, u, l->units[u].grad, 0, unit->padded, unit->replicate, unit->shard, 0,
                     REDUCE_sum);
}

void lower_flush_pending(Lower *l, uint32_t keep)
{
    while (l->pending.n > keep) {
        Pending p = l->pending.at[0];
        memmove(l->pending.at, l->pending.at + 1, (size_t)(l->pending.n - 1) * sizeof p);
        l->pending.n--;
        const Unit *unit = &l->g->units.at[p.unit];
        Shape s = lower_flat(l, unit->padded, unit->shard, unit->replicate);
        BufferId grad = l->units[p.unit].grad;
        BufferId view = lower_view(l, grad, &s, l->p->buffers.at[grad].dtype, 0);
        Emit e = {.op = OP_pass,
                  .stream = STREAM_compute,
                  .unit = p.unit,
                  .n_in = 1,
                  .n_out = 1,
                  .arg = {p.part, view}};
        e.attrs.accumulate = 1;
        lower_emit(l, &e);
        if (p.last) reduce_replicas(l, p.unit);
    }
}

/* Replicas are summed on the device: what leaves it is the micro-batch's whole gradient. */
static void offload(Lower *l, UnitId u, BufferId part, bool first)
{
    const Unit *unit = &l->g->units.at[u];
    if (unit->replicate) {
        reduce_range(l, u, part, 0, unit->padded, unit->replicate, unit->shard, 0, REDUCE_sum);
        Shape whole = lower_flat(l, unit->padded, unit->shard, 0);
        part = lower_view(l, part, &whole, l->p->buffers.at[part].dtype, 0);
    }
    lower_take_out(l, u, part, first);
}

static void scatter(Lower *l, UnitId u, BufferId full)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->units[u];
    bool first = s->n_reduced == 0, last = s->n_reduced + 1 == lower_n_windows(l, u);
    Shape part = lower_flat(l, unit->padded, unit->shard, unit->replicate);
    DType dtype = l->p->buffers.at[full].dtype;
    bool at_home = first && !lower_offloads(l, u);
    BufferId out = at_home ? lower_view(l, s->grad, &part, dtype, 0)
                           : lower_buffer(l, &part, dtype, CATEGORY_communication);
    if (!at_home) l->p->buffers.at[out].unit = u;
    Emit e = {.op = OP_reduce_scatter,
              .stream = lower_stream(l, unit->shard, OP_reduce_scatter),
              .axes = unit->shard,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {full, out},
              .after = {lower_offloads(l, u) ? l->previous_offload : 0}};
    e.attrs.reduce = REDUCE_sum;
    e.attrs.registered = l->job->registered && lower_takes_turns(l, u);
    Pc pc = lower_emit(l, &e);
    l->previous_reduce = l->last_reduce;
    l->last_reduce = s->reduced = pc;
    if (l->job->reduce_waits) l->compute_waits = pc;
    if (lower_offloads(l, u)) {
        offload(l, u, out, first);
        return;
    }
    if (first) {
        if (last) reduce_replicas(l, u);
        return;
    }
    Pending p = {u, out, last};
    list_push(l->scratch, &l->pending, p);
    lower_flush_pending(l, 1);
}

/* Gradients partial on other axes than data's are summed there first, once for each set of axes. */
static void sum_partials(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    for (uint32_t i = 0; i < unit->params.n;) {
        const Tensor *t = &l->g->tensors.at[unit->params.at[i]];
        uint64_t hi;
        i = graph_partial_run(l->g, unit, i, &hi);
        if (t->partial)
            reduce_range(l, u, l->units[u].full_grad, t->flat_offset, hi, t->partial, 0,
                         data_axes(unit), REDUCE_sum);
    }
}

/* The axes of tp on which a parameter is whole. */
static AxisSet replicas(const Lower *l, TensorId param)
{
    AxisSet split = layout_axes_split(&l->g->tensors.at[param].use, -1);
    return (AxisSet)(mesh_axes(&l->plan->mesh, AXIS_tp) & ~split);
}

/* Drift pinning: what ranks of tp hold alike is averaged over them. */
static void pin_replicas(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    for (uint32_t i = 0, k; i < unit->params.n; i = k) {
        AxisSet axes = replicas(l, unit->params.at[i]);
        for (k = i + 1; k < unit->params.n && replicas(l, unit->params.at[k]) == axes;) k++;
        uint64_t lo = l->g->tensors.at[unit->params.at[i]].flat_offset,
                 hi = k < unit->params.n ? l->g->tensors.at[unit->params.at[k]].flat_offset
                                         : unit->elements;
        if (axes)
            reduce_range(l, u, l->units[u].full_grad, lo, hi, axes, 0, data_axes(unit),
                         REDUCE_mean);
    }
}

/* A window of accumulation ends: the unit's gradient is reduced, and the next one starts from
 * nothing. */
static void end_window(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->units[u];
    if (lower_copies(l, u)) s->full_grad = lower_chunk_cat(l, u);
    fill_gaps(l, u, s->full_grad);
    sum_partials(l, u);
    if (l->job->pin_replicas) pin_replicas(l, u);
    if (unit->shard)
        scatter(l, u, s->full_grad);
    else
        reduce_replicas(l, u);
    s->full_grad = 0;
    lower_turns_give(&l->turns_grads, u);
    s->n_reduced++;
    s->n_contributions = s->n_per_microbatch;
    for (uint32_t i = 0; i < unit->params.n; i++) l->arrived[unit->params.at[i]] = 0;
}

void lower_grad_arrived(Lower *l, TensorId param)
{
    UnitId u = l->g->tensors.at[param].unit;
    UnitState *s = &l->units[u];
    l->arrived[param]++;
    assert(s->n_contributions > 0);
    if (--s->n_contributions == 0) end_window(l, u);
}
