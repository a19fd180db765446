/* Emits instructions and buffers, and finds which earlier instructions a new one must wait for. A
 * reader of a buffer waits for the buffer's writers; a writer waits for readers and writers. Waits
 * that follow from other waits are dropped. Vector clocks (clock.h) find these. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/padding.h"
#include "planner/lower/lower.h"

DType lower_dtype(const Lower *l, DType t)
{
    return l->job->options.dtypes.to[t];
}

const Shape *lower_shape(const Lower *l, BufferId b)
{
    return plan_shape_at(l->plan, l->p->buffers.at[b].shape);
}

Shape tensor_shape(const Graph *g, const Tensor *t, const Layout *layout)
{
    return shape_under(&g->deals, layout, t->n_dims, t->dim, t->deal);
}

bool lower_is_sequence(const Lower *l, DealId deal)
{
    return l->job->context.seq_deal && l->g->deals.deals.at[deal].kind == DEAL_listed;
}

Shape lower_value(const Lower *l, const Tensor *t, const Layout *layout)
{
    Shape s = tensor_shape(l->g, t, layout);
    for (int d = 0; d < s.n_dims; d++)
        if (lower_is_sequence(l, s.deal[d]))
            s.deal[d] = sequence_deal(l->job, shape_parts(&s, &l->plan->mesh, d));
    return s;
}

/* Returns the number of local elements of a shape. The result is stored, so each shape is computed
 * once. */
static int64_t local_elements(Lower *l, ShapeId id)
{
    while (l->emit.elements.n <= id) list_add(l->scratch, &l->emit.elements);
    int64_t *known = &l->emit.elements.at[id];
    if (!*known)
        *known = 1 + shape_local_elements(plan_shape_at(l->plan, id), &l->plan->mesh, &l->g->deals);
    return *known - 1;
}

BufferId lower_buffer(Lower *l, const Shape *shape, DType dtype, Category category)
{
    list_reserve_none(l->arena, &l->p->buffers);
    BufferId id = (BufferId)list_add(l->arena, &l->p->buffers);
    Buffer *b = &l->p->buffers.at[id];
    b->shape = plan_shape(l->plan, shape);
    b->dtype = dtype;
    b->category = category;
    b->microbatch = l->microbatch;
    b->bytes = (uint64_t)local_elements(l, b->shape) * dtype_bytes(dtype);
    while (l->emit.access.n <= id) list_add(l->scratch, &l->emit.access);
    return id;
}

BufferId lower_view(Lower *l, BufferId parent, const Shape *shape, DType dtype,
                    uint64_t offset_bytes)
{
    uint64_t offset;
    BufferId root = program_root(l->p, parent, &offset);
    if (root != parent) offset_bytes += l->p->buffers.at[parent].offset;
    BufferId id = lower_buffer(l, shape, dtype, l->p->buffers.at[parent].category);
    Buffer *b = &l->p->buffers.at[id], *r = &l->p->buffers.at[root];
    b->parent = root;
    b->offset = offset_bytes;
    b->unit = r->unit;
    b->persistent = r->persistent;
    b->result = r->result;
    b->space = r->space;
    assert(b->offset + b->bytes <= r->bytes);
    return id;
}

/* True if a collective `op` along this axis runs on the axis's own stream. */
static bool carries(const AxisInfo *axis, OpKind op)
{
    switch (axis->carries) {
    case CARRIES_all: return true;
    case CARRIES_exchanges: return op_exchanges(op);
    case CARRIES_sums: return op == OP_all_reduce || op == OP_reduce_scatter;
    case CARRIES_nothing:
    case CARRIES_values: break;
    }
    return false;
}

Stream lower_stream(const Lower *l, AxisSet axes, OpKind op)
{
    const Mesh *mesh = &l->plan->mesh;
    Stream own = STREAM_none;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        const AxisInfo *axis = axis_info(mesh->axis[a].name);
        if (!(axes >> a & 1)) continue;
        if (!carries(axis, op) || (own != STREAM_none && own != axis->stream))
            return op == OP_all_gather ? STREAM_dp_gather : STREAM_dp_reduce;
        own = axis->stream;
    }
    if (own != STREAM_none) return own;
    return op == OP_all_gather ? STREAM_dp_gather : STREAM_dp_reduce;
}

Stream lower_value_stream(const Lower *l, AxisSet axes, OpKind op)
{
    const Mesh *mesh = &l->plan->mesh;
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        const AxisInfo *axis = axis_info(mesh->axis[a].name);
        if (axes >> a & 1 && axis->carries == CARRIES_values) return axis->stream;
    }
    return lower_stream(l, axes, op);
}

static BufferId root_of(const Lower *l, BufferId b)
{
    BufferId parent = l->p->buffers.at[b].parent;
    return parent ? parent : b;
}

static void need_pc(const Lower *l, Pc pc, Clock *dep)
{
    if (!pc) return;
    Pc *newest = &dep->at[l->p->code.at[pc].stream];
    if (pc > *newest) *newest = pc;
}

/* Raises *dep to the newest accesses of these streams. */
static void join_accesses(Clock *dep, const Pc *newest, uint32_t streams)
{
    for (; streams != 0; streams &= streams - 1) {
        const int s = __builtin_ctz(streams);
        if (newest[s] > dep->at[s]) dep->at[s] = newest[s];
    }
}

/* Sets *dep to the newest instruction of each stream for which `in` must wait. */
static void collect(const Lower *l, const Instr *in, const BufferId *root, const Pc after[4],
                    Clock *dep)
{
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Access *a = &l->emit.access.at[root[i]];
        join_accesses(dep, a->written, a->writers);
        if (i >= in->n_in) join_accesses(dep, a->read, a->readers);
    }
    for (int k = 0; k < 4; k++) need_pc(l, after[k], dep);
    need_pc(l, l->emit.floor, dep);
    if (in->stream != STREAM_compute) return;
    need_pc(l, l->emit.compute_waits, dep);
    need_pc(l, l->emit.send_waits[0], dep);
    need_pc(l, l->emit.send_waits[1], dep);
}

/* Adds a wait for `pc` and for all members of its launch group (Instr.launch), and records in
 * `clock` that they have finished. An instruction that needs one member waits for all, because
 * members end in any order. */
static void wait_for(Lower *l, Pc pc, Clock *clock)
{
    const Instr *last = &l->p->code.at[pc];
    for (Pc member = pc; member; member--) {
        const Instr *in = &l->p->code.at[member];
        if (in->stream != last->stream) continue;
        if (member != pc && in->launch != last->launch) break;
        list_push(l->arena, &l->p->after, member);
        clock_join(clock, &l->emit.clocks.at[member]);
        if (!last->launch)
            return; /* it has no other members, and the search for them may be long */
    }
}

/* Adds waits for the dependences that do not follow from the previous instruction of the stream.
 * The newest instructions are added first, because waiting for them often makes other waits
 * unnecessary. */
static void add_edges(Lower *l, Instr *in, Clock *clock, const Clock *dep)
{
    in->after.first = l->p->after.n;
    while (!clock_passed(dep, clock)) {
        int best = -1;
        for (int s = 0; s < STREAM_COUNT; s++)
            if (dep->at[s] > clock->at[s] && (best < 0 || dep->at[s] > dep->at[best])) best = s;
        wait_for(l, dep->at[best], clock);
        clock->at[best] = dep->at[best];
    }
    in->after.n = l->p->after.n - in->after.first;
}

/* Returns the instruction after which this one runs on its stream. Members of a launch group start
 * together, so each runs after the instruction before the group. */
static Pc stream_predecessor(const Lower *l, const Instr *in)
{
    Pc pc = l->emit.stream_end[in->stream];
    while (in->launch && pc && l->p->code.at[pc].launch == in->launch) {
        Pc before = pc - 1;
        while (before && l->p->code.at[before].stream != in->stream) before--;
        pc = before;
    }
    return pc;
}

static void join_launch_group(const Lower *l, Stream stream, Clock *clock)
{
    uint32_t launch = 0;
    for (Pc pc = l->emit.stream_end[stream]; pc; pc--) {
        const Instr *in = &l->p->code.at[pc];
        if (in->stream != stream) continue;
        if (!launch) launch = in->launch;
        if (in->launch != launch || !launch) break;
        clock_join(clock, &l->emit.clocks.at[pc]);
    }
}

/* Returns the id under which the attributes are stored. Usually the node, or the newest instruction
 * with this op, has the same attributes, so that no search is needed. */
static AttrsId attrs_of(Lower *l, const Emit *e)
{
    const AttrsId own = l->g->nodes.at[e->origin].attrs;
    AttrsId *newest = &l->emit.newest_attrs[e->op];
    if (memcmp(&e->attrs, graph_attrs_at(l->g, own), sizeof e->attrs) == 0) return own;
    if (memcmp(&e->attrs, graph_attrs_at(l->g, *newest), sizeof e->attrs) != 0)
        *newest = graph_attrs(l->g, l->arena, &e->attrs);
    return *newest;
}

Emit lower_emit_of(const Lower *l, NodeId node)
{
    const Node *n = &l->g->nodes.at[node];
    return (Emit){.op = n->op,
                  .stream = STREAM_compute,
                  .origin = node,
                  .n_in = n->n_in,
                  .n_out = n->n_out,
                  .attrs = *graph_attrs_at(l->g, n->attrs)};
}

Pc lower_emit(Lower *l, const Emit *e)
{
    Instr in = {.op = e->op,
                .stream = e->stream,
                .launch = e->launch,
                .axes = e->axes,
                .microbatch = l->microbatch,
                .phase = l->phase,
                .n_in = (uint8_t)e->n_in,
                .origin = e->origin,
                .unit = e->unit};
    in.attrs = attrs_of(l, e);
    in.hop = e->hop;
    in.args.n = e->n_in + e->n_out;
    if (op_info(e->op)->class_ == OP_CLASS_comm) in.match = e->match ? e->match : l->emit.match++;
    return lower_append(l, &in, e->arg, e->after);
}

/* Records the waits that the lowering requests for the next instruction, so that a copy of this
 * action (actions.h) can get them, too. */
static void note_named(Lower *l, Stream stream, const Pc after[4])
{
    const Pc compute = stream == STREAM_compute ? l->emit.compute_waits : 0;
    if (!l->actions || !(after[0] | after[1] | after[2] | after[3] | compute)) return;
    const NamedWaits named = {l->p->code.n, {after[0], after[1], after[2], after[3]}, compute};
    list_push(l->scratch, &l->emit.named, named);
}

Pc lower_append(Lower *l, Instr *in, const BufferId *arg, const Pc after[4])
{
    const Stream stream = in->stream;
    note_named(l, stream, after);
    BufferId root[MAX_ARGS];
    for (uint32_t i = 0; i < in->args.n; i++) root[i] = root_of(l, arg[i]);
    Clock dep = {{0}};
    collect(l, in, root, after, &dep);
    if (stream == STREAM_compute)
        l->emit.compute_waits = l->emit.send_waits[0] = l->emit.send_waits[1] = 0;
    in->args.first = l->p->args.n;
    list_reserve(l->arena, &l->p->args, in->args.n);
    BufferId *to = l->p->args.at + in->args.first;
    for (uint32_t i = 0; i < in->args.n; i++) to[i] = arg[i];
    l->p->args.n += in->args.n;
    Clock clock = {{0}};
    Pc before = stream_predecessor(l, in);
    if (before) {
        clock = l->emit.clocks.at[before];
        clock.at[stream] = before;
        if (before == l->emit.stream_end[stream] && l->p->code.at[before].launch)
            join_launch_group(l, stream, &clock);
    }
    if (dep.at[stream] > before)
        dep.at[stream] = before; /* members of a launch group use different bytes, so they need not
                                    wait for each other */
    add_edges(l, in, &clock, &dep);
    Pc pc = (Pc)list_push(l->arena, &l->p->code, *in);
    list_push(l->scratch, &l->emit.clocks, clock);
    l->emit.stream_end[stream] = pc;
    for (uint32_t i = 0; i < in->args.n; i++)
        access_note(&l->emit.access.at[root[i]], stream, pc, i >= in->n_in);
    return pc;
}

void lower_pass(Lower *l, BufferId from, BufferId to, bool accumulate, Pc after, NodeId origin)
{
    Emit e = {.op = OP_pass,
              .stream = STREAM_compute,
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, to},
              .after = {after}};
    e.attrs.accumulate = accumulate;
    lower_emit(l, &e);
}

void lower_add_scratch(Lower *l, Emit *e)
{
    DType dtype[MAX_ARGS];
    int64_t elements[MAX_ARGS];
    uint32_t n = e->n_in + e->n_out;
    if (!l->job->options.workspace) return;
    for (uint32_t i = 0; i < n; i++) {
        const Buffer *b = &l->p->buffers.at[e->arg[i]];
        dtype[i] = b->dtype;
        elements[i] = (int64_t)(b->bytes / dtype_bytes(b->dtype));
    }
    uint64_t bytes = l->job->options.workspace(e->op, dtype, elements, n);
    Shape s = {.n_dims = 1, .dim = {(int64_t)bytes}};
    if (bytes) e->arg[e->n_in + e->n_out++] = lower_buffer(l, &s, DT_u8, CATEGORY_workspace);
}
