/* The values of persistent buffers when a step begins: parameters, optimizer state and other state.
 * All other buffers hold values of the previous step. */
#include "planner/verify/value/value.h"

/* Returns the value of a flat buffer with the parameters of a unit. If `moment` is 1 or 2, returns
 * the value of the buffer with this moment of the parameters. */
static Val flat_parameters(Verifier *v, const Unit *unit, uint32_t moment)
{
    LIST(ValueEntry) entries = {0};
    uint64_t end = 0;
    for (uint32_t i = 0; i <= unit->params.n; i++) {
        bool last = i == unit->params.n;
        TensorId t = last ? 0 : unit->params.at[i];
        uint64_t next = last ? unit->padded : v->g->tensors.at[t].flat_offset;
        if (next > end) {
            ValueEntry gap = {end, next - end, {0, 0}, 0};
            list_push(v->arena, &entries, gap);
        }
        if (last) break;
        const Shape *s = value_shape_at(v, v->param_shape[t]);
        uint64_t n = (uint64_t)shape_local_elements(s, &v->plan->mesh, &v->g->deals);
        ValueEntry entry = {next, n, value_of_tensor(v, t, 0), v->param_shape[t]};
        if (moment) entry.vn = value_moment(moment, t);
        list_push(v->arena, &entries, entry);
        end = next + n;
    }
    Val val = {.list = value_add_list(v, entries.at, entries.n)};
    return val;
}

static void hold_parameters(Verifier *v, BufferId b, uint32_t *flat_of)
{
    const Buffer *at = &v->p->buffers.at[b];
    Val val = {.vn = value_leaf("unknown parameters", b)};
    if (at->unit) {
        const Unit *unit = &v->g->units.at[at->unit];
        const Shape *s = value_shape_at(v, v->canon[at->shape]);
        Shape want = {.n_dims = 1, .dim = {(int64_t)unit->padded}};
        /* a whole copy of the weights, which each step writes again */
        bool gathered = at->category == CATEGORY_gathered;
        for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++)
            if (!gathered && unit->shard >> a & 1) want.layout.on[a] = SPLIT(0);
        if (!shape_equal(s, &want))
            verify_report(
                v, "verify-coverage", 0,
                "buffer %u holds unit %s with layout %s, but between steps the layout is %s", b,
                unit->name, value_shape_text(v, v->canon[at->shape]),
                value_shape_text(v, value_shape(v, &want)));
        else if (flat_of[at->unit])
            val = (Val){.list = flat_of[at->unit]};
        else
            val = flat_parameters(v, unit, 0);
        flat_of[at->unit] = val.list;
    } else if (at->tensor && v->g->tensors.at[at->tensor].role == ROLE_param) {
        val.vn = value_of_tensor(v, at->tensor, 0);
    } else {
        verify_report(v, "verify-coverage", 0,
                      "buffer %u holds a parameter between steps, but names no unit", b);
    }
    value_write(v, 0, b, val);
}

/* Gives a buffer the value of the moments of its unit. Of two such buffers, the first one in the
 * plan has the first moments. */
static void hold_moments(Verifier *v, BufferId b, uint32_t *n_of)
{
    UnitId u = v->p->buffers.at[b].unit;
    if (u && graph_is_frozen(v->g, u))
        verify_report(v, "verify-coverage", 0,
                      "buffer %u holds optimizer state of unit %s, whose parameters are frozen", b,
                      v->g->units.at[u].name);
    if (u)
        value_write(v, 0, b, flat_parameters(v, &v->g->units.at[u], ++n_of[u]));
    else
        value_write(v, 0, b, (Val){.vn = value_leaf("optimizer state of nothing", b)});
}

void value_memory_start(Verifier *v)
{
    const Program *p = v->p;
    uint32_t *flat_of = arena_array(v->arena, v->g->units.n + 1, sizeof *flat_of);
    uint32_t *n_moments = arena_array(v->arena, v->g->units.n + 1, sizeof *n_moments);
    range_map_init(&v->memory, v->arena, sizeof(HeldValue));
    value_whole_start(v);
    v->vals.n = 0;
    list_reserve_none(v->arena, &v->vals);
    list_reserve_none(v->arena, &v->entries);
    list_reserve_none(v->arena, &v->lists);
    v->n_present_slots = 1024;
    while (v->n_present_slots < p->code.n) v->n_present_slots *= 2;
    v->present_slots = arena_array(v->arena, v->n_present_slots, sizeof *v->present_slots);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent) continue;
        Val val = {.vn = value_leaf("left from the step before", b)};
        if (value_is_of_parameters(at)) {
            hold_parameters(v, b, flat_of);
            continue;
        }
        if (at->category == CATEGORY_optimizer) {
            hold_moments(v, b, n_moments);
            continue;
        }
        if (plan_is_state(v->plan, at)) val.vn = value_of_tensor(v, at->tensor, 0);
        value_write(v, 0, b, val);
    }
}
