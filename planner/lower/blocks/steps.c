/* The state that lowering a block changes: arrays, lists and single numbers of Lower. repeat.c
 * compares these of one block with those of the next, as words of 32 bits. */
#include "planner/lower/blocks/steps.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define AT(type, field)    (offsetof(type, field) / sizeof(uint32_t))
#define MOVES(type, field) (UINT32_C(1) << AT(type, field))

StepWords steps_part(const Lower *l, ChangedPart part, uint32_t first_version)
{
    const uint32_t tensors = l->value.tensor_room;
    const uint32_t unit = MOVES(UnitState, rest) | MOVES(UnitState, m) | MOVES(UnitState, v) |
                          MOVES(UnitState, grad) | MOVES(UnitState, gathered) |
                          MOVES(UnitState, kept) | MOVES(UnitState, last_use) |
                          MOVES(UnitState, reduced) | MOVES(UnitState, full_grad);
    const uint32_t version = MOVES(Version, buffer) | MOVES(Version, rows) |
                             MOVES(Version, consumer) | MOVES(Version, next);
    switch (part) {
    case PART_versions_of: return (StepWords){l->value.versions_of, tensors, 1, 1};
    case PART_grads:
        return (StepWords){l->grad.of, tensors, sizeof(GradState) / 4, MOVES(GradState, sums)};
    case PART_arrived: return (StepWords){l->grad.arrived, tensors, 1, 0};
    case PART_weight_views: return (StepWords){l->unit.weight_view, tensors, 1, 1};
    case PART_grad_views: return (StepWords){l->unit.grad_view, tensors, 1, 1};
    case PART_of_step: return (StepWords){l->value.of_step, tensors, 1, 1};
    case PART_maxima: return (StepWords){l->unit.maximum, tensors, 1, 1};
    case PART_units: return (StepWords){l->unit.of, l->g->units.n, sizeof(UnitState) / 4, unit};
    case PART_versions: {
        Version *at = l->value.versions.at;
        return (StepWords){at ? at + first_version : NULL, l->value.versions.n - first_version,
                           sizeof(Version) / 4, version};
    }
    case PART_COUNT: break;
    }
    assert(0 && "a part");
    return (StepWords){0};
}

StepWords steps_made(const Lower *l, MadeList made)
{
    const uint32_t instr = MOVES(Instr, launch) | MOVES(Instr, match) | MOVES(Instr, args.first) |
                           MOVES(Instr, after.first) | MOVES(Instr, origin) | MOVES(Instr, unit);
    const uint32_t buffer = MOVES(Buffer, parent) | MOVES(Buffer, tensor) | MOVES(Buffer, unit);
    const uint32_t version = MOVES(Version, buffer) | MOVES(Version, rows) |
                             MOVES(Version, consumer) | MOVES(Version, next);
    switch (made) {
    case MADE_code: return (StepWords){l->p->code.at, l->p->code.n, sizeof(Instr) / 4, instr};
    case MADE_args: return (StepWords){l->p->args.at, l->p->args.n, 1, 1};
    case MADE_after: return (StepWords){l->p->after.at, l->p->after.n, 1, 1};
    case MADE_buffers:
        return (StepWords){l->p->buffers.at, l->p->buffers.n, sizeof(Buffer) / 4, buffer};
    case MADE_clocks:
        return (StepWords){l->emit.clocks.at, l->emit.clocks.n, sizeof(Clock) / 4, UINT32_MAX};
    case MADE_versions:
        return (StepWords){l->value.versions.at, l->value.versions.n, sizeof(Version) / 4, version};
    case MADE_shared:
        return (StepWords){l->grad.shared.at, l->grad.shared.n, sizeof(SharedGrad) / 4, 7};
    case MADE_COUNT: break;
    }
    assert(0 && "a list");
    return (StepWords){0};
}

Counters steps_counters(const Lower *l)
{
    Counters c = {0};
#define X(name, member) c.name = l->member;
    COUNTERS(X)
#undef X
    for (uint32_t i = 0; i < l->unit.pending.n && i < MOST_PENDING; i++) {
        c.pending_unit[i] = l->unit.pending.at[i].unit;
        c.pending_part[i] = l->unit.pending.at[i].part;
    }
    return c;
}

void steps_set_counters(Lower *l, const Counters *c)
{
#define X(name, member) l->member = c->name;
    COUNTERS(X)
#undef X
    for (uint32_t i = 0; i < l->unit.pending.n && i < MOST_PENDING; i++) {
        l->unit.pending.at[i].unit = c->pending_unit[i];
        l->unit.pending.at[i].part = c->pending_part[i];
    }
}

Fixed steps_fixed(const Lower *l)
{
    Fixed f = {.n_losses = l->scalar.n_losses,
               .n_started = l->value.started.n,
               .n_returning = l->grad.returning.n,
               .n_pending = l->unit.pending.n,
               .phase = l->phase};
    for (uint32_t i = 0; i < l->unit.pending.n; i++)
        f.last = 2 * f.last + l->unit.pending.at[i].last;
    return f;
}

/* A new member of Lower must be listed in this file if lowering a block changes it. Then adapt the
 * number. */
_Static_assert(sizeof(void *) != 8 || sizeof(Lower) == 2488,
               "list the new member in steps.c if blocks change it");

/* Sets everything to 0 that is listed above. */
static void clear_listed(Lower *l)
{
    const Counters none = {0};
    l->unit.pending.n = 0;
    steps_set_counters(l, &none);
    memset(l->emit.stream_end, 0, sizeof l->emit.stream_end);
    memset(l->emit.newest_attrs, 0, sizeof l->emit.newest_attrs);
    l->phase = 0;
    l->scalar.n_losses = 0;
    memset(&l->emit.clocks, 0, sizeof l->emit.clocks);
    memset(&l->emit.access, 0, sizeof l->emit.access);
    memset(&l->emit.elements, 0, sizeof l->emit.elements);
    memset(&l->value.versions, 0, sizeof l->value.versions);
    memset(&l->value.started, 0, sizeof l->value.started);
    memset(&l->unit.pending, 0, sizeof l->unit.pending);
    memset(&l->grad.shared, 0, sizeof l->grad.shared);
    memset(&l->grad.shared_of, 0, sizeof l->grad.shared_of);
    memset(&l->grad.returning, 0, sizeof l->grad.returning);
}

bool steps_only_listed(const Lower *before, const Lower *now)
{
    Lower x, y;
    memcpy(&x, before, sizeof x);
    memcpy(&y, now, sizeof y);
    clear_listed(&x);
    clear_listed(&y);
    return memcmp(&x, &y, sizeof x) == 0;
}
