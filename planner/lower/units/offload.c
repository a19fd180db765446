/* fsdp2 { offload = true }: parameters, reduced gradients and optimizer state are in host memory.
 * Shards are copied to the device before they are gathered. Reduced gradients are copied back at
 * once. The host sums gradients of micro-batches and runs the optimizer. Each direction of copies
 * has its own stream.
 *
 * Two rules limit the memory on the device. The gather of a unit and the copy of its shard wait
 * until an earlier unit is released. A reduction waits until the second newest copy has emptied its
 * buffer. */
#include <assert.h>

#include "planner/lower/lower.h"

bool lower_offloads(const Lower *l, UnitId u)
{
    return l->job->sharding.options.offload && l->g->units.at[u].shard &&
           !graph_is_balance(l->g, u);
}

BufferId lower_host_buffer(Lower *l, const Shape *shape, DType dtype, Category category)
{
    BufferId b = lower_buffer(l, shape, dtype, category);
    l->p->buffers.at[b].space = SPACE_host;
    return b;
}

Pc lower_copy(Lower *l, UnitId u, Stream stream, BufferId from, BufferId to, Pc after, Pc also)
{
    bool same = l->p->buffers.at[from].dtype == l->p->buffers.at[to].dtype;
    Emit e = {.op = same ? OP_copy : OP_cast,
              .stream = stream,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, to},
              .after = {after, also}};
    return lower_emit(l, &e);
}

BufferId lower_fetch(Lower *l, UnitId u)
{
    BufferId rest = l->unit.of[u].rest;
    Shape part = *lower_shape(l, rest);
    DType dtype = l->p->buffers.at[rest].dtype;
    BufferId here = lower_buffer(l, &part, dtype, CATEGORY_communication);
    l->p->buffers.at[here].unit = u;
    lower_copy(l, u, STREAM_copy_in, rest, here, l->unit.last_release, l->unit.last_copy_out);
    return here;
}

void lower_take_out(Lower *l, UnitId u, BufferId part, bool first)
{
    BufferId grad = l->unit.of[u].grad, to = grad;
    if (!first) {
        Shape shape = *lower_shape(l, grad);
        to = lower_host_buffer(l, &shape, l->p->buffers.at[grad].dtype, CATEGORY_gradient);
        l->p->buffers.at[to].unit = u;
    }
    l->unit.previous_offload = l->unit.last_offload;
    l->unit.last_offload =
        lower_copy(l, u, STREAM_copy_out, part, to, first ? 0 : l->unit.previous_host_sum, 0);
    if (first) return;
    Emit e = {
        .op = OP_pass, .stream = STREAM_host, .unit = u, .n_in = 1, .n_out = 1, .arg = {to, grad}};
    e.attrs.accumulate = 1;
    l->unit.previous_host_sum = l->unit.last_host_sum;
    l->unit.last_host_sum = lower_emit(l, &e);
}
