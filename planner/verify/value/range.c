/* Checks ops on one parameter of a flat buffer (several parameters behind each other, as in FSDP):
 * amax_range finds its largest magnitude, quantise_range makes its 8-bit form. The graph has these
 * ops for the whole parameter. In the program, a rank does this work for the elements of the
 * parameter that lie in its shard. */
#include <assert.h>

#include "planner/verify/value/value.h"

/* Returns the entry (one parameter) of `val` that covers exactly elements [lo, hi), as the
 * attributes of instruction pc say. Reports an error and returns NULL if there is none. */
static const ValueEntry *entry_of_range(Verifier *v, Pc pc, const Val *val)
{
    const Attrs *a = verify_attrs(v, pc);
    ValueEntry single;
    uint32_t n;
    const ValueEntry *entries = value_entries(v, val, &single, &n);
    for (uint32_t i = 0; val->list && i < n; i++)
        if (a->lo >= 0 && entries[i].lo == (uint64_t)a->lo &&
            entries[i].lo + entries[i].n == (uint64_t)a->hi && !value_is_zero(entries[i].vn))
            return &entries[i];
    verify_report(v, "verify-layout", pc, "elements %lld to %lld must belong to one parameter",
                  (long long)a->lo, (long long)a->hi);
    return NULL;
}

static Hash128 amax_of(const Verifier *v, const ValueEntry *p)
{
    return value_of_op(OP_amax, v->attrs_key[0], &p->vn, 1, 0, 0, NULL);
}

static const Shape *shape_of(Verifier *v, BufferId b)
{
    return value_shape_at(v, v->canon[v->p->buffers.at[b].shape]);
}

void value_amax_range(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    BufferId to = program_arg(v->p, in, 1);
    Val val = value_read(v, pc, program_arg(v->p, in, 0), "input", 0), out = {.bad = true};
    const ValueEntry *p = val.bad ? NULL : entry_of_range(v, pc, &val);
    if (p) {
        const Layout *flat = &value_shape_at(v, val.shape)->layout;
        const Layout *own = &value_shape_at(v, p->shape)->layout;
        AxisSet parts = (AxisSet)(layout_axes_split(flat, -1) | layout_axes_split(own, -1));
        const Layout *is = &shape_of(v, to)->layout;
        bool fits = !layout_axes_partial(flat);
        for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++)
            fits = fits && is->on[a] == (parts >> a & 1 ? PARTIAL_MAX : WHOLE);
        if (!fits)
            verify_report(v, "verify-layout", pc,
                          "the largest magnitude of a rank's part on %s has the wrong layout %s",
                          mesh_axes_text(v->arena, &v->plan->mesh, parts),
                          value_shape_text(v, v->canon[v->p->buffers.at[to].shape]));
        out = (Val){.bad = !fits, .vn = amax_of(v, p)};
    }
    value_write(v, pc, to, out);
    if (verify_n_args(in) < in->args.n) /* the scratch memory holds no value afterwards */
        value_write(v, pc, program_arg(v->p, in, 2), (Val){.vn = value_leaf("scratch", pc)});
}

/* Returns the value of the whole buffer: entries of zeros, except the quantised entry. */
static Val quantised(Verifier *v, Pc pc, const Val *x, const ValueEntry *p, const Val *amax)
{
    ValueEntry single;
    uint32_t n;
    const ValueEntry *entries = value_entries(v, x, &single, &n);
    ValueEntry *made = arena_array(v->arena, n, sizeof *made);
    const Shape *s = value_shape_at(v, p->shape);
    Hash128 in[2] = {p->vn, amax->vn};
    for (uint32_t i = 0; i < n; i++) {
        made[i] = entries[i];
        made[i].vn = (Hash128){0, 0};
        if (&entries[i] == p)
            made[i].vn = value_of_op(OP_quantise, v->attrs_key[v->p->code.at[pc].attrs], in, 2, 0,
                                     s->n_dims, s->dim);
    }
    return (Val){.list = value_add_list(v, made, n)};
}

void value_quantise_range(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    BufferId to = program_arg(v->p, in, 2);
    Val x = value_read(v, pc, program_arg(v->p, in, 0), "input", 0);
    Val amax = value_read(v, pc, program_arg(v->p, in, 1), "input", 1), out = {.bad = true};
    const ValueEntry *p = x.bad || amax.bad ? NULL : entry_of_range(v, pc, &x);
    uint32_t shape = v->canon[v->p->buffers.at[to].shape];
    if (p && layout_axes_partial(&value_shape_at(v, amax.shape)->layout)) {
        verify_report(v, "verify-layout", pc,
                      "input 1 %s is the maximum of only one rank's part, but is read as the "
                      "maximum of all ranks",
                      value_shape_text(v, amax.shape));
    } else if (p && !value_same(amax.vn, amax_of(v, p))) {
        verify_report(v, "verify-scale", pc, "%s is scaled by %s", value_name(v, p->vn),
                      value_name(v, amax.vn));
    } else if (p && shape != x.shape) {
        verify_report(v, "verify-layout", pc, "the output %s must have the layout of the input %s",
                      value_shape_text(v, shape), value_shape_text(v, x.shape));
    } else if (p) {
        Val old = {.bad = false};
        if (verify_accumulates(v, in, 0)) old = value_read(v, pc, to, "sum", 0);
        out = quantised(v, pc, &x, p, &amax);
        out.shape = shape;
        out.bytes = v->p->buffers.at[to].bytes;
        out.dtype = (uint8_t)v->p->buffers.at[to].dtype;
        if (verify_accumulates(v, in, 0)) out = value_sum(v, pc, &old, &out);
    }
    value_write(v, pc, to, out);
    if (verify_n_args(in) < in->args.n)
        value_write(v, pc, program_arg(v->p, in, 3), (Val){.vn = value_leaf("scratch", pc)});
}
