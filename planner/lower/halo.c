/* Exchanges rows of a split dimension between ranks.
 *
 * Halos: a rank receives the neighbouring rows that its windows read. In the backward pass, it
 * sends back its contributions to the gradients of these rows. If two dimensions have halos, the
 * strips of the second exchange include the halo of the first. So they contain the corners.
 *
 * Strided rows: a rank exchanges its contiguous rows for rows at equal distances, or the other way
 * round. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/halo.h"
#include "planner/ir/layout/stride.h"
#include "planner/ir/window.h"
#include "planner/lower/lower.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static DealId halo_deal(Deals *deals, Arena *arena, DealKind kind, const Window *w, int64_t size,
                        int64_t outputs, uint32_t n_parts)
{
    Interval *held = arena_array(arena, n_parts, sizeof *held);
    bool reaches = false;
    for (uint32_t p = 0; p < n_parts; p++) {
        Interval own, out;
        if (!deal_interval(deals, 0, size, n_parts, p, 0, &own)) own = (Interval){size, size};
        held[p] = own;
        if (!deal_interval(deals, 0, outputs, n_parts, p, 0, &out)) continue;
        const Interval read = window_rows(w, size, out);
        if (read.lo >= read.hi) continue;
        held[p] = (Interval){least(own.lo, read.lo), most(own.hi, read.hi)};
        reaches = reaches || held[p].lo < own.lo || held[p].hi > own.hi;
    }
    return reaches ? deal_around(deals, arena, kind, size, n_parts, held) : 0;
}

/* A deal says which rows of a dimension each rank has. Returns the deal of dimension d of argument
 * `arg` of node n, split over `parts` ranks. Returns 0 if a rank needs only its own rows. */
static DealId deal_of_arg(Lower *l, const Node *n, const Binding *b, uint32_t arg, int d,
                          uint32_t parts)
{
    const char letter = b->letter[arg][d], runs = b->strides[arg][d];
    const int64_t size = b->size[(int)letter];
    if (parts > 1 && runs)
        return deal_strided(&l->g->deals, l->arena, size * b->size[(int)runs], parts,
                            (uint32_t)b->size[(int)runs]);
    if (parts == 1 || !b->reads[arg][d]) return 0;
    const Window w = op_window(n->op, b, graph_attrs_at(l->g, n->attrs), letter);
    return halo_deal(&l->g->deals, l->arena, arg < n->n_in ? DEAL_halo : DEAL_overlap, &w,
                     b->size[(int)window_reach(letter)], size, parts);
}

void lower_find_halos(Lower *l, NodeId id, const Binding *b)
{
    const Node *n = &l->g->nodes.at[id];
    const uint32_t n_args = (uint32_t)n->n_in + n->n_out;
    static const char none[sizeof b->reads];
    if (memcmp(b->reads, none, n_args * sizeof *b->reads) == 0 &&
        memcmp(b->strides, none, n_args * sizeof *b->strides) == 0)
        return; /* as for most ops: no dimension has a halo or strided rows */
    for (uint32_t arg = 0; arg < n_args; arg++) {
        const Shape s = {.n_dims = b->n_dims[arg], .layout = *lower_arg_layout(l, id, arg)};
        DealId *around = NULL;
        for (int d = 0; d < b->n_dims[arg]; d++) {
            if (!b->reads[arg][d] && !b->strides[arg][d]) continue;
            const uint32_t parts = shape_parts(&s, &l->plan->mesh, d);
            const DealId deal = deal_of_arg(l, n, b, arg, d, parts);
            if (deal && !around) around = arena_array(l->job->scratch, MAX_DIMS, sizeof *around);
            if (deal) around[d] = deal;
        }
        l->value.around[l->value.arg_first[id] + arg] = around;
        l->value.any_around = l->value.any_around || around != NULL;
    }
}

const DealId *lower_arg_around(const Lower *l, NodeId n, uint32_t arg)
{
    return l->value.around[l->value.arg_first[n] + arg];
}

Shape lower_arg_shape(const Lower *l, NodeId id, uint32_t arg)
{
    const Node *n = &l->g->nodes.at[id];
    const TensorId t = arg < n->n_in ? n->in[arg] : n->out[arg - n->n_in];
    const DealId *around = lower_arg_around(l, id, arg);
    Shape s = lower_value(l, &l->g->tensors.at[t], lower_arg_layout(l, id, arg));
    for (int d = 0; around && d < s.n_dims; d++)
        if (around[d]) s.deal[d] = around[d];
    return s;
}

static BufferId strips_buffer(Lower *l, BufferId like, const Shape *held, int d)
{
    Halo halo;
    const uint32_t parts = shape_parts(held, &l->plan->mesh, d);
    const bool fits = halo_find(&l->g->deals, held->dim[d], parts, 0, held->deal[d], &halo);
    assert(fits); /* the domain pass has checked this */
    (void)fits;
    BufferId b = lower_buffer(l, held, l->p->buffers.at[like].dtype, CATEGORY_communication);
    Buffer *at = &l->p->buffers.at[b];
    const uint64_t rows = (uint64_t)shape_local_dim(held, &l->plan->mesh, &l->g->deals, d);
    at->bytes = at->bytes / rows * 2 * (uint64_t)halo.strip;
    at->packed = true;
    at->tensor = l->p->buffers.at[like].tensor;
    return b;
}

static BufferId local(Lower *l, OpKind op, int d, BufferId from, BufferId strips, BufferId out,
                      NodeId origin)
{
    const Shape *s = lower_shape(l, out);
    Emit e = {.op = op,
              .stream = STREAM_compute,
              .origin = origin,
              .n_in = strips ? 2 : 1,
              .n_out = 1,
              .arg = {from, strips ? strips : out, out}};
    e.attrs.dim = d;
    e.attrs.parts = shape_parts(s, &l->plan->mesh, d);
    lower_emit(l, &e);
    return out;
}

/* True if a rank does not simply have its contiguous part of the dimension: it has a halo, too, or
 * it has strided rows instead. */
static bool is_moved(const Lower *l, DealId deal)
{
    return deal_is_around(&l->g->deals, deal) || deal_is_strided(&l->g->deals, deal);
}

bool lower_is_strided(const Lower *l, BufferId b)
{
    return lower_shape_is_strided(l, lower_shape(l, b));
}

bool lower_shape_is_strided(const Lower *l, const Shape *s)
{
    bool strided = false, around = false;
    for (int d = 0; d < s->n_dims; d++) {
        strided = strided || deal_is_strided(&l->g->deals, s->deal[d]);
        around = around || deal_is_around(&l->g->deals, s->deal[d]);
    }
    return strided && !around;
}

static BufferId pieces_buffer(Lower *l, BufferId like, const Shape *held, int d)
{
    Strides s;
    const bool fits = strides_find(&l->g->deals, held->deal[d], 0, &s);
    assert(fits);
    (void)fits;
    BufferId b = lower_buffer(l, held, l->p->buffers.at[like].dtype, CATEGORY_communication);
    Buffer *at = &l->p->buffers.at[b];
    at->bytes = at->bytes / (uint64_t)s.pieces * s.n_parts * (uint64_t)s.most;
    at->packed = true;
    at->tensor = l->p->buffers.at[like].tensor;
    return b;
}

/* Exchanges `mine` over the axes that split dimension d. Received data go to `theirs`. */
static void exchange_over(Lower *l, OpKind op, const Shape *held, int d, BufferId mine,
                          BufferId theirs, NodeId origin)
{
    Emit e = {.op = op,
              .stream = STREAM_domain,
              .axes = layout_axes_split(&held->layout, d),
              .origin = origin,
              .n_in = 1,
              .n_out = 1,
              .arg = {mine, theirs}};
    lower_emit(l, &e);
}

/* Sends to each rank the pieces of `from` that it needs in the other layout of dimension d. Returns
 * the received pieces in the order of arrival. */
static BufferId exchange_pieces(Lower *l, BufferId from, const Shape *held, int d, NodeId origin)
{
    const BufferId mine = pieces_buffer(l, from, held, d), theirs = pieces_buffer(l, from, held, d);
    local(l, OP_stride_pack, d, from, 0, mine, origin);
    exchange_over(l, OP_all_to_all, held, d, mine, theirs, origin);
    return theirs;
}

/* Sends strips of `from` to both neighbours. Returns the strips that they sent. */
static BufferId exchange(Lower *l, OpKind take, BufferId from, const Shape *held, int d,
                         NodeId origin)
{
    const BufferId mine = strips_buffer(l, from, held, d);
    local(l, take, d, from, 0, mine, origin);
    const BufferId theirs = strips_buffer(l, from, held, d);
    exchange_over(l, OP_halo_exchange, held, d, mine, theirs, origin);
    return theirs;
}

static BufferId like(Lower *l, BufferId from, const Shape *shape)
{
    BufferId b =
        lower_buffer(l, shape, l->p->buffers.at[from].dtype, l->p->buffers.at[from].category);
    l->p->buffers.at[b].tensor = l->p->buffers.at[from].tensor;
    return b;
}

HaloStep lower_hold_begin_along(Lower *l, BufferId from, const DealId *around, int d, NodeId origin)
{
    HaloStep step = {.from = from, .held = *lower_shape(l, from), .d = d};
    step.held.deal[d] = around[d];
    step.strips = deal_is_strided(&l->g->deals, around[d])
                      ? exchange_pieces(l, from, &step.held, d, origin)
                      : exchange(l, OP_halo_pack, from, &step.held, d, origin);
    return step;
}

BufferId lower_hold_end(Lower *l, const HaloStep *step, NodeId origin)
{
    const BufferId held = like(l, step->from, &step->held);
    if (deal_is_strided(&l->g->deals, step->held.deal[step->d]))
        return local(l, OP_stride_unpack, step->d, step->strips, 0, held, origin);
    return local(l, OP_halo_join, step->d, step->from, step->strips, held, origin);
}

/* Exchanges the last dimension that has a halo first, and dimension `first` last. The strips that
 * are exchanged last then include the halos of the other dimensions. So they contain the
 * corners. */
HaloStep lower_hold_begin(Lower *l, BufferId from, const DealId *around, NodeId origin)
{
    int first = 0;
    while (!around[first]) first++;
    for (int d = MAX_DIMS - 1; d > first; d--) {
        if (!around[d]) continue;
        const HaloStep step = lower_hold_begin_along(l, from, around, d, origin);
        from = lower_hold_end(l, &step, origin);
    }
    return lower_hold_begin_along(l, from, around, first, origin);
}

/* Returns the first dimension after d with a halo or with strided rows; -1: there is none. */
static int next_moved(const Lower *l, const Shape *s, int d)
{
    while (++d < s->n_dims)
        if (is_moved(l, s->deal[d])) return d;
    return -1;
}

HaloStep lower_fold_begin(Lower *l, BufferId from, NodeId origin)
{
    HaloStep step = {.from = from, .held = *lower_shape(l, from)};
    step.d = next_moved(l, &step.held, -1);
    assert(step.d >= 0);
    step.strips = deal_is_strided(&l->g->deals, step.held.deal[step.d])
                      ? exchange_pieces(l, from, &step.held, step.d, origin)
                      : exchange(l, OP_halo_cut, from, &step.held, step.d, origin);
    return step;
}

static BufferId fold_one(Lower *l, const HaloStep *step, NodeId origin)
{
    Shape own = step->held;
    own.deal[step->d] = 0;
    if (deal_is_strided(&l->g->deals, step->held.deal[step->d]))
        return local(l, OP_stride_unpack, step->d, step->strips, 0, like(l, step->from, &own),
                     origin);
    return local(l, OP_halo_fold, step->d, step->from, step->strips, like(l, step->from, &own),
                 origin);
}

static bool fold_next(Lower *l, HaloStep *step, NodeId origin)
{
    if (next_moved(l, &step->held, step->d) < 0) return false;
    *step = lower_fold_begin(l, fold_one(l, step, origin), origin);
    return true;
}

BufferId lower_fold_end(Lower *l, HaloStep *step, NodeId origin)
{
    while (fold_next(l, step, origin)) continue;
    return fold_one(l, step, origin);
}

BufferId lower_fold(Lower *l, BufferId from, NodeId origin)
{
    HaloStep step = lower_fold_begin(l, from, origin);
    return lower_fold_end(l, &step, origin);
}

void lower_next_returns(Lower *l)
{
    for (uint32_t i = 0; i < l->grad.returning.n; i++) {
        HaloReturn *r = &l->grad.returning.at[i];
        fold_next(l, &r->step, r->node);
    }
}
