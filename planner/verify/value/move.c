/* Checks instructions that move data. They keep the value, but change its layout, its offset or its
 * dtype. A collective changes the layout on all axes of its group. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/padding.h"
#include "planner/ir/layout/rows.h"
#include "planner/verify/value/value.h"

typedef struct Move {
    Verifier *v;
    Pc pc;
    const Instr *in;
    BufferId from, to;
    uint32_t out_shape;
    Shape a, b; /* shapes of input and output */
    Val val;
} Move;

static bool complain(const Move *m, const char *what)
{
    uint32_t in_shape = m->val.shape;
    verify_report(m->v, "verify-layout", m->pc, "%s: %s -> %s", what,
                  value_shape_text(m->v, in_shape), value_shape_text(m->v, m->out_shape));
    return false;
}

static bool same_dims(const Move *m)
{
    bool same = m->a.n_dims == m->b.n_dims;
    for (int d = 0; same && d < m->a.n_dims; d++) same = m->a.dim[d] == m->b.dim[d];
    return same || complain(m, "changes the dimensions");
}

/* Checks a move of uneven rows. They are contiguous in memory, so only their features may be cut,
 * gathered or summed. */
static bool moves_rows(const Move *m)
{
    const Deals *deals = &m->v->g->deals;
    const bool was = rows_uneven(&m->a, deals), is = rows_uneven(&m->b, deals);
    bool same = was == is && (!was || m->a.deal[ROWS_DIMS - 1] == m->b.deal[ROWS_DIMS - 1]);
    for (int d = 0; d < ROWS_DIMS && same && was; d++)
        same = layout_axes_split(&m->a.layout, d) == layout_axes_split(&m->b.layout, d);
    return same || complain(m, "moves uneven rows, but has no counts of the rows");
}

/* Checks that the layout changes from `from` to `to` on each axis of `axes`, and does not change on
 * the other axes. */
static bool changes(const Move *m, AxisSet axes, int8_t from, int8_t to, const char *what)
{
    for (uint32_t a = 0; a < m->v->plan->mesh.n_axes; a++) {
        bool in = axes >> a & 1;
        int8_t x = m->a.layout.on[a], y = m->b.layout.on[a];
        if (in ? x != from || y != to : x != y) return complain(m, what);
    }
    return true;
}

static AxisSet changed_axes(const Move *m)
{
    AxisSet set = 0;
    for (uint32_t a = 0; a < m->v->plan->mesh.n_axes; a++)
        if (m->a.layout.on[a] != m->b.layout.on[a]) set = (AxisSet)(set | 1u << a);
    return set;
}

/* True if `axes` divide each part that `others` make, and not the other way round. A later axis of
 * the mesh divides the parts of an earlier one. */
static bool innermost(AxisSet axes, AxisSet others)
{
    others = (AxisSet)(others & ~axes);
    /* the lowest bit of `axes` is above the highest bit of `others` */
    return !others || (axes & (0u - axes)) > others;
}

static int64_t local_dim(const Move *m, const Shape *s, int d)
{
    return shape_extent(s, &m->v->plan->mesh, &m->v->g->deals, d);
}

/* True if each part of dimension d is contiguous in memory. */
static bool outermost(const Move *m, const Shape *s, int d)
{
    int64_t n = 1;
    for (int i = 0; i < d; i++) n *= local_dim(m, s, i);
    return n == 1;
}

/* True if parts follow each other in the order of ranks. Only a deal with a table of intervals can
 * have another order. */
static bool in_order(const Move *m, const Shape *s, int d)
{
    return !s->deal[d] || deal_is_padded(&m->v->g->deals, s->deal[d]);
}

/* True if the parts of dimension d have different sizes, or are not intervals. */
static bool uneven(const Move *m, const Shape *s, int d)
{
    return s->deal[d] || s->dim[d] % shape_parts(s, &m->v->plan->mesh, d) != 0;
}

/* Checks that no dimension but `except` changes its deal (which rank has which indices). */
static bool keeps_deals(const Move *m, int except)
{
    for (int d = 0; d < m->a.n_dims; d++)
        if (d != except && m->a.deal[d] != m->b.deal[d])
            return complain(m, "changes the intervals of a dimension");
    return true;
}

/* Checks a division of tokens over tp within the zigzag of cp: each rank of cp has two chunks of
 * the sequence, and ranks of tp divide these chunks again. */
static bool nests(const Move *m, const Shape *whole, const Shape *cut, int d, AxisSet axes)
{
    return innermost(axes, layout_axes_split(&cut->layout, d)) &&
           verify_nests(m->v, whole, cut, d, axes);
}

/* Returns PACKED_zigzag if each part of dimension d over `axes` consists of two chunks in zigzag
 * order; otherwise PACKED_in_order. In zigzag order part p of n has chunks p and 2 n - 1 - p. Any k
 * consecutive parts form two runs of k chunks, which are one part of a zigzag over n / k ranks. */
static uint8_t chunks_of(const Move *m, const Shape *cut, const Shape *whole, int d, AxisSet axes)
{
    const AxisSet all = layout_axes_split(&cut->layout, d);
    if (!deal_is_zigzag(&m->v->g->deals, cut->deal[d])) return PACKED_in_order;
    if (all == axes) return PACKED_zigzag;
    const bool nests_so = innermost(axes, all) && deal_is_zigzag(&m->v->g->deals, whole->deal[d]);
    return nests_so ? PACKED_zigzag : PACKED_in_order;
}

static bool check_slice(Move *m)
{
    const Attrs *attrs = verify_attrs(m->v, m->pc);
    int d = (int)attrs->dim;
    AxisSet axes = changed_axes(m), before = layout_axes_split(&m->a.layout, d);
    if (!same_dims(m) || !keeps_deals(m, d)) return false;
    if (!changes(m, axes, WHOLE, SPLIT(d), "does not make a slice of its input")) return false;
    const bool unpads = deal_whole(&m->v->g->deals, m->a.deal[d]) && !m->b.deal[d];
    if (!axes && !unpads) return complain(m, "slices nothing");
    if (attrs->parts != mesh_size(&m->v->plan->mesh, axes))
        return complain(m, "must cut its input into as many parts as the group has ranks");
    if (nests(m, &m->a, &m->b, d, axes)) return true;
    if (!in_order(m, &m->a, d) || !in_order(m, &m->b, d))
        return complain(m,
                        "takes one interval of a dimension, but the part of the rank has several");
    if (before && (uneven(m, &m->a, d) || uneven(m, &m->b, d) || !innermost(axes, before)))
        return complain(m, "cuts through the parts of other ranks");
    return true;
}

/* Checks the op `place`. It copies a part into a whole buffer and fills the rest with zeros, so
 * that the sum over ranks is the whole. */
static bool check_place(Move *m)
{
    const Attrs *attrs = verify_attrs(m->v, m->pc);
    const int d = (int)attrs->dim;
    const AxisSet axes = changed_axes(m);
    if (!same_dims(m) || !keeps_deals(m, -1)) return false;
    if (!axes || !changes(m, axes, SPLIT(d), PARTIAL_SUM, "does not place a part")) return false;
    if (attrs->parts != mesh_size(&m->v->plan->mesh, axes))
        return complain(m, "must have as many parts as the group has ranks");
    if (!innermost(axes, layout_axes_split(&m->a.layout, d)) || uneven(m, &m->a, d))
        return complain(m, "places parts that are uneven, or that cross other parts");
    return true;
}

static bool check_pack(Move *m, bool pack)
{
    const Attrs *attrs = verify_attrs(m->v, m->pc);
    int d = (int)attrs->dim;
    if (!same_dims(m) || !keeps_deals(m, -1)) return false;
    if (!changes(m, 0, WHOLE, WHOLE, "changes the layout")) return false;
    if (attrs->chunks && (attrs->chunks != 2 || attrs->parts < 1 ||
                          local_dim(m, &m->a, d) % (2 * attrs->parts) != 0))
        return complain(m, "must have parts of two chunks each");
    if (pack) {
        m->val.packed_chunks = (uint8_t)attrs->chunks;
        if (m->val.packed_dim) return complain(m, "packs twice");
        uint64_t parts = (uint64_t)attrs->parts, n = dtype_bytes((DType)m->val.dtype);
        for (int i = 0; i < m->a.n_dims; i++) {
            uint64_t size = (uint64_t)local_dim(m, &m->a, i);
            n *= i == d ? (size + parts - 1) / parts * parts : size;
        }
        if (m->v->p->buffers.at[m->to].bytes != n)
            return complain(m, "has an output that is not as large as all its parts");
        m->val.packed_dim = (int8_t)(d + 1);
        m->val.packed_parts = (uint32_t)attrs->parts;
    } else {
        if (m->val.packed_dim != d + 1 || m->val.packed_parts != attrs->parts)
            return complain(m, "does not unpack the same dimension and parts that were packed");
        if (m->val.packed_chunks != attrs->chunks)
            return complain(m, "joins parts of different divisions");
        m->val.packed_dim = 0;
        m->val.packed_chunks = 0;
        m->val.packed_parts = 0;
    }
    return true;
}

static bool check_gather(Move *m)
{
    AxisSet axes = m->in->axes;
    int8_t on = m->a.layout.on[__builtin_ctz(axes)];
    if (!layout_is_split(on))
        return complain(m, "gathers a tensor that is not split over its group");
    int d = layout_dim(on);
    AxisSet all = layout_axes_split(&m->a.layout, d);
    if (!same_dims(m) || !keeps_deals(m, d)) return false;
    if (!changes(m, axes, on, WHOLE, "must gather over exactly the axes of its group"))
        return false;
    if (!innermost(axes, all))
        return complain(m, "gathers over an outer axis, but must gather over the inner axis first");
    if (m->val.packed_dim) return complain(m, "gathers a packed tensor, but needs an unpacked one");
    const bool nested = nests(m, &m->b, &m->a, d, axes);
    const uint8_t chunks = chunks_of(m, &m->a, &m->b, d, axes);
    if (m->v->p->buffers.at[m->to].packed) {
        const bool follow = in_order(m, &m->a, d) && (!uneven(m, &m->a, d) || all == axes);
        if (!follow && !nested && !chunks)
            return complain(m, "gathers parts that are not consecutive");
        m->val.packed_chunks = chunks;
        m->val.packed_dim = (int8_t)(d + 1);
        m->val.packed_parts = mesh_size(&m->v->plan->mesh, axes);
    } else if ((!nested && (uneven(m, &m->a, d) || uneven(m, &m->b, d))) ||
               !outermost(m, &m->a, d)) {
        return complain(
            m, "gathers parts that are not contiguous, so they must be unpacked afterwards");
    }
    return true;
}

static bool check_scatter(Move *m)
{
    AxisSet axes = m->in->axes;
    int8_t on = m->b.layout.on[__builtin_ctz(axes)];
    if (!layout_is_split(on)) return complain(m, "must scatter over its group");
    int d = layout_dim(on);
    AxisSet before = layout_axes_split(&m->a.layout, d);
    if (verify_attrs(m->v, m->pc)->reduce != REDUCE_sum) return complain(m, "must sum");
    if (!same_dims(m) || !keeps_deals(m, d)) return false;
    if (!changes(m, axes, PARTIAL_SUM, on, "needs a partial sum on its group")) return false;
    const bool nested = nests(m, &m->a, &m->b, d, axes);
    if (before && !nested &&
        (uneven(m, &m->a, d) || uneven(m, &m->b, d) || !innermost(axes, before)))
        return complain(m, "cuts through the parts of other ranks");
    if (m->val.packed_dim) {
        const uint8_t chunks = chunks_of(m, &m->b, &m->a, d, axes);
        if (m->val.packed_dim != d + 1 ||
            m->val.packed_parts != mesh_size(&m->v->plan->mesh, axes) ||
            m->val.packed_chunks != chunks || (!in_order(m, &m->b, d) && !nested && !chunks))
            return complain(m, "scatters a dimension other than the packed one");
        m->val.packed_chunks = 0;
        m->val.packed_dim = 0;
        m->val.packed_parts = 0;
    } else if (!outermost(m, &m->a, d) || (!nested && uneven(m, &m->b, d))) {
        return complain(m, "scatters parts that are not contiguous, so they must be packed before");
    }
    return true;
}

/* Checks a mean over ranks. All ranks must hold the same value, so the mean does not change it. */
static bool check_mean(Move *m)
{
    AxisSet axes = m->in->axes;
    ValueEntry single;
    uint32_t n;
    if (layout_axes_partial(&m->a.layout) & axes)
        return complain(m, "averages partial sums, but their sum is needed");
    if (!same_dims(m) || !keeps_deals(m, -1)) return false;
    if (!changes(m, axes, WHOLE, WHOLE,
                 "averages a tensor that differs between the ranks of its group"))
        return false;
    const ValueEntry *p = value_entries(m->v, &m->val, &single, &n);
    for (uint32_t i = 0; i < n; i++)
        if (!value_is_zero(p[i].vn) &&
            layout_axes_split(&value_shape_at(m->v, p[i].shape)->layout, -1) & axes)
            return complain(m, "averages parameters, but the ranks hold different parts of them");
    return true;
}

static bool check_all_reduce(Move *m)
{
    AxisSet axes = m->in->axes;
    int8_t on = m->a.layout.on[__builtin_ctz(axes)];
    if (verify_attrs(m->v, m->pc)->reduce == REDUCE_mean) return check_mean(m);
    if (!layout_is_partial(on))
        return complain(m, "reduces a tensor that is no partial sum on its group");
    if (!same_dims(m) || !keeps_deals(m, -1)) return false;
    if (!changes(m, axes, on, WHOLE, "must reduce over exactly the axes of its group"))
        return false;
    if (verify_attrs(m->v, m->pc)->reduce != (on == PARTIAL_MAX ? REDUCE_max : REDUCE_sum))
        return complain(m, "sums values whose maximum is needed, or the other way round");
    return true;
}

static bool check_all_to_all(Move *m)
{
    AxisSet axes = m->in->axes;
    int8_t x = m->a.layout.on[__builtin_ctz(axes)], y = m->b.layout.on[__builtin_ctz(axes)];
    if (!layout_is_split(x) || !layout_is_split(y) || x == y)
        return complain(m, "must change the dimension that is split");
    int c = layout_dim(x), d = layout_dim(y);
    uint32_t parts = mesh_size(&m->v->plan->mesh, axes);
    if (!same_dims(m) || !changes(m, axes, x, y, "must change exactly the axes of its group"))
        return false;
    for (int i = 0; i < m->a.n_dims; i++)
        if (i != c && i != d && m->a.deal[i] != m->b.deal[i])
            return complain(m, "changes the intervals of a dimension");
    const bool leaves = nests(m, &m->b, &m->a, c, axes), enters = nests(m, &m->a, &m->b, d, axes);
    const uint8_t from = chunks_of(m, &m->a, &m->b, c, axes),
                  into = chunks_of(m, &m->b, &m->a, d, axes);
    if ((!leaves && !from && (uneven(m, &m->a, c) || m->b.deal[c])) ||
        (!enters && !into && (uneven(m, &m->b, d) || m->a.deal[d])) ||
        !innermost(axes, layout_axes_split(&m->a.layout, c)) ||
        !innermost(axes, layout_axes_split(&m->b.layout, d)))
        return complain(m, "exchanges parts that cross each other");
    bool packed =
        m->val.packed_dim == d + 1 && m->val.packed_parts == parts && m->val.packed_chunks == into;
    if (!packed && (m->val.packed_dim || into || !outermost(m, &m->a, d)))
        return complain(m, "sends parts that are not contiguous, so they must be packed before");
    bool unpack = m->v->p->buffers.at[m->to].packed;
    if (!unpack && (from || !outermost(m, &m->b, c)))
        return complain(
            m, "receives parts that are not contiguous, so they must be unpacked afterwards");
    m->val.packed_dim = unpack ? (int8_t)(c + 1) : 0;
    m->val.packed_parts = unpack ? parts : 0;
    m->val.packed_chunks = unpack ? from : 0;
    return true;
}

/* Checks the op `rotate`, which sends the part of each rank to the next rank of the group. */
static bool check_rotate(Move *m)
{
    const AxisSet axes = m->in->axes;
    const int8_t on = m->a.layout.on[__builtin_ctz(axes)];
    if (!layout_is_split(on)) return complain(m, "rotates a buffer that its group does not split");
    const int d = layout_dim(on);
    if (!same_dims(m) || !keeps_deals(m, d)) return false;
    if (!changes(m, 0, WHOLE, WHOLE, "changes the layout")) return false;
    if (layout_axes_split(&m->a.layout, d) != axes || m->val.packed_dim)
        return complain(m, "rotates parts that another axis splits further");
    return verify_turned(m->v, &m->a, &m->b, d, 1) ||
           complain(m, "must receive the part of the previous rank");
}

static bool check_same(Move *m)
{
    return same_dims(m) && keeps_deals(m, -1) &&
           changes(m, 0, WHOLE, WHOLE, "changes the layout") &&
           (!m->val.packed_dim || m->in->op == OP_copy || complain(m, "reads a packed tensor"));
}

static bool check(Move *m)
{
    OpKind op = m->in->op;
    if (!moves_rows(m)) return false;
    if (op == OP_slice)
        return !m->val.packed_dim ? check_slice(m) : complain(m, "cuts a packed tensor");
    if (op == OP_place)
        return !m->val.packed_dim ? check_place(m) : complain(m, "places a packed tensor");
    if (op == OP_pack || op == OP_unpack) return check_pack(m, op == OP_pack);
    if (op == OP_all_gather) return check_gather(m);
    if (op == OP_reduce_scatter) return check_scatter(m);
    if (op == OP_all_to_all) return check_all_to_all(m);
    if (op == OP_rotate) return check_rotate(m);
    if (op == OP_all_reduce)
        return !m->val.packed_dim ? check_all_reduce(m) : complain(m, "reduces a packed tensor");
    return check_same(m);
}

/* Checks a communication between different programs (pipeline stages): all of them must contribute
 * the same value. */
static bool check_meeting(Move *m)
{
    Verifier *v = m->v;
    if (!verify_is_comm(m->in) || v->plan->programs.n < 2) return true;
    if (m->in->op == OP_all_reduce && (m->in->axes & v->stages))
        return true; /* value_meet_stages has checked this */
    Transported *t = &v->transports[m->in->match];
    if (!t->there) {
        *t = (Transported){.val = m->val, .program = v->program, .pc = m->pc, .there = true};
        return true;
    }
    if (t->program == v->program) return true;
    if (value_same(t->val.vn, m->val.vn) && t->val.shape == m->val.shape &&
        t->val.bad == m->val.bad)
        return true;
    verify_report(v, "verify-layout", m->pc,
                  "is in one communication with instruction %u of program %u, but with other data: "
                  "%s instead of %s",
                  t->pc, t->program, value_name(v, m->val.vn), value_name(v, t->val.vn));
    return false;
}

/* Returns how many different programs the ranks of a communicator along `axes` run. */
static uint32_t n_programs_meeting(const Verifier *v, AxisSet axes)
{
    AxisSet stages = (AxisSet)(axes & v->stages);
    return mesh_size(&v->plan->mesh, stages);
}

bool value_meet_stages(Verifier *v, Pc pc, Pc *brought)
{
    const Instr *in = &v->p->code.at[pc];
    Transported *t = &v->transports[in->match];
    if (*brought != pc) {
        Val val = value_read(v, pc, program_arg(v->p, in, 0), "input", 0);
        if (val.list)
            verify_report(v, "verify-layout", pc,
                          "sums over pipeline stages, which is not allowed for tensors");
        else if (!val.bad)
            t->sum = value_add(t->sum, val.vn);
        t->n_brought++;
        *brought = pc;
    }
    return t->n_brought == n_programs_meeting(v, in->axes);
}

static void move_fill(Verifier *v, Pc pc)
{
    BufferId to = program_arg(v->p, &v->p->code.at[pc], 0);
    double with = verify_attrs(v, pc)->scale;
    Val val = {.shape = 0};
    if (with != 0)
        val.vn = value_of_op(OP_fill, v->attrs_key[v->p->code.at[pc].attrs], NULL, 0, 0, 0, NULL);
    value_write(v, pc, to, val);
}

static bool keeps_scale(Verifier *v, Pc pc)
{
    double scale = verify_attrs(v, pc)->scale;
    if (scale != 0)
        verify_report(v, "verify-scale", pc, "scales by %.17g, which the graph does not state",
                      scale);
    return scale == 0;
}

void value_move(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    if (in->op == OP_fill) {
        move_fill(v, pc);
        return;
    }
    BufferId from = program_arg(v->p, in, 0), to = program_arg(v->p, in, 1);
    Move m = {.v = v, .pc = pc, .in = in, .from = from, .to = to};
    m.val = value_read(v, pc, from, "input", 0);
    if (in->op == OP_all_reduce && (in->axes & v->stages)) m.val.vn = v->transports[in->match].sum;
    m.out_shape = v->canon[v->p->buffers.at[to].shape];
    m.a = *value_shape_at(v, m.val.shape);
    m.b = *value_shape_at(v, m.out_shape);
    BufferId where;
    if (!m.val.bad && !keeps_scale(v, pc)) m.val.bad = true;
    if (!m.val.bad && (!check_meeting(&m) || !check(&m))) m.val.bad = true;
    if (!m.val.bad && (m.val.packed_dim != 0) != v->p->buffers.at[to].packed) {
        complain(&m, "has an output with a wrong mark for packed buffers");
        m.val.bad = true;
    }
    m.val.shape = m.out_shape;
    m.val.dtype = (uint8_t)v->p->buffers.at[to].dtype;
    /* the other stages may contribute zero, and need the value that this stage already has */
    bool of_stages = in->op == OP_all_reduce && (in->axes & v->stages);
    /* a mean over equal values is not redundant: it removes rounding differences between ranks */
    bool pins = verify_attrs(v, pc)->reduce == REDUCE_mean;
    if (!m.val.bad && verify_is_comm(in) && !of_stages && !pins &&
        value_present(v, pc, &m.val, &where))
        verify_warn(v, pc, "makes a result that is already in buffer %u", where);
    if (verify_accumulates(v, in, 0)) {
        Val old = value_read(v, pc, to, "sum", 0);
        m.val = value_sum(v, pc, &old, &m.val);
    }
    value_write(v, pc, to, m.val);
}

/* Moves a value from one program to another: `send` stores the value that it reads, and the `recv`
 * with the same match number writes the stored value. */
bool value_exchange(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    BufferId b = program_arg(v->p, in, 0);
    Transported *t = &v->transports[in->match];
    if (in->op == OP_send) {
        Val val = value_read(v, pc, b, "input", 0);
        val.bad = val.bad || !keeps_scale(v, pc);
        *t = (Transported){.val = val, .program = v->program, .pc = pc, .there = true};
        return true;
    }
    if (!t->there) return false;
    Val val = t->val;
    const Buffer *at = &v->p->buffers.at[b];
    val.bad = val.bad || !keeps_scale(v, pc);
    if (!val.bad && (val.shape != v->canon[at->shape] || val.dtype != at->dtype ||
                     (val.packed_dim != 0) != at->packed)) {
        verify_report(v, "verify-layout", pc, "receives %s %s as %s %s",
                      dtype_name((DType)val.dtype), value_shape_text(v, val.shape),
                      dtype_name(at->dtype), value_shape_text(v, v->canon[at->shape]));
        val.bad = true;
    }
    value_write(v, pc, b, val);
    return true;
}
