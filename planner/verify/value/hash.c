/* Computes the hashes of sums, of results of ops, and of leaves: values that no instruction
 * computes, such as a parameter at the start of the step. Also finds names for values in
 * messages. */
#include <string.h>

#include "planner/verify/value/value.h"

Hash128 value_add(Hash128 a, Hash128 b)
{
    Hash128 s = {a.hi + b.hi, a.lo + b.lo};
    s.hi += s.lo < a.lo;
    return s;
}

static Hash128 value_minus(Hash128 a, Hash128 b)
{
    Hash128 s = {a.hi - b.hi, a.lo - b.lo};
    s.hi -= a.lo < b.lo;
    return s;
}

Hash128 value_of_op(OpKind op, uint64_t attrs_key, const Hash128 *in, uint32_t n_in, uint32_t j,
                    uint32_t n_dims, const int64_t *dim)
{
    uint64_t word[4 + 2 * MAX_IN + MAX_DIMS];
    uint32_t n = 0;
    word[n++] = (uint64_t)op << 32 | j;
    word[n++] = attrs_key;
    word[n++] = (uint64_t)n_in << 32 | n_dims;
    for (uint32_t i = 0; i < n_in; i++) {
        word[n++] = in[i].hi;
        word[n++] = in[i].lo;
    }
    for (uint32_t d = 0; d < n_dims; d++) word[n++] = (uint64_t)dim[d];
    return hash_bytes(word, n * sizeof word[0]);
}

Hash128 value_leaf(const char *kind, uint64_t number)
{
    uint64_t word[2] = {hash_bytes(kind, strlen(kind)).lo, number};
    return hash_bytes(word, sizeof word);
}

Hash128 value_norm(Hash128 gradient)
{
    return value_of_op(OP_sumsq, 0, &gradient, 1, 0, 0, NULL);
}

Hash128 value_clip(Hash128 norm, double clip)
{
    uint64_t key;
    memcpy(&key, &clip, sizeof key);
    return value_of_op(OP_clip_coef, key, &norm, 1, 0, 0, NULL);
}

uint64_t value_key(const Verifier *v, AttrsId attrs, uint32_t mb)
{
    bool draws = graph_attrs_at(v->g, attrs)->drop > 0;
    return v->attrs_key[attrs] ^ (draws ? value_leaf("random numbers", mb).lo : 0);
}

Hash128 value_contribution(const Verifier *v, NodeId node, uint32_t j, uint32_t mb)
{
    const Node *n = &v->g->nodes.at[node];
    Hash128 in[MAX_IN];
    const bool source = op_info(n->op)->flags & OP_SOURCE;
    if (source) in[0] = value_leaf("micro-batch", mb);
    for (uint32_t i = 0; i < n->n_in; i++) in[i] = value_of_tensor(v, n->in[i], mb);
    if (n->op == OP_pass || n->op == OP_cast) return in[0];
    const Tensor *out = &v->g->tensors.at[n->out[j]];
    return value_of_op(n->op, value_key(v, n->attrs, mb), in, source ? 1 : n->n_in, j, out->n_dims,
                       out->dim);
}

const char *value_name(Verifier *v, Hash128 vn)
{
    const Graph *g = v->g;
    if (value_is_zero(vn)) return "zeros";
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (value_same(v->sum[t], vn) && v->n_mb > 1 && g->tensors.at[t].role != ROLE_param)
            return arena_print(v->arena, "%s summed over the micro-batches", g->tensors.at[t].name);
        for (uint32_t mb = 0; mb < v->n_mb; mb++)
            if (value_same(value_of_tensor(v, t, mb), vn))
                return g->tensors.at[t].role == ROLE_param || v->n_mb == 1
                           ? g->tensors.at[t].name
                           : arena_print(v->arena, "%s of micro-batch %u", g->tensors.at[t].name,
                                         mb);
    }
    return "a value that is not in the graph";
}

const char *value_shape_text(Verifier *v, uint32_t shape)
{
    const Shape *s = value_shape_at(v, shape);
    Str text = str_in(v->arena);
    str_add(&text, "[");
    for (int d = 0; d < s->n_dims; d++)
        str_print(&text, "%s%lld", d ? "," : "", (long long)s->dim[d]);
    str_print(&text, "] {%s}", layout_text(v->arena, &v->plan->mesh, &s->layout));
    return str_text(&text);
}

const char *value_difference(Verifier *v, TensorId t, Hash128 is)
{
    Hash128 want = v->sum[t];
    if (value_is_zero(is)) return ": it is still zero";
    if (value_same(is, value_add(want, want))) return ": it was added twice";
    for (uint32_t mb = 0; mb < v->n_mb; mb++) {
        Hash128 one = value_of_tensor(v, t, mb);
        if (value_same(is, value_add(want, one)))
            return arena_print(v->arena, ": micro-batch %u was added twice", mb);
        if (value_same(is, value_minus(want, one)))
            return arena_print(v->arena, ": micro-batch %u is missing", mb);
    }
    for (NodeId id = v->g->n_forward + 1; id < v->g->nodes.n; id++)
        for (uint32_t j = 0; j < v->g->nodes.at[id].n_out; j++) {
            if (v->g->nodes.at[id].out[j] != t) continue;
            for (uint32_t mb = 0; mb < v->n_mb; mb++) {
                Hash128 one = value_contribution(v, id, j, mb);
                bool twice = value_same(is, value_add(want, one));
                if (!twice && !value_same(is, value_minus(want, one))) continue;
                return arena_print(v->arena,
                                   ": the contribution of node %u (%s, micro-batch %u) %s", id,
                                   op_info(v->g->nodes.at[id].op)->name, mb,
                                   twice ? "was added twice" : "is missing");
            }
        }
    return "";
}
