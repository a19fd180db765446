/* Double buffering. Units of equal size alternate between two buffers for gathered weights, and
 * between two for whole gradients. The buffers have fixed offsets. */
#include <assert.h>

#include "planner/lower/lower.h"

static bool equal(const Lower *l, UnitId a, UnitId b)
{
    const Unit *x = &l->g->units.at[a], *y = &l->g->units.at[b];
    return x->padded == y->padded && x->dtype == y->dtype && x->reduce_dtype == y->reduce_dtype &&
           x->shard == y->shard && x->replicate == y->replicate;
}

static bool may(const Lower *l, UnitId u)
{
    return lower_unit_is_mine(l, u) && l->g->units.at[u].shard && !unit_is_root(l->job, u) &&
           !graph_is_frozen(l->g, u);
}

/* Groups units of equal size, and finds the group with the most elements in all. Returns its first
 * unit, and sets *size to its number of units. If several groups are equally large, the first one
 * is used. */
static UnitId largest_set(const Lower *l, uint32_t *size)
{
    UnitId best = 0;
    uint64_t most = 0;
    *size = 0;
    for (UnitId u = 1; u < l->g->units.n; u++) {
        uint32_t n = 0;
        for (UnitId k = 1; may(l, u) && k < l->g->units.n; k++) n += may(l, k) && equal(l, u, k);
        if (n * l->g->units.at[u].padded <= most) continue;
        most = n * l->g->units.at[u].padded;
        best = u;
        *size = n;
    }
    return best;
}

static void make(Lower *l, Turns *turns, UnitId u, DType dtype, AxisSet partial, Category category)
{
    Shape whole = {.n_dims = 1, .dim = {(int64_t)l->g->units.at[u].padded}};
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (partial >> a & 1) whole.layout.on[a] = PARTIAL_SUM;
    for (int i = 0; i < 2; i++) {
        turns->buffer[i] = lower_buffer(l, &whole, lower_dtype(l, dtype), category);
        l->p->buffers.at[turns->buffer[i]].persistent = true;
    }
}

static void refuse(Lower *l, const char *why, UnitId u)
{
    const PassConfig *pass = pass_config(l->job, PASS_zero);
    if (l->job->diag->n_errors) return; /* one error is enough */
    diag_error(l->job->diag, FAULT_input, "zero-option", pass->loc, "zero{}: %s: %s (%s)",
               pass->zero.nccl_ub ? "nccl_ub" : "fsdp_double_buffer", why, l->g->units.at[u].name);
    diag_hint(l->job->diag, "leave it out");
}

void lower_turns_start(Lower *l)
{
    uint32_t size;
    UnitId first = l->job->sharding.double_buffer ? largest_set(l, &size) : 0;
    if (!first) return;
    const Unit *unit = &l->g->units.at[first];
    if (lower_defers(l, first)) {
        refuse(l,
               "the schedule sums gradients over micro-batches, so the whole gradients of all "
               "units exist at the same time",
               first);
        return;
    }
    l->unit.takes_turns = arena_array(l->scratch, l->g->units.n, sizeof *l->unit.takes_turns);
    for (UnitId u = 1; u < l->g->units.n; u++)
        l->unit.takes_turns[u] = may(l, u) && equal(l, u, first);
    if (!l->job->sharding.resident)
        make(l, &l->unit.turns_weights, first, unit->dtype, 0, CATEGORY_gathered);
    make(l, &l->unit.turns_grads, first, unit->reduce_dtype,
         (AxisSet)(unit->shard | unit->replicate), CATEGORY_gradient);
}

bool lower_takes_turns(const Lower *l, UnitId u)
{
    return l->unit.takes_turns && l->unit.takes_turns[u];
}

BufferId lower_turns_take(Lower *l, Turns *turns, UnitId u)
{
    /* with optim_grads, weights stay gathered and there are no such buffers */
    if (!turns->buffer[0]) return 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t k = (turns->next + i) % 2;
        if (turns->holds[k]) continue;
        turns->holds[k] = turns->has[k] = u;
        turns->next = (k + 1) % 2;
        return turns->buffer[k];
    }
    refuse(l, "a third unit needs a buffer while two others of its size are in use", u);
    return 0;
}

BufferId lower_turns_find(Turns *turns, UnitId u)
{
    for (uint32_t k = 0; k < 2; k++) {
        if (turns->has[k] != u || turns->holds[k]) continue;
        turns->holds[k] = u;
        turns->next = (k + 1) % 2;
        return turns->buffer[k];
    }
    return 0;
}

void lower_turns_give(Turns *turns, UnitId u)
{
    for (int i = 0; i < 2; i++)
        if (turns->holds[i] == u) turns->holds[i] = 0;
}
