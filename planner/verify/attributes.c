/* Checks the attributes that follow from the rest of the plan, if no value of a proof depends on
 * them. attrs.def says which attributes these are. The proofs of values compare the attributes of
 * an instruction with those of its graph node. */
#include <inttypes.h>
#include <string.h>

#include "planner/verify/private.h"

#define RULE "verify-metadata"

/* ---- graph nodes ---- */

static bool both_have(OpKind a, OpKind b, uint32_t attr)
{
    AttrBounds ignored;
    return op_attr_bounds(a, attr, &ignored) && op_attr_bounds(b, attr, &ignored);
}

/* Reports each attribute that both nodes have, but with different values. `of` is the node from
 * which node `id` takes its attributes. */
static void check_equal(Verifier *v, NodeId id, NodeId of)
{
    const Node *n = &v->g->nodes.at[id], *from = &v->g->nodes.at[of];
    if (n->attrs == from->attrs) return;
    const Attrs *is = graph_attrs_at(v->g, n->attrs), *was = graph_attrs_at(v->g, from->attrs);
    for (uint32_t a = 0; a < ATTRS; a++) {
        const double x = attr_get(is, a), want = attr_get(was, a);
        if (x == want || a == ATTR_accumulate || !both_have(n->op, from->op, a)) continue;
        verify_report(v, RULE, 0,
                      "graph node %" PRIu32 " (%s) states %s=%.17g, but node %" PRIu32
                      " (%s), to which it belongs, states %.17g",
                      id, op_info(n->op)->name, attr_name(a), x, of, op_info(from->op)->name, want);
    }
    if (both_have(n->op, from->op, ATTR_rope_dims) &&
        memcmp(is->rope_pair, was->rope_pair, sizeof is->rope_pair) != 0)
        verify_report(v, RULE, 0,
                      "graph node %" PRIu32 " (%s) states another rope_pair than node %" PRIu32, id,
                      op_info(n->op)->name, of);
}

/* Products of 8-bit and 4-bit numbers have other scales in the backward pass. The proof of scales
 * checks them. */
static bool has_scales(OpKind op)
{
    const OpInfo *info = op_info(op);
    return info->scaling != SCALING_none || info->flags & OP_QUANTISES;
}

/* Returns the node whose attributes node n must repeat; 0: there is none. For sizes of experts, it
 * is the node that made an input of n. For groups of channels, it is the node that summed the same
 * channels. */
static NodeId chosen_by(const Graph *g, const Node *n)
{
    AttrBounds group;
    const bool groups = op_attr_bounds(n->op, ATTR_group, &group) && !group.is_given;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const NodeId id = g->tensors.at[n->in[i]].producer;
        const Node *maker = &g->nodes.at[id];
        if (both_have(n->op, maker->op, ATTR_capacity)) return id;
        if (groups && maker->n_in > 0 && maker->in[0] == n->in[0] &&
            both_have(n->op, maker->op, ATTR_group) && both_have(n->op, maker->op, ATTR_eps))
            return id;
    }
    return 0;
}

static void check_nodes(Verifier *v)
{
    for (NodeId id = 1; id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        if (graph_attrs_at(v->g, n->attrs)->accumulate != 0)
            verify_report(v, RULE, 0,
                          "graph node %" PRIu32 " (%s) states accumulate, but only an instruction "
                          "can add to its output",
                          id, op_info(n->op)->name);
        const Node *forward = &v->g->nodes.at[n->forward];
        if (n->forward && !has_scales(n->op) && !has_scales(forward->op))
            check_equal(v, id, n->forward);
        const NodeId chooser = chosen_by(v->g, n);
        if (chooser) check_equal(v, id, chooser);
    }
}

/* ---- registered memory ---- */

/* Returns, for each unit, true if it uses memory in turn with other units. Sets *stay if this
 * memory holds only gradients. The weights of all units then stay gathered. */
static bool *find_in_turn(Verifier *v, bool *stay)
{
    const Program *p = v->p;
    bool *in_turn = arena_array(v->arena, v->g->units.n, sizeof *in_turn), of[2] = {false, false};
    bool any = false;
    for (BufferId b = 1; b < p->buffers.n; b++)
        any = any || (!p->buffers.at[b].parent && verify_is_room(p, b));
    for (Pc pc = 1; any && pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            const BufferId b = program_arg(p, &p->code.at[pc], i);
            if (!verify_is_room(p, b)) continue;
            in_turn[p->code.at[pc].unit] = true;
            of[p->buffers.at[program_root(p, b, NULL)].category == CATEGORY_gathered] = true;
        }
    *stay = of[0] && !of[1];
    return in_turn;
}

/* Checks that the plan registers either all memory that units use in turn and all weights that stay
 * gathered, or none of them. No other collective may claim registered memory. */
static void check_registered(Verifier *v, const Instr **first)
{
    const Program *p = v->p;
    bool stay = false;
    const bool *in_turn = find_in_turn(v, &stay);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->op != OP_all_gather && in->op != OP_reduce_scatter) continue;
        const bool may = in->unit && (in_turn[in->unit] || (stay && in->op == OP_all_gather));
        const int64_t is = verify_attrs(v, pc)->registered;
        if (may && *first == NULL) *first = in;
        const int64_t should = may ? graph_attrs_at(v->g, (*first)->attrs)->registered : 0;
        if (is != should)
            verify_report(v, RULE, pc, "states registered=%lld, but %s", (long long)is,
                          may ? "another collective on memory of this kind differs"
                              : "its memory belongs to one unit");
    }
}

void verify_attributes(Verifier *v)
{
    const Instr *first = NULL;
    check_nodes(v);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        check_registered(v, &first);
    }
    v->p = NULL;
}
