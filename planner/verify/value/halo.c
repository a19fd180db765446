/* Checks halo exchanges: each rank sends the rows at its two edges to its neighbours. The rows of
 * one message are called a strip. The abstract value of a strip also says along which dimension it
 * was cut, and whether it has been sent. */
#include "planner/verify/value/value.h"

typedef struct Strips {
    Verifier *v;
    Pc pc;
    const Instr *in;
    int d;
} Strips;

static bool complain(const Strips *s, const char *what)
{
    verify_report(s->v, "verify-layout", s->pc, "%s", what);
    return false;
}

static uint32_t shape_of(const Verifier *v, BufferId b)
{
    return v->canon[v->p->buffers.at[b].shape];
}

uint64_t value_strip_bytes(const Verifier *v, const Shape *held, int d, DType dtype)
{
    const Deals *deals = &v->g->deals;
    const uint32_t parts = shape_parts(held, &v->plan->mesh, d);
    Halo halo;
    if (parts < 2 || !deal_is_around(deals, held->deal[d]) ||
        !halo_find(deals, held->dim[d], parts, 0, held->deal[d], &halo))
        return 0;
    uint64_t n = 2 * (uint64_t)halo.strip * dtype_bytes(dtype);
    for (int i = 0; i < held->n_dims; i++)
        if (i != d) n *= (uint64_t)shape_local_dim(held, &v->plan->mesh, deals, i);
    return n;
}

/* Checks that the shapes `own` and `held` are equal except for the halo of dimension d. */
static bool check_pair(const Strips *s, uint32_t own, uint32_t held, DealKind kind)
{
    const Shape *a = value_shape_at(s->v, own), *b = value_shape_at(s->v, held);
    const Deals *deals = &s->v->g->deals;
    if (a->n_dims != b->n_dims || !layout_equal(&a->layout, &b->layout))
        return complain(
            s, "the buffers with and without the halo must have the same shape and layout");
    for (int d = 0; d < a->n_dims; d++) {
        if (a->dim[d] != b->dim[d])
            return complain(s, "the buffer with the halo has the wrong size");
        if (d != s->d && a->deal[d] != b->deal[d])
            return complain(s, "changes the division of another dimension");
    }
    if (a->deal[s->d] || deals->deals.at[b->deal[s->d]].kind != kind)
        return complain(s, kind == DEAL_halo
                               ? "must join a halo to the rank's own rows"
                               : "must add the sums of the halo to the rank's own rows");
    return true;
}

/* Checks that the dimension that the instruction names has a halo, and that the number of parts is
 * right. */
static bool check_dim(Strips *s, uint32_t held)
{
    const Shape *b = value_shape_at(s->v, held);
    const Attrs *attrs = verify_attrs(s->v, s->pc);
    s->d = (int)attrs->dim;
    const uint32_t parts = shape_parts(b, &s->v->plan->mesh, s->d);
    Halo halo;
    if (!deal_is_around(&s->v->g->deals, b->deal[s->d]) || parts < 2 || attrs->parts != parts)
        return complain(s, "names a dimension without a halo, or another number of parts");
    if (!halo_find(&s->v->g->deals, b->dim[s->d], parts, 0, b->deal[s->d], &halo))
        return complain(s, "needs rows from beyond the neighbouring parts");
    return true;
}

static bool is_strips(const Strips *s, const Val *val, uint8_t state)
{
    return val->packed_dim == s->d + 1 && val->packed_parts == 2 && val->packed_chunks == state;
}

bool value_is_received(const Val *val, int d)
{
    return val->packed_dim == d + 1 && val->packed_parts == 2 &&
           val->packed_chunks == STRIPS_received;
}

/* Checks an op that copies edge rows into strips: halo_pack (copies the rank's own rows) or
 * halo_cut (takes away the rows that belong to neighbours). */
static bool take_strips(Strips *s, Val *val)
{
    const BufferId to = program_arg(s->v->p, s->in, 1);
    const uint32_t held = shape_of(s->v, to);
    if (!check_dim(s, held)) return false;
    if (val->packed_dim)
        return complain(s, "reads strips from a packed buffer, but needs an unpacked one");
    if (s->in->op == OP_halo_pack && !check_pair(s, val->shape, held, DEAL_halo)) return false;
    if (s->in->op == OP_halo_cut &&
        (val->shape != held ||
         s->v->g->deals.deals.at[value_shape_at(s->v, held)->deal[s->d]].kind != DEAL_overlap))
        return complain(s, "reads the sums of a halo from a buffer without a halo");
    val->packed_dim = (int8_t)(s->d + 1);
    val->packed_parts = 2;
    val->packed_chunks = STRIPS_to_send;
    return true;
}

/* Checks an op that reads received strips: halo_join (puts them around the rank's own rows) or
 * halo_fold (adds them to the rank's own rows). */
static bool put_strips(Strips *s, Val *val, const Val *strips)
{
    const BufferId to = program_arg(s->v->p, s->in, 2);
    const bool joins = s->in->op == OP_halo_join;
    const uint32_t out = shape_of(s->v, to), held = joins ? out : val->shape;
    if (!check_dim(s, held)) return false;
    if (val->packed_dim) return complain(s, "joins strips to packed data, but needs unpacked data");
    if (!is_strips(s, strips, STRIPS_received) || strips->shape != held)
        return complain(
            s, "has strips that were not received from the neighbours along this dimension");
    if (!value_same(strips->vn, val->vn))
        return complain(s, arena_print(s->v->arena,
                                       "has strips with rows of %s, but its own rows are of %s",
                                       value_name(s->v, strips->vn), value_name(s->v, val->vn)));
    return joins ? check_pair(s, val->shape, held, DEAL_halo)
                 : check_pair(s, out, held, DEAL_overlap);
}

static bool send_strips(Strips *s, Val *val)
{
    const Shape *held = value_shape_at(s->v, val->shape);
    s->d = halo_dim(held, &s->v->g->deals, s->in->axes);
    if (s->d < 0 || !is_strips(s, val, STRIPS_to_send))
        return complain(s,
                        "exchanges data, but these are not strips for the neighbours in its group");
    if (shape_of(s->v, program_arg(s->v->p, s->in, 1)) != val->shape)
        return complain(s, "receives strips of a wrong shape");
    if (verify_attrs(s->v, s->pc)->reduce) return complain(s, "reduces strips");
    val->packed_chunks = STRIPS_received;
    return true;
}

void value_halo(Verifier *v, Pc pc)
{
    Strips s = {.v = v, .pc = pc, .in = &v->p->code.at[pc]};
    const BufferId to = program_arg(v->p, s.in, s.in->args.n - 1u);
    Val val = value_read(v, pc, program_arg(v->p, s.in, 0), "input", 0), strips = {0};
    if (s.in->n_in > 1) strips = value_read(v, pc, program_arg(v->p, s.in, 1), "input", 1);
    bool fine = !val.bad && !strips.bad;
    if (fine && (val.list || strips.list))
        fine = complain(&s, "moves rows, but its buffer is flat");
    if (fine && (verify_attrs(v, pc)->scale != 0 || verify_accumulates(v, s.in, 0)))
        fine = complain(&s, "scales or adds, which the graph does not state");
    if (fine)
        fine = s.in->op == OP_halo_exchange ? send_strips(&s, &val)
               : s.in->n_in > 1             ? put_strips(&s, &val, &strips)
                                            : take_strips(&s, &val);
    const bool packed = v->p->buffers.at[to].packed;
    if (fine && packed != (s.in->n_in == 1))
        fine = complain(&s, "has an output with a wrong mark for packed buffers");
    if (s.in->n_in > 1) val.packed_dim = 0, val.packed_parts = val.packed_chunks = 0;
    if (fine && packed &&
        v->p->buffers.at[to].bytes != value_strip_bytes(v, value_shape_at(v, shape_of(v, to)), s.d,
                                                        v->p->buffers.at[to].dtype))
        fine = complain(&s, "has strips whose size differs from that of the widest halo");
    val.bad = !fine;
    val.shape = shape_of(v, to);
    val.dtype = (uint8_t)v->p->buffers.at[to].dtype;
    BufferId where;
    if (fine && s.in->op == OP_halo_exchange && value_present(v, pc, &val, &where))
        verify_warn(v, pc, "makes a result that is already in buffer %u", where);
    value_write(v, pc, to, val);
}

/* Returns the k-th row that output row o reads. It may lie beyond an edge. */
static int64_t row_read(const Window *w, int64_t o, int64_t k)
{
    if (!w->from) return o * w->stride - w->before + k * w->dilation;
    if (w->nearest) return o * w->from / w->to;
    const int64_t twice = (2 * o + 1) * w->from - w->to; /* the position among the input rows,
                                                            multiplied by 2 * w->to */
    return (twice >= 0 ? twice / (2 * w->to) : -1) + k;
}

static void widen(Interval *at, int64_t row)
{
    const bool any = at->lo < at->hi;
    if (!any || row < at->lo) at->lo = row;
    if (!any || row >= at->hi) at->hi = row + 1;
}

/* Returns the rows that output rows [lo, hi) read, as one interval. Beyond an edge, the mode
 * decides which rows are read: rows of the opposite edge, mirrored rows, the row at the edge, or
 * zeros. */
static Interval rows_needed(const Window *w, int64_t size, Interval out)
{
    Interval at = {0, 0};
    const int64_t n = !w->from ? w->kernel : w->nearest ? 1 : 2;
    for (int64_t o = out.lo; o < out.hi; o++) {
        const int64_t first = row_read(w, o, 0), last = row_read(w, o, n - 1);
        if (w->mode == WINDOW_periodic || (first >= 0 && last < size)) {
            widen(&at, first); /* the rows between them add nothing to the interval */
            widen(&at, last);
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = window_row(w, size, row_read(w, o, k));
            if (row >= 0) widen(&at, row); /* otherwise the row is a zero */
        }
    }
    return at;
}

const char *value_window_fault(const Verifier *v, const Window *w, const Shape *read, int d,
                               int64_t outputs, bool is_output)
{
    const Deals *deals = &v->g->deals;
    const DealId deal = read->deal[d];
    const DealKind kind = deals->deals.at[deal].kind;
    const uint32_t parts = shape_parts(read, &v->plan->mesh, d);
    if (deal && kind != (is_output ? DEAL_overlap : DEAL_halo))
        return is_output
                   ? "makes rows that neighbours also make, so its deal must be of kind overlap"
                   : "has a deal that does not belong to the rows that are read";
    for (uint32_t p = 0; p < parts; p++) {
        Interval out, held;
        if (!deal_interval(deals, 0, outputs, parts, p, 0, &out)) continue;
        const Interval needed = rows_needed(w, read->dim[d], out);
        if (!deal_interval(deals, deal, read->dim[d], parts, p, 0, &held)) held.lo = held.hi = 0;
        if (needed.hi > needed.lo && (held.lo > needed.lo || held.hi < needed.hi))
            return is_output ? "has no room for the rows of neighbours to which it adds"
                             : "lacks rows of neighbours that the window reads";
    }
    return NULL;
}
