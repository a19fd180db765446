/* Computes the values of the graph as 128-bit hashes. The hash of a sum is the sum of the hashes of
 * its terms. So a program's gradient has the same hash as the graph's gradient only if each
 * contribution was added exactly once. */
#include <assert.h>
#include <string.h>

#include "planner/verify/value/value.h"

Hash128 value_step_mean(const Verifier *v, uint32_t j)
{
    Hash128 in[2] = {v->sum[v->g->loss], v->sum[graph_count(v->g)]};
    return value_of_op(OP_step_mean, 0, in, 2, j, 0, NULL);
}

/* Hashes the attributes that affect a value. Leaves out attributes that only say how the work is
 * divided: which part an instruction computes, and whether it adds to its output. */
static void hash_attrs(Verifier *v)
{
    v->attrs_key = arena_array(v->arena, v->g->attrs.n + 1, sizeof *v->attrs_key);
    for (AttrsId i = 0; i < v->g->attrs.n; i++) {
        Attrs a = v->g->attrs.at[i];
        a.parts = a.dim = a.accumulate = a.reduce = 0;
        if (a.rows == 0)
            a.lo = a.hi = 0; /* if `rows` is set, lo and hi are pairs of a rotation, not a range */
        v->attrs_key[i] = hash_bytes(&a, sizeof a).lo;
    }
}

static uint32_t slot_of(Hash128 vn, uint32_t n)
{
    return (uint32_t)(vn.lo & (n - 1));
}

static void add_leaves(Verifier *v)
{
    v->n_leaf_slots = 16;
    while (v->n_leaf_slots < 2 * v->g->tensors.n) v->n_leaf_slots *= 2;
    v->leaf_slots = arena_array(v->arena, v->n_leaf_slots, sizeof *v->leaf_slots);
    for (TensorId t = 1; t < v->g->tensors.n; t++) {
        const Role role = v->g->tensors.at[t].role;
        if (role != ROLE_param && role != ROLE_state) continue;
        Hash128 leaf = value_leaf(role == ROLE_param ? "parameter" : "state", t);
        for (uint32_t mb = 0; mb < v->n_mb; mb++) v->vn[(size_t)t * v->n_mb + mb] = leaf;
        v->known[t] = 1;
        if (role == ROLE_state) continue;
        uint32_t s = slot_of(leaf, v->n_leaf_slots);
        while (v->leaf_slots[s]) s = (s + 1) & (v->n_leaf_slots - 1);
        v->leaf_slots[s] = t;
    }
}

TensorId value_param(const Verifier *v, Hash128 leaf)
{
    for (uint32_t s = slot_of(leaf, v->n_leaf_slots); v->leaf_slots[s];
         s = (s + 1) & (v->n_leaf_slots - 1))
        if (value_same(value_of_tensor(v, v->leaf_slots[s], 0), leaf)) return v->leaf_slots[s];
    return 0;
}

static bool inputs_known(Verifier *v, NodeId id, const bool *read)
{
    const Node *n = &v->g->nodes.at[id];
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (v->known[n->in[i]]) continue;
        verify_report(v, "verify-layout", 0, "graph node %u (%s) reads %s before any node makes it",
                      id, op_info(n->op)->name, v->g->tensors.at[n->in[i]].name);
        return false;
    }
    for (uint32_t j = 0; j < n->n_out; j++) {
        if (!read[n->out[j]]) continue;
        verify_report(v, "verify-layout", 0,
                      "graph node %u (%s) adds to %s, but another node has already read it", id,
                      op_info(n->op)->name, v->g->tensors.at[n->out[j]].name);
        return false;
    }
    return true;
}

/* Marks all tensors with a value as sums: the walk ended early, and a node that it did not reach
 * may contribute to any of them. */
static void may_be_sums(Verifier *v)
{
    for (TensorId t = 1; t < v->g->tensors.n; t++)
        if (v->known[t]) v->known[t] = 2;
}

static void evaluate(Verifier *v)
{
    bool *read = arena_array(v->arena, v->g->tensors.n, sizeof *read);
    for (NodeId id = 1; id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        if (!inputs_known(v, id, read)) {
            may_be_sums(v);
            return;
        }
        for (uint32_t i = 0; i < n->n_in; i++) read[n->in[i]] = true;
        for (uint32_t j = 0; j < n->n_out; j++) {
            TensorId t = n->out[j];
            for (uint32_t mb = 0; mb < v->n_mb; mb++) {
                Hash128 *at = &v->vn[(size_t)t * v->n_mb + mb];
                Hash128 add = value_contribution(v, id, j, mb);
                *at = v->known[t] ? value_add(*at, add) : add;
            }
            v->known[t] = v->known[t] ? 2 : 1;
        }
    }
}

/* Returns the number of tokens in a step, or of groups if the loss is a mean over groups. */
static double loss_units(const Verifier *v)
{
    const StepInfo *step = &v->plan->step;
    if (step->denominator != DENOMINATOR_microbatch_mean) return step->global_tokens;
    return step->group > 0 ? (double)step->global_batch / (double)step->group : 0;
}

/* Checks that the loss node is of the kind that batch.denominator requires, and counts its
 * tokens. */
static void check_denominator(Verifier *v, const Node *n)
{
    const StepInfo *step = &v->plan->step;
    const Attrs *a = graph_attrs_at(v->g, n->attrs);
    bool groups = step->denominator == DENOMINATOR_microbatch_mean;
    if (!groups && op_dim(n->op, 0, INDEX_tokens) < 0) return; /* every point of a field counts */
    const int64_t samples = v->g->tensors.at[n->in[0]].dim[op_dim(n->op, 0, INDEX_samples)];
    if (groups != op_means_groups(n->op) ||
        (a->count_all != 0) != (step->denominator == DENOMINATOR_all))
        verify_report(v, "verify-scale", 0,
                      "the loss is not divided by the count that `step` states");
    if (groups && (step->group < 1 || a->group != step->group || samples % step->group != 0))
        verify_report(v, "verify-scale", 0,
                      "the loss is averaged over groups of %lld sequences, but `step` states %lld",
                      (long long)a->group, (long long)step->group);
}

/* Checks a node that computes the loss, or the loss of some of the tokens. It must multiply by 1 /
 * tokens of the whole step, or by 1 / groups if the loss is a mean over groups. Adds the count of
 * its tokens to *tokens. */
static void check_loss(Verifier *v, const Node *n, int64_t *tokens)
{
    check_denominator(v, n);
    double scale = v->loss_scale = graph_attrs_at(v->g, n->attrs)->scale;
    double units = loss_units(v), product = scale * units;
    if (!(product > 1 - 1e-9 && product < 1 + 1e-9))
        verify_report(v, "verify-scale", 0, "the loss is scaled by %.17g, but 1 / %s is %.17g",
                      scale, op_means_groups(n->op) ? "groups" : "global tokens", 1 / units);
    static const IndexRole of_points[] = {INDEX_samples, INDEX_tokens, INDEX_height, INDEX_width};
    int64_t points = 1;
    for (uint32_t i = 0; i < sizeof of_points / sizeof *of_points; i++) {
        const int d = op_dim(n->op, 0, of_points[i]);
        if (d >= 0) points *= v->g->tensors.at[n->in[0]].dim[d];
    }
    *tokens += points;
}

/* Checks that the loss counts each token or group of the step once. */
static void check_loss_scale(Verifier *v)
{
    const StepInfo *step = &v->plan->step;
    int64_t tokens = 0;
    for (NodeId id = v->g->loss ? v->g->tensors.at[v->g->loss].producer : 0;
         id && id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        if (op_makes_loss(n->op) && n->out[0] == v->g->loss) check_loss(v, n, &tokens);
    }
    if (!tokens) return;
    double all = (double)tokens * step->n_microbatches;
    if (all != step->global_tokens)
        verify_report(v, "verify-scale", 0,
                      "%u micro-batches of %lld tokens are not the %.17g tokens of `step`",
                      step->n_microbatches, (long long)tokens, step->global_tokens);
}

/* ---- random numbers ---- */

static bool may_draw(OpKind op)
{
    return op_info(op)->flags & OP_DRAWS;
}

/* True for a backward node, such as dropout's, that draws the random numbers of its forward node
 * again. */
static bool draws_for_its_forward(const Verifier *v, NodeId id)
{
    const Node *n = &v->g->nodes.at[id];
    if (!v->g->n_forward || id <= v->g->n_forward) return n->forward == 0;
    if (!n->forward || n->forward > v->g->n_forward) return false;
    return v->g->tensors.at[v->g->nodes.at[n->forward].out[0]].grad == n->in[0];
}

static void check_draw(Verifier *v, NodeId id, NodeId *drawn_by)
{
    const Node *n = &v->g->nodes.at[id];
    const Attrs *a = graph_attrs_at(v->g, n->attrs),
                *f = graph_attrs_at(v->g, v->g->nodes.at[n->forward].attrs);
    const char *name = op_info(n->op)->name;
    if ((a->drop > 0 || may_draw(n->op)) && !draws_for_its_forward(v, id)) {
        verify_report(v, "verify-purity", 0,
                      "graph node %u (%s) repeats the random numbers of node %u, but must repeat "
                      "those of the node whose gradient it computes",
                      id, name, n->forward);
        return;
    }
    if (n->forward && (a->drop != f->drop || a->site != f->site)) {
        verify_report(v, "verify-purity", 0,
                      "graph node %u (%s) draws with p = %g at site %lld, but its forward node "
                      "draws with p = %g at site %lld",
                      id, name, a->drop, (long long)a->site, f->drop, (long long)f->site);
        return;
    }
    if (a->drop == 0 || n->forward) return;
    if (!may_draw(n->op) || !(a->drop > 0 && a->drop < 1)) {
        verify_report(v, "verify-purity", 0, "graph node %u (%s) cannot drop with p = %g", id, name,
                      a->drop);
        return;
    }
    if (a->site < 1 || a->site > v->g->nodes.n) {
        verify_report(v, "verify-purity", 0,
                      "graph node %u (%s) draws at site %lld, but needs a site of its own", id,
                      name, (long long)a->site);
        return;
    }
    NodeId *other = &drawn_by[a->site];
    if (*other)
        verify_report(
            v, "verify-purity", 0,
            "graph nodes %u and %u draw the same random numbers, because both have site %lld",
            *other, id, (long long)a->site);
    *other = id;
}

/* Checks random numbers. They are made from a seed and the `site` of the op. So no two forward
 * nodes may have the same site, and a gradient must have the site of its forward node. */
static void check_draws(Verifier *v)
{
    NodeId *drawn_by = arena_array(v->arena, v->g->nodes.n + 1, sizeof *drawn_by);
    for (NodeId id = 1; id < v->g->nodes.n; id++) check_draw(v, id, drawn_by);
}

void verify_graph_values(Verifier *v)
{
    const Graph *g = v->g;
    v->n_mb = v->plan->step.n_microbatches;
    v->vn = arena_array(v->arena, (size_t)g->tensors.n * v->n_mb, sizeof *v->vn);
    v->known = arena_array(v->arena, g->tensors.n, sizeof *v->known);
    v->sum = arena_array(v->arena, g->tensors.n, sizeof *v->sum);
    v->has_gradients = g->n_forward && g->n_forward + 1 < g->nodes.n;
    hash_attrs(v);
    add_leaves(v);
    evaluate(v);
    for (TensorId t = 1; t < g->tensors.n; t++)
        for (uint32_t mb = 0; mb < v->n_mb; mb++)
            v->sum[t] = value_add(v->sum[t], value_of_tensor(v, t, mb));
    for (TensorId t = 1; t < g->tensors.n && v->has_gradients; t++) {
        const Tensor *p = &g->tensors.at[t];
        if (p->role != ROLE_param) continue;
        if (p->init.kind == INIT_none)
            verify_report(v, "verify-coverage", 0, "parameter %s has no initialiser", p->name);
        if (p->frozen) continue;
        if (!p->grad || !v->known[p->grad])
            verify_report(v, "verify-coverage", 0, "parameter %s has no gradient in the graph",
                          p->name);
        else if (!graph_balances(g, p)) /* the gradient of such a bias is a number of choices, not a
                                           derivative */
            v->norm = value_add(v->norm, value_norm(v->sum[p->grad]));
    }
    check_loss_scale(v);
    check_draws(v);
    verify_scales(v);
    verify_tiles(v);
    verify_graph_state(v);
}
