/* Gathers and releases the weights of units during a step. With `prefetch`, a unit is gathered some
 * units before its use. It is released after its use. Two rules limit the memory. Each gather waits
 * for the newest release. The first write to a gradient buffer waits for the second newest
 * reduction. */
#include <assert.h>
#include <string.h>

#include "planner/lower/lower.h"

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

/* Makes and returns the buffer of the reduced gradient. If the gradient is written only once a
 * step, activations may use its bytes until then. */
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

/* Returns a unit's shard in the dtype in which its weights are used. */
static BufferId in_use_dtype(Lower *l, UnitId u, Category category)
{
    const Unit *unit = &l->g->units.at[u];
    if (lower_gathers_bytes(l, u)) {
        Shape part = lower_flat(l, unit->padded, unit->shard, 0);
        return lower_in_bytes(l, u, &part, category);
    }
    bool fetched = lower_offloads(l, u);
    BufferId rest = fetched ? lower_fetch(l, u) : l->unit.of[u].rest;
    DType use = lower_dtype(l, unit->dtype);
    if (use == l->p->buffers.at[rest].dtype) return rest;
    Shape shape = lower_flat(l, unit->padded, unit->shard, 0);
    BufferId cast = lower_buffer(l, &shape, use, category);
    l->p->buffers.at[cast].unit = u;
    lower_copy(l, u, fetched ? STREAM_copy_in : STREAM_compute, rest, cast, 0, 0);
    return cast;
}

/* Makes and returns the buffer for weights that stay gathered between steps. It is written at the
 * end of a step, and read in the next step. */
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
        UnitState *s = &l->unit.of[u];
        DType rest = lower_dtype(l, unit->rest_dtype);
        s->rest = persistent(l, u, rest, CATEGORY_parameter);
        if (graph_is_frozen(l->g, u)) continue;
        s->grad = grad_at_rest(l, u);
        if (!adamw || graph_is_balance(l->g, u)) continue;
        const DType state = lower_dtype(l, unit->state_dtype);
        s->m = persistent(l, u, state, CATEGORY_optimizer);
        s->v = persistent(l, u, state, CATEGORY_optimizer);
    }
    for (UnitId u = 1; u < l->g->units.n; u++) {
        if (!lower_unit_is_mine(l, u)) continue;
        /* weights that are not sharded need no gather; they are only converted, once a step */
        if (!l->g->units.at[u].shard)
            l->unit.of[u].gathered = in_use_dtype(l, u, CATEGORY_parameter);
        else if (l->job->sharding.gather_eager)
            l->unit.of[u].gathered = whole_copy(l, u);
    }
    lower_turns_start(l);
}

/* True if the gathered weights lie in registered memory. This is one of the two buffers that units
 * use in turn, or memory in which the weights of all units stay gathered. Megatron's FSDP allocates
 * both in NCCL's pool. */
static bool is_registered(const Lower *l, UnitId u)
{
    const bool stays = l->job->sharding.resident && l->unit.takes_turns != NULL;
    return l->job->sharding.registered && (stays || lower_takes_turns(l, u));
}

static void gather_from(Lower *l, UnitId u, BufferId from)
{
    UnitState *s = &l->unit.of[u];
    AxisSet axes = layout_axes_split(&lower_shape(l, from)->layout, 0);
    Emit e = {.op = OP_all_gather,
              .stream = lower_stream(l, axes, OP_all_gather),
              .axes = axes,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, s->gathered},
              .after = {l->unit.last_release}};
    e.attrs.registered = is_registered(l, u);
    if (l->job->sharding.gather_waits) e.after[1] = l->emit.stream_end[STREAM_compute];
    lower_emit(l, &e);
}

static void gather(Lower *l, UnitId u, bool backward)
{
    const Unit *unit = &l->g->units.at[u];
    UnitState *s = &l->unit.of[u];
    s->begun = false;
    s->gathered = lower_turns_find(&l->unit.turns_weights, u);
    if (s->gathered) return;
    BufferId from = backward && s->kept  ? s->kept
                    : lower_copies(l, u) ? lower_copy_in(l, u)
                                         : in_use_dtype(l, u, CATEGORY_communication);
    Shape whole = lower_flat(l, unit->padded, 0, 0);
    s->gathered = lower_takes_turns(l, u) ? lower_turns_take(l, &l->unit.turns_weights, u) : 0;
    if (!s->gathered) {
        s->gathered = lower_buffer(l, &whole, l->p->buffers.at[from].dtype, CATEGORY_gathered);
        l->p->buffers.at[s->gathered].unit = u;
    }
    gather_from(l, u, from);
    if (backward) s->kept = 0;
}

/* Keeps this rank's part of the gathered weights for the backward pass. The weights are cut over
 * the innermost axis of dp_shard, which has the requested number of ranks. Other axes do not cut
 * them. */
static void keep_slice(Lower *l, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    const Mesh *mesh = &l->plan->mesh;
    AxisSet inner = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (unit->shard >> a & 1 && axis_info(mesh->axis[a].name)->flags & AXIS_UNITS)
            inner = (AxisSet)(1u << a);
    assert(inner); /* refine_for_reshard() has checked the number */
    Layout to = {{0}};
    lower_set_axes(l, &to, inner, SPLIT(0));
    l->unit.of[u].kept = lower_convert(l, l->unit.of[u].gathered, &to, 0, CATEGORY_gathered);
    l->p->buffers.at[l->unit.of[u].kept].unit = u;
}

static bool keeps_slice(const Lower *l)
{
    return l->job->sharding.options.reshard_after_forward == RESHARD_to;
}

/* Copies each weight to its own buffer. The flat buffer is no longer needed. */
static void open_copies(Lower *l, UnitId u)
{
    if (l->unit.of[u].copied) return;
    lower_copy_out(l, u);
    bool forward = l->phase == PHASE_forward;
    if (forward && keeps_slice(l) && !lower_stays_gathered(l, u)) keep_slice(l, u);
}

void lower_gather_updated(Lower *l, UnitId u)
{
    if (!l->job->sharding.gather_eager || !l->g->units.at[u].shard) return;
    gather_from(l, u, in_use_dtype(l, u, CATEGORY_communication));
}

/* True if use k is the last one in a forward pass, and not its only one. The reductions of the
 * previous backward pass have then ended long before. */
static bool ends_forward(const Lower *l, uint32_t k)
{
    const UnitUse *use = &l->unit.uses.at[k];
    const UnitUse *next = k + 1 < l->unit.uses.n ? use + 1 : NULL;
    if (use->backward || k == 0 || (use - 1)->backward) return false;
    return (use - 1)->microbatch == use->microbatch &&
           (next == NULL || next->backward || next->microbatch != use->microbatch);
}

/* Records that the lowering has read the list of uses up to index k. */
static void see_use(Lower *l, uint32_t k)
{
    if (k >= l->unit.seen_uses) l->unit.seen_uses = k + 1;
}

/* Begins a use of unit u, and emits the gathers of the next units. */
static void begin_use(Lower *l, UnitId u)
{
    uint32_t k = l->unit.next_use;
    while (k < l->unit.uses.n && l->unit.uses.at[k].unit != u) k++;
    see_use(l, k + 1); /* ends_forward reads the next use, too */
    bool planned = k < l->unit.uses.n && l->unit.uses.at[k].microbatch == l->microbatch;
    if (!l->unit.of[u].gathered) gather(l, u, l->phase != PHASE_forward);
    l->unit.of[u].begun = true;
    if (lower_copies(l, u)) open_copies(l, u);
    if (!planned) return;
    /* The reductions of earlier micro-batches ended long ago. Waiting for them makes their bytes
     * free before the moment at which the most memory is used. */
    if (ends_forward(l, k) && l->emit.compute_waits < l->unit.last_reduce)
        l->emit.compute_waits = l->unit.last_reduce;
    l->unit.next_use = k + 1;
    /* the 8-bit unit of a module is gathered together with its other unit */
    uint32_t ahead = 0;
    for (uint32_t j = k + 1; j < l->unit.uses.n; j++) {
        see_use(l, j + 1);
        ahead += !lower_gathers_bytes(l, l->unit.uses.at[j].unit);
        if (ahead > l->job->sharding.options.prefetch || !l->job->sharding.options.prefetch) break;
        if (!l->unit.of[l->unit.uses.at[j].unit].gathered)
            gather(l, l->unit.uses.at[j].unit, l->unit.uses.at[j].backward);
    }
}

BufferId lower_weight(Lower *l, TensorId param)
{
    const Tensor *t = &l->g->tensors.at[param];
    UnitState *s = &l->unit.of[t->unit];
    if (l->g->units.at[t->unit].shard && (!s->gathered || !s->begun)) begin_use(l, t->unit);
    BufferId view = l->unit.weight_view[param];
    if (s->copied) return view;
    if (view && l->p->buffers.at[view].parent == s->gathered) return view;
    Shape shape = tensor_shape(l->g, t, &t->use);
    DType dtype = l->p->buffers.at[s->gathered].dtype;
    view = lower_view(l, s->gathered, &shape, dtype, t->flat_offset * dtype_bytes(dtype));
    l->p->buffers.at[view].tensor = param;
    return l->unit.weight_view[param] = view;
}

/* Releases the gathered weights. keep: the backward pass needs the unit again. If
 * reshard_after_forward is a number, a part of the weights is then kept. */
static void release(Lower *l, UnitId u, bool keep)
{
    UnitState *s = &l->unit.of[u];
    if (!s->gathered) return;
    if (keep && keeps_slice(l) && !s->copied) keep_slice(l, u);
    s->gathered = 0;
    s->begun = s->copied = false;
    lower_turns_give(&l->unit.turns_weights, u);
    l->unit.last_release = l->emit.stream_end[STREAM_compute];
    see_use(l, l->unit.next_use);
    bool again = l->unit.next_use < l->unit.uses.n && l->unit.uses.at[l->unit.next_use].unit == u;
    if (again && l->job->sharding.options.prefetch)
        gather(l, u, l->unit.uses.at[l->unit.next_use].backward);
}

/* True if the unit is released after its last forward node. */
static bool ends_in_forward(const Lower *l, UnitId u)
{
    const bool at_all = !l->unit.last_backward[u] && !l->job->sharding.resident;
    return at_all || !lower_stays_gathered(l, u);
}

void lower_after_node(Lower *l, NodeId n)
{
    if (n <= l->g->n_forward || l->g->nodes.at[n].tile) {
        for (UnitId u = l->unit.forward_ends[n]; u; u = l->unit.next_forward_end[u])
            if (ends_in_forward(l, u)) release(l, u, l->unit.last_backward[u] != 0);
        return;
    }
    if (l->job->sharding.resident || lower_outlives_backward(l, l->microbatch)) return;
    /* a unit whose use has not begun was gathered for the next micro-batch */
    for (UnitId u = l->unit.backward_ends[n]; u; u = l->unit.next_backward_end[u])
        if (l->unit.of[u].begun) release(l, u, false);
}
