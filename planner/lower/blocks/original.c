/* The state of the lowering at the start and the end of an action. See actions.h. */
#include "planner/lower/alike.h"
#include "planner/lower/blocks/actions.h"
#include "planner/lower/blocks/steps.h"

/* ---- counterparts */

void counterparts_clear(Counterparts *c, uint32_t n, Arena *arena)
{
    for (uint32_t i = 0; i < c->known.n; i++) {
        const uint32_t x = c->known.at[i];
        c->from[c->to[x] - 1] = 0;
        c->to[x] = 0;
    }
    c->known.n = 0;
    if (n <= c->room) return;
    c->room = n + n / 2;
    c->to = arena_array(arena, c->room, sizeof *c->to);
    c->from = arena_array(arena, c->room, sizeof *c->from);
}

/* Notes that y is the counterpart of x. Returns false if either has another counterpart, or if only
 * one of them is 0. */
static bool match(const Lower *l, Counterparts *c, uint32_t x, uint32_t y)
{
    if (!x || !y) return x == y;
    if (c->to[x] || c->from[y]) return c->to[x] == y + 1 && c->from[y] == x + 1;
    c->to[x] = y + 1;
    c->from[y] = x + 1;
    list_push(l->scratch, &c->known, x);
    return true;
}

static bool match_buffers(const Lower *l, Counterparts *c, BufferId x, BufferId y)
{
    if (!x || !y) return x == y;
    if (c->to[x] == y + 1) return true;
    const Buffer *a = &l->p->buffers.at[x], *b = &l->p->buffers.at[y];
    if (!buffers_alike(a, b) || lower_is_shared(l, y)) return false;
    return match(l, c, x, y) && match_buffers(l, c, a->parent, b->parent);
}

/* ---- storing the state */

static uint32_t store_chain(const Lower *l, StageState *s, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t v = first; v; v = l->value.versions.at[v].next, n++) {
        const Version *at = &l->value.versions.at[v];
        list_push(l->scratch, &s->old, ((OldVersion){*at, v}));
        s->shares = s->shares || lower_is_shared(l, at->buffer);
    }
    return n;
}

void original_begin(Lower *l, const StageItems *items, Original *p)
{
    StageState *s = &p->start;
    if (!s->of) {
        s->of = arena_array(l->scratch, items->tensors.n, sizeof *s->of);
        s->unit = arena_array(l->scratch, items->units.n + 1, sizeof *s->unit);
        p->versions_of = arena_array(l->scratch, items->tensors.n, sizeof *p->versions_of);
        p->arrived = arena_array(l->scratch, items->tensors.n, sizeof *p->arrived);
        p->grads = arena_array(l->scratch, items->tensors.n, sizeof *p->grads);
        p->used = arena_array(l->scratch, items->units.n + 1, sizeof *p->used);
    }
    list_reserve_none(l->scratch, &l->value.versions); /* so that the first new version is not 0 */
    p->is_usable = false;
    p->microbatch = l->microbatch;
    p->first_code = l->p->code.n;
    p->first_buffer = l->p->buffers.n;
    p->first_version = l->value.versions.n;
    s->old.n = 0;
    s->shares = false;
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const TensorId t = items->tensors.at[i];
        TensorState *at = &s->of[i];
        at->first = s->old.n;
        at->n_versions = store_chain(l, s, l->value.versions_of[t]);
        at->n_sums = store_chain(l, s, l->grad.of[t].sums);
        at->grad = l->grad.of[t];
        at->arrived = l->grad.arrived[t];
        at->weight_view = l->unit.weight_view[t];
        at->grad_view = l->unit.grad_view[t];
    }
    for (uint32_t i = 0; i < items->units.n; i++) s->unit[i] = l->unit.of[items->units.at[i]];
    memcpy(&p->before, l, sizeof *l);
}

/* ---- usable originals */

/* True if no exchange, reduction or wait has begun that the next instructions would end. */
static bool is_quiet(const Lower *l)
{
    return l->value.started.n == 0 && l->unit.pending.n == 0 && l->grad.returning.n == 0 &&
           l->grad.after == 0 && l->emit.floor == 0;
}

/* True if the single numbers of the state have not changed, except those of the tables that every
 * instruction changes. */
static bool only_appended(const Lower *before, const Lower *now)
{
    Counters a = steps_counters(before), b = steps_counters(now);
    if (b.compute_waits || b.forward_waits || b.backward_waits) return false;
    if (before->emit.n_waits != now->emit.n_waits ||
        before->value.n_of_step != now->value.n_of_step)
        return false;
    a.match = b.match;
    a.compute_waits = a.forward_waits = a.backward_waits = 0;
    return memcmp(&a, &b, sizeof a) == 0 && steps_only_listed(before, now);
}

/* True if all versions from before the action are unchanged. */
static bool old_versions_stay(const Lower *l, const StageState *s)
{
    for (uint32_t i = 0; i < s->old.n; i++) {
        const Version *x = &s->old.at[i].version, *y = &l->value.versions.at[s->old.at[i].number];
        if (x->buffer != y->buffer || x->rows != y->rows || x->next != y->next ||
            x->consumer != y->consumer)
            return false;
    }
    return true;
}

/* True if units differ at most in the number of contributions and in waits. Only an action that
 * reduces or gathers the unit reads these waits. */
static bool same_unit(const UnitState *x, const UnitState *y)
{
    return x->rest == y->rest && x->m == y->m && x->v == y->v && x->grad == y->grad &&
           x->gathered == y->gathered && x->kept == y->kept && x->full_grad == y->full_grad &&
           x->n_per_microbatch == y->n_per_microbatch && x->n_reduced == y->n_reduced &&
           x->begun == y->begun && x->copied == y->copied;
}

static bool units_stay(const Lower *l, const StageItems *items, const StageState *s)
{
    for (uint32_t i = 0; i < items->units.n; i++) {
        const UnitState *now = &l->unit.of[items->units.at[i]];
        if (!same_unit(&s->unit[i], now) || s->unit[i].reduced != now->reduced) return false;
    }
    return true;
}

static bool views_stay(const Lower *l, const StageItems *items, const StageState *s)
{
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const TensorId t = items->tensors.at[i];
        if (s->of[i].weight_view != l->unit.weight_view[t] ||
            s->of[i].grad_view != l->unit.grad_view[t])
            return false;
    }
    return true;
}

void original_end(Lower *l, const StageItems *items, Original *p)
{
    const Lower *before = &p->before;
    const StageState *s = &p->start;
    p->is_usable = !s->shares && is_quiet(before) && is_quiet(l) && only_appended(before, l) &&
                   old_versions_stay(l, s) && units_stay(l, items, s) && views_stay(l, items, s);
    p->n_unusable += !p->is_usable;
    if (!p->is_usable) return;
    p->end_code = l->p->code.n;
    p->end_buffers = l->p->buffers.n;
    p->n_losses = l->scalar.n_losses - before->scalar.n_losses;
    p->versions.n = p->shares.n = 0;
    for (uint32_t i = p->first_version; i < l->value.versions.n; i++)
        list_push(l->scratch, &p->versions, l->value.versions.at[i]);
    for (uint32_t i = before->grad.shared.n; i < l->grad.shared.n; i++)
        list_push(l->scratch, &p->shares, l->grad.shared.at[i]);
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const TensorId t = items->tensors.at[i];
        p->versions_of[i] = l->value.versions_of[t];
        p->grads[i] = l->grad.of[t];
        p->arrived[i] = l->grad.arrived[t] - s->of[i].arrived;
    }
    for (uint32_t i = 0; i < items->units.n; i++)
        p->used[i] = s->unit[i].n_contributions - l->unit.of[items->units.at[i]].n_contributions;
    p->first_had = l->value.first_had[l->microbatch];
    p->end_had = l->value.end_had[l->microbatch];
}

/* ---- equal states */

/* Compares n stored versions with the chain that begins at `now`. */
static bool chains_match(const Lower *l, const OldVersion *old, uint32_t n, uint32_t now,
                         Counterparts *buffers, Counterparts *versions)
{
    for (uint32_t i = 0; i < n; i++, now = l->value.versions.at[now].next) {
        const Version *x = &old[i].version, *y = &l->value.versions.at[now];
        if (!now || !layout_equal(&x->layout, &y->layout) || x->around != y->around ||
            x->consumer != y->consumer || !match(l, versions, old[i].number, now) ||
            !match_buffers(l, buffers, x->buffer, y->buffer) ||
            !match_buffers(l, buffers, x->rows, y->rows))
            return false;
    }
    return now == 0;
}

static bool tensor_matches(const Lower *l, TensorId t, const StageState *s, const TensorState *x,
                           Counterparts *buffers, Counterparts *versions)
{
    const GradState *grad = &l->grad.of[t];
    const OldVersion *old = s->old.at + x->first;
    return grad->n_expected == x->grad.n_expected && grad->n_arrived == x->grad.n_arrived &&
           grad->n_uses == x->grad.n_uses && !l->grad.arrived[t] == !x->arrived &&
           l->unit.weight_view[t] == x->weight_view && l->unit.grad_view[t] == x->grad_view &&
           chains_match(l, old, x->n_versions, l->value.versions_of[t], buffers, versions) &&
           chains_match(l, old + x->n_versions, x->n_sums, grad->sums, buffers, versions);
}

bool original_matches(const Lower *l, const StageItems *items, const Original *p,
                      Counterparts *buffers, Counterparts *versions)
{
    const StageState *s = &p->start;
    counterparts_clear(buffers, l->p->buffers.n, l->scratch);
    counterparts_clear(versions, l->value.versions.n + 1, l->scratch);
    if (!is_quiet(l) || !l->scalar.n_losses != !p->before.scalar.n_losses ||
        lower_outlives_backward(l, l->microbatch) != lower_outlives_backward(l, p->microbatch))
        return false;
    for (uint32_t i = 0; i < items->units.n; i++) {
        const UnitState *now = &l->unit.of[items->units.at[i]];
        if (!same_unit(&s->unit[i], now)) return false;
        /* the last contribution would reduce the gradient */
        if (p->used[i] && now->n_contributions <= p->used[i]) return false;
    }
    for (uint32_t i = 0; i < items->tensors.n; i++)
        if (!tensor_matches(l, items->tensors.at[i], s, &s->of[i], buffers, versions)) return false;
    return true;
}
