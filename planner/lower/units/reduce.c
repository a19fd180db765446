/* Reduces the gradients of a unit. The contributions of micro-batches are summed in a buffer. The
 * sum is then reduced over the data axes and added to the gradient that is kept until the
 * update. */
#include <assert.h>
#include <string.h>

#include "planner/lower/lower.h"

static AxisSet data_axes(const Unit *unit)
{
    return (AxisSet)(unit->shard | unit->replicate);
}

BufferId lower_grad_home(Lower *l, TensorId param, Layout *home)
{
    const Tensor *t = &l->g->tensors.at[param];
    const Unit *unit = &l->g->units.at[t->unit];
    UnitState *s = &l->unit.of[t->unit];
    *home = t->use;
    lower_set_axes(l, home, (AxisSet)(data_axes(unit) | t->partial), PARTIAL_SUM);
    if (!unit->shard) s->full_grad = s->grad;
    if (lower_copies(l, t->unit)) return lower_copied_grad(l, param, home);
    if (!s->full_grad && lower_takes_turns(l, t->unit))
        s->full_grad = lower_turns_take(l, &l->unit.turns_grads, t->unit);
    if (!s->full_grad) {
        Shape whole = lower_flat(l, unit->padded, 0, data_axes(unit));
        s->full_grad =
            lower_buffer(l, &whole, lower_dtype(l, unit->reduce_dtype), CATEGORY_gradient);
        l->p->buffers.at[s->full_grad].unit = t->unit;
        /* The last reduction of this unit ended long ago. The wait only allows the next reduction
         * to use the same bytes. */
        if (!lower_defers(l, t->unit))
            l->grad.after =
                s->reduced > l->unit.previous_reduce ? s->reduced : l->unit.previous_reduce;
    }
    BufferId view = l->unit.grad_view[param];
    if (view && l->p->buffers.at[view].parent == s->full_grad) return view;
    Shape shape = tensor_shape(l->g, t, home);
    DType dtype = l->p->buffers.at[s->full_grad].dtype;
    view = lower_view(l, s->full_grad, &shape, dtype, t->flat_offset * dtype_bytes(dtype));
    l->p->buffers.at[view].tensor = t->grad;
    return l->unit.grad_view[param] = view;
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

/* Fills gaps and padding of the flat buffer with zeros, because reductions also sum these bytes. */
static void fill_gaps(Lower *l, UnitId u, BufferId grad)
{
    const Unit *unit = &l->g->units.at[u];
    uint64_t end = 0;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        const Tensor *t = &l->g->tensors.at[unit->params.at[i]];
        Shape s = tensor_shape(l->g, t, &t->use);
        fill_range(l, u, grad, end, t->flat_offset);
        end = t->flat_offset + (uint64_t)shape_local_elements(&s, &l->plan->mesh, &l->g->deals);
    }
    fill_range(l, u, grad, end, unit->padded);
}

/* Sums elements [lo, hi) of `base` over `axes`, in place. `base` is split over `split`. The
 * elements remain partial sums on `also`. REDUCE_mean is for elements that are equal on all ranks;
 * it averages them instead. Returns the instruction. */
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
    if (l->job->sharding.reduce_waits) l->emit.compute_waits = pc;
    return pc;
}

static void reduce_replicas(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    if (unit->replicate)
        reduce_range(l, u, l->unit.of[u].grad, 0, unit->padded, unit->replicate, unit->shard, 0,
                     REDUCE_sum);
}

void lower_flush_pending(Lower *l, uint32_t keep)
{
    while (l->unit.pending.n > keep) {
        Pending p = l->unit.pending.at[0];
        memmove(l->unit.pending.at, l->unit.pending.at + 1,
                (size_t)(l->unit.pending.n - 1) * sizeof p);
        l->unit.pending.n--;
        const Unit *unit = &l->g->units.at[p.unit];
        Shape s = lower_flat(l, unit->padded, unit->shard, unit->replicate);
        BufferId grad = l->unit.of[p.unit].grad;
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

/* Copies a reduced gradient to the host, or adds it there. Before that, gradients of replicas are
 * summed on the device. */
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
    UnitState *s = &l->unit.of[u];
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
              .after = {lower_offloads(l, u) ? l->unit.previous_offload : 0}};
    e.attrs.reduce = REDUCE_sum;
    e.attrs.registered = l->job->sharding.registered && lower_takes_turns(l, u);
    Pc pc = lower_emit(l, &e);
    l->unit.previous_reduce = l->unit.last_reduce;
    l->unit.last_reduce = s->reduced = pc;
    if (l->job->sharding.reduce_waits) l->emit.compute_waits = pc;
    if (lower_offloads(l, u)) {
        offload(l, u, out, first);
        return;
    }
    if (first) {
        if (last) reduce_replicas(l, u);
        return;
    }
    Pending p = {u, out, last};
    list_push(l->scratch, &l->unit.pending, p);
    lower_flush_pending(l, 1);
}

/* Sums gradients that are partial on axes other than the data axes, once for each set of such
 * axes. */
static void sum_partials(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    for (uint32_t i = 0; i < unit->params.n;) {
        const Tensor *t = &l->g->tensors.at[unit->params.at[i]];
        uint64_t hi;
        i = graph_partial_run(l->g, unit, i, &hi);
        if (t->partial)
            reduce_range(l, u, l->unit.of[u].full_grad, t->flat_offset, hi, t->partial, 0,
                         data_axes(unit), REDUCE_sum);
    }
}

/* Returns the axes of tp that do not split a parameter. */
static AxisSet replicas(const Lower *l, TensorId param)
{
    AxisSet split = layout_axes_split(&l->g->tensors.at[param].use, -1);
    return (AxisSet)(mesh_axes_of(&l->plan->mesh, axes_with(AXIS_WEIGHTS)) & ~split);
}

/* Averages gradients that every rank of tp computes as a whole. Without this, rounding could make
 * the copies differ. */
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
            reduce_range(l, u, l->unit.of[u].full_grad, lo, hi, axes, 0, data_axes(unit),
                         REDUCE_mean);
    }
}

/* Reduces the gradient of the unit. The next contribution then starts a new sum. */
static void end_window(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->unit.of[u];
    if (lower_copies(l, u)) s->full_grad = lower_chunk_cat(l, u);
    fill_gaps(l, u, s->full_grad);
    sum_partials(l, u);
    if (l->job->tp.pin_replicas) pin_replicas(l, u);
    if (unit->shard)
        scatter(l, u, s->full_grad);
    else
        reduce_replicas(l, u);
    s->full_grad = 0;
    lower_turns_give(&l->unit.turns_grads, u);
    s->n_reduced++;
    s->n_contributions = s->n_per_microbatch;
    for (uint32_t i = 0; i < unit->params.n; i++) l->grad.arrived[unit->params.at[i]] = 0;
}

void lower_grad_arrived(Lower *l, TensorId param)
{
    UnitId u = l->g->tensors.at[param].unit;
    UnitState *s = &l->unit.of[u];
    l->grad.arrived[param]++;
    assert(s->n_contributions > 0);
    if (--s->n_contributions == 0 && !l->job->sharding.options.pipeline_stage) end_window(l, u);
}

void lower_reduce_last(Lower *l)
{
    if (!l->job->sharding.options.pipeline_stage) return;
    l->emit.floor = l->emit.stream_end[STREAM_compute];
    for (UnitId u = 1; u < l->g->units.n; u++)
        if (l->unit.of[u].n_per_microbatch > 0 && l->unit.of[u].n_contributions == 0)
            end_window(l, u);
    l->emit.floor = 0;
}
