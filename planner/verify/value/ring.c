/* Checks one hop of ring attention, which uses the keys of one rank. The deals of queries and keys
 * show from which rank the keys come. The node is complete when every rank has used the keys of
 * every rank once. The values of all hops then add up to the value of the node. */
#include "planner/verify/value/value.h"

static bool complain(Verifier *v, Pc pc, const char *what)
{
    verify_report(v, "verify-layout", pc, "%s", what);
    return false;
}

/* Returns the shape that an argument has in attention with all keys: `shape` without the split of
 * dimension d over `axes`. An output (the gradient of keys) becomes a partial sum over `axes`. */
static uint32_t with_all_keys(Verifier *v, uint32_t shape, int d, AxisSet axes, bool is_output)
{
    Shape s = *value_shape_at(v, shape);
    for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++)
        if (axes >> a & 1) s.layout.on[a] = is_output ? PARTIAL_SUM : WHOLE;
    s.deal[d] = 0;
    return value_shape(v, &s);
}

static int queries_dim(OpKind op, uint32_t arg)
{
    return op_is_whole(op, arg, INDEX_tokens) ? -1 : op_dim(op, arg, INDEX_tokens);
}

bool value_hop(Verifier *v, Pc pc, uint32_t *shape, Hop *hop)
{
    const Instr *in = &v->p->code.at[pc];
    const Node *n = in->origin ? &v->g->nodes.at[in->origin] : NULL;
    const Shape *keys = NULL, *queries = NULL;
    int of_keys = -1, of_queries = -1;
    if (!n || !verify_is_of_node(in, n))
        return complain(v, pc, "does not compute a part of its graph node");
    for (uint32_t i = 0; i < verify_n_args(in); i++) {
        const Shape *s = value_shape_at(v, shape[i]);
        const int d = op_keys_dim(in->op, i);
        if (d < 0 && !queries) queries = s, of_queries = queries_dim(in->op, i);
        if (d < 0) continue;
        if (!keys) keys = s, of_keys = d;
        if (layout_axes_split(&s->layout, d) != layout_axes_split(&keys->layout, of_keys) ||
            s->deal[d] != keys->deal[of_keys])
            return complain(v, pc, "has arguments that belong to the keys of different ranks");
    }
    const AxisSet axes = keys ? layout_axes_split(&keys->layout, of_keys) : 0;
    if (!axes || !queries || of_queries < 0 ||
        layout_axes_split(&queries->layout, of_queries) != axes)
        return complain(v, pc, "needs queries and keys that are split over the same ranks");
    Shape own = *keys;
    own.deal[of_keys] = queries->deal[of_queries];
    hop->n = mesh_size(&v->plan->mesh, axes);
    for (hop->i = 0; hop->i < hop->n; hop->i++)
        if (verify_turned(v, &own, keys, of_keys, hop->i)) break;
    if (hop->i == hop->n) return complain(v, pc, "must have the keys of exactly one rank");
    for (uint32_t i = 0; i < verify_n_args(in); i++) {
        const int d = op_keys_dim(in->op, i);
        if (d >= 0) shape[i] = with_all_keys(v, shape[i], d, axes, i >= in->n_in);
    }
    return true;
}

/* Returns the value of output j of hop i, which is not the last hop. */
static Hash128 part(const Verifier *v, Pc pc, uint32_t i, const Val *in, uint32_t j)
{
    const Instr *instr = &v->p->code.at[pc];
    Hash128 vn[MAX_IN];
    for (uint32_t k = 0; k < instr->n_in; k++) vn[k] = in[k].vn;
    const int64_t hop = i;
    return value_of_op(instr->op, value_key(v, instr->attrs, instr->microbatch), vn, instr->n_in, j,
                       1, &hop);
}

static Hash128 minus(Hash128 a, Hash128 b)
{
    Hash128 s = {a.hi - b.hi, a.lo - b.lo};
    s.hi -= a.lo < b.lo;
    return s;
}

/* The value of the last hop is the value of the node minus the values of the other hops. */
Hash128 value_of_hop(const Verifier *v, Pc pc, const Hop *hop, uint32_t i, const Val *in,
                     uint32_t j)
{
    const Instr *instr = &v->p->code.at[pc];
    if (i + 1 < hop->n) return part(v, pc, i, in, j);
    Hash128 rest = value_contribution(v, instr->origin, j, instr->microbatch);
    for (uint32_t k = 0; k < i; k++) rest = minus(rest, part(v, pc, k, in, j));
    return rest;
}

bool value_merges(Verifier *v, Pc pc, const Hop *hop, const Val *in, const Val *old)
{
    const Instr *instr = &v->p->code.at[pc];
    const uint32_t n_out = op_info(instr->op)->sig.n_out;
    if (!verify_attrs(v, pc)->accumulate) return true;
    for (uint32_t j = 0; j < n_out; j++) {
        Hash128 before = {0, 0};
        for (uint32_t k = 0; k < hop->i; k++)
            before = value_add(before, value_of_hop(v, pc, hop, k, in, j));
        if (!verify_accumulates(v, instr, j))
            return complain(v, pc, "must merge all of its outputs or none");
        if (!old[j].bad && (!hop->i || !value_same(old[j].vn, before)))
            return complain(v, pc, "must merge with the outputs of exactly the earlier hops");
    }
    return true;
}
