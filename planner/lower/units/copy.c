/* fsdp2 { copy = true }: the copies that PyTorch makes around each collective. A shard is cast and
 * packed on a separate stream. Gathered weights are copied to one buffer for each parameter.
 * Gradients are packed again before they are reduced.
 *
 * A comparison with an ordinary plan shows the cost of these copies. PyTorch shards each parameter
 * along its first dimension, but here shards are flat. The number of bytes is the same. */
#include <assert.h>

#include "planner/lower/lower.h"

bool lower_copies(const Lower *l, UnitId u)
{
    return l->job->sharding.options.copy && l->g->units.at[u].shard;
}

BufferId lower_copy_in(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    Shape part = lower_flat(l, unit->padded, unit->shard, 0);
    BufferId from = lower_offloads(l, u) ? lower_fetch(l, u) : l->unit.of[u].rest;
    BufferId packed = lower_buffer(l, &part, lower_dtype(l, unit->dtype), CATEGORY_communication);
    l->p->buffers.at[packed].unit = u;
    /* waits for the last copy-out, which empties the flat buffer that the gather fills again */
    lower_copy(l, u, STREAM_copy_in, from, packed, l->unit.last_copy_out, 0);
    return packed;
}

void lower_copy_out(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->unit.of[u];
    assert(s->gathered && !s->copied);
    for (uint32_t i = 0; i < unit->params.n; i++) {
        TensorId param = unit->params.at[i];
        const Tensor *t = &l->g->tensors.at[param];
        DType dtype = l->p->buffers.at[s->gathered].dtype;
        Shape shape = tensor_shape(l->g, t, &t->use);
        BufferId from =
            lower_view(l, s->gathered, &shape, dtype, t->flat_offset * dtype_bytes(dtype));
        BufferId own = lower_buffer(l, &shape, dtype, CATEGORY_gathered);
        l->p->buffers.at[from].tensor = l->p->buffers.at[own].tensor = param;
        l->p->buffers.at[own].unit = u;
        l->unit.last_copy_out = lower_copy(l, u, STREAM_compute, from, own, 0, 0);
        l->unit.weight_view[param] = own;
    }
    s->copied = true;
}

DType lower_grad_dtype(const Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    bool sums = lower_defers(l, u) || l->unit.sums_pieces[u];
    return lower_copies(l, u) && !sums ? unit->dtype : unit->reduce_dtype;
}

BufferId lower_copied_grad(Lower *l, TensorId param, const Layout *home)
{
    const Tensor *t = &l->g->tensors.at[param];
    if (l->unit.grad_view[param]) return l->unit.grad_view[param];
    Shape shape = tensor_shape(l->g, t, home);
    DType dtype = lower_dtype(l, lower_grad_dtype(l, t->unit));
    BufferId own = lower_buffer(l, &shape, dtype, CATEGORY_gradient);
    l->p->buffers.at[own].tensor = t->grad;
    l->p->buffers.at[own].unit = t->unit;
    return l->unit.grad_view[param] = own;
}

BufferId lower_chunk_cat(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    Shape whole = lower_flat(l, unit->padded, 0, (AxisSet)(unit->shard | unit->replicate));
    DType dtype = lower_dtype(l, unit->reduce_dtype);
    BufferId flat = lower_buffer(l, &whole, dtype, CATEGORY_communication);
    l->p->buffers.at[flat].unit = u;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        TensorId param = unit->params.at[i];
        BufferId own = l->unit.grad_view[param];
        uint64_t offset = l->g->tensors.at[param].flat_offset * dtype_bytes(dtype);
        assert(own);
        BufferId to = lower_view(l, flat, lower_shape(l, own), dtype, offset);
        l->p->buffers.at[to].tensor = l->p->buffers.at[own].tensor;
        /* makes the copy wait for the last reduction, so that the input of only one reduction
         * exists at a time */
        lower_copy(l, u, STREAM_compute, own, to, i == 0 ? l->unit.last_reduce : 0, 0);
        l->unit.grad_view[param] = 0;
    }
    return flat;
}
