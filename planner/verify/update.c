/* Checks the end of a step. The squared norm must count each element once, and the factor for
 * clipping must follow from all elements. The optimizer must update each parameter once, with its
 * whole gradient. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/verify/value/value.h"

static TensorId param_with_gradient(const Verifier *v, Hash128 vn)
{
    for (TensorId t = 1; t < v->g->tensors.n; t++)
        if (v->g->tensors.at[t].role == ROLE_param && v->g->tensors.at[t].grad &&
            value_same(v->sum[v->g->tensors.at[t].grad], vn))
            return t;
    return 0;
}

/* Returns the axes over which the squares of an entry must be summed so that all elements of the
 * tensor count. */
static AxisSet norm_axes(const Verifier *v, const Val *val, const ValueEntry *entry)
{
    AxisSet flat = val->list ? layout_axes_split(&value_shape_at(v, val->shape)->layout, -1) : 0;
    /* if two stages have a parameter, only one of them counts it */
    return (AxisSet)(flat | v->stages |
                     layout_axes_split(&value_shape_at(v, entry->shape)->layout, -1));
}

/* Checks that a sum begins and ends where a value begins or ends. Padding is zero, so the sum
 * itself does not tell whether it counts padding, too. */
static void check_range(Verifier *v, Pc pc, const ValueEntry *entries, uint32_t n)
{
    const int64_t bound[] = {verify_attrs(v, pc)->lo, verify_attrs(v, pc)->hi};
    for (int k = 0; k < 2; k++) {
        const uint64_t at = (uint64_t)bound[k];
        bool found = at == v->g->units.at[v->p->code.at[pc].unit].elements;
        for (uint32_t i = 0; i < n && !found; i++)
            found = entries[i].lo == at || entries[i].lo + entries[i].n == at;
        if (!found)
            verify_report(v, "verify-scale", pc,
                          "states %s=%lld, but no value begins or ends there", k ? "hi" : "lo",
                          (long long)bound[k]);
    }
}

static Hash128 sum_squares(Verifier *v, Pc pc, const Val *val, AxisSet claimed, bool *bad)
{
    const Attrs *attrs = verify_attrs(v, pc);
    uint64_t lo = attrs->lo > 0 ? (uint64_t)attrs->lo : 0,
             hi = attrs->hi > 0 ? (uint64_t)attrs->hi : 0;
    ValueEntry single;
    uint32_t n;
    Hash128 total = {0, 0};
    const ValueEntry *entries = value_entries(v, val, &single, &n);
    if (!val->list) single.n = (uint64_t)value_shape_at(v, val->shape)->dim[0];
    for (uint32_t i = 0; i < n; i++) {
        const ValueEntry *p = &entries[i];
        if (value_is_zero(p->vn) || p->lo >= hi || p->lo + p->n <= lo) continue;
        if (p->lo < lo || p->lo + p->n > hi) {
            verify_report(v, "verify-scale", pc,
                          "counts elements %llu to %llu, which hold only a part of %s",
                          (unsigned long long)lo, (unsigned long long)hi, value_name(v, p->vn));
            *bad = true;
        }
        if (norm_axes(v, val, p) != claimed) {
            verify_report(
                v, "verify-scale", pc,
                "the squares of %s must be summed over %s, but the layout of the output states %s",
                value_name(v, p->vn),
                mesh_axes_text(v->arena, &v->plan->mesh, norm_axes(v, val, p)),
                mesh_axes_text(v->arena, &v->plan->mesh, claimed));
            *bad = true;
        }
        total = value_add(total, value_norm(p->vn));
    }
    if (!*bad) check_range(v, pc, entries, n);
    return total;
}

void value_sumsq(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    BufferId table = program_arg(v->p, in, 1);
    const Buffer *at = &v->p->buffers.at[table];
    Val val = value_read(v, pc, program_arg(v->p, in, 0), "input", 0);
    const Shape *slot = value_shape_at(v, v->canon[at->shape]);
    bool bad = val.bad;
    if (!bad && layout_axes_partial(&value_shape_at(v, val.shape)->layout)) {
        verify_report(v, "verify-layout", pc, "squares partial sums before they are added up: %s",
                      value_shape_text(v, val.shape));
        bad = true;
    }
    if (slot->n_dims != 1 || slot->dim[0] != 1 || layout_axes_split(&slot->layout, -1)) {
        verify_report(v, "verify-layout", pc, "must write one number, not a buffer of %s",
                      value_shape_text(v, v->canon[at->shape]));
        value_write(v, pc, table, (Val){.bad = true});
        return;
    }
    Val out = {.bad = bad,
               .shape = v->canon[at->shape],
               .bytes = dtype_bytes(at->dtype),
               .dtype = (uint8_t)at->dtype};
    if (!bad) out.vn = sum_squares(v, pc, &val, layout_axes_partial(&slot->layout), &out.bad);
    if (verify_accumulates(v, in, 0)) {
        Val old = value_read(v, pc, table, "sum", 0);
        out = value_sum(v, pc, &old, &out);
    }
    value_write(v, pc, table, out);
}

static bool counts_in_norm(const Verifier *v, TensorId t)
{
    const Tensor *p = &v->g->tensors.at[t];
    return tensor_trains(p) && p->grad && !graph_balances(v->g, p);
}

/* Reports a wrong norm in which one parameter is counted twice and another not at all. */
static bool explain_exchange(Verifier *v, Pc pc, Hash128 is)
{
    for (TensorId t = 1; t < v->g->tensors.n; t++) {
        if (!counts_in_norm(v, t)) continue;
        Hash128 twice = value_add(v->norm, value_norm(v->sum[v->g->tensors.at[t].grad]));
        for (TensorId k = 1; k < v->g->tensors.n; k++) {
            if (!counts_in_norm(v, k)) continue;
            Hash128 other = value_norm(v->sum[v->g->tensors.at[k].grad]);
            if (!value_same(value_add(is, other), twice)) continue;
            verify_report(v, "verify-scale", pc,
                          "the gradient norm counts the gradient of %s twice, but not that of %s",
                          v->g->tensors.at[t].name, v->g->tensors.at[k].name);
            return true;
        }
    }
    return false;
}

static void explain_norm(Verifier *v, Pc pc, Hash128 is)
{
    for (TensorId t = 1; t < v->g->tensors.n; t++) {
        const Tensor *p = &v->g->tensors.at[t];
        if (!counts_in_norm(v, t)) continue;
        Hash128 one = value_norm(v->sum[p->grad]);
        bool missing = value_same(value_add(is, one), v->norm);
        if (!missing && !value_same(value_add(v->norm, one), is)) continue;
        verify_report(v, "verify-scale", pc, "the gradient norm %s %s%s",
                      missing ? "leaves out" : "counts", p->name, missing ? "" : " twice");
        return;
    }
    if (v->g->tensors.n < 20000 && explain_exchange(v, pc, is)) return;
    verify_report(v, "verify-scale", pc,
                  "the gradient norm must count the gradient of each parameter exactly once");
}

/* Checks step_mean. It must divide every gradient once by the number of counted tokens. The graph
 * has already divided by the number of all tokens, so the factor is all / counted. */
void value_mean(Verifier *v, Pc pc)
{
    static const char *const names[] = {"loss", "number of counted tokens"};
    const Instr *in = &v->p->code.at[pc];
    const TensorId of[] = {v->g->loss, graph_count(v->g)};
    double product = verify_attrs(v, pc)->scale * v->loss_scale;
    bool bad = false;
    for (uint32_t i = 0; i < 2; i++) {
        Val x = value_read(v, pc, program_arg(v->p, in, i), "input", i);
        AxisSet unsummed = layout_axes_partial(&value_shape_at(v, x.shape)->layout);
        bad = bad || x.bad;
        if (x.bad) continue;
        if (!of[i] || !value_same(x.vn, v->sum[of[i]]))
            verify_report(v, "verify-scale", pc, "input %u is not the %s of the step%s", i,
                          names[i], of[i] ? value_difference(v, of[i], x.vn) : "");
        else if (v->stages && !x.comm)
            verify_report(v, "verify-scale", pc,
                          "reads a %s that was not summed over pipeline stages", names[i]);
        else if (unsummed)
            verify_report(v, "verify-scale", pc, "reads a %s that was not summed over %s", names[i],
                          mesh_axes_text(v->arena, &v->plan->mesh, unsummed));
    }
    if (!(product > 1 - 1e-9 && product < 1 + 1e-9))
        verify_report(
            v, "verify-scale", pc,
            "multiplies by %.17g a value that was scaled by %.17g, but the product must be 1",
            verify_attrs(v, pc)->scale, v->loss_scale);
    for (uint32_t j = 0; j < 2; j++) {
        Val out = {.bad = bad || !of[1]};
        if (!out.bad) out.vn = value_step_mean(v, j);
        value_write(v, pc, program_arg(v->p, in, 2 + j), out);
    }
}

static void check_factor(Verifier *v, Pc pc)
{
    Val factor = value_read(v, pc, program_arg(v->p, &v->p->code.at[pc], 1), "input", 1);
    if (factor.bad) return;
    if (!v->g->loss || !graph_count(v->g) || !value_same(factor.vn, value_step_mean(v, 1)))
        verify_report(v, "verify-scale", pc,
                      "input 1 must be the factor that turns the sums of the step into means");
    else if (layout_axes_partial(&value_shape_at(v, factor.shape)->layout))
        verify_report(v, "verify-layout", pc, "reads a factor that was not summed over all ranks");
}

void value_clip_coef(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const Attrs *attrs = verify_attrs(v, pc);
    Val table = value_read(v, pc, program_arg(v->p, in, 0), "input", 0);
    bool bad = table.bad;
    ValueEntry single;
    uint32_t n;
    Hash128 total = {0, 0};
    const ValueEntry *entries = value_entries(v, &table, &single, &n);
    for (uint32_t i = 0; i < n; i++) total = value_add(total, entries[i].vn);
    if (!bad && layout_axes_partial(&value_shape_at(v, table.shape)->layout)) {
        verify_report(v, "verify-scale", pc,
                      "reads squares that were not summed over all ranks: %s",
                      value_shape_text(v, table.shape));
        bad = true;
    }
    if (!bad && !value_same(total, v->norm)) {
        explain_norm(v, pc, total);
        total = v->norm;
    }
    check_factor(v, pc);
    const Shape *o = value_shape_at(v, v->canon[v->p->buffers.at[program_arg(v->p, in, 2)].shape]);
    if (layout_axes_partial(&o->layout) || layout_axes_split(&o->layout, -1))
        verify_report(v, "verify-layout", pc, "the clip coefficient must be whole on every rank");
    if (!(attrs->clip >= 0 && attrs->clip < INFINITY))
        verify_report(v, "verify-scale", pc,
                      "clips at %g, but the bound must be finite and not negative", attrs->clip);
    if (v->clip && v->clip->clip != attrs->clip)
        verify_report(v, "verify-scale", pc, "clips at %g, but other programs clip at %g",
                      attrs->clip, v->clip->clip);
    v->clip = attrs;
    value_write(v, pc, program_arg(v->p, in, 2),
                (Val){.bad = bad, .vn = value_clip(total, attrs->clip)});
}

/* ---- the optimizer ---- */

static const ValueEntry *entry_at(const ValueEntry *entries, uint32_t n, uint64_t lo)
{
    uint32_t from = 0, to = n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (entries[middle].lo < lo)
            from = middle + 1;
        else
            to = middle;
    }
    return from < n && entries[from].lo == lo ? &entries[from] : NULL;
}

static bool check_gradient(Verifier *v, Pc pc, TensorId t, const ValueEntry *param,
                           const ValueEntry *grad)
{
    const Tensor *p = &v->g->tensors.at[t];
    Hash128 want = v->sum[p->grad];
    if (!grad || grad->n != param->n || grad->shape != param->shape) {
        verify_report(v, "verify-layout", pc,
                      "the gradient of %s does not have the layout of its parameter", p->name);
        return false;
    }
    if (value_same(grad->vn, want)) return true;
    TensorId other = param_with_gradient(v, grad->vn);
    if (other)
        verify_report(v, "verify-layout", pc, "updates %s with the gradient of %s", p->name,
                      v->g->tensors.at[other].name);
    else
        verify_report(v, "verify-scale", pc,
                      "updates %s with a value that is not its gradient of this step%s", p->name,
                      value_difference(v, p->grad, grad->vn));
    return false;
}

/* Checks that input i is moment i of the parameters in input 0, entry by entry. */
static bool check_state(Verifier *v, Pc pc, uint32_t i, const Val *state, const Val *param)
{
    const Instr *in = &v->p->code.at[pc];
    uint64_t offset;
    BufferId root = program_root(v->p, program_arg(v->p, in, i), &offset);
    UnitId u = v->p->buffers.at[program_root(v->p, program_arg(v->p, in, 0), &offset)].unit;
    if (state->bad || param->bad) return false;
    if (v->p->buffers.at[root].unit != u) {
        verify_report(v, "verify-coverage", pc, "input %u is the state of another unit", i);
        return false;
    }
    ValueEntry one, two;
    uint32_t n, m;
    const ValueEntry *p = value_entries(v, param, &one, &n), *s = value_entries(v, state, &two, &m);
    bool same = state->shape == param->shape;
    for (uint32_t k = 0; same && k < n; k++) {
        TensorId t = value_is_zero(p[k].vn) ? 0 : value_param(v, p[k].vn);
        const ValueEntry *at = n == 1 ? s : entry_at(s, m, p[k].lo);
        same = !t || (at && value_same(at->vn, value_moment(i, t)));
    }
    if (!same)
        verify_report(v, "verify-coverage", pc,
                      "input %u is not the state of the parameters that it updates", i);
    return same;
}

static bool same_rule(const Attrs *a, const Attrs *b)
{
    return a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->eps == b->eps &&
           a->weight_decay == b->weight_decay && a->scale == b->scale;
}

static void check_coefficient(Verifier *v, Pc pc, const Val *coefficient)
{
    if (coefficient->bad) return;
    if (!v->clip || !value_same(coefficient->vn, value_clip(v->norm, v->clip->clip)))
        verify_report(v, "verify-scale", pc,
                      "input %u is not the clip coefficient of the whole norm",
                      v->p->code.at[pc].n_in - 1u);
    else if (layout_axes_partial(&value_shape_at(v, coefficient->shape)->layout))
        verify_report(v, "verify-layout", pc,
                      "reads a clip coefficient that was not summed over all ranks");
}

/* Updates each parameter in `param` with the gradient at the same offset in `grad`. Returns the new
 * weights. */
static Val update_entries(Verifier *v, Pc pc, const Val *param, const Val *grad)
{
    ValueEntry one, two;
    uint32_t n, m;
    const ValueEntry *p = value_entries(v, param, &one, &n), *g = value_entries(v, grad, &two, &m);
    /* `grad` may be a single vector that fills the whole unit and was reduce-scattered as a
     * whole */
    if (param->list && !grad->list && n == 1 && p->lo == 0 &&
        p->n == (uint64_t)value_shape_at(v, grad->shape)->dim[0])
        two.n = p->n, two.shape = p->shape;
    ValueEntry *made = arena_array(v->arena, n, sizeof *made);
    Val out = *param;
    for (uint32_t i = 0; i < n; i++) {
        made[i] = p[i];
        if (value_is_zero(p[i].vn)) continue;
        TensorId t = value_param(v, p[i].vn);
        if (!t || !tensor_trains(&v->g->tensors.at[t]) || !v->g->tensors.at[t].grad) {
            verify_report(v, "verify-coverage", pc, "updates %s, which is not a trained parameter",
                          value_name(v, p[i].vn));
            out.bad = true;
            continue;
        }
        if (!verify_balance(v, pc, t)) out.bad = true;
        if (grad->bad || !check_gradient(v, pc, t, &p[i], entry_at(g, m, p[i].lo))) out.bad = true;
        v->n_updates[t]++;
        made[i].vn = value_leaf("updated parameter", t);
    }
    if (param->list)
        out.list = value_add_list(v, made, n);
    else
        out.vn = made[0].vn;
    return out;
}

void value_update(Verifier *v, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    const uint32_t states = in->op == OP_adamw ? 2 : 0, at_grad = 1 + states;
    Val arg[MAX_IN];
    for (uint32_t i = 0; i < in->n_in; i++)
        arg[i] = value_read(v, pc, program_arg(v->p, in, i), "input", i);
    Val out = {.bad = true};
    bool ok = !arg[0].bad;
    if (ok && !arg[at_grad].bad && arg[at_grad].shape != arg[0].shape) {
        verify_report(v, "verify-layout", pc,
                      "the parameters have layout %s, but the gradients have %s",
                      value_shape_text(v, arg[0].shape), value_shape_text(v, arg[at_grad].shape));
        ok = false;
    }
    if (ok) out = update_entries(v, pc, &arg[0], &arg[at_grad]);
    if (in->op == OP_sign_step) {
        value_write(v, pc, program_arg(v->p, in, in->n_in), out);
        return;
    }
    check_coefficient(v, pc, &arg[in->n_in - 1]);
    const Attrs *attrs = verify_attrs(v, pc);
    const char *fault = verify_rule_fault(in, attrs);
    const DType dtype = v->p->buffers.at[program_arg(v->p, in, 0)].dtype;
    if (!fault) fault = verify_rounding_fault(in, attrs, dtype);
    if (fault)
        verify_report(v, "verify-scale", pc, "%s (beta1 %g, beta2 %g, eps %g, weight_decay %g)",
                      fault, attrs->beta1, attrs->beta2, attrs->eps, attrs->weight_decay);
    const bool rounds_alike =
        !v->rule || v->rule_dtype != dtype || v->rule->stochastic == attrs->stochastic;
    if (v->rule && (v->rule_op != in->op || !same_rule(v->rule, attrs) || !rounds_alike))
        verify_report(v, "verify-scale", pc, "uses another optimizer than the rest of the model");
    v->rule = attrs;
    v->rule_op = in->op;
    v->rule_dtype = dtype;
    value_write(v, pc, program_arg(v->p, in, in->n_in), out);
    for (uint32_t k = 1; k <= states; k++) {
        uint64_t offset;
        BufferId root = program_root(v->p, program_arg(v->p, in, k), &offset);
        Val state = {.bad = !check_state(v, pc, k, &arg[k], &arg[0])};
        state.vn = value_leaf("updated optimizer state", root);
        value_write(v, pc, program_arg(v->p, in, in->n_in + k), state);
    }
}

/* ---- conditions at the end of a step ---- */

/* Checks a buffer that held parameters of a unit when the step began. It must now hold the updated
 * values. */
static void end_of_parameters(Verifier *v, BufferId b)
{
    const Buffer *at = &v->p->buffers.at[b];
    Val val = value_read(v, 0, b, "at the end of the step, parameter", b);
    ValueEntry single;
    uint32_t n;
    if (val.bad || !at->unit) return;
    const Unit *unit = &v->g->units.at[at->unit];
    const ValueEntry *p = value_entries(v, &val, &single, &n);
    for (uint32_t i = 0; i < unit->params.n; i++) {
        TensorId t = unit->params.at[i];
        const ValueEntry *its = n == 1 ? p : entry_at(p, n, v->g->tensors.at[t].flat_offset);
        const bool frozen = v->g->tensors.at[t].frozen;
        const Hash128 want = frozen ? value_of_tensor(v, t, 0) : value_leaf("updated parameter", t);
        if (its && value_same(its->vn, want)) continue;
        verify_report(v, "verify-coverage", 0, "parameter %s is %s%s", v->g->tensors.at[t].name,
                      frozen ? "frozen, but its value changes" : "not updated",
                      at->category == CATEGORY_gathered ? " where the next step reads it gathered"
                                                        : "");
    }
}

static void end_of_loss(Verifier *v, BufferId b)
{
    Val val = value_read(v, 0, b, "at the end of the step, loss", b);
    if (val.bad) return;
    if (!graph_count(v->g) || !value_same(val.vn, value_step_mean(v, 0)))
        verify_report(v, "verify-scale", 0,
                      "the loss of the step must be the mean over the counted tokens%s",
                      value_difference(v, v->g->loss, val.vn));
    else if (layout_axes_partial(&value_shape_at(v, val.shape)->layout))
        verify_report(v, "verify-scale", 0, "the loss of the step was not summed over all ranks");
}

static void unused_communications(Verifier *v)
{
    for (uint32_t i = 1; i < v->vals.n; i++) {
        const Val *val = &v->vals.at[i];
        uint64_t offset;
        if (!val->comm || val->used || val->bad) continue;
        if (v->p->buffers.at[program_root(v->p, val->buffer, &offset)].persistent) continue;
        verify_warn(v, val->writer, "no instruction uses its result");
    }
}

/* Checks a gather program: each tensor on the host must be whole. */
static void end_of_gather(Verifier *v)
{
    const Program *p = v->p;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        TensorId t = at->tensor;
        if (at->parent || !at->persistent || at->space != SPACE_host || !t) continue;
        const Role role = v->g->tensors.at[t].role;
        if (role != ROLE_param && role != ROLE_state) continue;
        Val val = value_read(v, 0, b, "gathered to the host, tensor", t);
        if (val.bad) continue;
        bool its = value_same(val.vn, value_of_tensor(v, t, 0)) ||
                   value_same(val.vn, value_moment(1, t)) || value_same(val.vn, value_moment(2, t));
        if (!its)
            verify_report(v, "verify-coverage", 0, "the tensor gathered as %s is %s",
                          v->g->tensors.at[t].name, value_name(v, val.vn));
        const Layout whole = {{0}};
        if (!layout_equal(&value_shape_at(v, val.shape)->layout, &whole))
            verify_report(v, "verify-coverage", 0, "not all of %s is gathered: %s",
                          v->g->tensors.at[t].name, value_shape_text(v, val.shape));
    }
}

void value_end(Verifier *v)
{
    const Program *p = v->p;
    unused_communications(v);
    if (p->purpose == PURPOSE_gather) end_of_gather(v);
    if (p->purpose != PURPOSE_train) return;
    bool *here = arena_array(v->arena, v->g->tensors.n, sizeof *here), loss = false;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent) continue;
        if (value_is_of_parameters(at) && v->has_gradients) end_of_parameters(v, b);
        if (plan_is_state(v->plan, at)) value_end_of_state(v, b);
        if (at->tensor && at->tensor == v->g->loss) end_of_loss(v, b), loss = true;
        if (at->category != CATEGORY_parameter) continue;
        if (at->tensor) here[at->tensor] = true;
        for (uint32_t i = 0; at->unit && i < v->g->units.at[at->unit].params.n; i++)
            here[v->g->units.at[at->unit].params.at[i]] = true;
    }
    for (TensorId t = 1; t < v->g->tensors.n && v->has_gradients; t++) {
        const Tensor *tensor = &v->g->tensors.at[t];
        if (tensor->role != ROLE_param) continue;
        v->n_homes[t] += here[t];
        if (here[t] && v->n_updates[t] != !tensor->frozen)
            verify_report(v, "verify-coverage", 0, "parameter %s is updated %u times in a step",
                          tensor->name, v->n_updates[t]);
    }
    if (!loss && v->g->loss)
        verify_report(v, "verify-coverage", 0, "no buffer holds the loss of the step");
}
