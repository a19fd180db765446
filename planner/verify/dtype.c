/* Checks the dtype of each value. The graph gives the dtype of each tensor, of each parameter
 * between steps, and of sums of gradients. A program must use exactly these. Under `--verify`, real
 * numbers have fp64 instead; in some plans 8-bit numbers are exempt from this. Only casts of the
 * graph and the dtypes of a unit may change a dtype. */
#include "planner/verify/private.h"

#define RULE "verify-dtype"

/* Sets *all if every program has fp64 for all real numbers, and *but_eight_bits if every program
 * has fp64 for all real numbers except 8-bit ones. */
static void find_doubles(const Plan *plan, bool *all, bool *but_eight_bits)
{
    *all = *but_eight_bits = true;
    for (uint32_t i = 0; i < plan->programs.n && *but_eight_bits; i++)
        for (BufferId b = 1; b < plan->programs.at[i].buffers.n && *but_eight_bits; b++) {
            DType t = plan->programs.at[i].buffers.at[b].dtype;
            if (!dtype_is_real(t) || t == DT_f64 || t == DT_f64x2) continue;
            *all = false;
            if (!dtype_is_eight_bits(t)) *but_eight_bits = false;
        }
}

typedef struct Typing {
    Verifier *v;
    const Program *p;
    bool all_double, double_but_eight_bits;
} Typing;

static DType mapped(const Typing *y, DType t)
{
    bool is_double = y->all_double || (y->double_but_eight_bits && !dtype_is_eight_bits(t));
    if (!is_double || !dtype_is_real(t)) return t;
    return dtype_numbers(t) == 2 ? DT_f64x2 : DT_f64;
}

static const Unit *unit_of(const Typing *y, BufferId b)
{
    uint64_t offset;
    UnitId u = y->p->buffers.at[b].unit;
    if (!u) u = y->p->buffers.at[program_root(y->p, b, &offset)].unit;
    return u ? &y->v->g->units.at[u] : NULL;
}

/* Reports buffer b unless its dtype is `want` or `other`. DT_none means that there is no second
 * dtype. */
static void expect(const Typing *y, Pc pc, BufferId b, const char *what, const char *name,
                   DType want, DType other)
{
    DType is = y->p->buffers.at[b].dtype;
    want = mapped(y, want);
    if (is == want || (other != DT_none && is == mapped(y, other))) return;
    verify_report(y->v, RULE, pc, "%s %s has dtype %s in buffer %u, but the graph states %s", what,
                  name, dtype_name(is), b, dtype_name(want));
}

static void check_persistent(const Typing *y, BufferId b)
{
    const Buffer *at = &y->p->buffers.at[b];
    const Unit *unit = at->unit ? &y->v->g->units.at[at->unit] : NULL;
    if (at->parent || !at->persistent || !unit) return;
    if (at->category == CATEGORY_parameter)
        expect(y, 0, b, "between steps, unit", unit->name, unit->rest_dtype, DT_none);
    if (at->category == CATEGORY_gathered)
        expect(y, 0, b, "in use, unit", unit->name, unit->dtype, DT_none);
    if (at->category == CATEGORY_gradient)
        expect(y, 0, b, "the gradient of unit", unit->name, unit->reduce_dtype, DT_none);
    if (at->category == CATEGORY_optimizer)
        expect(y, 0, b, "the moments of unit", unit->name, unit->state_dtype, DT_none);
}

/* Checks that the instruction computes graph node n in the node's dtypes. */
static void check_node(const Typing *y, Pc pc, const Instr *in, const Node *n)
{
    const Graph *g = y->v->g;
    const bool border = op_is_border(in->op);
    for (uint32_t i = 0; i < (uint32_t)n->n_in + n->n_out && i < verify_n_args(in); i++) {
        bool reads = i < n->n_in;
        const Tensor *t = &g->tensors.at[reads ? n->in[i] : n->out[i - n->n_in]];
        DType want = t->dtype, other = DT_none;
        if (graph_is_param_gradient(g, t)) {
            /* the dtype in which the gradient is summed, or that of a copy */
            want = g->tensors.at[t->grad_of].reduce_dtype;
            other = g->tensors.at[t->grad_of].dtype;
        }
        const uint32_t arg = i + (!reads && border); /* for the border of a convolution, the strips
                                                        come after the node's inputs */
        expect(y, pc, program_arg(y->p, in, arg), reads ? "input" : "output", t->name, want, other);
    }
    if (border) {
        const Tensor *x = &g->tensors.at[n->in[0]];
        expect(y, pc, program_arg(y->p, in, in->n_in - 1u), "strips of", x->name, x->dtype,
               DT_none);
    }
}

static bool is_of_unit(const Typing *y, const Unit *unit, DType t)
{
    return t == mapped(y, unit->dtype) || t == mapped(y, unit->rest_dtype) ||
           t == mapped(y, unit->reduce_dtype);
}

/* Checks a change of dtype. Only casts of the graph and the dtypes of a unit allow it. */
static void check_change(const Typing *y, Pc pc, const Instr *in)
{
    BufferId from = program_arg(y->p, in, 0), to = program_arg(y->p, in, in->n_in);
    DType a = y->p->buffers.at[from].dtype, b = y->p->buffers.at[to].dtype;
    const Unit *unit = unit_of(y, to);
    if (!unit) unit = unit_of(y, from);
    if (!unit && in->unit) unit = &y->v->g->units.at[in->unit];
    if (a == b || (unit && is_of_unit(y, unit, a) && is_of_unit(y, unit, b))) return;
    verify_report(y->v, RULE, pc, "converts to %s from %s, but the graph has no such conversion",
                  dtype_name(b), dtype_name(a));
}

/* Checks that weights are gathered in their dtype of use, and gradients reduced in the dtype of
 * their sum. */
static void check_comm(const Typing *y, Pc pc, const Instr *in)
{
    BufferId b = program_arg(y->p, in, 0);
    const Unit *unit = in->unit ? unit_of(y, b) : NULL;
    if (!unit || y->p->purpose == PURPOSE_gather) return;
    if (in->op == OP_all_gather)
        expect(y, pc, b, "in use, unit", unit->name, unit->dtype, DT_none);
    else
        expect(y, pc, b, "the gradient of unit", unit->name, unit->reduce_dtype, DT_none);
}

static void check_update(const Typing *y, Pc pc, const Instr *in)
{
    BufferId rest = program_arg(y->p, in, 0), grad = program_arg(y->p, in, in->n_in - 2u);
    const Unit *unit = unit_of(y, rest);
    if (!unit) return;
    expect(y, pc, rest, "between steps, unit", unit->name, unit->rest_dtype, DT_none);
    expect(y, pc, grad, "the gradient of unit", unit->name, unit->reduce_dtype, DT_none);
}

static void check_fill(const Typing *y, Pc pc, const Instr *in)
{
    uint64_t offset;
    BufferId b = program_arg(y->p, in, in->n_in), root = program_root(y->p, b, &offset);
    DType is = y->p->buffers.at[b].dtype, want = y->p->buffers.at[root].dtype;
    if (is != want)
        verify_report(y->v, RULE, pc,
                      "fills a part of buffer %u with %s, but the buffer has dtype %s", root,
                      dtype_name(is), dtype_name(want));
}

static void check_instr(void *self, Pc pc)
{
    const Typing *y = self;
    const Instr *in = &y->p->code.at[pc];
    const OpInfo *info = op_info(in->op);
    const Node *n = in->origin ? &y->v->g->nodes.at[in->origin] : NULL;
    bool is_node = n && verify_is_of_node(in, n) && in->op != OP_pass;
    if (info->class_ == OP_CLASS_comm)
        check_comm(y, pc, in);
    else if (is_node)
        check_node(y, pc, in, n);
    else if (info->flags & OP_UPDATES)
        check_update(y, pc, in);
    else if (in->op == OP_cast || in->op == OP_pass)
        check_change(y, pc, in);
    else if (in->op == OP_fill)
        check_fill(y, pc, in);
    else if (info->flags & OP_RANGE && op_is_by_scalar(in->op) &&
             unit_of(y, program_arg(y->p, in, 2)))
        expect(y, pc, program_arg(y->p, in, 2), "in use, unit",
               unit_of(y, program_arg(y->p, in, 2))->name,
               unit_of(y, program_arg(y->p, in, 2))->dtype, DT_none);
}

void verify_dtypes(Verifier *v)
{
    Typing y = {.v = v, .p = v->p};
    find_doubles(v->plan, &y.all_double, &y.double_but_eight_bits);
    for (BufferId b = 1; b < v->p->buffers.n; b++) check_persistent(&y, b);
    verify_each_instr(v, check_instr, &y);
}
