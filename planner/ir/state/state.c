/* Lists the boxes of weights and moments that each rank stores (StateSlice). FSDP divides a flat
 * buffer into equal parts, and a part may begin in the middle of a tensor. So a rank stores an
 * interval of a tensor's elements: for a matrix, for example, the end of row 2, rows 3 to 9, and
 * the beginning of row 10. These are three boxes. */
#include "planner/ir/state/state.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/layout/padding.h"

struct State {
    const Plan *plan;
    /* home[t]: 1 + the first program whose ranks store tensor t. Other programs have copies of
     * it. */
    uint32_t *home;
};

const char *state_kind_name(StateKind k)
{
    static const char *const names[] = {
#define X(name) #name,
        STATE_KINDS(X)
#undef X
    };
    return names[k];
}

/* ---- the slices of one tensor in one buffer ---- */

typedef struct StateWalk {
    const State *state;
    Arena *arena;
    StateSlices *slices;
    StateSlice base; /* the slice that is being built; its box is set last */
    const Tensor *t;
    Shape shape; /* the tensor's dimensions and layout while ops use it */
    int64_t local[MAX_DIMS];
    Interval box[MAX_DIMS]; /* the box in indices of this rank's part of the tensor */
    /* the same box, in global indices; if the part has gaps, one interval of it */
    Interval at[MAX_DIMS];
    Interval from[MAX_DIMS]; /* the elements of `at`, in indices of this rank's part */
    int64_t before; /* index in the buffer of the tensor's first element, perhaps negative */
} StateWalk;

static void emit(StateWalk *w)
{
    StateSlice *s = &w->base;
    uint64_t n = dtype_bytes(s->dtype);
    for (int d = 0; d < s->n_dims; d++) n *= (uint64_t)s->size[d];
    s->bytes = n;
    list_push(w->arena, w->slices, *s);
}

/* Appends a slice of a fused projection: features lo to hi - 1 in the original order (all queries,
 * all keys, ...). In memory, they are spread over groups: `each` of them from feature `feature` of
 * local group `group` on, the next `each` in the next group, and so on. */
static void emit_features(StateWalk *w, int64_t lo, int64_t hi, int64_t group, int64_t feature,
                          int64_t each)
{
    int d = w->t->order_dim;
    StateSlice *s = &w->base;
    const uint64_t first = s->first;
    s->offset[d] = lo;
    s->size[d] = hi - lo;
    s->group_dim = (uint8_t)d;
    s->group_size = each;
    s->group_stride = w->local[d + 1] * s->stride[d];
    s->first += (uint64_t)(group * s->group_stride + feature * s->stride[d]);
    emit(w);
    s->first = first;
}

/* Appends the slices of a fused projection that is stored group by group, segment by segment
 * (queries, keys, values). If the rank has whole segments of several neighbouring groups, they are
 * one slice; otherwise each group is a slice of its own. */
static void emit_segments(StateWalk *w)
{
    const Deals *deals = &w->state->plan->graph.deals;
    const Deal *order = &deals->deals.at[w->t->order];
    Interval groups = w->at[w->t->order_dim], features = w->at[w->t->order_dim + 1], at;
    /* features are never split, so their local indices are also global */
    const int64_t group = w->from[w->t->order_dim].lo;
    int64_t before = 0;
    for (uint32_t k = 0; deal_interval(deals, w->t->order, order->size, order->n_parts, 0, k, &at);
         k++) {
        int64_t n = at.hi - at.lo, lo = features.lo - before, hi = features.hi - before;
        const int64_t piece = before;
        lo = lo > 0 ? lo : 0, hi = hi < n ? hi : n;
        before += n;
        if (lo >= hi) continue;
        if (hi - lo == n)
            emit_features(w, at.lo + groups.lo * n, at.lo + groups.hi * n, group, piece, n);
        for (int64_t g = groups.lo; hi - lo < n && g < groups.hi; g++)
            emit_features(w, at.lo + g * n + lo, at.lo + g * n + hi, group + g - groups.lo,
                          piece + lo, hi - lo);
    }
}

static void emit_box(StateWalk *w)
{
    int64_t stride = 1, first = w->before;
    for (int d = w->shape.n_dims - 1; d >= 0; d--) {
        /* in the original order, groups and features are one dimension */
        int to = w->t->order && d > w->t->order_dim ? d - 1 : d;
        const bool is_group = w->t->order && d == w->t->order_dim;
        const bool is_feature = w->t->order && d == w->t->order_dim + 1;
        w->base.offset[to] = w->at[d].lo;
        w->base.size[to] = w->at[d].hi - w->at[d].lo;
        if (!is_group) w->base.stride[to] = stride;
        if (!is_group && !is_feature) /* emit_features adds the offsets of groups and features */
            first += w->from[d].lo * stride;
        stride *= w->local[d];
    }
    w->base.first = (uint64_t)first;
    if (w->t->order)
        emit_segments(w);
    else
        emit(w);
}

/* Turns box[d], an interval of local indices of dimension d, into intervals of global indices, and
 * continues with dimension d + 1 for each. There are several if the deal gives the rank several. */
static void place(StateWalk *w, int d)
{
    const Plan *plan = w->state->plan;
    if (d == w->shape.n_dims) {
        emit_box(w);
        return;
    }
    uint32_t parts = shape_parts(&w->shape, &plan->mesh, d),
             part = shape_part(&w->shape, &plan->mesh, d, w->base.rank);
    int64_t before = 0; /* the local index at which interval k of the deal begins */
    Interval at = {0, w->shape.dim[d]};
    for (uint32_t k = 0; parts == 1 ? k == 0
                                    : deal_interval(&plan->graph.deals, w->shape.deal[d],
                                                    w->shape.dim[d], parts, part, k, &at);
         k++) {
        int64_t lo = w->box[d].lo > before ? w->box[d].lo : before, n = at.hi - at.lo;
        int64_t hi = w->box[d].hi < before + n ? w->box[d].hi : before + n;
        if (lo < hi) {
            w->at[d] = (Interval){at.lo + lo - before, at.lo + hi - before};
            w->from[d] = (Interval){lo, hi};
            place(w, d + 1);
        }
        before += n;
    }
}

/* Cuts the interval of elements [lo, hi) (row-major, within dimensions d and later) into boxes and
 * appends their slices. box[0] to box[d - 1] are already known. */
static void cut(StateWalk *w, int d, uint64_t lo, uint64_t hi)
{
    uint64_t row = 1;
    if (lo >= hi) return;
    if (d == w->shape.n_dims) {
        place(w, 0);
        return;
    }
    for (int i = d + 1; i < w->shape.n_dims; i++) row *= (uint64_t)w->local[i];
    uint64_t first = lo / row, last = hi / row;
    if (lo % row) {
        w->box[d] = (Interval){(int64_t)first, (int64_t)first + 1};
        uint64_t end = hi - first * row;
        cut(w, d + 1, lo % row, end < row ? end : row);
        first++;
    }
    if (last > first) {
        w->box[d] = (Interval){(int64_t)first, (int64_t)last};
        for (int i = d + 1; i < w->shape.n_dims; i++) w->box[i] = (Interval){0, w->local[i]};
        place(w, 0);
    }
    if (hi % row && last >= first) {
        w->box[d] = (Interval){(int64_t)last, (int64_t)last + 1};
        cut(w, d + 1, 0, hi % row);
    }
}

/* True if this rank is the first of those that store the same elements. `split`: the axes along
 * which ranks store different elements. */
static bool is_writer(const State *state, const StateWalk *w, AxisSet split)
{
    const Mesh *mesh = &state->plan->mesh;
    AxisSet others = (AxisSet) ~(split | mesh_axes_of(mesh, axes_with(AXIS_STAGES)));
    others = (AxisSet)(others & ((1u << mesh->n_axes) - 1));
    return state->home[w->base.tensor] == 1 + state->plan->program_of[w->base.rank] &&
           mesh_part(mesh, w->base.rank, others) == 0;
}

/* Sets `dim` to the tensor's sizes in the original order, where groups and features are one
 * dimension. Returns how many dimensions there are. */
static uint8_t original_dims(const Tensor *t, int64_t dim[MAX_DIMS])
{
    uint8_t n = 0;
    for (int d = 0; d < t->n_dims; d++) {
        bool inner =
            /* the dimension [features] joins [groups] before it */
            t->order && d == t->order_dim + 1;
        int to = inner ? n - 1 : n++;
        dim[to] = inner ? dim[to] * t->dim[d] : t->dim[d];
    }
    return n;
}

/* Sets the fields of *w that depend on tensor `id` alone. Returns how many of its elements a rank
 * has while ops use it. */
static uint64_t begin_tensor(StateWalk *w, TensorId id)
{
    const Plan *plan = w->state->plan;
    const Tensor *t = &plan->graph.tensors.at[id];
    uint64_t n = 1;
    w->shape = shape_under(&plan->graph.deals, &t->use, t->n_dims, t->dim, t->deal);
    w->base.name = t->name;
    w->base.tensor = id;
    w->t = t;
    w->base.n_dims = original_dims(t, w->base.dim);
    w->base.group_size = 0;
    for (int d = 0; d < t->n_dims; d++) {
        w->local[d] = shape_local_dim(&w->shape, &plan->mesh, &plan->graph.deals, d);
        n *= (uint64_t)w->local[d];
    }
    return n;
}

/* A rank stores elements [lo, hi) of a flat buffer. Appends slices for those that belong to tensor
 * `id`. `split`: the axes that divide the flat buffer. */
static void take_tensor(StateWalk *w, TensorId id, uint64_t lo, uint64_t hi, AxisSet split)
{
    const Tensor *t = &w->state->plan->graph.tensors.at[id];
    uint64_t n = begin_tensor(w, id), from = t->flat_offset;
    w->before = (int64_t)from - (int64_t)lo;
    w->base.lazy = w->base.kind != STATE_param && t->grad == 0;
    w->base.writes = is_writer(w->state, w, (AxisSet)(split | layout_axes_split(&t->use, -1)));
    lo = lo > from ? lo - from : 0;
    hi = hi > from ? hi - from : 0;
    cut(w, 0, lo, hi < n ? hi : n);
}

/* Appends a ROLE_state tensor, which every rank of the program stores whole. */
static void take_buffer(StateWalk *w, BufferId b, const Buffer *at)
{
    w->base.kind = STATE_buffer;
    w->base.dtype = at->dtype;
    w->base.buffer = b;
    uint64_t n = begin_tensor(w, at->tensor);
    w->before = 0;
    w->base.lazy = false;
    w->base.writes = is_writer(w->state, w, 0);
    cut(w, 0, 0, n);
}

/* ---- buffers ---- */

/* Returns true and sets *kind if buffer `b` contains weights or moments. Of the two moments of a
 * unit, m comes first; *moment_of remembers the unit whose m was seen. */
static bool kind_of(const Buffer *b, UnitId *moment_of, StateKind *kind)
{
    if (b->parent || !b->persistent || !b->unit) return false;
    if (b->category == CATEGORY_parameter) {
        *kind = STATE_param;
        return true;
    }
    if (b->category != CATEGORY_optimizer) return false;
    *kind = *moment_of == b->unit ? STATE_v : STATE_m;
    *moment_of = b->unit;
    return true;
}

State *state_of(const Plan *plan, Arena *arena)
{
    State *s = arena_alloc(arena, sizeof *s);
    s->plan = plan;
    s->home = arena_array(arena, plan->graph.tensors.n + 1, sizeof *s->home);
    for (uint32_t i = plan->programs.n; i-- > 0;) {
        const Program *p = &plan->programs.at[i];
        UnitId moment = 0;
        StateKind kind;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            if (plan_is_state(plan, at)) s->home[at->tensor] = 1 + i;
            if (!kind_of(at, &moment, &kind) || kind != STATE_param) continue;
            const Unit *unit = &plan->graph.units.at[at->unit];
            for (uint32_t k = 0; k < unit->params.n; k++) s->home[unit->params.at[k]] = 1 + i;
        }
    }
    return s;
}

const Plan *state_plan(const State *state)
{
    return state->plan;
}

static void take_flat(StateWalk *w, BufferId b, const Buffer *at)
{
    const Plan *plan = w->state->plan;
    const Unit *unit = &plan->graph.units.at[at->unit];
    const Shape *flat = plan_shape_at(plan, at->shape);
    assert(flat->n_dims == 1);
    w->base.buffer = b;
    w->base.dtype = at->dtype;
    uint64_t n = (uint64_t)shape_local_dim(flat, &plan->mesh, &plan->graph.deals, 0);
    uint64_t lo = shape_part(flat, &plan->mesh, 0, w->base.rank) * n;
    AxisSet split = layout_axes_split(&flat->layout, 0);
    for (uint32_t i = 0; i < unit->params.n; i++)
        take_tensor(w, unit->params.at[i], lo, lo + n, split);
}

/* Gives each slice that the rank writes a place in its file. Wide dtypes come first, so that every
 * slice is aligned to its dtype. */
static void place_in_file(StateSlices *slices, uint32_t from)
{
    uint64_t end = 0;
    for (uint64_t width = 8; width > 0; width /= 2)
        for (uint32_t i = from; i < slices->n; i++) {
            StateSlice *s = &slices->at[i];
            if (!s->writes || dtype_bytes(s->dtype) != width) continue;
            s->at = end;
            end += s->bytes;
        }
}

void state_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices)
{
    const Program *p = plan_program(state->plan, rank);
    StateWalk w = {.state = state, .arena = arena, .slices = slices, .base = {.rank = rank}};
    const uint32_t from = slices->n;
    UnitId moment = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (plan_is_state(state->plan, at)) take_buffer(&w, b, at);
        if (kind_of(at, &moment, &w.base.kind)) take_flat(&w, b, at);
    }
    place_in_file(slices, from);
}

void state_copies_of_rank(const State *state, Rank rank, Arena *arena, StateSlices *slices)
{
    const Program *p = plan_program(state->plan, rank);
    StateWalk w = {.state = state, .arena = arena, .slices = slices, .base = {.rank = rank}};
    uint32_t from = slices->n;
    w.base.kind = STATE_param;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        const bool lives = !at->parent && at->persistent && at->unit;
        if (lives && at->category == CATEGORY_gathered) take_flat(&w, b, at);
    }
    for (; from < slices->n; from++) slices->at[from].writes = false;
}

void state_tensors(const State *state, Arena *arena, StateTensors *tensors)
{
    const Plan *plan = state->plan;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        UnitId moment = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            StateTensor s = {.kind = STATE_buffer, .dtype = at->dtype};
            const TensorId *id = &at->tensor;
            uint32_t n = plan_is_state(plan, at);
            if (kind_of(at, &moment, &s.kind)) {
                id = plan->graph.units.at[at->unit].params.at;
                n = plan->graph.units.at[at->unit].params.n;
            }
            for (uint32_t k = 0; k < n; k++) {
                if (state->home[id[k]] != 1 + i) continue;
                const Tensor *t = &plan->graph.tensors.at[id[k]];
                s.name = t->name;
                s.tensor = id[k];
                s.n_dims = original_dims(t, s.dim);
                list_push(arena, tensors, s);
            }
        }
    }
}

StateTotal state_total(const State *state)
{
    StateTotal total = {.least_held = UINT64_MAX, .least_written = UINT64_MAX};
    Arena *scratch = arena_new();
    for (Rank r = 0; r < state->plan->mesh.n_ranks; r++) {
        StateSlices slices = {0};
        state_of_rank(state, r, scratch, &slices);
        uint64_t held = 0, written = 0;
        for (uint32_t i = 0; i < slices.n; i++) {
            const StateSlice *s = &slices.at[i];
            held += s->bytes;
            if (s->writes) written += s->bytes, total.kind_bytes[s->kind] += s->bytes;
        }
        total.n_slices += slices.n;
        total.held_bytes += held;
        total.written_bytes += written;
        if (held > total.most_held) total.most_held = held;
        if (held < total.least_held) total.least_held = held;
        if (written > total.most_written) total.most_written = written;
        if (written < total.least_written) total.least_written = written;
        arena_reset(scratch);
    }
    arena_free(scratch);
    return total;
}
