/* Checks a convolution in two parts: the output rows whose windows read only the rank's own rows,
 * and the border. The border reads the neighbours' rows from strips. Each part is checked like the
 * whole op, on its own rows. The values of both parts add up to the node's value. */
#include "planner/verify/private.h"

static bool complain(Verifier *v, Pc pc, const char *what)
{
    verify_report(v, "verify-layout", pc, "%s", what);
    return false;
}

bool value_rows_part(Verifier *v, Pc pc, uint32_t *shape)
{
    const Instr *in = &v->p->code.at[pc];
    const Node *n = in->origin ? &v->g->nodes.at[in->origin] : NULL;
    const int d = op_dim(in->op, 0, INDEX_height);
    const Shape *own = value_shape_at(v, shape[0]);
    if (!n || !verify_is_of_node(in, n))
        return complain(v, pc, "computes nothing that its graph node asks for");
    if (!layout_axes_split(&own->layout, d) || own->deal[d])
        return complain(v, pc, "works in rows, but its rows are not equal parts of a field");
    if (!op_is_border(in->op)) return true;
    const Shape *held = value_shape_at(v, shape[in->n_in - 1u]);
    Shape same = *own;
    same.deal[d] = held->deal[d];
    if (!shape_equal(&same, held) || v->g->deals.deals.at[held->deal[d]].kind != DEAL_halo)
        return complain(v, pc, "its strips are not the halo of its own rows");
    shape[0] = shape[in->n_in - 1u];
    return true;
}

bool value_takes_strips(Verifier *v, Pc pc, const Val *strips, const Val *own)
{
    const Instr *in = &v->p->code.at[pc];
    const int d = op_dim(in->op, 0, INDEX_height);
    if (!value_is_received(strips, d))
        return complain(v, pc, "its strips do not come from the neighbours along this dimension");
    if (value_same(strips->vn, own->vn)) return true;
    return complain(v, pc,
                    arena_print(v->arena, "its strips hold rows of %s, but its own rows are of %s",
                                value_name(v, strips->vn), value_name(v, own->vn)));
}

/* Returns the inner part's value. The value of the border is the node's value minus the inner
 * part's value. */
static Hash128 inner(const Verifier *v, Pc pc, const Val *in, uint32_t j)
{
    const Instr *instr = &v->p->code.at[pc];
    const OpKind whole = op_of_rows(instr->op);
    const uint32_t n = op_info(whole)->sig.n_in;
    Hash128 vn[MAX_IN];
    for (uint32_t k = 0; k < n; k++) vn[k] = in[k].vn;
    const int64_t part = 0;
    return value_of_op(op_in_rows(whole).inner, value_key(v, instr->attrs, instr->microbatch), vn,
                       n, j, 1, &part);
}

static Hash128 minus(Hash128 a, Hash128 b)
{
    Hash128 s = {a.hi - b.hi, a.lo - b.lo};
    s.hi -= a.lo < b.lo;
    return s;
}

Hash128 value_of_rows(const Verifier *v, Pc pc, const Val *in, uint32_t j)
{
    const Instr *instr = &v->p->code.at[pc];
    if (!op_is_border(instr->op)) return inner(v, pc, in, j);
    return minus(value_contribution(v, instr->origin, j, instr->microbatch), inner(v, pc, in, j));
}
