/* Checks a convolution that is computed in parts. Inner rows read only the rank's own rows. The
 * border also reads the neighbours' rows from strips. If columns are split, the inner rows are
 * again two parts: the centre, and the sides, which read the halo of columns. The values of all
 * parts add up to the value of the node. */
#include "planner/verify/value/value.h"

static bool complain(Verifier *v, Pc pc, const char *what)
{
    verify_report(v, "verify-layout", pc, "%s", what);
    return false;
}

/* Checks the columns of the first input: the centre must read only the rank's own columns, and the
 * sides also the halo of columns. */
static bool columns_fit(Verifier *v, Pc pc, const Shape *x, int64_t part)
{
    const int d = op_dim(v->p->code.at[pc].op, 0, INDEX_width);
    const DealKind kind = v->g->deals.deals.at[x->deal[d]].kind;
    if (!layout_axes_split(&x->layout, d))
        return complain(v, pc, "processes columns separately, but no axis splits the columns");
    if (part == ROWS_centre ? x->deal[d] == 0 : x->deal[d] != 0 && kind == DEAL_halo) return true;
    return complain(v, pc,
                    part == ROWS_centre ? "must read only the rank's own columns"
                                        : "lacks the halo of its columns");
}

bool value_rows_part(Verifier *v, Pc pc, uint32_t *shape)
{
    const Instr *in = &v->p->code.at[pc];
    const Node *n = in->origin ? &v->g->nodes.at[in->origin] : NULL;
    const int d = op_dim(in->op, 0, INDEX_height);
    const Shape *own = value_shape_at(v, shape[0]);
    if (!n || !verify_is_of_node(in, n))
        return complain(v, pc, "does not compute a part of its graph node");
    const int64_t part = verify_attrs(v, pc)->parts;
    if (own->deal[d] || (part == ROWS_all && !layout_axes_split(&own->layout, d)))
        return complain(v, pc,
                        "processes rows separately, but its rows are not equal parts of a field");
    if (part != ROWS_all) return columns_fit(v, pc, own, part);
    if (!op_is_border(in->op)) return true;
    const Shape *held = value_shape_at(v, shape[in->n_in - 1u]);
    Shape same = *own;
    same.deal[d] = held->deal[d];
    if (!shape_equal(&same, held) || v->g->deals.deals.at[held->deal[d]].kind != DEAL_halo)
        return complain(v, pc, "has strips that are not the halo of its own rows");
    shape[0] = shape[in->n_in - 1u];
    return true;
}

bool value_takes_strips(Verifier *v, Pc pc, const Val *strips, const Val *own)
{
    const Instr *in = &v->p->code.at[pc];
    const int d = op_dim(in->op, 0, INDEX_height);
    if (!value_is_received(strips, d))
        return complain(
            v, pc, "has strips that were not received from the neighbours along this dimension");
    if (value_same(strips->vn, own->vn)) return true;
    return complain(v, pc,
                    arena_print(v->arena, "has strips with rows of %s, but its own rows are of %s",
                                value_name(v, strips->vn), value_name(v, own->vn)));
}

/* Returns the value of the inner rows, or of their centre. */
static Hash128 inner(const Verifier *v, Pc pc, const Val *in, uint32_t j, int64_t which)
{
    const Instr *instr = &v->p->code.at[pc];
    const OpKind whole = op_of_rows(instr->op);
    const uint32_t n = op_info(whole)->sig.n_in;
    Hash128 vn[MAX_IN];
    for (uint32_t k = 0; k < n; k++) vn[k] = in[k].vn;
    return value_of_op(op_in_rows(whole).inner, value_key(v, instr->attrs, instr->microbatch), vn,
                       n, j, 1, &which);
}

static Hash128 minus(Hash128 a, Hash128 b)
{
    Hash128 s = {a.hi - b.hi, a.lo - b.lo};
    s.hi -= a.lo < b.lo;
    return s;
}

/* True if no window reads a row of another rank. The convolution then has no border rows. */
static bool has_all_rows(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const int d = op_dim(in->op, 0, INDEX_height);
    const char letter = op_letter(in->op, INDEX_height);
    const Shape *x = value_shape_at(v, v->canon[v->p->buffers.at[program_arg(v->p, in, 0)].shape]);
    const Binding *b = &verify_bound(v, pc)->binding;
    if (!layout_axes_split(&x->layout, d)) return true;
    const Window w = op_window(in->op, b, verify_attrs(v, pc), letter);
    return value_window_fault(v, &w, x, d, b->size[(int)letter], false) == NULL;
}

/* Values of parts are differences, so that they add up to the node's value: the border is node
 * minus inner rows, the sides are inner rows minus centre. */
Hash128 value_of_rows(Verifier *v, Pc pc, const Val *in, uint32_t j)
{
    const Instr *instr = &v->p->code.at[pc];
    const int64_t part = verify_attrs(v, pc)->parts;
    const Hash128 all = value_contribution(v, instr->origin, j, instr->microbatch);
    if (op_is_border(instr->op)) return minus(all, inner(v, pc, in, j, ROWS_all));
    if (part != ROWS_sides) return inner(v, pc, in, j, part);
    return minus(has_all_rows(v, pc) ? all : inner(v, pc, in, j, ROWS_all),
                 inner(v, pc, in, j, ROWS_centre));
}
