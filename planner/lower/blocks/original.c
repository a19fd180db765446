/* The state of the lowering at the start and the end of an action. See actions.h. */
#include <stdlib.h>

#include "planner/lower/alike.h"
#include "planner/lower/blocks/actions.h"

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

/* Records that y is the counterpart of x. Returns false if either has another counterpart, or if
 * only one of them is 0. */
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
        p->unit = arena_array(l->scratch, items->units.n + 1, sizeof *p->unit);
    }
    list_reserve_none(l->scratch, &l->value.versions); /* so that the first new version is not 0 */
    p->is_usable = false;
    p->microbatch = l->microbatch;
    p->first_code = l->p->code.n;
    p->first_buffer = l->p->buffers.n;
    p->first_version = l->value.versions.n;
    p->first_named = l->emit.named.n;
    l->unit.seen_uses = l->unit.next_use;
    s->numbers = original_numbers(l);
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

Numbers original_numbers(const Lower *l)
{
    return (Numbers){steps_counters(l), steps_fixed(l), l->emit.stream_end[STREAM_compute]};
}

/* True if nothing is pending that the next instructions would have to end, such as an exchange or a
 * requested wait. */
static bool is_quiet(const Numbers *n)
{
    return n->fixed.n_started == 0 && n->fixed.n_returning == 0 &&
           n->fixed.n_pending <= MOST_PENDING && n->counters.grad_after == 0 &&
           n->counters.floor == 0;
}

/* True if the action changed no member of Lower except those that it is allowed to change. */
static bool only_listed(const Lower *before, const Lower *now)
{
    const Counters c = steps_counters(now);
    return !c.compute_waits && !c.forward_waits && !c.backward_waits &&
           before->value.n_of_step == now->value.n_of_step && steps_only_listed(before, now);
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

static bool same_tensor(const TensorState *x, uint32_t versions_of, const TensorEnd *y)
{
    return versions_of == y->versions_of && x->grad.n_arrived == y->grad.n_arrived &&
           x->grad.n_uses == y->grad.n_uses && x->grad.sums == y->grad.sums && !y->arrived &&
           x->weight_view == y->weight_view && x->grad_view == y->grad_view;
}

/* Lists the tensors that the action has changed. */
static void list_changed(const Lower *l, const StageItems *items, Original *p)
{
    p->changed.n = 0;
    for (uint32_t i = 0; i < items->tensors.n; i++) {
        const TensorId t = items->tensors.at[i];
        const TensorState *x = &p->start.of[i];
        const TensorEnd end = {.i = i,
                               .versions_of = l->value.versions_of[t],
                               .grad = l->grad.of[t],
                               .arrived = l->grad.arrived[t] - x->arrived,
                               .weight_view = l->unit.weight_view[t],
                               .grad_view = l->unit.grad_view[t]};
        const uint32_t versions_of = x->n_versions ? p->start.old.at[x->first].number : 0;
        if (!same_tensor(x, versions_of, &end)) list_push(l->scratch, &p->changed, end);
    }
}

void original_end(Lower *l, const StageItems *items, Original *p)
{
    const StageState *s = &p->start;
    p->numbers = original_numbers(l);
    p->is_usable = !s->shares && is_quiet(&s->numbers) && is_quiet(&p->numbers) &&
                   only_listed(&p->before, l) && old_versions_stay(l, s);
    p->n_unusable += !p->is_usable;
    if (!p->is_usable) return;
    p->end_code = l->p->code.n;
    p->end_buffers = l->p->buffers.n;
    p->end_named = l->emit.named.n;
    p->end_uses = l->unit.seen_uses;
    p->n_losses = l->scalar.n_losses - s->numbers.fixed.n_losses;
    p->versions.n = p->shares.n = 0;
    for (uint32_t i = p->first_version; i < l->value.versions.n; i++)
        list_push(l->scratch, &p->versions, l->value.versions.at[i]);
    for (uint32_t i = p->before.grad.shared.n; i < l->grad.shared.n; i++)
        list_push(l->scratch, &p->shares, l->grad.shared.at[i]);
    list_changed(l, items, p);
    for (uint32_t i = 0; i < items->units.n; i++) p->unit[i] = l->unit.of[items->units.at[i]];
    p->first_had = l->value.first_had[l->microbatch];
    p->end_had = l->value.end_had[l->microbatch];
}

/* ---- equal states */

/* Compares n stored versions with the chain that begins at `now`. */
static bool chains_match(const Lower *l, const OldVersion *old, uint32_t n, uint32_t now,
                         Moves *moves)
{
    for (uint32_t i = 0; i < n; i++, now = l->value.versions.at[now].next) {
        const Version *x = &old[i].version, *y = &l->value.versions.at[now];
        if (!now || !layout_equal(&x->layout, &y->layout) || x->around != y->around ||
            x->consumer != y->consumer || !match(l, &moves->versions, old[i].number, now) ||
            !match_buffers(l, &moves->buffers, x->buffer, y->buffer) ||
            !match_buffers(l, &moves->buffers, x->rows, y->rows))
            return false;
    }
    return now == 0;
}

/* True if lowering would use `view` of a unit's weights: it lies in the gathered weights, or each
 * weight has its own buffer. An older view has no effect. */
static bool weight_is_seen(const Lower *l, const UnitState *s, BufferId view)
{
    if (!view || !s->gathered) return false;
    return s->copied || l->p->buffers.at[view].parent == s->gathered;
}

/* True if lowering would use `view` of a unit's gradient. */
static bool grad_is_seen(const Lower *l, UnitId u, const UnitState *s, BufferId view)
{
    if (!view) return false;
    return lower_copies(l, u) || (s->full_grad && l->p->buffers.at[view].parent == s->full_grad);
}

/* Compares the views of a parameter, x in the original and y now. */
static bool views_match(const Lower *l, Moves *moves, bool x_is_seen, BufferId x, bool y_is_seen,
                        BufferId y)
{
    if (!x_is_seen || !y_is_seen) return x_is_seen == y_is_seen;
    return match_buffers(l, &moves->buffers, x, y);
}

static bool param_matches(const Lower *l, TensorId t, UnitId u, const UnitState *unit,
                          const TensorState *x, Moves *moves)
{
    const UnitState *now = &l->unit.of[u];
    const BufferId weight = l->unit.weight_view[t], grad = l->unit.grad_view[t];
    return views_match(l, moves, weight_is_seen(l, unit, x->weight_view), x->weight_view,
                       weight_is_seen(l, now, weight), weight) &&
           views_match(l, moves, grad_is_seen(l, u, unit, x->grad_view), x->grad_view,
                       grad_is_seen(l, u, now, grad), grad);
}

static bool tensor_matches(const Lower *l, TensorId t, const StageState *s, const TensorState *x,
                           Moves *moves)
{
    const GradState *grad = &l->grad.of[t];
    const uint32_t versions_of = l->value.versions_of[t];
    const OldVersion *old = s->old.at + x->first;
    if (grad->n_expected != x->grad.n_expected || grad->n_arrived != x->grad.n_arrived ||
        grad->n_uses != x->grad.n_uses)
        return false;
    if ((x->n_versions | x->n_sums | versions_of | grad->sums) == 0) return true;
    return chains_match(l, old, x->n_versions, versions_of, moves) &&
           chains_match(l, old + x->n_versions, x->n_sums, grad->sums, moves);
}

/* x and z are the unit before and after the original action, y is the unit now. */
static bool unit_matches(const Lower *l, UnitId u, const UnitState *x, const UnitState *y,
                         const UnitState *z, Moves *moves)
{
    if (x->rest != y->rest || x->m != y->m || x->v != y->v || x->grad != y->grad ||
        x->n_per_microbatch != y->n_per_microbatch || x->begun != y->begun ||
        x->copied != y->copied || !match_buffers(l, &moves->buffers, x->gathered, y->gathered) ||
        !match_buffers(l, &moves->buffers, x->kept, y->kept) ||
        !match_buffers(l, &moves->buffers, x->full_grad, y->full_grad))
        return false;
    if (x->n_reduced == z->n_reduced) {
        const uint32_t used = x->n_contributions - z->n_contributions;
        return used == 0 ||
               y->n_contributions > used; /* the last contribution would reduce the gradient */
    }
    const uint32_t last = lower_n_windows(l, u) - 1;
    return x->n_reduced + 1 == z->n_reduced && x->n_contributions == y->n_contributions &&
           !x->n_reduced == !y->n_reduced && (x->n_reduced == last) == (y->n_reduced == last);
}

static bool units_match(const Lower *l, const StageItems *items, const Original *p, Moves *moves)
{
    for (uint32_t i = 0; i < items->units.n; i++) {
        const UnitId u = items->units.at[i];
        if (!unit_matches(l, u, &p->start.unit[i], &l->unit.of[u], &p->unit[i], moves))
            return false;
    }
    return true;
}

/* Compares the parameters. Their numbers of contributions must be equal if the action reduces their
 * gradient. */
static bool params_match(const Lower *l, const StageItems *items, const Original *p, Moves *moves)
{
    for (uint32_t i = 0; i < items->params.n; i++) {
        const ParamItem item = items->params.at[i];
        const TensorId t = items->tensors.at[item.tensor];
        const TensorState *x = &p->start.of[item.tensor];
        const UnitState *unit = &p->start.unit[item.unit];
        const uint32_t arrived = l->grad.arrived[t];
        const bool reduces = unit->n_reduced != p->unit[item.unit].n_reduced;
        if (!arrived != !x->arrived || (reduces && arrived != x->arrived) ||
            !param_matches(l, t, items->units.at[item.unit], unit, x, moves))
            return false;
    }
    return true;
}

/* Compares use x of the original with use y. Both are indices in the list of uses. */
static bool uses_match(const Lower *l, const Original *p, uint32_t x, uint32_t y)
{
    const uint32_t n = l->unit.uses.n;
    if (x >= n || y >= n) return x >= n && y >= n;
    const UnitUse *a = &l->unit.uses.at[x], *b = &l->unit.uses.at[y];
    return a->unit == b->unit && a->backward == b->backward &&
           a->microbatch - p->microbatch == b->microbatch - l->microbatch;
}

/* Compares uses of units: those that the original action read in the list of uses, and the one
 * before them. */
static bool all_uses_match(const Lower *l, const Original *p)
{
    const uint32_t first = p->start.numbers.counters.next_use, now = l->unit.next_use;
    if (p->end_uses <= first) return true;
    if (!first != !now) return false;
    for (uint32_t x = first ? first - 1 : 0; x < p->end_uses; x++)
        if (!uses_match(l, p, x, x - first + now)) return false;
    return true;
}

static bool pendings_match(const Lower *l, const Numbers *x, const Numbers *y, Moves *moves)
{
    if (x->fixed.n_pending != y->fixed.n_pending || x->fixed.last != y->fixed.last) return false;
    for (uint32_t i = 0; i < x->fixed.n_pending; i++)
        if (x->counters.pending_unit[i] != y->counters.pending_unit[i] ||
            !match_buffers(l, &moves->buffers, x->counters.pending_part[i],
                           y->counters.pending_part[i]))
            return false;
    return true;
}

static int by_pc(const void *x, const void *y)
{
    const PcPair *a = x, *b = y;
    return a->of < b->of ? -1 : a->of > b->of;
}

/* Lists pairs of instructions: one to which the state of the original refers, and the one to which
 * the present state refers in its place. Returns false if the pairs do not have the same order. */
static bool pcs_match(const Lower *l, const StageItems *items, const Original *p,
                      const Numbers *now, Moves *moves)
{
    const Numbers *start = &p->start.numbers;
    moves->pcs.n = 0;
    list_push(l->scratch, &moves->pcs, ((PcPair){0, 0}));
    list_push(l->scratch, &moves->pcs, ((PcPair){start->computed, now->computed}));
#define ADD_pc(name)                                                                               \
    list_push(l->scratch, &moves->pcs, ((PcPair){start->counters.name, now->counters.name}));
#define ADD_send(name)
#define ADD_number(name)
#define X(name, member, kind) ADD_##kind(name)
    COUNTERS(X)
#undef X
    for (uint32_t i = 0; i < items->units.n; i++) {
        const PcPair reduced = {p->start.unit[i].reduced, l->unit.of[items->units.at[i]].reduced};
        list_push(l->scratch, &moves->pcs, reduced);
    }
    qsort(moves->pcs.at, moves->pcs.n, sizeof *moves->pcs.at, by_pc);
    for (uint32_t i = 1; i < moves->pcs.n; i++) {
        const PcPair *a = &moves->pcs.at[i - 1], *b = &moves->pcs.at[i];
        if (a->of == b->of ? a->to != b->to : a->to >= b->to) return false;
    }
    return true;
}

bool moves_pc(const Moves *moves, Pc of, Pc *to)
{
    const PcPair key = {of, 0},
                 *found = bsearch(&key, moves->pcs.at, moves->pcs.n, sizeof *moves->pcs.at, by_pc);
    if (found) *to = found->to;
    return found != NULL;
}

static bool is_known(const Original *p, const Moves *moves, Pc pc)
{
    Pc to;
    return pc >= p->first_code || moves_pc(moves, pc, &to);
}

/* True if the state refers to all earlier instructions for which the original waits. */
static bool named_known(const Lower *l, const Original *p, const Moves *moves)
{
    for (uint32_t i = p->first_named; i < p->end_named; i++) {
        const NamedWaits *named = &l->emit.named.at[i];
        bool known = is_known(p, moves, named->compute);
        for (int k = 0; k < 4; k++) known = known && is_known(p, moves, named->after[k]);
        if (!known) return false;
    }
    return true;
}

static bool same_turns(const Turns *x, const Turns *y)
{
    return x->holds[0] == y->holds[0] && x->holds[1] == y->holds[1] && x->has[0] == y->has[0] &&
           x->has[1] == y->has[1] && x->next == y->next;
}

bool original_matches(const Lower *l, const StageItems *items, const Original *p, Moves *moves)
{
    const StageState *s = &p->start;
    const Numbers now = original_numbers(l);
    if (!same_turns(&p->before.unit.turns_weights, &l->unit.turns_weights) ||
        !same_turns(&p->before.unit.turns_grads, &l->unit.turns_grads))
        return false;
    if (!is_quiet(&now) || !now.fixed.n_losses != !s->numbers.fixed.n_losses ||
        lower_outlives_backward(l, l->microbatch) != lower_outlives_backward(l, p->microbatch) ||
        !all_uses_match(l, p) || !pcs_match(l, items, p, &now, moves) || !named_known(l, p, moves))
        return false;
    counterparts_clear(&moves->buffers, l->p->buffers.n, l->scratch);
    counterparts_clear(&moves->versions, l->value.versions.n + 1, l->scratch);
    if (!units_match(l, items, p, moves) || !pendings_match(l, &s->numbers, &now, moves) ||
        !params_match(l, items, p, moves))
        return false;
    for (uint32_t i = 0; i < items->tensors.n; i++)
        if (!tensor_matches(l, items->tensors.at[i], s, &s->of[i], moves)) return false;
    return true;
}
