/* Checks the exchange of contiguous rows for rows at equal distances, and back. Messages are
 * packed, exchanged and unpacked. The value of a packed message includes the direction, and whether
 * the message was sent. */
#include "planner/ir/layout/stride.h"
#include "planner/verify/value/value.h"

typedef struct StridedStep {
    Verifier *v;
    Pc pc;
    const Instr *in;
    int d;
} StridedStep;

static bool complain(const StridedStep *s, const char *what)
{
    verify_report(s->v, "verify-layout", s->pc, "%s", what);
    return false;
}

static uint32_t shape_of(const Verifier *v, BufferId b)
{
    return v->canon[v->p->buffers.at[b].shape];
}

static int dim_with_strides(const Verifier *v, const Shape *s, AxisSet axes)
{
    for (int d = 0; d < s->n_dims; d++)
        if (deal_is_strided(&v->g->deals, s->deal[d]) && layout_axes_split(&s->layout, d) == axes)
            return d;
    return -1;
}

bool value_has_strides(const Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const BufferId from = program_arg(v->p, in, 0);
    return v->p->buffers.at[from].packed &&
           dim_with_strides(v, value_shape_at(v, shape_of(v, from)), in->axes) >= 0;
}

/* Returns the bytes of the messages to all ranks. All messages have the largest size that any two
 * ranks need. */
static uint64_t message_bytes(const StridedStep *s, const Shape *strided, DType dtype)
{
    const Deals *deals = &s->v->g->deals;
    const Deal *deal = &deals->deals.at[strided->deal[s->d]];
    const uint64_t most = (deal->per_part + deal->n_parts - 1) / deal->n_parts;
    uint64_t n = dtype_bytes(dtype) * deal->n_parts * most *
                 ((uint64_t)deal->size / ((uint64_t)deal->n_parts * deal->per_part));
    for (int i = 0; i < strided->n_dims; i++)
        if (i != s->d) n *= (uint64_t)shape_local_dim(strided, &s->v->plan->mesh, deals, i);
    return n;
}

/* Checks the dimension and the number of ranks that the instruction names. */
static bool check_dim(StridedStep *s, uint32_t strided)
{
    const Shape *shape = value_shape_at(s->v, strided);
    const Attrs *attrs = verify_attrs(s->v, s->pc);
    s->d = (int)attrs->dim;
    if (s->d < shape->n_dims && deal_is_strided(&s->v->g->deals, shape->deal[s->d]) &&
        attrs->parts == shape_parts(shape, &s->v->plan->mesh, s->d))
        return true;
    return complain(s, "names a dimension without strides, or a wrong number of ranks");
}

/* Checks that the shapes `rows` and `strided` are equal except in dimension d, in which each rank
 * of `rows` has contiguous rows. */
static bool check_pair(const StridedStep *s, uint32_t rows, uint32_t strided)
{
    Shape own = *value_shape_at(s->v, strided);
    own.deal[s->d] = 0;
    return shape_equal(&own, value_shape_at(s->v, rows)) ||
           complain(s, "changes the division of more than one dimension");
}

static bool is_pieces(const StridedStep *s, const Val *val, uint8_t state)
{
    const Shape *shape = value_shape_at(s->v, val->shape);
    return val->packed_dim == s->d + 1 && val->packed_chunks == state &&
           val->packed_parts == shape_parts(shape, &s->v->plan->mesh, s->d);
}

static bool pack(StridedStep *s, Val *val, uint32_t out)
{
    if (!check_dim(s, out)) return false;
    if (val->packed_dim) return complain(s, "packs a buffer that is already packed");
    const bool to_rows = val->shape == out;
    if (!to_rows && !check_pair(s, val->shape, out)) return false;
    val->packed_dim = (int8_t)(s->d + 1);
    val->packed_parts = (uint32_t)verify_attrs(s->v, s->pc)->parts;
    val->packed_chunks = to_rows ? PIECES_to_rows : PIECES_to_strides;
    return true;
}

static bool unpack(StridedStep *s, Val *val, uint32_t out)
{
    if (!check_dim(s, val->shape)) return false;
    if (is_pieces(s, val, PIECES_for_strides)) {
        if (out != val->shape) return complain(s, "unpacks pieces into a wrong shape");
    } else if (!is_pieces(s, val, PIECES_for_rows)) {
        return complain(s, "unpacks data that no rank has sent");
    } else if (!check_pair(s, out, val->shape)) {
        return false;
    }
    val->packed_dim = 0, val->packed_parts = val->packed_chunks = 0;
    return true;
}

static bool exchange(StridedStep *s, Val *val, uint32_t out)
{
    s->d = dim_with_strides(s->v, value_shape_at(s->v, val->shape), s->in->axes);
    const bool to_rows = s->d >= 0 && is_pieces(s, val, PIECES_to_rows);
    if (!to_rows && (s->d < 0 || !is_pieces(s, val, PIECES_to_strides)))
        return complain(s, "exchanges data that were not packed for its group");
    if (out != val->shape) return complain(s, "receives pieces of a wrong shape");
    if (verify_attrs(s->v, s->pc)->reduce) return complain(s, "reduces pieces");
    val->packed_chunks = to_rows ? PIECES_for_rows : PIECES_for_strides;
    return true;
}

void value_strides(Verifier *v, Pc pc)
{
    StridedStep s = {.v = v, .pc = pc, .in = &v->p->code.at[pc]};
    const BufferId to = program_arg(v->p, s.in, 1);
    const Buffer *at = &v->p->buffers.at[to];
    const uint32_t out = shape_of(v, to);
    Val val = value_read(v, pc, program_arg(v->p, s.in, 0), "input", 0);
    bool fine = !val.bad;
    if (fine && val.list) fine = complain(&s, "moves rows, but its buffer is flat");
    if (fine && (verify_attrs(v, pc)->scale != 0 || verify_accumulates(v, s.in, 0)))
        fine = complain(&s, "scales or adds, which the graph does not state");
    if (fine)
        fine = s.in->op == OP_stride_pack     ? pack(&s, &val, out)
               : s.in->op == OP_stride_unpack ? unpack(&s, &val, out)
                                              : exchange(&s, &val, out);
    if (fine && at->packed != (val.packed_dim != 0))
        fine = complain(&s, "has an output with a wrong mark for packed buffers");
    if (fine && at->packed && at->bytes != message_bytes(&s, value_shape_at(v, out), at->dtype))
        fine = complain(&s, "has messages whose size differs from that of the largest piece");
    val.bad = !fine;
    val.shape = out;
    val.dtype = (uint8_t)at->dtype;
    BufferId where;
    if (fine && verify_is_comm(s.in) && value_present(v, pc, &val, &where))
        verify_warn(v, pc, "makes a result that is already in buffer %u", where);
    value_write(v, pc, to, val);
}

const char *value_stride_fault(const Verifier *v, const Binding *b, const Shape *s, uint32_t arg,
                               int d)
{
    const int64_t index = b->size[(int)b->letter[arg][d]];
    const int64_t runs = b->strides[arg][d] ? b->size[(int)b->strides[arg][d]] : 0;
    const Deal *deal = &v->g->deals.deals.at[s->deal[d]];
    const bool strided = s->deal[d] && deal->kind == DEAL_strided;
    if (runs == 0 && strided && index != s->dim[d])
        return "has rows at equal distances, but the op needs consecutive rows, on axis";
    if (runs > 1 && (!strided || deal->per_part != runs))
        return "does not have rows at the distances that the op needs, on axis";
    return NULL;
}
